"""An interaction study from made answers: its verdicts, what is claimed of them, its page and its text."""

import itertools

import numpy as np
import pandas as pd
import pytest

from lesion.report import wording
from lesion.studies.interaction.report import InteractionResult
from lesion.studies.interaction.study import InteractionStudy
from lesion.studies.interaction.summary import Answers, planned, summarise

ITEMS = 60
HOSTILE = "<script>alert(1)</script>"


def made(right: dict[tuple[int, ...], range], guessing: float = 0.0, **options) -> InteractionResult:
    """A study whose items are right under a set of blocks removed where they lie in its range; others, under none."""
    layers = sorted({layer for layers in right for layer in layers})
    study = InteractionStudy.make(model=HOSTILE, tasks=["sums"], layers=layers, **options)
    places = [str(layer) for layer in layers]
    plan = planned(study, places, places)
    rows = []
    for places_of in {(), *((place,) for place in places), *plan.sets}:
        edit = " + ".join(f"{place}×{study.factor:g}" for place in places_of) or "baseline"
        for item in range(ITEMS):
            correct = item in right.get(tuple(map(int, places_of)), range(0))
            rows.append(("sums", edit, str(item), correct, "1", "1", "stop", ()))
    frame = pd.DataFrame(rows, columns=["task", "edit", "item", "correct", "parsed", "text", "finish", "scores"])
    answers = Answers(study, frame, {"sums": [str(item) for item in range(ITEMS)]})
    return InteractionResult("folder", summarise(study, "f" * 64, plan, answers, {"sums": guessing}))


PAIR = {(): range(60), (2,): range(55), (5,): range(54), (2, 5): range(10), (7,): range(30)}
REDUNDANT = {**PAIR, (2, 7): range(30), (5, 7): range(30)}
ONE_PATH = {(): range(60), (2,): range(40), (7,): range(30), (2, 7): range(30)}
EVERY = {(): range(60), (1,): range(50), (2,): range(40), (3,): range(45), (2, 3): range(30)}


def verdicts(right: dict[tuple[int, ...], range]) -> dict[tuple[int, ...], str]:
    return {tuple(map(int, each.places)): each.verdict for each in made(right).summary.interactions}


def test_each_verdict_has_its_word():
    assert verdicts(REDUNDANT) == {(2, 5): "redundant", (2, 7): "no sign", (5, 7): "no sign"}
    assert verdicts(ONE_PATH) == {(2, 7): "one path"}
    assert verdicts({**REDUNDANT, (2,): range(20)})[2, 7] == "cannot tell"


def claim(result: InteractionResult, name: str):
    return next(each for each in result.claims if each.rule == name)


@pytest.mark.parametrize(
    ("right", "words", "rests_on"),
    [
        (REDUNDANT, ("2 and 5 cost more together", "83.3 points together and 8.3 + 10.0 alone", "more"), [(2, 5)]),
        (ONE_PATH, ("2 and 7 cost less together", "the same answers need them", "less"), [(2, 7)]),
        ({**REDUNDANT, (2, 5): range(50)}, ("No pair is shown", "Blocks 5 and 7 differ most", "p"), [(5, 7)]),
        ({(): range(60), (1,): range(5), (2,): range(5)}, ("cannot be told", "--factor 0.5", "--measure gold"), None),
    ],
    ids=["redundant", "one path", "none", "cannot be told"],
)
def test_sets_are_claimed_to_interact_as_their_tests_say(right, words, rests_on):
    found = claim(made(right), "which interact")
    for word in words:
        assert word in found.text.replace(wording.SPACE, " ")
    if rests_on is not None:
        assert [tuple(map(int, row.places)) for row in found.rows] == rests_on
        assert "[" in found.sentences[1]


def test_both_directions_and_what_cannot_be_told_are_said_of_one_task():
    both = {(): range(60), (2,): range(55), (5,): range(54), (2, 5): range(10), (3,): range(40), (4,): range(40)}
    found = claim(
        made({**both, **dict.fromkeys([(3, 4), (2, 3), (2, 4), (3, 5), (4, 5)], range(40))}), "which interact"
    )
    assert {tuple(row.places): row.verdict for row in found.rows} == {("2", "5"): "redundant", ("3", "4"): "one path"}
    few = claim(made({(): range(60), (1,): range(58), (2,): range(58), (1, 2): range(57), (9,): range(1)}),
                "which interact")  # fmt: skip
    assert few.sentences[0].endswith("; 2 of 3 cannot be told.")


def test_the_window_that_costs_least_is_named_and_windows_stand_in_the_order_of_their_cost():
    result = made({**EVERY, (1, 2): range(35)}, design="windows")
    found = claim(result, "which window costs least")
    least = min(result.summary.interactions, key=lambda each: each.together.value)
    assert found.rows == (least,)
    assert least.places == ("1", "2")
    shown = [row["together"] for row in result.shown().records]
    assert shown == sorted(shown)


def test_a_sum_beyond_what_there_is_to_lose_stretches_no_axis():
    lost = made({**EVERY, (3,): range(10)}, design="windows").summary.of("sums", "windows")
    assert {each.places: len(each.total) for each in lost} == {("1", "2"): 1, ("2", "3"): 0}
    assert next(each.sum for each in lost if not each.total) > 1


def test_the_order_of_removal_is_told_against_random_ones():
    right = {(): range(60), (1,): range(60), (2,): range(5), (3,): range(59), (1, 3): range(50)}
    result = made(right, design=["cumulative"], order="1,3,2", random_orders=3)
    found = claim(result, "how many can go")
    assert found.sentences[0].startswith("2 of 3 blocks can be removed")
    assert found.sentences[1].startswith("In 3 random orders it is ")
    steps = result.tables["steps"]
    first = steps[(steps["order"] == 0) & (steps["removed"] == 1)].iloc[0]
    others = steps[(steps["order"] > 0) & (steps["removed"] == 1)]["value"]
    assert first["beyond_random"] == pytest.approx(np.mean(others) - first["value"])
    assert first["random_orders"] == pytest.approx(np.mean(others))
    scaled = made(right, design=["cumulative"], order="1,3,2", random_orders=99, factor=0.5)
    orders = {number: tuple(part["place"]) for number, part in scaled.tables["steps"].groupby("order")}
    assert len(orders) == len(set(orders.values())) == 6  # the order itself, and each of the five others once
    assert "multiplied by 0.5" in scaled.verdict


def test_half_is_counted_from_guessing():
    right = {(): range(60), (1,): range(40), (2,): range(50), (1, 2): range(20)}
    free, chosen = (made(right, each, design="cumulative", order="1,2", random_orders=0) for each in (0.0, 0.5))
    assert free.verdict.startswith("1 of 2")  # 40 of 60 is more than half of 60
    assert chosen.verdict.startswith("0 of 2")  # half of what is above guessing 30 is 45
    assert "above guessing" in chosen.verdict


def test_the_largest_shapley_value_is_named_where_one_is_above_zero():
    every = made(EVERY, design="shapley", permutations=6)
    found = claim(every, "who matters")
    (row,) = found.rows
    assert row == max(every.summary.shares, key=lambda share: share.value.value)
    total = every.summary.removal("sums", "1", "2", "3").drop.value
    assert every.tables["shapley"]["value"].sum() == pytest.approx(total)
    none = made(
        {set_: range(60) for size in range(3) for set_ in itertools.combinations((1, 2), size)}, design="shapley"
    )
    assert "is shown to be above 0" in none.verdict
