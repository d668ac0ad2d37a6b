"""The heat maps: what every cell says, where two keeps are one edit, and where there is nothing to compare."""

import functools

import made_truncation as made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.edits.edit import Truncate
from lesion.report import drawing, theme
from lesion.studies.truncation import maps as truncation_maps
from lesion.studies.truncation.maps import Measure
from lesion.studies.truncation.numbers import nats, nats_interval
from lesion.studies.truncation.report import TruncationResult
from runs import page_of

ACCURACY = Measure("accuracy", made.IOI)


@pytest.fixture(scope="module")
def summary():
    return made.summary()


@functools.lru_cache(maxsize=1)
def _all_maps(summary):
    return truncation_maps.all_maps(summary)


def of_measure(summary, measure=ACCURACY):
    return next(maps for maps in _all_maps(summary) if maps.measure == measure)


def entry(summary, matrix, side, layer, keep, measure=ACCURACY):
    """The cell of a map, as `heatmap.heat` takes it; a value that is not known is None."""
    of = next(each for each in of_measure(summary, measure).maps if (each.matrix, each.side) == (matrix, side))
    row = of.rows[sorted(made.KEEPS, reverse=True).index(keep)]
    (found,) = of.frame[(of.frame["x"] == layer) & (of.frame["y"] == row)].to_dict("records")
    return found | {"value": None if found["value"] != found["value"] else found["value"]}


def cell(matrix, side, layer, keep):
    return next(each for each in made.cells() if each["edit"] == made.edit(matrix, side, layer, keep))


def test_there_is_a_map_per_matrix_and_side_and_a_figure_per_task_and_measure(summary):
    every = truncation_maps.all_maps(summary)
    assert [maps.measure.kind for maps in every] == ["screen", *["accuracy", "gold"] * 2]
    for maps in every:
        assert [(of.matrix, of.side) for of in maps.maps] == [(m, s) for m in made.MATRICES for s in made.SIDES]
        assert {of.layers for of in maps.maps} == {tuple(range(made.LAYERS))}
        (figure,) = truncation_maps.figures(summary, maps, "map")
        assert [panel.title for panel in figure.panels] == [of.title for of in maps.maps]


def test_a_matrix_without_a_number_has_no_map_and_the_caption_names_it():
    json = made.study()
    matrix, side = made.MATRICES[0], made.SIDES[0]
    for each in json["cells"]:
        if (each["matrix"], each["side"]) == (matrix, side):
            each |= {"outcomes": [], "eliminated": None}
    summary = made.summary(json)
    maps = next(maps for maps in truncation_maps.all_maps(summary) if maps.measure == ACCURACY)
    assert (matrix, side) not in {(of.matrix, of.side) for of in maps.maps}
    assert len(maps.maps) == len(made.MATRICES) * len(made.SIDES) - 1
    (figure,) = truncation_maps.figures(summary, maps, "map")
    assert f"Not drawn, because no cell was evaluated in full: {matrix} ({side})." in figure.caption


def test_maps_of_many_layers_stand_above_one_another_with_their_titles():
    json = made.study()
    json["cells"] += [each | {"layer": each["layer"] + made.LAYERS} for each in made.cells()]
    (first, *_) = truncation_maps.all_maps(made.summary(json))
    (figure,) = truncation_maps.figures(made.summary(json), first, "map")
    (panel,) = figure.panels
    assert [chart.title for chart in panel.charts] == [of.title for of in first.maps]


def test_by_gold_its_maps_come_first():
    json = made.study()
    json["study"]["objective"] = "gold"
    assert truncation_maps.all_maps(made.summary(json))[1].measure == Measure("gold", made.IOI)


def test_the_screen_has_seen_every_cell_and_is_the_first_map(summary):
    first = truncation_maps.all_maps(summary)[0]
    assert first.measure == Measure("screen")
    for each in summary.cells:
        assert truncation_maps.change(summary, each, first.measure) == each.screen
        assert entry(summary, each.matrix, each.side, each.layer, each.keep, first.measure)["value"] == -each.screen


def test_without_a_screen_there_is_no_map_of_it():
    json = made.study()
    for each in json["cells"]:
        each["screen"] = None
    assert truncation_maps.all_maps(made.summary(json))[0].measure.kind != "screen"


def test_a_cell_says_the_change_on_the_same_items(summary):
    for place in (made.BEST, ("attention.o", "top", 3, 0.1)):
        outcome = cell(*place)["outcomes"][0]
        base = made.unedited(made.IOI, "validation")["accuracy"]["value"]
        change = 100 * (outcome["accuracy"]["value"] - base)
        found = entry(summary, *place)
        text = found["text"].replace("\N{MINUS SIGN}", "-")
        assert float(text) == pytest.approx(change, abs=0.51)
        assert (text[0] == "+") == (change > 0)
        assert found["value"] == pytest.approx(-change / 100)


