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
WRITES = "{writer} writes most towards {aim}, {direct}; most is lost without {costly}, {total}."
READ = "{count} more through later blocks, which read what is written, than directly{own}."
REPAIRED = "With {places} switched off, later blocks make up for {share} of what was written there."
CHEAPER = "Switching off {places} costs less than was written there; no later block is shown to make up for it."
NO_REPAIR = "No repair is shown: of {number} {units}, none is shown to cost less than it writes."
STRONGEST = "Most in {place}: it writes {direct}, and its removal takes {total}."
READABLE = "At the end {share} of the gold tokens are the most probable token{half}."
PROBABLE = "Their log-probability goes from {first} before block 0 to {last} per token."
CLASS_LOST = "without {place}, most is lost of '{token_class}' ({before} → {after})"
SEVERAL_LOST = "Without {places} several lose, and which loses most cannot be told."
NONE_LOST = "Without {places} no class is shown to lose any."
FORETELLS = "Over {places}, the {screen} ranks most like the drops of accuracy."
NO_SCREEN = "No cheap measure is shown to rank {places} as the drops of accuracy do."
TEST = (
    "a direct effect above 0 by its interval; a t-test over items, corrected by Holm over the places of a unit, at .05"
)


@rule(
    WRITES,
    READ,
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
        writes = WRITES.format(
            writer=writer.place,
            aim=task.aim,
            direct=LOGITS.text(writer.direct),
            costly=lost,
            total=LOGITS.text(costly.total),
        )
        sentences = [wording.capital(writes)]
        if read := [place for place in places if place.is_read]:
            count = f"{len(read)} of {len(places)} {PLURALS[unit]} {'does' if len(read) == 1 else 'do'}"
            own = f"; {costly.place} itself writes {LOGITS.text(costly.direct)}" if costly in read else ""
            sentences.append(READ.format(count=count, own=own))
        rows = dict.fromkeys((writer.place, costly.place, *(place.place for place in read)))
        yield Claim(
            tuple(sentences), tuple((task, place) for place in places if place.place in rows), subject(task, tasks)
        )


@rule(
    REPAIRED,
    CHEAPER,
    NO_REPAIR,
    STRONGEST,
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
        return REPAIRED.format(places=_named(by_blocks), share=share)
    if repaired := [place for place in places if place.is_repaired]:
        return CHEAPER.format(places=_named(repaired))
    return NO_REPAIR.format(number=len(places), units=PLURALS[unit.unit])


def _strongest(places: Sequence[Effect]) -> list[str]:
    """Where later blocks make up for most."""
    repaired = [place for place in places if place.is_repaired_by_blocks]
    if len(repaired) < 2:
        return []
    most = max(repaired, key=lambda place: place.by_blocks.value or 0.0)
    direct, total = LOGITS.text(most.direct), LOGITS(most.total.value)
    return [STRONGEST.format(place=most.place, direct=direct, total=total)]


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
    "Most towards the right token write heads H; most the other way heads G.",
    needs="an interval of the direct effect that lies on that side of 0",
)
def which_heads_write(tasks: Sequence[TaskEffects]) -> Iterable[Claim]:
    """The heads that write most towards the right token and against it."""
    for task in tasks:
        towards = [head for head in task.of("head") if (head.direct.low or 0.0) > 0]
        against = [head for head in task.of("head") if (head.direct.high or 0.0) < 0]
        parts, rows = [], []
        for own, what in ((towards, f"towards {task.aim}"), (against, "the other way")):
            most = sorted(own, key=lambda head: -abs(head.direct.value or 0.0))[:NAMED]
            names = [f"{head.layer}.{head.head} ({LOGITS.text(head.direct)})" for head in most]
            if most:
                parts.append(f"most {what} {'write heads' if len(most) > 1 else 'writes head'} {wording.listed(names)}")
                rows += [(task, head) for head in most]
        if parts:
            yield Claim((f"{wording.capital('; '.join(parts))}.",), tuple(rows), subject(task, tasks))


@rule(
    READABLE,
    PROBABLE,
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
                READABLE.format(share=WHOLE_SHARE.text(last.top), half=half),
                PROBABLE.format(
                    first=NATS_PER_TOKEN.text(first.log_probability), last=NATS_PER_TOKEN.text(last.log_probability)
                ),
            ),
            ((task, first), (task, task.lens[reached]), (task, last)),
            subject(task, tasks),
        )


@rule(
    CLASS_LOST,
    SEVERAL_LOST,
    NONE_LOST,
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
            sentences.append(SEVERAL_LOST.format(places=_named(alike, "or")))
        if spared:
            sentences.append(NONE_LOST.format(places=_named(spared, "or")))
        rows = tuple(line for line in table.lines(task.model, task.task) if line.loses_most)
        yield Claim(tuple(wording.capital(text) for text in sentences), rows, subject(task, tasks))


def _most_lost(place: PlaceClasses) -> float:
    return 0.0 if place.shown is None else place.shown.drop.value or 0.0


def _lost(table: ClassTable, place: PlaceClasses) -> str:
    effect = place.shown
    assert effect is not None
    before = next(each.accuracy for each in table.present if each.name == effect.name)
    numbers = {"before": WHOLE_SHARE(before and before.value), "after": WHOLE_SHARE.text(effect.accuracy)}
    return CLASS_LOST.format(place=_named([place]), token_class=effect.name, **numbers)


@rule(
    FORETELLS,
    NO_SCREEN,
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
        first = (FORETELLS if shown else NO_SCREEN).format(places=places, screen=SCREENS[best.screen])
        numbers = [
            f"{SCREENS[each.screen]} ρ{wording.SPACE}{LOGITS(each.rho.value)}, {p_text(each.rho)}" for each in own
        ]
        yield Claim(
            (first, f"{wording.capital('; '.join(numbers))}."),
            tuple((task, each) for each in ordered),
            subject(task, tasks),
        )
