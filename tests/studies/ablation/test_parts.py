"""A sweep over inner units: every one once, corrected over all of them, as maps on the page and in the terminal."""

import io
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from oracle import Oracle
from rich.console import Console

from commandline import write
from lesion.edits.units import ScaleExpert, ScaleGroup, ScaleHead, ScaleMatrix, ScaleNeuron
from lesion.errors import UsageError
from lesion.report import wording
from lesion.statistics.paired import holm, mcnemar_exact
from lesion.studies.ablation import sweep as sweeping
from lesion.studies.ablation.recall import recall
from lesion.studies.ablation.report import AblationResult
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.sweep import read, refuse_many_neurons, sweep
from runs import run_ablation as run
from tiny import model

ITEMS = 14
WRONG = {"1.attention.head.2×0", "1.mlp.up×0", "2.mlp.expert.3×0", "1.mlp.neuron.7×0"}
HEADS = [f"{layer}.attention.head.{head}×0" for layer in range(3) for head in range(4)]


class Exact(Oracle):
    """Always right, but without one unit of a kind: then never."""

    def say(self, request):
        answer = super().say(request)
        wrong = str(request.edit) in WRONG
        return answer if answer.scores else type(answer)("wrong" if wrong else "right", 3, "stop")


@pytest.fixture
def sums(tmp_path) -> Path:
    rows = ({"id": f"i{n}", "prompt": f"{n} + 1 =", "answer": "right"} for n in range(ITEMS))
    return write(tmp_path / "sums.jsonl", rows)


@pytest.fixture(scope="module")
def tinies() -> dict:
    return {f"tiny:{family}": model(family) for family in ("llama", "mixtral", "qwen2_moe", "unknown")}


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


def test_matrices_experts_and_neurons_are_swept_one_by_one():
    anatomy, dense = model("mixtral").anatomy, model("llama").anatomy
    assert sweep(anatomy, ["expert"], [2], [0.0]) == [ScaleExpert(2, expert) for expert in range(4)]
    names = [f"attention.{name}" for name in "qkvo"] + ["mlp.gate", "mlp.up", "mlp.down"]
    assert sweep(dense, ["matrix"], [0, 1], [0.5]) == [
        ScaleMatrix(layer, name, 0.5) for layer in (0, 1) for name in names
    ]
    assert sweep(dense, ["neuron"], [1], [0.0]) == [ScaleNeuron(1, neuron) for neuron in range(48)]
    # Each reads back from the text under which a study keeps it.
    for edit in sweep(anatomy, ["matrix", "expert"], [1], [0.0]):
        assert read(str(edit), {}) == edit


@pytest.mark.parametrize(
    ("family", "unit", "layers", "first", "columns"),
    [
        ("llama", "matrix", "1", "1.mlp.up", 7),
        ("mixtral", "expert", "1-2", "2.3", 4),
        ("llama", "neuron", "1", "1.7", 0),
    ],
)
def test_the_unit_that_matters_is_named_and_drawn_in_a_map_where_there_is_room(
    family, unit, layers, first, columns, sums, tinies, tmp_path
):
    folder = tmp_path / "out"
    settings = {"models": [f"tiny:{family}"], "edits": {"unit": unit, "layers": layers}}
    outcome = run(study(sums, **settings), folder, models=tinies, make_engine=Exact())
    outcome.report()
    rows = outcome.tables["parts"]
    assert [f"{row.layer}.{row.part}" for row in rows[rows["drop"] == 1].itertuples()] == [first]
    assert rows["part"].nunique() == (columns or 48)
    (claim,) = outcome.claims
    count = f"{len(rows)} {wording.plural(unit)}"
    # 14 items cannot show it among as many as 48.
    called, why = (
        f"No {unit} is shown to be critical for sums, of {count}",
        "; it cannot be told (14 of 14 right, 17 are needed).",
    )
    if columns:
        called, why = f"{unit.capitalize()} {first} is critical for sums, of {count}", "."
    assert plain(claim.sentences[0]).startswith(called)
    assert plain(claim.sentences[0]).endswith(why)
    assert plain(claim.sentences[1]).endswith(f"of 100.0 %, at {unit} {first}.")
    assert (folder / "figures" / "parts.svg").is_file() == bool(columns)
    assert f"How much does each {unit} take?" in plain((folder / "report.html").read_text("utf-8"))


