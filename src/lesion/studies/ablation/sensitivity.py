"""How large a loss a full table can call critical, and what is critical at other shares: for terminal and page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lesion.report import wording
from lesion.report.views import Summary


@dataclass(frozen=True)
class Sensitivity:
    """What the rule can find on one task of one model, under one unit and factor.

    Attributes:
        tests: layers over which Holm's correction goes.
        right: items that the baseline has right.
        fewest: how many of them are needed before anything can be critical.
        loss: the smallest loss, as a share of the baseline's accuracy, that is called with a chance of `power`; None
            where nothing can be critical.
        critical: share of the baseline's accuracy that must be lost → the layers that are critical then.
    """

    model: str
    task: str
    unit: str
    factor: float
    tests: int
    right: int
    fewest: int
    power: float
    loss: float | None
    critical: Mapping[float, tuple[int, ...]]


def sensitivities(summary: Summary) -> tuple[Sensitivity, ...]:
    """Of every model and task of a full table; nothing where asking stopped."""
    return tuple(
        Sensitivity(
            model=model["model"],
            task=task["task"],
            unit=entry["unit"],
            factor=float(entry["factor"]),
            tests=int(entry["tests"]),
            right=int(entry["right"]),
            fewest=int(entry["fewest_right"]),
            power=float(entry["power"]),
            loss=entry["smallest_loss"],
            critical={float(at["share"]): tuple(map(int, at["critical"])) for at in entry["shares"]},
        )
        for model in summary["models"]
        for task in model["tasks"]
        for entry in task.get("sensitivity") or ()
    )


def sentences(summary: Summary) -> list[str]:
    """What can be found, and where families agree at some shares only; empty where asking stopped."""
    every = sensitivities(summary)
    losses = sorted(one.loss for one in every if one.loss is not None)
    sentences = []
    if losses:
        low, high = (wording.points(loss, 0) for loss in (losses[0], losses[-1]))
        sentences.append(
            f"The smallest loss that is called critical with {wording.percent(every[0].power, 0)} power is"
            f" {low if low == high else f'{low} to {high}'}{wording.SPACE}% of the baseline's accuracy, for a cut that"
            " repairs no item and has to pass the first step of Holm's correction."
        )
    return sentences + _families(summary, every)


def _families(summary: Summary, every: Iterable[Sensitivity]) -> list[str]:
    """A sentence for every family and task whose models have the same critical places at some shares and not at all."""
    by_cell: dict[tuple[str, str, float], dict[str, Sensitivity]] = {}
    for one in every:
        by_cell.setdefault((one.task, one.unit, one.factor), {})[one.model] = one
    sentences = []
    for family in (summary.get("invariance") or {}).get("families") or ():
        members = [member["model"] for member in family["members"] if member.get("step") is None]
        for (task, unit, factor), models in by_cell.items():
            of_family = [models[name] for name in members if name in models]
            if len(of_family) < 2:
                continue
            same = {share: len({one.critical[share] for one in of_family}) == 1 for share in of_family[0].critical}
            if all(same.values()) or not any(same.values()):
                continue
            where = f" ({wording.axis_name(unit, factor)})" if (unit, factor) != ("block", 0.0) else ""
            sentences.append(
                f"{family['family']}, {task}{where}: all {len(of_family)} models have the same critical blocks when the"
                f" share that must be lost is {_shares(same, True)}, and not when it is {_shares(same, False)}."
            )
    return sentences


def _shares(same: Mapping[float, bool], wanted: bool) -> str:
    named = [wording.points(share, 0) for share, equal in same.items() if equal is wanted]
    return f"{wording.listed(named, 'or')}{wording.SPACE}%"
