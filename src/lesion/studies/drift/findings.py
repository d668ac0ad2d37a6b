"""What a drift study found, in sentences written from its numbers by rules; what cannot be told is said as well."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.report import wording
from lesion.report.evidence import ALPHA
from lesion.report.finding import Finding
from lesion.studies.drift import model_findings as drift_model
from lesion.studies.drift.evidence import agreement, at_least, at_the_start, lost, reach, wide
from lesion.studies.drift.model_findings import CHECKS, capital
from lesion.studies.drift.values import Departure, Drifts, Family


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
    """The sentences at the head of the page: shape, critical blocks, height above the null, and the checks."""
    if len(found.models) == 1:
        model = found.models[0]
        own = [*drift_model.shape_sentences(found, model), *drift_model.place_sentence(model)]
        return [*own, *drift_model.above(model), *drift_model.checks(found, model)]
    return [*_shapes_all(found), *_within_all(found), *_above_all(found), *_checks_all(found)]


def _shapes_all(found: Drifts) -> list[str]:
    tested = [model for model in found.models if model.curve.shape and model.curve.shape.straight is not None]
    if not tested:
        return ["Of no model was the shape of the curve tested."]
    among = f"{len(tested)} models" if len(tested) == len(found.models) else f"{len(tested)} models tested"
    rejected = [model for model in tested if model.curve.shape and not model.curve.shape.straight]
    told = f"That NMI with layer {found.reference} falls along a straight line over layers is rejected in "
    told += f"{_of(len(rejected), len(tested)).removesuffix(str(len(tested)))}{among}"
    told += _p_range([model.curve.shape.p for model in rejected if model.curve.shape])
    plain = [model.curve.shape.f for model in rejected if model.curve.shape and model.curve.shape.f is not None]
    if plain:
        told += f"; lack-of-fit F, which takes layers for independent: {_range(plain, 1)}"
    told += "."
    if not rejected:
        return [told]
    parts = []
    for kind in ("step", "hinge"):
        many = sum(model.curve.departure is not None and model.curve.departure.kind == kind for model in rejected)
        parts += [f"{many} {'has' if many == 1 else 'have'} a {kind} on top of a line"] if many else []
    none = sum(model.curve.departure is None for model in rejected)
    parts += [f"in {none} neither a hinge nor a step is found"] if none else []
    told += f" Of these, {wording.listed(parts)}."
    first = sum(at_the_start(found, model.curve.departure) for model in rejected if model.curve.departure)
    if first:
        told += (
            f" In {first} it marks no more than the end of the first step, in which layer {found.reference} leaves its "
            "agreement with itself."
        )
    return [told]


def _p_range(values: Sequence[float | None]) -> str:
    """` (p .0001 to .002)`; nothing where none is known."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = wording.p_value(min(known)), wording.p_value(max(known))
    return f" (p{wording.SPACE}{low if low == high else f'{low} to {high}'})"


def families(found: Drifts) -> list[str]:
    """Per family the hinges and steps of its models, with the critical blocks and chance."""
    told = []
    for family in found.families:
        parts = []
        for kind in ("step", "hinge"):
            chosen = [
                (model, model.curve.departure) for model in family.models
                if model.curve.departure is not None and model.curve.departure.kind == kind
            ]  # fmt: skip
            if not chosen:
                continue
            many = "" if len(family.models) == 1 else f" in {_of(len(chosen), len(family.models))} models"
            text = f"a {kind}{many} {_where(kind, [one for _, one in chosen])}"
            sizes = [abs(one.size) for _, one in chosen if one.size is not None]
            if sizes:
                unit = "" if kind == "step" else " a layer in slope"
                text += f", by {_range(sizes, 3)}{unit}"
            compared = [(model, one) for model, one in chosen if model.critical_blocks]
            if compared:
                hits = sum(reach(model, one) == "within" for model, one in compared)
                chance = _range([100 * model.within_by_chance() for model, _ in compared], 0)
                text += (
                    f" ({_of(hits, len(compared))} with the whole interval within critical blocks, where {chance}"
                    f"{wording.SPACE}% of all places are)"
                )
            parts.append(text)
        if parts:
            told.append(f"{capital(family.name)}: {'; '.join(parts)}.")
    return told


def _where(kind: str, chosen: Sequence[Departure]) -> str:
    if kind == "step":
        blocks = sorted({one.block for one in chosen})
        return f"over block{'s' if len(blocks) > 1 else ''}{wording.SPACE}{wording.layer_runs(blocks, last=' or')}"
    return f"at layer {_range([one.layer for one in chosen], 1)}"


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
        told.append("One run has no spread: nothing can be tested, and places of hinges and steps have no interval.")
    told += power(found)
    if all(model.critical is None for model in found.models):
        told.append(
            "Whether anything happens near critical layers: no layer study was given. With --study and the folder of "
            "a layer study of the same models, its critical blocks are compared with hinges and steps."
        )
    unsure = [model.name for model in found.models if wide(model)]
    if unsure:
        told.append(
            f"Where the hinge or step of {wording.listed(unsure)} is: the interval covers more than half of the layers."
        )
    told.append(
        "A hinge or step in a critical block shows that two things happen in one place, not that one causes the other; "
        "models fine-tuned from one base are no independent evidence of it."
    )
    return told


def power(found: Drifts) -> list[str]:
    """The smallest hinge and step that 80 % of such studies would find."""
    shapes = [model.curve.shape for model in found.models if model.curve.shape]
    parts = []
    for kind, unit in (("step", " in NMI"), ("hinge", " per layer in slope")):
        sizes = [one.detectable for shape in shapes if (one := getattr(shape, kind)).detectable is not None]
        parts += [f"a {kind} of {_range(sizes, 3)}{unit}"] if sizes else []
    if not parts:
        return []
    return [
        f"Smaller departures from a line: with these runs, layers and noise, 80{wording.SPACE}% of studies would find "
        f"{wording.listed(parts)}{' (range over models)' if len(shapes) > 1 else ''}."
    ]


def _within_all(found: Drifts) -> list[str]:
    """Over all models with a hinge or step and critical blocks: how many surely are within them, and by chance."""
    known = [
        (model, model.curve.departure) for model in found.models if model.critical_blocks and model.curve.departure
    ]
    if not known:
        return []
    chances = [model.within_by_chance() for model, _ in known]
    hits = sum(reach(model, departure) == "within" for model, departure in known)
    p = at_least(hits, chances)
    return [
        f"Of the {len(known)} with a hinge or step and critical blocks to compare, {hits} "
        f"{'has' if hits == 1 else 'have'} the whole interval within critical blocks; places drawn at random would be "
        f"within them in {sum(chances):.1f} (p{wording.SPACE}{wording.p_value(p)} if models were independent; models "
        f"of one family are not){': no evidence of a link' if p > ALPHA else ''}."
    ]


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


def _range(values: Sequence[float], digits: int = 2) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _of(part: int, whole: int) -> str:
    return f"all {whole}" if part == whole else f"{part} of {whole}" if part else f"none of {whole}"


def family_title(family: Family) -> str:
    """The heading of a family's chart."""
    return f"{family.name}, {wording.counted(len(family.models), 'model')}" if len(family.models) > 1 else family.name
