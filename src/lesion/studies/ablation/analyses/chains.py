"""Chains of thought under every edit: how they fail, whether they still calculate, and whether they calculate right.

Chains are what a model writes to questions whose answers are judged as mathematics, where half of the unedited answers
or more have an equation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from lesion.core.values import with_corrected
from lesion.edits.edit import BASELINE
from lesion.edits.place import Unit
from lesion.report import wording
from lesion.report.blocks import Folded
from lesion.report.claims import Claim, rule
from lesion.report.marks import Curves, Map
from lesion.report.parts import Part
from lesion.report.rows import Rows, column, subject
from lesion.report.table import Table
from lesion.report.values import POINTS, SHARE, WHOLE_SHARE, Estimate, Number, decimals
from lesion.statistics.paired import ALPHA, accuracy, holm, median_shift
from lesion.studies.ablation.cell import Cell, Curve, Labels, named, under
from lesion.studies.ablation.result import Material
from lesion.studies.ablation.sweep import Factor
from lesion.tasks.early import early_name
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
"""So many edits, of the largest losses, are drawn over the limits, and so many blocks named of several models."""
FEW = 2
"""Of more models one claim is made, and their maps are folded."""
DIFFERENCES = {
    "more": ("wrong", "more chains have a wrong equation"),
    "fewer": ("calculating", "fewer chains have an equation"),
}
"""What is tested, with the share that it is of, and what is said where it is shown."""


class Under(Labels):
    """A model on a task without an edit (`cut` is *unedited*), or under one."""

    unit: Unit = column("Unit", wording.UNIT_NAMES.__getitem__, label=True)
    factor: Factor = column("Factor", wording.factor_name, label=True)
    cut: str = column("Block", label=True)
    edit: str = column()


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
    wrong: float = column("With a wrong one", WHOLE_SHARE)
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
        adds: how much more are right with whole chains, with the exact paired test (McNemar).
    """

    limit: int = column("Token limit")
    accuracy: Estimate = column("Accuracy", SHARE)
    early: Estimate | None = column("Answered there", SHARE, default=None)
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
        right, tokens = self.frame["correct"].to_numpy(bool), self.frame["tokens"].to_numpy()
        for limit in sorted({*LIMITS, *self.early}):
            within, answered = right & (tokens <= limit), self.answered(limit)
            early = adds = None
            if answered is not None:
                early, adds = Estimate.of(accuracy(answered, level)), Estimate.dropped(right, answered, level)
            share = Estimate.of(accuracy(within, level))
            yield WithinLimit(**dict(self.about), limit=limit, accuracy=share, early=early, adds=adds)
            if limit >= tokens.max():
                return

    def answered(self, limit: int) -> np.ndarray | None:
        """Which answers are right if longer chains are made to answer there, bool [items]; None if some were not."""
        long = self.frame["tokens"].to_numpy() > limit
        early = self.early.get(limit)
        verdicts = {} if early is None else dict(zip(early["item"], early["correct"], strict=True))
        items = self.frame["item"]
        if early is None or not set(items[long]) <= verdicts.keys():
            return None
        whole = self.frame["correct"]
        rows = zip(items, whole, long, strict=True)
        return np.array([bool(verdicts[item] if late else right) for item, right, late in rows])


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

    def shown(self, by: str, sign: int = 1) -> list[tuple[Cell, Chains]]:
        """The edits under which one of `DIFFERENCES`, or of `longer`, is shown on one side of 0."""
        every = [(cell, row, getattr(row, by)) for (cell, _), row in zip(self.edited, self.rows, strict=True)]
        return [(cell, row) for cell, row, found in every if found.value * sign > 0 and found.is_shown]


def broken(material: Material) -> list[Broken]:
    """The curves of tasks that are answered in chains; none of a study that stops cells once they are decided."""
    answers = material.answers
    if answers.empty:
        return []
    by_edit = dict(iter(answers.groupby(["model_name", "task", "edit"], sort=False)))
    limits = material.summary.study.early_answers

    def early(curve: Curve, edit: str) -> dict[int, pd.DataFrame]:
        frames = {limit: by_edit.get((curve.model, early_name(curve.task, limit), edit)) for limit in limits}
        return {limit: frame for limit, frame in frames.items() if frame is not None}

    every = []
    for curve in material.curves:
        own = by_edit.get((curve.model, curve.task, str(BASELINE)))
        if curve.stopped or own is None:
            continue
        language = Language.of(own["question"], list(own["text"]))
        about = {"model": curve.model, "task": curve.task, "unit": curve.unit, "factor": curve.factor}
        without = str(BASELINE)
        unedited = Texts(Under(**about, cut="unedited", edit=without), own, language, early(curve, without))
        if unedited.calculating.mean() < CHAINS:
            continue
        edited = []
        for cell in curve.cells:
            frame = by_edit.get((curve.model, curve.task, cell.edit))
            if frame is not None and list(frame["item"]) == list(own["item"]):
                under = Under(**about, cut=str(cell.layer), edit=cell.edit)
                edited.append((cell, Texts(under, frame, language, early(curve, cell.edit))))
        if edited:
            every.append(Broken(curve, unedited, tuple(edited), material.summary.study.level))
    return every


