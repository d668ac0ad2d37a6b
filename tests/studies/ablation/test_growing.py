"""A layer study grows in its folder: only what is missing is asked, and a smaller one shows its part."""

from pathlib import Path

import pytest
from made_counts import counted
from oracle import Oracle

from commandline import write
from lesion.core.store import Store
from lesion.edits.edit import ScaleBlock
from lesion.errors import LesionError
from lesion.studies.ablation.report import AblationResult
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.summary import summarise
from runs import run_ablation as run
from tiny import model

SMALL = {"models": ["one"], "tasks": ["sums.jsonl"], "items": 4, "edits": {"layers": "0-1"}}
EDITS = {"layers": "0-2", "unit": ["block", "mlp"], "factor": [0, 0.5]}
LARGE = {"models": ["one", "two"], "tasks": ["sums.jsonl", "more.jsonl"], "items": 6, "edits": EDITS}
# Of 2 × 6 items × (1 + 3 × 2 × 2) edits for each of two models, 4 × 3 of one model are there.
MISSING = 2 * (2 * 6 * 13) - 4 * 3


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sums", "more"):
        rows = ({"id": f"{n}", "prompt": f"{name} {n} + 1 =", "answer": "right"} for n in range(9))
        write(Path(f"{name}.jsonl"), rows)


@pytest.fixture(scope="module")
def models() -> dict:
    return {"one": model("llama"), "two": model("qwen2")}


def study(values: dict) -> Study:
    return Study.make(**{"decoding": {"max_new_tokens": 4}, **values})


@pytest.mark.parametrize(
    ("change", "asked"),
    [
        ({"items": 6}, 2 * 3),
        ({"items": "all"}, 5 * 3),
        ({"tasks": ["sums.jsonl", "more.jsonl"]}, 4 * 3),
        ({"tasks": [{"name": "sums.jsonl", "items": 5}]}, 3),
        ({"models": ["one", "two"]}, 4 * 3),
        ({"edits": {"layers": "0-2"}}, 4),
        ({"edits": {"layers": "0-1", "unit": ["block", "attention"]}}, 4 * 2),
        ({"edits": {"layers": "0-1", "factor": [0, 0.5]}}, 4 * 2),
        (LARGE, MISSING),
    ],
)
def test_what_is_added_is_all_that_is_asked_and_the_result_is_that_of_one_run(change, asked, models, tmp_path):
    run(study(SMALL), tmp_path / "out", models=models, make_engine=Oracle())
    oracle = Oracle()
    grown = run(study({**SMALL, **change}), tmp_path / "out", models=models, make_engine=oracle)
    whole = run(study({**SMALL, **change}), tmp_path / "whole", models=models, make_engine=Oracle())
    assert len(oracle.asked) == grown.evaluated == asked
    assert grown.summary == whole.summary
    assert AblationResult.recall(tmp_path / "out").summary == whole.summary


