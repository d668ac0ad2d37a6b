"""Where loops were stopped, every table and page says that it is approximate, and how many answers were in one."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Callable, Mapping
from html import unescape
from typing import Any

import made
import made_drift
import made_isolation
import made_truncation
import pytest
from made_stopped import stopped_form
from rich.console import Console

from lesion.core.rates import loops
from lesion.report import browser
from lesion.report.publishing import html
from lesion.studies.ablation import findings as prose
from lesion.studies.ablation import report as page
from lesion.studies.ablation import tables
from lesion.studies.drift import tables as drift_tables
from lesion.studies.drift.report import DriftResult
from lesion.studies.drift.result import DriftSummary
from lesion.studies.isolation import report as isolation
from lesion.studies.isolation import terminal
from lesion.studies.truncation import terminal as truncation_terminal
from lesion.studies.truncation.report import TruncationResult
from runs import page_of

LOOPED = 0.375


def words(text: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).replace("\xa0", " ").split())


def printed(table: object) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(table)
    return " ".join(console.file.getvalue().replace("\xa0", " ").split())


def ablated(summary: Mapping[str, Any]) -> str:
    return html(page.report(made.valid(dict(summary)), *made.records()))


def ablated_text(summary: Mapping[str, Any]) -> object:
    return tables.text(made.valid(dict(summary)), {})


def drifted() -> DriftSummary:
    return made_drift.study(families=("llama",), variants=("base",), clusters=(50,))


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], str], Callable[[Any], object]]] = {
    "ablation": (made.form, ablated, ablated_text),
    "stopped ablation": (stopped_form, ablated, ablated_text),
    "evaluation": (
        lambda: {name: part for name, part in made_isolation.study().items() if name != "isolation"},
        lambda values: html(isolation.report(made_isolation.summary(values))),
        lambda values: terminal.text_tables(made_isolation.summary(values)),
    ),
    "truncation": (
        made_truncation.few,
        lambda values: html(page_of(TruncationResult, made_truncation.summary(values))),
        lambda values: truncation_terminal.text_tables(made_truncation.summary(values)),
    ),
    "drift": (drifted, lambda summary: html(page_of(DriftResult, summary)), drift_tables.text_tables),
}


def with_loops(summary: Any) -> Any:
    """The summary of the same study with loops stopped; wherever a truncated rate stands, some were in a loop."""
    if isinstance(summary, DriftSummary):
        study = summary.study.model_copy(update={"stop_loops": 4})
        return summary.model_copy(update={"study": study, "approximate": loops(4)["approximate"]})

    def looped(value: Any) -> Any:
        if isinstance(value, dict):
            more = {"looped": LOOPED} if "truncated" in value else {}
            return {name: looped(part) for name, part in value.items()} | more
        return [looped(part) for part in value] if isinstance(value, list) else value

    looping = looped(copy.deepcopy(summary))
    if looping.get("kind") == "layers":
        looping["study"]["decoding"]["stop_loops"] = 4
        return looping | {"approximate": loops(4)["approximate"]}
    if "version" in looping:  # of a typed summary
        looping["approximate"] = loops(4)["approximate"]
    else:
        looping["study"] |= loops(4)
    return looping


@pytest.mark.parametrize("kind", KINDS)
def test_page_and_terminal_say_so_and_only_then(kind):
    make, of_page, of_terminal = KINDS[kind]
    label = loops(4)["approximate"]
    page = words(of_page(with_loops(make())))
    assert label in page
    assert "Approximate: loops were stopped." in page
    assert f"Approximate: {label}" in printed(of_terminal(with_loops(make())))
    for told in (words(of_page(make())), printed(of_terminal(make()))):
        assert "pproximate" not in told.replace("approximately", "")
        assert "looped" not in told


@pytest.mark.parametrize("kind", ["ablation", "stopped ablation", "evaluation"])
def test_the_share_of_looped_answers_stands_where_that_of_truncated_ones_does(kind):
    make, of_page, of_terminal = KINDS[kind]
    summary = with_loops(make())
    if kind == "evaluation":  # it was made without rates
        for task in summary["evaluation"]["tasks"]:
            for entry in [task["baseline"], *task["cells"]]:
                entry["rates"] = {"truncated": 0.5, "looped": LOOPED}
    assert "%, 37.5 % looped" in words(of_page(summary))
    assert "looped" in printed(of_terminal(summary)).partition("Approximate")[0]
    assert "38 % looped" in printed(of_terminal(summary))


def test_the_files_for_spreadsheets_have_the_share():
    table = tables.frame(made.valid(with_loops(made.form())))
    assert set(table["looped"]) == set(table["baseline_looped"]) == {LOOPED}
    assert set(tables.frame(made.study()[0])["looped"]) == {0.0}


def test_a_loss_of_stopping_is_told_as_one_of_loops_where_they_were_stopped():
    def sentences(summary) -> list[str]:
        return [" ".join(finding.headline + finding.sentences) for finding in prose.by_model(summary.views)]

    assert any("hit the token limit: part of the loss may be stopping" in s for s in sentences(made.study()[0]))
    looping = sentences(made.valid(with_loops(made.form())))
    assert any("hit the token limit or fell into a loop: part of the loss" in sentence for sentence in looping)


def test_the_item_browser_tells_how_a_looped_answer_ended():
    summary, answers, items = made.study()
    answers.loc[answers["finish"] == "length", "finish"] = "loop"
    data = browser.data(page.offered(summary), answers, items, browser.BUDGET)
    endings = {letter for cell in data["cells"] for letter in cell["finish"]}
    assert endings == {"s", "r"}
    assert '"ended in a loop"' in ablated(made.form())
