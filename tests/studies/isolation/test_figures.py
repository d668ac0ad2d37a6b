"""The isolation's PNG figures: nothing is cut off, and no name lies over another, a mark or the word ideal."""

import itertools

import made_isolation as made
import pytest

from lesion.report import trials
from lesion.studies.isolation import curves, sweeps
from lesion.studies.isolation import figures as isolation_figures
from lesion.studies.isolation.label_placement import SIZE

LONG = "mmlu:/a/folder/whose/name/is/long/high_school_government_and_politics_test.csv"


@pytest.fixture(scope="module")
def drawn():
    """The trade-off of pruning, with a control that has a long name and is chosen, before it is written."""
    summary = made.evaluation(boost=False)
    summary["tasks"][1] |= {"task": LONG, "kind": "choose", "chance": 0.25}
    found = trials.evaluation({"evaluation": summary | {"selectivity": []}})
    kept = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolation_figures, "png", lambda figure: kept.append(figure) or b"")
        (skill,) = found.skills
        isolation_figures.trade_off(found, found.tried, skill, found.controls, boost=False)
    (figure,) = kept
    return figure


def boxes(texts):
    return [text.get_window_extent() for text in texts]


def apart(one, other):
    return one.x1 <= other.x0 or other.x1 <= one.x0 or one.y1 <= other.y0 or other.y1 <= one.y0


def names(axis):
    return [text for text in axis.texts if text.get_fontsize() == SIZE]


def test_the_names_of_axes_lie_within_the_figure_with_both_ends_of_a_long_task_name(drawn):
    first = drawn.axes[0].yaxis.label
    assert first.get_text().startswith("accuracy on mmlu:/")
    assert first.get_text().endswith("test.csv")
    for axis in drawn.axes:
        for label in (axis.xaxis.label, axis.yaxis.label):
            if not label.get_text():
                continue
            box = label.get_window_extent()
            assert box.x0 >= 0
            assert box.y0 >= 0
            assert box.x1 <= drawn.bbox.x1
            assert box.y1 <= drawn.bbox.y1


def test_names_of_marks_cover_neither_each_other_nor_a_mark_nor_the_word_ideal(drawn):
    for axis in drawn.axes[:3]:
        written = names(axis)
        assert len(written) >= 8  # of 12: three methods at four keeps
        (ideal,) = [text for text in axis.texts if "ideal" in text.get_text()]
        for one, other in itertools.combinations(boxes([*written, ideal]), 2):
            assert apart(one, other)
        points = [
            axis.transData.transform((line.get_xdata()[0], line.get_ydata()[0]))
            for line in axis.lines
            if line.get_marker() in "osD" and len(line.get_xdata()) == 1
        ]
        assert len(points) == 12
        for box in boxes(written):
            assert not any(box.contains(*point) for point in points)


def test_ticks_of_perplexity_are_few_round_and_apart_and_less_is_higher(drawn):
    axis = drawn.axes[2]
    labels = [label for label in axis.get_yticklabels() if label.get_text()]
    low, high = sorted(axis.get_ylim())
    shown = [label for label in labels if low <= label.get_position()[1] <= high]
    assert 2 <= len(shown) <= 7
    assert not [label for label in axis.get_yticklabels(minor=True) if label.get_text()]
    for one, other in itertools.combinations(boxes(shown), 2):
        assert apart(one, other)
    assert axis.get_ylim()[0] > axis.get_ylim()[1]


def test_a_control_that_is_chosen_has_a_line_of_chance(drawn):
    lines = [[line.get_ydata()[0] for line in axis.lines if line.get_linestyle() == ":"] for axis in drawn.axes[:3]]
    assert lines == [[0.25], [], []]
    assert "chance" in [text.get_text() for text in drawn.legends[0].get_texts()]


def test_ticks_too_near_for_their_numbers_are_left_out():
    assert isolation_figures.apart([1.0, 1.1, 1.5, 1.55, 3.0], 0.2) == [1.0, 1.5, 3.0]


@pytest.mark.parametrize("sizes", [(100,), (10, 100)])
def test_chance_is_drawn_for_every_selection_also_where_there_is_only_one_size(sizes, monkeypatch):
    kept = []
    monkeypatch.setattr(isolation_figures, "png", lambda figure: kept.append(figure) or b"")
    overlaps = [one for one in curves.overlaps(made.isolation()) if one.samples in sizes]
    isolation_figures.consistency(overlaps)
    (axis,) = kept[0].axes
    dashed = [line for line in axis.lines if line.get_linestyle() == "--"]
    assert sorted(line.get_ydata()[0] for line in dashed) == pytest.approx([k / (2 - k) for k in (0.001, 0.05, 0.15)])
    for line in dashed:
        ends = line.get_transform().transform([(line.get_xdata()[i], line.get_ydata()[i]) for i in (0, -1)])
        assert ends[1][0] - ends[0][0] > 100  # pixels


def test_the_series_of_the_figure_are_those_of_the_page(drawn):
    labels = [text.get_text() for text in drawn.legends[0].get_texts()]
    found = trials.evaluation({"evaluation": made.evaluation(boost=False)})
    assert labels[:3] == [one.label for one in sweeps.paths(found.tried)]
