"""The charts of an isolation, read back from their SVG, and its heat maps."""

import re
import xml.etree.ElementTree as ET

import made_isolation as made
import pytest

from lesion.report import trials
from lesion.studies.isolation import curves, distribution, sweeps, tradeoff

NAMESPACE = 'xmlns="http://www.w3.org/2000/svg" '


def parsed(markup):
    return ET.fromstring(str(markup).replace("<svg ", f"<svg {NAMESPACE}", 1))


def of_class(root, name):
    return [element for element in root.iter() if name in element.get("class", "").split()]


@pytest.fixture(scope="module")
def found():
    return trials.evaluation({"evaluation": made.evaluation()})


def panel(found, control=0, regime="prune"):
    series = sweeps.paths(sweeps.regimes(found.tried)[regime])
    (skill,) = found.skills
    chart = tradeoff.panel(found, series, skill, found.controls[control], (560, 380), boost=regime == "boost")
    return series, parsed(chart)


def numbers(path):
    found = [float(n) for n in re.findall(r"-?[\d.]+", path.get("d"))]
    return list(zip(found[::2], found[1::2], strict=True))


def test_further_left_is_a_lower_accuracy_on_the_skill_and_further_up_a_higher_one_on_the_control(found):
    _, root = panel(found)
    (line,) = (numbers(stroke) for stroke in of_class(root, "stroke") if "t0" in stroke.get("class"))
    accuracies = list(zip(made.LEFT["mathneuro", made.SKILL], made.LEFT["mathneuro", made.CONTROLS[0]], strict=True))
    # The plot is linear in both: differences of places are proportional to differences of accuracies.
    for i in (0, 1):
        scale = [
            (line[a][i] - line[0][i]) / (accuracies[a][i] - accuracies[0][i])
            for a in range(1, 4)
        ]  # fmt: skip
        assert scale == pytest.approx([scale[0]] * 3, rel=0.02)
        assert (scale[0] > 0) == (i == 0)


def test_both_accuracies_have_the_same_measure_when_one_of_them_moves_far():
    summary = made.evaluation(boost=False)
    for cell in summary["tasks"][1]["cells"]:
        cell |= {"accuracy": 0.99, "low": 0.97, "high": 1.0, "random": None}
    _, root = panel(trials.evaluation({"evaluation": summary}))
    ticks = [tick.text for tick in of_class(root, "tick")]
    assert [ticks.count(text) for text in ("0", "25", "50", "75", "100")] == [2] * 5


def test_less_perplexity_lies_higher(found):
    _, root = panel(found, control=2)
    (line,) = (numbers(stroke) for stroke in of_class(root, "stroke") if "t1" in stroke.get("class"))
    heights = [y for _, y in line]
    assert heights == sorted(heights)  # perplexity grows with keep; downwards is more


def test_every_edit_has_its_mark_its_intervals_and_its_random_controls(found):
    series, root = panel(found)
    edits = sum(len(stop.edits) for one in series for stop in one.stops)
    assert len(of_class(root, "mark")) == len(of_class(root, "point")) == len(of_class(root, "chance")) == edits
    assert len(of_class(root, "error")) == 2 * edits
    assert len(of_class(root, "baseline")) == 2


@pytest.mark.parametrize(("regime", "left"), [("prune", True), ("boost", False)])
def test_the_ideal_corner_is_left_for_pruning_and_right_for_boosting(found, regime, left):
    _, root = panel(found, regime=regime)
    (text,) = [element for element in root.iter() if element.text == "ideal"]
    assert (float(text.get("x")) < 280) == left


def test_pointing_tells_both_tasks_and_the_random_spread(found):
    _, root = panel(found)
    tips = [point.get("data-tip").replace("\N{NO-BREAK SPACE}", " ") for point in of_class(root, "point")]
    (tip,) = [tip for tip in tips if tip.startswith("MathNeuro, keep 5 %, ×0")]
    assert tip.splitlines()[1:] == [
        "primer:arithmetic: 20.0 % [15.0, 26.1], drop 68.0 [64.0, 72.0]; random 80.0 % (78.0 % to 82.0 %)",
        "primer:atlas: 90.0 % [85.1, 93.4], drop 10.0 [6.0, 14.0]; random 95.0 % (93.0 % to 97.0 %)",
    ]


def test_labels_cover_no_other_label_and_no_mark(found):
    for control in range(3):
        _, root = panel(found, control=control)
        boxes = [
            (float(t.get("x")), float(t.get("y")), t.get("text-anchor"), 6.2 * len(t.text))
            for t in of_class(root, "label")
        ]
        spans = [(x - {"start": 0, "middle": w / 2, "end": w}[anchor], y, w) for x, y, anchor, w in boxes]
        for i, (x, y, w) in enumerate(spans):
            for other_x, other_y, other_w in spans[:i]:
                assert x + w <= other_x or other_x + other_w <= x or abs(y - other_y) >= 10


