"""What a drift study found of one model, in sentences written from its numbers."""

from __future__ import annotations

from lesion.report import wording
from lesion.report.finding import Finding
from lesion.report.wording import ALPHA, SPACE, percent
from lesion.studies.drift.charts import p_text, place_text, shape_text
from lesion.studies.drift.evidence import agreement, at_the_start, lost, reach, steepest
from lesion.studies.drift.result import CHECKS, Departure, DriftOfModel, DriftSummary, Leaving, Shape
from lesion.studies.drift.token_drift import named, token_text

MOST_NAMED = 3
"""So many classes, and so many tokens, are named among those that left."""
SAME = 1e-9
"""A hinge and a step whose gains differ by less are the same curve."""
MANY = 0.2
"""Where more than this share of all places is as near to a critical block, nearness says little."""


def model_finding(summary: DriftSummary, model: DriftOfModel) -> Finding:
    """One model: the shape of its curve and its critical blocks first, then everything else that is known of it."""
    headline = (*shape_sentences(summary, model), *place_sentence(model))
    measured = (*_fall(summary, model), *above(model), *checks(summary, model))
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
    if shape.line.f is not None:
        degrees = f"{shape.line.degrees[0]},{SPACE}{shape.line.degrees[1]}"
        p += f"; if layers were independent: F({degrees}) = {shape.line.f:.1f}, {p_text(shape.line.f_p)}"
    first = f"The curve is not a straight line ({p})."
    at = shape.departure
    if at is None:
        hinge, step = p_text(shape.hinge.p), p_text(shape.step.p)
        return [first, f"Neither a hinge ({hinge}) nor a step ({step}) is found on top of a line."]
    text = f"It has a {place_text(at)} ({p_text(at.p)}): {change(at)}{_beside(shape, at)}"
    if shape.share is not None:
        better = max((shape.hinge, shape.step), key=lambda departure: departure.gain or 0.0).kind
        text += f"; {percent(shape.share, 0)} of bootstrap draws of runs prefer a {better}"
    if at_the_start(summary, at):
        text += f". It marks {first_step(summary)}"
    return [first, f"{text}."]


def _beside(shape: Shape, at: Departure) -> str:
    """What the chosen one of hinge and step explains, and the other one."""
    other = shape.step if at is shape.hinge else shape.hinge
    if at.gain is None or other.gain is None:
        return ""
    if abs(at.gain - other.gain) < SAME:
        return (
            f". A {place_text(other)} fits equally well: only the outermost layer departs from the line, so the two"
            " cannot be distinguished"
        )
    shares = f"{percent(at.gain, 0)} of what a line leaves over, the best {other.kind} {percent(other.gain, 0)}"
    return f". This explains {shares}"


def first_step(summary: DriftSummary) -> str:
    """What a hinge or step at the start of a curve marks."""
    return f"only the end of the first step, away from layer {summary.reference}'s agreement with itself"


def change(departure: Departure) -> str:
    """`NMI falls by 0.078 there`, `NMI falls by 0.010 a layer before it and falls by 0.050 a layer after it`."""
    if departure.kind == "step":
        size = departure.size or 0.0
        return f"NMI {'rises' if size > 0 else 'falls'} by {abs(size):.3f} there, beyond the slope of the line"
    before, after = map(_pace, departure.slopes)
    return f"NMI {before} before it and {after} after it"


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
        return ["The layer study found no critical block to compare with."]
    noun = "block" if len(blocks) == 1 else "blocks"
    critical = f"the critical {noun}{SPACE}{wording.layer_runs(blocks, last=' and')}"
    at, nearest = model.curve.departure, model.curve.nearest
    if at is None or nearest is None:
        return [f"{capital(critical)}; without a hinge or step there is nothing to compare."]
    block, distance = nearest.block, nearest.distance
    if distance == 0:
        where = "over" if at.kind == "step" else "within"
    else:
        where = f"{abs(distance):.1f} layers {'after' if distance > 0 else 'before'}"
    extent = {
        "within": "; its whole interval lies within critical blocks",
        "outside": "; no part of its interval lies within a critical block",
        "open": "; part of its interval lies outside critical blocks",
        None: "",
    }[reach(model, at)]
    return [
        f"It is {where} critical block{SPACE}{block} (between layers {block} and {block + 1}){extent}. By chance,"
        f" {percent(nearest.chance, 0)} of all places for a {at.kind} are as near to {critical}"
        f"{', so nearness says little' if nearest.chance > MANY else ''}."
    ]


