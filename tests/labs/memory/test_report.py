"""The memory lab's page and its sentences say what the numbers say, and only that."""

from __future__ import annotations

import html
import io
import json
import re
from copy import deepcopy

import chromium
import pytest
from rich.console import Console

from lesion.labs.memory import findings as memory_prose
from lesion.labs.memory import lab, sizes, slopes
from lesion.labs.memory import report as memory
from lesion.labs.memory import size_findings as memory_sizes
from lesion.labs.memory import tables as memory_tables
from lesion.labs.memory.recipe import Recipe
from lesion.report import line_charts
from lesion.report.files import plain_json


def run(**options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "CLASSES", (2, 3, 4))
        patch.setattr(sizes, "NOISES", (0.3, 0.5))
        patch.setattr(sizes, "SEEDS", 2)
        patch.setattr(slopes, "VOCABULARIES", (8, 16, 32))
        patch.setattr(slopes, "SEEDS", 3)
        patch.setattr(slopes, "BATCH", 400)
        patch.setattr(slopes, "RESAMPLES", 50)
        return lab.run_memory(Recipe(**{"classes": 4, "width": 24, "noise": 0.6, "steps": 600} | options))


@pytest.fixture(scope="module")
def summary():
    return run()


def told(summary):
    return "\n".join(
        sentence for one in memory_prose.findings(summary) for sentence in (*one.headline, *one.sentences)
    ).replace("\N{NO-BREAK SPACE}", " ")


def words(page):
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_the_findings_stand_in_the_page_with_the_numbers_of_the_summary(summary):
    page = words(memory.page(summary))
    for sentence in told(summary).split("\n"):
        assert " ".join(sentence.split()) in page
    full = summary["full"]
    assert f"gives f* a probability of {full['p_correct']:.3f} and the common class {full['p_noise']:.3f}" in page
    (dropped,) = [r for r in summary["truncated"] if (r["side"], r["rank"]) == ("bottom", 3)]
    assert f"clean loss from {full['clean_loss']:.3f} to {dropped['clean_loss']:.3f} nats" in page


def test_a_summary_read_back_from_its_file_makes_the_same_page(tmp_path, summary):
    path = memory.write(tmp_path / "new", summary)
    assert path.read_text("utf-8") == memory.page(summary)
    again = json.loads((tmp_path / "new" / "summary.json").read_text("utf-8"))
    assert memory.page(again) == memory.page(summary)


def test_truncation_that_helps_nothing_is_not_said_to_help(summary):
    worse = deepcopy(summary)
    for row in worse["truncated"]:
        if row["rank"] != 4:
            row["clean_loss"] += 5
    assert "No part of the spectrum has a smaller clean loss than the whole" in told(worse)
    assert "accuracy goes from" not in told(worse)
    assert "accuracy goes from" in told(summary)


def test_the_side_that_is_told_is_the_side_that_was_measured(summary):
    assert "m = 2: bottom at α = 0.3, 0.5, 0.6. It changed sides during training at α = 0.6." in told(summary)
    assert "m = 4: top at α = 0.3, 0.5, 0.6. It changed sides during training at α = 0.3." in told(summary)
    turned = deepcopy(summary)
    for row in turned["sizes"]:
        row["places"][-1]["side"] = "bottom"
        row["flips"] = []
    assert "m = 4: bottom at α = 0.3, 0.5, 0.6. At α = 0.3, 0.5 and 0.6 it is not yet on the side of its limit" in told(
        turned
    )
    assert "the noise lies at the bottom of the spectrum at every size and α" in told(turned)


def test_the_settings_that_a_cut_cleans_are_counted(summary):
    plain = [row for row in summary["sizes"] if row["codes"] == "orthonormal"]
    cleaned = [
        row for row in plain if row["cuts"]["without_largest"]["clean_loss"] <= 0.1 * row["cuts"]["full"]["clean_loss"]
    ]
    assert 0 < len(cleaned) < len(plain)
    assert (
        f"Dropping only the largest singular value takes away at least 90 % of the clean loss in {len(cleaned)} of"
        f" {len(plain)} settings" in told(summary)
    )


