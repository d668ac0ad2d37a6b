"""A run asks each cell once, keeps what it was told, and asks only for what is missing."""

import sqlite3
from collections import Counter
from pathlib import Path

import pytest
import torch
from oracle import Listener, Oracle

from commandline import questions, save, write
from lesion.core.store import Store
from lesion.errors import LesionError, UsageError
from lesion.models.load import wrap
from lesion.progress import Silent
from lesion.report.publishing import html
from lesion.studies.ablation.recall import recall
from lesion.studies.ablation.study import Study
from lesion.tasks.task import Answer
from runs import run_ablation as run
from tiny import model, tiny, tokenizer

ITEMS = 7
CELLS = ITEMS * 4  # three blocks and the baseline


@pytest.fixture
def sums(tmp_path) -> Path:
    rows = ({"id": f"i{n}", "prompt": f"{n} + 1 =", "answer": "right"} for n in range(ITEMS + 3))
    return write(tmp_path / "sums.jsonl", rows)


@pytest.fixture
def tinies() -> dict:
    return {"tiny:llama": model("llama")}


def study(*tasks: Path, **values) -> Study:
    settings = {"models": ["tiny:llama"], "items": ITEMS, "decoding": {"max_new_tokens": 4}, **values}
    return Study.make(tasks=[str(task) for task in tasks], **settings)


def rows(folder: Path) -> dict[str, tuple]:
    with Store.read(folder) as store:
        frame = store.answers().set_index("key")
    return {key: tuple(row) for key, row in zip(frame.index, frame.to_numpy().tolist(), strict=True)}


