"""Kinds of ablation: which places are critical whatever stands in for them, and which under some kinds only.

Zero ablation takes a model off the distribution that its later blocks were trained on, so that it can break what does
not depend on the place (Li and Janson 2024); another text's contribution stays on it and misleads (Zhang and Nanda
2024). A place that is critical under all kinds needs neither explanation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from lesion.core.values import alike
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.marks import Map
from lesion.report.parts import Part
from lesion.report.rows import Rows, column
from lesion.report.values import POINTS
from lesion.studies.ablation.cell import AtBlock, Cell, Curve, named, plural
from lesion.studies.ablation.result import KindContrast, Material
from lesion.studies.ablation.sweep import kind_of

MOST = 5
"""So many parts of blocks are named in a clause."""
QUESTION = "Does the verdict survive the kind of ablation?"
STANDS_IN = {
    "zero": "nothing",
    "mean": "its mean over texts of the task (first and other tokens apart)",
    "position": "its mean over these texts at the same position",
    "resample": "what it added at the same position of another of these texts (of several draws all have to agree)",
    "optimal": "the constant that changes the model's predictions least, fitted on other texts than the items",
}
"""What each kind of ablation puts in the place of what a place adds."""


@dataclass(frozen=True)
class Kinds:
    """One model on one task with one unit under several kinds of ablation.

    Attributes:
        curves: by kind: those of the draws of `resample` together.
        measured: the cells of the first kind at places that every curve has, none left open.
        contrasts: of two kinds at each of these places.
    """

    curves: dict[str, list[Curve]]
    measured: tuple[Cell, ...]
    contrasts: tuple[KindContrast, ...]

    @property
    def first(self) -> Curve:
        """Any of the curves, for what they share."""
        return next(iter(self.curves.values()))[0]

    def cells(self, place: Cell) -> dict[str, list[Cell]]:
        """The cells of a place by kind."""
        at = {kind: [curve.at(place.layer, place.part) for curve in own] for kind, own in self.curves.items()}
        return {kind: [cell for cell in own if cell is not None] for kind, own in at.items()}

    def under(self, place: Cell) -> tuple[str, ...]:
        """The kinds under every draw of which a place is critical, or exceeds the effect."""
        return tuple(kind for kind, cells in self.cells(place).items() if all(cell.marked for cell in cells))

    def between(self, layer: int) -> list[KindContrast]:
        """The pairs of kinds under which accuracy at a layer differs, by a corrected test."""
        return [each for each in self.contrasts if each.layer == layer and each.difference.is_shown]

    @property
    def groups(self) -> list[tuple[tuple[str, ...], list[Cell]]]:
        """Places by the kinds under which they are critical, most kinds first; places without any left out."""
        groups: dict[tuple[str, ...], list[Cell]] = {}
        for place in self.measured:
            groups.setdefault(self.under(place), []).append(place)
        groups.pop((), None)
        return sorted(groups.items(), key=lambda group: -len(group[0]))


class KindRow(AtBlock):
    """One place under every kind of ablation.

    Attributes:
        drops: accuracy lost, by kind; of several draws of resample the mean.
        critical: the kinds under which it is critical, as text.
        all: whether it is so under all.
        differ: which kinds cost more than which, by corrected paired tests; `p`: of each pair.
    """

    drops: dict[str, float | None] = column("Drop, {}", POINTS)
    critical: str = column("Critical under")
    all: bool = column()
    differ: str = column("Kinds that differ")
    p: dict[str, float | None] = column()


def compared(curves: Iterable[Curve]) -> list[Kinds]:
    """Every model, task and unit with a replacement and another kind beside it; factors other than 0 do not count.

    A task of which nothing can be told is left out, as are places that some kind has not measured yet.
    """
    every = []
    known = (curve for curve in curves if kind_of(curve.factor) and not curve.untold)
    for own in alike(known, "model", "task", "unit"):
        by_kind: dict[str, list[Curve]] = {}
        for curve in own:
            by_kind.setdefault(kind_of(curve.factor), []).append(curve)
        at = [{(cell.layer, cell.part) for cell in curve.cells if cell.decided != "open"} for curve in own]
        shared = set.intersection(*at)
        measured = tuple(cell for cell in own[0].cells if (cell.layer, cell.part) in shared)
        layers = {cell.layer for cell in measured}
        pairs = tuple(c for c in own[0].result.contrasts if c.unit == own[0].unit and c.layer in layers)
        if len(by_kind) > 1:
            every.append(Kinds(by_kind, measured, pairs))
    return every


def part(material: Material) -> Part | None:
    """The kinds side by side: what is critical under which, and the drops; None without kinds."""
    every = compared(material.curves)
    if not every:
        return None
    kinds = dict.fromkeys(kind for of in every for kind in of.curves)
    about = f"What a place adds instead: {'; '.join(f'{kind}: {STANDS_IN[kind]}' for kind in kinds)}."
    shown = [curve.record(cell) for of in every for own in of.curves.values() for curve in own for cell in curve.cells]
    # Of one model the first figure of the page is that map.
    several = len({curve.model for curve in material.curves}) > 1
    kinds_map = Map("drop", "layer", "factor", "marked", panel=("model", "task", "unit"), wide=True)
    figure = kinds_map.figure(shown, "kinds") if several else None
    rows = Rows(
        "kinds", [row for of in every for row in _rows(of)], (KindRow,), "Every place",
        "Kinds that differ: exact paired tests on the same items, Holm-corrected over places and pairs of kinds.",
        "all", "under all kinds",
    )  # fmt: skip
    own = tuple(filter(None, (figure,)))
    return Part(QUESTION, rows, (), survive(every), about, "Kinds", own, wide=True)


def _rows(of: Kinds) -> Iterable[KindRow]:
    for place in of.measured:
        under = of.under(place)
        yield KindRow(
            **dict(of.first.labels), unit=place.unit, layer=place.layer,
            drops={kind: _drop(cells) for kind, cells in of.cells(place).items()},
            critical=", ".join(under), all=len(under) == len(of.curves), differ=_ordered(of.between(place.layer)),
            p={f"p, {each.first} = {each.second}": each.difference.p_corrected
               for each in of.contrasts if each.layer == place.layer},
        )  # fmt: skip


def _drop(cells: Sequence[Cell]) -> float | None:
    drops = [cell.drop.value for cell in cells if cell.drop.value is not None]
    return fmean(drops) if len(drops) == len(cells) else None


@rule
def survive(every: Sequence[Kinds]) -> Iterable[Claim]:
    """What stays critical whatever the kind, and what does not.

    Says: Blocks L are critical for A under zero, mean and resample alike; block M under zero [alone]. | No block is
    shown to be critical for A under zero, mean or resample. | Accuracy differs between kinds at block L (zero costs
    more than mean). | At no block accuracy is shown to differ between kinds.
    Needs: each kind's own verdicts, corrected over its places; under one kind alone: spared under every other; kinds
    differ by exact paired tests, Holm-corrected over places and pairs of kinds
    """
    curves = [of.first for of in every]
    for of in every:
        unit = f", {wording.UNIT_NAMES[of.first.unit]}" * (len({curve.unit for curve in curves}) > 1)
        sentences = [f"{of.first.task}{unit}: {verdict(of)}."]
        sentences += [f"{wording.capital(differing(of))}."] * bool(of.contrasts)
        rows = tuple(of.first.record(place) for _, cells in of.groups for place in cells)
        yield Claim(tuple(sentences), rows, wording.among(of.first.model, [curve.model for curve in curves]))


def verdict(of: Kinds) -> str:
    """`blocks 0 and 2 are critical under zero, mean and resample alike; block 5 under zero`."""
    every, unit, stopped = tuple(of.curves), of.first.unit, of.first.stopped
    if not of.groups:
        return f"no {wording.some_unit(unit)} {wording.unshown(stopped)} under {wording.listed(every, 'or')}"
    clauses: list[str] = []
    for under, cells in of.groups:
        verb = f" {wording.called(stopped, 1 + plural(unit, len(cells)))}" * (not clauses)
        others = [cell for place in cells for kind, own in of.cells(place).items() if kind not in under for cell in own]
        how = " alike" * (not others) or " alone" * all(cell.spares for cell in others)
        clauses.append(f"{named(cells, MOST)}{verb} under {wording.listed(under)}{how}")
    if of.groups[0][0] != every:
        clauses.append("none is shown to be so under all kinds")
    return "; ".join(clauses)


def differing(of: Kinds) -> str:
    """`accuracy differs between kinds at block 1 (zero costs more than mean)`, by corrected paired tests."""
    tests = f"{wording.counted(len(of.contrasts), 'paired test')}, Holm"
    differences = {place.layer: of.between(place.layer) for place in of.measured}
    where = [f"block{wording.SPACE}{layer} ({_ordered(pairs)})" for layer, pairs in differences.items() if pairs]
    if not where:
        return f"at no {wording.some_unit(of.first.unit)} accuracy is shown to differ between kinds ({tests})"
    return f"accuracy differs between kinds at {wording.listed(where)} ({tests})"


def _ordered(pairs: Sequence[KindContrast]) -> str:
    """`resample costs more than zero and mean`."""
    below: dict[str, list[str]] = {}
    for pair in pairs:
        low, high = (pair.first, pair.second)[:: -1 if (pair.difference.value or 0) > 0 else 1]
        below.setdefault(low, []).append(high)
    return ", ".join(f"{low} costs more than {wording.listed(high)}" for low, high in below.items())
