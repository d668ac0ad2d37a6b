"""JSON Lines: any file of questions as a task, one object a line, every fault named with its line."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from lesion import files
from lesion.errors import UsageError, nearest
from lesion.plain import short
from lesion.tasks import contrast
from lesion.tasks.judges import judge
from lesion.tasks.source import existing, read_text, whole
from lesion.tasks.task import Answer, Item, Kind, Verdict

Judge = Literal["exact", "math", "contains"]
JUDGES: tuple[Judge, ...] = get_args(Judge)
REQUIRED = ("id", "prompt", "answer")
OPTIONAL = ("choices", "tempting", "aliases", "judge", "solution", "group")
MAX_NEW_TOKENS = 64
CONTRAST = "contrast"
"""What judges an item with `tempting`, which names no judge itself."""


@dataclass(frozen=True)
class JsonLines:
    """The items of a JSON Lines file.

    A line is an object with `id`, `prompt` and `answer`, and optionally `choices` (a list of texts among
    which the model chooses), `tempting` (a text: the item is a contrast between the first token of the answer and the
    first of this), `aliases` (other right answers), `judge` (`exact`, `math` or `contains`; for
    generated answers), `solution` and `group`. Numbers stand for themselves as written (`"answer": 42`).
    Other fields are kept in the item's metadata, unless they look like one of these misspelt. Empty lines are
    skipped.

    Prompts are sent as they stand (style `raw`). 64 new tokens by default. Generation stops at a line break
    when every item is judged `exact`, since such an answer is one line and a base model would go on with the
    next question; with `math` or `contains` in the file it stops at the end of text only.
    """

    name: str
    items: tuple[Item, ...] = field(repr=False)
    kind: Kind = "generate"
    max_new_tokens: int = MAX_NEW_TOKENS
    stop: tuple[str, ...] = ()
    style: str = "raw"
    subject: str = ""

    @classmethod
    def read(cls, path: str | Path, name: str | None = None) -> JsonLines:
        """The task in a file.

        Args:
            path: the file.
            name: the task's name as typed; `jsonl:PATH` when none is given.

        Raises:
            UsageError: the file is absent, empty or not UTF-8, or anything in it is wrong; see `parse`.
        """
        path = existing(path)
        items = parse(read_text(path), str(path))
        kind = _kind(items[0])
        one_line = kind == "generate" and all(item.metadata["judge"] == "exact" for item in items)
        return cls(name or f"jsonl:{path}", tuple(items), kind=kind, stop=("\n",) if one_line else ())

    def load(self) -> Sequence[Item]:
        """Every item, in the order of the file."""
        return self.items

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


def parse(text: str, file: str) -> list[Item]:
    """The items in the text of a JSON Lines file.

    Args:
        text: the whole text.
        file: its name, for errors.

    Raises:
        UsageError: the text is empty; a line is not JSON or not an object; a field is missing, misspelt,
            repeated or of the wrong type; an id occurs twice (both lines are named); some items have choices
            and others have not; there is no such judge (with the nearest); the answer is not among the
            choices.
    """
    items: list[Item] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        item = _item(_object(line, file, number), where)
        if item.id in lines:
            raise UsageError(
                f"{where}: the id '{short(item.id)}' was used on line {lines[item.id]}; ids must be unique."
            )
        if items and _kind(item) != _kind(items[0]):
            _refuse_mixed(item, items[0], where, lines[items[0].id])
        lines[item.id] = number
        items.append(item)
    if not items:
        raise UsageError(f"{file} is empty; write one object a line: {_EXAMPLE}.")
    return items


def _kind(item: Item) -> Kind:
    """The kind of a task with such an item."""
    if item.metadata["judge"] == CONTRAST:
        return "contrast"
    return "choose" if item.choices else "generate"


def _refuse_mixed(item: Item, first: Item, where: str, line: int) -> None:
    """Say which of two fields one item has and the first has not, or the other way round."""
    kinds = (_kind(item), _kind(first))
    field = "tempting" if "contrast" in kinds else "choices"
    with_field = "contrast" if field == "tempting" else "choose"
    has, other = ("has", "has not") if kinds[0] == with_field else ("has no", "has")
    put = "contrasts and other items" if field == "tempting" else "items to choose and items to generate"
    raise UsageError(
        f"{where}: this item {has} '{field}', the first item (line {line}) {other}; put {put} into two files."
    )


_EXAMPLE = '{"id": "1", "prompt": "2 + 2 =", "answer": "4"}'


def _object(line: str, file: str, number: int) -> dict[str, Any]:
    where = f"{file}, line {number}"

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
            raise UsageError(f"{where}: the field '{short(twice)}' stands twice in one object.")
        return row

    def refuse(constant: str) -> Any:
        raise UsageError(f"{where}: {constant} is not JSON; write it as a text in quotation marks.")

    # Numbers keep the form they were written in: 1.50 stays "1.50".
    value = files.parse_json(
        line, file, fault=UsageError, line=number, halves=True, pairs=once, parse_int=_Number, parse_float=_Number,
        parse_constant=refuse,
    )  # fmt: skip
    if not isinstance(value, dict):
        raise UsageError(f"{where}: this is not a JSON object; an item looks like {_EXAMPLE}.")
    return value


class _Number(str):
    """A JSON number in the form it was written."""


def _item(row: dict[str, Any], where: str) -> Item:
    known = (*REQUIRED, *OPTIONAL)
    others = {name: value for name, value in row.items() if name not in known}
    for name in others:
        meant = difflib.get_close_matches(
            name[:80].lower(), [word for word in known if word not in row], 1, cutoff=0.75
        )
        if meant:
            raise UsageError(f"{where}: there is no field '{short(name)}'; did you mean '{meant[0]}'?")
    for name in REQUIRED:
        if name not in row:
            raise UsageError(f"{where}: the field '{name}' is missing; an item looks like {_EXAMPLE}.")
    names = ("id", "prompt", "answer", "tempting", "judge", "solution", "group")
    texts = {name: _text(row, name, where) for name in names}
    choices, aliases = (_texts(row, name, where) for name in ("choices", "aliases"))
    for name in REQUIRED:
        if not texts[name].strip():
            raise UsageError(f"{where}: '{name}' is empty.")
    rule = texts["judge"] or "exact"
    if rule not in JUDGES:
        raise UsageError(
            f"{where}: there is no judge '{short(rule)}'{nearest(rule, JUDGES)}; there are {', '.join(JUDGES)}."
        )
    if choices:
        _check_choices(texts["answer"], choices, aliases, "judge" in row, where)
    if "tempting" in row:
        _check_tempting(row, texts["answer"], texts["tempting"], where)
        choices, rule = (texts["answer"], texts["tempting"]), CONTRAST
    return Item(
        id=texts["id"],
        question=texts["prompt"],
        gold=texts["answer"],
        aliases=aliases,
        choices=choices,
        solution=texts["solution"],
        group=texts["group"],
        metadata={**others, "judge": rule},
    )


def _check_choices(answer: str, choices: tuple[str, ...], aliases: tuple[str, ...], judged: bool, where: str) -> None:
    if len(set(choices)) < 2 or len(set(choices)) < len(choices):
        raise UsageError(f"{where}: 'choices' must be at least two different texts.")
    for right in (answer, *aliases):
        if right not in choices:
            raise UsageError(
                f"{where}: the answer '{short(right)}' is not among the choices{nearest(right, choices)}; "
                f"it must be one of them letter for letter."
            )
    if judged:
        raise UsageError(f"{where}: 'judge' is for generated answers; an item with 'choices' needs none.")


def _check_tempting(row: dict[str, Any], answer: str, tempting: str, where: str) -> None:
    if not tempting:
        raise UsageError(f"{where}: 'tempting' is empty; write the text that tempts, \" the\" for example.")
    if tempting == answer:
        raise UsageError(f"{where}: 'tempting' is the answer itself; write another text, \" the\" for example.")
    for name in ("choices", "aliases", "judge"):
        if name in row:
            raise UsageError(
                f"{where}: an item with 'tempting' has one right text and no '{name}'; leave one of them out."
            )


def _text(row: dict[str, Any], name: str, where: str) -> str:
    value = row.get(name, "")
    if not isinstance(value, str):
        raise UsageError(f"{where}: '{name}' must be a text in quotation marks.")
    return whole(value, name, where)


def _texts(row: dict[str, Any], name: str, where: str) -> tuple[str, ...]:
    value = row.get(name, [])
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise UsageError(f"{where}: '{name}' must be a list of texts.")
    if name in row and name == "choices" and not value:
        raise UsageError(f"{where}: 'choices' is empty; leave it out for an answer that is generated.")
    return tuple(whole(part, name, where) for part in value)
