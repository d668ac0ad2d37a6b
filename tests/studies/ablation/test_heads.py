"""A sweep over heads: every head once, corrected over all of them, as maps on the page and in the terminal."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from oracle import Oracle
from rich.console import Console

from commandline import write
from lesion.edits.heads import ScaleGroup, ScaleHead
from lesion.errors import UsageError
from lesion.report import wording
from lesion.statistics.paired import holm, mcnemar_exact
from lesion.studies.ablation.recall import recall
from lesion.studies.ablation.report import AblationResult
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.sweep import sweep
from runs import run_ablation as run
from tiny import model

ITEMS = 14
HEADS = [f"{layer}.attention.head.{head}×0" for layer in range(3) for head in range(4)]


class Exact(Oracle):
    """Always right, but for head 1.2, without which nothing is."""

    def say(self, request):
        answer = super().say(request)
        wrong = str(request.edit) == "1.attention.head.2×0"
        return answer if answer.scores else type(answer)("wrong" if wrong else "right", 3, "stop")


@pytest.fixture
def sums(tmp_path) -> Path:
    rows = ({"id": f"i{n}", "prompt": f"{n} + 1 =", "answer": "right"} for n in range(ITEMS))
    return write(tmp_path / "sums.jsonl", rows)


@pytest.fixture(scope="module")
def tinies() -> dict:
    return {"tiny:llama": model("llama"), "tiny:unknown": model("unknown")}


def study(*tasks: Path, **values) -> Study:
    settings = {"models": ["tiny:llama"], "items": "all", "decoding": {"max_new_tokens": 4}, **values}
    return Study.make(tasks=[str(task) for task in tasks], **{"edits": {"unit": "head"}, **settings})


def plain(text: str) -> str:
    return " ".join(text.replace(wording.SPACE, " ").split())


def test_a_sweep_has_every_head_of_the_chosen_layers_and_groups_beside():
    anatomy = model("qwen3").anatomy
    assert sweep(anatomy, ["head"], [2, 0], [0.0]) == [ScaleHead(layer, head) for layer in (2, 0) for head in range(4)]
    assert sweep(anatomy, ["group"], [1], [0.0, 2.0]) == [
        ScaleGroup(1, group, factor) for factor in (0.0, 2.0) for group in range(2)
    ]


def test_every_item_is_asked_once_under_each_head_and_p_is_corrected_over_all_of_them(sums, tinies, tmp_path):
    oracle = Exact()
    outcome = run(study(sums), tmp_path / "out", models=tinies, make_engine=oracle)
    assert Counter(str(request.edit) for request in oracle.asked) == dict.fromkeys(["baseline", *HEADS], ITEMS)
    _, summary, answers, _ = recall(tmp_path / "out")
    assert summary == outcome.summary
    (task,) = summary.models[0].tasks
    assert [cell.edit for cell in task.cells] == HEADS
    right = answers.pivot(index="item", columns="edit", values="correct").astype(bool)
    p = [
        mcnemar_exact(int((right["baseline"] & ~right[edit]).sum()), int((~right["baseline"] & right[edit]).sum()))
        for edit in HEADS
    ]
    assert [cell.drop.p_corrected for cell in task.cells] == pytest.approx(holm(p))
    assert [cell.edit for cell in task.cells if cell.critical] == ["1.attention.head.2×0"]
    # A map, not a line of blocks: several heads of one block share its number.
    assert summary.curves == ()


def test_page_tables_and_terminal_name_heads_by_block_and_head(sums, tinies, tmp_path):
    folder = tmp_path / "out"
    outcome = run(study(sums, edits={"unit": ["head", "group", "block"]}), folder, models=tinies, make_engine=Exact())
    outcome.report()
    table = pd.read_csv(folder / "heads.csv")
    assert [f"{row.layer}.{row.head}" for row in table[table["critical"] & (table["unit"] == "head")].itertuples()] == [
        "1.2"
    ]
    assert table["tests"].tolist() == [12] * 12 + [6] * 6
    assert sorted(path.name for path in (folder / "figures").glob("heads-*.svg")) == ["heads-1.svg", "heads-2.svg"]
    assert len(pd.read_csv(folder / "layers.csv")) == 3
    found = plain(" ".join(outcome.findings))
    assert "head 1.2 is critical of 12 heads" in found
    assert "no key-value group is critical of 6 key-value groups" in found
    console = Console(width=120, file=io.StringIO())
    console.print(outcome.text())
    assert "100●" in console.file.getvalue()
    page = plain((folder / "report.html").read_text("utf-8"))
    assert "How much each head takes" in page
    assert "This study is not finished" not in page
    again = AblationResult.recall(folder)
    assert again.heads.equals(outcome.heads)


def test_an_unfinished_sweep_counts_the_heads_that_have_no_answers_yet(sums, tinies, tmp_path):
    with pytest.raises(RuntimeError, match="the engine died"):
        run(study(sums), tmp_path / "out", models=tinies, make_engine=Exact(lives=13 * ITEMS - 5))
    result = AblationResult.recall(tmp_path / "out")
    cells = len(result.heads)
    assert 0 < cells < 12
    assert set(result.heads["tests"]) == {12}
    assert f"of the {cells} measured so far, of 12 heads" in plain(" ".join(result.findings))


def test_running_text_under_heads_is_told_head_by_head(tinies, tmp_path):
    text = write(tmp_path / "text.jsonl", ({"id": f"{n}", "text": "2 + 2 = 4. 3 + 1 = 4."} for n in range(3)))
    folder = tmp_path / "out"
    outcome = run(study(f"text:{text}", edits={"unit": "head", "layers": "1"}), folder, models=tinies)
    outcome.report()
    table = pd.read_csv(folder / "perplexity.csv")
    assert table["head"].tolist() == [0, 1, 2, 3]
    assert "without head 1." in plain(" ".join(outcome.findings))
    assert (folder / "figures" / "perplexity.svg").is_file()


def test_an_architecture_whose_heads_are_not_known_is_refused_before_anything_is_asked(sums, tinies, tmp_path):
    oracle = Exact()
    with pytest.raises(UsageError, match=r"of block 0 of tiny:unknown are not known.* Edit 0.attention as a whole"):
        run(study(sums, models=["tiny:unknown"]), tmp_path / "out", models=tinies, make_engine=oracle)
    assert oracle.asked == []
