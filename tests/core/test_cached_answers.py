"""A model evaluated in rounds: nothing twice, and every answer at hand as the store has it."""

import math
from pathlib import Path

import numpy as np
import pytest
from oracle import Listener
from searching import Known, Say, chance, contrasts, luck, questions, study

from commandline import write
from lesion.core.cached_answers import CachedAnswers, gold_of, gold_tasks
from lesion.core.inference import basis, item_digest
from lesion.core.row import Asked
from lesion.core.run import Evaluation, Run
from lesion.core.store import Store
from lesion.edits.edit import BASELINE, Truncate
from lesion.engines.engine import Response
from lesion.tasks.catalogue import draw, find
from lesion.tasks.task import Answer

EDIT = Truncate("0.mlp.up", 0.5)
CHOICES = ["yes", "no", "maybe"]


class Round:
    """A study of one file, its store, and its cached answers."""

    def __init__(self, file: Path, folder: Path, llama, engine) -> None:
        self.what = study(file)
        (self.choice,) = self.what.tasks
        self.tasks = {self.choice: find(self.choice.name)}
        self.items = draw(self.tasks[self.choice], None, 0)
        drawn = {self.choice: self.items}
        task = self.tasks[self.choice]
        asked = {self.choice.name: [Asked(item, item_digest(task, item)) for item in self.items]}
        self.store = Store.open(folder, basis(self.what), self.what.to_toml(), asked=asked)
        self.listener = Listener()
        run = Run.at(folder, "layers", self.listener, lambda *_: engine)
        self.evaluation = Evaluation(run, self.what, self.store, self.tasks, drawn)
        self.evaluation.ask(gold_tasks(self.tasks))
        self.cache = CachedAnswers(self.evaluation, self.what.model, llama)

    def evaluate(self, count: int | None = None, *, gold: bool = False) -> None:
        tasks = gold_tasks(self.tasks) if gold else self.tasks
        self.cache.evaluate(tasks, dict.fromkeys(tasks, self.items[:count]), [EDIT], "answers")


@pytest.fixture
def rounds(llama, tmp_path):
    made = []

    def make(engine, file=None) -> Round:
        file = file or questions(tmp_path / "q.jsonl", 12)
        made.append(Round(file, tmp_path / "out", llama, engine))
        return made[-1]

    yield make
    for work in made:
        work.store.close()


def test_a_round_evaluates_the_baseline_and_the_edits_and_the_next_only_what_is_new(rounds):
    engine = Known(chance(0))
    work = rounds(engine)
    work.evaluate(4)
    assert sorted({(edit, item) for edit, item, _ in engine.asked}) == sorted(
        (edit, item.id) for edit in ("baseline", str(EDIT)) for item in work.items[:4]
    )
    assert (work.evaluation.evaluated, len(work.cache.requested)) == (8, 8)
    work.evaluate(7)
    work.evaluate(7)
    assert len(engine.asked) == work.evaluation.evaluated == work.listener.count == len(work.store) == 14
    assert work.listener.begun == [("tiny:llama", 8, 0), ("tiny:llama", 14, 8)]


def test_answers_are_those_of_the_table_in_the_order_of_the_items(rounds):
    table = chance("order")
    work = rounds(Known(table))
    work.evaluate()
    work.evaluate(5, gold=True)
    for edit in (BASELINE, EDIT):
        some = list(reversed(work.items))
        answers = work.cache.answers(work.choice, some, edit)
        says = [table(str(edit), item.id) for item in some]
        assert answers.right.tolist() == [say.right for say in says]
        golds = [say.gold if item in work.items[:5] else math.nan for say, item in zip(says, some, strict=True)]
        np.testing.assert_array_equal(answers.gold, golds)
        assert answers.scores.shape == answers.ranks.shape == (12, 0)
        assert answers.labels == tuple(
            item.gold if say.right else f"no{item.id[1:]}" for say, item in zip(says, some, strict=True)
        )


