"""Tokens that leave their cluster between two layers: matching, shares, examples, flows."""

from itertools import permutations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion.report.values import Estimate
from lesion.statistics.paired import wilson
from lesion.studies.drift.result import Destination
from lesion.studies.drift.token_drift import (
    MOST_EXAMPLES,
    MOST_TARGETS,
    MOST_TOKENS,
    Occurrences,
    contingency,
    leaves,
    match,
    token_drift,
)
from tiny import tokenizer

labels = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)


def brute(first: np.ndarray, second: np.ndarray) -> int:
    """The most tokens that stay under any one-to-one matching of five clusters with five."""
    table = [[int(((first == a) & (second == b)).sum()) for b in range(5)] for a in range(5)]
    return max(sum(table[a][order[a]] for a in range(5)) for order in permutations(range(5)))


@given(labels)
@settings(max_examples=25, deadline=None)
def test_as_many_tokens_stay_as_under_the_best_of_all_matchings(pairs):
    first, second = np.array(pairs).T
    assert int((~leaves(first, second)).sum()) == brute(first, second)


@given(labels, st.permutations(range(5)))
@settings(max_examples=25, deadline=None)
def test_numbers_of_clusters_mean_nothing(pairs, order):
    first, second = np.array(pairs).T
    renamed = np.array(order)[second]
    assert leaves(first, renamed).sum() == leaves(first, second).sum()
    assert not leaves(first, np.array(order)[first]).any()


def test_a_pair_of_clusters_without_a_token_in_common_is_no_match():
    table = contingency(np.array([0, 0, 1, 2]), np.array([0, 0, 0, 1]))
    assert table.tolist() == [[2, 0], [1, 0], [0, 1]]
    assert match(table) == {0: 0, 2: 1}


def run(text: str, first: list[int], second: list[int], item: str = "q") -> Occurrences:
    """One text, a token a character, its digits one class and all else another."""
    ids = np.array(tokenizer().encode(text, add_special_tokens=False))
    return Occurrences(
        ids,
        np.array(["digit" if character.isdigit() else "other" for character in text]),
        np.array(first),
        np.array(second),
        np.zeros(len(ids), dtype=np.int64),
        np.arange(len(ids)),
        [ids.tolist()],
        [item],
    )


def test_what_left_is_counted_by_token_type_and_class_against_all_tokens():
    # Of three sevens two leave the cluster of digits; letters stay.
    occurrences = run("a7b77c", [0, 1, 0, 1, 1, 0], [0, 1, 0, 0, 0, 0])
    more = run("7", [0], [0])
    result = token_drift(tokenizer(), [occurrences, more], (3, 5), 0.9)
    assert (result.start, result.end, result.overall.share.value) == (3, 5, 2 / 7)
    seven = next(row for row in result.types if row.token == "7")
    low, high = wilson(2, 4, 0.9)
    assert (seven.kind, seven.count, seven.left, seven.home) == ("digit", 4, 2, 4)
    assert seven.share == Estimate(value=0.5, low=low, high=high)
    assert {row.kind: (row.count, row.left) for row in result.classes} == {"digit": (4, 2), "other": (3, 0)}
    assert result.types[0] is seven


def test_runs_with_other_classes_of_tokens_are_counted_together_under_their_names():
    result = token_drift(tokenizer(), [run("ab", [0, 0], [0, 0]), run("7a", [0, 1], [0, 0])], (0, 1), 0.95)
    assert {row.kind: (row.count, row.left) for row in result.classes} == {"other": (3, 1), "digit": (1, 0)}


def test_an_example_shows_the_words_before_the_token_and_after_it():
    occurrences = run("i have 7 hats", [0] * 7 + [1] + [0] * 5, [0] * 13)
    (example,) = token_drift(tokenizer(), [occurrences], (0, 1), 0.95).types[0].examples
    assert (example.before, example.token, example.after) == ("i have ", "7", " hats")
    assert (example.item, example.run, example.cluster, example.into) == ("q", 0, 1, 0)


def test_a_flow_names_clusters_by_their_commonest_tokens_and_says_where_tokens_went():
    occurrences = run("aab77 7", [0, 0, 0, 1, 1, 0, 1], [0, 0, 0, 1, 2, 0, 1])
    flow = token_drift(tokenizer(), [occurrences], (0, 1), 0.95).flow
    assert [(row.name, row.count, row.left) for row in flow] == [("a, ␣, b", 4, 0), ("7", 3, 1)]
    assert flow[1].into == (
        Destination(number=1, name="7", count=2, matched=True),
        Destination(number=2, name="7", count=1, matched=False),
    )


def test_what_is_told_is_bounded_however_many_tokens_there_are():
    rng = np.random.default_rng(0)
    count, types = 4000, 60
    ids = rng.integers(3, 3 + types, count)
    many = Occurrences(
        ids, np.array(list("abc"))[ids % 3], rng.integers(0, 70, count), rng.integers(0, 70, count),
        np.arange(count) // 100, np.arange(count) % 100, ids.reshape(-1, 100).tolist(),
        [f"item {n}" for n in range(count // 100)],
    )  # fmt: skip
    result = token_drift(tokenizer(), [many], (0, 1), 0.95)
    assert len(result.types) == MOST_TOKENS < types
    assert all(len(row.examples) <= MOST_EXAMPLES for row in (*result.types, *result.classes))
    assert all(len(row.into) <= MOST_TARGETS for row in result.flow)
    assert all(row.count == sum(to.count for to in row.into) + row.others for row in result.flow)
    # Examples come from different texts as long as there are some.
    assert all(len({example.item for example in row.examples}) == MOST_EXAMPLES for row in result.classes)
    lows = [row.share.low for row in result.types]
    assert lows == sorted(lows, reverse=True)
