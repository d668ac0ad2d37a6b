"""Which class of gold tokens each place takes most from, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.edits.place import Unit
from lesion.report import wording
from lesion.studies.effects.result import ClassEffect, ClassTable, PlaceClasses, TaskEffects
from lesion.tasks.gold_classes import UNKNOWN

NAMED = 3
"""Of classes that are lost and not told apart, so many are named, the most lost ones first."""


def class_sentences(task: TaskEffects) -> list[str]:
    """What each place of the first unit takes most from; classes without tokens; tokens of no class."""
    table = task.classes
    if table is None:
        return []
    present, unit = table.present, task.units[0].unit
    empty = [f"'{each.name}'" for each in table.classes if not each.tokens]
    unknown = next((each for each in present if each.name == UNKNOWN), None)
    return [
        *([_places(table, table.of(unit), unit)] if len(present) > 1 else []),
        *([f"All gold tokens are of the class '{present[0].name}'."] if len(present) == 1 else []),
        *([f"No gold token is of the class {wording.listed(empty, 'or')}."] if empty else []),
        *(
            [
                f"The tokenizer does not give back the gold text of {wording.counted(unknown.items, 'item')} as it"
                " stands; their tokens are of no class."
            ]
            if unknown
            else []
        ),
    ]


def accuracy_text(table: ClassTable, effect: ClassEffect) -> str:
    """`100 % → 63 [58, 68] %`: unedited, and without the place."""
    return f"{_unedited(table, effect.name)} {_left(effect)}"


def _unedited(table: ClassTable, name: str) -> str:
    before = next(each for each in table.present if each.name == name).accuracy
    return wording.percent(None if before is None else before.value, 0)


def _left(effect: ClassEffect) -> str:
    after = effect.accuracy
    numbers = f"{wording.points(after.value, 0)} {wording.interval(after.low, after.high, 0)}".rstrip()
    return f"→{wording.SPACE}{numbers}{wording.SPACE}%"


def _places(table: ClassTable, places: Sequence[PlaceClasses], unit: Unit) -> str:
    """Per place the class that loses most, or the classes that are not told apart, or that nothing is lost."""
    most: dict[str, list[tuple[float, str]]] = {}
    open_places: list[str] = []
    spared: list[PlaceClasses] = []
    for place in places:
        lost = sorted((each for each in place.effects if each.is_lost), key=_drop, reverse=True)
        name = wording.place(unit, place.layer, place.head)
        if (shown := place.shown) is not None:
            others = [each for each in lost if each.name != shown.name and _drop(each) >= _drop(shown) / 2]
            also = "".join(f"; '{each.name}' {_left(each)}" for each in others)
            most.setdefault(shown.name, []).append((-_drop(shown), f"{name} ({_left(shown)}{also})"))
        elif lost:
            named = [f"'{each.name}' {_left(each)}" for each in lost[:NAMED]]
            more = [f"{len(lost) - NAMED} more"] if len(lost) > NAMED else []
            open_places.append(f"{name} ({wording.listed([*named, *more])})")
        else:
            spared.append(place)
    parts = [
        f"'{name}' ({_unedited(table, name)} unedited) loses most without {wording.listed([text for _, text in own])}"
        for own, name in sorted((sorted(own), name) for name, own in most.items())
    ]
    sentences = [f"By class of gold token (share that is the most probable one), {'; '.join(parts)}."] if parts else []
    if open_places:
        sentences.append(f"No class of gold token is shown to lose most without {wording.listed(open_places, 'or')}.")
    if spared:
        blocks = wording.numbered("block", [place.layer for place in spared], " or")
        where = blocks if unit == "block" else f"{wording.UNIT_NAMES[unit]} of {blocks}"
        if unit == "head":
            where = f"any of {len(spared)} {'' if len(spared) == len(places) else 'other '}heads"
        sentences.append(f"No class of gold token is shown to lose any without {where}.")
    return " ".join(sentences)


def _drop(effect: ClassEffect) -> float:
    return effect.drop.value or 0.0
