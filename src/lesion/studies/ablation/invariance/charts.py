"""Charts of the invariance: variants by relative depth, critical layers, rank correlations, and training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import altair as alt
import pandas as pd

from lesion.report import heatmap, plots, theme, wording
from lesion.report.axes import Axis
from lesion.studies.ablation.charts import HEAT, named
from lesion.studies.ablation.curves import Curve, View, full_drop
from lesion.studies.ablation.invariance.result import FamilyResult, FamilyTask, Member, Pair, axes
from lesion.studies.ablation.invariance.verdict_text import smallest

if TYPE_CHECKING:
    from lesion.studies.ablation.cell import Cell
    from lesion.studies.ablation.result import AblationSummary

DEPTH = Axis("depth of the block switched off", -0.03, 1.03, form=".0%")
ACCURACY = Axis("accuracy", -0.03, 1.03, form=".0%", ticks=(0.0, 0.25, 0.5, 0.75, 1.0))
ONSET = "◆"


@dataclass(frozen=True)
class OfFamily:
    """A family with the curves of all its members under the unit and factor that are compared.

    Attributes:
        finished: the curves of its finished models as one view, labelled by variant.
        curves: of all members, by model and task.
    """

    family: FamilyResult
    finished: View
    curves: dict[tuple[str, str], Curve]

    @property
    def axis(self) -> str:
        """The name of the axis of blocks."""
        return wording.axis_name(self.finished.unit, self.finished.factor)


def families(summary: AblationSummary) -> list[OfFamily]:
    """Every family of a summary with its curves; none without invariance."""
    shared = summary.invariance
    if shared is None:
        return []
    compared = [curve for curve in summary.curves if (curve.unit, curve.factor) == (shared.unit, shared.factor)]
    of_families = []
    for family in shared.families:
        names = family.labels
        curves = {
            (curve.model, curve.task): replace(curve, label=names[curve.model])
            for curve in compared
            if curve.model in names and curve.cells
        }
        shown = [curve for member in family.finished for (model, _), curve in curves.items() if model == member.model]
        of_families.append(OfFamily(family, View.of(shown, shared.unit, shared.factor, family.family), curves))
    return of_families


def by_depth(of: OfFamily, task: str) -> alt.LayerChart:
    """Accuracy against the relative depth of the cut: 0 % is the first block, 100 % the last."""
    blocks = {member.model: member.blocks for member in of.family.members}
    rows = []
    for curve in of.finished.panels[task]:
        depth = blocks[curve.model] or 0
        for cell in curve.cells if depth > 1 else ():
            accuracy, place = cell.accuracy, wording.place(curve.unit, cell.layer)
            tip = f"{curve.label}, {place} of {depth}\n{wording.percent(accuracy.value)}"
            tip += f" {wording.interval(accuracy.low, accuracy.high)}" + (", critical" if cell.critical else "")
            rows.append(
                {"series": curve.label, "x": cell.layer / (depth - 1), "tip": tip}
                | {"y": accuracy.value, "low": accuracy.low, "high": accuracy.high, **named(curve, cell)}
            )
    columns = ["series", "x", "y", "low", "high", "tip", "model", "task", "edit"]
    return plots.curves(pd.DataFrame(rows, columns=columns), DEPTH, ACCURACY, of.finished.labels, spread="bars")


def critical(of: OfFamily, task: FamilyTask) -> alt.LayerChart:
    """The share of its accuracy that each finished model loses without each layer; coloured and boxed: critical."""
    rows = []
    for curve in of.finished.panels.get(task.task, ()):
        whole = curve.result.baseline.accuracy.value
        for cell in curve.cells:
            lost = cell.drop.value / whole if whole and cell.drop.value is not None else None
            tip = f"{_cell(curve, cell)}\n{wording.percent(lost, 0)} of the accuracy lost; {_drop(cell)}"
            rows.append(
                {"x": cell.layer, "y": curve.label, "value": lost if cell.critical else None}
                | {"text": wording.points(lost, 0), "tip": tip, "marked": bool(cell.critical), **named(curve, cell)}
            )
    return heatmap.heat(pd.DataFrame(rows, columns=HEAT), of.axis, "", full=1.25, columns=of.finished.layers)


def _cell(curve: Curve, cell: Cell) -> str:
    return f"{curve.label} · {curve.task} · block{wording.SPACE}{cell.layer}"


def _drop(cell: Cell) -> str:
    text = f"drop {wording.points(cell.drop.value)} points {wording.interval(cell.drop.low, cell.drop.high)}"
    return f"{text}, critical" if cell.critical else text


def correlations(of: OfFamily, task: FamilyTask) -> alt.LayerChart | None:
    """The rank correlations between the finished models, a lower triangle; None without pairs."""
    names, pairs = of.family.labels, [pair for pair in task.pairs if pair.kind == "variant"]
    if not pairs:
        return None
    used = [names[member.model] for member in of.family.finished if any(member.model in (p.a, p.b) for p in pairs)]
    rows = []
    for pair in pairs:
        first, second = sorted((names[pair.a], names[pair.b]), key=used.index)
        p = pair.rho.p if pair.rho.p_corrected is None else pair.rho.p_corrected
        rows.append(
            {"x": first, "y": second, "value": pair.rho.value, "tip": pair_text(pair, names)}
            | {"text": f"{wording.rho(pair.rho.value)}\np {wording.p_value(p)}"}
            | {"marked": p is not None and p <= wording.ALPHA and pair.true.low is not None}
        )
    frame, colours = pd.DataFrame(rows, columns=HEAT[:6]), (theme.SHARE, theme.GAIN)
    return heatmap.heat(frame, "", "", full=1.25, columns=used[:-1], rows=used[1:], colours=colours, height=40)


def pair_text(pair: Pair, names: dict[str, str]) -> str:
    """All numbers of a pair."""
    text = f"{names[pair.a]} and {names[pair.b]}\nρ {wording.rho(pair.rho.value)}"
    if pair.ceiling is not None and pair.rho.value is not None and pair.rho.value >= pair.ceiling:
        text += f"; as high as two measurements of one profile reach (about {wording.rho(pair.ceiling)})"
    elif pair.ceiling is not None:
        text += f"; as noisy as they are, two equal profiles would reach about {wording.rho(pair.ceiling)}"
    true = "not measurable: too much noise, or too many blocks cost the same"
    if pair.true.low is not None:
        interval = limits(pair.true.low, pair.true.high)
        true = f"{wording.rho(pair.true.value)} {interval}, the noise that lowers ρ taken out"
    p = f"{p_text(pair.rho.p, pair.p_least)}, corrected {wording.p_value(pair.rho.p_corrected)}"
    same = "yes" if pair.same_top else "no"
    largest = f"largest drop in the same block: {same}; of the two largest shared: {pair.top_two}"
    return f"{text}\nof the true profiles {true}\np {p}\n{largest}"


def limits(low: float | None, high: float | None) -> str:
    """The interval of a rank correlation: `[.62, 1]`; noise or ties may leave no order to measure."""
    if low is None or high is None:
        return "not measurable"
    return f"[{wording.rho(low)},{wording.SPACE}{wording.rho(high)}]"


def p_text(p: float | None, least: float | None) -> str:
    """`.018`, `.018, the smallest possible`."""
    return wording.p_value(p) + (", the smallest possible" if smallest(p, least) else "")


def trainings(of: OfFamily, task: FamilyTask) -> dict[str, list[Member]]:
    """By source, the checkpoints of a training that have answered the task, by step, and its end if it has."""
    by_source = {}
    for axis in axes(of.family.members):
        members = [member for member in (*axis.checkpoints, axis.end) if task.skill(member.model)]
        if any(member.step is not None for member in members):
            by_source[axis.source] = members
    return by_source


def over_time(of: OfFamily, task: FamilyTask, training: list[Member]) -> alt.LayerChart:
    """Drops over a training: a row per checkpoint, a column per layer, with the baseline and ρ with the end."""
    names = of.family.labels
    onset = {(each.model, each.layer) for each in task.onset if each.model is not None}
    with_end = {pair.a: pair.rho.value for pair in task.pairs if pair.kind == "time"}
    curves = [of.curves[member.model, task.task] for member in training]
    rows: list[Mapping[str, object]] = []
    labels = []
    for member, curve in zip(training, curves, strict=True):
        label = names[member.model] if member.step is not None else f"end ({names[member.model]})"
        skill = task.skill(member.model)
        label += "" if skill is None or skill.able else ", cannot do it"
        labels.append(label)
        baseline = wording.points(curve.result.baseline.accuracy.value, 0)
        plain: dict[str, object] = {"y": label, "marked": False}
        rows.append(plain | {"x": "unedited", "text": baseline, "tip": f"{label} · unedited: {baseline} %"})
        for cell in curve.cells:
            begins = (member.model, cell.layer) in onset
            tip = f"{_cell(replace(curve, label=label), cell)}\n{_drop(cell)}"
            tip += "\ncritical from here on" if begins else ""
            rows.append(
                {"x": str(cell.layer), "y": label, "value": cell.drop.value, "tip": tip, "marked": bool(cell.critical)}
                | {"text": wording.points(cell.drop.value, 0) + (f"\n{ONSET}" if begins else ""), **named(curve, cell)}
            )
        order = wording.rho(with_end.get(member.model))
        rows.append(plain | {"x": "ρ", "text": order, "tip": f"{label} · ρ with the end: {order}"})
    layers = sorted({cell.layer for curve in curves for cell in curve.cells})
    columns, frame = ["unedited", *map(str, layers), "ρ"], pd.DataFrame(rows, columns=HEAT)
    return heatmap.heat(frame, of.axis, "", full=full_drop(curves), columns=columns, rows=labels, height=34)
