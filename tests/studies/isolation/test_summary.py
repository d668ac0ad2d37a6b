"""From answers to numbers: every figure of an evaluation against one worked out by hand."""

import math
from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from lesion.statistics.contrasts import beyond_random, difference_of_drops, perplexity, perplexity_ratio
from lesion.statistics.paired import paired_drop, wilson
from lesion.studies.isolation.evaluation import ChosenEdit, EvaluatedTask, Evaluation, TaskUnderEdit
from lesion.studies.isolation.plan import EvaluationPlan
from lesion.studies.isolation.summary import summarise


def edit(name: str, randoms: Iterable[str] = (), **values) -> dict:
    told = {"label": name, "digest": "0" * 16, "method": "mathneuro", "keep": 0.05, "samples": 10, "repeat": 0}
    told |= {"factor": 0.0, "random_of": None, "seed": None, "selected": 10, "total": 100}
    return {"edit": name, **told, "achieved": 0.0, "randoms": list(randoms), **values}


def plan(*edits: dict, tasks: Mapping[str, str] | None = None, **values) -> EvaluationPlan:
    tasks = tasks or {"sums": "generate", "facts": "generate"}
    told = {"dtype": "float32", "skill": "sums", "validation": None, "level": 0.95, "notes": []}
    return EvaluationPlan.model_validate(
        {"model": "toy", "tasks": dict(tasks), "chance": {}, "edits": list(edits), **told, **values}
    )


def rows(task: str, name: str, right: Iterable[int], finish: str = "stop", scores=(), tokens: int = 3) -> list[dict]:
    return [
        {
            **{"task": task, "edit": name, "item": f"{task}{n}", "correct": bool(one), "finish": finish, "text": ""},
            **{"tokens": tokens, "parsed": "7", "scores": tuple(scores[n : n + 1])},
        }
        for n, one in enumerate(right)
    ]


def items(**counts: int) -> pd.DataFrame:
    return pd.DataFrame([{"task": task, "item": f"{task}{n}"} for task, count in counts.items() for n in range(count)])


BASE, CUT, R0, R1 = [1] * 9 + [0], [0] * 7 + [1, 0, 1], [1] * 8 + [0, 0], [0] + [1] * 9
FACTS, FACTS_CUT = [1] * 6, [1] * 5 + [0]


def answers() -> list[dict]:
    return [
        *rows("sums", "baseline", BASE),
        *rows("sums", "cut", CUT),
        *rows("sums", "r0", R0),
        *rows("sums", "r1", R1),
        *(row for name in ("baseline", "r0", "r1") for row in rows("facts", name, FACTS)),
        *rows("facts", "cut", FACTS_CUT),
    ]


EDITS = (
    edit("cut", ("r0", "r1")),
    edit("r0", method="random", random_of="cut", seed=0),
    edit("r1", method="random", random_of="cut", seed=1),
)


def bools(values: Iterable[int]) -> np.ndarray:
    return np.array(list(values), dtype=bool)


def of(summary: Evaluation, task: str) -> EvaluatedTask:
    return next(entry for entry in summary.tasks if entry.name == task)


def cell(summary: Evaluation, task: str, name: str) -> TaskUnderEdit:
    return next(entry for entry in of(summary, task).cells if entry.edit == name)


def ends(estimate) -> tuple:
    return estimate.value, estimate.low, estimate.high


def test_chance_is_that_of_the_plan_and_running_text_has_none():
    told = {"sums": "generate", "verbs": "contrast", "text": "score"}
    found = summarise(
        plan(tasks=told, chance={"sums": 0.0, "verbs": 0.5}),
        pd.DataFrame(
            [
                *rows("sums", "baseline", BASE),
                *rows("verbs", "baseline", [1] * 6 + [0] * 4),
                *rows("text", "baseline", [1] * 4, scores=[-2.0] * 4),
            ]
        ),
        items(sums=10, verbs=10, text=4),
    )
    assert [of(found, task).chance for task in told] == [0.0, 0.5, None]
    # 60 % of ten is far above nothing, and not above guessing.
    low = wilson(6, 10)[0]
    assert 0.1 < low < 0.5
    assert not of(found, "verbs").informative


