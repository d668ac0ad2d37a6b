"""The memory laboratory's page, charts and sentences say what the numbers say, and only that."""

from __future__ import annotations

import io
import re
from html import unescape

import chromium
import numpy as np
import pytest
from rich.console import Console

from lesion.core.values import read_summary
from lesion.report import axes, drawing
from lesion.report.publishing import html
from lesion.report.values import Estimate
from lesion_labs.memory import charts, run, size_findings, sizes, slopes, tables
from lesion_labs.memory import findings as prose
from lesion_labs.memory.report import MemoryResult
from lesion_labs.memory.result import MemorySummary
from memories import memory
from runs import page_of


def measured(**options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "CLASSES", (2, 3, 4))
        patch.setattr(sizes, "NOISES", (0.3, 0.5))
        patch.setattr(sizes, "SEEDS", 2)
        patch.setattr(slopes, "VOCABULARIES", (8, 16, 32))
        patch.setattr(slopes, "SEEDS", 3)
        patch.setattr(slopes, "BATCH", 400)
        patch.setattr(slopes, "RESAMPLES", 50)
        return run.measured(memory(**{"classes": 4, "width": 24, "noise": 0.6, "steps": 600} | options))


@pytest.fixture(scope="module")
def summary():
    return measured()


@pytest.fixture(scope="module")
def written(summary, tmp_path_factory):
    """The report of the summary, written into a folder once."""
    return MemoryResult(tmp_path_factory.mktemp("memory"), summary).report()


def changed(value, /, **changes):
    """A value with other values of some keys; a function is given the old one."""
    return value.model_copy(
        update={key: new(getattr(value, key)) if callable(new) else new for key, new in changes.items()}
    )


def each(change):
    """What changes every value of a list."""
    return lambda values: tuple(change(value) for value in values)


def with_last_places(summary, change, **more):
    """A summary in which `change` gives the last side of every size."""

    def of_size(size):
        last = changed(size.last, side=change(size))
        return changed(size, places=(*size.places[:-1], last), **more)

    return changed(summary, sizes=each(of_size))


def sentences(summary):
    return "\n".join(
        sentence for finding in prose.findings(summary) for sentence in (*finding.headline, *finding.sentences)
    ).replace("\N{NO-BREAK SPACE}", " ")


def words(page):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def terminal(summary):
    console = Console(width=80, file=io.StringIO())
    console.print(tables.text(summary))
    return console.file.getvalue()


def test_the_findings_stand_in_the_page_with_the_numbers_of_the_summary(summary, written):
    page = words(written.read_text("utf-8"))
    for sentence in sentences(summary).split("\n"):
        assert " ".join(sentence.split()) in page
    full = summary.full
    assert f"gives f* {full.p_correct:.3f} and the common class {full.p_noise:.3f}" in page
    (dropped,) = [row for row in summary.truncated if (row.side, row.rank) == ("bottom", 3)]
    assert f"clean loss from {full.clean_loss:.3f} to {dropped.clean_loss.mean:.3f} nats" in page
    assert summary.best == dropped


def test_a_summary_read_back_from_its_file_is_the_same(tmp_path, summary):
    quiet = measured(noise=0.0, steps=20)
    for name, value in (("noisy", summary), ("quiet", quiet)):
        (tmp_path / name).mkdir()
        value.write(tmp_path / name)
        assert read_summary(MemorySummary, tmp_path / name, "") == value


def test_the_report_has_the_page_and_its_figures(summary, written):
    assert written.read_text("utf-8") == html(page_of(MemoryResult, summary))
    names = {"training", "truncation", "sizes-orthonormal", "sizes-gaussian", "first-step"}
    assert {file.name for file in (written.parent / "figures").iterdir()} == {
        f"{name}.{kind}" for name in names for kind in ("png", "svg")
    }