def test_every_item_is_asked_once_without_an_edit_and_once_under_each(sums, tinies, tmp_path):
    oracle, listener = Oracle(), Listener()
    outcome = run(study(sums), tmp_path / "out", watcher=listener, models=tinies, make_engine=oracle)
    cells = Counter((request.prompt, str(request.edit)) for request in oracle.asked)
    assert set(cells.values()) == {1}
    assert {edit for _, edit in cells} == {"baseline", "0×0", "1×0", "2×0"}
    # `<s>` and one token a character: the prompts are the questions as they stand.
    spelt = {tuple(tokenizer()(f"{n} + 1 =").input_ids) for n in range(ITEMS + 3)}
    asked = {prompt for prompt, _ in cells}
    assert len(asked) == ITEMS
    assert asked <= spelt
    assert len({request.key for request in oracle.asked}) == CELLS
    assert (outcome.evaluated, outcome.planned, listener.count) == (CELLS, CELLS, CELLS)
    assert listener.begun == [("tiny:llama", CELLS // 4, 0), ("tiny:llama", CELLS, CELLS // 4)]  # the baseline first


def test_only_the_rows_that_are_missing_are_asked_again(sums, tinies, tmp_path):
    first = run(study(sums), tmp_path / "out", models=tinies, make_engine=Oracle())
    before = rows(tmp_path / "out")
    lost = sorted(before)[::5]
    with sqlite3.connect(tmp_path / "out" / "answers.sqlite") as database:
        database.executemany("DELETE FROM answers WHERE key = ?", [(key,) for key in lost])
    database.close()
    oracle = Oracle()
    second = run(study(sums), tmp_path / "out", models=tinies, make_engine=oracle)
    assert sorted(request.key for request in oracle.asked) == lost
    assert second.summary == first.summary
    assert rows(tmp_path / "out") == before


@pytest.mark.parametrize("death", [RuntimeError("no more"), KeyboardInterrupt(), LesionError("no memory")])
@pytest.mark.parametrize("lives", [0, 1, 10, CELLS - 1])
def test_when_the_engine_dies_no_answer_is_lost_and_the_next_run_completes_the_study(
    lives, death, sums, tinies, tmp_path
):
    whole = run(study(sums), tmp_path / "whole", models=tinies, make_engine=Oracle())
    with pytest.raises(type(death)):
        run(study(sums), tmp_path / "out", models=tinies, make_engine=Oracle(lives, death))
    assert len(rows(tmp_path / "out")) == lives
    oracle = Oracle()
    rest = run(study(sums), tmp_path / "out", models=tinies, make_engine=oracle)
    assert (rest.evaluated, len(oracle.asked)) == (CELLS - lives, CELLS - lives)
    assert rest.summary.text() == whole.summary.text()
    assert rows(tmp_path / "out") == rows(tmp_path / "whole")


def test_answers_are_stored_while_the_engine_still_works(sums, tinies, tmp_path, monkeypatch):
    monkeypatch.setattr("lesion.core.inference.COMMIT_EVERY", 0.0)
    seen = []

    class Looking(Oracle):
        def say(self, request):
            seen.append(len(rows(tmp_path / "out")))  # another connection: it sees what would survive a kill
            return super().say(request)

    run(study(sums), tmp_path / "out", models=tinies, make_engine=Looking())
    assert seen == list(range(CELLS))


def test_a_study_that_has_only_begun_says_what_is_missing(sums, tinies, tmp_path):
    with pytest.raises(RuntimeError):
        run(study(sums), tmp_path / "out", models=tinies, make_engine=Oracle(3))
    _, summary, answers, _ = recall(tmp_path / "out")
    assert len(answers) == 3
    assert [entry.tasks for entry in summary.models] == [()]
    assert summary.notes == (f"tiny:llama has not answered all items of {sums} without an edit yet.",)


def test_level_and_title_may_change_between_runs_and_the_folder_remembers_the_last(sums, tinies, tmp_path):
    wide = run(study(sums), tmp_path / "out", models=tinies, make_engine=Oracle()).summary
    changed = study(sums, level=0.5, title="Narrow")
    narrow = run(changed, tmp_path / "out", models=tinies, make_engine=Oracle(0)).summary
    assert recall(tmp_path / "out")[1] == narrow
    assert (narrow.study.level, narrow.study.title) == (0.5, "Narrow")
    for before, after in zip(wide.models[0].tasks, narrow.models[0].tasks, strict=True):
        assert before.baseline.accuracy.low < after.baseline.accuracy.low < after.baseline.accuracy.high


def test_a_layer_outside_the_model_costs_nothing_the_corrected_study_may_use_the_folder(sums, tinies, tmp_path):
    oracle = Oracle()
    with pytest.raises(UsageError, match="no block 3: tiny:llama has blocks 0 to 2"):
        run(study(sums, edits={"layers": "1-3"}), tmp_path / "out", models=tinies, make_engine=oracle)
    assert oracle.asked == []
    outcome = run(study(sums, edits={"layers": "1-2"}), tmp_path / "out", models=tinies, make_engine=oracle)
    assert outcome.evaluated == 3 * ITEMS
    assert len(recall(tmp_path / "out")[3]) == ITEMS


def test_of_more_items_than_there_are_all_are_used_with_a_note(sums, tinies, tmp_path):
    listener = Listener()
    whole = run(study(sums, items=500), tmp_path / "out", models=tinies, make_engine=Oracle(), watcher=listener)
    there = run(study(sums, items="all"), tmp_path / "all", models=tinies, make_engine=Oracle())
    assert whole.summary.models == there.summary.models
    assert listener.notes[0].endswith("sums.jsonl has 10 items, fewer than the 500 asked for; all of them are used.")


def test_a_prompt_longer_than_the_context_names_its_item_before_anything_is_asked(tinies, tmp_path):
    long = write(tmp_path / "long.jsonl", [{"id": "epic", "prompt": "so " * 100, "answer": "right"}])
    oracle = Oracle()
    with pytest.raises(LesionError, match=r"Item epic of .*long\.jsonl is too long for tiny:llama.*301 tokens.*256"):
        run(study(long, items=1), tmp_path / "out", models=tinies, make_engine=oracle)
    assert oracle.asked == []


def test_answers_that_may_meet_the_end_of_the_context_are_noted_and_count_as_truncated(tinies, tmp_path):
    lengths = {"short": 10, "long": 252, "longest": 255}
    task = write(
        tmp_path / "task.jsonl",
        ({"id": name, "prompt": "x" * n, "answer": "y", "judge": "contains"} for name, n in lengths.items()),
    )
    listener = Listener()
    outcome = run(study(task, items="all"), tmp_path / "out", watcher=listener, models=tinies)
    # Behind `<s>` and 252 or 255 characters four tokens fit or one; four are asked for.
    note = (
        f"{task}: behind its longest prompt the context of tiny:llama (256 tokens) has room for 1 token, and"
        " --max-new-tokens is 4; an answer would count as truncated if it got so long."
    )
    assert listener.notes[:1] == [note]
    # Also on the page, and where nothing is left to answer.
    assert note in outcome.notes
    again = run(study(task, items="all"), tmp_path / "out", models=tinies)
    assert note in again.notes
    assert note.replace(str(task), "task") in html(again.page())
    answers = recall(outcome.folder)[2]
    for item, most in {"short": 4, "long": 4, "longest": 1}.items():
        of_item = answers[answers["item"] == item]
        assert of_item["tokens"].max() <= most
        assert set(of_item["finish"][of_item["tokens"] < most]) <= {"stop"}
        assert set(of_item["finish"][of_item["tokens"] == most]) <= {"stop", "length"}
    assert "length" in set(answers["finish"][answers["item"] == "longest"])


def test_logits_that_are_not_finite_are_noted_per_edit_and_the_study_goes_on(sums, tinies, tmp_path):
    edits = {"layers": [0, 2], "factor": 3e38}
    outcome = run(study(sums, edits=edits), tmp_path / "out", models=tinies)
    assert outcome.evaluated == 3 * ITEMS
    task = outcome.summary.models[0].tasks[0]
    assert task.baseline.nonfinite == 0
    assert [entry.nonfinite for entry in task.cells] == [1, 1]
    assert [note for note in outcome.summary.notes if "not finite" in note] == [
        f"tiny:llama, {sums}, edit {layer}×3e+38: {ITEMS} answers broken off because logits were not finite, and"
        " counted as wrong."
        for layer in (0, 2)
    ]


def test_weights_that_are_not_finite_are_told_before_anything_is_asked_and_stay_in_the_notes(sums, tmp_path):
    network = tiny("llama")
    with torch.no_grad():
        network.model.layers[1].input_layernorm.weight[3] = float("nan")
    told = []

    class Noting(Silent):
        def note(self, text):
            told.append(text)

        def answered(self, count):
            told.append(count)

    models = {"tiny:llama": wrap(network, tokenizer(), "tiny:llama")}
    outcome = run(study(sums, items="all", edits={"layers": [0]}), tmp_path / "out", models=models, watcher=Noting())
    complaint = (
        "tiny:llama has 1 tensor with values that are not finite: model.layers.1.input_layernorm.weight (1 NaN of 32)."
    )
    assert told[0] == outcome.summary.notes[0] == recall(tmp_path / "out")[1].notes[0] == complaint
    assert told.count(complaint) == 1


def test_an_answer_that_was_broken_off_is_wrong_whatever_it_said(sums, tinies, tmp_path):
    class Broken(Oracle):
        def say(self, request):
            return Answer("right", 1, "nonfinite")

    outcome = run(study(sums), tmp_path / "out", models=tinies, make_engine=Broken())
    assert outcome.summary.models[0].tasks[0].baseline.accuracy.value == 0


def test_how_often_guessing_is_right_is_known_from_the_folder_alone(sums, tinies, tmp_path):
    choices = ["dog", "a cat", "7", "8"]
    rows = [{"id": f"{n}", "prompt": f"{n} is a", "answer": choices[n % 4], "choices": choices} for n in range(6)]
    task = write(tmp_path / "choices.jsonl", rows)
    run(study(sums, task, items=6), tmp_path / "out", models=tinies, make_engine=Oracle())
    _, summary, _, _ = recall(tmp_path / "out")
    assert [result.guessing for result in summary.models[0].tasks] == [0, 1 / len(choices)]


def test_an_engine_that_loses_choices_is_found_out(tinies, tmp_path):
    task = write(tmp_path / "c.jsonl", [{"id": "1", "prompt": "a", "answer": "b", "choices": ["b", "c"]}])

    class Forgetful(Oracle):
        def say(self, request):
            return Answer("b", 0, "stop", scores=(1.0,))

    with pytest.raises(LesionError, match="1 scores for 2 choices of 1"):
        run(study(task, items="all"), tmp_path / "out", models=tinies, make_engine=Forgetful())


def test_a_model_that_cannot_be_loaded_keeps_the_answers_of_those_before_it(sums, tinies, tmp_path):
    tiny("gpt2").config.save_pretrained(tmp_path / "absent")  # a config, and nothing that it speaks of
    both = study(sums, models=["tiny:llama", str(tmp_path / "absent")])
    with pytest.raises(LesionError, match="cannot be read"):
        run(both, tmp_path / "out", models=tinies, make_engine=Oracle())
    _, summary, answers, _ = recall(tmp_path / "out")
    assert len(answers) == CELLS
    assert [len(entry.tasks) for entry in summary.models] == [1, 0]
    oracle = Oracle()
    known = {**tinies, str(tmp_path / "absent"): wrap(tiny("gpt2"), tokenizer(), "absent")}
    outcome = run(both, tmp_path / "out", models=known, make_engine=oracle)
    assert (outcome.evaluated, outcome.planned) == (CELLS, 2 * CELLS)


def test_weights_or_items_that_changed_between_two_runs_are_never_mixed(sums, tinies, tmp_path):
    run(study(sums), tmp_path / "out", models=tinies, make_engine=Oracle())
    other = {"tiny:llama": wrap(tiny("mistral"), tokenizer(), "tiny:llama")}
    with pytest.raises(LesionError, match=r"weights of tiny:llama are not those .*--out"):
        run(study(sums), tmp_path / "out", models=other, make_engine=Oracle(0))
    sums.write_text(sums.read_text().replace("+ 1", "+ 2"))
    with pytest.raises(LesionError, match=r"reads differently .* data has changed.*--out"):
        run(study(sums), tmp_path / "out", models=tinies, make_engine=Oracle(0))
    assert len(rows(tmp_path / "out")) == CELLS


def test_tasks_may_differ_in_items_limit_stop_and_style(tinies, tmp_path):
    first, second = (questions(tmp_path / f"{name}.jsonl", 9) for name in ("first", "second"))
    oracle = Oracle()
    tasks = [str(first), {"name": str(second), "items": 2, "max_new_tokens": 9, "stop": ["#"], "prompt_style": "plain"}]
    mixed = Study.make(models=["tiny:llama"], tasks=tasks, items=4, decoding={"max_new_tokens": 3}, edits={"layers": 0})
    run(mixed, tmp_path / "out", models=tinies, make_engine=oracle)
    asked = Counter((r.decoding.max_new_tokens, r.decoding.stop, 4 if len(r.prompt) < 12 else 2) for r in oracle.asked)
    assert asked == {(3, ("\n",), 4): 2 * 4, (9, ("#",), 2): 2 * 2}


def test_answers_that_were_sampled_in_another_way_are_never_mixed_with_those_of_today(
    sums, tinies, tmp_path, monkeypatch
):
    sampled, greedy = study(sums, decoding={"temperature": 1.0}), study(sums)
    with monkeypatch.context() as patched:
        for module in ("lesion.core.inference", "lesion.engines.engine"):
            patched.setattr(f"{module}.SAMPLING", "another")
        run(sampled, tmp_path / "sampled", models=tinies)
        run(greedy, tmp_path / "greedy", models=tinies, make_engine=Oracle())
    with pytest.raises(LesionError, match=r"this version samples answers in another way.*--out"):
        run(sampled, tmp_path / "sampled", models=tinies, make_engine=Oracle())
    assert all(" another max=" in row["decoding"] for row in recall(tmp_path / "sampled")[2].to_dict("records"))
    oracle = Oracle()
    run(greedy, tmp_path / "greedy", models=tinies, make_engine=oracle)
    assert oracle.asked == []


def test_sampling_is_seeded_by_the_study(sums, tinies, tmp_path):
    def texts(folder: str, seed: int) -> list[str]:
        sampled = study(sums, seed=seed, items="all", decoding={"temperature": 2.0, "max_new_tokens": 8})
        run(sampled, tmp_path / folder, models=tinies)
        return recall(tmp_path / folder)[2].sort_values(["edit", "item"])["text"].tolist()

    assert texts("a", 0) == texts("b", 0)
    assert texts("a", 0) != texts("c", 1)


def test_a_later_model_that_cannot_be_meant_is_told_before_the_first_is_asked(tmp_path):
    save(tmp_path / "three", "llama")
    file = questions(tmp_path / "q.jsonl", 3)
    for second, layers in ((str(tmp_path / "absent"), "all"), (str(tmp_path / "three"), "0-7")):
        study = Study.make(
            models=["bundled:llama-base", second], tasks=[str(file)], items="all", edits={"layers": layers}
        )
        with pytest.raises(UsageError):
            run(study, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_a_sample_of_a_file_of_ones_own_is_noted_with_how_to_take_all(tinies, tmp_path):
    task = write(tmp_path / "task.jsonl", ({"id": f"{n}", "prompt": "x", "answer": "y"} for n in range(5)))
    for items, notes in ((3, [f"{task} has 5 items, of which 3 are drawn; --items all takes all."]), ("all", [])):
        listener = Listener()
        run(study(task, items=items), tmp_path / "out", watcher=listener, models=tinies)
        assert [note for note in listener.notes if "drawn" in note] == notes
