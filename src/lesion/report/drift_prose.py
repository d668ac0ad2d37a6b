"""What a drift study found, in sentences written from its numbers by rules; what cannot be told is said as well."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.report import drift_model, wording
from lesion.report.drift_evidence import agreement, at_least, at_the_start, bends, lost, wide
from lesion.report.drift_model import CHECKS, capital
from lesion.report.drift_rows import Drifts, Family, Followed, near
from lesion.report.evidence import ALPHA
from lesion.report.prose import Finding


def findings(found: Drifts) -> list[Finding]:
    """The verdict, over all models where there are several, then what this study cannot tell."""
    if not found.models:
        return [Finding("", ("Nothing has been measured yet.",))]
    first = Finding("", tuple(verdict(found)), tuple(families(found)))
    if len(found.models) == 1:
        whole = drift_model.told_of(found, found.models[0])
        others = (sentence for sentence in whole.sentences if sentence not in first.headline)
        first = Finding(whole.subject, first.headline, tuple(others))
    return [first, Finding("What cannot be told", (), tuple(limits(found)))]


def by_model(found: Drifts) -> list[Finding]:
    """Each model on its own, where there are several."""
    return [drift_model.told_of(found, model) for model in found.models] if len(found.models) > 1 else []


def verdict(found: Drifts) -> list[str]:
    """The sentences at the head of the page: elbow, critical blocks, height above the null, and the checks."""
    if len(found.models) == 1:
        model = found.models[0]
        own = [drift_model.elbow_sentence(found, model), *drift_model.near_sentence(model)]
        return [*own, *drift_model.above(model), *drift_model.checks(found, model)]
    bent = [model for model in found.models if bends(model)]
    many = sum(model.curve.elbow is not None for model in found.models)
    among = f"{many} models" if many == len(found.models) else f"{many} models in which it was sought"
    if bent:
        head = f"In {_of(len(bent), many).removesuffix(str(many))}{among} the clusters' agreement with those of layer "
        head += f"{found.reference} has an elbow: two straight pieces fit the curve better than one, beyond chance."
    elif many:
        head = f"In none of the {among} has the clusters' agreement with those of layer {found.reference} an elbow "
        head += "that a straight line does not explain as well."
    else:
        head = "Of elbows nothing is told."
    first = sum(at_the_start(found, model.curve.elbow) for model in bent if model.curve.elbow)
    if first:
        head += (
            f" In {_of(first, len(bent))} of these it marks no more than the end of the first step, in which layer "
            f"{found.reference} leaves its agreement with itself."
        )
    return [head, *_near_all(bent), *_above_all(found), *_checks_all(found)]


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
            f"{capital(family.name)}: the intervals of its {len(known)} elbows have {where} in common."
            if low <= high
            else f"{capital(family.name)}: the intervals of its {len(known)} elbows have no layer in common; the "
            f"elbows stand from {min(one.layer for one in elbows):.1f} to {max(one.layer for one in elbows):.1f}."
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
        told.append("Layer 1, the output of block 0, agrees with itself by definition; layer 0 is left out.")
    ceilings = [model.ceiling for model in found.models if model.ceiling is not None]
    if ceilings:
        told.append(
            f"Two clusterings of layer {found.reference} from other starts agree only to an NMI of "
            f"{_range(ceilings)}: that is k-means' own noise, and no later layer can be expected above it."
        )
    runs = found.study.get("runs")
    if runs == 1:
        told.append("One run has no spread: the elbow's interval allows for the fit alone, not for other items.")
    if all(model.critical is None for model in found.models):
        told.append(
            "Whether anything happens near critical layers: no layer study was given. With --study and the folder of "
            "a layer study of the same models, its critical blocks stand beside the elbows."
        )
    unsure = [model.name for model in found.models if bends(model) and wide(model)]
    if unsure:
        told.append(
            f"Where the elbow of {wording.listed(unsure)} stands: the interval covers more than half of the layers."
        )
    told.append(
        "That an elbow stands near a critical block says that two things happen in one place, not that one makes the "
        "other."
    )
    return told


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


def _checks_all(found: Drifts) -> list[str]:
    told, none = [], []
    for measure, name in CHECKS.items():
        both = [agreement(model.curve, measure, found.reference) for model in found.models]
        known = [pair for pair in both if pair is not None]
        agree = sum(p <= ALPHA for _, p in known)
        if agree:
            told.append(f"{name} in {_of(agree, len(known))}")
        elif known:
            none.append(name)
    if not told and not none:
        return []
    small = "with few blocks only strong agreement can show"
    if not told:
        return [
            f"There is no evidence that {' or '.join(none)} with layer {found.reference} falls over the same blocks as "
            f"NMI, in any model (rank correlation of the steps, p ≤ {ALPHA:g} each; {small})."
        ]
    rest = f", {' or '.join(none)} in none" if none else ""
    return [
        f"Measures that know of no clusters fall over the same blocks as NMI: {wording.listed(told)} models{rest} ("
        f"rank correlation of the steps, p ≤ {ALPHA:g} each; {small})."
    ]


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def _of(part: int, whole: int) -> str:
    return f"all {whole}" if part == whole else f"{part} of {whole}" if part else f"none of {whole}"


def family_title(family: Family) -> str:
    """The heading of a family's chart."""
    return f"{family.name}, {wording.counted(len(family.models), 'model')}" if len(family.models) > 1 else family.name
