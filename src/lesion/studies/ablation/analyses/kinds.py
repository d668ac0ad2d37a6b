"""Kinds of ablation: which places are critical whatever stands in for them, and which under some kinds only.

Zero ablation takes a model off the distribution that its later blocks were trained on, so that it can break what does
not depend on the place (Li and Janson 2024); another text's contribution stays on it and misleads (Zhang and Nanda
2024). A place that is critical under all kinds needs neither explanation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lesion.edits.place import Unit
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import POINTS
from lesion.report.marks import Map
from lesion.report.parts import Part
from lesion.report.rows import Rows, column
from lesion.statistics.paired import ALPHA
from lesion.studies.ablation.claims import record
from lesion.studies.ablation.curves import Curve
from lesion.studies.ablation.material import Labels, Material
from lesion.studies.ablation.result import KindContrast
from lesion.studies.ablation.sweep import kind_of

QUESTION = "Does the verdict survive the kind of ablation?"
STANDS_IN = {
    "zero": "zero: the place adds nothing",
    "mean": "mean: it adds its mean over texts of the task, at the first token that over first tokens, at every other"
    " token that over the others",
    "position": "position: at every position it adds its mean over these texts at that position",
    "resample": "resample: at every position it adds what it added at that position of another of these texts; of"
    " several draws all have to agree",
    "optimal": "optimal: it adds its mean at the first token, and at every other token the constant that changes the"
    " model's predictions least, fitted on other texts than the items",
}
"""What each kind of ablation puts in the place of what a place adds."""


@dataclass(frozen=True)
class Kinds:
    """One model on one task with one unit under several kinds of ablation.

    Attributes:
        curves: by kind, `zero` first: those of the draws of `resample` together.
        marked: by kind, the layers that are critical (or exceed the effect) under every curve of it.
        measured: the layers that every curve has, none left open.
        contrasts: of two kinds at each of these layers.
    """

    model: str
    task: str
    unit: Unit
    curves: dict[str, tuple[Curve, ...]]
    marked: dict[str, frozenset[int]]
    measured: frozenset[int]
    contrasts: tuple[KindContrast, ...] = ()

    def between(self, layer: int) -> list[KindContrast]:
        """The pairs of kinds under which accuracy at a layer differs, after correction."""
        return [each for each in self.contrasts if each.layer == layer and _differs(each)]

    def under(self, layer: int) -> tuple[str, ...]:
        """The kinds under which a layer is critical."""
        return tuple(kind for kind, layers in self.marked.items() if layer in layers)

    def spared_elsewhere(self, under: Sequence[str], layers: Iterable[int]) -> bool:
        """Whether layers are spared (or decided not to exceed the effect) under every kind but these."""
        others = [curve for kind, own in self.curves.items() if kind not in under for curve in own]
        cells = [curve.at(layer) for curve in others for layer in layers]
        return all(cell is not None and (cell.outcome == "spared" or cell.decided == "not") for cell in cells)

    @property
    def groups(self) -> list[tuple[tuple[str, ...], list[int]]]:
        """Layers by the kinds under which they are critical, most kinds first; layers without any left out."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for layer in sorted(self.measured):
            if kinds := self.under(layer):
                groups.setdefault(kinds, []).append(layer)
        return sorted(groups.items(), key=lambda group: (-len(group[0]), group[1]))


class KindRow(Labels):
    """One place under every kind of ablation.

    Attributes:
        drops: accuracy lost, by kind; of several draws of resample the mean.
        critical: the kinds under which it is critical, as text.
        all: whether it is so under all.
        differ: which kinds cost more than which, by corrected paired tests; `p`: of each pair.
    """

    unit: Unit = column("Unit", wording.UNIT_NAMES.__getitem__, label=True)
    layer: int = column("Block", label=True)
    drops: dict[str, float | None] = column("Drop, {}", POINTS)
    critical: str = column("Critical under")
    all: bool = column()
    differ: str = column("Kinds that differ")
    p: dict[str, float | None] = column()


def _differs(pair: KindContrast) -> bool:
    """Whether two kinds differ by a corrected test; one that is not known shows nothing."""
    p = pair.difference.p_corrected
    return p is not None and p <= ALPHA


def compared(curves: Sequence[Curve]) -> list[Kinds]:
    """Every model, task and unit with a replacement and another kind beside it; factors other than 0 do not count.

    A task of which nothing can be told is left out, as are layers that some kind has not measured yet.
    """
    groups: dict[tuple[str, str, Unit], dict[str, list[Curve]]] = {}
    for curve in curves:
        kind = kind_of(curve.factor)
        if kind and not curve.untold:
            groups.setdefault((curve.model, curve.task, curve.unit), {}).setdefault(kind, []).append(curve)
    every = []
    for (model, task, unit), by_kind in groups.items():
        if len(by_kind) < 2:
            continue
        measured = frozenset.intersection(*(_measured(curve) for own in by_kind.values() for curve in own))
        marked = {
            kind: frozenset.intersection(*(frozenset(cell.layer for cell in curve.marked) for curve in own)) & measured
            for kind, own in by_kind.items()
        }
        result = next(iter(by_kind.values()))[0].result
        pairs = tuple(each for each in result.contrasts if each.unit == unit and each.layer in measured)
        every.append(Kinds(model, task, unit, {k: tuple(own) for k, own in by_kind.items()}, marked, measured, pairs))
    return every


