"""The methods that `truth.py` scores: each says of a planted model how much every place matters to the skill.

A method takes a `Case` and gives a `Report`: a score for every place of one unit, and, where it claims a level, the
places that it names. Further methods are one function each, registered in `METHODS`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

import lesion
from lesion.edits.selections.selection import Selection
from truth_case import KINDS, Case, Report
from truth_passes import Scores, beyond_controls, direct_effect, drift_elbow, on_skill, patching, repaired, total_effect

KEEP = 0.05
"""The share of every matrix that the density of a selection in a block is counted at."""


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
SETS: dict[str, tuple[str, ...]] = {**{kind: (kind,) for kind in KINDS}, "all five": KINDS}


def head_ablation(method: Callable[[Case], Report]) -> Callable[[Case], Report]:
    """A method of heads as one of blocks: a block has the score of its best head, and is named if one of them is."""

    def of_blocks(case: Case) -> Report:
        report = method(case)
        best: dict[str, float] = {}
        for head, score in report.scores.items():
            block = head.partition(".")[0]
            best[block] = max(best.get(block, score), score)
        named = None if report.named is None else frozenset(head.partition(".")[0] for head in report.named)
        return Report(best, named)

    return of_blocks


ONE_KIND: dict[str, Callable[[Case], Report]] = {
    "zero": ablation(KINDS[:1], "head"),
    "zero, beyond controls": contrast(KINDS[:1], "head"),
    "zero, log-probability": log_probability("head"),
    "zero, log-probability, beyond controls": log_probability_contrast("head"),
}


def _ablations(unit: str) -> dict[str, Callable[[Case], Report]]:
    return {
        **{name: ablation(kinds, unit) for name, kinds in SETS.items()},
        **{f"{name}, beyond controls": contrast(kinds, unit) for name, kinds in SETS.items()},
        "zero, log-probability": log_probability(unit),
        "zero, log-probability, beyond controls": log_probability_contrast(unit),
    }


def _passes(unit: str) -> dict[str, Callable[[Case], Report]]:
    scored: dict[str, Scores] = {
        "direct effect": partial(direct_effect, unit),
        "total effect": partial(total_effect, unit),
        "patching, last token": partial(patching, unit, "last"),
        "patching, all tokens": partial(patching, unit, "all"),
    }
    return {
        **{name: on_skill(scores) for name, scores in scored.items()},
        **{f"{name}, beyond controls": beyond_controls(scores) for name, scores in scored.items()},
        "repaired": on_skill(partial(repaired, unit)),
    }


def random_order(unit: str) -> Callable[[Case], Report]:
    """What a method without knowledge scores: all places alike, of which every order counts."""
    return lambda case: Report(dict.fromkeys(case.places(unit), 0.0))


METHODS: dict[str, dict[str, Callable[[Case], Report]]] = {
    "block": {
        "random order": random_order("block"),
        **_ablations("block"),
        **{f"heads, {name}": head_ablation(method) for name, method in ONE_KIND.items()},
        **_passes("block"),
        "block influence": influence,
        "drift elbow": drift_elbow,
        **{f"{name}, density": density(name) for name in SELECTIONS},
    },
    "branch": {"random order": random_order("branch"), **_ablations("branch"), **_passes("branch")},
    "head": {"random order": random_order("head"), **ONE_KIND},
}
"""By unit, every method that scores places of it."""
