"""The result of a screen: what every edit takes of the gold solutions, and how far that agrees with the drops."""

from __future__ import annotations

import math

from pydantic import Field

from lesion.edits.place import Unit
from lesion.report.forms import decimals
from lesion.report.rows import column
from lesion.report.values import Estimate, Number, Value
from lesion.studies.ablation.cell import Place
from lesion.studies.ablation.sweep import Factor


class Loss(Place):
    """What one edit takes of the gold solutions.

    Attributes:
        lost: log-probability per token in nats; no value where some item has none under the edit.
        rank: 1 where most is lost, among the layers of one unit and factor.
        nonfinite: items without a number under the edit.
    """

    lost: Estimate = column("Lost per token", decimals(3, "nats"))
    lost_per_answer: Number = column()
    nonfinite: int = column()
    rank: int = column("Rank")

    @property
    def size(self) -> float:
        """What is lost, by which the terminal chooses what it shows."""
        return math.inf if self.lost.value is None else self.lost.value


class Agreement(Value):
    """Spearman's ρ of a screen with the drops of generated accuracy over `layers`, of whose drops `tied` are equal."""

    unit: Unit
    factor: Factor
    layers: int
    tied: int
    rho: Estimate


class Amount(Value):
    """How many answers, and tokens of them."""

    answers: int
    tokens: int


class Screen(Value):
    """The screen of one model on one task.

    Attributes:
        top: edits of each unit and factor to which generation was limited; None where it was not.
        items: how many gold solutions were scored, under no edit and under each.
        generated: what was generated for the table.
        baseline: log-probability per token without an edit, in nats.
    """

    items: int
    scored: Amount
    generated: Amount
    baseline: float
    losses: tuple[Loss, ...]
    agreement: tuple[Agreement, ...]
    top: int | None = Field(default=None, exclude_if=lambda top: top is None)
