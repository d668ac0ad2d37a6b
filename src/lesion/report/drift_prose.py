"""What a drift study found, in sentences written from its numbers by rules; what cannot be told is said as well."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from lesion.report import wording
from lesion.report.drift_rows import Curve, Drifts, Elbow, Family, Followed, near, slopes, steps
from lesion.report.evidence import ALPHA
from lesion.report.prose import Finding

CHECKS = {"cosine": "cosine", "cka": "CKA"}
DRAWS = 9_999
"""Shuffles behind the p of a rank correlation between the steps of two measures."""
MANY = 0.2
"""Where more than this share of all places for an elbow is as near to a critical block, nearness says little."""
WIDE = 0.5
"""An elbow whose interval is wider than this share of all layers is said to be hardly located."""


def findings(found: Drifts) -> list[Finding]:
    """The verdict, over all models where there are several, then what this study cannot tell."""
    if not found.models:
        return [Finding("", ("Nothing has been measured yet.",))]
    first = (
        Finding("", tuple(verdict(found)), tuple(families(found)))
        if len(found.models) > 1
        else _model(found, found.models[0])
    )
    return [first, Finding("What cannot be told", (), tuple(limits(found)))]


def by_model(found: Drifts) -> list[Finding]:
    """Each model on its own, where there are several."""
    return [_model(found, model) for model in found.models] if len(found.models) > 1 else []


def verdict(found: Drifts) -> list[str]:
    """The sentences at the head of the page: elbow, critical blocks, height above the null, and the checks."""
    if len(found.models) == 1:
        model = found.models[0]
        return [_elbow(model), *_near(found, model), *_above(model)[:1], *_checks(found, model)[:1]]
    bent = [model for model in found.models if bends(model)]
    many = len(found.models)
    if bent:
        head = f"In {_of(len(bent), many)} models the clusters' agreement with those of layer {found.reference} has an "
        head += "elbow: two straight pieces fit the curve better than one, beyond chance."
    else:
        head = f"In none of the {many} models has the clusters' agreement with those of layer {found.reference} an "
        head += "elbow that a straight line does not explain as well."
    return [head, *_near_all(bent), *_above_all(found), *_checks_all(found)]


def bends(model: Followed) -> bool:
    """Whether the model's curve has an elbow."""
    return model.curve.elbow is not None and bool(model.curve.elbow.bend)


def reach(model: Followed, elbow: Elbow) -> str | None:
    """`near` where the elbow's whole interval lies within a layer of critical blocks, `far` where none of it does.

    Else `open`; None without critical blocks or without an interval.
    """
    blocks = model.critical_blocks
    if not blocks or elbow.low is None or elbow.high is None:
        return None
    places = np.linspace(elbow.low, elbow.high, 401)
    close = [near(float(place), blocks) for place in places]
    return "near" if all(close) else "open" if any(close) else "far"


def agreement(curve: Curve, measure: str, reference: int, seed: int = 0) -> tuple[float, float] | None:
    """Spearman's ρ between the steps of NMI and of another measure over the blocks, and its p.

    The step onto the first layer behind the reference is left out: there every measure leaves its own 1.

    Returns:
        ρ, and the share of shuffles (of `DRAWS`, and the order itself) with a ρ as large; None with fewer than four
        blocks, or where one of the two does not vary.
    """
    own, other = (dict(steps(curve, name)) for name in ("nmi", measure))
    blocks = [block for block in own if block in other and block > reference]
    if len(blocks) < 4:
        return None
    x, y = (rankdata([of[block] for block in blocks]) for of in (own, other))
    x, y = x - x.mean(), y - y.mean()
    norm = float(np.sqrt((x @ x) * (y @ y)))
    if norm == 0:
        return None
    draw = np.random.default_rng(seed)
    shuffled = draw.permuted(np.tile(y, (DRAWS, 1)), axis=1) @ x
    observed = float(x @ y)
    return observed / norm, (1 + int((shuffled >= observed - 1e-9).sum())) / (DRAWS + 1)


def steepest(curve: Curve, measure: str, reference: int) -> int | None:
    """The block over which a measure falls most; the one behind the reference is left out."""
    of_blocks = [(change, block) for block, change in steps(curve, measure) if block > reference]
    return min(of_blocks)[1] if of_blocks and min(of_blocks)[0] < 0 else None


