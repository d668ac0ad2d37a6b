"""The charts of an isolation, read back from their specifications: values, scales and encodings."""

import json
import math
from typing import NamedTuple

import made_isolation as made
import pandas as pd
import pytest

from lesion.report import drawing, theme
from lesion.studies.isolation import charts, selection_charts, sweeps
from lesion.studies.isolation.result import Isolation

SPACE = "\N{NO-BREAK SPACE}"


class Layer(NamedTuple):
    """One layer of a chart: what is drawn, how, and of which rows."""

    mark: dict
    encoding: dict
    rows: list[dict]


def layers(chart) -> list[Layer]:
    specified = drawing.specification(chart)

    def flat(part, data):
        data = part.get("data", data)
        if "layer" in part:
            return [layer for inner in part["layer"] for layer in flat(inner, data)]
        mark = part["mark"] if isinstance(part["mark"], dict) else {"type": part["mark"]}
        return [Layer(mark, part.get("encoding", {}), specified["datasets"][data["name"]])]

    return flat(specified, specified.get("data"))


def of(chart, mark, **properties):
    """The layers of a mark with these properties."""
    return [
        layer
        for layer in layers(chart)
        if layer.mark["type"] == mark and all(layer.mark.get(name) == value for name, value in properties.items())
    ]


def scale(chart, channel):
    return next(
        layer.encoding[channel]["scale"] for layer in layers(chart) if "scale" in layer.encoding.get(channel, {})
    )


@pytest.fixture(scope="module")
def evaluation():
    return made.evaluated()


def panel(evaluation, control=0, regime="prune"):
    lines = sweeps.paths(sweeps.regimes(evaluation.tried)[regime])
    (skill,) = evaluation.skills
    return charts.tradeoff(evaluation, lines, skill, evaluation.controls[control], boost=regime == "boost")


def points(chart):
    """The rows of the marks of edits."""
    (marks,) = (layer for layer in of(chart, "point") if "shape" in layer.encoding)
    return marks.rows


def test_drops_are_drawn_in_points(evaluation):
    chart = charts.drops(evaluation)
    estimates = next(layer for layer in of(chart, "point") if "tip" in layer.rows[0]).rows
    for row in estimates:
        task = next(task for task in evaluation.tasks if task.name == row["task"])
        assert row["x"] == pytest.approx(100 * task.effects[row["edit"]].change.value)
    assert any(layer.encoding["x"]["axis"]["title"] == "drop in accuracy, points" for layer in layers(chart))


def test_a_task_is_unchanged_where_no_accuracy_on_the_lines_is_further_than_five_points_from_the_unedited(evaluation):
    lines = sweeps.swept(evaluation.tried, "keep")
    edits = {edit.edit for line in lines for edit in line.edits}
    for task in evaluation.tasks:
        if task.scored:
            assert not charts.unchanged(task, lines)
            continue
        moved = [
            abs(task.effects[edit].result.value - task.baseline.result.value) for edit in edits & set(task.effects)
        ]
        assert charts.unchanged(task, lines) == (max(moved) <= 0.05)


def overlaps(*samples):
    every = Isolation.model_validate(made.isolation()).agreements
    return [one for one in every if not samples or one.samples in samples]


def test_further_right_is_a_higher_accuracy_on_the_skill_and_further_up_a_higher_one_on_the_control(evaluation):
    chart = panel(evaluation)
    rows = [row for row in points(chart) if row["series"] == "MathNeuro"]
    expected = zip(made.LEFT["mathneuro", made.SKILL], made.LEFT["mathneuro", made.CONTROLS[0]], strict=True)
    assert [(row["x"], row["y"]) for row in rows] == [(x / 100, y / 100) for x, y in expected]
    for channel in "xy":
        low, high = scale(chart, channel)["domain"]
        assert low < high


