"""The heat maps: what every square says, where two keeps are one edit, and where there is nothing to compare."""

import made_truncation as made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.edits.edit import Truncate
from lesion.studies.truncation import maps as truncation_maps
from lesion.studies.truncation import report as truncation
from lesion.studies.truncation.cells import found
from lesion.studies.truncation.maps import Measure

ACCURACY = Measure("accuracy", made.IOI)


@pytest.fixture(scope="module")
def search():
    return found(made.study())


def figure(search, measure=ACCURACY):
    return next(one for one in truncation_maps.figures(search) if one.measure == measure)


def square(search, matrix, side, layer, keep, measure=ACCURACY):
    of = next(one for one in figure(search, measure).maps if (one.matrix, one.side) == (matrix, side))
    row = sorted(made.KEEPS, reverse=True).index(keep)
    return of.rows[row][2][of.layers.index(layer)]


def cell(matrix, side, layer, keep):
    return next(one for one in made.cells() if one["edit"] == made.edit(matrix, side, layer, keep))


def test_there_is_a_map_per_matrix_and_side_and_a_figure_per_task_and_measure(search):
    figures = truncation_maps.figures(search)
    assert [one.measure.kind for one in figures] == ["screen", *["accuracy", "gold"] * 2]
    for one in figures:
        assert [(of.matrix, of.side) for of in one.maps] == [(m, s) for m in made.MATRICES for s in made.SIDES]
        assert {of.layers for of in one.maps} == {tuple(range(made.LAYERS))}


def test_by_gold_its_figures_come_first():
    summary = made.study()
    summary["search"]["objective"] = "gold"
    assert truncation_maps.figures(found(summary))[1].measure == Measure("gold", made.IOI)


def test_the_screen_has_seen_every_cell_and_is_the_first_map(search):
    first = truncation_maps.figures(search)[0]
    assert first.measure == Measure("screen")
    told = {square.cell for of in first.maps for _, _, squares in of.rows for square in squares if square.text != "="}
    assert {one.edit for one in search.cells} <= told
    for one in search.cells:
        assert truncation_maps.change(search, one, first.measure) == one.screen


def test_without_a_screen_there_is_no_map_of_it():
    summary = made.study()
    for one in summary["cells"]:
        one["screen"] = None
    assert truncation_maps.figures(found(summary))[0].measure.kind != "screen"


def test_a_square_says_the_change_on_the_same_items(search):
    for place in (made.BEST, ("attention.o", "top", 3, 0.1)):
        outcome = cell(*place)["tasks"][0]
        change = 100 * (outcome["accuracy"] - made.unedited(made.IOI, "validation")["accuracy"])
        text = square(search, *place).text.replace("\N{MINUS SIGN}", "-")
        assert float(text) == pytest.approx(change, abs=0.51)
        assert (text[0] == "+") == (change > 0)


def test_gains_are_blue_losses_orange_and_the_largest_gain_is_full(search):
    best = square(search, *made.BEST)
    assert best.style == "g20 critical"
    assert "chosen" in best.told
    assert square(search, "attention.o", "bottom", 7, 0.1).style.startswith("k")
    assert figure(search).full == pytest.approx(0.2)


def test_what_keeps_as_many_components_shows_the_numbers_of_that_edit(search):
    removed, kept = (square(search, "mlp.up", "top", 3, keep) for keep in (0.0, 0.005))
    assert (removed.text, removed.style) == (kept.text, kept.style)
    assert "one edit" in removed.told
    # Nothing kept is the same on both sides, and was asked on one of them only.
    assert square(search, "mlp.up", "bottom", 3, 0.0).text == kept.text


def test_given_up_and_collapsed_and_unasked_squares_are_hatched_and_say_why(search):
    eliminated = square(search, *made.ELIMINATED)
    assert (eliminated.style, eliminated.text) == ("none", "×")
    assert "given up after 16 items" in eliminated.told
    assert "screen left it out" not in eliminated.told
    collapsed = square(search, *made.COLLAPSED)
    assert (collapsed.style, collapsed.text) == ("none", "≡")
    assert "says “Mary” to 98.0\N{NO-BREAK SPACE}% of the items" in collapsed.told
    unasked = square(search, "attention.o", "bottom", 0, 0.1)
    assert (unasked.style, unasked.text) == ("none", "")
    assert "the screen left it out" in unasked.told


def test_a_collapse_on_one_task_hatches_that_task_only(search):
    assert square(search, *made.COLLAPSED, Measure("accuracy", made.ATLAS)).style != "none"


def test_a_keep_that_leaves_all_is_the_unedited_model():
    summary = made.study()
    summary["search"]["keep"] = [1.0, *made.KEEPS]
    of = truncation_maps.figures(found(summary))[0].maps[0]
    assert {(one.text, one.style) for one in of.rows[0][2]} == {("=", "empty")}


def test_small_losses_of_a_search_do_not_shine():
    summary = made.study()
    for one in summary["cells"]:
        for outcome in one["tasks"]:
            outcome |= {"drop": 0.001 if outcome["task"] == made.IOI else 0.5}
    assert figure(found(summary)).full == 0.01
    loud = figure(found(summary), Measure("accuracy", made.ATLAS))
    assert (loud.full, loud.clipped) == (0.1, True)


def test_only_so_many_squares_are_drawn(search, monkeypatch):
    monkeypatch.setattr(truncation_maps, "MOST_SQUARES", 2 * 2 * made.LAYERS * len(made.KEEPS) * 2)
    assert len(truncation_maps.figures(search)) == 2
    monkeypatch.setattr(truncation_maps, "MOST_SQUARES", 1)
    assert len(truncation_maps.figures(search)) == 1
    assert "for want of room: ioi: accuracy; ioi: gold log-probability; primer:atlas:" in truncation.page(made.study())


@given(st.integers(0, 10_000).map(lambda n: n / 10_000), st.integers(1, 20_000))
def test_ranks_are_counted_as_the_edit_counts_them(keep, of):
    first, last = Truncate("0.mlp.up", keep).kept(of)
    assert truncation_maps.rank_of(keep, of) == last - first


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.314, "+0.31"), (-0.004, "−0.004"), (0.0, "0.000"), (-0.0001, "0.000"), (None, "–"), (-12.3, "−12.30")],
)
def test_changes_of_log_probability_carry_their_sign(value, text):
    assert truncation_maps.nats(value) == text


def test_intervals_of_log_probability_have_as_many_digits_as_they_need():
    assert truncation_maps.nats_interval(-0.5, 0.25).replace("\N{NO-BREAK SPACE}", " ") == "[−0.50, 0.25]"
    assert truncation_maps.nats_interval(-0.004, 0.0125).replace("\N{NO-BREAK SPACE}", " ") == "[−0.004, 0.013]"
    assert truncation_maps.nats_interval(None, 1.0) == ""
