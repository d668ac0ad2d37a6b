"""Token drift: classes of tokens, and which tokens leave their cluster between two layers, how often and where to."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, Shaped
from scipy.optimize import linear_sum_assignment
from scipy.stats import binom
from transformers import PreTrainedTokenizerBase

from lesion.report.values import Estimate
from lesion.report.wording import ALPHA
from lesion.statistics.paired import holm, wilson
from lesion.studies.drift.result import SEEN, Destination, Example, Flow, Leaving, Tokens
from lesion.tasks.primer import lexicon as primer

DIGIT, OPERATOR, PUNCTUATION, SPACE, SPECIAL = "digit", "operator", "punctuation", "white space", "special"
CAPITALISED, WORD, PIECE, OTHER = "capitalised word", "word", "piece of a word", "other"
CLASSES = (DIGIT, OPERATOR, PUNCTUATION, SPACE, SPECIAL, CAPITALISED, WORD, PIECE, OTHER)

# Signs between numbers that Unicode does not count among the mathematical ones.
_OPERATORS = frozenset("-*/%^")
_APOSTROPHES = frozenset("'’")
# How tokenizers write the space before a word, or a word's going on: byte-level and SentencePiece; WordPiece.
_SPACES, _GOES_ON = ("Ġ", "▁", " "), "##"


def token_classes(
    tokenizer: PreTrainedTokenizerBase,
    ids: Int[np.ndarray, " tokens"],
    text_of: Int[np.ndarray, " same_tokens"] | None = None,
    *,
    lexicon: Mapping[str, str] | None = None,
) -> Shaped[np.ndarray, " tokens"]:
    """The class of every token as text: one of `CLASSES`, or what the lexicon says of its word.

    Letters that touch are one word. A token that is all of a word is a word, tokens that share one are its pieces; all
    tokens of a word that the lexicon has, as written or in lower case, have its class. `-`, `*`, `/`, `%` and `^` are
    operators everywhere. No word crosses from one of the texts `text_of` to the next.
    """
    if text_of is None:
        text_of = np.zeros(len(ids), dtype=np.int64)
    known = lexicon or {}
    kinds = {token: _kind(tokenizer, token) for token in map(int, np.unique(ids))}
    classes = [""] * len(ids)
    word: list[int] = []

    def close() -> None:
        """Classify the tokens that are one word together."""
        text = "".join(kinds[int(ids[place])][1] for place in word)
        plain = PIECE if len(word) > 1 else CAPITALISED if text[:1].isupper() else WORD
        for place in word:
            classes[place] = known.get(text) or known.get(text.lower()) or plain
        word.clear()

    for place, token in enumerate(map(int, ids)):
        spaced, text, kind = kinds[token]
        if kind != WORD or spaced or (word and text_of[place] != text_of[word[0]]):
            close()
        if kind == WORD:
            word.append(place)
        else:
            classes[place] = known.get(text, kind)
    close()
    return np.array(classes, dtype=np.str_)


@cache
def primer_lexicon() -> Mapping[str, str]:
    """The class of every word of the primer's world; a word of several classes (`orange`) is left out."""
    parts = ("adverb", "verb", "preposition", "pronoun", "determiner", "conjunction", "question word")
    classes = {
        "first name": primer.FIRST_NAMES,
        "family name": primer.FAMILY_NAMES,
        "town": primer.TOWNS,
        "job": primer.JOBS,
        "animal": primer.ANIMALS,
        "colour": primer.COLOURS,
        "food": primer.FOODS,
        "thing": (*primer.THINGS, *primer.SINGULAR.values()),
        "place": primer.PLACES,
        "adjective": primer.ADJECTIVES,
        **{part: primer.PARTS_OF_SPEECH[part] for part in parts},
    }
    names_of: dict[str, set[str]] = {}
    for name, words in classes.items():
        for word in words:
            names_of.setdefault(word, set()).add(name)
    return {word: next(iter(names)) for word, names in names_of.items() if len(names) == 1}


