"""Where loops were stopped, every table and page says that it is approximate, and how many answers were in one."""

import copy
import io
import re
from collections.abc import Callable, Mapping
from html import unescape
from pathlib import Path
from typing import Any

import made
import made_drift
import made_truncation
import pytest
from made_stopped import stopped_form
from rich.console import Console

from lesion.core.rates import loops
from lesion.core.result import StudyResult
from lesion.report import browser
from lesion.report.publishing import html
from lesion.studies.ablation import claims
from lesion.studies.ablation.report import AblationResult, offered
from lesion.studies.ablation.result import Material
from lesion.studies.drift.report import DriftResult
from lesion.studies.drift.result import DriftSummary
from lesion.studies.truncation.report import TruncationResult

LOOPED = 0.375


def words(text: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).replace("\xa0", " ").split())


def printed(table: object) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(table)
    return " ".join(console.file.getvalue().replace("\xa0", " ").split())


def layers(summary: Mapping[str, Any]) -> AblationResult:
    return AblationResult(Path("nowhere"), made.valid(dict(summary)), stored=made.records())


def drifted() -> DriftSummary:
    return made_drift.study(families=("llama",), variants=("base",), clusters=(50,))


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], StudyResult]]] = {
    "ablation": (made.form, layers),
    "stopped ablation": (stopped_form, layers),
    "truncation": (
        made_truncation.few, lambda values: TruncationResult(Path("nowhere"), made_truncation.summary(values))
    ),
    "drift": (drifted, lambda summary: DriftResult(Path("nowhere"), summary)),
}  # fmt: skip


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
    make, result_of = KINDS[kind]
    label = loops(4)["approximate"]
    looping, plain = result_of(with_loops(make())), result_of(make())
    page = words(html(looping.page()))
    assert label in page
    assert "Approximate: loops were stopped." in page
    assert f"Approximate: {label}" in printed(looping.text())
    for told in (words(html(plain.page())), printed(plain.text())):
        assert "pproximate" not in told.replace("approximately", "")


def test_the_files_for_spreadsheets_have_the_share():
    table = layers(with_loops(made.form())).table
    assert set(table["looped"]) == set(table["baseline_looped"]) == {LOOPED}
    assert set(layers(made.form()).table["looped"]) == {0.0}


def test_a_loss_of_stopping_is_told_as_one_of_loops_where_they_were_stopped():
    def sentences(summary) -> list[str]:
        return [" ".join(claim.sentences) for claim in claims.which_blocks(Material(summary))]

    assert any("hit the token limit: part of the loss may be stopping" in s for s in sentences(made.study()[0]))
    looping = sentences(made.valid(with_loops(made.form())))
    assert any("hit the token limit or fell into a loop: part of the loss" in sentence for sentence in looping)


def test_the_item_browser_tells_how_a_looped_answer_ended():
    summary, answers, items = made.study()
    answers.loc[answers["finish"] == "length", "finish"] = "loop"
    data = browser.data(offered(Material(summary)), answers, items, browser.BUDGET)
    endings = {letter for cell in data["cells"] for letter in cell["finish"]}
    assert endings == {"s", "r"}
    assert '"ended in a loop"' in html(layers(made.form()).page())