def test_too_many_neurons_are_refused_with_their_number_and_what_to_type(sums, tinies, tmp_path, monkeypatch):
    monkeypatch.setattr(sweeping, "MOST_NEURONS", 50)
    oracle = Exact()
    with pytest.raises(UsageError) as refusal:
        run(study(sums, edits={"unit": "neuron"}), tmp_path / "out", models=tinies, make_engine=oracle)
    said = plain(str(refusal.value))
    assert said.startswith("Blocks 0–2 of tiny:llama have 144 neurons")
    assert "--screen-top 20" in said
    assert "--layers 0 (48 neurons)" in said
    assert oracle.asked == []
    refuse_many_neurons(tinies["tiny:llama"].anatomy, ["neuron"], [0, 1, 2], 20)


def test_a_sweep_of_experts_names_blocks_without_any_before_anything_is_asked(sums, tinies, tmp_path):
    oracle = Exact()
    with pytest.raises(UsageError, match=r"block 1 of tiny:qwen2_moe has no experts.*Blocks with experts: 0, 2"):
        run(
            study(sums, models=["tiny:qwen2_moe"], edits={"unit": "expert"}),
            tmp_path / "out",
            models=tinies,
            make_engine=oracle,
        )
    assert oracle.asked == []


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
    table = pd.read_csv(folder / "parts.csv")
    assert [f"{row.layer}.{row.part}" for row in table[table["critical"] & (table["unit"] == "head")].itertuples()] == [
        "1.2"
    ]
    assert table["tests"].tolist() == [12] * 12 + [6] * 6
    assert (folder / "figures" / "parts.svg").is_file()
    assert len(pd.read_csv(folder / "layers.csv")) == 3
    found = plain(" ".join(outcome.findings))
    assert "Head 1.2 is critical for sums, of 12 heads" in found
    assert "No key-value group is shown to be critical for sums, of 6 key-value groups" in found
    console = Console(width=120, file=io.StringIO())
    console.print(outcome.text(every=True))
    assert "● critical" in console.file.getvalue()
    page = plain((folder / "report.html").read_text("utf-8"))
    assert "How much does each part of a block take?" in page
    assert "This study is not finished" not in page
    again = AblationResult.recall(folder)
    assert again.tables["parts"].equals(outcome.tables["parts"])


def test_an_unfinished_sweep_counts_the_heads_that_have_no_answers_yet(sums, tinies, tmp_path):
    with pytest.raises(RuntimeError, match="the engine died"):
        run(study(sums), tmp_path / "out", models=tinies, make_engine=Exact(lives=13 * ITEMS - 5))
    result = AblationResult.recall(tmp_path / "out")
    cells = len(result.tables["parts"])
    assert 0 < cells < 12
    assert set(result.tables["parts"]["tests"]) == {12}
    assert f"of the {cells} measured so far, of 12 heads" in plain(" ".join(result.findings))


def test_running_text_under_heads_is_told_head_by_head(tinies, tmp_path):
    text = write(tmp_path / "text.jsonl", ({"id": f"{n}", "text": "2 + 2 = 4. 3 + 1 = 4."} for n in range(3)))
    folder = tmp_path / "out"
    outcome = run(study(f"text:{text}", edits={"unit": "head", "layers": "1"}), folder, models=tinies)
    outcome.report()
    table = pd.read_csv(folder / "perplexity.csv")
    assert table["part"].tolist() == [0, 1, 2, 3]
    assert "without head 1." in plain(" ".join(outcome.findings))
    assert (folder / "figures" / "perplexity-parts.svg").is_file()


def test_an_architecture_whose_heads_are_not_known_is_refused_before_anything_is_asked(sums, tinies, tmp_path):
    oracle = Exact()
    with pytest.raises(UsageError, match=r"of block 0 of tiny:unknown are not known.* Edit 0.attention as a whole"):
        run(study(sums, models=["tiny:unknown"]), tmp_path / "out", models=tinies, make_engine=oracle)
    assert oracle.asked == []