def test_truncation_that_helps_nothing_is_not_said_to_help(summary):
    def worse(row):
        loss = row.clean_loss
        return row if row.rank == 4 else changed(row, clean_loss=changed(loss, mean=loss.mean + 5))

    text = sentences(changed(summary, truncated=each(worse)))
    assert "No part of the spectrum has a smaller clean loss than the whole" in text
    assert "accuracy goes from" not in text
    assert "accuracy goes from" in sentences(summary)


def test_the_side_that_is_named_is_the_side_that_was_measured(summary):
    assert "m = 2: bottom at α = 0.3, 0.5, 0.6. It changed sides at α = 0.6." in sentences(summary)
    assert "m = 4: top at α = 0.3, 0.5, 0.6. It changed sides at α = 0.3." in sentences(summary)
    text = sentences(with_last_places(summary, lambda size: "bottom", flips=()))
    assert "m = 4: bottom at α = 0.3, 0.5, 0.6. Not yet at its limit: α = 0.3, 0.5 and 0.6." in text
    assert "the noise lies at the bottom of the spectrum at every size and α" in text


def test_the_settings_that_a_cut_cleans_are_counted(summary):
    plain = [size for size in summary.sizes if size.codes == "orthonormal"]
    cleaned = [size for size in plain if size.cuts.without_largest.clean_loss <= 0.1 * size.cuts.full.clean_loss]
    assert 0 < len(cleaned) < len(plain)
    assert (
        f"At least 90 % of the clean loss is removed, in {len(plain)} settings, by dropping the largest singular value"
        f" in {len(cleaned)} (" in sentences(summary)
    )


def with_points(summary, draws, **levels):
    """A summary whose exact levels, and those of all batches, are others."""
    points = each(lambda point: changed(point, draws=each(lambda draw: changed(draw, **draws)), **levels))
    return changed(summary, first_step=changed(summary.first_step, points=points))


def test_signals_on_batches_are_reported_beside_what_spreads_around_them(summary):
    draws = {"feed_forward": 0.5, "feed_forward_width": 0.25, "value": 0.01, "value_spread": 0.1}
    text = sentences(with_points(summary, draws))
    assert "On batches at V = 32 the feed-forward's signal is 2 times its standard deviation over other tokens" in text
    assert "recall's 0.1 times." in text


def test_draws_that_disagree_are_named(summary):
    mixed = with_last_places(summary, lambda size: None if (size.codes, size.classes) == ("gaussian", 3) else "top")
    assert "on the side of orthonormal codes in" in sentences(mixed)
    assert "Draws disagree: m = 3 at α = 0.3, 0.5, 0.6." in sentences(mixed)


def test_without_noise_nothing_is_said_of_a_noise_that_is_not_there():
    quiet = measured(noise=0.0, steps=50)
    text = words(html(page_of(MemoryResult, quiet)))
    assert not re.search(r"\bnan\b", sentences(quiet).lower())
    assert "Without noise nothing has to be forgotten" in text
    assert "There was no noise to learn" in text
    finding = prose.findings(quiet)[-1]
    assert finding.headline[0].startswith("Without noise the feed-forward has no signal from q or any other token to τ")
    assert not any("learns the noise" in sentence or "feed-forward" in sentence for sentence in finding.sentences)


def test_numbers_in_sentences_have_no_powers_of_ten_and_a_minus_of_their_own(summary):
    made = with_points(summary, {"value": -0.01, "value_spread": 0.1}, value=1e-6, value_noise=0.0393)
    assert "39,300 times recall's at V = 32" in sentences(made)
    assert "recall's −0.1 times" in sentences(made)
    unknown = each(lambda power: changed(power, batches=power.batches and Estimate(value=None)))
    made = changed(summary, first_step=changed(summary.first_step, powers=unknown))
    assert "feed-forward's signal q → τ not measurable (exactly" in sentences(made)


