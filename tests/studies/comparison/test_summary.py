"""The numbers of a comparison, against a naive loop over the stored answers, scipy and enumeration."""

import math
import sqlite3

import numpy as np
import pytest
from made_answers import folder
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binomtest, norm, permutation_test, ttest_1samp

import lesion

ITEMS = 12
EDITS = ("baseline", "0×0", "10×0", "2×0")


def random_verdicts(seed: int) -> dict[str, dict[str, bool]]:
    rng = np.random.default_rng(seed)
    return {edit: {f"item-{i}": bool(rng.random() < 0.6) for i in range(ITEMS)} for edit in EDITS}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("compared")
    return [folder(place / name, random_verdicts(seed), model=name) for seed, name in enumerate(("one", "two"), 3)]


@pytest.fixture(scope="module")
def result(folders):
    return lesion.compare(*folders)


def stored(place, edit: str) -> dict[str, int]:
    """item → right (1) or wrong (0), as the database has it."""
    with sqlite3.connect(place / "answers.sqlite") as connection:
        rows = connection.execute("SELECT item, correct FROM answers WHERE edit = ?", (edit,)).fetchall()
    return dict(rows)


def tango(gained: int, lost: int, n: int) -> tuple[float, float]:
    """Tango's interval with the probabilities under each difference found by maximising the likelihood."""

    def score(difference: float) -> float:
        least = max(0.0, -difference)

        def minus_log_likelihood(q: float) -> float:
            same = 1 - 2 * q - difference
            parts = ((gained, q + difference), (lost, q), (n - gained - lost, same))
            return -sum(count * math.log(max(p, 1e-300)) for count, p in parts)

        q = minimize_scalar(minus_log_likelihood, bounds=(least, (1 - difference) / 2), options={"xatol": 1e-12}).x
        return (gained - lost - n * difference) / math.sqrt(n * (2 * q + difference * (1 - difference)))

    z, value = norm.isf(0.025), (gained - lost) / n
    return (
        brentq(lambda d: score(d) - z, -1 + 1e-6, value - 1e-9),
        brentq(lambda d: score(d) + z, value + 1e-9, 1 - 1e-6),
    )


