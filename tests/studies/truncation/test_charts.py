"""The charts of a truncation search: heights where the axis says, intervals, marks, spectra with what is kept."""

import re
import xml.etree.ElementTree as ET

import made_truncation as made
import numpy as np
import pytest

from lesion.report import scales
from lesion.studies.truncation import charts as truncation_charts
from lesion.studies.truncation import curves as truncation_curves
from lesion.studies.truncation import spectra as truncation_spectra
from lesion.studies.truncation.cells import found
from lesion.studies.truncation.charts import Curve, Place

SIZE = (400, 290)


def parsed(markup):
    return ET.fromstring(str(markup))


def of_class(root, name):
    return [element for element in root.iter() if name in (element.get("class") or "").split()]


def heights(root):
    """Value of a tick → its height, of the upward axis, from the texts beside it."""
    ticks = [tick for tick in of_class(root, "tick") if tick.get("text-anchor") == "end"]
    return {float(tick.text.replace("−", "-")): float(tick.get("y")) - 4 for tick in ticks}


def along(root, value):
    """Where a value lies by the axis's own numbers."""
    known = sorted(heights(root).items())
    return float(np.interp(value, [v for v, _ in known], [h for _, h in known]))


@pytest.fixture(scope="module")
def search():
    return found(made.study())


def drawn(places, **more):
    curve = Curve("one", 0, 0, False, tuple(places))
    y = scales.shares([0.0, 1.0], SIZE[1] - truncation_charts.BOTTOM, truncation_charts.TOP)
    return parsed(truncation_charts.over(["a", "b"], [curve], y, ("edit", "accuracy, %"), SIZE, **more))


def test_points_and_intervals_lie_where_the_axis_says():
    root = drawn([Place(0, 0.25, 0.1, 0.4, "told"), Place(1, 0.75, 0.6, 0.9, "told")])
    points = [float(point.get("cy")) for point in of_class(root, "point")]
    assert points == pytest.approx([along(root, 25), along(root, 75)], abs=0.2)
    bars = [[float(x) for x in re.findall(r"[\d.]+", bar.get("d"))[1:]] for bar in of_class(root, "error")]
    assert bars[0] == pytest.approx([along(root, 10), along(root, 40)], abs=0.2)


def test_without_an_interval_there_is_no_bar():
    assert of_class(drawn([Place(0, 0.25, None, None, "told")]), "error") == []


def test_a_line_of_reference_is_drawn_within_the_axis_only():
    assert len(of_class(drawn([Place(0, 0.2, None, None, "")], line=0.5), "guess")) == 1
    assert of_class(drawn([Place(0, 0.2, None, None, "")], line=2.0), "guess") == []


def test_tokens_before_and_after_are_one_curve_per_token(search):
    of = [one for one in search.tokens if one.revision is None]
    curves = truncation_curves.probabilities(search, of, lambda one: of.index(one), by_edit=False)
    assert [(curve.name, len(curve.places)) for curve in curves] == [("right token", 3), ("tempting token", 3)]
    assert [place.y for place in curves[0].places] == [one.p_right for one in of]


def test_along_revisions_every_edit_has_a_curve_and_the_unedited_one_is_dashed(search):
    revisions = [*search.followed, None]
    curves = truncation_curves.margins(search, search.tokens, lambda one: revisions.index(one.revision), by_edit=True)
    assert [curve.name for curve in curves] == ["margin, unedited", "margin, chosen", "margin, composed"]
    assert [curve.dashed for curve in curves] == [True, False, False]
    assert {len(curve.places) for curve in curves} == {4}


def test_accuracy_along_revisions_ends_with_the_model_that_was_searched(search):
    curves = truncation_curves.accuracies(search, made.IOI, search.followed)
    ends = {curve.name: curve.places[-1] for curve in curves}
    tests = {"chosen": search.best_tests[0], "composed": search.composed_tests[0]}
    assert ends["unedited"].y == search.base(made.IOI, "test").accuracy
    for name, test in tests.items():
        assert (ends[name].at, ends[name].y) == (3, test.accuracy)
        assert "searched" in ends[name].told