def at_least(hits: int, chances: Sequence[float]) -> float:
    """The chance of so many hits or more, of independent trials with these chances (Poisson's binomial)."""
    tally = np.array([1.0])
    for chance in chances:
        tally = np.convolve(tally, [1 - chance, chance])
    return float(tally[hits:].sum())


def families(found: Drifts) -> list[str]:
    """Per family with several elbows: whether their intervals have a layer in common."""
    told = []
    for family in found.families:
        elbows = [model.curve.elbow for model in family.models if bends(model) and model.curve.elbow]
        known = [(one.low, one.high) for one in elbows if one.low is not None and one.high is not None]
        if len(known) < 2:
            continue
        low, high = max(low for low, _ in known), min(high for _, high in known)
        where = f"layer{wording.SPACE}{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"layers {low:.1f} to {high:.1f}"
        told.append(
            f"{_capital(family.name)}: the intervals of its {len(known)} elbows have {where} in common."
            if low <= high
            else f"{_capital(family.name)}: the intervals of its {len(known)} elbows have no layer in common: the elbow "
            f"moves from {min(one.layer for one in elbows):.1f} to {max(one.layer for one in elbows):.1f}."
        )
    return told


def limits(found: Drifts) -> list[str]:
    """What the numbers leave open."""
    told = []
    if found.reference == 0:
        told.append(
            "Layer 0 agrees with itself by definition, and in a model with rotary positions its vectors are token "
            "identity alone: what falls is how much a cluster still says which token it is, not syntax as such."
        )
    else:
        told.append("Layer 1 agrees with itself by definition; of layer 0 the curve tells how it led there.")
    ceilings = [model.ceiling for model in found.models if model.ceiling is not None]
    if ceilings:
        told.append(
            f"Two clusterings of layer {found.reference} from other starts agree only to an NMI of "
            f"{_range(ceilings)}: so much of the first step is k-means' own noise."
        )
    runs = found.study.get("runs")
    if runs == 1:
        told.append("One run has no spread: the elbow's interval allows for the fit alone, not for other items.")
    if all(model.critical is None for model in found.models):
        told.append(
            "Whether anything happens near critical layers: no layer study was given. With `--study` and the folder of "
            "a layer study of the same models, its critical blocks stand beside the elbows."
        )
    wide = [model.name for model in found.models if bends(model) and _wide(model)]
    if wide:
        told.append(
            f"Where the elbow of {wording.listed(wide)} stands: the interval covers more than half of the layers."
        )
    told.append(
        "That an elbow stands near a critical block says that two things happen in one place, not that one makes the "
        "other."
    )
    return told


def _model(found: Drifts, model: Followed) -> Finding:
    headline = verdict(found) if len(found.models) == 1 else [_elbow(model), *_near(found, model)]
    sentences = [*_fall(found, model), *_above(model), *_checks(found, model), *_other_clusters(model)]
    return Finding(model.name, tuple(headline), tuple(one for one in sentences if one not in headline))


def _elbow(model: Followed) -> str:
    elbow = model.curve.elbow
    if elbow is None:
        return "Of an elbow nothing is told."
    p = "" if elbow.p is None else f" (p{wording.SPACE}{wording.p_value(elbow.p)})"
    ends = _ends(elbow)
    if not elbow.bend:
        return (
            f"There is no elbow: two straight pieces, best joined at layer {elbow.layer:.1f}{ends}, fit the curve no "
            f"better than one{p}."
        )
    told = f"The curve has an elbow at layer {elbow.layer:.1f}{ends}{p}"
    pieces = slopes(model.curve, elbow)
    if pieces:
        before, after = pieces
        told += f": NMI {_pace(before)} before it and {_pace(after)} behind it"
    return f"{told}."


def _pace(slope: float) -> str:
    """A slope per layer in words."""
    if abs(slope) < 0.0005:
        return "stays as it is"
    return f"{'rises' if slope > 0 else 'falls'} by {abs(slope):.3f} a layer"


