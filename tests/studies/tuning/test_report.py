"""The page, tables and sentences of a tuning: what the numbers say, and only that."""

from __future__ import annotations

import html
import io
import json
import re
import xml.etree.ElementTree as ET
from copy import deepcopy

import pandas as pd
import pytest
from made_tuning import GAINS, made
from rich.console import Console

from lesion.errors import LesionError
from lesion.studies.tuning import charts as tuning_charts
from lesion.studies.tuning import findings as tuning_prose
from lesion.studies.tuning import report as tuning
from lesion.studies.tuning import tables as tuning_tables


def words(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def told(summary) -> str:
    found = tuning_prose.findings(summary)
    return " ".join(sentence for one in found for sentence in (one.headline, *one.sentences)).replace("\xa0", " ")


def with_verdict(summary, word, reason):
    return {**summary, "verdict": {"word": word, "reason": reason}}


# -- sentences


def test_the_verdict_comes_first_with_the_comparison_that_decided_it():
    summary = made()
    first = tuning_prose.findings(summary)[0]
    assert summary["verdict"]["word"] == "pays"
    assert first.badge == ("pays", "yes")
    main = summary["differences"][0]
    said = first.headline.replace("\xa0", " ")
    assert said.startswith("Tuning the critical blocks pays: +")
    assert "against random blocks that are not critical" in said
    assert f"{100 * main['low']:.1f}" in said
    assert f"{100 * main['high']:.1f}" in said


def test_what_random_blocks_are_drawn_from_is_said_and_when_there_are_few_choices():
    summary = made()
    (many,) = [line for line in tuning_prose.findings(summary)[0].sentences if line.startswith("Random blocks")]
    assert many == "Random blocks are 2 of 1, 3, 4, 5, 6 and 7, drawn anew by every seed."
    few = {**summary, "random_from": [1, 3, 4]}
    assert "There are 3 such choices" in " ".join(tuning_prose.findings(few)[0].sentences)
    every = {**summary, "random_from": list(range(8))}
    assert "not critical" not in tuning_prose.verdict(every)


def test_equal_arms_with_much_data_do_not_pay_and_with_little_it_cannot_be_told():
    equal = dict.fromkeys(GAINS, 0.1)
    assert made(equal, items=4000, spread=0.0)["verdict"]["word"] == "does not pay"
    assert "does not pay" in told(made(equal, items=4000, spread=0.0))
    few = made(equal, items=150, spread=0.02)
    assert few["verdict"] == {"word": "cannot tell", "reason": "undecided"}
    assert "that interval holds both answers" in told(few)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("nothing learned", "not even all blocks in full gained beyond doubt"),
        ("no gain", "they do not gain beyond doubt themselves"),
        ("undecided", "holds both answers"),
    ],
)
def test_why_it_cannot_be_told_is_said(reason, said):
    summary = with_verdict(made(), "cannot tell", reason)
    assert said in tuning_prose.verdict(summary)
    assert "pays:" not in tuning_prose.verdict(summary)


def test_damage_is_claimed_only_where_the_whole_interval_is_below_zero():
    assert "Nothing was lost beyond doubt on primer:atlas" in told(made(controls={"primer:atlas": 0.0}))
    hurt = told(made(controls={"primer:atlas": -0.3}))
    assert "Something was lost elsewhere beyond doubt: critical blocks (primer:atlas)" in hurt


def test_a_single_tuning_tells_before_and_after_and_that_one_seed_is_one():
    said = told(made({"critical": 0.1}, seeds=1, rates=(1e-3,)))
    assert "The tuning helps on primer:arithmetic: " in said
    assert "Tuned: blocks 0 and 2 of 8 in full, 369,152 numbers, 21.2 % of the model." in said
    assert "One seed: the intervals know the doubt about items" in said
    assert "does it pay" not in said.lower()
    assert "The tuning harms on" in told(made({"0-1": -0.2}, seeds=1, rates=(1e-3,)))
    assert "makes no sure difference on" in told(made({"0-1": 0.0}, seeds=1, rates=(1e-3,)))


def test_a_best_rate_at_the_end_of_three_is_said_and_of_two_it_goes_without_saying():
    assert "The largest learning rate was the best for critical blocks" in told(made(rates=(1e-4, 1e-3, 1e-2)))
    assert "learning rate was the best" not in told(made())


# -- charts


