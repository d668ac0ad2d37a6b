"""Inner units of a layer study: which heads, neurons, experts and matrices are critical, as maps of blocks × parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lesion.core.clustered_intervals import OverClusters
from lesion.edits.edit import BASELINE
from lesion.edits.place import Unit
from lesion.report import wording
from lesion.report.browser import Offered
from lesion.report.claims import Claim, rule
from lesion.report.forms import POINTS, SHARE, decimals
from lesion.report.marks import Map
from lesion.report.parts import Part
from lesion.report.rows import Rows, column, subject
from lesion.studies.ablation import parts
from lesion.studies.ablation.cell import Cell, Unedited
from lesion.studies.ablation.curves import Curve
from lesion.studies.ablation.forced import Forced
from lesion.studies.ablation.material import Labels, Material
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.ablation.sweep import Factor, kind_of

MOST = 5
"""So many parts are named in a sentence."""
MARGIN = decimals(3, "nats")
HEADS = (
    "A head is removed or replaced at the input of the attention's output matrix: the other heads and the bias stay."
    " Heads are named block.head, as 9.6"
)
WHAT: dict[Unit, str] = {
    "head": HEADS,
    "group": HEADS,
    "neuron": "A neuron is removed at the input of the MLP's last matrix: the other neurons and the bias stay. Neurons"
    " are named block.neuron, as 9.306",
    "expert": "An expert is removed where the router chose it: the routing weights of the others stay as they are, and"
    " no other expert takes its place. Experts are named block.expert, as 9.6",
    "matrix": "A matrix is multiplied, its bias left alone",
}


class Swept(Labels):
    """The sweep that a part belongs to.

    Attributes:
        tests: over how many parts p is corrected.
        drawable: whether a map of the sweep can be read.
    """

    unit: Unit
    factor: Factor
    tests: int = column()
    drawable: bool

    @classmethod
    def of(cls, curve: Curve) -> Swept:
        """That of a curve whose cells are by block and part."""
        return cls(
            model=curve.model, task=curve.task, unit=curve.unit, factor=curve.factor,
            tests=parts.tests(curve), drawable=parts.drawable(curve.cells),
        )  # fmt: skip


def rows(summary: AblationSummary) -> Rows:
    """One line per model, task, unit, factor, block and part: `parts.csv`."""
    records = [
        (
            Swept.of(curve),
            Unedited.of(curve.baseline_of(cell), curve.result.forced, curve.result.guessing),
            cell.forced,
            cell.clustered,
            cell,
        )
        for curve in parts.maps(summary)
        for cell in curve.cells
    ]
    return Rows(
        "parts", records, (Swept, Unedited, Forced, OverClusters, Cell), "Every part",
        "The corrections are Holm's over all parts of one kind, of one model, task and factor, those too that have no"
        " answers yet.",
        "marked", f"only what {wording.call(True)}" if summary.stopped else "critical only", most="size",
        brief=("model", "task", "unit", "factor", "layer", "part", "accuracy", "drop", "outcome", "decided"),
    )  # fmt: skip


@rule(
    "Head L.H is critical for A, of N heads [; heads … change the accuracy].",
    "No head of N is shown to be critical for A [; it cannot be told].",
    "The largest drop is D points, at head L.H.",
    "The difference log p(right) − log p(rival) falls most without head L.H, and rises most without head M.I.",
    needs="as for blocks, Holm-corrected over all parts of one kind that the study plans",
)
def which_units(curves: Sequence[Curve]) -> Iterable[Claim]:
    """Which parts are critical and which change anything; of tasks that compare tokens, which move the difference."""
    every = [Swept.of(curve) for curve in curves]
    for swept, curve in zip(every, curves, strict=True):
        largest = max(curve.cells, key=lambda cell: cell.size)
        place = parts.named([largest], curve.unit)
        drop = f"{POINTS.text(largest.drop)} of {SHARE.text(curve.result.baseline.accuracy.value)}"
        sentences = (_called(curve), f"The largest drop is {drop}, at {place}.", _by_margin(curve))
        shown = [*curve.marked, *([] if largest in curve.marked else [largest])]
        about = subject(swept, every)
        how = f"{wording.UNIT_NAMES[curve.unit]} {wording.changed(curve.factor)}" if _several(curves) else ""
        yield Claim(
            tuple(filter(None, sentences)),
            tuple((swept, cell) for cell in shown),
            " · ".join(filter(None, (about.removesuffix(curve.task).removesuffix(" · "), how))),
        )


def _several(curves: Sequence[Curve]) -> bool:
    return len({(curve.unit, curve.factor) for curve in curves}) > 1


def _called(curve: Curve) -> str:
    """Which parts are marked, of how many, and which others change the accuracy."""
    noun, count = wording.UNIT_NAMES[curve.unit], parts.tests(curve)
    of = f"of {wording.counted(count, noun)}"
    if len(curve.cells) < count:
        so_far = "" if curve.result.screen and curve.result.screen.top else " so far"
        of = f"of the {len(curve.cells)} measured{so_far}, {of}"
    if not curve.marked:
        unknown = f"; it cannot be told ({curve.untold})" if curve.untold else ""
        text = f"No {noun} {wording.unshown(curve.stopped)} for {curve.task} {of}{unknown}"
    else:
        text = f"{wording.capital(_listed(curve.marked, curve))} {wording.called(curve.stopped, len(curve.marked))}"
        text += f" for {curve.task}, {of}"
    changing = [cell for cell in curve.cells if not cell.marked and _differs(cell.drop.p_corrected)]
    if changing and not curve.untold:
        verb = "changes" if len(changing) == 1 else "change"
        text += f"; {_listed(changing, curve)} {verb} the accuracy (corrected p below {wording.p_value(wording.ALPHA)})"
    return f"{text}."


def _differs(p: float | None) -> bool:
    return p is not None and p < wording.ALPHA


def _listed(cells: Sequence[Cell], curve: Curve) -> str:
    """The parts by falling drop; of many the first, and how many more there are."""
    ordered = sorted(cells, key=lambda cell: -cell.size)
    more = f" and {len(ordered) - MOST} more" if len(ordered) > MOST else ""
    return f"{parts.named(ordered[:MOST], curve.unit)}{more}"


def _by_margin(curve: Curve) -> str:
    """Which parts write towards the right token and which against it, of a task that compares two tokens."""
    known = [(cell, cell.margin) for cell in curve.cells if cell.margin is not None and cell.margin.value is not None]
    if not known:
        return ""
    sides = []
    for sign, verb in ((1, "falls"), (-1, "rises")):
        own = [(cell, m) for cell, m in known if sign * (m.value or 0.0) > 0 and _differs(m.p_corrected)]
        if own:
            cell, margin = max(own, key=lambda pair: abs(pair[1].value or 0.0))
            size = MARGIN.text(margin if sign > 0 else margin.negative)
            others = f" ({len(own)} such {wording.plural(wording.UNIT_NAMES[curve.unit])})" if len(own) > 1 else ""
            sides.append(f"{verb} most without {parts.named([cell], curve.unit)}, by {size}{others}")
    rival = "rival" if curve.result.forced else "tempting"
    difference = f"The difference log p(right) − log p({rival})"
    return f"{difference} {' and '.join(sides)}." if sides else f"{difference} is not shown to move."


@rule(
    "Head L.H is critical under zero, mean and resample alike; head M.I under zero alone.",
    "No head is shown to be critical under zero or mean.",
    needs="critical under every draw of a kind, as for one kind",
)
def which_kinds(curves: Sequence[Curve]) -> Iterable[Claim]:
    """Under which kinds of ablation parts are critical, of sweeps with several."""
    groups: dict[tuple[str, Unit, str], list[Curve]] = {}
    for curve in curves:
        groups.setdefault((curve.model, curve.unit, curve.task), []).append(curve)
    for own in groups.values():
        if (text := agreement(own)) is not None:
            swept = [Swept.of(curve) for curve in own]
            yield Claim((f"Kinds of ablation: {text}",), tuple(swept), subject(swept[0], list(map(Swept.of, curves))))


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


def part(material: Material) -> Part | None:
    """A map per model, task, unit and factor; None of a study without inner units."""
    curves = parts.maps(material.summary)
    if not curves:
        return None
    units = list(dict.fromkeys(curve.unit for curve in curves))
    noun = wording.UNIT_NAMES[units[0]] if len(units) == 1 else "part of a block"
    mark = Map(
        "drop", "part", "layer", "marked", panel=("model", "task", "unit", "factor"), only={"drawable": True},
        wide=True, name="parts",
        caption=f"Accuracy lost without each {noun}, in points, a row per block. Boxed:"
        f" {wording.call(curves[0].stopped)}.",
    )  # fmt: skip
    return Part(
        f"How much does each {noun} take?",
        rows(material.summary),
        (mark,),
        (*which_units(curves), *which_kinds(curves)),
        f"{'. '.join(dict.fromkeys(WHAT[unit] for unit in units))}.",
        wording.capital(wording.plural(noun)) if len(units) == 1 else "Parts",
        wide=True,
    )


def offered(summary: AblationSummary) -> Iterator[Offered]:
    """What the browser of answers offers of parts: the unedited model, then the parts by falling drop."""
    for curve in parts.maps(summary):
        yield Offered(curve.model, curve.task, str(BASELINE), "unedited")
        for cell in sorted(curve.cells, key=lambda cell: -cell.size):
            place = parts.named([cell], curve.unit)
            label = f"{place} {wording.changed(curve.factor)}, drop {POINTS(cell.drop.value)}"
            yield Offered(curve.model, curve.task, cell.edit, label)
