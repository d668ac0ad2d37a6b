"""The page, charts, tables and sentences of a tuning: what the numbers say, and only that."""

from __future__ import annotations

import io
import re
from html import unescape

import pandas as pd
import pytest
from made_tuning import GAINS, made
from rich.console import Console

from lesion.core import cost
from lesion.core.rates import loops
from lesion.core.values import read_summary
from lesion.errors import LesionError
from lesion.report import drawing
from lesion.report.publishing import html
from lesion.studies.tuning import charts, tables
from lesion.studies.tuning import findings as prose
from lesion.studies.tuning.report import TuningResult
from lesion.studies.tuning.result import TuningSummary, Verdict
from runs import page_of


def words(page: str) -> str:
    text = re.sub(r"<(script|style)[^>]*>.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).replace("\xa0", " ").split())


def sentences(summary: TuningSummary) -> str:
    findings = prose.findings(summary)
    return " ".join(text for finding in findings for text in (*finding.headline, *finding.sentences)).replace(
        "\xa0", " "
    )


def printed(summary: TuningSummary, training=None, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(tables.text_tables(summary, training))
    return console.file.getvalue()


def with_verdict(summary: TuningSummary, word: str, reason: str) -> TuningSummary:
    return summary.model_copy(update={"verdict": Verdict(word=word, reason=reason)})


def layers_of(chart) -> list[dict]:
    """The layers of a chart in the order in which they are drawn, each with its own rows."""
    specified = drawing.specification(chart)

    def flat(part: dict, data: dict | None) -> list[dict]:
        data = part.get("data", data)
        if "layer" in part:
            return [layer for inner in part["layer"] for layer in flat(inner, data)]
        return [{**part, "rows": specified["datasets"][data["name"]]}]

    return flat(specified, None)


# -- sentences


def test_the_verdict_comes_first_with_the_comparison_that_decided_it():
    summary = made()
    first = prose.findings(summary)[0]
    assert summary.verdict.word == "pays"
    assert first.badge == ("pays", "yes")
    main = summary.differences[0]
    said = first.headline[0].replace("\xa0", " ")
    assert said.startswith("Tuning the critical blocks pays: +")
    assert "against random blocks that are not called critical" in said
    assert f"{100 * main.low:.1f}" in said
    assert f"{100 * main.high:.1f}" in said


def test_what_random_blocks_are_drawn_from_is_said_and_when_there_are_few_choices():
    summary = made()
    (many,) = [line for line in prose.findings(summary)[0].sentences if line.startswith("Random blocks")]
    assert many == "Random blocks are 2 of 1, 3, 4, 5, 6 and 7, drawn anew by every seed."
    few = summary.model_copy(update={"random_from": (1, 3, 4)})
    assert "Only 3 choices: this says little" in " ".join(prose.findings(few)[0].sentences)
    every = summary.model_copy(update={"random_from": tuple(range(8))})
    assert "not critical" not in prose.verdict(every)


def test_equal_arms_with_much_data_do_not_pay_and_with_little_it_cannot_be_sentences():
    equal = dict.fromkeys(GAINS, 0.1)
    assert made(equal, items=4000, spread=0.0).verdict.word == "does not pay"
    assert "does not pay" in sentences(made(equal, items=4000, spread=0.0))
    few = made(equal, items=150, spread=0.02)
    assert few.verdict == Verdict(word="cannot tell", reason="undecided")
    assert "which allows both answers" in sentences(few)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("nothing learned", "even all blocks in full have no clear gain"),
        ("no gain", "but no clear gain ("),
        ("undecided", "allows both answers"),
    ],
)
def test_why_it_cannot_be_told_is_said(reason, said):
    summary = with_verdict(made(), "cannot tell", reason)
    assert said in prose.verdict(summary)
    assert "pays:" not in prose.verdict(summary)


def test_damage_is_claimed_only_where_the_whole_interval_is_below_zero():
    assert "No clear loss on primer:atlas" in sentences(made(controls={"primer:atlas": 0.0}))
    hurt = sentences(made(controls={"primer:atlas": -0.3}))
    assert "Clear losses (interval below 0): critical blocks (primer:atlas)" in hurt


def test_a_single_tuning_reports_before_and_after_and_that_one_seed_is_one():
    said = sentences(made({"critical": 0.1}, seeds=1, rates=(1e-3,)))
    assert "Tuning helps on primer:arithmetic: " in said
    assert "Tuned: blocks 0 and 2 of 8 in full, 369,152 parameters, 21.2 % of the model." in said
    assert "One seed: the intervals cover items, not the order of training rows" in said
    assert "does it pay" not in said.lower()
    assert "Tuning harms primer:arithmetic" in sentences(made({"0-1": -0.2}, seeds=1, rates=(1e-3,)))
    assert "makes no clear difference on" in sentences(made({"0-1": 0.0}, seeds=1, rates=(1e-3,)))