@rule
def how_chains_break(every: Sequence[Broken]) -> Iterable[Claim]:
    """What chains of thought break of: equations that are wrong, or chains that never get to one.

    Says: Without block L more chains have a wrong equation: X % against Y % unedited, Z % are language. | Without block
    L fewer chains have an equation: X % against Y % unedited. | No block is shown to make more chains calculate
    wrongly, or fewer calculate. | Of N models more chains have a wrong equation without block L in n. | Of N models
    fewer chains have an equation without block L in n.
    Needs: an exact paired test (McNemar) over the chains of the same items, Holm-corrected over all blocks of a model
    """
    labels = [of.curve.labels for of in every]
    for own in _by_sweep(every):
        if len(own) > FEW:
            rows = tuple(row for of in own for by in DIFFERENCES for _, row in of.shown(by))
            sentences = tuple(filter(None, (_over_models(own, by) for by in DIFFERENCES)))
            yield Claim(sentences or (_none(own[0]),), rows, own[0].curve.task)
            continue
        for of in own:
            sentences = tuple(filter(None, (_sentence(of, by) for by in DIFFERENCES)))
            rows = tuple(dict.fromkeys(row for by in DIFFERENCES for _, row in of.shown(by)))
            yield Claim(sentences or (_none(of),), rows, subject(of.curve.labels, labels))


def _none(of: Broken) -> str:
    noun = wording.UNIT_NAMES[of.curve.unit]
    return f"No {noun} is shown to make more chains calculate wrongly, or fewer calculate."


def _by_sweep(every: Sequence[Broken]) -> list[list[Broken]]:
    """Those of the same task, unit and factor together."""
    groups: dict[tuple[str, Unit, Factor], list[Broken]] = {}
    for of in every:
        groups.setdefault((of.curve.task, of.curve.unit, of.curve.factor), []).append(of)
    return list(groups.values())


def _over_models(own: Sequence[Broken], by: str) -> str:
    """In how many models which blocks do it."""
    counts = Counter(named([cell]) for of in own for cell, _ in of.shown(by))
    if not counts:
        return ""
    places = [f"{place} in {count}" for place, count in counts.most_common(DRAWN)]
    if len(counts) > DRAWN:
        places.append(wording.counted(len(counts) - DRAWN, f"other {wording.UNIT_NAMES[own[0].curve.unit]}"))
    return f"Of {len(own)} models {DIFFERENCES[by][1]} without {wording.listed(places)}."


def _sentence(of: Broken, by: str) -> str:
    """Of the edit with the largest difference, and which others differ; empty where none is shown to."""
    (share, what), shown, without = DIFFERENCES[by], of.shown(by), of.without
    if not shown:
        return ""
    cell, row = max(shown, key=lambda pair: getattr(pair[1], by).value)
    numbers = [WHOLE_SHARE.text(getattr(each, share)) for each in (row, without)]
    p = wording.p_value(getattr(row, by).p_corrected)
    text = f"{under(named([cell]), cell.factor)} {what}: {numbers[0]} against {numbers[1]} unedited (corrected p {p})"
    others = [each for each, _ in shown if each is not cell]
    also = f"; likewise {under(named(others), cell.factor)}" if others else ""
    return f"{wording.capital(text)}, {WHOLE_SHARE.text(row.language)} are language{also}."


@rule
def how_long_chains_are(every: Sequence[Broken]) -> Iterable[Claim]:
    """Whether edits make chains longer or shorter.

    Says: Chains are longer without block L: A tokens in the median, B unedited (corrected p …). | Chains are shorter
    without block L: likewise.
    Needs: an exact sign test over the chains of the same items, Holm-corrected over all blocks of a model; one or two
    models
    """
    labels = [of.curve.labels for of in every]
    for of in every if len(every) <= FEW else ():
        changes = {word: of.shown("longer", sign) for word, sign in (("longer", 1), ("shorter", -1))}
        sentences = tuple(_length(of, word, own) for word, own in changes.items() if own)
        if sentences:
            rows = tuple(row for own in changes.values() for _, row in own)
            yield Claim(sentences, rows, subject(of.curve.labels, labels))


def _length(of: Broken, word: str, own: Sequence[tuple[Cell, Chains]]) -> str:
    """Of the edit with the largest change of length, and which others change it so."""
    cell, row = max(own, key=lambda pair: abs(getattr(pair[1].longer, "value", 0.0)))
    others = [each for each, _ in own if each is not cell]
    also = f"; likewise {under(named(others), cell.factor)}" if others else ""
    p = wording.p_value(getattr(row.longer, "p_corrected", None))
    return (
        f"Chains are {word} {under(named([cell]), cell.factor)}: {row.tokens:.0f} tokens in the median,"
        f" {of.without.tokens:.0f} unedited (corrected p {p}){also}."
    )


