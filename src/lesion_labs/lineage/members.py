"""The members of a lineage from start to finish: trained, saved, examined on the primer's test splits, with a card.

A base is trained from scratch; of its children instruct and distill are tuned, rlvr is reinforced with a verifiable
reward. A family lies in one folder, where `train` makes its members in order.
"""

from __future__ import annotations

import copy
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from lesion.bounds import check
from lesion.core.lock import locked
from lesion.engines.engine import Decoding
from lesion.errors import LesionError, UsageError
from lesion.models import source as sources
from lesion.models.load import Model, configuration, load, wrap
from lesion.models.names import device_of
from lesion.progress import SILENT, Watcher
from lesion.report.wording import counted
from lesion.statistics.paired import paired_drop, wilson
from lesion.tasks.catalogue import find
from lesion.tasks.primer import NAMES
from lesion.tasks.task import Item
from lesion.training.resume import Point, digest
from lesion.training.supervised import example, supervise
from lesion.training.verifiable import reinforce
from lesion_labs.kinds import ALL, STAGES, refuse_stage, refuse_unknown
from lesion_labs.lineage import base as bases
from lesion_labs.lineage import shipping
from lesion_labs.lineage.base import DOZEN, FAMILIES, GROUP, place, recipe_of, schedule
from lesion_labs.lineage.lessons import RECIPES, Distill, Recipe, Rlvr, answer, kept, mixture, problems, teach
from lesion_labs.lineage.shipping import Entry, Facts, doubt, machine, ship
from lesion_labs.lineage.tokenizer import give_form

Right = Mapping[str, Mapping[str, bool]]
"""Whether each answer is right, by task and by the id of its item."""


def answers(model: Model, *, watcher: Watcher = SILENT) -> Right:
    """Which items of the test splits a model gets right, decoding greedily, asked as `auto` has it."""
    items_of = {name: _items(name) for name in _tasks()}
    watcher.begin(model.name, sum(map(len, items_of.values())), 0)
    right: dict[str, dict[str, bool]] = {}
    for name, items in items_of.items():
        task = find(name)
        decoding = Decoding(task.max_new_tokens, task.stop)
        answered = answer(model, [(task, item, decoding) for item in items.values()], watcher)
        right[name] = {key: correct for key, (_, correct) in zip(items, answered, strict=True)}
    return right


def remembered(model: Model, folder: Path, *, watcher: Watcher = SILENT) -> Right:
    """As `answers`, kept in a folder under the model's fingerprint: a parent is examined once for all its children."""
    ids = {name: list(_items(name)) for name in _tasks()}
    head = {"model": model.fingerprint, "items": digest(ids)}
    rows = kept(
        folder / f"{model.fingerprint}.jsonl", head, len(ids),
        lambda: [{"task": name, "right": right} for name, right in answers(model, watcher=watcher).items()],
    )  # fmt: skip
    return {row["task"]: row["right"] for row in rows}


def results(right: Right) -> list[Entry]:
    """Accuracies with 95 % Wilson intervals, of every task overall (group "") and by group of its items."""
    entries: list[Entry] = []
    for name, verdicts in right.items():
        items = _items(name)
        for group in ("", *sorted({item.group for item in items.values()})):
            of_group = [verdicts[key] for key, item in items.items() if group in ("", item.group)]
            count, n = sum(of_group), len(of_group)
            low, high = (round(limit, 5) for limit in wilson(count, n))
            accuracy = round(count / n, 5)
            entries.append({"task": name, "group": group, "items": n, "accuracy": accuracy, "low": low, "high": high})
    return entries


def gains(child: Right, parent: Right) -> list[Entry]:
    """How much more of the same items a child gets right than its parent, per task, with Tango's 95 % interval."""
    entries: list[Entry] = []
    for name, verdicts in child.items():
        mine = np.array(list(verdicts.values()))
        before = np.array([parent[name][key] for key in verdicts])
        gain = paired_drop(mine, before)
        low, high = round(gain.low, 5), round(gain.high, 5)
        entry = {"task": name, "items": len(mine), "gain": round(gain.value, 5), "low": low, "high": high}
        entries.append(entry | {"gained": int((mine & ~before).sum()), "lost": int((before & ~mine).sum())})
    return entries


def _tasks() -> list[str]:
    return [f"primer:{name}" for name in NAMES]


def _items(name: str) -> dict[str, Item]:
    return {item.id: item for item in find(name).load()}


EXAMINED = "examined"
"""The folder of `out` in which answers to the test items are kept, unless another is given."""