def test_the_path_joins_the_steps_that_stayed_and_leaves_the_others_apart(search):
    root = parsed(truncation_curves.path(search, SIZE))
    (line,) = of_class(root, "stroke")
    ends = [float(pair.split()[1]) for pair in line.get("d")[1:].split("L")]
    assert ends == pytest.approx([along(root, 77), along(root, 79)], abs=0.2)
    assert len(of_class(root, "mark")) == 4
    assert len([mark for mark in of_class(root, "mark") if "critical" not in mark.get("class")]) == 2


def test_by_gold_the_path_is_told_in_nats():
    summary = made.study()
    summary["search"]["objective"] = "gold"
    for step in summary["composition"]["path"]:
        step |= {"before": -1.0 - step["step"] / 10, "after": -1.1 - step["step"] / 10}
    root = parsed(truncation_curves.path(found(summary), SIZE))
    assert "nats" in " ".join(root.itertext())
    told = [point.get("data-tip") for point in of_class(root, "point")]
    assert "−1.000 → −1.100" in told[0]


def test_zero_is_always_on_an_axis_of_nats():
    for values in ([3.0, 5.0], [-7.0, -0.1], [0.0], [-1e-3, 2e-3]):
        scale = truncation_charts.around_zero(values, SIZE)
        assert scale.low < 0 < scale.high
        assert 0.0 in [value for value, _ in scale.ticks]
        assert scale.low < min(values)
        assert max(values) < scale.high


@pytest.mark.parametrize(("side", "first", "last"), [("top", 1, 6), ("bottom", 123, 128)])
def test_what_the_chosen_edit_keeps_is_shaded(side, first, last):
    summary = made.study()
    cell = next(one for one in summary["cells"] if one["edit"] == summary["chosen"]["edit"])
    cell["side"] = side
    search = found(summary)
    of = dict(truncation_spectra.panels(search))["mlp.up"]
    root = parsed(truncation_spectra.chart(search, of, (400, 290)))
    (shade,) = of_class(root, "baseband")
    left, right = (float(shade.get("x")), float(shade.get("x")) + float(shade.get("width")))
    # The longest line runs over all components: where its number lies says where the shade must begin and end.
    ticks = {float(t.text): float(t.get("x")) for t in of_class(root, "tick") if t.get("text-anchor") == "middle"}
    places = np.interp(np.log([first - 0.5, last + 0.5]), np.log(list(ticks)), list(ticks.values()))
    if side == "top":
        assert right == pytest.approx(places[1], abs=0.5)
    else:
        assert left == pytest.approx(ticks[100] + (ticks[100] - ticks[50]) * np.log2(1.225), abs=1.0)
    assert left < right


def test_beside_the_chosen_spectrum_the_others_are_grey(search):
    panels = dict(truncation_spectra.panels(search))
    assert list(panels) == ["mlp.up", "attention.o"]
    root = parsed(truncation_spectra.chart(search, panels["mlp.up"], SIZE))
    assert len(of_class(root, "stroke")) == 1
    assert len(of_class(root, "error")) == made.LAYERS - 1
    assert [name for _, name in truncation_spectra.legend(search, panels["mlp.up"])] == ["5.mlp.up", "7 others"]
    assert [name for _, name in truncation_spectra.legend(search, panels["attention.o"])] == ["5.attention.o"]


def test_a_spectrum_of_zeros_is_left_out():
    summary = made.study()
    for one in summary["spectra"]:
        if one["address"] == "5.attention.o":
            one["values"] = [0.0] * len(one["values"])
    assert list(dict(truncation_spectra.panels(found(summary)))) == ["mlp.up"]


def test_names_are_escaped(search):
    curve = Curve("one", 0, 0, False, (Place(0, 0.5, None, None, '"><script>x</script>'),))
    y = scales.shares([0.0, 1.0], 250.0, 12.0)
    root = parsed(truncation_charts.over(['"><script>x</script>'], [curve], y, ("<b>", "<i>"), SIZE))
    assert not [element for element in root.iter() if element.tag.endswith(("script", "b", "i"))]
