"""The children of a base: instruct and distill by supervised tuning, rlvr by reinforcement with a verifiable reward."""

from __future__ import annotations

import copy
import importlib.metadata
from dataclasses import asdict
from pathlib import Path

import torch

from lesion.errors import LesionError
from lesion.models.load import Model, wrap
from lesion.progress import Silent, Watcher
from lesion.tasks.catalogue import find
from lesion.training.examples import example
from lesion.training.supervised import supervise
from lesion.training.verifiable import reinforce
from lesion_labs.lineage import chat
from lesion_labs.lineage.card import Facts, doubt, proven
from lesion_labs.lineage.examination import gains, remembered, results, sentence
from lesion_labs.lineage.lessons import mixture, problems, teach
from lesion_labs.lineage.recipes import Distill, Recipe, Rlvr
from lesion_labs.lineage.shipping import machine, ship

EXAMINED = "examined"
"""The folder of `out` in which answers to the test items are kept, unless another is given."""


def train_child(
    parent: Model,
    out: Path,
    recipe: Recipe,
    *,
    tutor: Model | None = None,
    examined: Path | None = None,
    watcher: Watcher | None = None,
) -> Path:
    """Train a child of a base, and examine it beside its parent.

    `Instruct` learns the gold solutions of training questions of all skills, `Distill` what a teacher says to them
    where it is right, both in chat turns. `Rlvr` tries training problems of arithmetic in the plain form of its base,
    and what the judge finds right is made likelier (GRPO).

    Args:
        parent: the base, in float32; it stays as it is.
        out: resumable state, and the folder `model` of what is trained; an interrupted training goes on there.
        recipe: which child, and how it is trained.
        tutor: the teacher of `Distill`, of the same tokenizer.
        examined: the folder in which answers to the test items are kept by fingerprint, so that a parent of several
            children is evaluated once; `out/examined` by default.
        watcher: told of every step and every answer; where the gain over the parent may be none, of that too.

    Returns:
        The folder `out/model`: weights in half precision, tokenizer with chat template, card, `training.json`.
    """
    watcher = watcher or Silent()
    child = _child(parent, recipe.stage)
    data: dict[str, object]
    if isinstance(recipe, Rlvr):
        items = problems(parent, recipe, out, watcher=watcher)
        task = find("primer:arithmetic")
        curve = reinforce(child, task, items, recipe, out, watcher=watcher, style="plain")
        data = {"problems": recipe.questions, "kept": len(items)}
    else:
        taught: dict[str, object] = {}
        if isinstance(recipe, Distill):
            assert tutor is not None
            right = teach(tutor, recipe, out, watcher=watcher)
            lessons = [example(child, lesson.task, lesson.item, lesson.text) for lesson in right]
            taught = {"asked": recipe.questions, "teacher": tutor.fingerprint}
        else:
            drawn = mixture(recipe.shares, recipe.seed, recipe.questions)
            lessons = [example(child, task, item, item.solution) for task, item in drawn]
        curve = supervise(child, lessons, recipe, out, watcher=watcher)
        tokens = sum(len(lesson.completion) for lesson in lessons)
        data = {"examples": len(lessons), "completion_tokens": tokens, **taught}

    def measure(shipped: Model) -> Facts:
        # What is examined is what ships: the weights as they were rounded to half precision.
        folder = examined or out / EXAMINED
        before = remembered(parent, folder, watcher=watcher)
        after = remembered(wrap(shipped.network, shipped.tokenizer, child.name), folder, watcher=watcher)
        return {"results": results(after), "gain": gains(after, before), "curve": curve}

    facts: Facts = {
        "family": family_of(parent),
        "stage": recipe.stage,
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
    facts = ship(child.network, child.tokenizer, out, facts, measure)
    for entry in facts["gain"]:
        watcher.note(f"{child.name}, {entry['task']}: {sentence(entry)} over {facts['parent']['name']}")
    if recipe.stage == "rlvr" and not proven(facts["gain"]):
        watcher.note(doubt(child.name))
    return out / "model"


def _child(parent: Model, stage: str) -> Model:
    """A copy of the parent in the form of a stage."""
    if parent.dtype != torch.float32:
        raise LesionError(f"{parent.name} is in {parent.dtype}; load it in float32 to train a child of it.")
    network, tokenizer = copy.deepcopy(parent.network), copy.deepcopy(parent.tokenizer)
    chat.give(network, tokenizer, stage)
    return wrap(network, tokenizer, member(parent, stage))


def family_of(model: Model) -> str:
    """The family of a model, by its configuration: `llama`."""
    return str(model.network.config.model_type)


def member(model: Model, stage: str) -> str:
    """The name that a stage of a model's lineage has: `llama-rlvr`."""
    return f"{family_of(model)}-{stage}"