def test_every_figure_of_a_cell_is_the_one_worked_out_by_hand():
    summary = summarise(plan(*EDITS), pd.DataFrame(answers()), items(sums=10, facts=6))
    assert [(entry.name, entry.role, entry.kind, entry.items) for entry in summary.tasks] == [
        ("sums", "skill", "generate", 10),
        ("facts", "control", "generate", 6),
    ]
    assert of(summary, "sums").baseline.result.value == 0.9
    found = cell(summary, "sums", "cut")
    assert ends(found.result) == (0.2, *wilson(2, 10))
    assert found.change.value == pytest.approx(0.7)
    # Eight items only the baseline has right, one only the edit.
    assert found.change.p == pytest.approx(binomtest(1, 9).pvalue)
    assert (found.rates.truncated, found.rates.unparsed, found.rates.nonfinite) == (0, 0, 0)
    told = found.random
    assert (told.draws, told.mean, told.lowest, told.highest) == (2, pytest.approx(0.85), 0.8, 0.9)
    assert told.drop == pytest.approx(0.05)
    assert told.beyond.value == pytest.approx(0.85 - 0.2)
    beyond = beyond_random(bools(CUT), np.stack([bools(R0), bools(R1)]))
    assert (told.beyond.low, told.beyond.high) == (beyond.low, beyond.high)
    assert cell(summary, "sums", "r0").random is None


def test_selectivity_is_the_drop_on_the_skill_minus_that_on_every_control():
    summary = summarise(plan(*EDITS), pd.DataFrame(answers()), items(sums=10, facts=6))
    assert [(entry.edit, entry.control) for entry in summary.selectivity] == [
        (name, "facts") for name in ("cut", "r0", "r1")
    ]
    found = summary.selectivity[0].difference
    assert found.value == pytest.approx(0.7 - 1 / 6)
    expected = difference_of_drops(paired_drop(bools(BASE), bools(CUT)), paired_drop(bools(FACTS), bools(FACTS_CUT)))
    assert (found.low, found.high) == (expected.low, expected.high)


@pytest.mark.parametrize("skill", [None, "elsewhere"])
def test_without_a_skill_among_the_tasks_there_are_no_roles_and_no_selectivity(skill):
    summary = summarise(plan(*EDITS, skill=skill), pd.DataFrame(answers()), items(sums=10, facts=6))
    assert [entry.role for entry in summary.tasks] == [None, None]
    assert (summary.selectivity, summary.choice) == ((), None)


def test_the_correction_counts_every_edit_tried_also_unanswered_ones_and_no_random_control():
    edits = (*EDITS, edit("mild"), edit("waiting"))
    told = [*answers(), *rows("sums", "mild", [0, *BASE[1:]])]
    summary = summarise(plan(*edits), pd.DataFrame(told), items(sums=10, facts=6))
    assert [entry.edit for entry in of(summary, "sums").cells] == ["cut", "r0", "r1", "mild"]
    # Three were tried: cut, mild, and one that is still waiting. Holm: the smallest times 3, the next times 2.
    smallest = binomtest(1, 9).pvalue
    assert cell(summary, "sums", "cut").change.p_corrected == pytest.approx(3 * smallest)
    assert cell(summary, "sums", "mild").change.p == 1
    assert cell(summary, "sums", "mild").change.p_corrected == 1
    assert cell(summary, "sums", "r0").change.p_corrected is None


def test_an_edit_is_left_out_of_the_tasks_it_has_not_finished_and_a_task_without_baseline_is_noted():
    told = [row for row in answers() if (row["edit"], row["item"]) != ("cut", "sums9")]
    told = [row for row in told if (row["edit"], row["item"]) != ("baseline", "facts0")]
    summary = summarise(plan(*EDITS, notes=["before"]), pd.DataFrame(told), items(sums=10, facts=6))
    assert [entry.name for entry in summary.tasks] == ["sums"]
    assert [entry.edit for entry in of(summary, "sums").cells] == ["r0", "r1"]
    assert (summary.notes[0], *summary.notes[2:]) == (
        "before",
        "toy has not answered all items of facts without an edit yet.",
    )
    assert summary.notes[1].startswith("sums: left out, not all items being answered: MathNeuro, share")
    assert summary.selectivity == ()


