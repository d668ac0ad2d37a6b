"""The methods that `truth.py` scores: each says of a planted model how much every place matters to the skill.

A method takes a `Case` and gives a `Report`: a score for every place of one unit, and, where it claims a level, the
places that it names. Further methods are one function each, registered in `METHODS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

import lesion
from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.selection import Selection
from lesion.labs.planted.run import MODEL
from lesion.labs.planted.truth import read_masks, read_truth
from lesion.models.load import Model
from lesion.statistics.critical import critical_cells, pairs
from lesion.tasks.task import Item, Task

UNITS = ("block", "branch")
DRAWS = 3
KEEP = 0.05
"""The share of every matrix that the density of a selection in a block is counted at."""
Right = NDArray[np.bool_]


@dataclass(frozen=True)
class Report:
    """What a method says: scores by place, high where the skill lies, and the places it names at a level, if any."""

    scores: Mapping[str, float]
    named: frozenset[str] | None = None


class Case:
    """A planted model with its truth, tasks and everything that several methods need, computed once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.truth, self.masks = folder, read_truth(folder), read_masks(folder)
        self.model: Model = lesion.load(str(folder / MODEL), dtype="float32", device="cpu")
        names = (self.truth.skill, *self.truth.controls)
        self.tasks: dict[str, Task] = {name: lesion.find_task(f"jsonl:{folder / name}.jsonl") for name in names}
        self.items: dict[str, list[Item]] = {name: list(task.load()) for name, task in self.tasks.items()}
        tokenizer = self.model.tokenizer
        self.tokens = {
            name: torch.tensor([tokenizer(item.question)["input_ids"] for item in items])
            for name, items in self.items.items()
        }
        choices = self.items[self.truth.skill][0].choices
        self.choices = torch.tensor(tokenizer(" ".join(choices), add_special_tokens=False)["input_ids"])
        self.gold = {name: np.array([choices.index(item.gold) for item in items]) for name, items in self.items.items()}
        self._logits: dict[tuple[str, str], NDArray[np.float64]] = {}
        self._references: dict[str, Any] = {}

    @property
    def blocks(self) -> list[str]:
        """Addresses of the blocks."""
        return [str(block.index) for block in self.model.anatomy.blocks]

    def places(self, unit: str) -> list[str]:
        """Addresses of the blocks or branches."""
        return self.blocks if unit == "block" else [f"{b}.{name}" for b in self.blocks for name in ("attention", "mlp")]

    def true(self, unit: str) -> tuple[str, ...]:
        """The true places of a unit."""
        return tuple(map(str, self.truth.blocks)) if unit == "block" else self.truth.branches

    def logits(self, task: str, edit: Any = None) -> NDArray[np.float64]:
        """Log-probabilities of the choices among all words, on every item of a task, under an edit."""
        key = (task, str(edit))
        if key not in self._logits:
            with torch.inference_mode(), nullcontext() if edit is None else lesion.applied(self.model, edit):
                logits = self.model.network(self.tokens[task]).logits[:, -1].double()
            self._logits[key] = logits.log_softmax(-1)[:, self.choices].numpy()
        return self._logits[key]

    def right(self, task: str, edit: Any = None, gold: NDArray[np.int64] | None = None) -> Right:
        """Which items of a task are right under an edit."""
        return np.asarray(self.logits(task, edit).argmax(-1) == (self.gold[task] if gold is None else gold))

    def edits(self, kind: str, place: str, task: str) -> list[Any]:
        """What a kind of ablation does to a place, one edit a draw; what replaces it comes from texts of the task."""
        if kind == "zero":
            layer, _, branch = place.partition(".")
            scale = {"": lesion.ScaleBlock, "attention": lesion.ScaleAttention, "mlp": lesion.ScaleMlp}[branch]
            return [scale(int(layer), 0.0)]
        if task not in self._references:
            texts = lesion.calibration(self.model, self.tasks[task], len(self.items[task]))
            self._references[task] = lesion.reference(self.model, texts)
        draws = range(DRAWS if kind == "resample" else 1)
        return [lesion.Replace(place, kind, self._references[task], draw) for draw in draws]

    def drops(self, kind: str, unit: str, task: str) -> dict[str, float]:
        """The mean drop of accuracy over draws, by place."""
        baseline = self.right(task).mean()
        return {
            place: float(np.mean([baseline - self.right(task, edit).mean() for edit in self.edits(kind, place, task)]))
            for place in self.places(unit)
        }

    def lost(self, unit: str, task: str) -> dict[str, float]:
        """The mean log-probability of the right choice that zero ablation takes, in nats, by place."""

        def mean(edit: Any = None) -> float:
            gold = self.gold[task]
            return float(self.logits(task, edit)[np.arange(len(gold)), gold].mean())

        return {place: mean() - mean(*self.edits("zero", place, task)) for place in self.places(unit)}

    def critical(self, kind: str, unit: str, task: str, gold: NDArray[np.int64] | None = None) -> frozenset[str]:
        """The places that are critical under every draw, Holm-corrected over the layers of block, attention or MLP."""
        groups: dict[str, list[str]] = {}
        for place in self.places(unit):
            groups.setdefault(place.partition(".")[2], []).append(place)
        baseline = self.right(task, None, gold)
        critical: set[str] = set()
        for places in groups.values():
            edits = {place: self.edits(kind, place, task) for place in places}
            by_draw = []
            for draw in range(len(edits[places[0]])):
                cells = [pairs(baseline, self.right(task, edits[place][draw], gold)) for place in places]
                by_draw.append({p for p, named in zip(places, critical_cells(cells), strict=True) if named})
            critical |= set.intersection(*by_draw)
        return frozenset(critical)

    @cached_property
    def inputs(self) -> dict[str, Inputs]:
        """What flows into every matrix, by task."""
        observed = {}
        for name, task in self.tasks.items():
            (observed[name],) = lesion.observe(self.model, lesion.calibration(self.model, task, len(self.items[name])))
        return observed

    @property
    def controls(self) -> tuple[Inputs, ...]:
        """What flows in on the controls."""
        return tuple(self.inputs[name] for name in self.truth.controls)