def _near(found: Drifts, model: Followed) -> list[str]:
    """Where the elbow stands to the critical blocks, and how many places for it are as near."""
    elbow = model.curve.elbow
    if elbow is None or model.critical is None:
        return []
    blocks = model.critical_blocks
    if not blocks:
        return ["The layer study found no critical block to lay beside it."]
    if not elbow.bend:
        return [f"{_capital(_critical(model))}; without an elbow there is nothing to compare."]
    nearest = model.nearest(elbow)
    assert nearest is not None
    block, distance = nearest.block, nearest.distance
    place = f"critical block{wording.SPACE}{block} (between layers {block} and {block + 1})"
    if distance == 0:
        told = f"It stands within {place}"
    else:
        side = "behind" if distance > 0 else "before"
        told = f"It stands {abs(distance):.1f} layers {side} {place}"
    where = reach(model, elbow)
    told += {
        "near": "; so near to critical blocks, within one layer, is its whole interval",
        "far": "; no part of its interval comes within one layer of a critical block",
        "open": "; part of its interval is farther than one layer from every critical block",
        None: "",
    }[where]
    told += (
        f". Of all places for an elbow {wording.percent(nearest.chance, 0)} are as near to {_critical(model)}"
        f"{', so that nearness says little' if nearest.chance > MANY else ''}."
    )
    return [told]


def _critical(model: Followed) -> str:
    """`the critical blocks 2 and 3 (primer:arithmetic) and 5 (primer:atlas)`."""
    assert model.critical is not None
    of_task = {task: blocks for task, blocks in model.critical.items() if blocks}
    parts = [
        wording.layer_runs(blocks, last=" and") + (f" ({task})" if task else "") for task, blocks in of_task.items()
    ]
    noun = "block" if len(model.critical_blocks) == 1 else "blocks"
    return f"the critical {noun}{wording.SPACE}{'; '.join(parts)}"


def _near_all(bent: Sequence[Followed]) -> list[str]:
    """Over all models with an elbow and critical blocks: how many are near, and how many would be by chance."""
    known = [(model, model.curve.elbow) for model in bent if model.critical_blocks and model.curve.elbow]
    if not known:
        return []
    chances = [model.near_by_chance() for model, _ in known]
    hits = sum(near(elbow.layer, model.critical_blocks) for model, elbow in known)
    p = at_least(hits, chances)
    told = (
        f"Of the {len(known)} with critical blocks to compare, {hits} {'has' if hits == 1 else 'have'} it at most one "
        f"layer from one; elbows thrown at random would be so near in {sum(chances):.1f}"
    )
    if p <= ALPHA:
        told += f" (p{wording.SPACE}{wording.p_value(p)} if models were independent; relatives are not)."
    else:
        told += f": that is no evidence of a link (p{wording.SPACE}{wording.p_value(p)})."
    return [told]


def _fall(found: Drifts, model: Followed) -> list[str]:
    places = [place for place in model.curve.along("nmi") if place[0] > found.reference]
    if len(places) < 2:
        return []
    (first, start), (last, end) = places[0], places[-1]
    told = (
        f"NMI with the clusters of layer {found.reference} goes from {_spread(start.mean, start.std)} at layer {first} "
    )
    told += f"to {_spread(end.mean, end.std)} at layer {last}"
    least, lowest = min(places, key=lambda place: place[1].mean)
    if lowest.mean < end.mean - 0.02 and least not in (first, last):
        told += f", with the least, {lowest.mean:.2f}, at layer {least}"
    deepest = steepest(model.curve, "nmi", found.reference)
    if deepest is not None:
        fall = -dict(steps(model.curve, "nmi"))[deepest]
        told += f"; the largest step, {fall:.2f}, is over block {deepest}"
    return [f"{told} ({wording.counted(model.curve.clusters or 0, 'cluster')})."]


def _above(model: Followed) -> list[str]:
    """How high the curve stands above what shuffled tokens give, at the last layer and anywhere."""
    nmi, null = dict(model.curve.along("nmi")), dict(model.curve.along("null"))
    both = [layer for layer in nmi if layer in null]
    if not both:
        return []
    last = both[-1]
    above = nmi[last].mean - null[last].mean
    told = f"At the last layer it is {nmi[last].mean:.2f}, where shuffled tokens give {null[last].mean:.2f}"
    told += f": {above:.2f} above the null" if above >= 0.005 else ", no less"
    low = lost(model)
    if low:
        noun = "layer" if len(low) == 1 else "layers"
        told += f"; {noun} {wording.layer_runs(low, last=' and')} cannot be told from it"
    return [f"{told}."]


