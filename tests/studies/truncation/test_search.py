"""A search chooses on validation items alone, and rolls back what does not help."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from scipy.stats import spearmanr
from searching import (
    COUNT,
    Known,
    Say,
    accuracy,
    chance,
    contrasts,
    log_probability,
    luck,
    order,
    questions,
    rival,
    study,
    validation,
)

from commandline import write
from lesion.core.study_file import TaskChoice
from lesion.edits.text import parse
from lesion.studies.truncation.search import split
from lesion.tasks.catalogue import find
from runs import run_truncation
from tiny import model

LAYERS = (0, 1, 2)
EDITS = [f"{layer}.mlp.up top {keep}" for layer in LAYERS for keep in (0.5, 0.25)]


def best_by_hand(table, items, edits=EDITS):
    """The edit with the most items right; of those the likeliest gold answers; of those the one that keeps most."""
    ranked = max(
        edits,
        key=lambda edit: (accuracy(table, edit, items), log_probability(table, edit, items), float(edit.split()[-1])),
    )
    return ranked if accuracy(table, ranked, items) > accuracy(table, "baseline", items) else None


# -- choosing


@pytest.mark.parametrize("seed", range(12))
def test_chosen_is_what_has_most_validation_items_right_if_that_is_more_than_the_unedited_model(search, seed):
    table = chance(seed)
    summary = search(table, seed=seed)
    assert summary.chosen == best_by_hand(table, validation(seed))
    for cell in summary.cells:
        assert cell.score == pytest.approx(accuracy(table, cell.edit, validation(seed)))
        (outcome,) = cell.outcomes
        assert outcome.gold == pytest.approx(log_probability(table, cell.edit, validation(seed)))


def test_test_items_never_change_the_choice(search):
    ahead = set(validation(0))
    chosen = set()
    for luckless in range(6):

        def table(edit, item, other=luckless):
            known = chance(3)(edit, item)
            return known if item in ahead else Say(luck(other, edit, item) < 0.5, -luck(other, edit, item))

        summary = search(table, compose=True)
        chosen.add((summary.chosen, str([step.edit for step in summary.path])))
    assert len(chosen) == 1


def test_validation_is_the_first_fifth_of_the_draw_and_test_is_all_the_rest(search):
    engine = Known(chance(0))
    summary = search(None, engine, seed=5)
    ahead, chosen = validation(5), summary.best
    asked = {edit: {item for e, item, kind in engine.asked if e == edit} for edit in engine.edits}
    for edit in EDITS:
        assert asked[edit] == (set(order(5)) if edit == chosen else set(ahead))
    assert asked["baseline"] == set(order(5))
    (task,) = summary.tasks
    assert (task.validation_items, task.test_items) == (len(ahead), COUNT - len(ahead)) == (6, 24)
    assert validation(5) != validation(6)


def test_of_two_edits_with_as_many_right_the_one_with_the_likelier_gold_answers_is_chosen(search):
    golds = {EDITS[2]: -1.0, EDITS[4]: -0.5}
    summary = search(lambda edit, item: Say(edit in golds, golds.get(edit, -0.1)))
    assert summary.chosen == EDITS[4]


def test_of_two_edits_that_are_equal_in_both_the_one_that_keeps_more_is_chosen_and_then_the_first(search):
    summary = search(lambda edit, item: Say(edit in EDITS[1:5]))
    assert summary.chosen == EDITS[2]  # 1.mlp.up top 0.5, before 2.mlp.up top 0.5


@pytest.mark.parametrize("gold", [-9.0, -1.0, -0.001])
def test_an_edit_with_no_more_items_right_is_not_chosen_whatever_its_log_probabilities(search, tmp_path, gold):
    summary = search(lambda edit, item: Say(True, -1.0 if edit == "baseline" else gold))
    assert (summary.chosen, summary.path, summary.composed) == (None, (), None)
    assert summary.nothing == "No edit is better than the unedited model on the validation items."
    assert summary.best == EDITS[0]
    assert not list(tmp_path.glob("*/best.edit"))


def test_by_log_probability_the_likeliest_gold_answers_are_chosen(search):
    table = chance("gold", 0.9)
    summary = search(table, objective="gold")
    by_hand = max(EDITS, key=lambda edit: log_probability(table, edit, validation(0)))
    assert log_probability(table, by_hand, validation(0)) > log_probability(table, "baseline", validation(0))
    assert summary.chosen == by_hand
    assert summary.by_edit[summary.best].score == pytest.approx(log_probability(table, by_hand, validation(0)))


def test_of_several_tasks_the_mean_of_their_accuracies_counts_however_many_items_each_has(llama, tmp_path):
    first, second = questions(tmp_path / "a.jsonl", 10), questions(tmp_path / "b.jsonl")
    ahead = {"a": validation(0, count=10), "b": validation(0)}
    assert (len(ahead["a"]), len(ahead["b"])) == (2, 6)
    # Items of both files read the same, so an edit is right on an item in both.
    table = chance("several")
    what = study(first).model_copy(update={"tasks": (*study(first).tasks, *study(second).tasks)})
    summary = run_truncation(what, tmp_path / "out", model=llama, make_engine=Known(table)).summary

    def score(edit):
        return (accuracy(table, edit, ahead["a"]) + accuracy(table, edit, ahead["b"])) / 2

    assert {cell.edit: cell.score for cell in summary.cells} == pytest.approx({e: score(e) for e in EDITS})
    assert [test.task for test in summary.best_tests] == [str(first), str(second)]


# -- log-probabilities that are no numbers


@pytest.mark.parametrize("objective", ["accuracy", "gold"])
@pytest.mark.parametrize("screen", ["none", {"best": 2, "random": 1}])
def test_an_edit_that_breaks_the_network_is_never_chosen(search, objective, screen):
    def table(edit, item):
        broken = edit in (EDITS[1], EDITS[3])
        return Say(not broken and luck(edit, item) < 0.6, math.nan if broken else -luck(edit, item))

    summary = search(table, objective=objective, screen=screen)
    assert summary.best not in (EDITS[1], EDITS[3])
    for cell in summary.cells:
        if cell.edit in (EDITS[1], EDITS[3]) and cell.outcomes:
            assert cell.outcomes[0].gold is None
            assert cell.score == (0.0 if objective == "accuracy" else None)


@pytest.mark.parametrize("objective", ["accuracy", "gold"])
def test_where_all_is_broken_nothing_is_better_and_nothing_fails(search, objective):
    summary = search(lambda edit, item: Say(False, math.nan), objective=objective, screen={"best": 2, "random": 1})
    assert summary.chosen is None


def test_contrasts_that_are_not_finite_are_wrong_and_told_as_missing(search, tmp_path):
    def table(edit, item):
        return Say(True, math.nan if edit != "baseline" and item in order(0)[:2] else -1.0)

    summary = search(table, task=contrasts(tmp_path / "c.jsonl"))
    assert summary.chosen is None
    assert {cell.score for cell in summary.cells} == {4 / 6}


# -- labels


def test_an_edit_under_which_the_model_always_says_the_same_is_never_chosen_and_is_reported(search, tmp_path):
    rows = ({"id": f"i{n}", "prompt": f"what is {n}?", "answer": "yes" if n % 2 else "no"} for n in range(COUNT))
    task = write(tmp_path / "labels.jsonl", rows)
    ahead = validation(0)
    yes = [item for item in ahead if int(item[1:]) % 2]

    def table(edit, item):
        # One edit says "yes" always and is right wherever that is; another is right on one item more than nothing.
        return Say(item in (yes if edit == EDITS[1] else yes[:1] if edit == EDITS[4] else ()))

    class Labels(Known):
        def _say(self, kind, item, say):
            answer = super()._say(kind, item, say)
            text = "yes" if int(item[1:]) % 2 else "no"
            if self.asked[-1][0] == EDITS[1]:
                text = "yes"
            elif not say.right:
                text = f"maybe {item}"
            return answer if kind == "gold" else replace(answer, text=text)

    assert len(yes) > 1
    summary = search(None, Labels(table), task=task)
    cells = summary.by_edit
    assert cells[EDITS[1]].score > cells[EDITS[4]].score
    (outcome,) = cells[EDITS[1]].outcomes
    assert (outcome.label, outcome.label_share, outcome.collapsed) == ("yes", 1.0, True)
    assert not cells[EDITS[4]].outcomes[0].collapsed
    assert summary.chosen == EDITS[4]


class Labelled(Known):
    """Says what a table of edit and item says, of a file whose right answers are labels."""

    def __init__(self, words):
        super().__init__(lambda edit, item: Say(True))
        self.words = words

    def _say(self, kind, item, say):
        answer = super()._say(kind, item, say)
        return answer if kind == "gold" else replace(answer, text=self.words(self.asked[-1][0], item))


def labelled(file, rare):
    """Questions whose answer is `common`, of some items `rare`."""
    rows = (
        {"id": f"i{n}", "prompt": f"what is {n}?", "answer": "rare" if f"i{n}" in rare else "common"}
        for n in range(COUNT)
    )
    return write(file, rows)


def test_an_edit_that_trades_one_label_for_another_is_not_chosen(search, tmp_path):
    """The unedited model is collapsed too: that is no licence for an edit with a label that is right more often."""
    task = labelled(tmp_path / "labels.jsonl", order(0)[::2])
    summary = search(
        None, Labelled(lambda edit, item: "rare" if edit in EDITS[:2] else "never"), task=task, validation=0.5
    )
    cells = summary.by_edit
    assert cells[EDITS[0]].score > 0.5
    assert [cells[edit].outcomes[0].collapsed for edit in EDITS] == [True, True, False, False, False, False]
    assert summary.chosen is None
    assert summary.best not in EDITS[:2]


def test_an_edit_that_says_the_most_frequent_right_answer_always_is_not_chosen(search, tmp_path):
    """However frequent: of 15 validation items 13 have it."""
    task = labelled(tmp_path / "labels.jsonl", order(0)[:2])
    words = lambda edit, item: "common" if edit == EDITS[3] else f"what {item}"  # noqa: E731
    summary = search(None, Labelled(words), task=task, validation=0.5)
    cells = summary.by_edit
    assert cells[EDITS[3]].score == pytest.approx(13 / 15)
    assert cells[EDITS[3]].outcomes[0].collapsed
    assert summary.chosen is None


def test_where_the_unedited_model_gives_a_label_as_often_an_edit_may_too(search, tmp_path):
    task = labelled(tmp_path / "labels.jsonl", ())
    wrong = validation(0, 0.5)[0]
    words = lambda edit, item: "common" if edit == EDITS[3] or item != wrong else "what"  # noqa: E731
    summary = search(None, Labelled(words), task=task, validation=0.5)
    assert summary.chosen == EDITS[3]
    assert not summary.best_tests[0].collapsed


def test_where_every_edit_ends_in_one_label_that_is_why_nothing_was_chosen(search):
    summary = search(lambda edit, item: Say(edit == "baseline", -1.0, "the"))
    assert (summary.chosen, summary.best) == (None, None)
    assert summary.nothing == (
        "Under every edit the model gives one answer to nearly all items, and the unedited model does not."
    )


# -- composition


def test_a_composition_adds_matrix_by_matrix_what_helps_and_goes_back_from_what_does_not(search):
    """Edits of blocks 0 and 2 help together; that of block 1 helps alone and harms them."""
    ahead = validation(0)

    def right(edit: str) -> int:
        parts = {part.split(".")[0] for part in edit.split(" + ") if part != "baseline"}
        if edit != "baseline" and not all(part.endswith("0.5") for part in edit.split(" + ")):
            return 1
        return {"": 1, "0": 4, "1": 3, "2": 2, "01": 3, "02": 5, "012": 4}["".join(sorted(parts))]

    engine = Known(lambda edit, item: Say(item in ahead[: right(edit)] or item not in ahead))
    summary = search(None, engine, compose=True)
    path = summary.path
    first, second, third = EDITS[0], EDITS[2], EDITS[4]
    assert [(step.added, step.edit, step.accepted) for step in path] == [
        (first, first, True),
        (second, f"{first} + {second}", False),
        (third, f"{first} + {third}", True),
    ]
    assert [step.after.accuracy for step in path] == pytest.approx([4 / 6, 3 / 6, 5 / 6])
    assert [step.before.accuracy for step in path] == pytest.approx([1 / 6, 4 / 6, 4 / 6])
    assert path[1].reason == "not better, rolled back"
    assert summary.composed == f"{first} + {third}"
    # Nothing of what was rolled back is in anything that was asked later.
    later = engine.asked[max(i for i, (edit, _, _) in enumerate(engine.asked) if edit == path[1].edit) + 1 :]
    assert later
    assert not any(second in edit for edit, _, _ in later)
    assert {edit for edit, _, _ in later if not rival(edit)} == {f"{first} + {third}", first, "baseline"}


def test_what_is_saved_is_the_composition_and_its_parts_are_those_that_were_accepted(llama, file, tmp_path):
    from lesion.edits.files.artefact import read_edit

    good = {EDITS[0]: 2, EDITS[4]: 1}
    ahead = validation(0)

    def table(edit, item):
        return Say(item in ahead[: 1 + sum(good.get(part, 0) for part in edit.split(" + "))])

    out = tmp_path / "out"
    summary = run_truncation(study(file, compose=True), out, model=llama, make_engine=Known(table)).summary
    assert summary.composed == f"{EDITS[0]} + {EDITS[4]}"
    assert read_edit(out / "best.edit").edit == parse(f"{EDITS[0]} + {EDITS[4]}")
    assert summary.chosen == EDITS[0]


def test_after_a_rollback_a_real_model_answers_as_it_did_before(llama, tmp_path):
    """What was rolled back is no longer in force: the accepted edit is asked anew, and says what it said."""
    task = contrasts(tmp_path / "c.jsonl", 12)
    from lesion.core.store import Store
    from lesion.engines.transformers.engine import TransformersEngine

    what = study(task, matrices="all", side="both", compose=True, objective="gold", validation=0.5)
    summary = run_truncation(what, tmp_path / "out", model=llama).summary
    path = summary.path
    assert {step.accepted for step in path} == {True, False}
    with Store.read(tmp_path / "out") as store:
        frame = store.answers(task=str(task)).set_index(["edit", "item"])
    fresh = model("llama")
    assert all(
        (fresh.network.state_dict()[name] == tensor).all() for name, tensor in llama.network.state_dict().items()
    )
    again = run_truncation(
        what.model_copy(update={"compose": False}), tmp_path / "again", model=fresh, make_engine=TransformersEngine
    ).summary
    with Store.read(tmp_path / "again") as store:
        before = store.answers(task=str(task)).set_index(["edit", "item"])
    for edit in {"baseline", again.chosen}:
        for item in frame.loc[edit].index:
            assert frame.loc[edit, item]["scores"] == pytest.approx(before.loc[edit, item]["scores"], abs=1e-4)
            assert frame.loc[edit, item]["ranks"] == before.loc[edit, item]["ranks"]


# -- the screen


def test_a_screen_keeps_the_best_and_some_others_and_generates_nothing_for_the_rest(search):
    keep = [0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    edits = [f"{layer}.mlp.up top {one}" for layer in LAYERS for one in keep]
    table, ahead = chance("screen"), validation(0)
    by_gold = sorted(edits, key=lambda edit: -log_probability(table, edit, ahead))
    drawn = set()
    for _ in range(2):
        engine = Known(table)
        summary = search(None, engine, keep=keep, screen={"best": 4, "random": 3})
        answered = {edit for edit, _, kind in engine.asked if kind == "answer" and edit != "baseline"}
        generated = {edit for edit in answered if not rival(edit)}
        scored = {edit for edit, _, kind in engine.asked if kind == "gold"}
        assert scored >= set(edits)
        assert set(by_gold[:4]) <= generated
        assert len(generated) == 7
        drawn.add(frozenset(generated))
        screen = summary.screen
        assert (screen.items, screen.best, screen.random, screen.evaluated) == ("all", 4, 3, 7)
        baseline = log_probability(table, "baseline", ahead)
        cells = summary.by_edit
        for edit in edits:
            assert cells[edit].screen == pytest.approx(log_probability(table, edit, ahead) - baseline)
            assert (cells[edit].score is not None) == bool(cells[edit].outcomes) == (edit in generated)
        both = sorted(generated)
        expected = spearmanr(
            [log_probability(table, edit, ahead) for edit in both], [accuracy(table, edit, ahead) for edit in both]
        ).statistic
        assert screen.rank_correlation.value == pytest.approx(expected)
        assert screen.rank_correlation.low <= screen.rank_correlation.value <= screen.rank_correlation.high
        assert summary.best == best_by_hand(table, ahead, both) or summary.chosen is None
    assert len(drawn) == 1  # the same seed draws the same


def test_a_screen_may_look_at_fewer_items(search):
    engine = Known(chance("few"))
    summary = search(None, engine, screen={"items": 2, "best": 1, "random": 1})
    kept = {cell.edit for cell in summary.cells if cell.outcomes}
    assert len(kept) == 2
    for edit in set(EDITS) - kept:
        assert [item for e, item, _ in engine.asked if e == edit] == validation(0)[:2]


def test_a_screen_by_all_items_looks_at_all_of_them_also_where_there_are_fewer_cells(search, tmp_path):
    engine = Known(chance("many"), 60)
    task = questions(tmp_path / "many.jsonl", 60)
    summary = search(None, engine, task=task, validation=0.5, screen={"best": 1, "random": 1})
    kept = {cell.edit for cell in summary.cells if cell.outcomes}
    for edit in set(EDITS) - kept:
        assert sorted(item for e, item, _ in engine.asked if e == edit) == sorted(validation(0, 0.5, 60))
    table, ahead = chance("many"), validation(0, 0.5, 60)
    baseline = log_probability(table, "baseline", ahead)
    assert {cell.edit: cell.screen for cell in summary.cells} == pytest.approx(
        {edit: log_probability(table, edit, ahead) - baseline for edit in EDITS}
    )


def test_of_its_own_accord_a_search_screens_what_is_generated_and_not_what_is_one_pass_already(search, tmp_path):
    keep = [number / 20 for number in range(1, 16)]
    generated = search(chance(1), keep=keep, screen="auto")
    assert generated.screen.evaluated == 16 + 8
    passed = search(chance(1), keep=keep, screen="auto", task=contrasts(tmp_path / "c.jsonl"))
    assert passed.screen is None
    assert all(cell.outcomes for cell in passed.cells)


def test_where_a_screen_would_leave_none_out_there_is_none_and_that_is_said(search):
    summary = search(chance(1), screen="auto")
    assert summary.screen is None
    assert "Every cell is asked in full: a screen would leave none out." in summary.notes


# -- elimination


def test_hopeless_cells_are_given_up_on_the_way_and_the_best_is_the_same(search, llama, tmp_path):
    count = 100
    task = questions(tmp_path / "long.jsonl", count)
    hopeless = EDITS[:3]

    def table(edit, item):
        return Say(edit not in hopeless and luck(edit, item) < (0.95 if edit == EDITS[4] else 0.9), -luck(edit, item))

    engine = Known(table, count)
    summary = search(None, engine, task=task, validation=0.5, eliminate=0.05)
    whole = search(None, Known(table, count), task=task, validation=0.5)
    given_up = {cell.edit: cell.eliminated for cell in summary.cells if cell.eliminated}
    assert set(given_up) == set(hopeless)
    elimination = summary.elimination
    asked = Counter(edit for edit, _, kind in engine.asked if kind == "answer")
    for edit, seen in given_up.items():
        assert asked[edit] == seen
    assert elimination.eliminated == 3
    assert elimination.answers_saved == sum(50 - seen for seen in given_up.values()) > 50
    assert elimination.looks == 3
    assert summary.chosen == whole.chosen
    for cell, same in zip(summary.cells, whole.cells, strict=True):
        if cell.edit in hopeless:
            assert (cell.outcomes, cell.score) == ((), None)
        else:
            assert cell == same


@pytest.mark.parametrize("case", ["gold", "tasks", "few"])
def test_where_its_bound_does_not_hold_nothing_is_given_up_and_that_is_said(llama, tmp_path, case):
    files = [questions(tmp_path / f"{n}.jsonl") for n in range(2)]
    values = {"gold": {"objective": "gold", "validation": 0.9}, "tasks": {"validation": 0.9}, "few": {}}[case]
    what = study(files[0], eliminate=0.5, **values)
    if case == "tasks":
        what = what.model_copy(update={"tasks": (*what.tasks, *study(files[1]).tasks)})
    table = Known(lambda edit, item: Say(edit == "baseline"))
    summary = run_truncation(what, tmp_path / "out", model=llama, make_engine=table).summary
    assert summary.elimination is None
    assert not any(cell.eliminated for cell in summary.cells)
    says = {"gold": "a single task only", "tasks": "a single task only", "few": "6 validation items are too few"}
    assert any("No cell is given up early" in note and says[case] in note for note in summary.notes)


def test_where_every_cell_is_given_up_that_is_why_nothing_was_chosen(search, tmp_path):
    task = questions(tmp_path / "long.jsonl", 100)
    engine = Known(lambda edit, item: Say(edit == "baseline"), 100)
    summary = search(None, engine, task=task, validation=0.5, eliminate=0.05)
    assert summary.elimination.eliminated == 6
    assert (summary.chosen, summary.best) == (None, None)
    assert summary.nothing == "No cell was evaluated in full without being given up."


def test_the_twin_of_a_sum_that_chose_an_edit_does_not_test_it():
    task = find("arithmetic:add")
    choice = TaskChoice(name="arithmetic:add")
    items = list(task.load())
    parts = split({choice: task}, {choice: items}, 0.5)
    numbers = [{frozenset(item.id.split("+")) for item in part[choice]} for part in (parts.validation, parts.test)]
    assert not numbers[0] & numbers[1]
    assert len(parts.test[choice]) < len(items) - len(parts.validation[choice])  # there were twins