def test_a_sweep_passes_through_the_mean_of_repeats(found):
    series = sweeps.swept(found.tried, "keep")
    (skill,) = found.skills
    root = parsed(curves.panel(found, series, skill, "keep", (400, 300)))
    assert len(of_class(root, "mark")) == len(made.METHODS) * len(made.KEEPS)
    assert len(of_class(root, "stroke")) == len(made.METHODS)


def test_consistency_has_a_line_per_keep_and_one_of_chance():
    overlaps = curves.overlaps(made.isolation())
    root = parsed(curves.consistency(overlaps, (560, 380)))
    assert len(of_class(root, "stroke")) == len(of_class(root, "baseline")) == 3
    assert len(of_class(root, "mark")) == len(overlaps)


def test_chance_crosses_the_whole_chart_where_there_is_only_one_size():
    overlaps = [one for one in curves.overlaps(made.isolation()) if one.samples == 100]
    root = parsed(curves.consistency(overlaps, (560, 380)))
    spans = [re.findall(r"[\d.]+", line.get("d")) for line in of_class(root, "baseline")]
    assert [float(right) - float(left) for left, _, right in spans] == [560 - curves.LEFT - curves.RIGHT] * 3


def test_two_repeats_have_no_bar_and_say_so():
    isolation = made.isolation()
    for entry in isolation["overlap"]:
        entry |= {"repeats": 2, "iou": entry["iou"][2:3]}
    root = parsed(curves.consistency(curves.overlaps(isolation), (560, 380)))
    assert of_class(root, "error") == []
    assert all("(one pair, no interval)" in point.get("data-tip") for point in of_class(root, "point"))


@pytest.mark.parametrize(("kind", "lines"), [("choose", 1), ("generate", 0)])
def test_a_control_that_is_chosen_has_a_line_of_chance(kind, lines):
    summary = made.evaluation(boost=False)
    summary["tasks"][1] |= {"kind": kind, "chance": 0.25}
    chosen = trials.evaluation({"evaluation": summary})
    _, root = panel(chosen)
    guesses = of_class(root, "guess")
    assert len(guesses) == lines
    sweep = parsed(curves.panel(chosen, sweeps.swept(chosen.tried, "keep"), chosen.controls[0], "keep", (400, 300)))
    assert len(of_class(sweep, "guess")) == lines
    if lines:
        # A quarter of the way from 0 to 100 %, read off the axis' own numbers.
        ticks = {tick.text: float(tick.get("y")) - 4 for tick in of_class(root, "tick") if tick.get("x") == "50.0"}
        assert float(guesses[0].get("d").split()[1].split("H")[0]) == pytest.approx(ticks["25"], abs=0.2)


def test_a_distribution_sums_experts_up_and_keeps_the_head_apart():
    plain, split = (distribution.distributions(made.isolation(experts=e)) for e in (False, True))
    for one, other in zip(plain, split, strict=True):
        assert other.kinds == [kind.replace("mlp.", "mlp.experts.") for kind in one.kinds]
        assert other.head.share == one.head.share
        assert other.at("mlp.experts.up", 3).total == 4 * one.at("mlp.up", 3).total
        assert other.at("mlp.experts.up", 3).matrices == 4


def test_sums_over_blocks_kinds_and_everything_agree():
    for one, entry in zip(distribution.distributions(made.isolation()), made.isolation()["selections"], strict=True):
        by_block = sum(one.of_block(block).selected for block in one.blocks)
        by_kind = sum(one.of_kind(kind).selected for kind in one.kinds)
        assert by_block == by_kind == one.whole.selected - one.head.selected
        assert (one.whole.selected, one.whole.total) == (entry["selected"], entry["total"])


def test_of_many_distributions_first_repeats_are_drawn_first():
    isolation = made.isolation()
    isolation["selections"] = [
        entry | {"repeat": repeat} for repeat in (0, 1, 2) for entry in isolation["selections"][:4]
    ]
    every = distribution.distributions(isolation)
    assert [one.repeat for one in distribution.first(every, 6)] == [0, 0, 0, 0, 1, 1]
    assert distribution.first(every, 99) == every
    assert len({one.slug for one in every}) == len(every)


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0"), (0.0001, "0.01"), (0.0318, "3.2"), (0.152, "15"), (1.0, "100"), (1e-9, "<.0001")]
)
def test_shares_are_written_for_small_cells(share, text):
    assert distribution.share(share) == text


def test_names_are_escaped(found):
    hostile = made.evaluation(boost=False)
    for task in hostile["tasks"]:
        task["task"] = '"><script>x</script>' + task["task"]
    hostile["selectivity"] = []
    _, root = panel(trials.evaluation({"evaluation": hostile}))
    assert not [element for element in root.iter() if element.tag.endswith("script")]
