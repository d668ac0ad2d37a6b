"""Does the verdict on a head survive the kind of ablation? Asked as of blocks, of parts that are replaced."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.report import wording
from lesion.studies.ablation import parts
from lesion.studies.ablation.cell import Cell
from lesion.studies.ablation.curves import Curve
from lesion.studies.ablation.sweep import kind_of

MOST = 10
"""So many parts are named in one breath."""


def agreement(curves: Sequence[Curve]) -> str | None:
    """`sums: head 2.0 is critical under zero, mean and resample alike; head 2.1 under zero alone.`

    Args:
        curves: of one model, unit and task. Several draws of `resample` count as one kind, under which all must agree.

    Returns:
        The sentence; None where fewer than two kinds can be told.
    """
    by_kind: dict[str, list[Curve]] = {}
    for curve in curves:
        kind = kind_of(curve.factor)
        if kind and not curve.untold:
            by_kind.setdefault(kind, []).append(curve)
    if len(by_kind) < 2:
        return None
    marked = {
        kind: frozenset.intersection(*(frozenset(map(_key, curve.marked)) for curve in own))
        for kind, own in by_kind.items()
    }
    groups: dict[tuple[str, ...], list[Cell]] = {}
    first, every = curves[0], tuple(by_kind)
    for cell in first.cells:
        if under := tuple(kind for kind, cells in marked.items() if _key(cell) in cells):
            groups.setdefault(under, []).append(cell)
    if not groups:
        noun = wording.UNIT_NAMES[first.unit]
        return f"{first.task}: no {noun} {wording.unshown(first.stopped)} under {wording.listed(every, 'or')}."
    clauses: list[str] = []
    for under, cells in sorted(groups.items(), key=lambda group: -len(group[0])):
        verb = "" if clauses else f" {wording.called(first.stopped, len(cells))}"
        how = " alike" if under == every else ""
        more = f" and {len(cells) - MOST:,} more" if len(cells) > MOST else ""
        clauses.append(f"{parts.named(cells[:MOST], first.unit)}{more}{verb} under {wording.listed(under)}{how}")
    if every not in groups:
        clauses.append("none is shown to be so under all kinds")
    return f"{first.task}: {'; '.join(clauses)}."


def _key(cell: Cell) -> tuple[int, str]:
    return cell.layer, str(cell.part)