def test_signals_on_batches_are_told_beside_what_spreads_around_them(summary):
    plain = deepcopy(summary)
    for point in plain["first_step"]["points"]:
        for one in point["draws"]:
            one |= {"feed_forward": 0.5, "feed_forward_width": 0.25, "value": 0.01, "value_spread": 0.1}
    assert "On batches at V = 32 the feed-forward's signal is 2 times the width" in told(plain)
    assert "recall's mean is 0.1 times the spread over its tokens" in told(plain)


def test_draws_that_disagree_are_named(summary):
    mixed = deepcopy(summary)
    for row in mixed["sizes"]:
        agree = (row["codes"], row["classes"]) != ("gaussian", 3)
        row["places"][-1]["side"] = "top" if agree else None
    assert "in 3 the draws disagree among themselves" in told(mixed)
    assert "They disagree: m = 3 with α = 0.3, m = 3 with α = 0.5, m = 3 with α = 0.6." in told(mixed)


def test_without_noise_nothing_is_said_of_a_noise_that_is_not_there():
    quiet = run(noise=0.0, steps=50)
    text = words(memory.page(quiet))
    assert "nan" not in text.lower()
    assert "Without noise nothing has to be forgotten" in text
    assert "There was no noise to learn" in text
    said = memory_prose.findings(quiet)[-1]
    assert said.headline[0].startswith("Without noise nothing pushes from q or from any token to τ")
    assert not any("learns the noise" in sentence or "feed-forward" in sentence for sentence in said.sentences)
    again = json.loads(plain_json(quiet))
    assert memory.page(again) == memory.page(quiet)


def test_numbers_in_sentences_have_no_powers_of_ten_and_a_minus_of_their_own(summary):
    made = deepcopy(summary)
    for point in made["first_step"]["points"]:
        point |= {"value": 1e-6, "value_noise": 0.0393}
        for one in point["draws"]:
            one |= {"value": -0.01, "value_spread": 0.1}
    assert "39,300 times its signal" in told(made)
    assert "recall's mean is −0.1 times" in told(made)
    for row in made["first_step"]["slopes"]:
        row |= {"slope": float("nan")} if "slope" in row else {}
    assert "grows with no measurable power of the vocabulary" in told(made)


def test_a_spectrum_of_one_value_is_compared_with_no_other():
    single = run(classes=3, width=1, codes="gaussian", steps=50)
    assert "W has a single singular value, with 1.000 of the common class's code" in told(single)
    assert "largest other" not in told(single)


def test_the_side_is_said_to_depend_only_on_what_was_varied(summary):
    narrow = run(classes=2, width=3, noise=0.7, steps=5)
    assert "after 5 steps depends on α; m = 2 alone has room here." in told(narrow)
    assert "depends on the number of classes m and on α." in told(summary)
    turned = deepcopy(summary)
    for row in turned["sizes"]:
        row["places"][-1]["side"] = "top" if row["classes"] > 2 else "bottom"
    assert "depends on the number of classes m." in told(turned)


def test_sizes_that_the_sweep_leaves_out_are_told():
    assert sizes.left_out(Recipe(classes=64, width=80)) == [
        "The sweep over sizes goes up to 32 classes: the memory of 64 is not part of it."
    ]
    assert "codes of 10, 20, 32 classes" in sizes.left_out(Recipe(classes=10, width=9, codes="gaussian"))[0]
    assert sizes.left_out(Recipe()) == []


def test_the_terminals_names_of_codes_are_whole_with_many_noises():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "NOISES", (0.1, 0.3, 0.5, 0.6, 0.7))
        patch.setattr(sizes, "CLASSES", (2,))
        found = lab.run_memory(Recipe(classes=2, width=8, noise=0.25, steps=5))
    console = Console(width=80, file=io.StringIO())
    console.print(memory_tables.text(found))
    said = console.file.getvalue()
    assert "orthonormal, m" in said
    assert "…" not in said


