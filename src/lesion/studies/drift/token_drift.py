"""Token drift: which tokens leave their cluster between two layers, how often, where to, and in which context."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Shaped
from scipy.optimize import linear_sum_assignment

from lesion.core.values import Estimate
from lesion.errors import LesionError
from lesion.statistics.paired import wilson
from lesion.studies.drift.result import Destination, Example, Flow, Leaving, Tokens

MOST_TOKENS = 40
MOST_EXAMPLES = 5
MOST_TARGETS = 6
NAMED_BY = 3  # commonest tokens of a cluster that make its name
BEFORE, AFTER = 12, 6  # tokens shown around an example
LONGEST = 80  # characters of a text shown
SEEN = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥"})


@dataclass(frozen=True, eq=False)
class Occurrences:
    """The tokens of one run, with their clusters at two layers.

    Attributes:
        ids: [tokens] token ids.
        classes: [tokens] the name of each token's class.
        first: [tokens] cluster at the earlier layer.
        second: [tokens] cluster at the later layer.
        text_of: [tokens] which text each token is in.
        position: [tokens] its place in that text, from 0.
        texts: token ids of the texts, whole.
        items: of each text, the id of its item.
    """

    ids: Int[np.ndarray, " tokens"]
    classes: Shaped[np.ndarray, " tokens"]
    first: Int[np.ndarray, " tokens"]
    second: Int[np.ndarray, " tokens"]
    text_of: Int[np.ndarray, " tokens"]
    position: Int[np.ndarray, " tokens"]
    texts: Sequence[Sequence[int]]
    items: Sequence[str]


def contingency(
    first: Int[np.ndarray, " tokens"], second: Int[np.ndarray, " same_tokens"]
) -> Int[np.ndarray, "clusters clusters_after"]:
    """How many tokens are in each pair of clusters; clusters are numbered from 0, some may be empty.

    Raises:
        LesionError: the two do not have the same tokens, or there are none.
    """
    if first.shape != second.shape or not len(first):
        raise LesionError("Clusters can be matched between two layers of the same tokens, one token at least.")
    table = np.zeros((int(first.max()) + 1, int(second.max()) + 1), dtype=np.int64)
    np.add.at(table, (first, second), 1)
    return table


def match(table: Int[np.ndarray, "clusters clusters_after"]) -> dict[int, int]:
    """Which later cluster continues each earlier one: the matching, one to one, under which most tokens stay.

    That is the optimal assignment (Kuhn 1955). A pair that shares no token is no match.
    """
    rows, columns = linear_sum_assignment(table, maximize=True)
    return {int(row): int(column) for row, column in zip(rows, columns, strict=True) if table[row, column]}


def leaves(first: Int[np.ndarray, " tokens"], second: Int[np.ndarray, " same_tokens"]) -> Bool[np.ndarray, " tokens"]:
    """Which tokens leave: their later cluster is not the one that continues their earlier cluster (`match`)."""
    table = contingency(first, second)
    continues = np.full(len(table), -1)
    for earlier, later in match(table).items():
        continues[earlier] = later
    left: Bool[np.ndarray, " tokens"] = continues[first] != second
    return left


def token_drift(tokenizer: Any, runs: Sequence[Occurrences], layers: tuple[int, int], level: float) -> Tokens:
    """Which token types and classes leave their clusters between two layers, over all runs.

    Clusters of a run are matched within the run. The interval of a share (Wilson) takes occurrences for independent,
    which those of one text are not: it is narrower than the doubt about other texts. A share is to be read against the
    overall one, since k-means alone moves tokens between any two clusterings.

    Args:
        tokenizer: spells tokens.
        runs: the tokens of every run, one run at least.
        layers: the two layers.
        level: of the intervals.

    Returns:
        The `MOST_TOKENS` types that most surely leave, by the lower limit of their share, each with up to
        `MOST_EXAMPLES` examples; every class; and the flow of the first run.
    """
    left = [leaves(run.first, run.second) for run in runs]
    of_type: dict[int, Counter[str]] = {}
    of_class: dict[str, Counter[str]] = {}
    class_of: dict[int, Counter[str]] = {}
    for run, gone in zip(runs, left, strict=True):
        for token, kind, away in zip(run.ids.tolist(), run.classes.tolist(), gone.tolist(), strict=True):
            of_type.setdefault(token, Counter()).update(count=1, left=int(away))
            of_class.setdefault(kind, Counter()).update(count=1, left=int(away))
            class_of.setdefault(token, Counter())[kind] += 1
        for token, kept in _home(run).items():
            of_type[token]["home"] += kept
    share = {token: _share(counts, level) for token, counts in of_type.items()}
    surely = sorted(share, key=lambda token: (-(share[token].low or 0.0), -of_type[token]["count"], token))
    spelt = {token: spell(tokenizer, token) for token in of_type}
    types = [
        Leaving(
            token=spelt[token],
            id=token,
            kind=class_of[token].most_common(1)[0][0],
            count=of_type[token]["count"],
            left=of_type[token]["left"],
            home=of_type[token]["home"],
            share=share[token],
            examples=_examples(tokenizer, runs, left, "ids", token),
        )
        for token in surely[:MOST_TOKENS]
    ]
    classes = [
        Leaving(
            token=None,
            kind=kind,
            count=counts["count"],
            left=counts["left"],
            share=_share(counts, level),
            examples=_examples(tokenizer, runs, left, "classes", kind),
        )
        for kind, counts in sorted(of_class.items(), key=lambda entry: (-entry[1]["count"], entry[0]))
    ]
    everything = Counter(count=sum(map(len, left)), left=int(sum(gone.sum() for gone in left)))
    overall = Leaving(
        token=None,
        kind="all",
        count=everything["count"],
        left=everything["left"],
        share=_share(everything, level),
    )
    return Tokens(
        start=layers[0], end=layers[1], overall=overall, types=types, classes=classes, flow=_flow(runs[0], spelt)
    )


def spell(tokenizer: Any, token: int) -> str:
    """A token as text; where it is a piece of a character, as the vocabulary writes it."""
    text = str(tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))
    written = tokenizer.convert_ids_to_tokens(int(token))
    if "\ufffd" in text or not text:
        text = str(written) if written is not None else f"#{token}"
    return text[:LONGEST]


def _home(run: Occurrences) -> dict[int, int]:
    """Of each token type, how many of its occurrences are in the earlier cluster that has most of them."""
    pairs, counts = np.unique(np.stack([run.ids, run.first]), axis=1, return_counts=True)
    most: dict[int, int] = {}
    for token, count in zip(pairs[0].tolist(), counts.tolist(), strict=True):
        most[token] = max(most.get(token, 0), count)
    return most


def _share(counts: Counter[str], level: float) -> Estimate:
    low, high = wilson(counts["left"], counts["count"], level)
    return Estimate(value=counts["left"] / counts["count"], low=low, high=high)


def _examples(
    tokenizer: Any, runs: Sequence[Occurrences], left: Sequence[np.ndarray], of: str, which: int | str
) -> list[Example]:
    """Occurrences that left, in context: from as many texts as there are before a second of any, runs in order."""
    places = [
        (run, int(place))
        for run, gone in enumerate(left)
        for place in np.flatnonzero(gone & (getattr(runs[run], of) == which))
    ]
    seen: Counter[tuple[int, int]] = Counter()
    ranked = []
    for run, place in places:
        text = int(runs[run].text_of[place])
        ranked.append((seen[run, text], run, place))
        seen[run, text] += 1
    return [_in_context(tokenizer, runs[run], run, place) for _, run, place in sorted(ranked)[:MOST_EXAMPLES]]


def _in_context(tokenizer: Any, run: Occurrences, number: int, place: int) -> Example:
    text, position = int(run.text_of[place]), int(run.position[place])
    ids = list(run.texts[text])
    start = max(0, position - BEFORE)

    def read(some: list[int]) -> str:
        return str(tokenizer.decode(some, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    before, through = read(ids[start:position]), read(ids[start : position + 1])
    whole = read(ids[start : position + 1 + AFTER])
    # What tokens mean together is not always what they mean alone: a space, or the bytes of one character.
    apart = through.startswith(before) and whole.startswith(through) and len(through) > len(before)
    token = through[len(before) :] if apart else spell(tokenizer, ids[position])
    after = whole[len(through) :] if apart else read(ids[position + 1 : position + 1 + AFTER])
    return Example(
        before=before[-LONGEST:],
        token=token[:LONGEST],
        after=after[:LONGEST],
        item=run.items[text],
        run=number,
        cluster=int(run.first[place]),
        into=int(run.second[place]),
    )


def _flow(run: Occurrences, spelt: dict[int, str]) -> list[Flow]:
    """Each earlier cluster of a run, the largest first, and the later clusters of its tokens."""
    table = contingency(run.first, run.second)
    continues = match(table)
    named = [_names(run.ids, of, spelt) for of in (run.first, run.second)]
    rows = []
    for earlier in np.argsort(-table.sum(1), kind="stable").tolist():
        size = int(table[earlier].sum())
        if not size:
            continue
        later = [int(other) for other in np.argsort(-table[earlier], kind="stable") if table[earlier, other]]
        stayed = int(table[earlier, continues[earlier]]) if earlier in continues else 0
        rows.append(
            Flow(
                number=earlier,
                name=named[0][earlier],
                count=size,
                left=size - stayed,
                into=[
                    Destination(
                        number=other,
                        name=named[1][other],
                        count=int(table[earlier, other]),
                        matched=continues.get(earlier) == other,
                    )
                    for other in later[:MOST_TARGETS]
                ],
                others=int(table[earlier, later[MOST_TARGETS:]].sum()),
            )
        )
    return rows


def _names(
    ids: Int[np.ndarray, " tokens"], clusters: Int[np.ndarray, " tokens"], spelt: dict[int, str]
) -> dict[int, str]:
    """Each cluster by its commonest tokens, their spaces seen; of equally common ones the smaller id comes first."""
    pairs, counts = np.unique(np.stack([clusters, ids]), axis=1, return_counts=True)
    by_cluster: dict[int, list[tuple[int, int]]] = {}
    for cluster, token, count in zip(pairs[0].tolist(), pairs[1].tolist(), counts.tolist(), strict=True):
        by_cluster.setdefault(cluster, []).append((-count, token))
    return {
        cluster: ", ".join(spelt[token].translate(SEEN) for _, token in sorted(tokens)[:NAMED_BY])
        for cluster, tokens in by_cluster.items()
    }