def lost(model: Followed) -> list[int]:
    """The layers at which NMI, less a standard deviation, is no higher than the null with one more."""
    nmi, null = dict(model.curve.along("nmi")), dict(model.curve.along("null"))
    return [
        layer for layer in nmi
        if layer in null and nmi[layer].mean - (nmi[layer].std or 0.0) <= null[layer].mean + (null[layer].std or 0.0)
    ]  # fmt: skip


def _above_all(found: Drifts) -> list[str]:
    ends, floors, touching = [], [], []
    for model in found.models:
        nmi, null = dict(model.curve.along("nmi")), dict(model.curve.along("null"))
        both = [layer for layer in nmi if layer in null]
        if both:
            ends.append(nmi[both[-1]].mean)
            floors.append(null[both[-1]].mean)
            touching += [model.name] if lost(model) else []
    if not ends:
        return []
    told = f"At the last layer NMI is {_range(ends)}, where shuffled tokens give {_range(floors)}"
    if touching:
        which = wording.listed(touching) if len(touching) < 3 else f"{_of(len(touching), len(found.models))} models"
        told += f"; in {which} there are layers that cannot be told from that null"
    return [f"{told}."]


def _checks(found: Drifts, model: Followed) -> list[str]:
    """Whether cosine and CKA fall over the same blocks as NMI does."""
    told = []
    own = steepest(model.curve, "nmi", found.reference)
    for measure, name in CHECKS.items():
        both = agreement(model.curve, measure, found.reference)
        if both is None:
            continue
        rho, p = both
        most = steepest(model.curve, measure, found.reference)
        where = "" if most is None else f", most of all over block {most}" + (" as well" if most == own else "")
        numbers = f"(ρ{wording.SPACE}{rho:.2f}, p{wording.SPACE}{wording.p_value(p)})".replace("-", wording.MINUS)
        told.append(
            f"{name} falls over the same blocks {numbers}{where}"
            if p <= ALPHA
            else f"of {name} there is no evidence that it falls over the same blocks {numbers}{where}"
        )
    return [f"{_capital('; '.join(told))}."] if told else []


def _checks_all(found: Drifts) -> list[str]:
    told = []
    for measure, name in CHECKS.items():
        both = [agreement(model.curve, measure, found.reference) for model in found.models]
        known = [pair for pair in both if pair is not None]
        if known:
            agree = sum(p <= ALPHA for _, p in known)
            told.append(f"{name} in {_of(agree, len(known))}")
    if not told:
        return []
    return [
        f"Measures that know of no clusters fall over the same blocks as NMI: {wording.listed(told)} models (rank "
        f"correlation of the steps, p ≤ {ALPHA:g} each; with few blocks only strong agreement can show)."
    ]


def _other_clusters(model: Followed) -> list[str]:
    """The elbows under the other numbers of clusters."""
    known = sorted((curve.clusters or 0, curve.elbow) for curve in model.others if curve.elbow is not None)
    if not known:
        return []
    parts = [
        f"{clusters} clusters: layer {elbow.layer:.1f}{_ends(elbow)}"
        if elbow.bend
        else f"{clusters} clusters: no elbow"
        for clusters, elbow in known
    ]
    return [f"With other numbers of clusters: {'; '.join(parts)}."]


def _wide(model: Followed) -> bool:
    elbow = model.curve.elbow
    if elbow is None or elbow.low is None or elbow.high is None:
        return False
    return elbow.high - elbow.low > WIDE * model.blocks


def _ends(elbow: Elbow) -> str:
    return "" if elbow.low is None or elbow.high is None else f" [{elbow.low:.1f},{wording.SPACE}{elbow.high:.1f}]"


def _spread(mean: float, std: float | None) -> str:
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def _of(part: int, whole: int) -> str:
    return f"all {whole}" if part == whole else f"{part} of {whole}" if part else f"none of {whole}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def family_title(family: Family) -> str:
    """The heading of a family's chart."""
    return f"{family.name}, {wording.counted(len(family.models), 'model')}" if len(family.models) > 1 else family.name