def test_a_spectrum_of_one_value_is_compared_with_no_other():
    single = measured(classes=3, width=1, codes="gaussian", steps=50)
    assert "W has a single singular value, with 1.000 of the common class's code" in sentences(single)
    assert "largest other" not in sentences(single)


def test_the_side_is_said_to_depend_only_on_what_was_varied(summary):
    narrow = measured(classes=2, width=3, noise=0.7, steps=5)
    assert "after 5 steps depends on α; m = 2 alone has room here." in sentences(narrow)
    assert "depends on the number of classes m and on α." in sentences(summary)
    turned = with_last_places(summary, lambda size: "top" if size.classes > 2 else "bottom")
    assert "depends on the number of classes m." in sentences(turned)


def test_sizes_that_the_sweep_leaves_out_are_named():
    assert sizes.left_out(memory(classes=64, width=80)) == [
        "The sweep over sizes goes up to 32 classes: the memory of 64 is not part of it."
    ]
    assert "codes of 10, 20, 32 classes" in sizes.left_out(memory(classes=10, width=9, codes="gaussian"))[0]
    assert sizes.left_out(memory()) == []


def test_the_terminals_names_of_codes_are_whole_with_many_noises():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "NOISES", (0.1, 0.3, 0.5, 0.6, 0.7))
        patch.setattr(sizes, "CLASSES", (2,))
        many = run.measured(memory(classes=2, width=8, noise=0.25, steps=5))
    text = terminal(many)
    assert re.search(r"^\s+orthonormal +2 +2 ", text, re.MULTILINE)
    assert "0.25" in text
    assert "…" not in text
    assert r"\n" not in text


def test_a_width_with_no_room_for_any_size_has_a_page_without_sizes():
    narrow = measured(classes=3, width=1, codes="gaussian", steps=50)
    text = html(page_of(MemoryResult, narrow))
    assert narrow.sizes == ()
    assert 'id="sizes"' not in text
    assert "<b>Figure 3.</b>" in text
    assert "W has a single component" in text
    assert "No size of the sweep fits into this width." in terminal(narrow)


@pytest.mark.parametrize(("inputs", "noise"), [(4, 0.5), (7, 0.2)])
def test_every_study_makes_a_page_and_a_table(inputs, noise):
    summary = measured(inputs=inputs, noise=noise, codes="gaussian", steps=30)
    assert "An associative memory of 4 classes" in html(page_of(MemoryResult, summary))
    assert "Truncations of W" in terminal(summary)


def test_every_truncation_has_one_row_and_the_terminal_those_next_to_both_ends():
    summary = measured(classes=20, width=24, steps=5)
    table = tables.truncations(summary)
    ranks = list(table.frame["rank"])
    assert len(ranks) == 20 + 19 + 19 + 1  # the largest, the smallest, random; nothing kept
    assert ranks.count(20) == ranks.count(0) == 1
    section = terminal(summary).partition("Truncations of W")[2].partition("Where the noise lies")[0]
    shown = [
        line.split()[0]
        for line in section.splitlines()
        if re.match(r"\s+(\d+ (largest|smallest|random)|all|none)", line)
    ]
    assert set(shown) == {"1", "2", "3", "17", "18", "19", "all", "none"}
    (best,) = [row for row in table.records if table.mark(row)]
    assert best["clean_loss"] == summary.best.clean_loss.mean


def layers(chart):
    """The data and encodings of every layer of a chart."""
    specified = drawing.specification(chart)

    def inner(part):
        if "layer" in part:
            for layer in part["layer"]:
                yield from inner({**layer, "data": layer.get("data", part.get("data"))})
        else:
            yield specified["datasets"][part["data"]["name"]], part["mark"]["type"], part["encoding"]

    return list(inner(specified))


def points_of(chart, mark):
    """(series, x, y) of every row that is drawn with a mark."""
    return [(row["series"], row["x"], row["y"]) for data, kind, _ in layers(chart) if kind == mark for row in data]


