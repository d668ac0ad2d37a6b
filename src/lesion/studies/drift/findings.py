"""What a drift study found, in sentences written from its numbers by rules; what cannot be told is said as well."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.report import wording
from lesion.report.finding import Finding
from lesion.report.wording import ALPHA
from lesion.studies.drift import model_findings as drift_model
from lesion.studies.drift.evidence import agreement, at_least, at_the_start, lost, reach, wide
from lesion.studies.drift.model_findings import CHECKS, capital
from lesion.studies.drift.result import Departure, DriftSummary, Family


def findings(summary: DriftSummary) -> list[Finding]:
    """The verdict, over all models where there are several, then what this study cannot tell."""
    if not summary.models:
        return [Finding("", ("Nothing has been measured yet.",))]
    first = Finding("", tuple(verdict(summary)), tuple(families(summary)))
    if len(summary.models) == 1:
        whole = drift_model.told_of(summary, summary.models[0])
        others = (sentence for sentence in whole.sentences if sentence not in first.headline)
        first = Finding(whole.subject, first.headline, tuple(others))
    return [first, Finding("What cannot be told", (), tuple(limits(summary)))]


def by_model(summary: DriftSummary) -> list[Finding]:
    """Each model on its own, where there are several."""
    return [drift_model.told_of(summary, model) for model in summary.models] if len(summary.models) > 1 else []


def verdict(summary: DriftSummary) -> list[str]:
    """The sentences at the head of the page: shape, critical blocks, height above the null, and the checks."""
    if len(summary.models) == 1:
        model = summary.models[0]
        own = [*drift_model.shape_sentences(summary, model), *drift_model.place_sentence(model)]
        return [*own, *drift_model.above(model), *drift_model.checks(summary, model)]
    return [*_shapes_all(summary), *_within_all(summary), *_above_all(summary), *_checks_all(summary)]


def _shapes_all(summary: DriftSummary) -> list[str]:
    tested = [model for model in summary.models if model.curve.shape and model.curve.shape.straight is not None]
    if not tested:
        return ["Of no model was the shape of the curve tested."]
    among = f"{len(tested)} models" if len(tested) == len(summary.models) else f"{len(tested)} models tested"
    rejected = [model for model in tested if model.curve.shape and not model.curve.shape.straight]
    text = f"That NMI with layer {summary.reference} falls along a straight line over layers is rejected in "
    text += f"{_of(len(rejected), len(tested)).removesuffix(str(len(tested)))}{among}"
    text += _p_range([model.curve.shape.line.p for model in rejected if model.curve.shape])
    plain = [
        model.curve.shape.line.f for model in rejected if model.curve.shape and model.curve.shape.line.f is not None
    ]
    if plain:
        text += f"; lack-of-fit F, which takes layers for independent: {_range(plain, 1)}"
    text += "."
    if not rejected:
        return [text]
    parts = []
    for kind in ("step", "hinge"):
        many = sum(model.curve.departure is not None and model.curve.departure.kind == kind for model in rejected)
        parts += [f"{many} {'has' if many == 1 else 'have'} a {kind} on top of a line"] if many else []
    none = sum(model.curve.departure is None for model in rejected)
    parts += [f"in {none} neither a hinge nor a step is found"] if none else []
    text += f" Of these, {wording.listed(parts)}."
    first = sum(at_the_start(summary, model.curve.departure) for model in rejected if model.curve.departure)
    if first:
        text += (
            f" In {first} it marks no more than the end of the first step, in which layer {summary.reference} leaves"
            " its agreement with itself."
        )
    return [text]


def _p_range(values: Sequence[float | None]) -> str:
    """` (p .0001 to .002)`; nothing where none is known."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = wording.p_value(min(known)), wording.p_value(max(known))
    return f" (p{wording.SPACE}{low if low == high else f'{low} to {high}'})"


def families(summary: DriftSummary) -> list[str]:
    """Per family the hinges and steps of its models, with the critical blocks and chance."""
    sentences = []
    for family in summary.families:
        parts = []
        for kind in ("step", "hinge"):
            chosen = [
                (model, model.curve.departure) for model in family.models
                if model.curve.departure is not None and model.curve.departure.kind == kind
            ]  # fmt: skip
            if not chosen:
                continue
            many = "" if len(family.models) == 1 else f" in {_of(len(chosen), len(family.models))} models"
            text = f"a {kind}{many} {_where(kind, [departure for _, departure in chosen])}"
            sizes = [abs(departure.size) for _, departure in chosen if departure.size is not None]
            if sizes:
                unit = "" if kind == "step" else " a layer in slope"
                text += f", by {_range(sizes, 3)}{unit}"
            compared = [(model, departure) for model, departure in chosen if model.critical_blocks]
            if compared:
                hits = sum(reach(model, departure) == "within" for model, departure in compared)
                chance = _range([100 * model.within_by_chance() for model, _ in compared], 0)
                text += (
                    f" ({_of(hits, len(compared))} with the whole interval within critical blocks, where {chance}"
                    f"{wording.SPACE}% of all places are)"
                )
            parts.append(text)
        if parts:
            sentences.append(f"{capital(family.name)}: {'; '.join(parts)}.")
    return sentences


