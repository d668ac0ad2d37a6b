"""Marks: what is drawn of rows, read from the charts as values."""

import math

import pytest
from made_rows import block, made, task
from page_checks import HOSTILE

from lesion.report import drawing, theme
from lesion.report.marks import Bars, Curves, Map, Mark, Points, Profile
from lesion.report.rows import Row, Rows, column, columns_of, flat
from lesion.report.table import Table
from lesion.report.values import Estimate, Mean, decimals


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


def layers(mark: Mark, records: list, panel: int = 0, chart: int = 0) -> list[dict]:
    """The layers of a chart: the mark, the encodings and the rows of each."""
    specified = drawing.specification(mark.figure(records, "drawn").panels[panel].charts[chart])
    found: list[dict] = []

    def walk(part: dict, outer: dict, data: dict | None) -> None:
        encoding, data = outer | part.get("encoding", {}), part.get("data") or data
        for inner in part.get("layer", ()):
            walk(inner, encoding, data)
        if "mark" in part:
            rows = specified["datasets"][data["name"]] if data else []
            found.append({"mark": part["mark"]["type"], "encoding": encoding, "rows": rows})

    walk(specified, {}, None)
    return found


def only(mark: Mark, records: list, kind: str, field: str = "", **where: int) -> dict:
    """The one layer of that mark whose horizontal place is that field."""
    matching = [
        layer
        for layer in layers(mark, records, **where)
        if layer["mark"] == kind and (not field or layer["encoding"].get("x", {}).get("field") == field)
    ]
    assert matching, (kind, field)
    return matching[0]


ONE = made(models=("m",), tasks=("sums",))
"""Drops of −12.5, 50 and none: 3 blocks of one model on one task."""


def test_a_profile_has_a_bar_from_its_base_to_its_number_and_an_interval_where_there_is_one():
    bars = only(Profile("drop", "layer"), ONE, "rect", "left")
    assert [(row["x"], row["base"], row["y"]) for row in bars["rows"]] == [
        (0, 0.0, -12.5),
        (1, 0.0, 50.0),
        (2, 0.0, None),
    ]
    assert (bars["encoding"]["y"]["field"], bars["encoding"]["y2"]["field"]) == ("base", "y")
    intervals = only(Profile("drop", "layer"), ONE, "rule", "x")["rows"]
    assert [(row["low"], row["high"]) for row in intervals] == [(-25.0, 0.0), (25.0, 75.0)]
    from_baseline = only(Profile("kept", "layer", base="baseline"), ONE, "rect", "left")["rows"]
    assert [(row["base"], row["y"]) for row in from_baseline[:2]] == [(75.0, 112.5), (75.0, 50.0)]


def test_a_profile_fills_what_is_marked_and_draws_lines_of_reference():
    mark = Profile("kept", "layer", lines={"unedited": "baseline"}, filled="critical")
    assert [row["full"] for row in only(mark, ONE, "rect", "left")["rows"]] == [False, True, False]
    level = [layer for layer in layers(mark, ONE) if layer["rows"] == [{"y": 75.0}]]
    assert len(level) == 1
    assert [series.name for series in mark.figure(ONE, "drawn").legend] == ["critical", "others", "unedited"]


def test_a_key_has_the_strength_of_the_bars_and_names_none_that_is_not_drawn():
    mark = Profile("kept", "layer", filled="critical")
    keys = mark.figure(ONE, "drawn").legend
    opacity = only(mark, ONE, "rect", "left")["encoding"]["opacity"]
    assert [key.area for key in keys] == [opacity["condition"]["value"], opacity["value"]]
    assert {key.colour for key in keys} == {theme.TONES[0]}
    assert len(mark.figure([ONE[1]], "drawn").legend) == 1
    assert not mark.figure([ONE[0], ONE[2]], "drawn").legend


