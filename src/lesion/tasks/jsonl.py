"""Files of questions: JSON Lines, or a list, CSV or Parquet with the same fields, every fault named with its line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from lesion import files
from lesion.errors import UsageError, nearest
from lesion.plain import short
from lesion.reprs import short_repr
from lesion.tasks import contrast
from lesion.tasks.counterparts import others_of_group
from lesion.tasks.judges import judge
from lesion.tasks.question_files import EXAMPLE, LISTS, chosen, read_rows
from lesion.tasks.source import SourceRow, whole
from lesion.tasks.task import Answer, Item, Kind, Verdict

JUDGES = ("exact", "math", "contains")
REQUIRED = ("prompt", "answer")
KNOWN = ("id", *REQUIRED, *LISTS, "tempting", "judge", "solution", "group", "style")
CONTRAST = "contrast"
"""What judges an item with `tempting`, which names no judge itself."""
FIELDS = {"contrast": "'tempting'", "choose": "'choices'", "generate": "neither 'choices' nor 'tempting'"}
"""What an item of each kind has."""


@dataclass(frozen=True)
class Listed:
    """What tasks share whose items lie in memory; `metadata["judge"]` of every item says which judge."""

    name: str
    items: tuple[Item, ...] = field(repr=False)
    kind: Kind = "generate"
    max_new_tokens: int = 64
    stop: tuple[str, ...] = ()
    style: str = "auto"
    unchatted: str = "raw"

    __repr__ = short_repr

    def load(self) -> Sequence[Item]:
        """Every item, in their order."""
        return self.items

    def corruptions(self, item: Item) -> Iterable[Item]:
        """The other items of the same group whose answer is another one."""
        return others_of_group(self.items, item)


class JsonLines(Listed):
    """The items of a JSON Lines file.

    A line is an object with `prompt` and `answer`, and optionally `id` (the line's number where there is none),
    `choices` (a list of texts among which the model chooses), `tempting` (a text: the item is a contrast between the
    first token of the answer and the first of this), `aliases` (other right answers), `judge` (`exact`, `math` or
    `contains`; for generated answers), `solution`, `group` and `stop` (a text or list of texts that ends an answer; all
    lines that have it have the same). Numbers stand for themselves as written (`"answer":
    42`). Other fields are kept in the item's metadata, unless they look like one of these misspelt. Empty lines are
    skipped. A field that is null is absent; an answer to choices may also be the place of a choice
    (`field_values.chosen`).

    The prompt style is what lines name as `style`; else the chat template of a model that has one, and of others
    the prompt as it stands (`raw`), as are the prompts of contrasts, whose answers go on where they end. Without
    `stop`, generation ends at a line break when every item is judged `exact`, since such an answer is one line and
    a base model would go on with the next question; else at the end of text only.
    """

    @classmethod
    def read(cls, path: str | Path, name: str | None = None, judged: str = "") -> JsonLines:
        """The task in a file, under the name that was typed (None: `jsonl:PATH`).

        Args:
            judged: the judge of all items, whatever they name; "": what each names.
        """
        path = files.existing(path)
        items, _ = gathered(read_rows(path), judged)
        if not items:
            raise UsageError(f"{path} is empty; write one object a line: {EXAMPLE}.")
        return cls(name or f"jsonl:{path}", tuple(items), kind=_kind(items[0]), stop=ends(items), style=style_of(items))

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer is right, by the judge that the item names; a choice must be the right one."""
        if answer.finish == "nonfinite":
            return judge.UNREAD
        if self.kind == "contrast":
            return contrast.verdict(item, answer)
        if self.kind == "choose":
            return Verdict(answer.text in (item.gold, *item.aliases), answer.text)
        if item.metadata["judge"] == "math":
            return judge.math(answer.text, item.gold, item.aliases, complete=answer.finish == "stop")
        rule = judge.contains if item.metadata["judge"] == "contains" else judge.exact
        return rule(answer.text, item.gold, item.aliases)


def gathered(rows: Iterable[tuple[int, SourceRow]], judged: str = "") -> tuple[list[Item], Kind]:
    """The items of numbered rows, all judged by `judged` if that names a judge, and the kind of a task of them."""
    items: list[Item] = []
    lines: dict[str, int] = {}
    shared: dict[str, tuple[int, object]] = {}
    for number, row in rows:
        item = _item(row, number, judged)
        if item.id in lines:
            raise row.fault(f"the id '{short(item.id)}' was used on line {lines[item.id]}; ids must be unique.")
        lines[item.id] = number
        items.append(item)
        for name in ("stop", "style"):
            if name in item.metadata:
                line, value = shared.setdefault(name, (number, item.metadata[name]))
                if value != item.metadata[name]:
                    raise row.fault(
                        f"'{name}' differs from that of line {line}; it is one for all questions of a file."
                    )
        kind, first = _kind(item), _kind(items[0])
        if kind != first:
            raise row.fault(
                f"this item has {FIELDS[kind]}, the first item (line {lines[items[0].id]}) has {FIELDS[first]}; put "
                f"items of different kinds into two files."
            )
    return items, _kind(items[0]) if items else "generate"


def ends(items: Sequence[Item]) -> tuple[str, ...]:
    """The texts that end an answer to items: those that they name, else a line break where all are judged `exact`."""
    named = next((item.metadata["stop"] for item in items if "stop" in item.metadata), None)
    if named is not None:
        return tuple(named)
    one_line = _kind(items[0]) == "generate" and all(item.metadata["judge"] == "exact" for item in items)
    return ("\n",) if one_line else ()


def style_of(items: Sequence[Item]) -> str:
    """The prompt style of items: the one that they name, of contrasts `raw`, else `auto`."""
    named = next((str(item.metadata["style"]) for item in items if "style" in item.metadata), None)
    return named or ("raw" if _kind(items[0]) == "contrast" else "auto")


def _kind(item: Item) -> Kind:
    if item.metadata["judge"] == CONTRAST:
        return "contrast"
    return "choose" if item.choices else "generate"


def _item(row: SourceRow, number: int, judged: str) -> Item:
    optional = (name for name, value in row.fields.items() if value is None and name in KNOWN and name not in REQUIRED)
    if left_out := set(optional):  # null is absent
        row = replace(row, fields={name: value for name, value in row.fields.items() if name not in left_out})
    if judged:
        row = replace(row, fields={**row.fields, "judge": judged})
    others = {name: value for name, value in row.fields.items() if name not in KNOWN}
    if misspelt := _misspelt(tuple(row.fields)):
        raise row.fault(f"there is no field '{short(misspelt[0])}'; did you mean '{misspelt[1]}'?")
    for name in REQUIRED:
        if name not in row:
            raise row.fault(f"the field '{name}' is missing; an item looks like {EXAMPLE}.")
    texts = {name: _text(row, name) for name in KNOWN if name not in LISTS}
    choices, aliases, stop = (_texts(row, name) for name in LISTS)
    for name in ("id", *REQUIRED):
        if name in row and not texts[name].strip():
            raise row.fault(f"'{name}' is empty.")
    rule = texts["judge"] or JUDGES[0]
    if rule not in JUDGES:
        raise row.fault(f"there is no judge '{short(rule)}'{nearest(rule, JUDGES)}; there are {', '.join(JUDGES)}.")
    if "choices" in row:
        texts["answer"] = chosen(row.fields["answer"], choices, row.where)
        aliases = tuple(chosen(alias, choices, row.where) for alias in row.fields.get("aliases", ()))
        _check_choices(row, choices, (texts["answer"], *aliases))
    if "tempting" in row:
        _check_tempting(row, texts["answer"], texts["tempting"])
        choices, rule = (texts["answer"], *contrast.against(texts["answer"], texts["tempting"])), CONTRAST
    if "stop" in row:
        _check_stop(row, stop, choices)
        others["stop"] = stop
    if texts["style"]:
        others["style"] = texts["style"]
    return Item(
        id=texts["id"] if "id" in row else str(number),
        question=texts["prompt"],
        gold=texts["answer"],
        aliases=aliases,
        choices=choices,
        solution=texts["solution"],
        group=texts["group"],
        metadata={**others, "judge": rule},
    )


@lru_cache(maxsize=64)
def _misspelt(names: tuple[str, ...]) -> tuple[str, str] | None:
    """The first name of a field that looks like one that is absent, and that one."""
    absent = [name for name in KNOWN if name not in names]
    for name in names:
        meant = (
            ()
            if name in KNOWN
            else difflib.get_close_matches(name[:80].lower(), absent, 1, cutoff=0.75 if len(name) > 4 else 0.8)
        )
        if meant:
            return name, meant[0]
    return None


def _check_choices(row: SourceRow, choices: Sequence[str], rights: Sequence[str]) -> None:
    if not choices:
        raise row.fault("'choices' is empty; leave it out for an answer that is generated.")
    if len(set(choices)) < max(2, len(choices)):
        raise row.fault("'choices' must be at least two different texts.")
    for right in rights:
        if right not in choices:
            raise row.fault(
                f"the answer '{short(right)}' is not among the choices{nearest(right, choices)}; it must be one of "
                f"them letter for letter."
            )
    if "judge" in row:
        raise row.fault("'judge' is for generated answers; an item with 'choices' needs none.")


def _check_stop(row: SourceRow, stop: Sequence[str], choices: Sequence[str]) -> None:
    if not all(stop):
        raise row.fault("'stop' has an empty text; write the texts that end an answer, \"\\n\" for example.")
    if choices:
        raise row.fault("'stop' is for generated answers; an item with 'choices' or 'tempting' needs none.")


def _check_tempting(row: SourceRow, answer: str, tempting: str) -> None:
    if not tempting:
        raise row.fault("'tempting' is empty; write the text that tempts, \" the\" for example.")
    if tempting == answer:
        raise row.fault("'tempting' is the answer itself; write another text, \" the\" for example.")
    for name in ("choices", "aliases", "judge"):
        if name in row:
            raise row.fault(f"an item with 'tempting' has one right text and no '{name}'; leave one of them out.")


def _text(row: SourceRow, name: str) -> str:
    value = row.fields.get(name, "")
    if not isinstance(value, str):
        null = (
            "null; write the text there" if value is None else f"{files.kind(value)}; write a text in quotation marks"
        )
        raise row.fault(f"'{name}' must be a text, not {null}.")
    return whole(value, name, row.where)


def _texts(row: SourceRow, name: str) -> tuple[str, ...]:
    value: Any = row.fields.get(name, [])
    if name == "stop" and isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise row.fault(f"'{name}' must be a list of texts.")
    return tuple(whole(part, name, row.where) for part in value)
