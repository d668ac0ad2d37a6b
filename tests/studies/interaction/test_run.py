"""An interaction study from its call to its folder: its numbers against plain ones, resumed, grown, refused."""

import itertools

import numpy as np
import pytest

import lesion
from commandline import lesion as command
from commandline import refused

LAYERS = (1, 3, 4, 6)
EVERYTHING = ("pairs", "windows", "cumulative", "shapley")


@pytest.fixture(scope="module")
def llama():
    return lesion.load("bundled:llama-base")


@pytest.fixture(scope="module")
def result(llama, tmp_path_factory):
    return lesion.interact(
        llama, "primer:atlas", layers=LAYERS, design=EVERYTHING, permutations=24, random_orders=2, items=8,
        out=tmp_path_factory.mktemp("sets") / "out",
    )  # fmt: skip


@pytest.fixture(scope="module")
def accuracies(result) -> dict[frozenset[int], float]:
    """The accuracy under every set of blocks removed, from the stored answers."""
    by_edit = result.answers.groupby("edit")["correct"].mean()
    return {
        frozenset(int(part.removesuffix("×0")) for part in text.split(" + ") if part != "baseline"): float(share)
        for text, share in by_edit.items()
    }


def test_every_set_is_evaluated_once(result, accuracies):
    sets = [frozenset(each) for size in range(5) for each in itertools.combinations(LAYERS, size)]
    assert set(accuracies) == set(sets)
    assert result.evaluated == result.planned == 8 * 16


def test_pairs_are_what_plain_accuracies_say(result, accuracies):
    table = result.table_full[result.table_full["design"] == "pairs"].set_index("places")
    assert len(table) == 6
    for first, second in itertools.combinations(LAYERS, 2):
        row = table.loc[f"{first},{second}"]
        b, a1, a2, both = (accuracies[frozenset(each)] for each in ((), (first,), (second,), (first, second)))
        assert row["sum"] == pytest.approx(2 * b - a1 - a2)
        assert row["together"] == pytest.approx(b - both)
        assert row["beyond"] == pytest.approx(a1 + a2 - b - both)
        assert row["independent"] == pytest.approx(b - a1 * a2 / b)
        assert (row["verdict"] == "cannot tell") == (2 * b - a1 - a2 >= b - 1e-9)


def test_a_window_is_a_run_of_blocks_that_are_named(result):
    assert list(result.table_full[result.table_full["design"] == "windows"]["places"]) == ["3,4"]


def test_shapley_values_of_all_orders_are_exact_and_add_up(result, accuracies):
    full = accuracies[frozenset(LAYERS)]
    shares = result.tables["shapley"].set_index("place")
    assert result.summary.every_order
    assert shares["value"].sum() == pytest.approx(accuracies[frozenset()] - full)
    for place in LAYERS:
        marginal = []
        for order in itertools.permutations(LAYERS):
            before = frozenset(order[: order.index(place)])
            marginal.append(accuracies[before] - accuracies[before | {place}])
        assert shares.loc[str(place), "value"] == pytest.approx(np.mean(marginal))
        assert shares.loc[str(place), "alone"] == pytest.approx(
            accuracies[frozenset()] - accuracies[frozenset({place})]
        )


def test_the_least_important_goes_first_and_every_order_ends_with_all_removed(result, accuracies):
    alone = [accuracies[frozenset({int(place)})] for place in result.summary.order]
    assert alone == sorted(alone, reverse=True)
    steps = result.tables["steps"]
    assert sorted(set(steps["order"])) == [0, 1, 2]
    assert set(steps[steps["removed"] == 4]["value"]) == {accuracies[frozenset(LAYERS)]}
    own = steps[(steps["order"] == 0) & (steps["removed"] == 2)].iloc[0]
    assert own["value"] == accuracies[frozenset(map(int, result.summary.order[:2]))]