def _where(kind: str, chosen: Sequence[Departure]) -> str:
    if kind == "step":
        blocks = sorted({departure.block for departure in chosen})
        return f"over block{'s' if len(blocks) > 1 else ''}{wording.SPACE}{wording.layer_runs(blocks, last=' or')}"
    return f"at layer {_range([departure.layer for departure in chosen], 1)}"


def limits(summary: DriftSummary) -> list[str]:
    """What the numbers leave open."""
    sentences = []
    if summary.reference == 0:
        sentences.append(
            "Layer 0 agrees with itself by definition, and in a model with rotary positions its vectors are token "
            "identity alone: what falls is how much a cluster still says which token it is, not syntax as such."
        )
    else:
        sentences.append("Layer 1, the output of block 0, agrees with itself by definition; layer 0 is left out.")
    ceilings = [model.curve.ceiling for model in summary.models if model.curve.ceiling is not None]
    if ceilings:
        sentences.append(
            f"Two clusterings of layer {summary.reference} from other starts agree only to an NMI of "
            f"{_range(ceilings)}: that is k-means' own noise, and no later layer can be expected above it."
        )
    runs = summary.study.runs
    if runs == 1:
        sentences.append(
            "One run has no spread: nothing can be tested, and places of hinges and steps have no interval."
        )
    sentences += power(summary)
    if all(model.critical is None for model in summary.models):
        sentences.append(
            "Whether anything happens near critical layers: no layer study was given. With --study and the folder of "
            "a layer study of the same models, its critical blocks are compared with hinges and steps."
        )
    unsure = [model.name for model in summary.models if wide(model)]
    if unsure:
        sentences.append(
            f"Where the hinge or step of {wording.listed(unsure)} is: the interval covers more than half of the layers."
        )
    sentences.append(
        "A hinge or step in a critical block shows that two things happen in one place, not that one causes the other; "
        "models fine-tuned from one base are no independent evidence of it."
    )
    return sentences


def power(summary: DriftSummary) -> list[str]:
    """The smallest hinge and step that 80 % of such studies would find."""
    shapes = [model.curve.shape for model in summary.models if model.curve.shape]
    parts = []
    for kind, unit in (("step", " in NMI"), ("hinge", " per layer in slope")):
        sizes = [departure.detectable for shape in shapes if (departure := getattr(shape, kind)).detectable is not None]
        parts += [f"a {kind} of {_range(sizes, 3)}{unit}"] if sizes else []
    if not parts:
        return []
    return [
        f"Smaller departures from a line: with these runs, layers and noise, 80{wording.SPACE}% of studies would find "
        f"{wording.listed(parts)}{' (range over models)' if len(shapes) > 1 else ''}."
    ]


def _within_all(summary: DriftSummary) -> list[str]:
    """Over all models with a hinge or step and critical blocks: how many surely are within them, and by chance."""
    known = [
        (model, model.curve.departure) for model in summary.models if model.critical_blocks and model.curve.departure
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


def _above_all(summary: DriftSummary) -> list[str]:
    ends, floors, touching = [], [], []
    for model in summary.models:
        nmi, null = dict(model.curve.along("nmi")), dict(model.curve.along("null"))
        both = [layer for layer in nmi if layer in null]
        if both:
            ends.append(nmi[both[-1]].mean)
            floors.append(null[both[-1]].mean)
            touching += [model.name] if lost(model) else []
    if not ends:
        return []
    text = f"At the last layer NMI is {_range(ends)}, where shuffled tokens give {_range(floors)}"
    if touching:
        which = wording.listed(touching) if len(touching) < 3 else f"{_of(len(touching), len(summary.models))} models"
        text += f"; in {which} there are layers that cannot be told from that null"
    return [f"{text}."]


def _checks_all(summary: DriftSummary) -> list[str]:
    agreeing, none = [], []
    for measure, name in CHECKS.items():
        both = [agreement(model.curve, measure, summary.reference) for model in summary.models]
        known = [pair for pair in both if pair is not None]
        agree = sum(p <= ALPHA for _, p in known)
        if agree:
            agreeing.append(f"{name} in {_of(agree, len(known))}")
        elif known:
            none.append(name)
    if not agreeing and not none:
        return []
    small = "with few blocks only strong agreement can show"
    if not agreeing:
        return [
            f"There is no evidence that {' or '.join(none)} with layer {summary.reference} falls over the same blocks"
            f" as NMI, in any model (rank correlation of the steps, p ≤ {ALPHA:g} each; {small})."
        ]
    rest = f", {' or '.join(none)} in none" if none else ""
    return [
        f"Measures that know of no clusters fall over the same blocks as NMI: {wording.listed(agreeing)} models{rest} ("
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