def test_a_best_rate_at_the_end_of_three_is_said_and_of_two_it_goes_without_saying():
    assert "Best at the largest learning rate: critical blocks" in sentences(made(rates=(1e-4, 1e-3, 1e-2)))
    assert "Best at the" not in sentences(made())


# -- charts


def test_every_interval_and_every_seed_is_drawn_where_its_numbers_say():
    summary = made()
    rows = charts.gains(summary, 0)
    layers = layers_of(charts.changes_chart(rows))
    (interval,) = [layer for layer in layers if "x2" in layer["encoding"]]
    assert (interval["encoding"]["x"]["field"], interval["encoding"]["x2"]["field"]) == ("low", "high")
    for row, drawn in zip(rows, interval["rows"], strict=True):
        assert drawn["y"] == row.label
        ends = (row.change.low, row.change.value, row.change.high)
        assert [drawn[name] for name in ("low", "x", "high")] == pytest.approx([100 * end for end in ends], rel=1e-5)
        assert f"{100 * row.change.low:.1f}".replace("-", "\N{MINUS SIGN}") in drawn["tip"]
    low, high = interval["encoding"]["x"]["scale"]["domain"]
    assert low < 0 < high
    (seeds,) = [layer for layer in layers if layer["mark"].get("yOffset")]
    expected = [100 * value for row in rows for value in row.change.seeds]
    assert [drawn["x"] for drawn in seeds["rows"]] == pytest.approx(expected, rel=1e-5)
    assert len(expected) == 3 * len(GAINS)


def test_one_seed_has_no_dots_of_its_own_beside_the_mean():
    rows = charts.gains(made({"critical": 0.1}, seeds=1), 0)
    assert not [layer for layer in layers_of(charts.changes_chart(rows)) if layer["mark"].get("yOffset")]


def test_the_controls_share_an_axis_that_holds_all_of_them():
    summary = made(controls={"a": -0.3, "b": 0.0})
    rows = [charts.gains(summary, place) for place in (1, 2)]
    domains = []
    for own in rows:
        layers = layers_of(charts.changes_chart(own, [row for chart in rows for row in chart]))
        domains.append(layers[0]["encoding"]["x"]["scale"]["domain"])
    assert domains[0] == domains[1]
    assert domains[0][0] < 100 * min(row.change.low for row in rows[0])


def test_arms_of_named_blocks_differ_in_colour():
    assert len(set(charts.tones(made({"0": 0.1, "1-2": 0.1, "critical": 0.1})).values())) == len(charts.TONES) + 2


def test_losses_are_means_over_seeds_at_the_chosen_rate_and_unknown_ones_are_left_out():
    summary = made({"critical": 0.1, "random": 0.1})
    # 0.02 / step + 0.001 · seed, mean over three seeds.
    assert dict(summary.arms[0].course("loss")) == pytest.approx({step: 0.02 / step + 0.001 for step in range(1, 11)})
    layers = layers_of(charts.course_chart(summary))
    (line,) = [layer for layer in layers if layer["mark"]["type"] == "line"]
    assert {(row["series"], row["x"]): row["y"] for row in line["rows"]}["random blocks", 10] == pytest.approx(0.003)
    (guide,) = [layer for layer in layers if layer["mark"]["type"] == "rule"]
    assert guide["rows"][9]["tip"] == "step 10\ncritical blocks: 0.003\nrandom blocks: 0.003"
    document = summary.model_dump()
    document["arms"][0]["curves"][-1]["points"][0]["loss"] = None
    broken = TuningSummary.model_validate(document)
    assert [series.name for series in charts.course_legend(broken)] == ["random blocks"]


def test_by_reward_the_reward_is_drawn_and_said_in_place_of_the_loss(tmp_path):
    summary = made({"critical": 0.1, "random": 0.1}, by="reward")
    layers = layers_of(charts.course_chart(summary))
    (line,) = [layer for layer in layers if layer["mark"]["type"] == "line"]
    assert {(row["series"], row["x"]): row["y"] for row in line["rows"]}["random blocks", 10] == pytest.approx(0.5)
    assert line["encoding"]["y"]["axis"]["title"] == "mean reward"
    titles = [section.title for section in TuningResult(tmp_path, summary, 0).page().sections]
    assert "Reward over the steps" in titles
    assert "Loss over the steps" not in titles
    said = sentences(summary)
    assert "Trained by a verifiable reward (GRPO), 10 steps of 32 items × 8 answers drawn at temperature 1." in said
    assert "Mean reward, first to last: critical blocks from 0.05 to 0.50; random blocks from 0.05 to 0.50." in said
    plain = sentences(made({"critical": 0.1, "random": 0.1}))
    assert "Trained by completions (supervised), 10 steps of 32 items." in plain
    assert "eward" not in plain