def test_a_width_with_no_room_for_any_size_has_a_page_without_sizes():
    narrow = run(classes=3, width=1, codes="gaussian", steps=50)
    text = memory.page(narrow)
    assert narrow["sizes"] == []
    assert 'id="sizes"' not in text
    assert "<b>Figure 3.</b>" in text
    assert "W has a single component" in text


@pytest.mark.parametrize("inputs", [4, 7])
@pytest.mark.parametrize("noise", [0.2, 0.5])
def test_every_recipe_makes_a_page_and_a_table(inputs, noise):
    found = run(inputs=inputs, noise=noise, codes="gaussian", steps=30)
    assert "An associative memory of 4 classes" in memory.page(found)
    memory_tables.text(found)


def test_the_rows_of_the_terminal_are_those_next_to_both_ends():
    rows = [{"rank": k, "side": side, "control": None} for k in range(21) for side in ("top", "bottom")]
    rows.append({"rank": 0, "side": None, "control": "deletion"})
    found = [(row["rank"], row["side"]) for row in memory_tables.shown(rows)]
    assert {rank for rank, _ in found} == {0, 1, 2, 3, 17, 18, 19, 20}
    assert found.count((20, "top")) + found.count((20, "bottom")) == 1
    assert (0, None) in found


def test_a_point_lies_where_its_numbers_say():
    curve = line_charts.Curve("a", 0, (line_charts.Point(10.0, 2.0), line_charts.Point(1000.0, 4.0)), "marked")
    size = (400, 300)
    x = memory.scales.ratios([1.0, 10_000.0], 0.0, 400.0)
    y = line_charts.upwards([4.0], size)
    drawn = line_charts.chart("A chart", [curve], x, y, ("step", "value"), size)
    places = [
        tuple(map(float, found)) for found in re.findall(r'class="point"[^>]* cx="([\d.]+)" cy="([\d.]+)"', drawn)
    ]
    (low, high) = places
    # Halfway in the logarithm between 10 and 1,000 is 100, the middle of 1 … 10,000.
    assert (low[0] + high[0]) / 2 == pytest.approx(200, abs=0.2)
    floor = 300 - line_charts.BOTTOM
    assert (floor - high[1]) / (floor - low[1]) == pytest.approx(2, abs=0.01)
    assert "step 1000: 4" in drawn


@pytest.mark.parametrize("high", [1e-6, 0.7, 1.0, 3.0, 99.0, 12345.0])
def test_an_upward_axis_has_a_few_round_ticks_and_room_for_the_highest_value(high):
    axis = line_charts.upwards([0.0, high], (400, 300))
    assert axis.high > high
    assert 2 <= len(axis.ticks) <= 8
    assert all(0 <= value <= axis.high for value, _ in axis.ticks)


def test_the_sweep_is_one_line_per_size_and_kind_of_codes(summary):
    found = [(line.codes, line.classes, line.inputs) for line in memory_sizes.lines(summary["sizes"])]
    assert len(found) == len(set(found)) == 8
    for line in memory_sizes.lines(summary["sizes"]):
        assert [row["noise"] for row in line.rows] == [0.3, 0.5, 0.6]
    assert memory_sizes.places(None) == ""


@pytest.mark.skipif(chromium.found() is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_in_a_browser_the_page_makes_no_request_no_complaint_and_never_scrolls_sideways(tmp_path, summary, width, dark):
    path = memory.write(tmp_path, summary)
    with chromium.Chromium(width=width, height=800, dark=dark) as tab:
        tab.open(path.as_uri())
        assert [request for request in tab.requests if not request.startswith(("file:", "data:"))] == []
        assert tab.complaints == []
        assert tab.ask("document.documentElement.scrollWidth") == width
        assert tab.ask("document.querySelectorAll('svg.chart').length") == 2 + 3 + 2 * 3 + 3