def _measured(curve: Curve) -> frozenset[int]:
    return frozenset(cell.layer for cell in curve.cells if cell.decided != "open")


def part(material: Material) -> Part | None:
    """The kinds side by side: what is critical under which, and the drops; None without kinds."""
    every = compared(material.curves)
    if not every:
        return None
    kinds = dict.fromkeys(kind for of in every for kind in of.marked)
    about = f"What stands in for a place: {'; '.join(STANDS_IN[kind] for kind in kinds)}."
    shown = [record(curve, cell) for of in every for own in of.curves.values() for curve in own for cell in curve.cells]
    figure = Map("drop", "layer", "factor", "marked", panel=("model", "task", "unit"), wide=True).figure(shown, "kinds")
    rows = Rows(
        "kinds", [row for of in every for row in _rows(of)], (KindRow,), "Every place under every kind of ablation",
        "Drops in points. Kinds that differ: exact paired tests on the same items, Holm-corrected over places and pairs"
        " of kinds (p in the file).", "all", "critical under all kinds",
    )  # fmt: skip
    return Part(QUESTION, rows, (), survive(every), about, "Kinds", (figure,) if figure is not None else (), wide=True)


def _rows(of: Kinds) -> Iterable[KindRow]:
    for layer in sorted(of.measured):
        under = of.under(layer)
        yield KindRow(
            model=of.model, task=of.task, unit=of.unit, layer=layer,
            drops={kind: _drop(own, layer) for kind, own in of.curves.items()},
            critical=", ".join(under), all=len(under) == len(of.marked), differ=_ordered(of.between(layer)),
            p={f"p, {each.first} = {each.second}": each.difference.p_corrected
               for each in of.contrasts if each.layer == layer},
        )  # fmt: skip


@rule(
    "Blocks L are critical for A under zero, mean and resample alike; block M under zero [alone].",
    "No block is shown to be critical for A under zero, mean or resample.",
    "Accuracy differs between kinds at block L (zero costs more than mean).",
    "At no block accuracy is shown to differ between kinds.",
    needs="each kind's own verdicts, corrected over its blocks; under one kind alone: spared under every other; kinds"
    " differ by exact paired tests, Holm-corrected over places and pairs of kinds",
)
def survive(every: Sequence[Kinds]) -> Iterable[Claim]:
    """What stays critical whatever the kind, and what does not."""
    for of in every:
        about = f"{of.task}, {wording.UNIT_NAMES[of.unit]}" if len({each.unit for each in every}) > 1 else of.task
        yield Claim(
            (f"{about}: {verdict(of)}.", f"{wording.capital(differing(of))}."),
            (),
            of.model if len({each.model for each in every}) > 1 else "",
        )


def verdict(of: Kinds) -> str:
    """`blocks 0 and 2 are critical under zero, mean and resample alike; block 5 under zero`."""
    stopped = any(curve.stopped for own in of.curves.values() for curve in own)
    every = tuple(of.marked)
    if not of.groups:
        return f"no {wording.some_unit(of.unit)} {wording.unshown(stopped)} under {wording.listed(every, 'or')}"
    clauses: list[str] = []
    for under, layers in of.groups:
        verb = "" if clauses else f" {wording.called(stopped, len(layers))}"
        how = " alike" if under == every else " alone" if of.spared_elsewhere(under, layers) else ""
        clauses.append(f"{wording.numbered('block', layers)}{verb} under {wording.listed(under)}{how}")
    if of.groups[0][0] != every:
        clauses.append("none is shown to be so under all kinds")
    return "; ".join(clauses)


def differing(of: Kinds) -> str:
    """`accuracy differs between kinds at block 1 (zero costs more than mean)`, by corrected paired tests."""
    tests = wording.counted(len(of.contrasts), "paired test")
    clauses = [
        f"block{wording.SPACE}{layer} ({_ordered(pairs)})"
        for layer in sorted(of.measured)
        if (pairs := of.between(layer))
    ]
    if not clauses:
        return f"at no {wording.some_unit(of.unit)} accuracy is shown to differ between kinds ({tests}, Holm)"
    return f"accuracy differs between kinds at {wording.listed(clauses)} ({tests}, Holm)"


def _ordered(pairs: Sequence[KindContrast]) -> str:
    """`resample costs more than zero and mean`."""
    below: dict[str, list[str]] = {}
    for pair in pairs:
        names = (pair.first, pair.second) if (pair.difference.value or 0) < 0 else (pair.second, pair.first)
        below.setdefault(names[0], []).append(names[1])
    return ", ".join(f"{low} costs more than {wording.listed(high)}" for low, high in below.items())


def _drop(curves: Sequence[Curve], layer: int) -> float | None:
    """The drop of a layer, over several draws on average; None where one is not known."""
    cells = [curve.at(layer) for curve in curves]
    drops = [cell.drop.value for cell in cells if cell is not None and cell.drop.value is not None]
    return sum(drops) / len(drops) if len(drops) == len(curves) else None