def test_the_key_of_a_map_has_numbers_in_the_colours_that_are_drawn():
    def key(records: list, full: float | None = None) -> list[tuple[str, str, float]]:
        figure = Map("drop", "layer", "model", full=full).figure(records, "drawn")
        return [(line.name, line.colour, line.area) for line in figure.legend]

    losses = [("25", theme.LOSS, 0.5), ("50", theme.LOSS, 1.0)]
    assert key(ONE) == [*losses, ("−6", theme.GAIN, 0.125), ("−12", theme.GAIN, 0.25)]
    assert key(ONE[1:2]) == losses
    capped = [("10", theme.LOSS, 0.5), ("20 or more", theme.LOSS, 1.0)]
    assert key(ONE, full=0.2) == [*capped, ("−6", theme.GAIN, 0.3125), ("−12", theme.GAIN, 0.625)]
    assert key(ONE, full=0.1)[2:] == [("−5", theme.GAIN, 0.5), ("−10 or less", theme.GAIN, 1.0)]


def test_panels_share_their_axes_and_are_named_by_what_differs():
    records = [*ONE, (task("m", "facts"), block(5, 1.0, 0.9, 1.1))]
    figure = Profile("drop", "layer", panel=("model", "task")).figure(records, "drawn")
    assert [panel.title for panel in figure.panels] == ["sums", "facts"]
    domains = [
        only(Profile("drop", "layer", panel="task"), records, "rect", "left", panel=at)["encoding"]["y"]["scale"][
            "domain"
        ]
        for at in (0, 1)
    ]
    assert domains[0] == domains[1]
    low, high = domains[0]
    assert low < -25.0
    assert high > 110.0


def test_low_charts_have_an_upright_axis_each_and_one_axis_of_places():
    records = [*ONE, (task("m", "facts"), block(5, 0.01))]
    mark = Profile("drop", "layer", each="task")
    assert [len(panel.charts) for panel in mark.figure(records, "drawn").panels] == [2]
    first, second = (only(mark, records, "rect", "left", chart=at)["encoding"] for at in (0, 1))
    assert first["x"]["scale"]["domain"] == second["x"]["scale"]["domain"] == [-0.6, 5.6]
    assert second["y"]["scale"]["domain"][1] < 2 < first["y"]["scale"]["domain"][1]


def test_places_that_are_no_numbers_stand_side_by_side():
    records = [(task("b"), block(0, 0.1)), (task("a"), block(0, 0.2))]
    bars = only(Profile("drop", "model"), records, "rect", "left")["rows"]
    assert [(row["x"], row["y"]) for row in bars] == [(1, 10.0), (0, 20.0)]


def test_a_map_has_a_cell_for_every_line_boxed_where_marked_and_empty_where_missing():
    records = made(models=("m",))
    cells = only(Map("drop", "layer", "task", boxed="critical"), records, "text")["rows"]
    assert [(row["x"], row["y"], row["value"], row["text"], row["marked"]) for row in cells] == [
        (0, "sums", -0.125, "−12", False), (1, "sums", 0.5, "50", True), (2, "sums", None, "–", False),
        (0, "facts", -0.125, "−12", False), (1, "facts", 0.5, "50", True), (2, "facts", None, "–", False),
    ]  # fmt: skip
    shades = [layer["encoding"].get("opacity", {}) for layer in layers(Map("drop", "layer", "task"), records)]
    assert [shade["scale"]["domain"] for shade in shades if "scale" in shade] == [[0, 0.5]]


def test_curves_have_their_numbers_bands_and_one_reading_for_each_place():
    records = made()
    mark = Curves("drop", "layer", ("model", "task"))
    points = only(mark, records, "line")["rows"]
    assert len(points) == 12
    assert {row["series"] for row in points} == {"m · sums", "m · facts", "n · sums", "n · facts"}
    assert [(row["x"], row["y"], row["low"], row["high"]) for row in points[:3]] == [
        (0, -12.5, -25.0, 0.0), (1, 50.0, 25.0, 75.0), (2, None, None, None),
    ]  # fmt: skip
    readings = only(mark, records, "rect", "begin")["rows"]
    assert [row["x"] for row in readings] == [0, 1, 2]
    assert readings[1]["tip"].count("50.0") == 4