def test_another_cache_of_the_same_folder_has_all_of_it(rounds):
    work = rounds(Known(chance("again")))
    work.evaluate()
    work.evaluate(gold=True)
    before = work.cache.answers(work.choice, work.items, EDIT)
    work.store.close()
    engine = Known(chance("another"))
    resumed = rounds(engine)
    resumed.evaluate()
    resumed.evaluate(gold=True)
    assert engine.asked == []
    after = resumed.cache.answers(resumed.choice, resumed.items, EDIT)
    assert (before.right == after.right).all()
    np.testing.assert_array_equal(before.gold, after.gold)
    assert before.labels == after.labels


def test_half_a_character_reads_the_same_before_and_after_it_was_stored(rounds, llama):
    class Broken(Known):
        def _say(self, kind, item, say):
            return Answer("\ud800" + item, 3, "stop")

    work = rounds(Broken(chance(0)))
    work.evaluate()
    before = work.cache.answers(work.choice, work.items, EDIT).labels
    work.store.close()
    assert rounds(Known(chance(0))).cache.answers(work.choice, work.items, EDIT).labels == before


def test_of_a_contrast_the_gold_answer_is_the_right_token_and_scores_and_ranks_are_kept(rounds, tmp_path):
    def table(edit, item):
        return Say(item != "i3", math.nan if item == "i5" else -luck(edit, item))

    work = rounds(Known(table), contrasts(tmp_path / "c.jsonl", 12))
    work.evaluate()
    answers = work.cache.answers(work.choice, work.items, EDIT)
    assert answers.scores.shape == answers.ranks.shape == (12, 2)
    for row, item in enumerate(work.items):
        say = table(str(EDIT), item.id)
        np.testing.assert_array_equal(answers.scores[row], [say.gold, say.gold - 0.5])
        np.testing.assert_array_equal(answers.gold[row], say.gold)
        expected = [0, 0] if item.id == "i5" else [1, 2] if say.right else [5, 1]
        assert answers.ranks[row].tolist() == expected
    np.testing.assert_array_equal(work.cache.golds(work.choice, work.items, EDIT), answers.gold)


def test_of_a_choice_the_gold_answer_is_the_right_one_among_those_scored(rounds, tmp_path):
    rows = [{"id": f"i{n}", "prompt": f"what is {n}?", "choices": CHOICES, "answer": CHOICES[n % 3]} for n in range(9)]

    class Choosing:
        def __call__(self, model, batch_size):
            return self

        def answer(self, requests):
            for number, request in enumerate(requests):
                scores = tuple(-luck(number, place) for place in range(len(request.choices)))
                yield Response(request.key, Answer("", 0, "stop", scores))

    work = rounds(Choosing(), write(tmp_path / "c.jsonl", rows))
    work.evaluate()
    stored = work.store.answers().set_index(["edit", "item"])["scores"]
    answers = work.cache.answers(work.choice, work.items, EDIT)
    for row, item in enumerate(work.items):
        scores = stored[str(EDIT), item.id]
        assert answers.gold[row] == scores[int(item.id[1:]) % 3]
        assert answers.right[row] == (max(scores) == answers.gold[row])


def test_a_log_probability_of_minus_infinity_is_none_before_and_after_it_was_stored(rounds):
    work = rounds(Known(lambda edit, item: Say(True, -math.inf)))
    work.evaluate(gold=True)
    assert np.isnan(work.cache.golds(work.choice, work.items, EDIT)).all()
    work.store.close()
    assert np.isnan(rounds(Known(chance(0))).cache.golds(work.choice, work.items, EDIT)).all()


def test_gold_answers_are_put_as_their_task_is_and_stored_under_a_name_of_their_own(rounds):
    engine = Known(chance(0))
    work = rounds(engine)
    work.evaluate(gold=True)
    assert {kind for _, _, kind in engine.asked} == {"gold"}
    assert set(work.store.answers()["task"]) == {gold_of(work.choice).name} == {f"gold:{work.choice.name}"}
    for item in work.items:
        assert work.cache.golds(work.choice, [item], EDIT)[0] == chance(0)(str(EDIT), item.id).gold
