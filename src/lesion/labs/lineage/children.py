"""The children of a base: instruct and distill by supervised tuning, rlvr by reinforcement with a verifiable reward."""

from __future__ import annotations

import copy
import importlib.metadata
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from lesion.errors import LesionError
from lesion.labs.lineage import chat, edge, material, teacher
from lesion.labs.lineage.card import doubt, proven
from lesion.labs.lineage.examination import gains, remembered, results, sentence
from lesion.labs.lineage.recipes import Distill, Instruct, Recipe, Rlvr
from lesion.labs.lineage.shipping import machine, ship
from lesion.models.load import Model, wrap
from lesion.progress import Silent, Watcher
from lesion.tasks.catalogue import find
from lesion.training.examples import Example, example
from lesion.training.supervised import supervise
from lesion.training.verifiable import reinforce

EXAMINED = "examined"
"""The folder of `out` in which answers to the test items are kept, unless another is given."""


def train_instruct(
    parent: Model,
    out: Path,
    recipe: Instruct | None = None,
    *,
    examined: Path | None = None,
    watcher: Watcher | None = None,
) -> Path:
    """Tune a base on chat turns with the gold solutions of training questions, of all skills.

    Args:
        parent: the base, in float32; it stays as it is.
        out: resumable state, and the folder `model` of what is trained; an interrupted training goes on there.
        recipe: the one of the bundled child by default.
        examined: the folder in which answers to the test items are kept by fingerprint, so that a parent of several
            children is asked once; `out/examined` by default.
        watcher: told of every step and every answer.

    Returns:
        The folder `out/model`: weights in half precision, tokenizer with chat template, card, `training.json`.

    Raises:
        UsageError, LesionError: as for `lesion.training.supervised.supervise`; also where the tokenizer has no tokens
            for chat turns, or the model cannot be written.
    """
    recipe = recipe or Instruct()
    child = _child(parent, "instruct")
    drawn = material.mixture(recipe.shares, recipe.seed, recipe.questions)
    lessons = [example(child, task, item, item.solution) for task, item in drawn]
    curve = supervise(child, lessons, recipe.tuning, out, watcher=watcher)
    return _finish(child, parent, "instruct", out, recipe, curve, _said(lessons), examined, watcher)


def train_rlvr(
    parent: Model,
    out: Path,
    recipe: Rlvr | None = None,
    *,
    examined: Path | None = None,
    watcher: Watcher | None = None,
) -> Path:
    """Let a base try training problems of arithmetic, and make likelier what the judge finds right (GRPO).

    The child is asked, and answers, in the plain form of its base.

    Args:
        parent: the base, in float32; it stays as it is.
        out: as for `train_instruct`.
        recipe: the one of the bundled child by default.
        examined: as for `train_instruct`.
        watcher: told of every step and every answer; where the gain over the parent may be none, of that too.

    Returns:
        As `train_instruct`.

    Raises:
        UsageError, LesionError: as for `edge.problems` and `lesion.training.verifiable.reinforce`: above all, where the
            reward is the same for all that is tried; also where the model cannot be written.
    """
    recipe = recipe or Rlvr()
    child = _child(parent, "rlvr")
    items = edge.problems(parent, recipe, out, watcher=watcher)
    task = find("primer:arithmetic")
    curve = reinforce(child, task, items, recipe.reinforcement, out, watcher=watcher, style="plain")
    return _finish(
        child, parent, "rlvr", out, recipe, curve, {"problems": recipe.questions, "kept": len(items)}, examined, watcher
    )


def train_distill(
    parent: Model,
    tutor: Model,
    out: Path,
    recipe: Distill | None = None,
    *,
    examined: Path | None = None,
    watcher: Watcher | None = None,
) -> Path:
    """Tune a base on chat turns with what a teacher says, where it is right: chains of thought and one-word answers.

    Args:
        parent: the base, in float32; it stays as it is.
        tutor: the teacher, of the same tokenizer; the RLVR child of the base.
        out: as for `train_instruct`; `out/teacher.jsonl` keeps what the teacher said.
        recipe: the one of the bundled child by default.
        examined: as for `train_instruct`.
        watcher: told of every step and every answer.

    Returns:
        As `train_instruct`.

    Raises:
        UsageError, LesionError: as for `train_instruct`; also where nothing that the teacher says is right.
    """
    recipe = recipe or Distill()
    child = _child(parent, "distill")
    taught = teacher.teach(tutor, recipe, out, watcher=watcher)
    lessons = [example(child, lesson.task, lesson.item, lesson.text) for lesson in taught.right]
    curve = supervise(child, lessons, recipe.tuning, out, watcher=watcher)
    data = _said(lessons) | {"asked": taught.asked, "teacher": tutor.fingerprint}
    return _finish(child, parent, "distill", out, recipe, curve, data, examined, watcher)


def _child(parent: Model, stage: str) -> Model:
    """A copy of the parent in the form of a stage.

    Raises:
        LesionError: the parent is in half precision, or its tokenizer lacks the tokens of the form.
    """
    if parent.dtype != torch.float32:
        raise LesionError(f"{parent.name} is in {parent.dtype}; load it in float32 to train a child of it.")
    network, tokenizer = copy.deepcopy(parent.network), copy.deepcopy(parent.tokenizer)
    chat.give(network, tokenizer, chat.form_of(stage))
    return wrap(network, tokenizer, member(parent, stage))


def family_of(model: Model) -> str:
    """The family of a model, by its configuration: `llama`."""
    return str(model.network.config.model_type)


def member(model: Model, stage: str) -> str:
    """The name that a stage of a model's lineage has: `llama-rlvr`."""
    return f"{family_of(model)}-{stage}"


def _said(lessons: Sequence[Example]) -> dict[str, Any]:
    return {"examples": len(lessons), "completion_tokens": sum(len(lesson.completion) for lesson in lessons)}


def _finish(
    child: Model,
    parent: Model,
    stage: str,
    out: Path,
    recipe: Recipe,
    curve: Sequence[dict[str, Any]],
    data: dict[str, Any],
    examined: Path | None,
    watcher: Watcher | None,
) -> Path:
    """Write a child, examine what was written beside its parent, and write card and `training.json`."""
    watcher = watcher or Silent()

    def measure(shipped: Model) -> dict[str, Any]:
        # What is examined is what ships: the weights as they were rounded to half precision.
        folder = examined or out / EXAMINED
        named = wrap(shipped.network, shipped.tokenizer, child.name)
        before = remembered(parent, folder, watcher=watcher)
        after = remembered(named, folder, watcher=watcher)
        return {"results": results(after), "gain": gains(after, before), "curve": list(curve)}

    facts = {
        "family": family_of(parent),
        "stage": stage,
        "parent": {"name": member(parent, "base"), "fingerprint": parent.fingerprint},
        "recipe": asdict(recipe),
        "data": data,
        "vocabulary": len(child.tokenizer),
        "steps": curve[-1]["step"],
        "seconds": curve[-1]["seconds"],
        "machine": machine(str(parent.device)),
        "torch": torch.__version__,
        "trl": importlib.metadata.version("trl"),
    }
    told = ship(child.network, child.tokenizer, out, facts, measure)
    for entry in told["gain"]:
        watcher.note(f"{child.name}, {entry['task']}: {sentence(entry)} over {told['parent']['name']}")
    if stage == "rlvr" and not proven(told["gain"]):
        watcher.note(doubt(child.name))
    return out / "model"