def test_every_chart_is_well_formed_and_every_interval_lies_where_its_numbers_say():
    summary = made()
    rows = tuning_charts.gains(summary, 0)
    for kind, chart in tuning_charts.dots("Gains", rows, "points"):
        root = ET.fromstring(str(chart))
        strokes = [e.attrib["d"] for e in root.iter() if e.attrib.get("class") == "stroke" and "H" in e.attrib["d"]]
        ends = [tuple(float(v) for v in re.match(r"M([\d.]+) [\d.]+H([\d.]+)", d).groups()) for d in strokes]
        ticks = [e for e in root.iter() if e.attrib.get("class") == "tick"]
        places = {float(e.text.replace("−", "-")): float(e.attrib["x"]) for e in ticks}
        (a, x_a), (b, x_b) = sorted(places.items())[0], sorted(places.items())[-1]
        per_point = (x_b - x_a) / (b - a)
        assert len(ends) == len(GAINS), kind
        for row, (low, high) in zip(rows, ends, strict=True):
            assert low == pytest.approx(x_a + (100 * row.low - a) * per_point, abs=0.2)
            assert high == pytest.approx(x_a + (100 * row.high - a) * per_point, abs=0.2)
        dots = [e for e in root.iter() if e.attrib.get("class") == "repeat"]
        assert len(dots) == 3 * len(GAINS)


def test_one_seed_has_no_dots_of_its_own_beside_the_mean():
    rows = tuning_charts.gains(made({"critical": 0.1}, seeds=1), 0)
    assert all("repeat" not in chart for _, chart in tuning_charts.dots("x", rows, "points"))


def test_losses_are_means_over_seeds_at_the_chosen_rate_and_unknown_ones_are_left_out():
    summary = made({"critical": 0.1, "random": 0.1})
    drawn = tuning_charts.losses(summary)
    assert drawn is not None
    # 0.02 / step + 0.001 · seed, mean over three seeds, at step 10.
    assert "step 10: 0.003" in html.unescape(str(drawn[0]))
    summary["arms"][0]["curves"][-1]["points"][0]["loss"] = None
    _, legend = tuning_charts.losses(summary)
    assert [name for _, name in legend] == ["random blocks"]


# -- the page and the files


@pytest.mark.parametrize(
    "summary",
    [
        made(),
        made({"critical": 0.1}, seeds=1, rates=(1e-3,), controls={}),
        made({"0-3,7": 0.0}, seeds=2, controls={"a": -0.1, "b": 0.0}),
        {**made(), "layers": None, "notes": ["<b>left</b> out"]},
    ],
)
def test_the_page_is_one_file_that_asks_nothing_of_anybody(summary):
    page = tuning.page(summary)
    assert "default-src 'none'" in html.unescape(page)
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", page)
    for told_arm in summary["arms"]:
        assert told_arm["label"] in words(page)
    assert "<b>left</b>" not in page


def test_names_that_look_like_markup_are_text():
    summary = made(model="<script>alert(1)</script>", task='a"><img src=x>', controls={"</svg><b>": -0.2})
    summary["study"]["title"] = "<i>t</i>"
    page = tuning.page(summary)
    for hostile in ("<script>alert", "<img src=x", "</svg><b>", "<i>t</i>"):
        assert hostile not in page
    assert 'a"><img src=x>' in words(page)


def test_the_folder_gets_the_page_the_numbers_the_table_and_a_figure(tmp_path):
    summary = made()
    path = tuning.write(tmp_path / "new", summary)
    assert path == tmp_path / "new" / "report.html"
    assert json.loads((tmp_path / "new" / "summary.json").read_text())["verdict"]["word"] == "pays"
    assert (tmp_path / "new" / "figures" / "tuning.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(tmp_path / "new" / "tuning.csv")
    assert len(table) == 5 * 3 * 2
    row = table[(table["arm"] == "random") & (table["seed"] == 1) & (table["task"] == "primer:arithmetic")].iloc[0]
    assert row["blocks"] == "1 3"
    assert row["accuracy"] - row["baseline_accuracy"] == pytest.approx(row["change"])


def test_another_summary_is_refused(tmp_path):
    broken = deepcopy(made())
    del broken["arms"][0]["tasks"]
    with pytest.raises(LesionError, match="no summary of a tuning"):
        tuning.write(tmp_path, broken)


def test_the_terminal_tells_it_within_eighty_columns():
    console = Console(width=80, file=io.StringIO())
    console.print(tuning_tables.text_tables(made(controls={"primer:atlas": -0.01, "primer:reading": 0.0})))
    said = console.file.getvalue()
    assert max(map(len, said.splitlines())) <= 80
    assert "critical blocks" in said
    assert "\N{REPLACEMENT CHARACTER}" not in said
    assert "Tuning the critical blocks pays" in said


def test_seconds_of_training_stand_on_the_page_and_in_the_terminal_from_the_cost_alone():
    summary = made()
    arm = summary["arms"][0]
    costed = {**summary, "cost": {"training": {arm["arm"]: 12.04}}}
    console = Console(file=io.StringIO(), width=300)
    console.print(tuning_tables.text_tables(costed))
    assert f"Seconds of training, mean over seeds: {arm['label']} 12.0." in console.file.getvalue()
    assert f"{arm['label']} 12.0" in tuning.page(costed)
    assert "seconds of training" not in tuning.page(summary)