def train_base(
    out: Path,
    recipe: bases.Recipe,
    *,
    device: str = "auto",
    checkpoints: int = DOZEN,
    watcher: Watcher = SILENT,
) -> Path:
    """Train the base model into `out`, write it to `out/model`, and return that folder.

    Args:
        out: resumable state, curve and model; an interrupted training goes on from its last group of documents.
        checkpoints: how many states are kept in `out/checkpoints`; `load(out / "model", revision="stepN")` loads one.
    """
    chosen = str(device_of(device))
    network, tokenizer, curve = bases.train(out, recipe, chosen, checkpoints, watcher)
    _note_missing(out, schedule(recipe.length, checkpoints), curve, watcher)

    def measure(shipped: Model) -> Facts:
        return {"results": results(answers(shipped, watcher=watcher)), "curve": curve}

    facts: Facts = {
        "family": recipe.family,
        "stage": "base",
        "recipe": {**asdict(recipe), "documents": recipe.length * GROUP},
        "tokens": curve[-1]["tokens"],
        **_training(tokenizer, curve, chosen),
    }
    ship(network, tokenizer, out, facts, measure)
    return out / "model"


def _note_missing(out: Path, kept: Sequence[int], curve: Sequence[Point], watcher: Watcher) -> None:
    """Name the checkpoints that an earlier part of this training did not keep."""
    missing = [step for group in kept if not place(out, step := int(curve[group - 1]["step"])).is_dir()]
    if missing:
        watcher.note(
            f"the training has passed {len(missing)} of {counted(len(kept), 'checkpoint')} without keeping"
            f" {'it' if len(missing) == 1 else 'them'} (step {', '.join(map(str, missing))}); a training into another"
            " --out keeps all."
        )


def train_child(
    parent: Model,
    out: Path,
    recipe: Recipe,
    *,
    tutor: Model | None = None,
    examined: Path | None = None,
    watcher: Watcher = SILENT,
) -> Path:
    """Train a child of a base, and examine it beside its parent.

    `Instruct` learns the gold solutions of training questions of all skills, `Distill` what a teacher says to them
    where it is right, both in chat turns. `Rlvr` tries training problems of arithmetic in the plain form of its base,
    and what the judge finds right is made likelier (GRPO).

    Args:
        parent: the base, in float32; it stays as it is.
        out: resumable state, and the folder `model` of what is trained; an interrupted training goes on there.
        tutor: the teacher of `Distill`, of the same tokenizer.
        examined: the folder in which answers to the test items are kept by fingerprint, so that a parent of several
            children is evaluated once; `out/examined` by default.

    Returns:
        The folder `out/model`: weights in half precision, tokenizer with chat template, card, `training.json`.
    """
    child = _child(parent, recipe.stage)
    if isinstance(recipe, Rlvr):
        items = problems(parent, recipe, out, watcher=watcher)
        task = find("primer:arithmetic")
        curve = reinforce(child, task, items, recipe, out, watcher=watcher, style="plain")
        data: Facts = {"problems": recipe.questions, "kept": len(items)}
    else:
        taught: Facts = {}
        if isinstance(recipe, Distill):
            assert tutor is not None
            lessons = teach(tutor, recipe, out, watcher=watcher)
            taught = {"asked": recipe.questions, "teacher": tutor.fingerprint}
        else:
            lessons = [(*pair, pair[1].solution) for pair in mixture(recipe.shares, recipe.seed, recipe.questions)]
        examples = [example(child, task, item, text) for task, item, text in lessons]
        curve = supervise(child, examples, recipe, out, watcher=watcher)
        tokens = sum(len(each.completion) for each in examples)
        data = {"examples": len(examples), "completion_tokens": tokens, **taught}

    def measure(shipped: Model) -> Facts:
        # What is examined is what ships: the weights as they were rounded to half precision.
        folder = examined or out / EXAMINED
        before = remembered(parent, folder, watcher=watcher)
        after = remembered(wrap(shipped.network, shipped.tokenizer, child.name), folder, watcher=watcher)
        return {"results": results(after), "gain": gains(after, before), "curve": curve}

    facts: Facts = {
        "family": family_of(parent),
        "stage": recipe.stage,
        "parent": {"name": f"{family_of(parent)}-base", "fingerprint": parent.fingerprint},
        "recipe": asdict(recipe),
        "data": data,
        **_training(child.tokenizer, curve, str(parent.device)),
        "trl": importlib.metadata.version("trl"),
    }
    facts = ship(child.network, child.tokenizer, out, facts, measure)
    if doubts := doubt(facts):
        watcher.note(doubts)
    return out / "model"


def _training(tokenizer: PreTrainedTokenizerBase, curve: Sequence[Point], device: str) -> Facts:
    return {
        "vocabulary": len(tokenizer),
        "steps": curve[-1]["step"],
        "seconds": curve[-1]["seconds"],
        "machine": machine(device),
        "torch": torch.__version__,
    }


def _child(parent: Model, stage: str) -> Model:
    if parent.dtype != torch.float32:
        raise LesionError(f"{parent.name} is in {parent.dtype}; load it in float32 to train a child of it.")
    network, tokenizer = copy.deepcopy(parent.network), copy.deepcopy(parent.tokenizer)
    give_form(network, tokenizer, stage)
    return wrap(network, tokenizer, f"{family_of(parent)}-{stage}")


def family_of(model: Model) -> str:
    """The family of a model, by its configuration: `llama`."""
    return str(model.network.config.model_type)