@rule
def what_chains_add(every: Sequence[Broken]) -> Iterable[Claim]:
    """Whether the rest of a chain adds anything to what the unedited model answers after its beginning.

    Says: Made to answer after N tokens of its chains (or: without a chain), the unedited model is right in X %, with
    whole chains in Y % (corrected p …). | The same, and: that the rest of the chains changes this is not shown.
    Needs: early answers (`--early-answers`); an exact paired test (McNemar), Holm-corrected over the limits
    """
    labels = [of.curve.labels for of in every]
    for of in every:
        rows = [row for row in of.unedited.within(of.level) if row.early is not None]
        if not rows:
            continue
        first, whole = rows[0], float(of.unedited.frame["correct"].mean())
        shares = [WHOLE_SHARE.text(share) for share in (getattr(first.early, "value", None), whole)]
        after = f"after {first.limit} tokens of its chains" if first.limit else "without a chain"
        p, *_ = holm([getattr(row.adds, "p", 1.0) for row in rows])
        text = (
            f"Made to answer {after}, the unedited model is right in {shares[0]}, with whole chains in {shares[1]}"
            f" (corrected p {wording.p_value(p)})"
        )
        shown = "" if p <= ALPHA else ": that the rest of the chains changes this is not shown"
        yield Claim((f"{text}{shown}.",), tuple(rows), subject(of.curve.labels, labels))


def part(material: Material) -> Part | None:
    """How chains fail under every edit, and what they calculate; None where no task is answered in chains."""
    every = broken(material)
    if not every:
        return None
    panel = ("model", "task", "unit", "factor")
    texts = [[of.unedited, *(texts for _, texts in of.edited)] for of in every]
    fails = [row for own in texts for each in own for row in each.fails()]
    kinds = {kind for own in texts for each in own for kind in each.failures}
    fails = [row for row in fails if row.failure in kinds]
    table = Rows("failures", fails, (Fails,), "How answers fail", most="answers")
    mark = Map(
        "share", "cut", "failure", hue="share", full=1.0, panel=panel, wide=True, name="failures",
        caption="Share of all answers that fail so, in %; the others are right.",
    )  # fmt: skip
    rows = [row for of in every for row in (of.without, *of.rows)]
    chains = Rows(
        "chains", rows, (Chains,), "Equations of the chains",
        "Fewer, more: than unedited, in points of all chains, with the exact paired test.",
    )  # fmt: skip
    within = [row for of in every for each in _drawn(of) for row in each.within(of.level)]
    limits = Curves(
        "accuracy", "limit", ("cut",), panel=panel, log=True, name="token-limits", wide=True,
        caption="Accuracy if answers had been cut off after so many tokens: unedited, and under the largest losses.",
    ).figure([row for row in within if row.limit], "token-limits")  # fmt: skip
    asked = [row for row in within if row.early is not None]
    early = Curves(
        "early", "limit", ("cut",), panel=panel, name="early-answers", wide=True,
        caption="Accuracy where longer chains were cut off after so many tokens and their answer asked for.",
    ).figure(asked, "early-answers") if asked else None  # fmt: skip
    answered = [row for own in texts for each in own for row in each.within(every[0].level) if row.early is not None]
    early_table = Rows(
        "early", answered, (WithinLimit,), "Early answers",
        "The rest adds: points that whole chains have more right, with the exact paired test, not corrected.",
    )  # fmt: skip
    alike = [row for of in every for each in _drawn(of) for row in each.alike(of.unedited)]
    leaving = Curves(
        "same", "words", ("cut",), panel=panel, log=True, low=0.0, high=100.0, name="as-unedited", wide=True,
        caption="Share of chains that begin with so many words of the unedited one.",
    ).figure(alike, "as-unedited")  # fmt: skip
    unmistaken = [row for of in every for each in _drawn(of) for row in each.unmistaken()]
    slips = Curves(
        "right", "equations", ("cut",), panel=panel, low=0.0, high=100.0, name="equations", wide=True,
        caption="Share of chains with so many equations in which all of these are right.",
    ).figure(unmistaken, "equations")  # fmt: skip
    few = len(every) <= FEW
    figures = {"How answers fail, in every model": None if few else mark.figure(fails, "failures")}
    figures |= {"Accuracy by token limit": limits, "Accuracy of early answers": early}
    figures |= {"Where chains leave the unedited ones": leaving, "Where equations become wrong": slips}
    folded = [Folded(title, (figure,)) for title, figure in figures.items() if figure is not None]
    return Part(
        "How do chains of thought break?",
        table,
        (mark,) if few else (),
        (*how_chains_break(every), *how_long_chains_are(every), *what_chains_add(every)),
        "Every wrong answer counts once: under the first of these, from the top, that holds.",
        "Chains",
        own=(
            *folded,
            Folded("The equations under every edit", (Table.of(chains),)),
            *([Folded("Early answers under every edit", (Table.of(early_table),))] if answered else []),
        ),
        wide=True,
    )


def _drawn(of: Broken) -> list[Texts]:
    """The unedited chains, and those under the largest losses."""
    largest = sorted(of.edited, key=lambda pair: -pair[0].size)[:DRAWN]
    return [of.unedited, *(texts for _, texts in largest)]