def test_a_random_control_that_has_not_finished_is_not_yet_counted_among_the_draws():
    told = [row for row in answers() if (row["edit"], row["item"]) != ("r1", "sums0")]
    summary = summarise(plan(*EDITS), pd.DataFrame(told), items(sums=10, facts=6))
    assert cell(summary, "sums", "cut").random.draws == 1
    assert cell(summary, "sums", "cut").random.mean == 0.8
    assert cell(summary, "facts", "cut").random.draws == 2


def test_nothing_answered_at_all_is_a_summary_with_notes():
    none = pd.DataFrame(answers()).iloc[:0]
    summary = summarise(plan(*EDITS, validation=0.5), none, items(sums=10, facts=6))
    assert (summary.tasks, summary.selectivity, summary.choice) == ((), (), None)
    assert len(summary.notes) == 2


def test_two_edits_that_share_their_random_controls_are_each_held_against_them():
    other = [1] * 5 + [0] * 5
    edits = (*EDITS, edit("twin", ("r0", "r1")))
    told = [*answers(), *rows("sums", "twin", other), *rows("facts", "twin", FACTS)]
    summary = summarise(plan(*edits), pd.DataFrame(told), items(sums=10, facts=6))
    found = cell(summary, "sums", "twin").random
    assert (found.draws, found.beyond.value) == (2, pytest.approx(0.85 - 0.5))
    assert cell(summary, "sums", "cut").random.mean == found.mean


def test_truncated_unparsed_and_broken_off_answers_are_rates():
    told = answers()
    ours = [row for row in told if row["edit"] == "cut" and row["task"] == "sums"]
    for row, finish in zip(ours, ["length"] * 3 + ["nonfinite"] * 2, strict=False):
        row["finish"] = finish
    ours[-1]["parsed"] = None
    summary = summarise(plan(*EDITS), pd.DataFrame(told), items(sums=10, facts=6))
    found = cell(summary, "sums", "cut")
    assert (found.rates.truncated, found.rates.unparsed, found.rates.nonfinite) == (0.3, 0.1, 0.2)


def test_the_order_in_which_answers_lie_in_the_store_does_not_count():
    frame = pd.DataFrame(answers())
    mixed = frame.sample(frac=1, random_state=1)
    assert summarise(plan(*EDITS), mixed, items(sums=10, facts=6)) == summarise(
        plan(*EDITS), frame, items(sums=10, facts=6)
    )


SCORES = {
    "baseline": [-20.0, -21.0, -22.0, -19.0],
    "cut": [-40.0, -39.0, -43.0, -41.0],
    "r0": [-21.0, -22.0, -23.0, -20.0],
    "r1": [-22.0, -22.0, -24.0, -21.0],
}


def scored(**replaced: list[float]) -> pd.DataFrame:
    found = [
        row
        for name, scores in {**SCORES, **replaced}.items()
        for row in rows("text", name, [1] * 4, scores=scores, tokens=10)
    ]
    return pd.DataFrame(found)


def test_running_text_is_told_as_perplexity_beside_that_of_the_baseline_and_of_random_controls():
    summary = summarise(plan(*EDITS, tasks={"text": "score"}), scored(), items(text=4))
    tokens = np.full(4, 10)
    told = of(summary, "text").baseline
    assert (told.result.value, told.tokens) == (pytest.approx(math.exp(82 / 40)), 40)
    found = cell(summary, "text", "cut")
    own = perplexity(np.array(SCORES["cut"]), tokens)
    assert ends(found.result) == (own.value, own.low, own.high)
    ratio = perplexity_ratio(np.array(SCORES["baseline"]), np.array(SCORES["cut"]), tokens)
    assert ends(found.change) == (ratio.value, ratio.low, ratio.high)
    drawn = [math.exp(86 / 40), math.exp(89 / 40)]
    assert (found.random.draws, found.random.mean) == (2, pytest.approx(sum(drawn) / 2))
    assert (found.random.lowest, found.random.highest) == pytest.approx(tuple(drawn))
    assert (found.random.drop, found.random.beyond.value) == (None, None)