def _kind(tokenizer: PreTrainedTokenizerBase, token: int) -> tuple[bool, str, str]:
    """Of a token: whether a space goes before its text, the text, and its class as far as it tells alone."""
    raw = tokenizer.convert_ids_to_tokens(token)
    added = getattr(tokenizer, "added_tokens_decoder", {}).get(token)
    if token in tokenizer.all_special_ids or (added is not None and (added.special or _bracketed(str(added)))):
        return False, str(raw), SPECIAL
    text = tokenizer.decode([token], clean_up_tokenization_spaces=False)
    raw = raw if isinstance(raw, str) else text
    spaced = raw.startswith(_SPACES) or text[:1].isspace()
    # Some decoders keep the mark of a word's going on.
    text = text.strip().removeprefix(_GOES_ON if raw.startswith(_GOES_ON) else "")
    return spaced, text, _class(text, bool(raw))


def _bracketed(text: str) -> bool:
    return len(text) > 2 and text[0] in "<[" and text[-1] in ">]"


def _class(text: str, something: bool) -> str:
    if not text:
        return SPACE if something else OTHER
    if all(character.isdecimal() for character in text):
        return DIGIT
    categories = {character: unicodedata.category(character) for character in text}
    signs = {character for character, category in categories.items() if character in _OPERATORS or category == "Sm"}
    marks = {character for character, category in categories.items() if category[0] == "P"}
    letters = {character for character, category in categories.items() if category[0] in "LM"}
    if signs >= categories.keys():
        return OPERATOR
    if signs | marks >= categories.keys():
        return PUNCTUATION
    return WORD if letters and letters | _APOSTROPHES >= categories.keys() else OTHER


MOST_TOKENS = 40
MOST_EXAMPLES = 5
MOST_TARGETS = 6
NAMED_BY = 3  # commonest tokens of a cluster that make its name
BEFORE, AFTER = 12, 6  # tokens shown around an example
LONGEST = 80  # characters of a text shown
FEWEST = 5
"""A token with fewer occurrences is not tested, and not named: 1 of 1 says nothing."""


@dataclass(frozen=True, eq=False)
class Occurrences:
    """The tokens of one run, with their clusters at the earlier and at the later layer.

    `text_of` and `position` say in which of the whole `texts` each token is and where, from 0; `items` whose they are.
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
    """How many tokens are in each pair of clusters, which are numbered from 0."""
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
    which those of one text are not: it is narrower than the doubt about other texts. k-means alone moves tokens between
    any two clusterings, so that a share means something only beside the overall one.

    Returns:
        The `MOST_TOKENS` types that most surely leave, by the lower limit of their share, each with up to
        `MOST_EXAMPLES` examples; every class; and the flow of the first run.
    """
    left = [leaves(run.first, run.second) for run in runs]
    counted = pd.concat(
        pd.DataFrame({"run": number, "ids": run.ids, "classes": run.classes, "first": run.first, "left": gone})
        for number, (run, gone) in enumerate(zip(runs, left, strict=True))
    )
    most = counted.groupby(["run", "ids", "first"]).size().groupby(["run", "ids"]).max().groupby("ids").sum()
    homes = dict(zip(most.index.tolist(), most.tolist(), strict=True))
    spelt = {token: spell(tokenizer, token) for token in homes}

    def leaving(rows: pd.DataFrame, kind: str, token: int | None = None) -> Leaving:
        count, gone = len(rows), int(rows["left"].sum())
        low, high = wilson(gone, count, level)
        share = Estimate(value=gone / count, low=low, high=high)
        home, name = (None, None) if token is None else (homes[token], spelt[token])
        return Leaving(token=name, id=token, kind=kind, count=count, left=gone, home=home, share=share)

    by_token = counted.groupby("ids")
    types = []
    for token in homes:
        rows = by_token.get_group(token)
        types.append(leaving(rows, Counter(rows["classes"]).most_common(1)[0][0], token))
    types.sort(key=lambda row: (-(row.share.low or 0.0), -row.count, row.id))
    classes = [leaving(rows, str(kind)) for kind, rows in counted.groupby("classes")]
    classes.sort(key=lambda row: (-row.count, row.kind))

    def shown(row: Leaving, of: str, which: int | str | None) -> Leaving:
        return row.model_copy(update={"examples": _examples(tokenizer, runs, left, of, which)})

    return Tokens(
        start=layers[0],
        end=layers[1],
        overall=leaving(counted, "all"),
        types=[shown(row, "ids", row.id) for row in types[:MOST_TOKENS]],
        classes=[shown(row, "classes", row.kind) for row in classes],
        flow=_flow(runs[0], spelt),
    )


