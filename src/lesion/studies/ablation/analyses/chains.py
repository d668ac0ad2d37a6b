"""Chains of thought under every edit: how they fail, whether they still calculate, and whether they calculate right.

Chains are what a model writes to questions whose answers are judged as mathematics, where half of the unedited answers
or more have an equation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lesion.core.values import alike, with_corrected
from lesion.edits.edit import BASELINE
from lesion.report import wording
from lesion.report.blocks import Figure, Folded
from lesion.report.claims import Claim, rule
from lesion.report.marks import Curves, Map, Mark
from lesion.report.parts import Part
from lesion.report.rows import Rows, column, subject
from lesion.report.table import Table
from lesion.report.values import POINTS, SHARE, WHOLE_SHARE, Estimate, Number, decimals
from lesion.statistics.paired import ALPHA, accuracy, holm, median_shift
from lesion.studies.ablation.cell import SWEPT, Cell, Curve, Under, named, under
from lesion.studies.ablation.result import Material
from lesion.tasks.early import early_name, said
from lesion.tasks.judges.equations import Equation, equations
from lesion.tasks.judges.failures import FAILURES, Failure, Language, failure
from lesion.tasks.prompts import common_start
from lesion.tasks.task import Verdict

CHAINS = 0.5
"""From this share of unedited answers with an equation on, the answers to a task are chains."""
LIMITS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Tokens after which accuracy is looked at."""
WORDS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""After so many words it is looked at how many chains still are as the unedited ones."""
EQUATIONS = 6
"""So many equations of a chain are looked at one after another."""
DRAWN = 5
"""So many edits, of the largest losses, are drawn over the limits."""
HALF = 0.5
"""Where fewer chains than these are language, it is said of their equations."""
UNREAD = 0.1
"""From this share of unread early answers on, what whole chains add may be the form of the answer."""
FEW = 2
"""Of more models one claim is made, and their maps are folded."""
TOKENS = decimals(0, "tokens")


class Change(NamedTuple):
    """A change of the chains that is tested: the field of its test and the side of 0, of what it is, what is said."""

    by: str
    sign: int
    of: str
    said: str


EQUATION_CHANGES = (
    Change("more", 1, "wrong", "more chains have a wrong equation"),
    Change("fewer", 1, "calculating", "fewer chains have an equation"),
)
LENGTH_CHANGES = (
    Change("longer", 1, "tokens", "chains are longer"),
    Change("longer", -1, "tokens", "chains are shorter"),
)


class Fails(Under):
    """How many of the answers fail in one way (`lesion.tasks.judges.failures`)."""

    failure: Failure = column("Failure", label=True)
    answers: int = column("Answers")
    share: float = column("Share", WHOLE_SHARE)


class Chains(Under):
    """The equations of chains.

    Attributes:
        answers: how many chains there are.
        calculating: the share of them with an equation; `fewer`: how much smaller it is than unedited, with the exact
            paired test (McNemar).
        wrong: the share with a wrong equation; `more`: how much larger it is than unedited, likewise.
        equations, mistaken: how many there are in all chains, and how many are wrong.
        language: the share that is language.
        same: of how many words the part is that a chain has in common with the unedited one at its beginning, median.
        tokens: of a chain, median; `longer`: of how many more there are than in the unedited chain, with the sign test.
    """

    answers: int = column("Chains")
    calculating: float = column("With an equation", WHOLE_SHARE)
    fewer: Estimate | None = column("Fewer by", POINTS, default=None, p=True)
    wrong: float = column("Wrong equation", WHOLE_SHARE)
    more: Estimate | None = column("More by", POINTS, default=None, p=True)
    equations: int = column("Equations")
    mistaken: int = column("Wrong")
    language: float = column("Language", WHOLE_SHARE)
    same: Number = column("As unedited, words", decimals(0), default=None)
    tokens: float = column("Tokens", decimals(0))
    longer: Estimate | None = column("Longer by, tokens", decimals(0), default=None, p=True)


class WithinLimit(Under):
    """The accuracy if answers had been cut off after so many tokens: right are those that are right and no longer.

    Attributes:
        early: the accuracy if longer chains are made to answer there; None where they were not asked.
        unread: in which share of these early answers no answer can be read; None where there are none.
        adds: how much more are right with whole chains, with the exact paired test (McNemar).
    """

    limit: int = column("Token limit")
    accuracy: Estimate = column("Accuracy", SHARE)
    early: Estimate | None = column("Answered there", SHARE, default=None)
    unread: Number = column("Unread there", WHOLE_SHARE, default=None)
    adds: Estimate | None = column("The rest adds", POINTS, default=None, p=True)


class Alike(Under):
    """How many chains begin with so many words of the unedited one."""

    words: int = column("Words")
    same: float = column("As unedited", WHOLE_SHARE)


class Unmistaken(Under):
    """In how many chains, of those with so many equations, all of these are right."""

    equations: int = column("Equations")
    right: float = column("No wrong equation", WHOLE_SHARE)


@dataclass(frozen=True)
class Texts:
    """The answers to one task without an edit or under one, in the order of the items.

    Attributes:
        early: the rows of early answers, by the limit.
    """

    about: Under
    frame: pd.DataFrame
    language: Language
    early: Mapping[int, pd.DataFrame] = field(default_factory=dict)

    @cached_property
    def found(self) -> list[list[Equation]]:
        """The equations of every answer."""
        return [equations(text) for text in self.frame["text"]]

    @cached_property
    def failures(self) -> list[Failure | None]:
        """How every answer fails; None of those that are right."""
        names = ("text", "finish", "correct", "parsed", "gold")
        every = zip(*(self.frame[name] for name in names), strict=True)
        return [
            failure(
                text, finish, Verdict(bool(right), parsed if isinstance(parsed, str) else None), gold, self.language
            )
            for text, finish, right, parsed, gold in every
        ]

    @property
    def calculating(self) -> np.ndarray:
        """Which answers have an equation, bool [items]."""
        return np.array([bool(found) for found in self.found])

    @property
    def wrong(self) -> np.ndarray:
        """Which answers have a wrong equation, bool [items]."""
        return np.array([any(not equation.correct for equation in found) for found in self.found])

    @property
    def said(self) -> np.ndarray:
        """Of every answer the tokens but for the one that ended it, int [items]."""
        return np.asarray(said(self.frame["tokens"], self.frame["finish"]))

    def row(self, unedited: Texts, level: float) -> Chains:
        """What their equations are; with tests against the unedited ones, unless they are these."""
        every = [equation for found in self.found for equation in found]
        fewer = more = same = longer = None
        if unedited is not self:
            fewer = Estimate.dropped(unedited.calculating, self.calculating, level)
            more = Estimate.dropped(self.wrong, unedited.wrong, level)
            same = float(np.median(self.common(unedited)))
            lengths = (each.frame["tokens"].to_numpy() for each in (self, unedited))
            longer = Estimate.of(*median_shift(np.subtract(*lengths), level))
        return Chains(
            **dict(self.about),
            answers=len(self.found),
            calculating=float(self.calculating.mean()),
            fewer=fewer,
            wrong=float(self.wrong.mean()),
            more=more,
            equations=len(every),
            mistaken=sum(not equation.correct for equation in every),
            language=float(np.mean([self.language.holds(text) for text in self.frame["text"]])),
            same=same,
            tokens=float(self.frame["tokens"].median()),
            longer=longer,
        )

    def common(self, unedited: Texts) -> list[int]:
        """Of how many words the part is that each chain has in common with the unedited one at its beginning."""
        texts = zip(unedited.frame["text"], self.frame["text"], strict=True)
        return [common_start(first.split(), other.split()) for first, other in texts]

    def alike(self, unedited: Texts) -> Iterator[Alike]:
        """How many chains begin with so many words of the unedited one."""
        common = np.array(self.common(unedited))
        for words in WORDS:
            yield Alike(**dict(self.about), words=words, same=float((common >= words).mean()))

    def unmistaken(self) -> Iterator[Unmistaken]:
        """In how many chains the first equations, so many, are right."""
        right = [[equation.correct for equation in found] for found in self.found]
        for count in range(1, EQUATIONS + 1):
            of = [all(found[:count]) for found in right if len(found) >= count]
            if of:
                yield Unmistaken(**dict(self.about), equations=count, right=float(np.mean(of)))

    def fails(self) -> Iterator[Fails]:
        """How many fail in every way."""
        for kind in FAILURES:
            count = self.failures.count(kind)
            yield Fails(**dict(self.about), failure=kind, answers=count, share=count / len(self.failures))

    def within(self, level: float) -> Iterator[WithinLimit]:
        """The accuracy within every limit up to the longest answer."""
        right, tokens = self.frame["correct"].to_numpy(bool), self.said
        for limit in sorted({*LIMITS, *self.early}):
            within, answered = right & (tokens <= limit), self.answered(limit)
            early = adds = unread = None
            if answered is not None:
                early, adds = Estimate.of(accuracy(answered, level)), Estimate.dropped(right, answered, level)
                late = self.early[limit]["item"].isin(self.frame["item"][tokens > limit])
                unread = float(self.early[limit]["parsed"][late].isna().mean()) if late.any() else None
            share = Estimate.of(accuracy(within, level))
            yield WithinLimit(**dict(self.about), limit=limit, accuracy=share, early=early, unread=unread, adds=adds)
            if limit >= tokens.max():
                return

    def answered(self, limit: int) -> np.ndarray | None:
        """Which answers are right if longer chains are made to answer there, bool [items]; None if some were not."""
        early = self.early.get(limit)
        if early is None:
            return None
        late = self.said > limit
        verdicts = self.frame["item"].map(early.set_index("item")["correct"])
        return None if verdicts[late].isna().any() else self.frame["correct"].mask(late, verdicts).to_numpy(bool)


@dataclass(frozen=True)
class Broken:
    """The chains of one curve: unedited, and under every edit that was measured in full."""

    curve: Curve
    unedited: Texts
    edited: tuple[tuple[Cell, Texts], ...]
    level: float

    @cached_property
    def rows(self) -> list[Chains]:
        """A row for every edit; every p corrected by Holm over all edits that the study plans."""
        rows = [texts.row(self.unedited, self.level) for _, texts in self.edited]
        for name in ("fewer", "more", "longer"):
            rows = with_corrected(rows, name, self.curve.tests)
        return rows

    @cached_property
    def without(self) -> Chains:
        """The row of the unedited model."""
        return self.unedited.row(self.unedited, self.level)

    def shown(self, change: Change) -> list[tuple[Cell, Chains]]:
        """The edits under which a change is shown."""
        every = [(cell, row, getattr(row, change.by)) for (cell, _), row in zip(self.edited, self.rows, strict=True)]
        return [(cell, row) for cell, row, found in every if found.value * change.sign > 0 and found.is_shown]


def broken(material: Material) -> list[Broken]:
    """The curves of tasks that are answered in chains; none of a study that stops cells once they are decided."""
    answers = material.answers
    if answers.empty:
        return []
    by_edit = dict(iter(answers.groupby(["model_name", "task", "edit"], sort=False)))
    limits = material.summary.study.early_answers
    every = []
    for curve in material.curves:
        own = by_edit.get((curve.model, curve.task, str(BASELINE)))
        if curve.stopped or own is None:
            continue
        language = Language.of(own["question"], list(own["text"]))
        texts = {}
        for about in curve.edits:
            frame = by_edit.get((curve.model, curve.task, about.edit))
            if frame is not None and list(frame["item"]) == list(own["item"]):
                names = {limit: (curve.model, early_name(curve.task, limit), about.edit) for limit in limits}
                early = {limit: by_edit[name] for limit, name in names.items() if name in by_edit}
                texts[about.edit] = Texts(about, frame, language, early)
        unedited = texts[str(BASELINE)]
        edited = tuple((cell, texts[cell.edit]) for cell in curve.cells if cell.edit in texts)
        if edited and unedited.calculating.mean() >= CHAINS:
            every.append(Broken(curve, unedited, edited, material.summary.study.level))
    return every


@rule
def how_chains_break(every: Sequence[Broken]) -> Iterable[Claim]:
    """What chains of thought break of: equations that are wrong, or chains that never get to one.

    Says: Without block L more chains have a wrong equation: X % against Y % unedited. | Without block L fewer chains
    have an equation: X % against Y % unedited (Z % are still language). | No block is shown to make more chains
    calculate wrongly, or fewer calculate. | More chains have a wrong equation without blocks L in n of N models, …. |
    Fewer chains have an equation without blocks L in n of N models, ….
    Needs: an exact paired test (McNemar) over the chains of the same items, Holm-corrected over all blocks of a model
    """
    for own, subjects in _together(every):
        noun = wording.UNIT_NAMES[own[0].curve.unit]
        none = f"No {noun} is shown to make more chains calculate wrongly, or fewer calculate."
        sentences, rows = _changes(own, EQUATION_CHANGES)
        yield Claim(sentences or (none,), rows, subjects)


@rule
def how_long_chains_are(every: Sequence[Broken]) -> Iterable[Claim]:
    """Whether edits make chains longer or shorter.

    Says: Without block L chains are longer, by N tokens in the median of the pairs (corrected p …; Z % are still
    language). | Without block L chains are shorter, likewise. | Chains are longer without blocks L in n of N models, ….
    Needs: an exact sign test over the chains of the same items, Holm-corrected over all blocks of a model
    """
    for own, subjects in _together(every):
        sentences, rows = _changes(own, LENGTH_CHANGES)
        if sentences:
            yield Claim(sentences, rows, subjects)


def _together(every: Sequence[Broken]) -> Iterator[tuple[list[Broken], str]]:
    """What claims are made of, with their subjects: every curve, or more than `FEW` models of one sweep together."""
    labels = [of.curve.labels for of in every]
    edits = {(of.curve.unit, of.curve.factor) for of in every}
    for own in alike(every, "curve.task", "curve.unit", "curve.factor"):
        first = own[0].curve
        edit = f"{wording.UNIT_NAMES[first.unit]} {wording.changed(first.factor)}" * (len(edits) > 1)
        about = [([of], subject(of.curve.labels, labels)) for of in own] if len(own) <= FEW else [(own, first.task)]
        yield from ((of, f"{name}, {edit}" if name and edit else name or wording.capital(edit)) for of, name in about)


def _changes(own: Sequence[Broken], changes: Sequence[Change]) -> tuple[tuple[str, ...], tuple[Chains, ...]]:
    """A sentence for each change that is shown, and the rows behind them."""
    rows = dict.fromkeys(row for of in own for change in changes for _, row in of.shown(change))
    tell = _over_models if len(own) > 1 else _sentence
    return tuple(tell(own, change) for change in changes if any(of.shown(change) for of in own)), tuple(rows)


def _over_models(own: Sequence[Broken], change: Change) -> str:
    """Places by the number of models of which the change is shown, those of most models first."""
    cells = [cell for of in own for cell, _ in of.shown(change)]
    counts, by_place = Counter(named([cell]) for cell in cells), {named([cell]): cell for cell in cells}
    by_count: dict[int, list[Cell]] = {}
    for place, count in counts.most_common():
        by_count.setdefault(count, []).append(by_place[place])
    texts = [f"{under(named(alike), alike[0].factor)} in {count}" for count, alike in by_count.items()]
    texts[0] += f" of {len(own)} models"
    return wording.capital(f"{change.said} {wording.listed(texts)}.")


def _sentence(own: Sequence[Broken], change: Change) -> str:
    """Of the edit with the largest change, and which others do the same."""
    shown, without = own[0].shown(change), own[0].without
    cell, row = max(shown, key=lambda pair: change.sign * getattr(pair[1], change.by).value)
    found = getattr(row, change.by)
    p = f"corrected p {wording.p_value(found.p_corrected)}"
    if row.language < HALF:
        p += f"; {WHOLE_SHARE.text(row.language)} are still language"
    if change in LENGTH_CHANGES:
        size = TOKENS.text(found if change.sign > 0 else found.negative)
        text = f"{change.said}, by {size} in the median of the pairs"
    else:
        now, before = (WHOLE_SHARE.text(getattr(each, change.of)) for each in (row, without))
        text = f"{change.said}: {now} against {before} unedited"
    text = f"{under(named([cell]), cell.factor)} {text} ({p})"
    if others := [each for each, _ in shown if each is not cell]:
        text += f"; likewise {under(named(others), cell.factor)}"
    return f"{wording.capital(text)}."


@rule
def what_chains_add(every: Sequence[Broken]) -> Iterable[Claim]:
    """Whether the rest of a chain adds anything to what the unedited model answers after its beginning.

    Says: Made to answer after N tokens of its chains, the unedited model is right in X %, with
    whole chains in Y % (corrected p …). | The same, and: that the rest of the chains changes this is not shown. |
    After N tokens no answer can be read in X % of the chains cut off: the model may not know the form in which it is
    asked.
    Needs: early answers (`--early-answers`); an exact paired test (McNemar), Holm-corrected over the limits
    """
    labels = [of.curve.labels for of in every]
    for of in every:
        rows = [row for row in of.unedited.within(of.level) if row.early is not None]
        if not rows:
            continue
        first, whole = rows[0], float(of.unedited.frame["correct"].mean())
        early, whole_share = (WHOLE_SHARE.text(share) for share in (getattr(first.early, "value", None), whole))
        after = f"after {first.limit} tokens of its chains"
        p, *_ = holm([getattr(row.adds, "p", 1.0) for row in rows])
        text = f"Made to answer {after}, the unedited model is right in {early}, with whole chains in {whole_share}"
        text += f" (corrected p {wording.p_value(p)})"
        if p > ALPHA:
            text += ": that the rest of the chains changes this is not shown"
        sentences = [f"{text}."]
        most = max(rows, key=lambda row: row.unread or 0.0)
        if most.unread is not None and most.unread >= UNREAD:
            share = WHOLE_SHARE.text(most.unread)
            sentences.append(
                f"After {most.limit} tokens no answer can be read in {share} of the chains cut off: the model may not"
                " know the form in which it is asked."
            )
        yield Claim(tuple(sentences), tuple(rows), subject(of.curve.labels, labels))


def part(material: Material) -> Part | None:
    """How chains fail under every edit, and what they calculate; None where no task is answered in chains."""
    every = broken(material)
    if not every:
        return None
    texts = [each for of in every for each in (of.unedited, *(texts for _, texts in of.edited))]
    kinds = {kind for each in texts for kind in each.failures}
    fails = [row for each in texts for row in each.fails() if row.failure in kinds]
    mark = Map(
        "share", "cut", "failure", hue="share", full=1.0, panel=SWEPT, wide=True, name="failures",
        caption="Share of all answers that fail so, in %; the others are right.",
    )  # fmt: skip
    chains = Rows(
        "chains", [row for of in every for row in (of.without, *of.rows)], (Chains,), "Equations",
        "Fewer, more: than unedited, in points of all chains, with the exact paired test.",
    )  # fmt: skip
    early = Rows(
        "early", [row for each in texts for row in each.within(every[0].level) if row.early is not None],
        (WithinLimit,), "Early answers",
        "The rest adds: points that whole chains have more right, with the exact paired test, not corrected.",
    )  # fmt: skip
    charts = [figure for figure in _charts(every) if figure is not None]
    own = [Folded("More charts", tuple(charts))]
    marks: tuple[Mark, ...] = (mark,)
    if len(every) > FEW and (figure := mark.figure(fails, "")):
        own, marks = [Folded("In every model", (figure,)), *own], ()
    own += [Folded(rows.title, (Table.of(rows),)) for rows in (chains, early) if rows.records]
    return Part(
        "How do chains of thought break?",
        Rows("failures", fails, (Fails,), "How answers fail", most="answers"),
        marks,
        (*how_chains_break(every), *how_long_chains_are(every), *what_chains_add(every)),
        "Every wrong answer counts once, in the first row from the top that fits it.",
        "Chains",
        own=tuple(own),
        wide=True,
    )


def _charts(every: Sequence[Broken]) -> Iterator[Figure | None]:
    """Lines of the unedited chains, and of those under the largest losses; None where nothing is to be drawn."""
    drawn = []
    for of in every:
        largest = sorted(of.edited, key=lambda pair: -pair[0].size)[:DRAWN]
        drawn += [(of, texts) for texts in (of.unedited, *(texts for _, texts in largest))]
    within = [row for of, texts in drawn for row in texts.within(of.level)]
    share: dict[str, Any] = {"low": 0.0, "high": 100.0}
    for y, over, name, records, how, caption in (
        ("accuracy", "limit", "token-limits", [row for row in within if row.limit], {"log": True},
         "Accuracy if answers had been cut off after so many tokens: unedited, and under the largest losses."),
        ("early", "limit", "early-answers", [row for row in within if row.early is not None], {},
         "Accuracy where longer chains were cut off after so many tokens and their answer asked for."),
        ("same", "words", "as-unedited", [row for of, texts in drawn for row in texts.alike(of.unedited)],
         {"log": True, **share}, "Share of chains that begin with so many words of the unedited one."),
        ("right", "equations", "equations", [row for _, texts in drawn for row in texts.unmistaken()], share,
         "Share of chains with so many equations in which all of these are right."),
    ):  # fmt: skip
        yield Curves(y, over, ("cut",), panel=SWEPT, name=name, wide=True, caption=caption, **how).figure(records, "")