def test_an_edit_that_breaks_the_model_on_running_text_has_no_finite_perplexity():
    frame = scored(cut=[-40.0, math.nan, -43.0, math.nan])
    frame.loc[frame["scores"].map(lambda s: math.isnan(s[0])), "finish"] = "nonfinite"
    summary = summarise(plan(*EDITS, tasks={"text": "score"}), frame, items(text=4))
    found = cell(summary, "text", "cut")
    assert (found.result.value, found.change.value, found.rates.nonfinite) == (None, None, 0.5)
    assert [cell.edit for cell in of(summary, "text").cells if cell.result.value is None] == ["cut"]


def test_running_text_has_no_drop_and_so_no_part_in_selectivity_or_choice():
    edits = (edit("cut"), edit("other"))
    frame = pd.DataFrame(
        [
            *rows("sums", "baseline", BASE),
            *(row for name in ("cut", "other") for row in rows("sums", name, CUT)),
            *(row for name in ("baseline", "cut", "other") for row in rows("text", name, [1] * 4, scores=[-2.0] * 4)),
        ]
    )
    both = plan(*edits, tasks={"sums": "generate", "text": "score"}, validation=0.5)
    summary = summarise(both, frame, items(sums=10, text=4))
    assert summary.selectivity == ()
    assert summary.choice.controls == ()
    assert all(entry.mean_control is None for entry in summary.choice.candidates)


# What follows: the chosen edit. Ten items of the skill, six of the control; half of each is for choosing.

CANDIDATES = ("a", "b", "c")


def trial(right: Mapping[tuple[str, str], Iterable[int]], *edits: dict, validation: float = 0.5) -> ChosenEdit | None:
    told = [row for (task, name), values in right.items() for row in rows(task, name, values)]
    there = items(
        sums=len(list(right["sums", "baseline"])),
        **({"facts": len(list(right["facts", "baseline"]))} if ("facts", "baseline") in right else {}),
    )
    tasks = dict.fromkeys(dict.fromkeys(task for task, _ in right), "generate")
    return summarise(plan(*edits, tasks=tasks, validation=validation), pd.DataFrame(told), there).choice


halves = st.lists(st.integers(0, 1), min_size=5, max_size=5)
thirds = st.lists(st.integers(0, 1), min_size=3, max_size=3)
tables = st.fixed_dictionaries(
    {
        (task, name): st.tuples(part, part)
        for task, part in (("sums", halves), ("facts", thirds))
        for name in ("baseline", *CANDIDATES)
    }
)


def joined(table: Mapping) -> dict:
    return {key: [*first, *second] for key, (first, second) in table.items()}


@settings(max_examples=15, deadline=None)
@given(tables, tables)
def test_what_is_chosen_never_depends_on_an_answer_to_a_test_item(table, other):
    edits = [edit(name) for name in CANDIDATES]
    one = trial(joined(table), *edits)
    mixed = {key: (table[key][0], other[key][1]) for key in table}
    two = trial(joined(mixed), *edits)
    told = ("chosen", "candidates", "baseline_validation", "accuracy_validation", "validation_items", "test_items")
    assert [getattr(one, key) for key in told] == [getattr(two, key) for key in told]


@settings(max_examples=15, deadline=None)
@given(tables, tables)
def test_what_is_reported_of_the_chosen_edit_never_depends_on_an_answer_to_a_validation_item(table, other):
    # One candidate alone is always chosen, so that only what is told of it can change.
    one = trial(joined(table), edit("a"))
    mixed = {key: (other[key][0], table[key][1]) for key in table}
    two = trial(joined(mixed), edit("a"))
    told = ("baseline_test", "accuracy_test", "gain", "controls")
    assert [getattr(one, key) for key in told] == [getattr(two, key) for key in told]


@settings(max_examples=30, deadline=None)
@given(tables)
def test_the_chosen_edit_is_the_best_on_validation_then_the_one_that_spares_the_controls(table):
    found = trial(joined(table), *(edit(name) for name in CANDIDATES))
    chosen = found.chosen
    best = max((sum(table["sums", name][0]), sum(table["facts", name][0])) for name in CANDIDATES)
    assert (sum(table["sums", chosen][0]), sum(table["facts", chosen][0])) == best


