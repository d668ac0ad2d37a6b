"""Kinds of ablation: which places are critical whatever stands in for them, and which under some kinds only.

Zero ablation takes a model off the distribution that its later blocks were trained on, so that it can break what does
not depend on the place (Li and Janson 2024); another text's contribution stays on it and misleads (Zhang and Nanda
2024). A place that is critical under all kinds needs neither explanation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from lesion.report import wording
from lesion.report.blocks import Figure, Panel, Prose, Section
from lesion.report.finding import Finding
from lesion.report.table import Column, Table
from lesion.statistics.paired import ALPHA
from lesion.studies.ablation import charts
from lesion.studies.ablation.curves import Curve, View
from lesion.studies.ablation.result import AblationSummary, KindContrast
from lesion.studies.ablation.sweep import kind_of

QUESTION = "Does the verdict survive the kind of ablation?"
WIDE = 20
"""A map of more blocks takes the whole width."""


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
    unit: str
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


def _differs(pair: KindContrast) -> bool:
    """Whether two kinds differ by a corrected test; one that is not known shows nothing."""
    p = pair.difference.p_corrected
    return p is not None and p <= ALPHA


def compared(curves: Sequence[Curve]) -> list[Kinds]:
    """Every model, task and unit with a replacement and another kind beside it; factors other than 0 do not count.

    A task of which nothing can be told is left out, as are layers that some kind has not measured yet.
    """
    groups: dict[tuple[str, str, str], dict[str, list[Curve]]] = {}
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
        own_curves = {kind: tuple(own) for kind, own in by_kind.items()}
        every.append(Kinds(model, task, unit, own_curves, marked, measured, pairs))
    return every


def _measured(curve: Curve) -> frozenset[int]:
    return frozenset(cell.layer for cell in curve.cells if cell.decided != "open")


def findings(summary: AblationSummary) -> list[Finding]:
    """For every model, a sentence per task: what stays critical whatever the kind, and what does not."""
    every = compared(summary.curves)
    by_model: dict[str, list[Kinds]] = {}
    for kinds in every:
        by_model.setdefault(kinds.model, []).append(kinds)
    several = len(summary.models) > 1
    return [
        Finding(
            f"{model}, kinds of ablation" if several else "Kinds of ablation",
            (sentence(own[0], several_units=len({kinds.unit for kinds in own}) > 1),),
            (
                *(sentence(kinds, several_units=len({kinds.unit for kinds in own}) > 1) for kinds in own[1:]),
                *(differing(kinds, several_units=len({kinds.unit for kinds in own}) > 1) for kinds in own),
            ),
        )
        for model, own in by_model.items()
    ]


def sentence(kinds: Kinds, *, several_units: bool = False) -> str:
    """`sums: blocks 0 and 2 are critical under zero, mean and resample alike; block 5 under zero.`"""
    about = f"{kinds.task}, {wording.UNIT_NAMES[kinds.unit]}" if several_units else kinds.task
    stopped = any(curve.stopped for own in kinds.curves.values() for curve in own)
    every = tuple(kinds.marked)
    if not kinds.groups:
        none = f"no {wording.some_unit(kinds.unit)} {wording.unshown(stopped)}"
        return f"{about}: {none} under {wording.listed(every, 'or')}."
    clauses: list[str] = []
    for under, layers in kinds.groups:
        places = wording.numbered("block", layers)
        verb = "" if clauses else f" {wording.called(stopped, len(layers))}"
        how = " alike" if under == every else " alone" if kinds.spared_elsewhere(under, layers) else ""
        clauses.append(f"{places}{verb} under {wording.listed(under)}{how}")
    if kinds.groups[0][0] != every:
        clauses.append("none is shown to be so under all kinds")
    return f"{about}: {'; '.join(clauses)}."


def differing(kinds: Kinds, *, several_units: bool = False) -> str:
    """`sums: accuracy differs between kinds at block 1 (zero costs more than mean).`, by corrected paired tests."""
    about = f"{kinds.task}, {wording.UNIT_NAMES[kinds.unit]}" if several_units else kinds.task
    tests = wording.counted(len(kinds.contrasts), "paired test")
    clauses = []
    for layer in sorted(kinds.measured):
        if pairs := kinds.between(layer):
            clauses.append(f"{wording.numbered('block', [layer])} ({_ordered(pairs)})")
    if not clauses:
        unit = wording.some_unit(kinds.unit)
        return f"{about}: at no {unit} accuracy is shown to differ between kinds ({tests}, Holm)."
    return f"{about}: accuracy differs between kinds at {wording.listed(clauses)} ({tests}, Holm)."


def _ordered(pairs: Sequence[KindContrast]) -> str:
    """`resample costs more than zero and mean`."""
    below: dict[str, list[str]] = {}
    for pair in pairs:
        names = (pair.first, pair.second) if (pair.difference.value or 0) < 0 else (pair.second, pair.first)
        below.setdefault(names[0], []).append(names[1])
    return ", ".join(f"{low} costs more than {wording.listed(high)}" for low, high in below.items())


def section(summary: AblationSummary) -> Section | None:
    """The kinds side by side: what is critical under which, and of several models the drops; None without kinds."""
    every = compared(summary.curves)
    if not every:
        return None
    figures = _figures(summary.curves, every) if len(summary.models) > 1 else ()
    return Section("Kinds", QUESTION, (Prose((_explained(every),)), *figures, _table(every)))


def _explained(every: Sequence[Kinds]) -> str:
    kinds = dict.fromkeys(kind for of in every for kind in of.marked)
    draws = max((len(of.curves.get("resample", ())) for of in every), default=0)
    return (
        f"{stands_in(kinds, draws)} Each kind has its own tests, corrected over its own blocks. Not called critical"
        " under a kind does not mean unused."
    )


def stands_in(kinds: Iterable[str], draws: int = 1) -> str:
    """What each kind of ablation puts in the place of what a place adds, as a sentence."""
    words = {
        "zero": "zero: the place adds nothing",
        "mean": "mean: it adds its mean over texts of the task, at the first token that over first tokens, at every"
        " other token that over the others",
        "position": "position: at every position it adds its mean over these texts at that position",
        "resample": "resample: at every position it adds what it added at that position of another of these texts"
        + (
            f", in {draws} draws, all of which have to agree (draw 0 is called resample, draw 1 resample 1)"
            if draws > 1
            else ""
        ),
        "optimal": "optimal: it adds its mean at the first token, and at every other token the constant that changes"
        " the model's predictions least, fitted on other texts than the items",
    }
    return f"What stands in for a place: {'; '.join(words[kind] for kind in kinds)}."


def _figures(curves: Sequence[Curve], every: Sequence[Kinds]) -> tuple[Figure, ...]:
    """A map per model and unit: a row per kind, a panel per task."""
    figures = []
    for model, unit in dict.fromkeys((kinds.model, kinds.unit) for kinds in every):
        own = [kinds for kinds in every if (kinds.model, kinds.unit) == (model, unit)]
        shown = [curve for kinds in own for of_kind in kinds.curves.values() for curve in of_kind]
        view = View.of_factors(shown, own[0].curves[next(iter(own[0].curves))][0].unit)
        panels = tuple(Panel((chart,), title) for title, chart in charts.drop_panels(view))
        caption = (
            f"{model}: drop in accuracy, in points, a row per kind of ablation. Boxed: {wording.call(view.stopped)}."
        )
        figures.append(Figure("", panels, caption, wide=len(view.layers) > WIDE))
    return tuple(figures)


def _table(every: Sequence[Kinds]) -> Table:
    """A row per place: under which kinds it is critical, and the drop under each."""
    names = list(dict.fromkeys(kind for kinds in every for kind in kinds.marked))
    rows = []
    for kinds in every:
        for layer in sorted(kinds.measured):
            drops = {kind: _drop(own, layer) for kind, own in kinds.curves.items()}
            under = kinds.under(layer)
            rows.append(
                {"model": kinds.model, "task": kinds.task, "unit": kinds.unit, "layer": layer, **drops}
                | {"critical": ", ".join(under), "all": len(under) == len(kinds.marked)}
                | {"differ": _ordered(kinds.between(layer))}
                | {
                    f"p, {each.first} = {each.second}": each.difference.p_corrected
                    for each in kinds.contrasts
                    if each.layer == layer
                }
            )
    models, units = (len({getattr(kinds, name) for kinds in every}) > 1 for name in ("model", "unit"))
    return Table(
        "kinds",
        pd.DataFrame(rows),
        (
            *([Column("model", "Model", number=False)] if models else []),
            Column("task", "Task", number=False),
            *([Column("unit", "Unit", lambda unit: wording.UNIT_NAMES[unit], number=False)] if units else []),
            Column("layer", "Block"),
            *(Column(kind, f"Drop, {kind}", wording.points) for kind in names),
            Column("critical", "Critical under", lambda text: text or wording.DASH, number=False),
            Column("differ", "Kinds that differ", lambda text: text or wording.DASH, number=False),
        ),
        title="Every place under every kind of ablation",
        caption="Drops in points; of several draws of resample the mean. Critical under resample is what every draw"
        " calls critical. Kinds that differ: exact paired tests on the same items of how often an item is right, over"
        " all draws, Holm-corrected over places and pairs of kinds (p in the file).",
        mark=lambda row: bool(row["all"]),
        marked="critical under all kinds",
    )


def _drop(curves: Sequence[Curve], layer: int) -> float | None:
    """The drop of a layer, over several draws on average; None where one is not known."""
    cells = [curve.at(layer) for curve in curves]
    drops = [cell.drop.value for cell in cells if cell is not None and cell.drop.value is not None]
    return sum(drops) / len(drops) if len(drops) == len(curves) else None