def test_both_accuracies_have_the_same_measure_when_one_of_them_moves_far():
    summary = made.evaluation(boost=False)
    for cell in summary["tasks"][1]["cells"]:
        cell |= {"result": {"value": 0.99, "low": 0.97, "high": 1.0}, "random": None}
    chart = panel(made.evaluated(summary))
    assert scale(chart, "x")["domain"] == scale(chart, "y")["domain"] == [-0.03, 1.03]


def test_less_perplexity_lies_higher_on_a_logarithmic_axis_of_few_round_ticks(evaluation):
    chart = panel(evaluation, control=2)
    upright = scale(chart, "y")
    low, high = upright["domain"]
    assert (upright["type"], low > high) == ("log", True)
    ticks = next(
        layer.encoding["y"]["axis"]["values"] for layer in layers(chart) if "axis" in layer.encoding.get("y", {})
    )
    assert 2 <= len(ticks) <= 7
    assert all(high <= tick <= low for tick in ticks)
    assert all(math.isclose(float(f"{tick:.2g}"), tick) for tick in ticks)


def test_every_edit_has_its_mark_its_intervals_and_its_random_controls(evaluation):
    chart = panel(evaluation)
    edits = {edit.edit: edit for edit in evaluation.tried if not edit.boosts}
    assert {row["edit"] for row in points(chart)} == set(edits)
    skill, control = evaluation.skills[0], evaluation.controls[0]
    bars = [layer.rows for layer in of(chart, "rule") if "color" in layer.encoding]
    assert len(bars) == 2  # one layer of each direction
    for row in bars[0]:
        x, y = skill.effects[row["edit"]].result, control.effects[row["edit"]].result
        assert (row["x_low"], row["x_high"]) == pytest.approx((x.low, x.high), abs=1e-5)
        assert (row["y_low"], row["y_high"]) == pytest.approx((y.low, y.high), abs=1e-5)
    (tie,) = of(chart, "rule", strokeDash=[1, 3])
    assert len(tie.rows) == len(edits)
    expected = {(effect.random.mean, effect.result.value) for edit in edits for effect in [skill.effects[edit]]}
    assert {(row["random_x"], row["x"]) for row in tie.rows} == expected
    assert [layer.rows for layer in of(chart, "rule", strokeDash=[6, 4])] == [[{"x": 0.88}], [{"y": 1.0}]]


@pytest.mark.parametrize(("regime", "corner"), [("prune", 0), ("boost", "width")])
def test_the_ideal_corner_is_left_for_pruning_and_right_for_boosting(evaluation, regime, corner):
    (text,) = (layer for layer in of(panel(evaluation, regime=regime), "text") if layer.rows == [{"text": "ideal"}])
    assert (text.encoding["x"], text.encoding["y"]) == ({"value": corner}, {"value": 0})


def test_pointing_tells_both_tasks_and_the_random_spread_and_a_click_opens_the_answers(evaluation):
    rows = points(panel(evaluation))
    (row,) = [row for row in rows if row["tip"].replace(SPACE, " ").startswith("MathNeuro, share 5 %, ×0")]
    assert row["tip"].replace(SPACE, " ").splitlines()[1:] == [
        "primer:arithmetic: 20.0 % [15.0, 26.1], drop 68.0 [64.0, 72.0]; random 80.0 % (78.0 % to 82.0 %)",
        "primer:atlas: 90.0 % [85.1, 93.4], drop 10.0 [6.0, 14.0]; random 95.0 % (93.0 % to 97.0 %)",
    ]
    assert (row["model"], row["task"], row["edit"]) == (evaluation.model, made.SKILL, made.key("mathneuro", 0.05))


