"""Methods of `truth_methods.py` that read or patch what flows through a model: direct effects, patching, drift.

None of them claims a level for a place, so each gives scores alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lesion.activations.hidden_states import hidden_states
from lesion.activations.readout import readout
from lesion.edits.edit import Scale
from lesion.statistics.shape import shape
from lesion.studies.drift.measurement import Settings, drift
from lesion.studies.effects.measurement import Measured, Text, measure
from lesion.studies.patching.passes import Pair, Patch, Place, patched, read
from truth_case import Case, Report

Scores = Callable[[Case, str], dict[str, float]]
"""Scores by place, of a case and the name of one of its tasks."""


def on_skill(scores: Scores) -> Callable[[Case], Report]:
    """Scores on the skill."""
    return lambda case: Report(_rounded(scores(case, case.truth.skill)))


def beyond_controls(scores: Scores) -> Callable[[Case], Report]:
    """Scores on the skill beyond the largest on a control."""

    def method(case: Case) -> Report:
        controls = [scores(case, control) for control in case.truth.controls]
        skill = scores(case, case.truth.skill)
        return Report(_rounded({place: score - max(of[place] for of in controls) for place, score in skill.items()}))

    return method


def _rounded(scores: dict[str, float]) -> dict[str, float]:
    """Scores that differ by rounding alone are ties."""
    return {place: round(score, 5) for place, score in scores.items()}


@lru_cache(maxsize=8)
def _effects(case: Case, task: str) -> list[Measured]:
    """What every block and branch writes towards the gold token of each item, and what is lost without it."""
    tokens = case.tokens[task].tolist()
    gold = case.choices[case.gold[task]].tolist()
    edits: list[Scale] = [
        edit for unit in ("block", "branch") for p in case.places(unit) for edit in case.edits("zero", p, task)
    ]
    reads = readout(case.model, tokens[0])
    return [measure(reads, Text(tuple(prompt), (right,)), edits) for prompt, right in zip(tokens, gold, strict=True)]


def direct_effect(unit: str, case: Case, task: str) -> dict[str, float]:
    """|mean direct effect|: what a place adds to the gold logit through the frozen final norm."""
    effects = _effects(case, task)
    return {place: abs(float(np.mean([item.direct[place] for item in effects]))) for place in case.places(unit)}


def total_effect(unit: str, case: Case, task: str) -> dict[str, float]:
    """Mean total effect: by how much the gold logit is lower without a place."""
    effects = _effects(case, task)
    return {place: float(np.mean([item.total[place] for item in effects])) for place in case.places(unit)}


def repaired(unit: str, case: Case, task: str) -> dict[str, float]:
    """Mean direct minus mean total effect: what is made up for when a place is switched off."""
    effects = _effects(case, task)
    return {
        place: float(np.mean([item.direct[place] - item.total[place] for item in effects]))
        for place in case.places(unit)
    }


def patching(unit: str, positions: str, case: Case, task: str) -> dict[str, float]:
    """The share of the logit difference that the clean output of a branch restores in corrupted runs.

    The corrupted prompt is another item with another answer, drawn by the seed. A block has the share of its better
    branch.
    """
    restored = _restored(case, task)
    shares = {place: share for (place, where), share in restored.items() if where == positions}
    if unit == "branch":
        return shares
    return {block: max(shares[f"{block}.attention"], shares[f"{block}.mlp"]) for block in case.blocks}


@lru_cache(maxsize=8)
def _restored(case: Case, task: str) -> dict[tuple[str, str], float]:
    pairs = list(_pairs(case, task))
    cells = [
        (Place(kind, int(block)), where)
        for block in case.blocks
        for kind in ("attention", "mlp")
        for where in ("last", "all")
    ]
    gains, spans = [], []
    for pair in pairs:
        clean, corrupted, values = read(case.model, pair)
        patches = [Patch(place, pair.positions[where]) for place, where in cells]
        results = patched(case.model, pair, values, "denoise", patches)
        spans.append(clean.difference - corrupted.difference)
        gains.append([result.difference - corrupted.difference for result in results])
    shares: NDArray[np.float64] = np.mean(gains, axis=0) / np.mean(spans)
    return {(str(place), where): float(share) for (place, where), share in zip(cells, shares, strict=True)}


def _pairs(case: Case, task: str) -> list[Pair]:
    """Every item with a partner of another answer."""
    random = np.random.default_rng(case.truth.seed)
    gold, tokens, items = case.gold[task], case.tokens[task].tolist(), case.items[task]
    pairs = []
    for index, item in enumerate(items):
        other = int(random.choice(np.flatnonzero(gold != gold[index])))
        right, tempting = case.choices[gold[[index, other]]].tolist()
        pairs.append(Pair(item.id, tuple(tokens[index]), tuple(tokens[other]), right, tempting))
    return pairs


def drift_elbow(case: Case) -> Report:
    """Minus the distance of a block from the elbow of drift on the skill's prompts (Nepal et al. 2025, section 5).

    As in the study of drift, the reference layer is left out and half as many clusters are made as tokens are told
    apart at it.
    """
    tokens = case.tokens[case.truth.skill]
    settings = Settings(clusters=len(np.unique(tokens.numpy())) // 2, null=1, seed=case.truth.seed)
    with hidden_states(case.model, tokens.tolist()) as states:
        measured = drift(states, settings)
    layers = [layer.layer for layer in measured.layers][1:]
    elbow = shape(layers, np.array([measured.along("nmi")[1:]])).hinge.layer
    return Report({block: -abs(elbow - (int(block) + 0.5)) for block in case.blocks})