def _fall(summary: DriftSummary, model: DriftOfModel) -> list[str]:
    places = [place for place in model.curve.along("nmi") if place[0] > summary.reference]
    if len(places) < 2:
        return []
    (first, start), (last, end) = places[0], places[-1]
    before, after = (
        f"{value.mean:.2f}" + ("" if value.std is None else f" ± {value.std:.2f}") for value in (start, end)
    )
    text = f"NMI with the clusters of layer {summary.reference} goes from {before} at layer {first}"
    text += f" to {after} at layer {last}"
    least, lowest = min(places, key=lambda place: place[1].mean)
    if lowest.mean < end.mean - 0.02 and least not in (first, last):
        text += f", with the least, {lowest.mean:.2f}, at layer {least}"
    deepest = steepest(model.curve, "nmi", summary.reference)
    if deepest is not None:
        text += f"; the largest step, {-model.curve.steps('nmi')[deepest]:.2f}, is over block {deepest}"
    return [f"{text} ({wording.counted(model.clusters, 'cluster')})."]


def ends(model: DriftOfModel) -> tuple[float, float] | None:
    """NMI and its null at the last layer that has both."""
    nmi, null = dict(model.curve.along("nmi")), dict(model.curve.along("null"))
    both = [(value.mean, null[layer].mean) for layer, value in nmi.items() if layer in null]
    return both[-1] if both else None


def above(model: DriftOfModel) -> list[str]:
    """How high the curve is above what shuffled tokens give, at the last layer and anywhere."""
    last = ends(model)
    if last is None:
        return []
    nmi, null = last
    text = f"At the last layer NMI is {nmi:.2f}, where shuffled tokens give {null:.2f}"
    text += f": {nmi - null:.2f} above the null" if nmi - null >= 0.005 else ", no less"
    if low := lost(model):
        layers = f"{'layer' if len(low) == 1 else 'layers'} {wording.layer_runs(low, last=' and')}"
        text += f"; {layers} cannot be distinguished from it"
    return [f"{text}."]


def checks(summary: DriftSummary, model: DriftOfModel) -> list[str]:
    """Whether cosine and CKA fall over the same blocks as NMI does."""
    parts = []
    own = steepest(model.curve, "nmi", summary.reference)
    for measure, name in CHECKS.items():
        pair = agreement(model.curve, measure, summary.reference)
        if pair is None:
            continue
        rho, p = pair
        most = steepest(model.curve, measure, summary.reference)
        where = "" if most is None else f", most of all over block {most}" + (" as well" if most == own else "")
        numbers = f"(ρ{SPACE}{rho:.2f}, {p_text(p)})".replace("-", wording.MINUS)
        subject = f"{name} falls" if p <= ALPHA else f"no evidence that {name} falls"
        parts.append(f"{subject} over the same blocks {numbers}{where}")
    return [f"{capital('; '.join(parts))}."] if parts else []


def _other_clusters(model: DriftOfModel) -> list[str]:
    """The shapes under the other numbers of clusters."""
    known = {curve.clusters: curve.shape for curve in model.curves if curve.shape and curve is not model.curve}
    parts = [f"{clusters} clusters: {shape_text(shape)}" for clusters, shape in sorted(known.items())]
    return [f"With other numbers of clusters: {'. '.join(parts)}."] if parts else []


def _elsewhere(model: DriftOfModel) -> list[str]:
    """What is critical for the tasks of the layer study, where it asked several or another."""
    by_task = {task: blocks for task, blocks in (model.critical or {}).items() if task}
    if not by_task or list(by_task) == [model.compared]:
        return []
    parts = [f"{wording.layer_runs(blocks, last=' and') or 'none'} for {task}" for task, blocks in by_task.items()]
    return [
        f"Critical blocks of the layer study: {', '.join(parts)}; compared are those for"
        f" {model.compared or 'any of them'}."
    ]


def left(model: DriftOfModel) -> list[str]:
    """Which classes and tokens leave their cluster more often than all tokens do, the surest first."""
    tokens = model.tokens
    overall = tokens.overall.share.value or 0.0
    text = (
        f"Between layers {tokens.start} and {tokens.end}, {percent(overall, 0)} of all tokens leave their cluster,"
        " including those moved by the noise of k-means"
    )
    classes = [leaving for leaving in tokens.surest_classes if (leaving.share.low or 0.0) > overall]
    types = named(tokens.types, overall, sum(leaving.count for leaving in tokens.classes))
    parts = [
        f"of the {kind} {wording.listed([_leaver(leaving) for leaving in more[:MOST_NAMED]])}"
        for kind, more in (("classes", classes), ("tokens", types))
        if more
    ]
    return [f"{text}. More than that leave {'; '.join(parts)}." if parts else f"{text}."]


def _leaver(leaving: Leaving) -> str:
    name = leaving.kind if leaving.token is None else f"“{token_text(leaving.token)}”"
    share = leaving.share
    return f"{name} ({percent(share.value, 0)} {wording.interval(share.low, share.high, 0)})"


def capital(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]