def test_a_rerun_evaluates_nothing_and_a_further_place_only_what_it_adds(result, llama):
    shared = {"tasks": "primer:atlas", "items": 8, "out": result.folder}
    again = lesion.interact(llama, layers=LAYERS, design=EVERYTHING, permutations=24, random_orders=2, **shared)
    assert again.evaluated == 0
    assert again.summary == result.summary
    assert lesion.result(result.folder).summary == result.summary
    most_first = lesion.interact(llama, layers=LAYERS, design="cumulative", order="most", random_orders=0, **shared)
    assert most_first.evaluated == 0
    alone = result.tables["shapley"].set_index("place")["alone"]
    assert alone.loc[list(most_first.summary.order)].is_monotonic_decreasing
    grown = lesion.interact(llama, layers=(0, 1, 3), **shared)
    assert grown.evaluated == 8 * 3  # block 0 alone, with block 1, with block 3
    given = lesion.interact(llama, layers=(1, 3), design="cumulative", order=(3, 1), **shared)
    assert (given.evaluated, given.summary.order) == (0, ("3", "1"))


def test_log_probabilities_of_gold_answers_add_in_nats(llama):
    result = lesion.interact(llama, "primer:atlas", layers=(3, 4), measure="gold", factor=0.5, items=6)
    scores = result.answers.groupby("edit")["scores"].agg(lambda each: np.mean([one[0] for one in each]))
    (row,) = result.table_full.to_dict("records")
    alone = scores["3×0.5"] + scores["4×0.5"]
    assert row["beyond"] == pytest.approx(alone - scores["baseline"] - scores["3×0.5 + 4×0.5"])
    golds = result.answers.drop_duplicates("item")["gold"]
    entropy = -sum(share * np.log(share) for share in golds.value_counts(normalize=True))
    loss = result.summary.tasks[0].loss
    assert loss == pytest.approx(scores["baseline"] + entropy)
    if row["beyond"] <= 0:
        assert (row["verdict"] == "cannot tell") == (row["sum"] >= loss)


def test_places_of_any_unit_are_removed_together_and_multiplied(llama):
    named = ["3.attention.head.1", "3.mlp", "1"]
    result = lesion.interact(
        llama, "primer:atlas", places=named, design=("pairs", "shapley"), measure="gold", factor=-1, items=4
    )
    scores = result.answers.groupby("edit")["scores"].agg(lambda each: np.mean([one[0] for one in each]))
    table = result.table_full.set_index("places")
    head, mlp, both = "3.attention.head.1×-1", "3.mlp×-1", "3.attention.head.1×-1 + 3.mlp×-1"
    assert table.loc["3.attention.head.1,3.mlp", "beyond"] == pytest.approx(
        scores[head] + scores[mlp] - scores["baseline"] - scores[both]
    )
    assert set(result.tables["shapley"]["place"]) == set(named)
    with pytest.raises(lesion.UsageError, match=r"There is no 3.attention.head.99"):
        lesion.interact(llama, "primer:atlas", places=["3.attention.head.99", "1"], items=2)


STUDY = ("interact", "bundled:llama-base", "--task", "primer:arithmetic", "--out", "new")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--layers", "3"), "needs at least two places, and layers 3 is one"),
        (("--layers", "3,9"), "there is no block 9: bundled:llama-base has blocks 0 to 7"),
        (("--design", "pairs,pears"), "pairs, windows, cumulative or shapley"),
        (("--design", "windows", "--layers", "1,3,5"), "has no such run; name more blocks, or give a smaller window"),
        (("--design", "cumulative", "--layers", "1,3", "--order", "1,2"), "must name each of 1, 3 once"),
        (("--order", "1;2"), "'1;2' is no order"),
        (("--factor", "1"), "factor is 1, which edits nothing"),
        (("--places", "3,5.mlp", "--layers", "1-3"), "leave out layers and unit"),
        (("--places", "3,5.mlp", "--design", "windows"), "leave out places, or give another design"),
        (("--places", "3,up"), "'up' names no place"),
        (("--places", "3,9.mlp"), "there is no block 9"),
        (("--places", "3.mlp"), "needs at least two places, and places 3.mlp is one"),
        (("--places", "3.mlp.neuron.5,3.mlp"), "3.mlp.neuron.5 lies within 3.mlp, so that the two cannot be edited"),
    ],
)
def test_what_makes_no_set_is_refused_in_a_sentence(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = command(capsys, *STUDY, *arguments)
    assert done.code == 2
    assert said in " ".join(done.complaint.split())
    assert not list(tmp_path.iterdir())


def test_scored_texts_have_no_accuracy_to_lose(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("One stretch of text. " * 40)
    done = command(capsys, "interact", "bundled:llama-base", "--task", "text:a.txt", "--out", "new")
    refused(done, 2, "is scored, not judged")
