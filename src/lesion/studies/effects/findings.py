"""The findings of a study of effects, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.report import wording
from lesion.report.finding import FEW, LIMITS, Finding
from lesion.report.forms import decimals
from lesion.report.values import Estimate
from lesion.studies.effects.class_findings import class_sentences
from lesion.studies.effects.result import Effect, EffectsSummary, TaskEffects, UnitEffects
from lesion.studies.effects.tables import SCREENS

NAMED = 6
"""So many heads are named in a sentence, those first that write most."""


def findings(summary: EffectsSummary) -> list[Finding]:
    """A finding per model and task, and what limits them."""
    return [*(_finding(task) for task in summary.tasks), *_limits(summary)]


def _finding(task: TaskEffects) -> Finding:
    first, *others = task.units
    sentences = (
        *class_sentences(task),
        _most(task, first),
        _slope(first),
        _read_by_others(task, first),
        *(" ".join(_repaired(task, unit)) for unit in others),
        *(_writers(task) if task.of("head") else ()),
        _lens(task),
    )
    headline = (*_repaired(task, first), *_screens(task))
    return Finding(f"{task.model}, {task.task}", headline, tuple(filter(None, sentences)))


def _repaired(task: TaskEffects, unit: UnitEffects) -> list[str]:
    """Whose loss is repaired, how much of it, and whether later blocks do it."""
    places = task.of(unit.unit)
    repaired = [place for place in places if place.is_repaired]
    by_blocks = [place for place in places if place.is_repaired_by_blocks]
    if not repaired:
        sentences = [
            f"No repair is shown: of {len(places)} {_plural(unit)} there is none whose removal takes less than it"
            " writes towards the right token, beyond chance."
        ]
    else:
        writes = "it writes" if len(repaired) == 1 else "they write"
        share = f": {_share(unit.repaired)} is repaired" if unit.repaired else ""
        sentences = [f"Switching off {_named(unit, repaired)} takes less than {writes} towards the right token{share}."]
    if by_blocks:
        share = _share(unit.by_blocks) if unit.by_blocks else "a part"
        sentences.append(f"Later blocks make up for {share} of what {_named(unit, by_blocks)} wrote.")
    others = [place for place in repaired if not place.is_repaired_by_blocks]
    if others and not by_blocks:
        sentences.append("No later block is shown to take part in that.")
    if scaled := [place for place in others if place.is_repaired_by_norm]:
        sentences.append(f"Behind {_named(unit, scaled)} the final norm scales up what is left.")
    if untold := [place for place in others if not place.is_repaired_by_norm]:
        sentences.append(f"Whether later blocks or the final norm make up for {_named(unit, untold)} cannot be told.")
    return sentences


def _named(unit: UnitEffects, places: Sequence[Effect]) -> str:
    if unit.unit == "head":
        first = sorted(places, key=lambda place: -(place.direct.value or 0.0))[:NAMED]
        names = [f"{place.layer}.{place.head}" for place in first]
        more = [f"{len(places) - NAMED} more"] if len(places) > NAMED else []
        return f"head{'' if len(places) == 1 else 's'}{wording.SPACE}{wording.listed([*names, *more])}"
    layers = wording.numbered("block", [place.layer for place in places])
    return layers if unit.unit == "block" else f"the {wording.UNIT_NAMES[unit.unit]} of {layers}"


def _most(task: TaskEffects, unit: UnitEffects) -> str:
    """Where later blocks make up for most."""
    chosen = [place for place in task.of(unit.unit) if place.is_repaired_by_blocks]
    if not chosen:
        return ""
    most = max(chosen, key=lambda place: place.by_blocks.value or 0)
    return (
        f"They make up for most in {wording.place(unit.unit, most.layer, most.head)}: it writes"
        f" {_number(most.direct)} logits, and its removal takes {_number(most.total)}."
    )


def _writers(task: TaskEffects) -> list[str]:
    """The heads that write most towards the right token and against it, with what their removal takes."""
    sentences = []
    for sign, what in ((1, "towards the right token"), (-1, "against it")):
        own = [each for each in task.of("head") if sign * (_end(each.direct, sign) or 0.0) > 0]
        if own:
            first = sorted(own, key=lambda each: -sign * (each.direct.value or 0.0))[:NAMED]
            named = [f"{each.layer}.{each.head} ({_number(each.direct)}; {_number(each.total)})" for each in first]
            sentences.append(f"Of {len(task.of('head'))} heads, {wording.listed(named)} write most {what}.")
    if sentences:
        sentences.append("In brackets the direct effect and, behind it, the total one, in logits.")
    return sentences


def _end(estimate: Estimate, sign: int) -> float | None:
    """The end of an interval that is nearer to 0 from this side."""
    return estimate.low if sign > 0 else estimate.high


def _slope(unit: UnitEffects) -> str:
    if unit.slope.value is None:
        return ""
    return (
        f"Over all {_plural(unit)} the slope of total on direct effect is {_number(unit.slope)}; it would be 1 if"
        " nothing were repaired and nothing read by other blocks."
    )


def _read_by_others(task: TaskEffects, unit: UnitEffects) -> str:
    """Where most is lost that the place does not write itself."""
    places = task.of(unit.unit)
    read = [place for place in places if place.is_read]
    if not read:
        return ""
    most = min(read, key=lambda place: place.by_blocks.value or 0)
    return (
        f"{len(read)} of {len(places)} {_plural(unit)} {'does' if len(read) == 1 else 'do'} more through later blocks"
        f" than directly, most {wording.place(unit.unit, most.layer, most.head)}: it writes {_number(most.direct)}"
        f" logits, and its removal takes {_number(most.total)}."
    )


def _plural(unit: UnitEffects) -> str:
    return {"block": "blocks", "attention": "attention branches", "mlp": "MLPs", "head": "heads"}[unit.unit]


def _lens(task: TaskEffects) -> str:
    """How the gold tokens come about by layer."""
    shares = [layer.top.value or 0.0 for layer in task.lens]
    first, last = task.lens[0], task.lens[-1]
    reached = next(place for place in range(len(shares)) if min(shares[place:]) >= shares[-1] / 2)
    half = f"; half of that is reached at layer {reached} of {last.layer}" if shares[-1] else ""
    return (
        f"Logit lens: the log-probability of the gold tokens goes from {_number(first.log_probability)} nats at layer 0"
        f" to {_number(last.log_probability)}. At the end {_share(last.top)} of them are the most probable token{half}."
    )


def _screens(task: TaskEffects) -> list[str]:
    """How the cheap measures of the first unit foretell the drops."""
    first = task.units[0].unit
    own = [each for each in task.agreements if each.unit == first and each.rho.value is not None]
    if not own:
        return []
    ordered = sorted(own, key=lambda each: -(each.rho.value or 0))
    texts = [f"{SCREENS[each.screen]} (ρ {_rho(each.rho)}, p {wording.p_value(each.rho.p)})" for each in ordered]
    return [f"The drops of accuracy over {own[0].places} {first}s rank as {wording.listed(texts)}."]


def _limits(summary: EffectsSummary) -> list[Finding]:
    few = [
        f"{task.task}: {wording.counted(task.items, 'item')} {'is' if task.items == 1 else 'are'} few; chance decides"
        " much."
        for task in summary.tasks
        if task.items < FEW
    ]
    return [Finding(LIMITS, (), tuple(few))] if few else []


def _number(estimate: Estimate) -> str:
    form = decimals(2)
    spread = "" if estimate.low is None else f" [{form(estimate.low)},{wording.SPACE}{form(estimate.high)}]"
    return form(estimate.value) + spread


def _share(estimate: Estimate) -> str:
    return f"{wording.percent(estimate.value, 0)} {wording.interval(estimate.low, estimate.high, 0)}".rstrip()


def _rho(estimate: Estimate) -> str:
    if estimate.low is None:
        return wording.rho(estimate.value)
    return f"{wording.rho(estimate.value)} [{wording.rho(estimate.low)},{wording.SPACE}{wording.rho(estimate.high)}]"