def test_a_smaller_study_shows_its_part_asks_nothing_and_corrects_for_all_that_was_tried(models, tmp_path):
    run(study(LARGE), tmp_path / "out", models=models, make_engine=Oracle())
    oracle = Oracle()
    part = run(study(SMALL), tmp_path / "out", models=models, make_engine=oracle)
    alone = run(study(SMALL), tmp_path / "alone", models=models, make_engine=Oracle())
    assert oracle.asked == []
    shown = ["layer", "accuracy", "drop", "p_critical"]
    assert part.table_full[shown].equals(alone.table_full[shown])
    [(_, result)] = part.summary.results
    # Blocks 0 to 2 were switched off, and two of them are shown.
    assert [reach.tests for reach in result.sensitivity] == [3]
    assert len(part.answers) == len(alone.answers) == 4 * 3
    recalled = AblationResult.recall(tmp_path / "out")
    assert recalled.summary == part.summary
    assert sorted(recalled.answers["key"]) == sorted(alone.answers["key"])
    assert any("that this study does not ask for" in note for note in recalled.notes)
    oracle = Oracle()  # nothing was thrown away
    run(study(LARGE), tmp_path / "out", models=models, make_engine=oracle)
    assert oracle.asked == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"decoding": {"max_new_tokens": 5}}, "decoding.max_new_tokens: 4 there, 5 here"),
        ({"seed": 1}, "seed: 0 there, 1 here"),
        ({"prompt_style": "plain"}, "prompt_style: not set there, plain here"),
        ({"dtype": "bfloat16"}, "dtype: auto there, bfloat16 here"),
        ({"tasks": [{"name": "sums.jsonl", "stop": "#"}]}, "sums.jsonl.stop: not set there, # here"),
        ({"models": [{"source": "one", "prompt_style": "plain"}]}, "one.prompt_style: not set there, plain here"),
    ],
)
def test_answers_that_are_not_comparable_are_refused_by_the_key_that_differs(change, words, models, tmp_path):
    first = run(study(SMALL), tmp_path / "out", models=models, make_engine=Oracle())
    with pytest.raises(LesionError) as caught:
        run(study({**SMALL, **change}), tmp_path / "out", models=models, make_engine=Oracle(0))
    assert f"({words})" in str(caught.value)
    assert "--out" in str(caught.value)
    assert AblationResult.recall(tmp_path / "out").summary == first.summary  # the refusal left the folder as it was


def test_a_task_that_an_earlier_study_asked_otherwise_is_refused(models, tmp_path):
    run(study(SMALL), tmp_path / "out", models=models, make_engine=Oracle())
    run(study({**SMALL, "tasks": ["more.jsonl"]}), tmp_path / "out", models=models, make_engine=Oracle())
    shorter = {"name": "sums.jsonl", "max_new_tokens": 3}
    with pytest.raises(
        LesionError, match=r"answers of .* to sums\.jsonl that were asked otherwise \(decoding: .*max=4"
    ):
        run(study({**SMALL, "tasks": [shorter]}), tmp_path / "out", models=models, make_engine=Oracle(0))


def test_a_file_with_further_lines_grows_too_and_one_that_changed_is_refused(models, tmp_path):
    everything = {**SMALL, "items": "all"}
    run(study(everything), tmp_path / "out", models=models, make_engine=Oracle())
    with Path("sums.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"id": "9", "prompt": "sums 9 + 1 =", "answer": "right"}\n')
    oracle = Oracle()
    grown = run(study(everything), tmp_path / "out", models=models, make_engine=oracle)
    assert len(oracle.asked) == 3
    assert grown.summary.models[0].tasks[0].items == 10
    Path("sums.jsonl").write_text(Path("sums.jsonl").read_text().replace("sums 3 +", "sums 3 plus"))
    with pytest.raises(
        LesionError, match=r"Item 3 of sums\.jsonl reads differently.* A line without an \"id\" is named by its number"
    ):
        run(study(everything), tmp_path / "out", models=models, make_engine=Oracle(0))
    with Store.read(tmp_path / "out") as store:
        assert len(store.items()) == 10


def test_what_was_tried_counts_for_the_difference_of_two_tasks_too():
    edits = [ScaleBlock(layer) for layer in range(2)]
    material = counted(edits, {"sums": [100, 0, 100], "words": [100, 60, 100]})
    further = {("m", task): [ScaleBlock(layer) for layer in range(2, 5)] for task in ("sums", "words")}
    alone, after = (
        summarise(material.summary.study, {"m": edits}, material.answers, material.items, tried=tried)
        for tried in (None, further)
    )
    (one,), (other,) = (summary.models[0].tasks[0].of("block", 0.0)[0].apart for summary in (alone, after))
    assert (one.task, one.difference.p) == ("words", other.difference.p)
    assert one.difference.p_corrected == pytest.approx(2 * one.difference.p)
    assert other.difference.p_corrected == pytest.approx(5 * one.difference.p)
