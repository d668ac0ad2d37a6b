"""A planted model as the methods of `truth.py` see it: truth, tasks and what several methods need, computed once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import lesion
from lesion.edits.reference import Reference
from lesion.edits.selections.inputs import Inputs
from lesion.models.load import Model
from lesion.statistics.critical import critical_cells, pairs
from lesion.tasks.task import Item, Task
from lesion_labs.planted.run import MODEL
from lesion_labs.planted.truth import read_masks, read_truth

UNITS = ("block", "branch", "head")
KINDS = ("zero", "mean", "position", "resample", "optimal")
"""Kinds of ablation; of a head only the first."""
DRAWS = 3
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
        self._references: dict[tuple[str, bool], Reference] = {}

    @property
    def blocks(self) -> list[str]:
        """Addresses of the blocks."""
        return [str(block.index) for block in self.model.anatomy.blocks]

    def places(self, unit: str) -> list[str]:
        """Addresses of the blocks, branches or heads."""
        heads = range(self.model.network.config.num_attention_heads)
        parts = {
            "block": ("",),
            "branch": (".attention", ".mlp"),
            "head": tuple(f".attention.head.{head}" for head in heads),
        }[unit]
        return [f"{block}{part}" for block in self.blocks for part in parts]

    def true(self, unit: str) -> tuple[str, ...]:
        """The true places of a unit."""
        truth = self.truth
        return {"block": tuple(map(str, truth.blocks)), "branch": truth.branches, "head": truth.heads}[unit]

    def kinds(self, unit: str) -> tuple[str, ...]:
        """The kinds of ablation of a unit."""
        return KINDS[:1] if unit == "head" else KINDS

    def logits(self, task: str, edit: Any = None) -> NDArray[np.float64]:
        """Log-probabilities of the choices among all words, on every item of a task, under an edit."""
        key = (task, str(edit))
        if key not in self._logits:
            with torch.inference_mode(), nullcontext() if edit is None else lesion.applied(self.model, edit):
                logits = self.model.network(self.tokens[task]).logits[:, -1].double()
            self._logits[key] = logits.log_softmax(-1)[:, self.choices].numpy()
        return self._logits[key]

    def right(self, task: str, edit: Any = None) -> Right:
        """Which items of a task are right under an edit."""
        return np.asarray(self.logits(task, edit).argmax(-1) == self.gold[task])

    def edits(self, kind: str, place: str, task: str) -> list[Any]:
        """What a kind of ablation does to a place, one edit a draw; what replaces it comes from texts of the task."""
        if kind == "zero":
            layer, _, branch = place.partition(".")
            if ".head." in place:
                return [lesion.ScaleHead(int(layer), int(place.rpartition(".")[2]), 0.0)]
            scale = {"": lesion.ScaleBlock, "attention": lesion.ScaleAttention, "mlp": lesion.ScaleMlp}[branch]
            return [scale(int(layer), 0.0)]
        reference = self._reference(task, optimal=kind == "optimal")
        draws = range(DRAWS if kind == "resample" else 1)
        return [lesion.Replace(place, kind, reference, draw) for draw in draws]

    def _reference(self, task: str, optimal: bool) -> Reference:
        """What stands in for blocks and branches; the optimum is fitted on the items on which it is judged."""
        if (task, optimal) not in self._references:
            texts = lesion.calibration(self.model, self.tasks[task], len(self.items[task]))
            self._references[task, optimal] = (
                lesion.optimal_reference(self.model, texts, [*self.places("block"), *self.places("branch")])
                if optimal
                else lesion.reference(self.model, texts, kinds=("mean", "position", "resample"), draws=DRAWS)
            )
        return self._references[task, optimal]

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

    def critical(self, kind: str, unit: str, task: str) -> frozenset[str]:
        """The places that are critical, down to chance, under every draw, Holm-corrected over all places of a kind."""
        groups: dict[str, list[str]] = {}
        for place in self.places(unit):
            groups.setdefault(unit if unit == "head" else place.partition(".")[2], []).append(place)
        baseline, chance = self.right(task), 1 / len(self.choices)
        critical: set[str] = set()
        for places in groups.values():
            edits = {place: self.edits(kind, place, task) for place in places}
            by_draw = []
            for draw in range(len(edits[places[0]])):
                cells = [pairs(baseline, self.right(task, edits[place][draw])) for place in places]
                by_draw.append(
                    {p for p, named in zip(places, critical_cells(cells, chance=chance), strict=True) if named}
                )
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
