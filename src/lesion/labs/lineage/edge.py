"""Problems at the edge of what a model can do: tried several times, they come out right sometimes, and not always.

Only these teach GRPO anything: where all tries of a problem earn the same, none has an advantage. (DAPO, Yu et al.
2025, draws such problems anew in every step; here it is done once, ahead.) What was found is kept as JSON lines.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from lesion import atomic as whole
from lesion.engines.engine import Decoding, Request
from lesion.engines.sampling import SAMPLING
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.labs.lineage import material
from lesion.labs.lineage.recipes import Rlvr
from lesion.models.load import Model
from lesion.progress import Silent, Watcher
from lesion.tasks.catalogue import find
from lesion.tasks.prompts import encode
from lesion.tasks.task import Item

FILE = "problems.jsonl"


def problems(model: Model, recipe: Rlvr, out: Path, *, watcher: Watcher | None = None) -> list[Item]:
    """The training problems of a recipe that a model solves in some of its tries, and not in all.

    `out/problems.jsonl` holds a line on who tried what, then a line for every problem with the number of tries that
    were right. It is written when all are tried, and read the next time.

    Args:
        model: who tries, asked in style `plain`.
        recipe: how many problems, tries and tokens, at which temperature, and from which seed.
        out: the folder of the file.
        watcher: told of every try.

    Raises:
        LesionError: every problem comes out the same way every time, so that GRPO has nothing to learn; or the file
            cannot be written.
    """
    drawn = material.questions("arithmetic", recipe.seed, recipe.questions)
    path = out / FILE
    head = {
        "model": model.fingerprint,
        "sampling": SAMPLING,
        **{key: asdict(recipe)[key] for key in ("seed", "questions", "tries", "temperature", "max_new_tokens")},
    }
    right = _read(path, head, len(drawn))
    if right is None:
        right = _try(model, drawn, recipe, watcher or Silent())
        rows = ({"id": item.id, "right": count} for item, count in zip(drawn, right, strict=True))
        try:
            out.mkdir(parents=True, exist_ok=True)
            whole.replace(path, "".join(f"{json.dumps(row)}\n" for row in (head, *rows)))
        except OSError as error:
            raise LesionError(f"{path} cannot be written: {error.strerror or error}; give another --out.") from error
    kept = [item for item, count in zip(drawn, right, strict=True) if 0 < count < recipe.tries]
    if not kept:
        share = sum(right) / (len(right) * recipe.tries)
        raise LesionError(
            f"GRPO has nothing to learn from {len(drawn):,} problems: each of them came out the same way in all"
            f" {recipe.tries} tries of {model.name} ({100 * share:.0f} % of all tries were right). Start from a base"
            f" that is {'trained longer' if share < 0.5 else 'less well trained'}."
        )
    return kept


def _try(model: Model, drawn: Sequence[Item], recipe: Rlvr, watcher: Watcher) -> list[int]:
    """How many tries of each problem are right."""
    task = find("primer:arithmetic")
    watcher.begin(f"{model.name}, problems to learn from", len(drawn) * recipe.tries, 0, "tries")
    prompts = [encode(model, task, item, "plain") for item in drawn]
    requests = [
        Request(
            f"{place} {number}",
            prompt,
            decoding=Decoding(
                recipe.max_new_tokens, task.stop, recipe.temperature, seed=recipe.seed * recipe.tries + number
            ),
        )
        for number in range(recipe.tries)
        for place, prompt in enumerate(prompts)
    ]
    right = [0] * len(drawn)
    for response in TransformersEngine(model).answer(requests):
        place = int(response.key.partition(" ")[0])
        right[place] += task.judge(drawn[place], response.answer).correct
        watcher.answered(1)
    return right


def _read(path: Path, head: dict[str, object], count: int) -> list[int] | None:
    """What the file holds, where it is whole and of this model and recipe."""
    try:
        first, *rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [int(row["right"]) for row in rows] if first == head and len(rows) == count else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
