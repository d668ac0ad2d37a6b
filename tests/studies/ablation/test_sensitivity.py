"""What a full table can find, and what is critical at other shares, in the terminal and on the page."""

from __future__ import annotations

import io
import re

from made import form, records, valid
from made_stopped import stopped
from rich.console import Console

from lesion.report import wording
from lesion.studies.ablation import findings as prose
from lesion.studies.ablation import tables
from written import write_layers


def with_sensitivity(critical: dict[str, dict[float, list[int]]], loss: float | None = 0.62, *, family: bool = True):
    """The made study; of `sums`, per model the layers that are critical at each share."""
    summary = form(tasks=("sums",))
    for model in summary["models"]:
        shares = [{"share": share, "critical": layers} for share, layers in critical[model["model"]].items()]
        model["tasks"][0]["sensitivity"] = [
            {"unit": "block", "factor": 0.0, "tests": 4, "right": 9, "fewest_right": 11, "power": 0.8,
             "smallest_loss": loss, "shares": shares}
        ]  # fmt: skip
    members = [{"model": name, "source": name, "variant": name} for name in ("base", "child")]
    verdict = {"word": "cannot tell", "text": "", "reasons": [], "by_task": {}, "between": None}
    made = {"family": "made", "base": "base", "members": members, "notes": [], "tasks": [], "between_tasks": []}
    shared = {"unit": "block", "factor": 0.0, "level": 0.95, "thresholds": {}, "rule": ""}
    if family:
        summary["invariance"] = shared | {"families": [made | {"verdict": verdict}]}
    return valid(summary), *records(tasks=("sums",))


def plain(text: str) -> str:
    return " ".join(text.replace(wording.SPACE, " ").split())


def shown(summary) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(tables.text(summary, {}))
    return plain(console.file.getvalue())


AGREE_AT_HALF = {"base": {0.3: [1, 2], 0.5: [2], 0.8: []}, "child": {0.3: [2, 3], 0.5: [2], 0.8: [2]}}


def test_the_terminal_says_the_smallest_loss_and_at_which_shares_a_family_agrees():
    text = shown(with_sensitivity(AGREE_AT_HALF)[0])
    assert "with 80 % power: 62 % of the baseline's accuracy" in text
    assert "made, sums: all 2 models agree at a required loss of 50 %" in text
    assert "not at 30 or 80 %" in text


def test_a_family_that_agrees_at_every_share_or_at_none_is_not_singled_out():
    same = {"base": {0.3: [2], 0.5: [2]}, "child": {0.3: [2], 0.5: [2]}}
    other = {"base": {0.3: [1], 0.5: [1]}, "child": {0.3: [2], 0.5: [2]}}
    for critical in (same, other):
        assert not any("agree" in sentence for sentence in prose.sensitivity(with_sensitivity(critical)[0]))


def test_the_page_has_a_row_per_model_and_task_with_the_blocks_at_every_share(tmp_path):
    summary, answers, items = with_sensitivity(AGREE_AT_HALF, family=False)
    html = write_layers(tmp_path, summary, answers, items).read_text("utf-8")
    table = html[html.index("what is critical at other shares</summary>") :]
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", table[: table.index("</table>")], re.DOTALL)
    cells = [[plain(re.sub("<[^>]+>", "", cell)) for cell in re.findall("<t[dh].*?</t[dh]>", row)] for row in rows]
    assert cells == [
        ["Model", "Task", "Right", "Smallest loss", "30 %", "50 %", "80 %"],
        ["base", "sums", "9", "62 %", "1, 2", "2", "–"],
        ["child", "sums", "9", "62 %", "2, 3", "2", "2"],
    ]


def test_where_nothing_can_be_critical_the_page_says_from_how_many_right_answers_on(tmp_path):
    summary, answers, items = with_sensitivity(AGREE_AT_HALF, loss=None, family=False)
    (sentence,) = prose.sensitivity(summary)
    assert sentence.startswith("Smallest drop that differs from 0 with 80")
    assert "none, from 11 right on" in write_layers(tmp_path, summary, answers, items).read_text("utf-8")


def test_a_stopped_study_has_none_of_that(tmp_path):
    summary, answers, items = stopped()
    assert tables.sensitivities(summary) is None
    assert prose.sensitivity(summary) == []
    assert "at other shares" not in write_layers(tmp_path, summary, answers, items).read_text("utf-8")
