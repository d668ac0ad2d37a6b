"""What the analyses of a layer study are made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from lesion.report.parts import Part
from lesion.report.rows import Row, column
from lesion.studies.ablation.curves import Curve, View
from lesion.studies.ablation.result import AblationSummary


class Labels(Row):
    """Which model and task a line of a layer study is about."""

    model: str = column("Model", label=True)
    task: str = column("Task", label=True)


@dataclass(frozen=True)
class Material:
    """A layer study as its analyses see it.

    Attributes:
        summary: its numbers.
        answers: every answer, as `Store.answers`; empty where they are not at hand.
        items: every item; likewise.
        seconds: how long answers took, by what asked them.
    """

    summary: AblationSummary
    answers: pd.DataFrame = field(default_factory=pd.DataFrame)
    items: pd.DataFrame = field(default_factory=pd.DataFrame)
    seconds: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def views(self) -> tuple[View, ...]:
        """Curves that are drawn together."""
        return self.summary.views

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """Every model on every task under one unit and factor."""
        return self.summary.curves


Analysis = Callable[[Material], Part | None]
"""An analysis: the part of the page that it has, with its rows and claims; None where the study has nothing for it."""
