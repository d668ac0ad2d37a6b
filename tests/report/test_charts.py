"""The page's line charts, read back from their SVG."""

import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from made import study

from lesion.report import charts
from lesion.report.views import views

NAMESPACE = 'xmlns="http://www.w3.org/2000/svg" '


def drawn(summary, task="sums", width=400):
    (view,) = views(summary)
    frame = charts.Frame(view.layers, width)
    text = str(charts.panel(view, task, frame, 0.95)).replace("<svg ", f"<svg {NAMESPACE}", 1)
    return view, frame, ET.fromstring(text)


def of_class(root, name):
    return [element for element in root.iter() if name in element.get("class", "").split()]


def test_the_stroke_passes_through_every_accuracy():
    view, frame, root = drawn(study(models=("base",))[0])
    (stroke,) = of_class(root, "stroke")
    numbers = [float(n) for n in re.findall(r"[\d.]+", stroke.get("d"))]
    points = list(zip(numbers[::2], numbers[1::2], strict=True))
    assert [(round(x, 1), round(y, 1)) for x, y in points] == [
        (round(frame.x(point.layer), 1), round(frame.y(point.accuracy), 1)) for point in view.panels["sums"][0].points
    ]


@pytest.mark.parametrize("width", [400, 640])
def test_all_of_a_chart_lies_within_its_frame(width):
    _, frame, _ = drawn(study()[0], width=width)
    assert frame.left <= frame.x(0) < frame.x(3) <= width - frame.right
    assert frame.top < frame.y(1.0) < frame.y(0.0) < frame.height - frame.bottom
    assert frame.y(0.25) - frame.y(0.75) == pytest.approx((frame.y(0.0) - frame.y(1.0)) / 2)


def test_critical_layers_have_a_filled_mark_and_their_number():
    _, frame, root = drawn(study(models=("base",))[0])
    assert len(of_class(root, "mark")) == 4
    assert len(of_class(root, "critical")) == 1
    (label,) = of_class(root, "label")
    assert label.text == "2"
    assert float(label.get("x")) == round(frame.x(2), 1)


def test_a_label_under_a_mark_at_zero_still_lies_above_the_axis_numbers():
    _, _frame, root = drawn(study(models=("base",))[0])
    (label,) = of_class(root, "label")
    ticks = {float(tick.get("y")) for tick in of_class(root, "tick") if tick.get("text-anchor") == "middle"}
    assert float(label.get("y")) + 8 < min(ticks)


def test_pointing_tells_the_numbers_of_every_model():
    _, _, root = drawn(study()[0])
    tip = of_class(root, "hit")[2].get("data-tip").replace("\N{NO-BREAK SPACE}", " ")
    assert tip.splitlines()[0] == "block 2 switched off"
    assert "base: 0.0 % [0.0, 27.8], drop 90.0 [70.0, 110.0], p .016, critical" in tip
    assert "child: 0.0 %" in tip


def test_a_layer_not_answered_yet_says_so_and_opens_nothing():
    summary = study(models=("base",))[0]
    del summary["models"][0]["tasks"][0]["layers"][3]
    _, _, root = drawn(summary)
    hit = of_class(root, "hit")[3]
    assert "not measured yet" in hit.get("data-tip")
    assert hit.get("data-edit") is None


def test_eighty_layers_leave_room_between_their_numbers():
    ticks = charts.Frame(tuple(range(80))).ticks
    frame = charts.Frame(tuple(range(80)))
    assert min(frame.x(b) - frame.x(a) for a, b in itertools.pairwise(ticks)) >= 20


def test_names_are_escaped():
    _, _, root = drawn(study(models=('"><script>x</script>',), tasks=("sums",))[0])
    assert not [element for element in root.iter() if element.tag.endswith("script")]