@pytest.mark.parametrize(("regime", "less"), [("prune", False), ("prune", True), ("boost", False)])
def test_labelled_are_edits_that_no_other_beats_and_no_two_labels_meet(evaluation, regime, less):
    chart = panel(evaluation, control=2 if less else 0, regime=regime)
    labels = [row for layer in of(chart, "text") for row in layer.rows if "label" in row and "color" in layer.encoding]
    marks = points(chart)
    assert labels
    right, up = (1 if regime == "boost" else -1), (-1 if less else 1)
    for label in labels:
        merits = right * label["x"], up * label["y"]
        for mark in marks:
            other = right * mark["x"], up * mark["y"]
            assert other == merits or other[0] < merits[0] or other[1] < merits[1]
    (wide, high) = (scale(chart, channel)["domain"] for channel in "xy")
    for i, one in enumerate(labels):
        for other in labels[:i]:
            across = abs(one["x"] - other["x"]) / (wide[1] - wide[0])
            heights = (math.log(v) if less else v for v in (one["y"], other["y"], *high))
            here, there, low, top = heights
            assert across >= 0.08 or abs(here - there) / abs(top - low) >= 0.05


def test_equal_marks_do_not_beat_each_other():
    marks = pd.DataFrame({"x": [0.5, 0.5, 0.6], "y": [0.5, 0.5, 0.4]})
    assert list(charts.unbeaten(marks, boost=False, less_is_better=False).index) == [0, 1]
    assert list(charts.unbeaten(marks, boost=True, less_is_better=True).index) == [2]


def with_repeats(number=2):
    """The made evaluation with repeats of MathNeuro at 5 %, ten points apart."""
    summary = made.evaluation(boost=False)
    first = next(edit for edit in summary["edits"] if edit["method"] == "mathneuro" and edit["keep"] == 0.05)
    for repeat in range(1, number):
        summary["edits"].append(first | {"edit": f"again{repeat}", "repeat": repeat})
        for task in summary["tasks"]:
            cell = next(cell for cell in task["cells"] if cell["edit"] == first["edit"])
            result = cell["result"] | {"value": cell["result"]["value"] - 0.1 * repeat}
            task["cells"].append(cell | {"edit": f"again{repeat}", "result": result})
    return made.evaluated(summary)


def test_repeats_are_drawn_as_thin_points_with_their_mean():
    evaluation = with_repeats()
    chart = panel(evaluation)
    (dots,) = of(chart, "circle")
    assert [row["x"] for row in dots.rows] == pytest.approx([0.2, 0.1])
    (mean,) = (row for row in points(chart) if row["edit"] == made.key("mathneuro", 0.05))
    assert mean["x"] == pytest.approx(0.15)
    assert f"repeat{SPACE}1" in mean["tip"]
    sweep = charts.sweep(evaluation, sweeps.swept(evaluation.tried, "keep"), evaluation.skills[0], "keep")
    (dots,) = of(sweep, "circle")
    assert [row["y"] for row in dots.rows] == pytest.approx([0.2, 0.1])
    (mean,) = (row for row in points(sweep) if row["edit"] == made.key("mathneuro", 0.05))
    assert (mean["y"], mean["low"]) == (pytest.approx(0.15), None)


def test_a_sweep_has_a_line_per_method_with_intervals_and_random_controls(evaluation):
    lines = sweeps.swept(evaluation.tried, "keep")
    (skill,) = evaluation.skills
    chart = charts.sweep(evaluation, lines, skill, "keep")
    rows = points(chart)
    assert {row["edit"] for row in rows} == {edit.edit for edit in evaluation.tried if not edit.boosts}
    for row in rows:
        effect = skill.effects[row["edit"]]
        keep = evaluation.by_edit[row["edit"]].keep
        assert row["x"] == pytest.approx(keep, rel=0.15)  # beside it, so that marks at one place stay apart
        assert (row["y"], row["low"], row["high"]) == pytest.approx(
            (effect.result.value, effect.result.low, effect.result.high), abs=1e-5
        )
    (random,) = of(chart, "point", shape="cross")
    assert len(random.rows) == len(rows)
    assert scale(chart, "x")["type"] == "log"


def test_one_method_has_one_colour_in_every_chart_and_no_two_lines_have_the_same(evaluation):
    for regime in ("prune", "boost"):
        lines = sweeps.paths(sweeps.regimes(evaluation.tried)[regime])
        numbers = charts.line_numbers(evaluation, lines)
        assert numbers == [evaluation.methods.index(line.method) for line in lines]
    several = made.evaluation()
    for edit in several["edits"]:
        if edit["factor"] > 1:
            edit["factor"] = 0.5
            edit["keep"] = 0.01 if edit["edit"].endswith("1.1") else 0.05
    changed = made.evaluated(several)
    numbers = charts.line_numbers(changed, sweeps.paths(changed.tried))
    assert len(set(numbers)) == len(numbers)


