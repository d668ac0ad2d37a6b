"""What a drift study found of one model, in sentences written from its numbers."""

from __future__ import annotations

from lesion.report import wording
from lesion.report.finding import Finding
from lesion.report.wording import ALPHA, SPACE, capital, percent
from lesion.studies.drift.charts import p_text, place_text
from lesion.studies.drift.evidence import agreement, at_the_start, lost, reach
from lesion.studies.drift.result import BY_TOKEN, CHECKS, Departure, DriftOfModel, DriftSummary, Leaving
from lesion.studies.drift.token_drift import named, token_text

MOST_NAMED = 2
"""So many classes, and so many tokens, are named among those that left."""
SAME = 1e-9
"""A hinge and a step whose gains differ by less are the same curve."""
MANY = 0.2
"""Where more than this share of all places is as near to a critical block, nearness says little."""
FIRST_STEP = "only the end of the first step"
"""What a hinge or step at the start of a curve marks: the reference layer agrees with itself."""


def model_finding(summary: DriftSummary, model: DriftOfModel) -> Finding:
    """One model: the shape of its curve and its critical blocks first, then everything else that is known of it."""
    headline = (*shape_sentences(summary, model), *place_sentence(model))
    measured = (*fall(summary, model), *checks(summary, model))
    return Finding(model.name, headline, (*measured, *_other_clusters(model), *_elsewhere(model), *left(model)))


def shape_sentences(summary: DriftSummary, model: DriftOfModel) -> list[str]:
    """Whether the curve is a straight line, and the hinge or step that it has instead."""
    shape = model.curve.shape
    if shape is None:
        return ["The shape of the curve is not known."]
    if shape.chosen == "untested":
        return ["With one run a straight line cannot be tested."]
    p = p_text(shape.line.p)
    if shape.chosen == "line":
        return [f"A straight line is not rejected ({p})."]
    first = f"The curve is not a straight line ({p})."
    at = shape.departure
    if at is None:
        return [first, f"Neither a hinge ({p_text(shape.hinge.p)}) nor a step ({p_text(shape.step.p)}) is found."]
    text = f"It has a {place_text(at)} ({p_text(at.p)}): {change(at)}"
    other = shape.step if at is shape.hinge else shape.hinge
    if at.gain is not None and other.gain is not None and abs(at.gain - other.gain) < SAME:
        text += f". A {place_text(other)} fits equally well: only the outermost layer departs from the line"
    if shape.share is not None:
        better = max((shape.hinge, shape.step), key=lambda departure: departure.gain or 0.0).kind
        text += f"; {percent(shape.share, 0)} of bootstrap draws prefer a {better}"
    if at_the_start(summary, at):
        text += f". It marks {FIRST_STEP}"
    return [first, f"{text}."]


def change(departure: Departure) -> str:
    """`NMI falls by 0.078`, `NMI falls by 0.010 a layer before it, falls by 0.050 a layer after it`."""
    if departure.kind == "step":
        size = departure.size or 0.0
        return f"NMI {'rises' if size > 0 else 'falls'} by {abs(size):.3f} beyond the line's slope"
    before, after = map(_pace, departure.slopes)
    return f"NMI {before} before it, {after} after it"


def _pace(slope: float | None) -> str:
    """A slope per layer in words."""
    if slope is None:
        return "has no known slope"
    if abs(slope) < 0.0005:
        return "does not change"
    return f"{'rises' if slope > 0 else 'falls'} by {abs(slope):.3f} a layer"


def place_sentence(model: DriftOfModel) -> list[str]:
    """Where the hinge or step is relative to the critical blocks, and how many places for it are as near."""
    if model.curve.shape is None or model.critical is None:
        return []
    blocks = model.critical_blocks
    if not blocks:
        return ["The layer study found no critical block."]
    critical = f"the critical {wording.numbered('block', blocks)}"
    at, nearest = model.curve.departure, model.curve.nearest
    if at is None or nearest is None:
        return [f"{capital(critical)}: without a hinge or step nothing to compare."]
    block, distance = nearest.block, nearest.distance
    if distance == 0:
        where = "over" if at.kind == "step" else "within"
    else:
        where = f"{abs(distance):.1f} layers {'after' if distance > 0 else 'before'}"
    extent = {
        "within": ", its interval wholly within critical blocks",
        "outside": ", its interval outside critical blocks",
        "open": ", its interval partly outside critical blocks",
        None: "",
    }[reach(model, at)]
    return [
        f"It is {where} critical block{SPACE}{block}{extent}; {percent(nearest.chance, 0)} of places for a {at.kind}"
        f" are as near to {critical}{', so nearness says little' if nearest.chance > MANY else ''}."
    ]


