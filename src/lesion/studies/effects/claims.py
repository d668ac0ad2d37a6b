"""What a study of effects claims: what is repaired, what others read, which heads write, which tokens are lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import WHOLE_SHARE
from lesion.report.rows import p_text, subject
from lesion.statistics.paired import ALPHA
from lesion.studies.effects.result import (
    LOGITS,
    NATS_PER_TOKEN,
    SCREENS,
    ClassTable,
    Effect,
    PlaceClasses,
    TaskEffects,
    UnitEffects,
)

NAMED = 3
"""So many heads, places or classes are named in a sentence."""
PLURALS = {"block": "blocks", "attention": "attention branches", "mlp": "MLPs", "head": "heads"}
TEST = (
    "a direct effect above 0 by its interval; a t-test over items, corrected by Holm over the places of a unit, at .05"
)


@rule(
    "P writes most towards the right token; most is lost without Q.",
    "N of M places do more through later blocks than directly.",
    needs="the largest estimates; more through later blocks: a t-test over items, corrected by Holm over the places, at"
    " .05",
)
def what_writes_and_what_costs(tasks: Sequence[TaskEffects]) -> Iterable[Claim]:
    """The place of the first unit that writes most, the one that costs most, and those that others read."""
    for task in tasks:
        unit = task.units[0].unit
        places = task.of(unit)
        writer = max(places, key=lambda place: place.direct.value or 0.0)
        costly = max(places, key=lambda place: place.total.value or 0.0)
        lost = "it too" if costly is writer else costly.place
        sentences = [
            f"{wording.capital(writer.place)} writes most towards the right token, {LOGITS.text(writer.direct)}; most"
            f" is lost without {lost}, {LOGITS.text(costly.total)}."
        ]
        if read := [place for place in places if place.is_read]:
            count = f"{len(read)} of {len(places)} {PLURALS[unit]} {'does' if len(read) == 1 else 'do'}"
            own = f"; {costly.place} itself writes {LOGITS.text(costly.direct)}" if costly in read else ""
            sentences.append(f"{count} more through later blocks, which read what is written, than directly{own}.")
        rows = dict.fromkeys((writer.place, costly.place, *(place.place for place in read)))
        yield Claim(
            tuple(sentences), tuple((task, place) for place in places if place.place in rows), subject(task, tasks)
        )


@rule(
    "With P switched off, later blocks make up for X % of what was written there.",
    "Switching off P costs less than was written there; no later block is shown to make up for it.",
    "No repair is shown.",
    needs=f"{TEST}; the share is measured on items that did not choose the places",
)
def what_is_repaired(tasks: Sequence[TaskEffects]) -> Iterable[Claim]:
    """Whose loss is smaller than what it wrote, and who makes up for it; of further units in one sentence."""
    for task in tasks:
        for number, unit in enumerate(task.units):
            places = task.of(unit.unit)
            sentences = [_repair(unit, places), *_strongest(places)]
            yield Claim(
                tuple(sentences if number == 0 else sentences[:1]),
                tuple((task, place) for place in places if place.is_repaired),
                subject(task, tasks),
            )


def _repair(unit: UnitEffects, places: Sequence[Effect]) -> str:
    if by_blocks := [place for place in places if place.is_repaired_by_blocks]:
        share = WHOLE_SHARE.text(unit.by_blocks) if unit.by_blocks else "a part"
        return f"With {_named(by_blocks)} switched off, later blocks make up for {share} of what was written there."
    if repaired := [place for place in places if place.is_repaired]:
        return (
            f"Switching off {_named(repaired)} costs less than was written there; no later block is shown to make up"
            " for it."
        )
    return f"No repair is shown: of {len(places)} {PLURALS[unit.unit]}, none is shown to cost less than it writes."


def _strongest(places: Sequence[Effect]) -> list[str]:
    """Where later blocks make up for most."""
    repaired = [place for place in places if place.is_repaired_by_blocks]
    if len(repaired) < 2:
        return []
    most = max(repaired, key=lambda place: place.by_blocks.value or 0.0)
    return [
        f"Most in {most.place}: it writes {LOGITS.text(most.direct)}, and its removal takes {LOGITS(most.total.value)}."
    ]


def _named(places: Sequence[Effect | PlaceClasses], last: str = "and") -> str:
    """`blocks 1, 2 and 5`, `the MLPs of blocks 3 and 4`, `heads 7.3 and 5.1`."""
    unit = places[0].unit
    if unit == "head":
        names = [f"{place.layer}.{place.head}" for place in places[:NAMED]]
        more = [f"{len(places) - NAMED} more"] if len(places) > NAMED else []
        return f"{'head' if len(places) == 1 else 'heads'}{wording.SPACE}{wording.listed([*names, *more], last)}"
    blocks = wording.numbered("block", [place.layer for place in places], f" {last}")
    return (
        blocks
        if unit == "block"
        else f"the {wording.UNIT_NAMES[unit] if len(places) == 1 or unit != 'mlp' else 'MLPs'} of {blocks}"
    )


@rule(
    "Most towards the right token write heads H; most against it heads G.",
    needs="an interval of the direct effect that lies on that side of 0",
)
def which_heads_write(tasks: Sequence[TaskEffects]) -> Iterable[Claim]:
    """The heads that write most towards the right token and against it."""
    for task in tasks:
        towards = [head for head in task.of("head") if (head.direct.low or 0.0) > 0]
        against = [head for head in task.of("head") if (head.direct.high or 0.0) < 0]
        parts, rows = [], []
        for own, what in ((towards, "towards the right token"), (against, "against it")):
            most = sorted(own, key=lambda head: -abs(head.direct.value or 0.0))[:NAMED]
            names = [f"{head.layer}.{head.head} ({LOGITS.text(head.direct)})" for head in most]
            if most:
                parts.append(f"most {what} {'write heads' if len(most) > 1 else 'writes head'} {wording.listed(names)}")
                rows += [(task, head) for head in most]
        if parts:
            yield Claim((f"{wording.capital('; '.join(parts))}.",), tuple(rows), subject(task, tasks))


@rule(
    "At the end X % of the gold tokens are the most probable token; half of that is reached behind block L.",
    needs="the estimates of the lens; intervals over items",
)
def when_it_is_readable(tasks: Sequence[TaskEffects]) -> Iterable[Claim]:
    """After which block the stream, read through the head, has the gold tokens."""
    for task in tasks:
        shares = [layer.top.value or 0.0 for layer in task.lens]
        first, last = task.lens[0], task.lens[-1]
        reached = next(place for place in range(len(shares)) if min(shares[place:]) >= shares[-1] / 2)
        where = f"behind block{wording.SPACE}{reached - 1}" if reached else "before block 0"
        half = f"; half of that is reached {where}" if shares[-1] else ""
        yield Claim(
            (
                f"At the end {WHOLE_SHARE.text(last.top)} of the gold tokens are the most probable token{half}.",
                f"Their log-probability goes from {NATS_PER_TOKEN.text(first.log_probability)} before block 0 to"
                f" {NATS_PER_TOKEN.text(last.log_probability)} per token.",
            ),
            ((task, first), (task, task.lens[reached]), (task, last)),
            subject(task, tasks),
        )


@rule(
    "Without block L, class C loses most of its tokens: X → Y %.",
    "Without the places P several classes lose, and which loses most cannot be told.",
    "Without the places P no class is shown to lose any.",
    needs="signs of whole items flipped, corrected by Holm over places and classes (most: over places, and every other"
    " class loses less), at .05",
)
def which_tokens_are_lost(tasks: Sequence[TaskEffects]) -> Iterable[Claim]:
    """Per place of the first unit the class of gold tokens that loses most."""
    for task in tasks:
        table = task.classes
        if table is None or len(table.present) < 2:
            continue
        places = table.of(task.units[0].unit)
        apart = sorted((place for place in places if place.shown), key=lambda place: -_most_lost(place))
        alike = [place for place in places if not place.shown and any(effect.is_lost for effect in place.effects)]
        spared = [place for place in places if not any(effect.is_lost for effect in place.effects)]
        sentences = []
        if apart:
            more = f"; {len(apart) - NAMED} more in the table" if len(apart) > NAMED else ""
            sentences.append(f"{'; '.join(_lost(table, place) for place in apart[:NAMED])}{more}.")
        if alike:
            sentences.append(f"Without {_named(alike, 'or')} several lose, and which loses most cannot be told.")
        if spared:
            sentences.append(f"Without {_named(spared, 'or')} no class is shown to lose any.")
        rows = tuple(line for line in table.lines(task.model, task.task) if line.loses_most)
        yield Claim(tuple(wording.capital(text) for text in sentences), rows, subject(task, tasks))


def _most_lost(place: PlaceClasses) -> float:
    return 0.0 if place.shown is None else place.shown.drop.value or 0.0


def _lost(table: ClassTable, place: PlaceClasses) -> str:
    effect = place.shown
    assert effect is not None
    before = next(each.accuracy for each in table.present if each.name == effect.name)
    left = f"{WHOLE_SHARE(before and before.value)} → {WHOLE_SHARE.text(effect.accuracy)}"
    return f"without {_named([place])}, most is lost of '{effect.name}' ({left})"


@rule(
    "Over N blocks, S ranks most like the drops of accuracy.",
    "No cheap measure is shown to rank N blocks as the drops of accuracy do.",
    needs="a layer study of the same model and task; a one-sided permutation test of Spearman's ρ at .05",
)
def what_foretells_the_drops(tasks: Sequence[TaskEffects]) -> Iterable[Claim]:
    """Which cheap measure of the first unit ranks places as the drops of accuracy of a layer study do."""
    for task in tasks:
        unit = task.units[0].unit
        own = [each for each in task.agreements if each.unit == unit and each.rho.value is not None]
        ordered = sorted(own, key=lambda each: -(each.rho.value or 0.0))
        shown = [each for each in ordered if each.rho.p is not None and each.rho.p <= ALPHA]
        if not ordered:
            continue
        best, places = ordered[0], f"{ordered[0].places} {PLURALS[unit]}"
        first = f"Over {places}, the {SCREENS[best.screen]} ranks most like the drops of accuracy"
        if not shown:
            first = f"No cheap measure is shown to rank {places} as the drops of accuracy do"
        numbers = [
            f"{SCREENS[each.screen]} ρ{wording.SPACE}{LOGITS(each.rho.value)}, {p_text(each.rho)}" for each in own
        ]
        yield Claim(
            (f"{first}.", f"{wording.capital('; '.join(numbers))}."),
            tuple((task, each) for each in ordered),
            subject(task, tasks),
        )
