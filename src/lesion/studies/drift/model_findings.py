"""What a drift study found of one model, in sentences written from its numbers."""

from __future__ import annotations

from lesion.report import wording
from lesion.report.finding import Finding
from lesion.report.wording import ALPHA
from lesion.studies.drift.charts import place_text, shape_text
from lesion.studies.drift.evidence import agreement, at_the_start, lost, reach, steepest
from lesion.studies.drift.result import Departure, DriftOfModel, DriftSummary, Leaving, Shape, steps
from lesion.studies.drift.token_tables import named, token_text

CHECKS = {"cosine": "cosine", "cka": "CKA"}
"""The measures that know of no clusters, and what they are called."""
MOST_NAMED = 3
"""So many classes, and so many tokens, are named among those that left."""
SAME = 1e-9
"""A hinge and a step whose gains differ by less are the same curve."""
MANY = 0.2
"""Where more than this share of all places is as near to a critical block, nearness says little."""


def told_of(summary: DriftSummary, model: DriftOfModel) -> Finding:
    """One model: the shape of its curve and its critical blocks first, then everything else that is known of it."""
    headline = [*shape_sentences(summary, model), *place_sentence(model)]
    sentences = [
        *(*_fall(summary, model), *above(model), *checks(summary, model), *_other_clusters(model), *_elsewhere(model)),
        *left(model),
    ]
    return Finding(model.name, tuple(headline), tuple(sentences))


def shape_sentences(summary: DriftSummary, model: DriftOfModel) -> list[str]:
    """Whether the curve is a straight line, and the hinge or step that it has instead."""
    shape = model.curve.shape
    if shape is None:
        return ["The shape of the curve is not known."]
    if shape.chosen == "untested":
        return ["With one run a straight line cannot be tested."]
    p = f"p{wording.SPACE}{wording.p_value(shape.line.p)}"
    if shape.chosen == "line":
        return [f"A straight line is not rejected ({p})."]
    first = f"The curve is not a straight line ({p}{_textbook(shape)})."
    at = shape.departure
    if at is None:
        return [first, f"Neither a hinge ({_p(shape.hinge)}) nor a step ({_p(shape.step)}) is found on top of a line."]
    other = shape.step if at is shape.hinge else shape.hinge
    text = f"It has a {place_text(at)} ({_p(at)}): {change(at)}"
    if at.gain is not None and other.gain is not None and abs(at.gain - other.gain) < SAME:
        text += (
            f". A {place_text(other)} fits exactly as well: only the outermost layer departs from the line, so that "
            "the two cannot be told apart"
        )
    elif at.gain is not None and other.gain is not None:
        text += (
            f". This takes away {wording.percent(at.gain, 0)} of what a line leaves over, the best {other.kind} "
            f"{wording.percent(other.gain, 0)}"
        )
    if shape.share is not None:
        text += f"; {wording.percent(shape.share, 0)} of bootstrap draws of runs prefer a {better(shape)}"
    if at_the_start(summary, at):
        text += (
            f". It marks no more than the end of the first step, in which layer {summary.reference} leaves its"
            " agreement with itself"
        )
    return [first, f"{text}."]


def better(shape: Shape) -> str:
    """Of hinge and step the one that leaves less over."""
    return max((shape.hinge, shape.step), key=lambda departure: departure.gain or 0.0).kind


def change(departure: Departure) -> str:
    """`NMI falls by 0.078 there`, `NMI falls by 0.010 a layer before it and falls by 0.050 a layer after it`."""
    if departure.kind == "step" or departure.slopes is None:
        size = departure.size or 0.0
        return f"NMI {'rises' if size > 0 else 'falls'} by {abs(size):.3f} there, beyond the slope of the line"
    before, after = departure.slopes
    return f"NMI {_pace(before)} before it and {_pace(after)} after it"


def _textbook(shape: Shape) -> str:
    if shape.line.f is None:
        return ""
    numbers = f"F({shape.line.degrees[0]},{wording.SPACE}{shape.line.degrees[1]}) = {shape.line.f:.1f}"
    return f"; if layers were independent: {numbers}, p{wording.SPACE}{wording.p_value(shape.line.f_p)}"


def _p(departure: Departure) -> str:
    return f"p{wording.SPACE}{wording.p_value(departure.p)}"


def _pace(slope: float | None) -> str:
    """A slope per layer in words."""
    if slope is None:
        return "has no known slope"
    if abs(slope) < 0.0005:
        return "stays as it is"
    return f"{'rises' if slope > 0 else 'falls'} by {abs(slope):.3f} a layer"


def place_sentence(model: DriftOfModel) -> list[str]:
    """Where the hinge or step stands to the critical blocks, and how many places for it are as near."""
    shape = model.curve.shape
    if shape is None or model.critical is None:
        return []
    blocks = model.critical_blocks
    if not blocks:
        return ["The layer study found no critical block to compare with."]
    at, nearest = shape.departure, model.curve.nearest
    if at is None or nearest is None:
        return [f"{capital(_critical(model))}; without a hinge or step there is nothing to compare."]
    block, distance = nearest.block, nearest.distance
    place = f"critical block{wording.SPACE}{block} (between layers {block} and {block + 1})"
    if distance == 0:
        text = f"It is {'over' if at.kind == 'step' else 'within'} {place}"
    else:
        text = f"It is {abs(distance):.1f} layers {'after' if distance > 0 else 'before'} {place}"
    text += {
        "within": "; its whole interval lies within critical blocks",
        "outside": "; no part of its interval lies within a critical block",
        "open": "; part of its interval lies outside critical blocks",
        None: "",
    }[reach(model, at)]
    text += (
        f". By chance, {wording.percent(nearest.chance, 0)} of all places for a {at.kind} are as near to "
        f"{_critical(model)}{', so that nearness says little' if nearest.chance > MANY else ''}."
    )
    return [text]