def ablation(kinds: tuple[str, ...], unit: str) -> Callable[[Case], Report]:
    """The drop of the skill, the smallest under several kinds; named: critical under all of them."""

    def method(case: Case) -> Report:
        return _drop_of(case, kinds, unit, case.truth.skill)

    return method


def contrast(kinds: tuple[str, ...], unit: str) -> Callable[[Case], Report]:
    """The drop of the skill beyond the largest drop of a control; named: critical for the skill and for no control."""

    def method(case: Case) -> Report:
        skill = _drop_of(case, kinds, unit, case.truth.skill)
        controls = [{kind: case.drops(kind, unit, control) for kind in kinds} for control in case.truth.controls]
        harm = {place: max(of[kind][place] for of in controls for kind in kinds) for place in skill.scores}
        harmed = (case.critical(kind, unit, control) for control in case.truth.controls for kind in kinds)
        assert skill.named is not None
        return Report(
            {place: drop - harm[place] for place, drop in skill.scores.items()}, skill.named.difference(*harmed)
        )

    return method


def _drop_of(case: Case, kinds: tuple[str, ...], unit: str, task: str) -> Report:
    drops = [case.drops(kind, unit, task) for kind in kinds]
    critical = [case.critical(kind, unit, task) for kind in kinds]
    return Report({place: min(of[place] for of in drops) for place in drops[0]}, frozenset.intersection(*critical))


def log_probability(unit: str) -> Callable[[Case], Report]:
    """What zero ablation takes of the log-probability of right answers: a screen, without a level."""
    return lambda case: Report(case.lost(unit, case.truth.skill))


def log_probability_contrast(unit: str) -> Callable[[Case], Report]:
    """The same beyond the largest loss of a control."""

    def method(case: Case) -> Report:
        controls = [case.lost(unit, control) for control in case.truth.controls]
        skill = case.lost(unit, case.truth.skill)
        return Report({place: lost - max(of[place] for of in controls) for place, lost in skill.items()})

    return method


def influence(case: Case) -> Report:
    """1 − cosine of what enters and leaves a block, mean over the skill's last tokens (Men et al. 2024, ShortGPT)."""
    tokens = case.tokens[case.truth.skill]
    seen: dict[str, float] = {}
    with torch.inference_mode():
        hooks = [
            block.module.register_forward_hook(_watch(str(block.index), seen)) for block in case.model.anatomy.blocks
        ]
        case.model.network(tokens)
        for hook in hooks:
            hook.remove()
    return Report(seen)


def _watch(name: str, seen: dict[str, float]) -> Callable[..., None]:
    def hook(_: Any, given: tuple[torch.Tensor, ...], output: Any) -> None:
        after = output[0] if isinstance(output, tuple) else output
        seen[name] = float((1 - F.cosine_similarity(given[0][:, -1], after[:, -1], dim=-1)).mean())

    return hook


def selection(name: str, case: Case, keep: float) -> Selection:
    """A selection of weights by a method at a share."""
    skill = case.inputs[case.truth.skill]
    if name == "magnitude":
        return lesion.Magnitude(keep)
    if name == "wanda":
        return lesion.Wanda(skill, keep)
    if name == "mathneuro":
        return lesion.MathNeuro(skill, case.controls, keep)
    return lesion.LAPE(skill, case.controls, keep)


def density(name: str) -> Callable[[Case], Report]:
    """The share of a block's weights that a selection takes."""

    def method(case: Case) -> Report:
        chosen = selection(name, case, KEEP)
        taken = {block: [0, 0] for block in case.blocks}
        for address, matrix in case.model.anatomy.matrices.items():
            mask = chosen.mask(address, matrix.read())
            taken[address.partition(".")[0]][0] += int(mask.sum())
            taken[address.partition(".")[0]][1] += mask.numel()
        return Report({block: selected / total for block, (selected, total) in taken.items()})

    return method


SELECTIONS = ("mathneuro", "wanda", "magnitude", "lape")
KINDS = ("zero", "mean", "resample")
SETS: dict[str, tuple[str, ...]] = {**{kind: (kind,) for kind in KINDS}, "all three": KINDS}
METHODS: dict[str, dict[str, Callable[[Case], Report]]] = {
    unit: {
        **{name: ablation(kinds, unit) for name, kinds in SETS.items()},
        **{f"{name}, beyond controls": contrast(kinds, unit) for name, kinds in SETS.items()},
        "zero, log-probability": log_probability(unit),
        "zero, log-probability, beyond controls": log_probability_contrast(unit),
        **({"block influence": influence} if unit == "block" else {}),
        **({f"{name}, density": density(name) for name in SELECTIONS} if unit == "block" else {}),
    }
    for unit in UNITS
}
"""By unit, every method that scores places of it. A method for heads, patching or direct effects goes here too."""
