"""How a task was evaluated that stops a cell once it is decided, as a value and in a sentence."""

from __future__ import annotations

from lesion.report.values import Value
from lesion.studies.ablation.study import StopPlan


class Stopped(Value):
    """How a task was evaluated that stops a cell once it is decided: `items` were drawn; `finished`: none is left."""

    effect: float
    level: float
    items: int
    finished: bool


def stopped_rule(stop: StopPlan) -> str:
    """What a study decides that stops cells once they are decided, as a sentence for reports."""
    return (
        f"Asking stopped as soon as a cell was decided. A place exceeds the effect when its drop exceeds"
        f" {100 * stop.effect:g} points, on all items of the study and beyond them, and it does not when its drop on"
        f" all of them does not; inferred from the items asked so far by e-values from bets, with {stop.rule} over the"
        f" layers of one model, task, unit and factor. {_limited(stop)} What was not decided is open. Which places are"
        f" critical, only a full table says."
    )


def _limited(stop: StopPlan) -> str:
    """What error a stopped study limits."""
    if stop.rule == "e-Holm":
        return (
            f"The family-wise error is at most {100 * stop.level:g} %: that is the chance that any of these layers is"
            " wrongly called exceeding, on all items and beyond them, and the chance that any is wrongly called not,"
            " on all items."
        )
    return (
        f"The false discovery rate is at most {100 * stop.level:g} %: that is the expected share of wrong ones among"
        " the places called exceeding, on all items and beyond them, and among those called not, on all items. It does"
        " not limit the chance of any wrong call in a study."
    )
