"""Problems at the edge of what a model can do: of several tries, some are right and some are not.

Only these teach GRPO anything: where all tries of a problem earn the same, none has an advantage. (DAPO, Yu et al.
2025, draws such problems anew in every step; here it is done once, ahead.) The counts are kept as JSON lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

from lesion.engines.engine import Decoding
from lesion.engines.sampling import SAMPLING
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.progress import Silent, Watcher
from lesion.tasks.catalogue import find
from lesion.tasks.task import Item
from lesion_labs.lineage import material
from lesion_labs.lineage.inference import answer, kept
from lesion_labs.lineage.recipes import Rlvr

FILE = "problems.jsonl"


class _Row(TypedDict):
    id: str
    right: int


def problems(model: Model, recipe: Rlvr, out: Path, *, watcher: Watcher | None = None) -> list[Item]:
    """The training problems of a recipe that a model, asked in style `plain`, solves in some of its tries, not in all.

    `out/problems.jsonl` keeps the number of right tries of every problem.
    """
    drawn = material.questions("arithmetic", recipe.seed, recipe.questions)
    head = {
        "model": model.fingerprint,
        "sampling": SAMPLING,
        **{key: asdict(recipe)[key] for key in ("seed", "questions", "tries", "temperature", "max_new_tokens")},
    }
    rows = kept(out / FILE, head, len(drawn), lambda: _tried(model, drawn, recipe, watcher or Silent()))
    right = [row["right"] for row in rows]
    mixed = [item for item, count in zip(drawn, right, strict=True) if 0 < count < recipe.tries]
    if not mixed:
        share = sum(right) / (len(right) * recipe.tries)
        raise LesionError(
            f"GRPO has nothing to learn from {len(drawn):,} problems: each of them came out the same way in all"
            f" {recipe.tries} tries of {model.name} ({100 * share:.0f} % of all tries were right). Start from a base"
            f" that is {'trained longer' if share < 0.5 else 'less well trained'}."
        )
    return mixed


def _tried(model: Model, drawn: Sequence[Item], recipe: Rlvr, watcher: Watcher) -> list[_Row]:
    """How many tries of each problem are right."""
    task = find("primer:arithmetic")
    watcher.begin(f"{model.name}, problems to learn from", len(drawn) * recipe.tries, 0, "tries")
    decodings = [
        Decoding(recipe.max_new_tokens, task.stop, recipe.temperature, seed=recipe.seed * recipe.tries + number)
        for number in range(recipe.tries)
    ]
    tries = answer(model, [(task, item, decoding) for decoding in decodings for item in drawn], watcher, "plain")
    right = [correct for _, correct in tries]
    return [{"id": item.id, "right": sum(right[place :: len(drawn)])} for place, item in enumerate(drawn)]