def test_consistency_has_a_line_per_keep_and_one_of_chance():
    chart = selection_charts.consistency(overlaps())
    assert len(points(chart)) == len(overlaps())
    for row in points(chart):
        assert row["tip"].startswith(row["series"])
    (chance,) = of(chart, "line", strokeDash=[3, 4])
    expected = {one.label: one.chance for one in overlaps()}
    assert {row["series"] for row in chance.rows} == set(expected)
    for row in chance.rows:
        assert row["y"] == pytest.approx(expected[row["series"]], rel=1e-5)


@pytest.mark.parametrize("samples", [(), (100,)])
def test_chance_crosses_the_whole_chart_also_where_there_is_only_one_size(samples):
    chart = selection_charts.consistency(overlaps(*samples))
    (chance,) = of(chart, "line", strokeDash=[3, 4])
    for keep in (0.001, 0.05, 0.15):
        heights = {row["x"]: row["y"] for row in chance.rows if math.isclose(row["y"], keep / (2 - keep), rel_tol=1e-5)}
        assert [min(heights), max(heights)] == scale(chart, "x")["domain"]


def test_two_repeats_have_no_bar_and_say_so():
    isolation = made.isolation()
    for entry in isolation["overlaps"]:
        entry |= {"repeats": 2, "iou": entry["iou"][2:3]}
    chart = selection_charts.consistency(Isolation.model_validate(isolation).agreements)
    assert all(row["low"] is None and "(one pair, no interval)" in row["tip"] for row in points(chart))


@pytest.mark.parametrize(("chance", "expected"), [(0.25, [[{"y": 0.25}]]), (0.0, []), (None, [])])
@pytest.mark.parametrize("kind", ["choose", "contrast"])
def test_a_control_on_which_guessing_is_sometimes_right_has_a_line_of_chance(kind, chance, expected):
    summary = made.evaluation(boost=False)
    summary["tasks"][1] |= {"kind": kind, "chance": chance}
    evaluation = made.evaluated(summary)
    lines = sweeps.swept(evaluation.tried, "keep")
    control = evaluation.controls[0]
    for chart in (panel(evaluation), charts.sweep(evaluation, lines, control, "keep")):
        assert [layer.rows for layer in of(chart, "rule", strokeDash=[1.5, 4])] == expected
    legend = [series.name for series in charts.legend(evaluation, lines, [*evaluation.skills, control])]
    assert ("chance" in legend) == bool(chance)
    assert legend[:3] == [line.label for line in lines]


def share_of(matrices):
    return sum(m["selected"] for m in matrices) / sum(m["total"] for m in matrices)


def cells_of(selection):
    rows = layers(selection_charts.distribution(selection))[0].rows
    cells = {(row["y"], row["x"]): row for row in rows}
    assert len(cells) == len(rows)
    return cells


def test_a_distribution_has_a_cell_for_every_kind_and_block_with_sums_and_the_head_apart():
    told = made.isolation()
    matrices = told["selections"][0]["matrices"]
    cells = cells_of(Isolation.model_validate(told).selections[0])
    assert len(cells) == (len(made.SHAPES) + 1) * (made.BLOCKS + 1) + 1
    for matrix in matrices[:-1]:
        cell = cells[matrix["matrix"], str(matrix["block"])]
        assert cell["value"] == pytest.approx(matrix["selected"] / matrix["total"], rel=1e-5)
        assert f"{matrix['selected']:,} of {matrix['total']:,} weights" in cell["tip"]
    assert [key for key in cells if key[0] == selection_charts.HEAD] == [(selection_charts.HEAD, "all")]
    sums = {
        ("all of the block", "all"): matrices,
        (selection_charts.HEAD, "all"): matrices[-1:],
        ("all of the block", "3"): [m for m in matrices if m["block"] == 3],
        ("mlp.up", "all"): [m for m in matrices if m["matrix"] == "mlp.up"],
    }
    for place, parts in sums.items():
        assert cells[place]["value"] == pytest.approx(share_of(parts), rel=1e-5)