def test_gains_are_blue_losses_orange_and_the_largest_change_is_full(summary):
    best = entry(summary, *made.BEST)
    assert best["marked"]
    assert "chosen" in best["tip"]
    maps = of_measure(summary)
    assert best["value"] == pytest.approx(-0.2)
    changes = [value for of in maps.maps for value in of.frame["value"].dropna()]
    assert maps.full == pytest.approx(max(map(abs, changes))) == pytest.approx(0.3)
    (figure,) = truncation_maps.figures(summary, maps, "map")
    (chart,) = figure.panels[0].charts
    specified = drawing.specification(chart)
    fill = next(layer["encoding"]["fill"] for layer in specified["layer"] if "fill" in layer.get("encoding", {}))
    assert (fill["condition"]["test"], fill["condition"]["value"]) == ("datum.value < 0", theme.GAIN)
    assert fill["value"] == theme.LOSS


def test_what_keeps_as_many_components_shows_the_numbers_of_that_edit(summary):
    removed, kept = (entry(summary, "mlp.up", "top", 3, keep) for keep in (0.0, 0.005))
    assert (removed["text"], removed["value"]) == (kept["text"], kept["value"])
    assert "the same edit" in removed["tip"]
    # Nothing kept is the same on both sides, and was evaluated on one of them only.
    assert entry(summary, "mlp.up", "bottom", 3, 0.0)["text"] == kept["text"]


def test_cells_given_up_collapsed_and_not_evaluated_have_no_value_and_say_why(summary):
    eliminated = entry(summary, *made.ELIMINATED)
    assert (eliminated["value"], eliminated["text"]) == (None, "×")
    assert "given up after 16 items" in eliminated["tip"]
    assert "screen left it out" not in eliminated["tip"]
    collapsed = entry(summary, *made.COLLAPSED)
    assert (collapsed["value"], collapsed["text"]) == (None, "≡")
    assert "“Mary” to 98.0\N{NO-BREAK SPACE}% of the items: collapsed" in collapsed["tip"]
    left_out = entry(summary, "attention.o", "bottom", 0, 0.1)
    assert (left_out["value"], left_out["text"]) == (None, "")
    assert "the screen left it out" in left_out["tip"]


def test_a_collapse_on_one_task_takes_the_value_of_that_task_only(summary):
    assert entry(summary, *made.COLLAPSED, Measure("accuracy", made.ATLAS))["value"] is not None


def test_a_keep_that_leaves_all_is_the_unedited_model():
    json = made.study()
    json["study"]["keep"] = [1.0, *made.KEEPS]
    of = truncation_maps.all_maps(made.summary(json))[0].maps[0]
    first = of.frame[of.frame["y"] == of.rows[0]]
    assert len(first) == made.LAYERS
    assert set(first["text"]) == {"="}
    assert first["value"].isna().all()


def test_small_losses_of_a_search_do_not_shine():
    json = made.study()
    for each in json["cells"]:
        for outcome in each["outcomes"]:
            outcome["drop"]["value"] = 0.001 if outcome["task"] == made.IOI else 0.5
    assert of_measure(made.summary(json)).full == 0.01
    loud = of_measure(made.summary(json), Measure("accuracy", made.ATLAS))
    assert loud.full == 0.5


def test_only_so_many_cells_are_drawn(summary, monkeypatch):
    monkeypatch.setattr(truncation_maps, "MOST_CELLS", 2 * 2 * made.LAYERS * len(made.KEEPS) * 2)
    assert len(truncation_maps.all_maps(summary)) == 2
    monkeypatch.setattr(truncation_maps, "MOST_CELLS", 1)
    assert len(truncation_maps.all_maps(summary)) == 1
    names = [measure.name for measure in truncation_maps.measures(summary)[1:]]
    section = next(section for section in page_of(TruncationResult, summary).sections if section.short == "Map")
    assert f"for want of room: {'; '.join(names)}." in section.blocks[-1].paragraphs[0]


def test_only_so_many_panels_stand_in_one_file(summary, monkeypatch):
    monkeypatch.setattr(truncation_maps, "MOST_PANELS", 3)
    figures = truncation_maps.figures(summary, of_measure(summary), "map")
    assert [(figure.name, len(figure.panels)) for figure in figures] == [("map", 3), ("", 1)]


@given(st.integers(0, 10_000).map(lambda n: n / 10_000), st.integers(1, 20_000))
def test_ranks_are_counted_as_the_edit_counts_them(keep, of):
    first, last = Truncate("0.mlp.up", keep).kept(of)
    assert truncation_maps.rank_of(keep, of) == last - first


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.314, "+0.31"), (-0.004, "−0.004"), (0.0, "0.000"), (-0.0001, "0.000"), (None, "–"), (-12.3, "−12.30")],
)
def test_changes_of_log_probability_carry_their_sign(value, text):
    assert nats(value) == text


def test_intervals_of_log_probability_have_as_many_digits_as_they_need():
    assert nats_interval(-0.5, 0.25).replace("\N{NO-BREAK SPACE}", " ") == "[−0.50, 0.25]"
    assert nats_interval(-0.004, 0.0125).replace("\N{NO-BREAK SPACE}", " ") == "[−0.004, 0.013]"
    assert nats_interval(None, 1.0) == ""
