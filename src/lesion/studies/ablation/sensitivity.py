"""How large a loss a full table can call critical, and what is critical at other shares, in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lesion.report import wording
from lesion.studies.ablation.result import AblationSummary, Sensitivity


class OfModel(NamedTuple):
    """What the rule can find on one task of one model under one unit and factor."""

    model: str
    task: str
    found: Sensitivity


def sensitivities(summary: AblationSummary) -> list[OfModel]:
    """Of every model and task of a full table; none where evaluation stopped."""
    return [
        OfModel(model.model, result.task, sensitivity)
        for model in summary.models
        for result in model.tasks
        for sensitivity in result.sensitivity
    ]


def sentences(summary: AblationSummary) -> list[str]:
    """What can be found, and which families agree at some shares only; none where evaluation stopped."""
    every = sensitivities(summary)
    losses = sorted(each.found.smallest_loss for each in every if each.found.smallest_loss is not None)
    if not losses:
        return _families(summary, every)
    low, high = (wording.points(loss, 0) for loss in (losses[0], losses[-1]))
    return [
        f"The smallest loss that is called critical with {wording.percent(every[0].found.power, 0)} power is"
        f" {low if low == high else f'{low} to {high}'}{wording.SPACE}% of the baseline's accuracy, for a cut that"
        " repairs no item and has to pass the first step of Holm's correction.",
        *_families(summary, every),
    ]


def _families(summary: AblationSummary, every: Iterable[OfModel]) -> list[str]:
    """A sentence for every family and task whose models have the same critical layers at some shares and not at all."""
    by_cut: dict[tuple[str, str, float], dict[str, Sensitivity]] = {}
    for model, task, found in every:
        by_cut.setdefault((task, found.unit, found.factor), {})[model] = found
    sentences = []
    for family in summary.invariance.families if summary.invariance else ():
        names = [member.model for member in family.finished]
        for (task, unit, factor), models in by_cut.items():
            members = [models[name] for name in names if name in models]
            if len(members) < 2:
                continue
            same = {
                at[0].share: len({each.critical for each in at}) == 1
                for at in zip(*(member.shares for member in members), strict=True)
            }
            if all(same.values()) or not any(same.values()):
                continue
            where = f" ({wording.axis_name(unit, factor)})" if (unit, factor) != ("block", 0.0) else ""
            sentences.append(
                f"{family.family}, {task}{where}: all {len(members)} models have the same critical blocks when the"
                f" share that must be lost is {_shares(same, True)}, and not when it is {_shares(same, False)}."
            )
    return sentences


def _shares(same: dict[float, bool], wanted: bool) -> str:
    named = [wording.points(share, 0) for share, equal in same.items() if equal is wanted]
    return f"{wording.listed(named, 'or')}{wording.SPACE}%"
