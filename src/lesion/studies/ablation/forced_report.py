"""Free and forced answers side by side: which critical places take the choice among rivals, which mostly its form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from lesion.report import wording
from lesion.report.finding import Finding
from lesion.studies.ablation import parts
from lesion.studies.ablation.cell import Cell
from lesion.studies.ablation.curves import Curve
from lesion.studies.ablation.forced import Choice, Forced
from lesion.studies.ablation.result import AblationSummary

COLUMNS = (
    *("forced_items", "forced_accuracy", "forced_low", "forced_high", "forced_guessing"),
    *("forced_drop", "forced_drop_low", "forced_drop_high", "forced_p_corrected"),
    *("forced_p_lost_corrected", "forced_p_kept_corrected", "baseline_forced_accuracy"),
)
"""Of a frame of cells: the forced answers of each, NaN where its task has no rivals."""
METHOD = (
    "Forced: the right text against its rivals alone (the other name, the other words), in the same pass as the free"
    " answer. Where a place is critical and its edit is shown to take less than half of the forced accuracy above"
    " guessing, mostly the form of the answer changes (Holm-corrected as elsewhere)."
)


def findings(summary: AblationSummary) -> list[Finding]:
    """A sentence for every curve with rivals that has a critical place; the first of a model is its headline."""
    by_model: dict[str, list[str]] = {}
    for curve in (*summary.curves, *parts.maps(summary)):
        if text := sentence(curve):
            by_model.setdefault(curve.model, []).append(text)
    several = len(summary.models) > 1
    return [
        Finding(f"{model}, free and forced answers" if several else "Free and forced answers", (first,), tuple(more))
        for model, (first, *more) in by_model.items()
    ]


def sentence(curve: Curve) -> str:
    """`ioi: without block 29 mostly the form of the answer changes … (free 82.0 → 10.7 %, forced 92.7 → 79.3 % …).`"""
    unedited = curve.result.forced
    if unedited is None or not curve.marked:
        return ""
    groups: dict[Choice, list[tuple[Cell, Forced]]] = {"kept": [], "lost": [], "cannot tell": []}
    for cell in curve.marked:
        if cell.forced is not None:
            groups[cell.forced.choice].append((cell, cell.forced))
    texts = {
        "kept": "mostly the form of the answer changes: less than half of the choice among the rivals is lost",
        "lost": "the choice among the rivals is lost as well",
        "cannot tell": "it cannot be told whether the choice is lost",
    }
    clauses = [
        f"without {_named([cell for cell, _ in cells], curve)} {texts[choice]} ({_examples(cells, curve)})"
        for choice, cells in groups.items()
        if cells
    ]
    if not clauses:
        return ""
    how = "" if curve.factor == 0 else f", {wording.changed(curve.factor)}"
    few = "" if unedited.items == curve.items else f" over the {unedited.items:,} items with a rival"
    free = _share(curve.result.baseline.accuracy.value)
    return (
        f"{curve.task}{how}: {'; '.join(clauses)}. Unedited: free {free}, forced {_accuracy(unedited)}{few}; guessing"
        f" {wording.percent(unedited.guessing)}."
    )


def brief(curves: Sequence[Curve]) -> str:
    """What goes with the first sentence of a study: the critical places without which mostly the form changes."""
    several = len({curve.model for curve in curves}) > 1
    sentences = []
    for curve in curves:
        kept = [(cell, cell.forced) for cell in curve.marked if cell.forced and cell.forced.choice == "kept"]
        if kept:
            model = f"In {curve.model}, without" if several else "Without"
            where = _named([cell for cell, _ in kept], curve)
            sentences.append(
                f"{model} {where} mostly the form of the answer changes for {curve.task} ({_examples(kept, curve)})."
            )
    return " ".join(sentences)


def with_form(found: Sequence[Finding], curves: Sequence[Curve]) -> list[Finding]:
    """Findings whose first sentence says of which places mostly the form of the answer depends."""
    form = brief(curves)
    if not form or not found:
        return list(found)
    first, *rest = found
    headline, sentences = first.headline, first.sentences
    if headline:
        headline = (f"{headline[0]} {form}", *headline[1:])
    else:
        sentences = (f"{sentences[0]} {form}", *sentences[1:])
    return [replace(first, headline=headline, sentences=sentences), *rest]


def _named(cells: Sequence[Cell], curve: Curve) -> str:
    if cells[0].part is not None:
        return parts.named(sorted(cells, key=lambda cell: (cell.layer, str(cell.part))), curve.unit)
    where = "" if curve.unit == "block" else f"the {wording.UNIT_NAMES[curve.unit]} of "
    return where + wording.numbered("block", sorted(cell.layer for cell in cells))


def _examples(cells: Sequence[tuple[Cell, Forced]], curve: Curve) -> str:
    """The numbers of the place that takes most of the forced answers."""
    cell, forced = min(cells, key=lambda each: each[1].accuracy.value or 0.0)
    where = "" if len(cells) == 1 else f"{_named([cell], curve)}: "
    unedited = curve.result.forced
    before = "" if unedited is None else f"{wording.points(unedited.accuracy.value)} → "
    free = wording.points(curve.result.baseline.accuracy.value)
    return f"{where}free {free} → {_share(cell.accuracy.value)}, forced {before}{_accuracy(forced)}"


def _share(value: float | None) -> str:
    return wording.percent(value)


def _accuracy(forced: Forced) -> str:
    accuracy = forced.accuracy
    return f"{wording.percent(accuracy.value)} {wording.interval(accuracy.low, accuracy.high)}"


def columns(cell: Cell, unedited: Forced | None) -> dict[str, float | None]:
    """The forced answers of a cell, as columns; none where its task has no rivals."""
    forced = cell.forced
    if forced is None or unedited is None:
        return {}
    drop = forced.drop
    return {
        "forced_items": float(forced.items),
        "forced_accuracy": forced.accuracy.value,
        "forced_low": forced.accuracy.low,
        "forced_high": forced.accuracy.high,
        "forced_guessing": forced.guessing,
        "forced_drop": None if drop is None else drop.value,
        "forced_drop_low": None if drop is None else drop.low,
        "forced_drop_high": None if drop is None else drop.high,
        "forced_p_corrected": None if drop is None else drop.p_corrected,
        "forced_p_lost_corrected": forced.p_lost,
        "forced_p_kept_corrected": forced.p_kept,
        "baseline_forced_accuracy": unedited.accuracy.value,
    }


def unedited(forced: Forced | None) -> str:
    """`92.7 [87.0, 96.0], guessing 50.0`, in %; empty without rivals."""
    if forced is None:
        return ""
    accuracy = forced.accuracy
    numbers = f"{wording.points(accuracy.value)} {wording.interval(accuracy.low, accuracy.high)}"
    return f"{numbers}, guessing {wording.points(forced.guessing)}"


def shown(row: Mapping[str, Any]) -> str:
    """The forced accuracy of a row of a frame with its interval; a dash without one."""
    value, low, high = (row[name] for name in ("forced_accuracy", "forced_low", "forced_high"))
    if pd.isna(value):
        return wording.DASH
    return f"{wording.points(value)} {wording.interval(low, high)}"


def line(forced: Forced | None) -> str:
    """What stands below a free accuracy in the terminal: `forced 79.3 [72.1, 85.0]`; empty without rivals."""
    if forced is None:
        return ""
    accuracy = forced.accuracy
    return f"forced {wording.points(accuracy.value)} {wording.interval(accuracy.low, accuracy.high)}"