def _critical(model: DriftOfModel) -> str:
    """`the critical blocks 2 and 3`."""
    blocks = model.critical_blocks
    noun = "block" if len(blocks) == 1 else "blocks"
    return f"the critical {noun}{wording.SPACE}{wording.layer_runs(blocks, last=' and')}"


def _fall(summary: DriftSummary, model: DriftOfModel) -> list[str]:
    places = [place for place in model.curve.along("nmi") if place[0] > summary.reference]
    if len(places) < 2:
        return []
    (first, start), (last, end) = places[0], places[-1]
    text = f"NMI with the clusters of layer {summary.reference} goes from {_spread(start.mean, start.std)}"
    text += f" at layer {first} "
    text += f"to {_spread(end.mean, end.std)} at layer {last}"
    least, lowest = min(places, key=lambda place: place[1].mean)
    if lowest.mean < end.mean - 0.02 and least not in (first, last):
        text += f", with the least, {lowest.mean:.2f}, at layer {least}"
    deepest = steepest(model.curve, "nmi", summary.reference)
    if deepest is not None:
        fall = -dict(steps(model.curve, "nmi"))[deepest]
        text += f"; the largest step, {fall:.2f}, is over block {deepest}"
    return [f"{text} ({wording.counted(model.clusters, 'cluster')})."]


def above(model: DriftOfModel) -> list[str]:
    """How high the curve stands above what shuffled tokens give, at the last layer and anywhere."""
    nmi, null = dict(model.curve.along("nmi")), dict(model.curve.along("null"))
    both = [layer for layer in nmi if layer in null]
    if not both:
        return []
    last = both[-1]
    above = nmi[last].mean - null[last].mean
    text = f"At the last layer NMI is {nmi[last].mean:.2f}, where shuffled tokens give {null[last].mean:.2f}"
    text += f": {above:.2f} above the null" if above >= 0.005 else ", no less"
    low = lost(model)
    if low:
        noun = "layer" if len(low) == 1 else "layers"
        text += f"; {noun} {wording.layer_runs(low, last=' and')} cannot be told from it"
    return [f"{text}."]


def checks(summary: DriftSummary, model: DriftOfModel) -> list[str]:
    """Whether cosine and CKA fall over the same blocks as NMI does."""
    text = []
    own = steepest(model.curve, "nmi", summary.reference)
    for measure, name in CHECKS.items():
        both = agreement(model.curve, measure, summary.reference)
        if both is None:
            continue
        rho, p = both
        most = steepest(model.curve, measure, summary.reference)
        where = "" if most is None else f", most of all over block {most}" + (" as well" if most == own else "")
        numbers = f"(ρ{wording.SPACE}{rho:.2f}, p{wording.SPACE}{wording.p_value(p)})".replace("-", wording.MINUS)
        text.append(
            f"{name} falls over the same blocks {numbers}{where}"
            if p <= ALPHA
            else f"of {name} there is no evidence that it falls over the same blocks {numbers}{where}"
        )
    return [f"{capital('; '.join(text))}."] if text else []


def _other_clusters(model: DriftOfModel) -> list[str]:
    """The shapes under the other numbers of clusters."""
    others = (curve for curve in model.curves if curve.clusters != model.clusters)
    known = {curve.clusters: curve.shape for curve in others if curve.shape}
    parts = [f"{clusters} clusters: {shape_text(known[clusters])}" for clusters in sorted(known)]
    return [f"With other numbers of clusters: {'. '.join(parts)}."] if parts else []


def _elsewhere(model: DriftOfModel) -> list[str]:
    """What is critical for the tasks of the layer study, where it asked several or another."""
    text = {task: blocks for task, blocks in (model.critical or {}).items() if task}
    if not text or list(text) == [model.compared]:
        return []
    parts = [f"{wording.layer_runs(blocks, last=' and') or 'none'} for {task}" for task, blocks in text.items()]
    compared = (
        f"; compared are those for {model.compared}" if model.compared else "; compared are those for any of them"
    )
    return [f"Critical blocks of the layer study: {', '.join(parts)}{compared}."]


def left(model: DriftOfModel) -> list[str]:
    """Which classes and tokens leave their cluster more often than all tokens do, the surest first."""
    tokens = model.tokens
    overall = tokens.overall.share.value or 0.0
    text = (
        f"Between layers {tokens.start} and {tokens.end}, {wording.percent(overall, 0)} of all tokens leave their"
        " cluster, those included that k-means alone would move"
    )
    classes = [
        leaving for leaving in tokens.surest_classes if leaving.share.low is not None and leaving.share.low > overall
    ]
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
    return f"{name} ({wording.percent(share.value, 0)} {wording.interval(share.low, share.high, 0)})"


def _spread(mean: float, std: float | None) -> str:
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def capital(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]