def spell(tokenizer: Any, token: int) -> str:
    """A token as text; where it is a piece of a character, as the vocabulary writes it."""
    text = str(tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))
    written = tokenizer.convert_ids_to_tokens(int(token))
    if "\ufffd" in text or not text:
        text = str(written) if written is not None else f"#{token}"
    return text[:LONGEST]


def _examples(
    tokenizer: Any, runs: Sequence[Occurrences], left: Sequence[np.ndarray], of: str, which: int | str | None
) -> tuple[Example, ...]:
    """Occurrences that left, in context: from as many texts as there are before a second of any, runs in order."""
    seen: Counter[tuple[int, int]] = Counter()
    ranked = []
    for number, (run, gone) in enumerate(zip(runs, left, strict=True)):
        for place in np.flatnonzero(gone & (getattr(run, of) == which)).tolist():
            text = number, int(run.text_of[place])
            ranked.append((seen[text], number, place))
            seen[text] += 1
    return tuple(_in_context(tokenizer, runs[run], run, place) for _, run, place in sorted(ranked)[:MOST_EXAMPLES])


def _in_context(tokenizer: Any, run: Occurrences, number: int, place: int) -> Example:
    text, position = int(run.text_of[place]), int(run.position[place])
    ids = list(run.texts[text])
    start, end = max(0, position - BEFORE), position + 1 + AFTER

    def read(some: list[int]) -> str:
        return str(tokenizer.decode(some, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    before, through, whole = read(ids[start:position]), read(ids[start : position + 1]), read(ids[start:end])
    # What tokens mean together is not always what they mean alone: a space, or the bytes of one character.
    apart = through.startswith(before) and whole.startswith(through) and len(through) > len(before)
    token = through[len(before) :] if apart else spell(tokenizer, ids[position])
    after = whole[len(through) :] if apart else read(ids[position + 1 : end])
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
    before, after = (_names(run.ids, clusters, spelt) for clusters in (run.first, run.second))
    rows = []
    for earlier in np.argsort(-table.sum(1), kind="stable").tolist():
        counts = table[earlier]
        size = int(counts.sum())
        if not size:
            continue
        later = [other for other in np.argsort(-counts, kind="stable").tolist() if counts[other]]
        matched = continues.get(earlier)
        rows.append(
            Flow(
                number=earlier,
                name=before[earlier],
                count=size,
                left=size - (0 if matched is None else int(counts[matched])),
                into=[
                    Destination(number=other, name=after[other], count=int(counts[other]), matched=matched == other)
                    for other in later[:MOST_TARGETS]
                ],
                others=int(counts[later[MOST_TARGETS:]].sum()),
            )
        )
    return rows


def _names(
    ids: Int[np.ndarray, " tokens"], clusters: Int[np.ndarray, " tokens"], spelt: dict[int, str]
) -> dict[int, str]:
    """Each cluster by its most common tokens with visible spaces; of equally common ones the smaller id comes first."""
    pairs, counts = np.unique(np.stack([clusters, ids]), axis=1, return_counts=True)
    by_cluster: dict[int, list[tuple[int, int]]] = {}
    for cluster, token, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
        by_cluster.setdefault(cluster, []).append((-count, token))
    return {
        cluster: ", ".join(spelt[token].translate(SEEN) for _, token in sorted(tokens)[:NAMED_BY])
        for cluster, tokens in by_cluster.items()
    }


def named(tokens: Sequence[Leaving], overall: float, total: int) -> list[Leaving]:
    """The tokens that leave more often than all tokens do beyond chance, the surest first.

    One-sided binomial test of left of count against the overall share, corrected by Holm (1979) over all types with at
    least `FEWEST` occurrences, which are taken for independent. Only the foremost types are listed; as many others as
    the rest of the tokens allows are counted in, each with p = 1, so that this choice makes no p too small.
    `overall` is the share of all `total` tokens that leave.
    """
    often = [leaving for leaving in tokens if leaving.count >= FEWEST]
    unlisted = max(0, total - sum(leaving.count for leaving in tokens)) // FEWEST
    p = [float(binom.sf(leaving.left - 1, leaving.count, overall)) for leaving in often]
    corrected = holm(p, len(p) + unlisted)
    order = sorted(range(len(p)), key=lambda place: (corrected[place], p[place], -(often[place].share.value or 0.0)))
    return [often[place] for place in order if corrected[place] <= ALPHA]