def test_the_spectrum_is_drawn_with_the_noise_apart_from_the_others(summary):
    chart = charts.spectrum_chart(summary)
    lines = points_of(chart, "line")
    for moment in summary.training:
        values = list(moment.singular_values)
        of_noise = values.pop(moment.noise.rank - 1)
        assert (charts.NOISE, moment.step, pytest.approx(of_noise, rel=1e-5)) in lines
        assert (charts.OTHERS, moment.step, pytest.approx(max(values), rel=1e-5)) in lines
        assert (charts.CLOSED_NOISE, moment.step, pytest.approx(moment.predicted.noise, rel=1e-5)) in lines
    (band,) = [data for data, kind, _ in layers(chart) if kind == "area"]
    lows = {row["x"]: row["low"] for row in band if row["series"] == charts.OTHERS}
    assert lows[600] == pytest.approx(min(summary.full.singular_values), rel=1e-5)


@pytest.mark.parametrize(("measure", "factor"), [("clean_accuracy", 100), ("p_noise", 100), ("clean_loss", 1)])
def test_truncations_are_drawn_by_side_with_their_controls_and_the_level_of_nothing_kept(summary, measure, factor):
    chart = charts.truncation_chart(summary, measure)
    lines = points_of(chart, "line")
    for row in summary.truncated:
        if row.control != "deletion":
            place = (charts.SIDES[row.control or row.side], row.rank, factor * row.of(measure).mean)
            assert pytest.approx(place[2], rel=1e-5, abs=1e-9) in [y for name, x, y in lines if (name, x) == place[:2]]
    heights = [row["y"] for data, kind, _ in layers(chart) if kind == "rule" for row in data if set(row) == {"y"}]
    assert heights == [pytest.approx(factor * summary.deletion.of(measure).mean, rel=1e-5)]
    bars = [row for data, kind, _ in layers(chart) if kind == "rule" for row in data if row.get("low") is not None]
    assert {row["x"] for row in bars} == {row.rank for row in summary.truncated if row.tied}


def test_ratios_are_drawn_on_two_logarithmic_axes_and_the_least_stand_at_the_foot(summary):
    for codes in ("orthonormal", "gaussian"):
        drawn = charts.sizes_drawn(summary, codes)
        assert {(size.classes, size.inputs) for size in drawn} == {(2, 2), (3, 3), (4, 4)}
        for noise in summary.noises:
            chart = charts.ratio_chart(summary, codes, noise)
            lines = points_of(chart, "line")
            expected = [
                (f"m = {size.classes}", place.step, pytest.approx(max(place.ratio.mean, charts.FOOT), rel=1e-5))
                for size in drawn
                if size.noise == noise
                for place in size.places
            ]
            assert lines == expected
            _, _, encoding = next(layer for layer in layers(chart) if layer[1] == "line")
            assert encoding["x"]["scale"]["type"] == encoding["y"]["scale"]["type"] == "log"
            low, high = encoding["y"]["scale"]["domain"]
            assert low < 1 < high
            assert all(low < y < high for _, _, y in lines)


def test_signals_are_drawn_exactly_for_every_trigger_and_with_batches_where_there_are_some(summary):
    step = summary.first_step
    for trigger in charts.TRIGGERS:
        chart = charts.signal_chart(step, trigger)
        exact = points_of(chart, "line")
        assert exact == [
            (name, point.vocabulary, pytest.approx(point.of(signal), rel=1e-5))
            for point in step.under(trigger)
            for signal, name in charts.SIGNALS.items()
            if point.of(signal) > 0
        ]
        batches = points_of(chart, "point")
        assert bool(batches) == (trigger == "constant")
    for name, vocabulary, mean in points_of(charts.signal_chart(step, "constant"), "point"):
        (signal,) = [key for key, value in charts.SIGNALS.items() if value == name]
        (point,) = [point for point in step.under("constant") if point.vocabulary == vocabulary]
        assert mean == pytest.approx(np.mean([draw.of(signal) for draw in point.draws]), rel=1e-5)