def test_a_logarithmic_axis_holds_every_place():
    records = [(task(), block(layer, 0.1)) for layer in (1, 10, 100)]
    scale = only(Curves("drop", "layer", log=True), records, "line")["encoding"]["x"]["scale"]
    assert scale["type"] == "log"
    assert scale["domain"][0] < 1 < 100 < scale["domain"][1]


def test_points_stand_at_both_their_numbers():
    records = made(tasks=("sums",))
    points = only(Points("drop", "items", "model"), records, "point")["rows"]
    assert [(row["series"], row["x"], row["y"]) for row in points[:2]] == [("m", 8, -12.5), ("m", 9, 50.0)]
    bars = only(Points("drop", "items", "model"), records, "rule")
    assert (bars["encoding"]["y"]["field"], bars["encoding"]["y2"]["field"]) == ("low", "high")


def test_bars_have_a_row_for_every_known_number_in_the_colour_of_its_series():
    mark = Bars("drop", ("task", "layer"), by="critical")
    drawn_rows = only(mark, made(models=("m",)), "point")["rows"]
    assert [(row["y"], row["x"], row["low"], row["high"]) for row in drawn_rows] == [
        ("sums · 0", -12.5, -25.0, 0.0), ("sums · 1", 50.0, 25.0, 75.0),
        ("facts · 0", -12.5, -25.0, 0.0), ("facts · 1", 50.0, 25.0, 75.0),
    ]  # fmt: skip
    assert [row["colour"] for row in drawn_rows[:2]] == [theme.tone(0), theme.tone(1)]
    assert mark.figure([ONE[2]], "none") is None


def test_of_too_many_bars_the_furthest_from_zero_are_drawn_in_their_order():
    records = [(task(), block(layer, (-1) ** layer * layer / 100)) for layer in range(40)]
    rows = only(Bars("drop", "layer", most=5), records, "point")["rows"]
    assert [row["x"] for row in rows] == pytest.approx([-35.0, 36.0, -37.0, 38.0, -39.0])


def test_single_runs_stand_small_beneath_their_bar():
    class Repeated(Row):
        name: str = column("Name", label=True)
        value: Estimate = column("Value", decimals(1))
        single: tuple[float, ...] = ()

    records = [Repeated(name="a", value=Estimate(value=1.0), single=(0.5, 1.5))]
    small = [layer for layer in layers(Bars("value", "name", runs="single"), records) if layer["mark"] == "point"]
    assert [[row["x"] for row in layer["rows"]] for layer in small] == [[0.5, 1.5], [1.0]]


def test_pointing_shows_what_tells_the_line_apart_its_number_its_test_and_more():
    row = only(Profile("drop", "layer", also=("items", "kept")), ONE, "rect", "left")["rows"][1]
    assert [line.replace("\N{NO-BREAK SPACE}", " ") for line in row["tip"].splitlines()][-4:] == [
        "block 1", "Drop: 50.0 points [25.0, 75.0]; corrected p .002", "Items: 9", "Kept: 50.0 %",
    ]  # fmt: skip


def test_only_lines_with_the_wanted_values_are_drawn_and_none_is_no_figure():
    rows = only(Profile("drop", "layer", only={"layer": (0, 1)}), ONE, "rect", "left")["rows"]
    assert [row["x"] for row in rows] == [0, 1]
    assert Profile("drop", "layer", only={"task": "other"}).figure(ONE, "none") is None


@pytest.mark.parametrize(
    "mark",
    [Profile("drop", "layer"), Map("drop", "layer", "model"), Curves("drop", "layer", "model"),
     Points("drop", "items", "model"), Bars("drop", "model")],
    ids=lambda mark: type(mark).__name__,
)  # fmt: skip
def test_every_mark_draws_hostile_names_and_single_lines(mark):
    for name in HOSTILE:
        records = [(task(name.replace("\ud800", "")), block(0, 0.5, 0.5, 0.5))]
        picture = drawing.svg(drawing.specification(mark.figure(records, "drawn").panels[0].charts[0]))
        assert "<script" not in picture
        assert "nan" not in picture.lower()
        assert not math.isnan(len(picture))