def fall(summary: DriftSummary, model: DriftOfModel) -> list[str]:
    """NMI at both ends, beside what shuffled tokens give, and where the two cannot be distinguished."""
    places = [place for place in model.curve.along("nmi") if place[0] > summary.reference]
    if not places:
        return []
    (first, start), (last, end) = places[0], places[-1]
    before, after = (
        f"{value.mean:.2f}" + ("" if value.std is None else f" ± {value.std:.2f}") for value in (start, end)
    )
    text = f"NMI goes from {before} at layer {first} to {after} at layer {last}"
    if both := ends(model):
        text += f", of shuffled tokens {both[1]:.2f}"
    if low := lost(model):
        text += f"; {wording.numbered('layer', low)} cannot be distinguished from these"
    return [f"{text}.", *_spreading(model)]


def _spreading(model: DriftOfModel) -> list[str]:
    """How much of the fall of NMI is that occurrences of one token spread over clusters."""
    if (falls := spread(model)) is None:
        return []
    nmi, by_token = falls
    return [
        f"With every occurrence in its token's most common cluster it falls by {by_token:.2f} instead of {nmi:.2f}: the"
        " rest is that occurrences of one token spread."
    ]


def spread(model: DriftOfModel) -> tuple[float, float] | None:
    """How far NMI falls from the first layer after the reference to the last, as it is and by token (`BY_TOKEN`)."""
    falls = []
    for measure in ("nmi", BY_TOKEN):
        values = [value.mean for _, value in model.curve.along(measure)][1:]
        if len(values) < 2:
            return None
        falls.append(values[0] - values[-1])
    return falls[0], falls[1]


def ends(model: DriftOfModel) -> tuple[float, float] | None:
    """NMI and its null at the last layer that has both."""
    nmi, null = dict(model.curve.along("nmi")), dict(model.curve.along("null"))
    both = [(value.mean, null[layer].mean) for layer, value in nmi.items() if layer in null]
    return both[-1] if both else None


def checks(summary: DriftSummary, model: DriftOfModel) -> list[str]:
    """Whether cosine and CKA fall over the same blocks as NMI does."""
    agreeing: list[str] = []
    others: list[str] = []
    for measure, name in CHECKS.items():
        if pair := agreement(model.curve, measure, summary.reference):
            numbers = f"{name} (ρ{SPACE}{pair[0]:.2f}, {p_text(pair[1])})".replace("-", wording.MINUS)
            (agreeing if pair[1] <= ALPHA else others).append(numbers)
    parts = [wording.listed(agreeing)] if agreeing else []
    parts += [f"not shown for {wording.listed(others, 'or')}"] if others else []
    return [f"Falling over the same blocks: {'; '.join(parts)}."] if parts else []


def _other_clusters(model: DriftOfModel) -> list[str]:
    """The shapes under the other numbers of clusters."""
    clusters: dict[str, list[str]] = {}
    for curve in sorted(model.curves, key=lambda curve: curve.clusters):
        if curve.shape and curve is not model.curve:
            clusters.setdefault(curve.shape.chosen, []).append(str(curve.clusters))
    parts = [f"{shape} with {wording.listed(numbers)}" for shape, numbers in clusters.items()]
    return [f"Other numbers of clusters: {'; '.join(parts)}."] if parts else []


def _elsewhere(model: DriftOfModel) -> list[str]:
    """What is critical for the tasks of the layer study, where it asked several or another."""
    by_task = {task: blocks for task, blocks in (model.critical or {}).items() if task}
    if not by_task or list(by_task) == [model.compared]:
        return []
    parts = [f"{wording.layer_runs(blocks, last=' and') or 'none'} for {task}" for task, blocks in by_task.items()]
    return [f"Critical blocks: {', '.join(parts)}; compared are those for {model.compared or 'any of them'}."]


def left(model: DriftOfModel) -> list[str]:
    """Which classes and tokens leave their cluster more often than all tokens do, the surest first."""
    tokens = model.tokens
    overall = tokens.overall.share.value or 0.0
    text = f"Between layers {tokens.start} and {tokens.end}, {percent(overall, 0)} of all tokens leave their cluster"
    classes = [leaving for leaving in tokens.surest_classes if (leaving.share.low or 0.0) > overall]
    types = named(tokens.types, overall, sum(leaving.count for leaving in tokens.classes))
    parts = [
        f"of the {kind} {wording.listed([_leaver(leaving) for leaving in more[:MOST_NAMED]])}"
        for kind, more in (("classes", classes), ("tokens", types))
        if more
    ]
    return [f"{text}; more {'; '.join(parts)}." if parts else f"{text}."]


def _leaver(leaving: Leaving) -> str:
    name = leaving.kind if leaving.token is None else f"“{token_text(leaving.token)}”"
    share = leaving.share
    return f"{name} ({percent(share.value, 0)} {wording.interval(share.low, share.high, 0)})"
