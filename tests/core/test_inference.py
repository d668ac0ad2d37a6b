"""Inference: contrasts and gold answers from the name of a task to stored rows."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import tiny
from lesion.core.inference import PendingAnswer, _row, item_digest, pending_cells, prompt_notes
from lesion.core.store import Store
from lesion.core.study_file import TaskChoice
from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.engine import Decoding, Response
from lesion.errors import LesionError
from lesion.models.load import Model, load
from lesion.studies.ablation.study import Study
from lesion.tasks.catalogue import draw, find
from lesion.tasks.continuations import encode_contrast
from lesion.tasks.task import Answer
from oneencoding import contrasted
from runs import run_ablation
from tiny import model as tiny_model

ITEMS = 5


@pytest.fixture(scope="module")
def stories(shared) -> Model:
    return load(str(shared / "models/stories260K"), dtype="float32")


def logits(model: Model, text: str | list[int], edit) -> np.ndarray:
    """One plain pass over a text or ids: float64 log-probabilities [length, vocabulary]."""
    ids = torch.tensor([model.tokenizer(text)["input_ids"] if isinstance(text, str) else text])
    with applied(model, edit), torch.inference_mode():
        return model.network(ids).logits[0].double().log_softmax(-1).numpy()


def answers(stories: Model, task: str, folder):
    study = Study.make(models=["m"], tasks=[task], items=ITEMS, edits={"layers": "0,4"})
    outcome = run_ablation(study, folder, models={"m": stories})
    with Store.read(folder) as store:
        return outcome, store.answers()


@pytest.mark.parametrize(
    "task", ["ioi", "facts", "ioi:{data}/ioi/ioi.json", "facts:{data}/counterfact/known_1000.json"]
)
def test_a_contrast_is_stored_with_its_log_probabilities_and_ranks_and_is_right_at_rank_1(
    stories, shared, tmp_path, task
):
    name = task.format(data=shared / "data")
    outcome, rows = answers(stories, name, tmp_path)
    items = {item.id: item for item in draw(find(name), ITEMS, 0)}
    assert len(rows) == ITEMS * 3
    assert outcome.summary.models[0].tasks[0].items == ITEMS
    for row in rows.itertuples():
        item = items[row.item]
        edit = BASELINE if row.edit == "baseline" else ScaleBlock(int(row.edit[0]))
        prompt, ids = contrasted(stories.tokenizer, item.question, item.choices)
        contrast = encode_contrast(stories, find(name), item, "raw")
        assert (list(contrast.prompt), contrast.tokens[0]) == (prompt, ids[0])
        assert set(contrast.tokens) <= set(ids)
        log = logits(stories, prompt, edit)[-1]
        texts = [
            math.fsum(
                logits(stories, [*prompt, *text], edit)[len(prompt) - 1 + place, token]
                for place, token in enumerate(text)
            )
            for text in contrast.whole
        ]
        assert row.scores == pytest.approx([*(log[i] for i in contrast.tokens), *texts], abs=1e-3)
        assert row.ranks == tuple(int((log > log[i]).sum()) + 1 for i in contrast.tokens)
        assert row.correct == (row.ranks[0] == 1)
        assert row.parsed == stories.tokenizer.decode([int(log.argmax())]).strip()
        assert (row.tokens, row.finish, row.prompt_style, row.gold) == (0, "stop", "raw", item.gold)


def test_a_gold_answer_is_stored_with_the_log_probability_of_all_its_tokens(stories, tmp_path):
    _, rows = answers(stories, "gold:fewshot:1:facts", tmp_path)
    items = {item.id: item for item in draw(find("fewshot:1:facts"), ITEMS, 0)}
    for row in rows.itertuples():
        item = items[row.item]
        edit = BASELINE if row.edit == "baseline" else ScaleBlock(int(row.edit[0]))
        prompt = f"{item.shots[0][0]} {item.shots[0][1]}\n\n{item.question}"
        ids = stories.tokenizer(f"{prompt} {item.gold}")["input_ids"]
        before = len(stories.tokenizer(prompt)["input_ids"])
        log = logits(stories, f"{prompt} {item.gold}", edit)
        assert row.scores == pytest.approx([math.fsum(log[i - 1, ids[i]] for i in range(before, len(ids)))], abs=1e-3)
        assert (row.tokens, row.text, row.ranks, row.correct) == (len(ids) - before, "", (), True)


def test_gold_and_task_ask_the_same_items_under_one_seed():
    for name in ("primer:reading", "ioi", "facts"):
        ids = [[item.id for item in draw(find(before + name), 20, 3)] for before in ("", "gold:", "shuffled:")]
        assert ids[0] == ids[1] == ids[2]


def test_an_item_without_a_tempting_token_stops_the_run_before_anything_is_asked(stories, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": "seven", "prompt": "Once upon", "answer": "a time", "tempting": "a"}', encoding="utf-8")
    study = Study.make(models=["m"], tasks=[str(path)], items="all")
    with pytest.raises(LesionError, match=r"item seven .* has no tempting token apart from the right one"):
        run_ablation(study, tmp_path / "out", models={"m": stories})


def cell(task: str) -> PendingAnswer:
    found = find(task)
    return PendingAnswer(found, TaskChoice(name=task), found.load()[0], BASELINE, "raw", Decoding(1), (5,), (), (6, 7))


def test_an_engine_that_gives_too_few_ranks_is_found_out():
    model = tiny.model("llama")
    with pytest.raises(LesionError, match="2 scores and 1 ranks for 2 tokens"):
        _row(model, "m", cell("ioi"), Response("k", Answer(" the", scores=(-1.0, -2.0), ranks=(1,))))
    row = _row(model, "m", cell("ioi"), Response("k", Answer("", 0, "nonfinite", (math.nan, math.nan))))
    assert (row.correct, row.parsed, row.ranks) == (False, None, ())


def test_only_generated_answers_meet_the_end_of_the_context(stories):
    assert list(prompt_notes(stories, [cell("ioi")])) == []


def test_questions_that_repeat_and_characters_that_the_tokenizer_does_not_know_are_noted(tmp_path):
    model = tiny_model("llama")
    path = tmp_path / "sums.jsonl"
    questions = ["1+1=", "1+1=", "2+2=", "2 ÷ 2 ="]
    path.write_text("".join(json.dumps({"prompt": text, "answer": "2"}) + "\n" for text in questions), encoding="utf-8")
    choice = TaskChoice(name=str(path))
    task = find(choice.name)
    study = Study.make(models=["m"], tasks=[choice.name])
    cells = pending_cells(study, study.models[0], model, {choice: task}, {choice: task.load()}, [ScaleBlock(0)])
    repeated, unknown = prompt_notes(model, cells.values())
    assert repeated.startswith(f"{path}: 4 items have 3 different questions")
    assert unknown.startswith(f"{path}: 1 prompts hold characters that the tokenizer of")
    assert "'<unk>'" in unknown


def test_items_whose_two_names_begin_alike_are_counted(stories, tmp_path):
    names = [("Mark", "Mary"), ("Mary", "John"), ("Bob", "Beth")]
    rows = [
        {"prompt": f"{a} and {b} met, and {b} gave a pen to", "answer": a, "case_id": n}
        for n, (a, b) in enumerate(names)
    ]
    path = tmp_path / "ioi.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    choice, alike = TaskChoice(name=f"ioi:{path}"), set()
    task = find(choice.name)
    study = Study.make(models=["m"], tasks=[choice.name])
    cells = pending_cells(study, study.models[0], stories, {choice: task}, {choice: task.load()}, [ScaleBlock(0)])
    for a, b in names:
        firsts = contrasted(stories.tokenizer, "She gave a pen to", (a, b))[1]
        alike |= {a} if firsts[0] == firsts[1] else set()
    assert {cell.item.gold for cell in cells.values() if cell.alike} == alike == {"Mark", "Bob"}
    (note,) = prompt_notes(stories, cells.values())
    assert note.startswith(f"{choice.name}: in 2 of 3 items the right name and the one that stands twice begin with")


def test_the_digest_of_an_item_has_its_shots_and_all_that_judges_an_answer():
    few, many = (find(f"fewshot:{count}:facts") for count in (1, 2))
    plain = find("facts")
    digests = {item_digest(task, task.load()[0]) for task in (plain, few, many)}
    assert len(digests) == 3
    item = plain.load()[0]
    changes = ({"gold": "?"}, {"aliases": ("?",)}, {"choices": ("?",)}, {"solution": "?"}, {"metadata": {"judge": "?"}})
    changed = {item_digest(plain, replace(item, **change)) for change in changes}
    assert len(changed) == len(changes)
    assert item_digest(plain, item) not in changed
    assert item_digest(plain, replace(item)) == item_digest(plain, item)
