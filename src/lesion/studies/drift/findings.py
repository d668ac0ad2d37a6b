"""What a drift study found, in sentences written from its numbers by rules; what it cannot tell is said as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lesion.report import wording
from lesion.report.finding import Finding
from lesion.report.wording import ALPHA, SPACE
from lesion.studies.drift import model_findings as of_model
from lesion.studies.drift.charts import p_text
from lesion.studies.drift.evidence import agreement, at_least, at_the_start, lost, reach, wide
from lesion.studies.drift.model_findings import FIRST_STEP, ends
from lesion.studies.drift.result import CHECKS, Departure, DriftSummary, Family


def findings(summary: DriftSummary) -> list[Finding]:
    """The verdict, over all models where there are several, then what this study cannot tell."""
    if not summary.models:
        return [Finding("", ("Nothing has been measured yet.",))]
    headline = tuple(verdict(summary))
    first = Finding("", headline, tuple(families(summary)))
    if len(summary.models) == 1:
        whole = of_model.model_finding(summary, summary.models[0])
        first = Finding(whole.subject, headline, tuple(text for text in whole.sentences if text not in headline))
    return [first, Finding("What cannot be told", (), tuple(limits(summary)))]


def by_model(summary: DriftSummary) -> list[Finding]:
    """Each model on its own, where there are several."""
    return [of_model.model_finding(summary, model) for model in summary.models] if len(summary.models) > 1 else []


def verdict(summary: DriftSummary) -> list[str]:
    """The sentences at the head of the page: shape, critical blocks, height above the null, and the checks."""
    if len(summary.models) == 1:
        model = summary.models[0]
        own = [*of_model.shape_sentences(summary, model), *of_model.place_sentence(model)]
        return [*own, *of_model.fall(summary, model), *of_model.checks(summary, model)]
    return [*_shapes_all(summary), *_within_all(summary), *_above_all(summary), *_checks_all(summary)]


def lead(summary: DriftSummary) -> list[str]:
    """Of several models what stands in the first screen: the shape, critical blocks and height; of one model, nothing.

    One family's steps alone would say less than all of them, and could say the opposite.
    """
    if len(summary.models) < 2:
        return []
    within = _within_all(summary)
    return [*_shapes_all(summary), *(within or _above_all(summary))]


def _shapes_all(summary: DriftSummary) -> list[str]:
    tested = [shape for model in summary.models if (shape := model.curve.shape) and shape.chosen != "untested"]
    if not tested:
        return ["The shape of no curve was tested."]
    rejected = [shape for shape in tested if shape.chosen != "line"]
    among = "models" if len(tested) == len(summary.models) else "models tested"
    text = f"A straight decline of NMI is rejected in {_of(len(rejected), len(tested))} {among}"
    if known := [shape.line.p for shape in rejected if shape.line.p is not None]:
        low, high = wording.p_value(min(known)), wording.p_value(max(known))
        text += f" (p{SPACE}{low if low == high else f'{low} to {high}'})"
    departures = [shape.departure for shape in rejected]
    counts = Counter(departure.kind if departure else "neither" for departure in departures)
    parts = [f"{counts[kind]} with {kind}" for kind in ("step", "hinge", "neither") if counts[kind]]
    text += f": {wording.listed(parts)}." if parts else "."
    if first := sum(at_the_start(summary, departure) for departure in departures if departure):
        text += f" In {first} it marks {FIRST_STEP}."
    return [text]


def families(summary: DriftSummary) -> list[str]:
    """Per family the hinges and steps of its models, with the critical blocks and chance."""
    sentences = []
    for family in summary.families:
        parts = [part for kind in ("step", "hinge") if (part := _departures(family, kind))]
        if parts:
            sentences.append(f"{wording.capital(family.name)}: {'; '.join(parts)}.")
    return sentences


def _departures(family: Family, kind: str) -> str:
    """The hinges, or the steps, of a family: where, how large, and how many within critical blocks."""
    chosen = [(model, at) for model in family.models if (at := model.curve.departure) and at.kind == kind]
    if not chosen:
        return ""
    many = "" if len(family.models) == 1 else f" in {_of(len(chosen), len(family.models))} models"
    text = f"a {kind}{many} {_where(kind, [at for _, at in chosen])}"
    if sizes := [abs(at.size) for _, at in chosen if at.size is not None]:
        text += f", by {_range(sizes, 3)}{'' if kind == 'step' else ' a layer in slope'}"
    if compared := [(model, at) for model, at in chosen if model.critical_blocks]:
        hits = sum(reach(model, at) == "within" for model, at in compared)
        chance = _range([100 * model.within_by_chance() for model, _ in compared], 0)
        text += f" ({_of(hits, len(compared))} wholly within critical blocks, by chance {chance}{SPACE}%)"
    return text


def _where(kind: str, chosen: Sequence[Departure]) -> str:
    if kind == "step":
        blocks = sorted({departure.block for departure in chosen})
        return f"over {wording.numbered('block', blocks, last=' or')}"
    return f"at layer {_range([departure.layer for departure in chosen], 1)}"


def limits(summary: DriftSummary) -> list[str]:
    """What the numbers leave open."""
    sentences = [
        "Layer 1 agrees with itself by definition; layer 0 is left out."
        if summary.reference
        else "Layer 0 agrees with itself by definition. With rotary positions its vectors are token identity alone: the"
        " curve is about tokens, not syntax as such."
    ]
    if ceilings := [model.curve.ceiling for model in summary.models if model.curve.ceiling is not None]:
        sentences.append(
            f"Two clusterings of layer {summary.reference} agree to an NMI of {_range(ceilings)} (noise of k-means): no"
            " layer can be expected above it."
        )
    if summary.study.runs == 1:
        sentences.append("One run has no spread: nothing is tested.")
    sentences += _power(summary)
    if all(model.critical is None for model in summary.models):
        sentences.append(
            "Nearness to critical blocks: no layer study was given. Add one of the same models with --study FOLDER."
        )
    if unsure := [model.name for model in summary.models if wide(model)]:
        sentences.append(
            f"Where the hinge or step of {wording.listed(unsure)} is: the interval covers more than half of the layers."
        )
    sentences.append("A hinge or step in a critical block does not show that one causes the other.")
    if len(summary.models) > 1:
        sentences.append("Models of one base are not independent evidence.")
    return sentences


def _power(summary: DriftSummary) -> list[str]:
    """The smallest hinge and step that 80 % of such studies would find."""
    shapes = [model.curve.shape for model in summary.models if model.curve.shape]
    parts = []
    for kind, unit in (("step", " in NMI"), ("hinge", " per layer in slope")):
        sizes = [size for shape in shapes if (size := getattr(shape, kind).detectable) is not None]
        parts += [f"a {kind} of {_range(sizes, 3)}{unit}"] if sizes else []
    if not parts:
        return []
    return [f"Smaller departures from a line: 80{SPACE}% of such studies would find {wording.listed(parts)}."]


def _within_all(summary: DriftSummary) -> list[str]:
    """How many hinges and steps of all models are surely within critical blocks, and how many would be by chance."""
    known = [(model, at) for model in summary.models if model.critical_blocks and (at := model.curve.departure)]
    if not known:
        return []
    chances = [model.within_by_chance() for model, _ in known]
    hits = sum(reach(model, at) == "within" for model, at in known)
    p = at_least(hits, chances)
    return [
        f"{wording.capital(_of(hits, len(known)))} lie wholly within critical blocks, {sum(chances):.1f} by chance"
        f" ({p_text(p)} if models were independent){': no link is shown' if p > ALPHA else ''}."
    ]


def _above_all(summary: DriftSummary) -> list[str]:
    known = [(model, last) for model in summary.models if (last := ends(model))]
    if not known:
        return []
    nmi, null = ([last[place] for _, last in known] for place in (0, 1))
    text = f"At the last layer NMI is {_range(nmi)}, of shuffled tokens {_range(null)}"
    if touching := [model.name for model, _ in known if lost(model)]:
        which = wording.listed(touching) if len(touching) < 3 else f"{_of(len(touching), len(summary.models))} models"
        text += f"; in {which} some layers cannot be distinguished from these"
    return [f"{text}.", *_spreading(summary)]


def _spreading(summary: DriftSummary) -> list[str]:
    falls = [fall for model in summary.models if (fall := of_model.spread(model)) is not None]
    if not falls:
        return []
    nmi, by_token = ([fall[place] for fall in falls] for place in (0, 1))
    return [
        f"With every occurrence in its token's most common cluster NMI falls by {_range(by_token)} after layer"
        f" {summary.reference + 1} instead of {_range(nmi)}: the rest is that occurrences of one token spread."
    ]


def _checks_all(summary: DriftSummary) -> list[str]:
    agreeing, none = [], []
    for measure, name in CHECKS.items():
        pairs = [agreement(model.curve, measure, summary.reference) for model in summary.models]
        known = [pair[1] for pair in pairs if pair]
        if agree := sum(p <= ALPHA for p in known):
            agreeing.append(f"{name} in {_of(agree, len(known))}")
        elif known:
            none.append(name)
    if not agreeing and not none:
        return []
    rule = f"(rank correlation of the steps, p ≤ {ALPHA:g}; with few blocks only strong agreement can show)"
    if not agreeing:
        return [f"That {' or '.join(none)} falls over the same blocks as NMI is not shown {rule}."]
    rest = f"; for {' or '.join(none)} it is shown in none" if none else ""
    return [f"Measures without clusters fall over the same blocks: {wording.listed(agreeing)} models{rest} {rule}."]


def _range(values: Sequence[float], digits: int = 2) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _of(part: int, whole: int) -> str:
    return f"all {whole}" if part == whole else f"{part} of {whole}" if part else f"none of {whole}"


def family_title(family: Family) -> str:
    """The heading of a family's chart."""
    return f"{family.name}, {wording.counted(len(family.models), 'model')}" if len(family.models) > 1 else family.name
