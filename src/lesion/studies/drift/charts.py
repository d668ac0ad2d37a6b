"""Curves of a drift by layer, with the critical blocks and the hinge or step of each model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import pandas as pd
from typing_extensions import override

from lesion.report import plots, theme
from lesion.report.blocks import Series
from lesion.report.marks import Curves
from lesion.report.rows import Record, parts_of
from lesion.studies.drift.result import Curve, Departure, DriftOfModel


@dataclass(frozen=True)
class DriftCurves(Curves):
    """Curves of the drawn number of clusters of one model.

    Attributes:
        places: whether the critical blocks stand behind them, and the hinge or step with its interval.
    """

    places: bool = False

    @override
    def _drawn(self, record: Record) -> bool:
        model, curve = _of(record)
        return super()._drawn(record) and curve.clusters == model.clusters

    @override
    @plots.unvalidated
    def chart(self, records: Sequence[Record], every: Sequence[Record]) -> alt.LayerChart:
        chart = super().chart(records, every)
        if not self.places:
            return chart
        model, curve = _of(records[0])
        bands = [self._band([(float(block), block + 1.0) for block in model.critical_blocks], theme.SOFT, every)]
        if curve.departure is not None:
            bands.append(self._band([_reach(curve.departure)], theme.LOSS, every))
        return alt.layer(*bands, chart)

    def _band(self, places: Sequence[tuple[float, float]], colour: str, every: Sequence[Record]) -> alt.Chart:
        frame, across = pd.DataFrame(places, columns=["start", "through"]), self.across(every)
        return (
            alt.Chart(frame)
            .mark_rect(color=colour, opacity=0.16)
            .encode(x=plots.x(across, "start"), x2=alt.X2(field="through"))
        )

    @override
    def legend(self, records: Sequence[Record]) -> tuple[Series, ...]:
        every = [_of(record) for record in records]
        marks = (
            (any(model.critical_blocks for model, _ in every), Series("critical block", colour=theme.SOFT, area=True)),
            (any(curve.departure for _, curve in every), Series("step or bend", colour=theme.LOSS, area=True)),
        )
        return *super().legend(records), *(series for there, series in marks if there and self.places)


def _of(record: Record) -> tuple[DriftOfModel, Curve]:
    model, curve, *_ = parts_of(record)
    assert isinstance(model, DriftOfModel)
    assert isinstance(curve, Curve)
    return model, curve


def _reach(at: Departure) -> tuple[float, float]:
    """From where to where the interval of a hinge or step goes by layer; a step is as wide as its block."""
    low, high = at.layer if at.low is None else at.low, at.layer if at.high is None else at.high
    return (float(int(low)), int(high) + 1.0) if at.kind == "step" else (low, max(high, low + 0.04))