@pytest.mark.parametrize("values", [[1e-7, 0.3], [1, 20_000], [0.02, 9.9], [5], [3, 3.1], [1, 10**8], [], [0, -1, 2]])
def test_a_logarithmic_axis_has_a_few_round_ticks_and_room_for_every_value_above_zero(values):
    axis = axes.ratio_axis("step", values)
    assert all(axis.low < value < axis.high for value in values if value > 0)
    assert 2 <= len(axis.ticks) <= 7
    assert all(axis.low <= tick <= axis.high * (1 + 1e-12) for tick in axis.ticks)
    assert axes.ratio_axis("V", [16, 32, 64], own=True).ticks == (16, 32, 64)
    assert all(tick % 1 == 0 for tick in axes.ratio_axis("step", [1, 9], whole=True).ticks)


def test_the_sweep_is_one_row_per_size_and_kind_of_codes(summary):
    table = tables.places(summary, tables.first_and_last)
    assert [(row["codes"], row["classes"], row["inputs"]) for row in table.records] == [
        (codes, *size) for codes in ("orthonormal", "gaussian") for size in ((2, 2), (3, 3), (4, 4), (4, 16))
    ]
    assert [column.title for column in table.columns[3:]] == ["α = 0.3", "α = 0.5", "α = 0.6"]
    (four,) = [size for size in summary.sizes if (size.codes, size.key) == ("orthonormal", (4, 4, 0.3))]
    text = table.columns[3].write(table.records[2]).replace("\N{NO-BREAK SPACE}", " ")
    ratios = (four.places[0].ratio.mean, four.last.ratio.mean)
    assert text == f"▼ {ratios[0]:.2f} → ▲ {ratios[1]:.2f}"
    rows = tables.cuts(summary).records
    assert len(rows) == len(summary.sizes)
    (row,) = [
        row for row in rows if (row["codes"], row["classes"], row["inputs"], row["noise"]) == ("orthonormal", 4, 4, 0.3)
    ]
    (flip,) = four.flips
    assert row["flips"] == f"{flip.after}–{flip.before}"
    assert row["without_largest"] == four.cuts.without_largest.clean_loss
    (repeated,) = [size for size in summary.sizes if (size.codes, size.key) == ("orthonormal", (4, 16, 0.3))]
    assert size_findings.size_name(repeated).replace("\N{NO-BREAK SPACE}", " ") == "m = 4, 16 inputs"


def test_the_tables_of_the_first_step_have_every_power_and_level(summary):
    step = summary.first_step
    powers = tables.powers(summary).records
    assert [(row["trigger"], row["exact"], row["late"]) for row in powers] == [
        (power.trigger, power.exact, power.late) for power in step.powers
    ]
    assert [bool(row["text"]) for row in powers] == [power.trigger == "constant" for power in step.powers]
    rows = tables.levels(summary).records
    assert len(rows) == len(step.points) + len(step.under("constant"))
    (row,) = [r for r in rows if (r["trigger"], r["measured"], r["vocabulary"]) == ("constant", "batches, mean", 32)]
    draws = step.under("constant")[-1].draws
    assert row["value_spread"] == pytest.approx(np.mean([draw.value_spread for draw in draws]))


@pytest.mark.skipif(chromium.found() is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_in_a_browser_the_page_makes_no_request_no_complaint_and_never_scrolls_sideways(written, width, dark):
    with chromium.Chromium(width=width, height=800, dark=dark) as tab:
        tab.open(written.as_uri())
        assert [request for request in tab.requests if not request.startswith(("file:", "data:"))] == []
        assert tab.complaints == []
        assert tab.ask("document.documentElement.scrollWidth") == width
        assert tab.ask("document.querySelectorAll('.vega svg').length") == 1 + 2 + 3 + 2 * 3 + 3