def train(
    out: Path,
    stage: str = "base",
    *,
    family: str | None = None,
    seed: int = 0,
    base: str | None = None,
    groups: int | None = None,
    device: str = "auto",
    checkpoints: int = DOZEN,
    watcher: Watcher = SILENT,
) -> list[Path]:
    """Train a stage of the lineage, or all of them, and what it needs that is not there.

    A stage's model is written to `out/STAGE/model`. A child's base is `out/base/model` where that is there, else
    `base`, else with seed 0 the bundled base of the family. The teacher of the distilled child is `out/rlvr/model`,
    which is trained first where it is missing. A finished model is not trained again; an interrupted training goes on.

    Args:
        family: one of `base.FAMILIES`; that of `base` by default, else llama.
        seed: of weights, documents, questions and their order.
        base: a model to take as the base of the children, as for `lesion.load`.
        groups, checkpoints: of the base, as for `train_base`.
    """
    refuse_stage(stage)
    if stage == "base" and base is not None:
        raise UsageError(f"A base is trained from scratch, and {base} would not be looked at; leave out --base.")
    if seed < 0:
        raise UsageError(f"A seed is a whole number from 0, not {seed}.")
    check(groups=groups, checkpoints=checkpoints, seed=seed)
    family = _family(family, base)
    chosen = str(device_of(device))
    schedule(1, checkpoints)  # refuses fewer than none
    trained = []
    with locked(out, "lineage"):
        if stage == "base" or (stage == ALL and base is None):
            trained.append(out / "base" / "model")
            if stage == "base" or shipping.facts(trained[0]) is None:
                recipe = recipe_of(family, seed=seed, groups=groups)
                train_base(out / "base", recipe, device=chosen, checkpoints=checkpoints, watcher=watcher)
        if stage == "base":
            return trained
        parent = _parent(out, family, seed, base, chosen, watcher)
        for name in STAGES[1:]:
            if stage in (name, ALL):
                trained.append(_train_child(name, parent, out, seed, chosen, watcher))
            elif (name, stage) == ("rlvr", "distill"):
                _train_child(name, parent, out, seed, chosen, watcher)
    return trained


def finished(out: Path, base: str | None = None) -> list[Facts]:
    """The facts of the finished members in a folder, in the order of training; before them those of a local or bundled
    `base`, where none was trained in `out`."""
    members = [shipping.facts(out / stage / "model") for stage in STAGES]
    if base is not None and members[0] is None and (source := sources.find(base)).local:
        members[0] = shipping.facts(Path(source.place))
    return [facts for facts in members if facts is not None]


def _train_child(name: str, parent: Model, out: Path, seed: int, device: str, watcher: Watcher) -> Path:
    place, recipe = out / name, RECIPES[name](seed=seed)
    finished = shipping.facts(place / "model")
    if finished is None:
        tutor = load(out / "rlvr" / "model", dtype="float32", device=device) if name == "distill" else None
        return train_child(parent, place, recipe, tutor=tutor, examined=out / EXAMINED, watcher=watcher)
    base = finished.get("parent", {}).get("fingerprint")
    if base != parent.fingerprint or finished.get("recipe") != asdict(recipe):
        raise LesionError(
            f"{place / 'model'} was trained from another base or by another recipe; give another --out, or delete"
            " that folder."
        )
    watcher.note(f"{place / 'model'} is there already")
    return place / "model"


def _family(family: str | None, base: str | None) -> str:
    if family is not None:
        refuse_unknown("The lineage has no family", family, tuple(FAMILIES))
    if base is None:
        return family or next(iter(FAMILIES))
    kind = str(configuration(base).model_type)
    if kind not in FAMILIES:
        raise UsageError(f"{base} is a {kind}, and the lineage has {' and '.join(FAMILIES)}; give another --base.")
    if family not in (None, kind):
        raise UsageError(f"{base} is of the family {kind}, not {family}; give --family {kind}, or another --base.")
    return kind


def _parent(out: Path, family: str, seed: int, base: str | None, device: str, watcher: Watcher) -> Model:
    """The base whose children are trained, in the form of the base."""
    own = out / "base" / "model"
    if shipping.facts(own) is not None:
        if base is not None:
            watcher.note(f"the base is {own}, which was trained here; {base} is left aside")
        source = str(own)
    elif base is not None:
        source = base
    elif seed == 0 and f"{family}-base" in sources.bundled():
        source = f"bundled:{family}-base"
        watcher.note(f"the base is {source}, since none was trained in {out}")
    else:
        raise UsageError(
            f"There is no base in {own} to train a child of: train it first (--stage base, or all, with the same --out"
            " and --seed), or give one with --base."
        )
    parent = load(source, dtype="float32", device=device)
    if family_of(parent) != family:
        raise UsageError(
            f"{source} is of the family {family_of(parent)}, not {family}; give --family {family_of(parent)}, or"
            " another --out."
        )
    give_form(parent.network, parent.tokenizer, "base")
    return parent