def holm(values: list[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    adjusted, largest = [0.0] * len(values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, values[i] * (len(values) - rank)))
        adjusted[i] = largest
    return adjusted


def test_every_difference_interval_and_p_is_that_of_a_naive_loop(result, folders):
    (pair,) = result.summary.pairs
    assert [cell.edit for cell in pair.cells] == ["baseline", "0×0", "2×0", "10×0"]
    p_of_edits = []
    for cell in pair.cells:
        a, b = (stored(place, cell.edit_a) for place in folders)
        gained = sum(b[item] and not a[item] for item in a)
        lost = sum(a[item] and not b[item] for item in a)
        assert cell.counts is not None
        assert (cell.counts.gained, cell.counts.lost) == (gained, lost)
        assert cell.counts.both_wrong == sum(not a[item] and not b[item] for item in a)
        assert cell.counts.both_right == sum(a[item] and b[item] for item in a)
        assert cell.difference.value == pytest.approx(sum(b[i] - a[i] for i in a) / ITEMS)
        low, high = tango(gained, lost, ITEMS)
        assert (cell.difference.low, cell.difference.high) == pytest.approx((low, high), abs=1e-4)
        p = binomtest(gained, gained + lost, 0.5).pvalue
        assert cell.difference.p == pytest.approx(p)
        if not cell.unedited:
            p_of_edits.append(p)
    assert [cell.difference.p_corrected for cell in pair.cells[1:]] == pytest.approx(holm(p_of_edits))
    assert pair.cells[0].difference.p_corrected == pair.cells[0].difference.p  # a question of its own


def test_the_extra_drop_is_that_of_a_naive_loop_and_its_p_that_of_all_exchanges(result, folders):
    every, adjusted = [], []
    for cell in result.summary.pairs[0].cells[1:]:
        before, after = ([stored(place, edit) for place in folders] for edit in ("baseline", cell.edit_a))
        drops = np.array([[before[side][i] - after[side][i] for i in before[0]] for side in (0, 1)], dtype=float)
        assert cell.extra_drop is not None
        assert cell.extra_drop.value == pytest.approx((drops[1] - drops[0]).mean())
        exchanged = permutation_test(
            (drops[1], drops[0]), lambda x, y: (x - y).sum(), permutation_type="samples", n_resamples=np.inf
        )
        assert cell.extra_drop.p == pytest.approx(exchanged.pvalue)
        limits = []
        for side in (1, 0):
            took, gave = int((drops[side] == 1).sum()), int((drops[side] == -1).sum())
            limits.append((drops[side].mean(), *tango(took, gave, ITEMS)))
        r = np.corrcoef(*drops)[0, 1]
        (d1, l1, u1), (d2, l2, u2) = limits
        reach = [math.sqrt(x * x + y * y - 2 * r * x * y) for x, y in ((d1 - l1, u2 - d2), (u1 - d1, d2 - l2))]
        expected = (d1 - d2 - reach[0], d1 - d2 + reach[1])
        assert (cell.extra_drop.low, cell.extra_drop.high) == pytest.approx(expected, abs=1e-3)
        every.append(cell.extra_drop.p)
        adjusted.append(cell.extra_drop.p_corrected)
    assert adjusted == pytest.approx(holm(every))


def test_drops_are_those_of_each_side_against_itself(result, folders):
    for drop in result.summary.drops:
        place = folders[("one", "two").index(drop.side)]
        before, after = stored(place, "baseline"), stored(place, drop.edit)
        assert drop.drop.value == pytest.approx(sum(before[i] - after[i] for i in before) / ITEMS)
    assert len(result.summary.drops) == 2 * 3


def test_items_say_what_became_of_each(result, folders):
    frame = result.items
    assert len(frame) == ITEMS * len(EDITS)
    for row in frame.to_dict("records"):
        a, b = (stored(place, row["edit"])[row["item"]] for place in folders)
        change = {(0, 1): "gained", (1, 0): "lost", (1, 1): "both right", (0, 0): "both wrong"}[a, b]
        assert (row["correct_a"], row["correct_b"], row["change"]) == (bool(a), bool(b), change)
        assert row["answer_b"] == f"two {row['edit']} {row['item']}"
        assert row["question"] == f"What is {row['item']}?"
    both = [item for item, right in stored(folders[0], "baseline").items() if not right]
    both = [item for item in both if not stored(folders[1], "baseline")[item]]
    assert list(result.wrong_in_all["item"]) == both
    assert result.summary.task("sums").wrong == len(both)


def test_what_every_one_of_three_gets_wrong_is_counted_and_all_p_are_corrected_together(folders, tmp_path):
    third = folder(tmp_path / "three", random_verdicts(9), model="three")
    result = lesion.compare(*folders, third)
    wrong = set.intersection(
        *({i for i, right in stored(p, "baseline").items() if not right} for p in (*folders, third))
    )
    assert set(result.wrong_in_all["item"]) == wrong
    assert result.summary.task("sums").wrong == len(wrong)
    assert [(pair.a, pair.b) for pair in result.summary.pairs] == [("one", "two"), ("one", "three")]
    cells = [cell for pair in result.summary.pairs for cell in pair.cells if not cell.unedited]
    assert [cell.difference.p_corrected for cell in cells] == pytest.approx(holm([c.difference.p for c in cells]))


def test_scored_tasks_are_compared_by_their_mean(tmp_path):
    rng = np.random.default_rng(5)
    scores = {side: {f"i{n}": float(rng.normal(-3, 1)) for n in range(20)} for side in ("one", "two")}
    places = [folder(tmp_path / side, {"baseline": scores[side]}, model=side) for side in scores]
    result = lesion.compare(*places)
    (cell,) = result.summary.pairs[0].cells
    differences = np.array([scores["two"][item] - scores["one"][item] for item in scores["one"]])
    test = ttest_1samp(differences, 0.0)
    interval = test.confidence_interval(0.95)
    assert cell.counts is None
    assert cell.difference.value == pytest.approx(differences.mean())
    assert (cell.difference.low, cell.difference.high) == pytest.approx((interval.low, interval.high))
    assert cell.difference.p == pytest.approx(test.pvalue)
    assert list(result.items["score_b"]) == list(scores["two"].values())
    assert "nats" in str(result.page().sections[0].blocks[0])


def test_of_one_model_verdicts_are_the_same_only_where_no_item_changes_though_as_many_are_right(tmp_path):
    baseline = {f"item-{i}": True for i in range(8)}
    halves = [{f"item-{i}": (i < 4) is first for i in range(8)} for first in (True, False)]
    for halved, says in (
        (halves, "equally many items; 8 verdicts differ."),
        (halves[:1] * 2, "No item is judged differently under any of 1 edit in common."),
    ):
        sides = [
            folder(tmp_path / f"{says[0]}{side}", {"baseline": baseline, "0×0": verdicts})
            for side, verdicts in enumerate(halved)
        ]
        first = lesion.compare(*sides).claims[0]
        assert first.rule == "which edits differ"
        assert first.sentences[0].endswith(says)
