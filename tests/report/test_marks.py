"""Marks: what is drawn of rows, read from the charts as values."""

from __future__ import annotations

import pytest

from lesion.report.forms import decimals
from lesion.report.marks import Curves
from lesion.report.rows import Row, Rows, column, columns_of, flat
from lesion.report.table import Table
from lesion.report.values import Estimate, Mean


class Place(Row):
    """A layer with a mean over runs and two estimates of one unit."""

    model: str = column("Model", label=True)
    layer: int = column("Layer", label=True)
    nmi: Mean | None = column("NMI", decimals(3))
    written: Estimate = column("Written", decimals(1, "logits"))
    taken: Estimate = column("Taken", decimals(1, "logits"))


def places() -> list[Place]:
    spread = (Mean(mean=0.5, std=0.1), Mean(mean=0.25), None)
    return [
        Place(model=model, layer=layer, nmi=nmi, written=Estimate(value=layer, low=layer - 1, high=layer + 1),
              taken=Estimate(value=-layer))
        for model in ("a", "b")
        for layer, nmi in enumerate(spread)
    ]  # fmt: skip


def drawn(mark: Curves) -> list[dict]:
    (panel,) = mark.figure(places(), "lines").panels
    data = panel.charts[0].to_dict()
    return next(rows for rows in data["datasets"].values() if "series" in rows[0])


def test_a_mean_is_written_with_its_deviation_and_fills_two_columns_of_a_file():
    table = Table.of(Rows("places", places(), (Place,)))
    assert table.frame[["nmi", "nmi_std"]].iloc[0].tolist() == [0.5, 0.1]
    assert table.frame["nmi"].isna().tolist() == [False, False, True] * 2
    (mean,) = (shown for shown in table.columns if shown.key == "nmi")
    assert [mean.write(row) for row in table.records[:3]] == ["0.500 ± 0.100", "0.250", "–"]
    assert flat(places()[1], (Place,))["nmi_std"] is None
    assert next(shown for shown in columns_of(Place) if shown.key == "nmi").sentence(places()[0].nmi) == "0.500 ± 0.100"


def test_a_band_is_one_deviation_wide_and_a_missing_mean_breaks_the_curve():
    rows = [row for row in drawn(Curves("nmi", "layer", "model")) if row["series"] == "a"]
    assert [(row["low"], row["high"]) for row in rows[:2]] == [pytest.approx((0.4, 0.6)), (None, None)]
    assert rows[2]["y"] is None


def test_several_numbers_are_a_series_each_in_one_chart():
    rows = drawn(Curves(("written", "taken"), "layer", "model"))
    assert {row["series"] for row in rows} == {"Written · a", "Written · b", "Taken · a", "Taken · b"}
    assert [row["y"] for row in rows if row["series"] == "Taken · b"] == [0, -1, -2]
    names = [series.name for series in Curves(("written", "taken"), "layer").figure(places()[:3], "lines").legend]
    assert names == ["Written", "Taken"]
