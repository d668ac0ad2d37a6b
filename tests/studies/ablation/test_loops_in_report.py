"""Where loops were stopped, every table and page says that it is approximate, and how many answers were in one."""

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import made

from lesion.core.rates import approximate
from lesion.report import browser
from lesion.report.publishing import html
from lesion.studies.ablation import claims
from lesion.studies.ablation.report import AblationResult, offered
from lesion.studies.ablation.result import Material

LOOPED = 0.375


def layers(summary: Mapping[str, Any]) -> AblationResult:
    return AblationResult(Path("nowhere"), made.valid(dict(summary)), stored=made.records())


def with_loops(summary: Any) -> Any:
    """The summary of the same study with loops stopped; wherever a truncated rate stands, some were in a loop."""

    def looped(value: Any) -> Any:
        if isinstance(value, dict):
            more = {"looped": LOOPED} if "truncated" in value else {}
            return {name: looped(part) for name, part in value.items()} | more
        return [looped(part) for part in value] if isinstance(value, list) else value

    looping = looped(copy.deepcopy(summary))
    looping["study"]["decoding"]["stop_loops"] = 4
    return looping | {"approximate": approximate(4)}


def test_a_loss_of_stopping_is_told_as_one_of_loops_where_they_were_stopped():
    def sentences(summary) -> list[str]:
        return [" ".join(claim.sentences) for claim in claims.which_blocks(Material(summary))]

    stopping = r"hit the token limit \([^)]*\): part of the loss may be stopping"
    assert any(re.search(stopping, sentence) for sentence in sentences(made.study()[0]))
    looping = r"hit the token limit or fell into a loop \([^)]*\): part of the loss"
    assert any(re.search(looping, sentence) for sentence in sentences(made.valid(with_loops(made.form()))))


def test_the_item_browser_tells_how_a_looped_answer_ended():
    summary, answers, items = made.study()
    answers.loc[answers["finish"] == "length", "finish"] = "loop"
    data = browser.data(offered(Material(summary)), answers, items, browser.BUDGET)
    endings = {letter for cell in data["cells"] for letter in cell["finish"]}
    assert endings == {"s", "r"}
    assert '"ended in a loop"' in html(layers(made.form()).page())