def test_the_gain_is_that_of_the_test_items_with_its_interval_and_random_controls():
    base, best = [1, 0, 1, 0, 0, 1, 0, 0, 0, 1], [1, 1, 1, 1, 0, 1, 1, 1, 0, 0]
    worse, drawn = [0] * 10, [1, 1, 1, 1, 1, 0, 0, 0, 0, 1]
    right = {("sums", "baseline"): base, ("sums", "a"): worse, ("sums", "b"): best, ("sums", "r"): drawn}
    found = trial(right, edit("a"), edit("b", ("r",)), edit("r", random_of="b"))
    assert (found.chosen, found.validation_items, found.test_items) == ("b", 5, 5)
    assert [entry.edit for entry in found.candidates] == ["a", "b"]  # a random control is never chosen
    assert (found.baseline_validation, found.accuracy_validation) == (0.4, 0.8)
    assert (found.baseline_test, found.accuracy_test) == (0.4, 0.6)
    drop = paired_drop(bools(base[5:]), bools(best[5:]))
    assert ends(found.gain) == (-drop.value, -drop.high, -drop.low)
    assert found.gain.p == binomtest(1, 3).pvalue
    beyond = beyond_random(bools(best[5:]), bools(drawn[5:])[None])
    assert (found.random.draws, found.random.accuracy) == (1, 0.2)
    assert ends(found.random.gain_beyond) == (pytest.approx(0.4), -beyond.high, -beyond.low)


def test_of_equals_the_factor_nearest_to_one_is_chosen_then_the_smallest_share():
    same = {("sums", name): [1, 0, 1, 0] for name in ("baseline", "a", "b", "c", "d")}
    far, near, larger, smaller = (
        edit(name, factor=factor, selected=selected)
        for name, factor, selected in (("a", 0.0, 1), ("b", 1.1, 20), ("c", 1.1, 30), ("d", 1.1, 10))
    )
    assert trial(same, far, larger, near).chosen == "b"
    assert trial(same, far, larger, near, smaller).chosen == "d"


def test_controls_with_other_numbers_of_items_tie_exactly():
    # 1/10 + 2/10 and 3/10 + 0/10 are equal, though not in floating point; the nearer factor then decides.
    ten = {0: [0] * 20, 1: [1] + [0] * 19, 2: [1, 1] + [0] * 18, 3: [1, 1, 1] + [0] * 17}
    told = {("sums", name): [1, 0] for name in ("baseline", "a", "b")}
    told |= {("facts", "baseline"): ten[0], ("facts", "a"): ten[1], ("facts", "b"): ten[3]}
    told |= {("more", "baseline"): ten[0], ("more", "a"): ten[2], ("more", "b"): ten[0]}
    frame = pd.DataFrame([row for (task, name), values in told.items() for row in rows(task, name, values)])
    edits = (edit("a", factor=0.0), edit("b", factor=0.5))
    for order in (edits, edits[::-1]):
        tasks = {"sums": "generate", "facts": "generate", "more": "generate"}
        whole = plan(*order, tasks=tasks, validation=0.5)
        assert summarise(whole, frame, items(sums=2, facts=20, more=20)).choice.chosen == "b"


def test_both_parts_of_every_task_have_an_item_and_a_task_of_one_item_stays_out():
    right = {("sums", name): [1] * 20 for name in ("baseline", "a")}
    right |= {("facts", name): [1] * 3 for name in ("baseline", "a")}
    found = trial(right, edit("a"), validation=0.9)
    assert (found.validation_items, found.test_items) == (18, 2)
    assert [entry.task for entry in found.controls] == ["facts"]
    right |= {("facts", name): [1] for name in ("baseline", "a")}
    assert trial(right, edit("a"), validation=0.9).controls == ()
    assert trial({("sums", name): [1] for name in ("baseline", "a")}, edit("a")) is None


def test_an_edit_that_has_not_answered_everything_is_not_chosen_and_without_any_there_is_no_choice():
    right = {("sums", "baseline"): [0] * 4, ("sums", "a"): [0] * 4, ("sums", "b"): [1] * 3}
    assert trial(right, edit("a"), edit("b")).chosen == "a"
    assert trial(right, edit("b")) is None
    assert trial(right) is None