def test_drops_are_drawn_in_points_with_critical_blocks_boxed():
    layers = layers_of(charts.drops_chart(made().layers))
    rows = layers[0]["rows"]
    assert [row["text"] for row in rows[:3]] == ["90.0", "30.0", "88.0"]
    assert [row["x"] for row in rows if row["marked"]] == [0, 2]
    assert rows[0]["tip"] == "block\xa00: 90.0 points, critical"


# -- the page and the files


@pytest.mark.parametrize(
    "summary",
    [
        made(),
        made({"critical": 0.1}, seeds=1, rates=(1e-3,), controls={}),
        made({"0-3,7": 0.0}, seeds=2, controls={"a": -0.1, "b": 0.0}),
        made().model_copy(update={"layers": None, "notes": ("<b>left</b> out",)}),
    ],
)
def test_the_page_is_one_file_that_makes_no_request(summary):
    page = html(page_of(TuningResult, summary))
    assert "default-src 'none'" in unescape(page)
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", page)
    for arm in summary.arms:
        assert arm.label in words(page)
    assert "<b>left</b>" not in page
    for note in summary.notes:
        assert note in words(page)


def test_names_that_look_like_markup_are_text():
    hostile = {"</svg><b>": -0.2}
    page = html(
        page_of(
            TuningResult,
            made(model="<script>alert(1)</script>", task='a"><img src=x>', controls=hostile, title="<i>t</i>"),
        )
    )
    for text in ("<script>alert", "<img src=x", "</svg><b>", "<i>t</i>"):
        assert text not in page
    assert 'a"><img src=x>' in words(page)


def test_the_table_of_arms_has_every_change_with_its_interval_and_the_untuned_accuracy():
    summary = made()
    rows = tables.arms(summary).shown
    shown = [[cell.text.replace("\xa0", " ") for cell in cells] for _, cells in rows]
    before = summary.baseline[0].accuracy
    assert shown[0][0] == "untuned"
    assert shown[0][4] == f"{100 * before.value:.1f} [{100 * before.low:.1f}, {100 * before.high:.1f}]"
    gain = summary.arms[0].gain
    assert shown[1][5] == f"+{100 * gain.value:.1f} [{100 * gain.low:.1f}, {100 * gain.high:.1f}]"


def test_the_rate_that_was_chosen_is_marked():
    rows = [[cell.text for cell in cells] for _, cells in tables.rates(made()).shown]
    assert rows[0] == ["critical blocks", "80.0", "80.2 ●"]


def test_the_folder_gets_the_page_the_table_and_the_figures(tmp_path):
    summary = made()
    path = TuningResult(tmp_path / "new", summary).report()
    assert path == tmp_path / "new" / "report.html"
    for name in ("tuning", "differences", "costs", "loss", "drops"):
        assert (tmp_path / "new" / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(tmp_path / "new" / "tuning.csv")
    assert list(table) == list(tables.COLUMNS)
    assert len(table) == 5 * 3 * 2
    row = table[(table["arm"] == "random") & (table["seed"] == 1) & (table["task"] == "primer:arithmetic")].iloc[0]
    assert row["blocks"] == "1 3"
    assert row["accuracy"] - row["baseline_accuracy"] == pytest.approx(row["change"])


def test_the_summary_is_read_back_as_it_was_and_another_is_refused(tmp_path):
    summary = made()
    summary.write(tmp_path)
    assert read_summary(TuningSummary, tmp_path, "run the tuning again") == summary
    (tmp_path / "summary.json").write_text('{"kind": "tuning", "arms": []}')
    with pytest.raises(LesionError, match=r"summary.json is damaged .*run the tuning again"):
        read_summary(TuningSummary, tmp_path, "run the tuning again")


def test_the_terminal_shows_it_within_eighty_columns():
    text = printed(made(controls={"primer:atlas": -0.01, "primer:reading": 0.0}))
    assert max(map(len, text.splitlines())) <= 80
    assert "critical" in text
    assert "\N{REPLACEMENT CHARACTER}" not in text


def test_seconds_of_training_stand_on_the_page_and_in_the_terminal_from_the_cost_alone(tmp_path):
    summary = made()
    assert "Seconds of training, mean over seeds: critical blocks 12.0." in printed(summary, {"critical": 12.04}, 300)
    assert "seconds of training" not in html(page_of(TuningResult, summary))
    cost.note(tmp_path, "training", {"critical": 12.04})
    assert "critical blocks 12.0" in words(TuningResult(tmp_path, summary).report().read_text("utf-8"))


def test_where_loops_were_stopped_page_and_terminal_say_so_with_a_column_for_looped_answers():
    label = loops(4)["approximate"]
    summary = made(stop_loops=4, looped=0.375)
    page = words(html(page_of(TuningResult, summary)))
    assert f"Approximate: loops were stopped. {label}" in page
    assert "Truncated, % Looped, % Unparsed, %" in page
    assert "37.5" in page
    assert f"Approximate: {label}" in " ".join(printed(summary).split())
    for text in (words(html(page_of(TuningResult, made()))), printed(made())):
        assert "pproximate" not in text
        assert "looped" not in text.lower()