def test_of_many_blocks_only_the_sums_have_a_number_in_them():
    isolation = made.isolation()
    matrices = [m for m in isolation["selections"][0]["matrices"] if m["block"] == 0]
    many = [m | {"block": block} for block in range(40) for m in matrices]
    isolation["selections"] = [isolation["selections"][0] | {"matrices": many}]
    cells = cells_of(Isolation.model_validate(isolation).selections[0])
    assert all((row["text"] != "") == (row["x"] == "all") for row in cells.values())


def test_a_distribution_sums_experts_up_and_keeps_the_head_apart():
    plain, split = (Isolation.model_validate(made.isolation(experts=e)).selections for e in (False, True))
    one, other = (selection_charts.counts(selections[0]) for selections in (plain, split))
    assert list(other.index) == [(kind.replace("mlp.", "mlp.experts."), block) for kind, block in one.index]
    assert other.loc[(selection_charts.HEAD, "all"), "share"] == one.loc[(selection_charts.HEAD, "all"), "share"]
    assert other.loc[("mlp.experts.up", "3"), "total"] == 4 * one.loc[("mlp.up", "3"), "total"]
    assert other.loc[("mlp.experts.up", "3"), "matrices"] == 4


def test_a_matrix_that_was_not_scored_in_a_block_has_an_empty_cell():
    isolation = made.isolation()
    selection = isolation["selections"][0]
    selection["matrices"] = [m for m in selection["matrices"] if (m["block"], m["matrix"]) != (2, "mlp.up")]
    cell = cells_of(Isolation.model_validate(isolation).selections[0])["mlp.up", "2"]
    assert (cell["value"], cell["tip"]) == (None, "mlp.up, block 2\nnot scored")


def test_of_many_distributions_first_repeats_are_drawn_first():
    isolation = made.isolation()
    isolation["selections"] = [
        entry | {"repeat": repeat} for repeat in (0, 1, 2) for entry in isolation["selections"][:4]
    ]
    whole = Isolation.model_validate(isolation)
    drawn = selection_charts.first(whole.selections, 6)
    assert [whole.selections[place].repeat for place in drawn] == [0, 0, 0, 0, 1, 1]
    assert selection_charts.first(whole.selections, 99) == list(range(12))
    assert len(set(selection_charts.slugs(whole))) == len(set(whole.names)) == 12


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0"), (0.0001, "0.01"), (0.0318, "3.2"), (0.152, "15"), (1.0, "100"), (1e-9, "<.0001")]
)
def test_shares_are_written_for_small_cells(share, text):
    assert selection_charts.share(share) == text


def test_every_colour_is_one_of_the_theme(evaluation):
    lines = sweeps.swept(evaluation.tried, "keep")
    every = [panel(evaluation), charts.sweep(evaluation, lines, evaluation.skills[0], "keep")]
    every += [selection_charts.consistency(overlaps())]
    for chart in every:
        for layer in layers(chart):
            colour = layer.mark.get("color")
            assert colour is None or colour.startswith("var(--")
            domain = layer.encoding.get("color", {}).get("scale", {}).get("range", [])
            assert set(domain) <= set(theme.TONES)


def test_names_of_tasks_and_models_are_data_and_no_part_of_an_expression():
    hostile = made.evaluation(boost=False)
    for task in hostile["tasks"]:
        task["name"] = "a.b:c'\"]><script>" + task["name"]
    hostile["selectivity"] = []
    chart = panel(made.evaluated(hostile))
    for layer in layers(chart):
        for encoding in layer.encoding.values():
            assert "script" not in json.dumps({key: encoding[key] for key in encoding if key not in ("axis",)})
