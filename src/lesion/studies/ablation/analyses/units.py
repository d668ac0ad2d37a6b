"""Inner units of a layer study: which heads, neurons, experts and matrices are critical, as maps of blocks × parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.core.clustered_intervals import OverClusters
from lesion.edits.place import Unit
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.marks import Map
from lesion.report.parts import Part
from lesion.report.rows import Rows, column, subject
from lesion.report.values import POINTS, SHARE, decimals
from lesion.studies.ablation.analyses import kinds
from lesion.studies.ablation.cell import SWEPT, Cell, Curve, Labels, Unedited, named
from lesion.studies.ablation.drops import Forced
from lesion.studies.ablation.result import Material
from lesion.studies.ablation.sweep import Factor

MOST = 5
"""So many parts are named in a sentence."""
MARGIN = decimals(3, "nats")
HEADS = "A head is removed or replaced at the input of the attention's output matrix; named block.head, as 9.6"
WHAT: dict[Unit, str] = {
    "head": HEADS,
    "group": HEADS,
    "neuron": "A neuron is removed at the input of the MLP's last matrix; named block.neuron, as 9.306",
    "expert": "An expert is removed where the router chose it; no other takes its place; named block.expert, as 9.6",
    "matrix": "A matrix is multiplied, its bias left alone",
}


class Swept(Labels):
    """The sweep that a part belongs to.

    Attributes:
        tests: over how many parts p is corrected.
    """

    unit: Unit
    factor: Factor
    tests: int = column()

    @classmethod
    def of(cls, curve: Curve) -> Swept:
        """That of a curve whose cells are by block and part."""
        return cls(**dict(curve.labels), unit=curve.unit, factor=curve.factor, tests=curve.tests)


def rows(material: Material) -> Rows:
    """One line per model, task, unit, factor, block and part: `parts.csv`."""
    records = [(Swept.of(curve), *curve.columns(cell)) for curve in material.maps for cell in curve.cells]
    return Rows(
        "parts", records, (Swept, Unedited, Forced, OverClusters, Cell), "Every part",
        "Corrected by Holm's method over all parts of one kind that the study plans.",
        "marked", f"only what {wording.call(True)}" if material.summary.stopped else "critical only", most="size",
        brief=("model", "task", "unit", "factor", "layer", "part", "accuracy", "drop", "outcome", "decided"),
    )  # fmt: skip


@rule
def which_units(curves: Sequence[Curve]) -> Iterable[Claim]:
    """Which parts are critical and which change anything; of tasks that compare tokens, which move the difference.

    Says: Head L.H is critical for A, of N heads [; heads … change the accuracy]. | No head is shown to be critical for
    A, of N heads [; it cannot be told]. | The largest drop is D points, at head L.H. | No drop was measured. | The
    difference log p(right) − log p(rival) falls most without head L.H, and rises most without head M.I.
    Needs: as for blocks, Holm-corrected over all parts of one kind that the study plans
    """
    every = [Swept.of(curve) for curve in curves]
    several = len({(curve.unit, curve.factor) for curve in curves}) > 1
    for swept, curve in zip(every, curves, strict=True):
        largest = max(curve.cells, key=lambda cell: cell.size)
        drop = f"{POINTS.text(largest.drop)} of {SHARE.text(curve.result.baseline.accuracy.value)}"
        text = f"The largest drop is {drop}, at {named([largest])}." if largest.size > 0 else "No drop was measured."
        sentences = (_called(curve), text, _by_margin(curve))
        shown = dict.fromkeys([*curve.marked, largest])
        about = subject(swept, every, but="task")
        how = f"{wording.UNIT_NAMES[curve.unit]} {wording.changed(curve.factor)}" * several
        subjects = " · ".join(filter(None, (about, how)))
        yield Claim(tuple(filter(None, sentences)), tuple((swept, cell) for cell in shown), subjects)


def _called(curve: Curve) -> str:
    of = f"of {wording.counted(curve.tests, wording.UNIT_NAMES[curve.unit])}"
    if len(curve.cells) < curve.tests:
        so_far = " so far" * (not curve.result.screen or curve.result.screen.top is None)
        of = f"of the {len(curve.cells)} measured{so_far}, {of}"
    text = f"No {wording.UNIT_NAMES[curve.unit]} {wording.unshown(curve.stopped)} for {curve.task}, {of}"
    if curve.marked:
        called = wording.called(curve.stopped, len(curve.marked))
        text = f"{wording.capital(named(curve.marked, MOST))} {called} for {curve.task}, {of}"
    if curve.untold:
        return f"{text}; it cannot be told ({curve.untold})."
    differing = (cell for cell in curve.cells if not cell.marked and cell.drop.is_shown)
    if changing := sorted(differing, key=lambda cell: -cell.size):
        verb = f"change{'s' * (len(changing) == 1)}"
        p = wording.p_value(wording.ALPHA)
        text += f"; {named(changing, MOST)} {verb} the accuracy (corrected p at most {p})"
    return f"{text}."


def _by_margin(curve: Curve) -> str:
    """Which parts write towards the right token and which against it, of a task that compares two tokens."""
    known = [(cell, cell.margin) for cell in curve.cells if cell.margin is not None and cell.margin.value is not None]
    if not known:
        return ""
    sides = []
    for sign, verb in ((1, "falls"), (-1, "rises")):
        on_side = [(cell, m) for cell, m in known if sign * (m.value or 0.0) > 0 and m.is_shown]
        if on_side:
            cell, margin = max(on_side, key=lambda pair: abs(pair[1].value or 0.0))
            size = MARGIN.text((margin, margin.negative)[sign < 0])
            others = f" ({len(on_side)} such {wording.plural(wording.UNIT_NAMES[curve.unit])})" * (len(on_side) > 1)
            sides.append(f"{verb} most without {named([cell])}, by {size}{others}")
    rival = "rival" if curve.result.forced else "tempting"
    return f"The difference log p(right) − log p({rival}) {' and '.join(sides) or 'is not shown to move'}."


def part(material: Material) -> Part | None:
    """A map per model, task, unit and factor; None of a study without inner units."""
    curves = material.maps
    if not curves:
        return None
    units = list(dict.fromkeys(curve.unit for curve in curves))
    noun = wording.UNIT_NAMES[units[0]] if len(units) == 1 else "part of a block"
    mark = Map(
        "drop", "part", "layer", "marked", panel=SWEPT, only={"drawable": True},
        wide=True, name="parts",
        caption=f"Accuracy lost without each {noun}, in points, a row per block. Boxed:"
        f" {wording.call(curves[0].stopped)}.",
    )  # fmt: skip
    return Part(
        f"How much does each {noun} take?",
        rows(material),
        (mark,),
        (*which_units(curves), *kinds.survive(kinds.compared(curves))),
        f"{'. '.join(dict.fromkeys(WHAT[unit] for unit in units))}.",
        wording.capital(wording.plural(noun)) if len(units) == 1 else "Parts",
        wide=True,
    )
