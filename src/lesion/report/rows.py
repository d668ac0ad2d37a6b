"""Rows: values whose fields say how they are shown.

One declaration is the type, the JSON of `summary.json`, the columns of the CSV and parquet file, those of the table on
a page, in a terminal and in a notebook, and the page of the documentation that explains them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_args, get_origin

from pydantic import Field
from pydantic_core import PydanticUndefined

from lesion.report import wording
from lesion.report.names import Names
from lesion.report.values import WHOLE_SHARE, ByUnit, Estimate, Form, Mean, Value, Write, plain, unknown


@dataclass(frozen=True)
class Shown:
    """How a field of a row is shown.

    Attributes:
        name: of the field.
        key: of its column in files.
        title: its heading; empty for a column that only files have.
        form: how it is written.
        label: whether it tells rows apart: it stands left, and is left out where all rows have the same.
        many: whether the field is a dictionary, of which every key is a column; `{}` in the title stands for it.
        low, high, p: the columns of an estimate's interval and p. Empty: none.
        corrected: whether `p_corrected` stands beside p.
        estimate, mean, whole: whether it is an `Estimate`; a `Mean`, whose standard deviation is in `KEY_std`; a whole
            number.
        about: what it is, for the documentation; by default what the class says under `Attributes`.
    """

    title: str = ""
    form: Write = plain
    label: bool = False
    key: str = ""
    low: str = ""
    high: str = ""
    p: str = ""
    corrected: bool = True
    name: str = ""
    estimate: bool = False
    mean: bool = False
    whole: bool = False
    many: bool = False

    def within(self, unit: str | None) -> Shown:
        """The same, with the form of that unit where it has one for each."""
        if not isinstance(self.form, ByUnit):
            return self
        return replace(self, form=plain if unit is None else self.form.forms[unit])

    @property
    def heading(self) -> str:
        """The title, with the unit of the form."""
        unit = self.form.unit if isinstance(self.form, Form) else ""
        return f"{self.title}, {unit}" if self.title and unit else self.title

    def columns(self, value: Any) -> Iterator[tuple[str, Any]]:
        """The columns of a file that a value fills."""
        if self.many:
            yield from (value or {}).items()
            return
        if self.mean:
            yield self.key, value and value.mean
            yield f"{self.key}_std", value and value.std
            return
        if not self.estimate:
            yield self.key, wording.layer_runs(value) if isinstance(value, tuple) else value  # numbers of blocks
            return
        known = value if isinstance(value, Estimate) else Estimate(value=None)
        yield self.key, known.value
        yield self.low, known.low
        yield self.high, known.high
        if self.p:
            yield self.p, known.p
            if self.corrected:
                yield f"{self.p}_corrected", known.p_corrected

    def write(self, value: Any) -> str:
        """The value as text, an estimate with its interval."""
        if isinstance(value, Estimate):
            if isinstance(self.form, Form):
                return self.form.cell(value.value, value.low, value.high)
            return self.form(value.value)
        if isinstance(value, Mean):
            return self.form.spread(value) if isinstance(self.form, Form) else self.form(value.mean)
        return self.form(value)

    def sentence(self, value: Any) -> str:
        """The value as it stands in a sentence, with its unit."""
        return self.form.text(value) if isinstance(self.form, Form) else self.write(value)


def column(
    title: str = "",
    form: Write = plain,
    *,
    default: Any = PydanticUndefined,
    label: bool = False,
    key: str = "",
    ends: tuple[str, str] = ("", ""),
    p: str | bool = "",
    corrected: bool = True,
    omitted: bool = False,
) -> Any:
    """A field of a `Row` that is a column of every table, file and page that the row stands in.

    Args:
        title: its heading; empty for a column of files alone.
        form: how it is written.
        default: of the field; without one it is required.
        label: whether it tells rows apart (model, task): left out of a table whose rows all have the same.
        key: of the column in files, by default the field's name.
        ends: the columns of an estimate's interval, by default the key with `_low` and `_high`.
        p: the column of an estimate's p (`True`: the key with `_p`), shown beside it on pages. Files have it with and
            without its correction.
        corrected: whether p has a correction.
        omitted: whether the JSON leaves the field out where it is the default.
    """
    name_of_p = p if isinstance(p, str) else "=" if p else ""
    shown = Shown(title, form, label, key, *ends, p=name_of_p, corrected=corrected)
    leave_out = {"exclude_if": lambda value: value == default} if omitted else {}
    return Field(default=default, json_schema_extra={"column": shown}, **leave_out)  # type: ignore[call-overload]


class derived(property):  # noqa: N801 (it is used as `property` is)
    """A property of a `Row` that is a column: `@derived.column("Place", label=True)`."""

    shown: Shown

    @classmethod
    def column(
        cls, title: str = "", form: Write = plain, *, label: bool = False, key: str = ""
    ) -> Callable[[Callable[[Any], Any]], Any]:
        """Decorates a method without arguments, which then is a property and a column."""

        def decorate(method: Any) -> derived:
            made = cls(method)
            returned = str(method.__annotations__.get("return"))
            mean, shown = returned.startswith("Mean"), Shown(title, form, label, key or method.__name__)
            made.shown = replace(shown, name=method.__name__, mean=mean)
            if returned.startswith("Estimate"):
                made.shown = replace(made.shown, estimate=True, low=f"{shown.key}_low", high=f"{shown.key}_high")
            return made

        return decorate


class Row(Value):
    """A value whose fields made by `column`, and properties made by `derived.column`, are columns."""


Record = Row | tuple[Row | None, ...]
"""What fills a line of a table: a row, or several rows side by side (`(task, cell)`); None: columns without values."""


@cache
def columns_of(row: type[Row]) -> tuple[Shown, ...]:
    """The columns that a class of rows declares: its own fields and then its derived ones, then those of its bases."""
    declared: list[Shown] = []
    for name, field in row.model_fields.items():
        extra = field.json_schema_extra
        shown: Any = extra.get("column") if isinstance(extra, dict) else None
        if isinstance(shown, Shown):
            key = shown.key or name
            of = (field.annotation, *get_args(field.annotation))
            made = replace(
                shown, name=name, key=key, estimate=_holds(of, Estimate), mean=_holds(of, Mean), whole=int in of,
                many=get_origin(field.annotation) is dict,
            )  # fmt: skip
            if made.estimate:
                p = f"{key}_p" if made.p == "=" else made.p
                made = replace(made, low=made.low or f"{key}_low", high=made.high or f"{key}_high", p=p)
            declared.append(made)
    names = {name: value for base in reversed(row.__mro__) for name, value in vars(base).items()}
    declared += [value.shown for value in names.values() if isinstance(value, derived)]
    owners = [{*vars(base).get("__annotations__", ()), *vars(base)} for base in row.__mro__]
    return tuple(sorted(declared, key=lambda shown: next(at for at, own in enumerate(owners) if shown.name in own)))


def _holds(of: tuple[Any, ...], kind: type) -> bool:
    return any(isinstance(each, type) and issubclass(each, kind) for each in of)


def parts_of(record: Record) -> tuple[Row, ...]:
    """The rows side by side in a line, without missing ones."""
    return tuple(row for row in _sides(record) if row is not None)


def _sides(record: Record) -> tuple[Row | None, ...]:
    return record if isinstance(record, tuple) else (record,)


def value_of(record: Record, name: str) -> Any:
    """The field or property of that name, of the last row of a line that has it; None where a row is missing."""
    rows = parts_of(record)
    for row in reversed(rows):
        if hasattr(row, name):
            return getattr(row, name)
    if len(rows) < len(_sides(record)):
        return None
    raise AttributeError(f"no row of {[type(row).__name__ for row in parts_of(record)]} has {name}")


def shown_of(record: Record, name: str) -> Shown:
    """How that field or property is shown; one that no row declares is shown as it is."""
    columns = [shown for row in reversed(parts_of(record)) for shown in columns_of(type(row)) if shown.name == name]
    return columns[0].within(unit_of(record)) if columns else Shown(name.replace("_", " "), name=name, key=name)


def unit_of(record: Record) -> str | None:
    """In which unit the numbers of a line are, where a column's form differs by it and the line says so."""
    rows = parts_of(record)
    units = _units(tuple(map(type, rows)))
    return next((unit for row in rows if (unit := getattr(row, "unit", None)) in units), None)


@cache
def _units(rows: tuple[type[Row], ...]) -> frozenset[str]:
    """The units for which columns have a form."""
    forms = [shown.form for row in rows for shown in columns_of(row)]
    return frozenset(unit for form in forms if isinstance(form, ByUnit) for unit in form.forms)


def text_of(record: Record, name: str) -> str:
    """A field of a line as it stands in a cell."""
    return shown_of(record, name).write(value_of(record, name))


def named_in_short(record: Record, names: Names) -> Record:
    """A line whose columns and headings have short names of models and tasks."""

    def short(row: Row | None) -> Row | None:
        if row is None:
            return None
        shown = {column.name for column in columns_of(type(row))} | {"model", "task", "heading"}
        texts = {name: getattr(row, name) for name in type(row).model_fields if name in shown and name != "edit"}
        return row.model_copy(update={name: names(text) for name, text in texts.items() if isinstance(text, str)})

    return tuple(map(short, record)) if isinstance(record, tuple) else short(record) or record


def subject(record: Record, records: Sequence[Record], but: str = "") -> str:
    """The labels of a line, `but` one, that tell it apart from the others (`llama · sums`); empty where none does."""
    telling = telling_labels(records) - {but}
    names = [shown.name for row in parts_of(record) for shown in columns_of(type(row)) if shown.name in telling]
    return " · ".join(text for name in names if (text := text_of(record, name)) != wording.DASH)


def telling_labels(records: Sequence[Record]) -> frozenset[str]:
    """The labels by which lines differ."""
    values: dict[str, set[str]] = {}
    for record in records:
        for row in parts_of(record):
            for shown in columns_of(type(row)):
                if shown.label and shown.title:
                    values.setdefault(shown.name, set()).add(str(getattr(row, shown.name)))
    return frozenset(name for name, several in values.items() if len(several) > 1)


def flat(record: Record, of: Sequence[type[Row]]) -> dict[str, Any]:
    """A line of a file: every column of these classes with its value, estimates as several columns."""
    return {
        key: value
        for row, kind in zip(_sides(record), of, strict=True)
        for shown in columns_of(kind)
        for key, value in shown.columns(None if row is None else getattr(row, shown.name))
    }


@dataclass(frozen=True)
class Rows:
    """Lines of one kind, with what a file, a table and a chart of them need to know where there are none.

    Attributes:
        name: of the file, `NAME.csv`; empty: no file.
        records: the lines.
        of: the classes whose columns a line has, one for each of its rows: its own, or one it inherits from.
        title: what the lines are, in a few words.
        caption: what a reader of the table must know, one or two sentences.
        marked: the column by which lines are marked.
        only_marked: what a box is called that leaves only the marked lines on a page.
        hidden: columns that stay in the file and are not shown.
        most: a field or property: an excerpt has the lines with the largest; by default the first.
        order: a field or property: people see the lines with the smallest first; the file keeps their order.
        brief: keys of the columns of an excerpt in a terminal, in order; by default all. A p stands in the whole alone.
        whole: all lines, where these are an excerpt: by them it is decided which columns are shown.
    """

    name: str
    records: Sequence[Record]
    of: tuple[type[Row], ...]
    title: str = ""
    caption: str = ""
    marked: str = ""
    only_marked: str = ""
    hidden: frozenset[str] = frozenset()
    most: str = ""
    order: str = ""
    brief: tuple[str, ...] = ()
    whole: Sequence[Record] = ()

    @property
    def columns(self) -> tuple[Shown, ...]:
        """Every column that the classes declare; of dictionaries one for every key that a line has."""
        return tuple(shown for _, shown in self._sided())

    def _sided(self) -> Iterator[tuple[int, Shown]]:
        """Every column with the number of the row of a line that has it."""
        for side, row in enumerate(self.of):
            for shown in columns_of(row):
                if not shown.many:
                    yield side, shown
                    continue
                keys = dict.fromkeys(key for record in self.records for key in _at(record, side, shown.name) or ())
                for key in keys:
                    yield side, replace(shown, key=key, title=shown.title.format(key), many=False)

    @property
    def visible(self) -> tuple[Shown, ...]:
        """The columns of a page's table: those with a title and a value; labels only where they tell lines apart."""
        kept = []
        excerpt = self.brief if self.whole else ()
        for side, shown in self._sided():
            if not shown.title or shown.name in self.hidden or (excerpt and shown.key not in excerpt):
                continue
            values = [_at(record, side, shown.name) for record in self.whole or self.records]
            values = [value.get(shown.key) if isinstance(value, dict) else value for value in values]
            known = {str(value) for value in values if not _missing(value)}
            if known and not (shown.label and len(known) == 1 and len(values) > 1 and len(set(map(str, values))) == 1):
                kept.append(shown)
        return tuple(sorted(kept, key=lambda shown: excerpt.index(shown.key) if excerpt else not shown.label))

    @property
    def ordered(self) -> list[int]:
        """The places of the lines, in the order in which people see them."""
        places = range(len(self.records))
        return sorted(places, key=lambda at: value_of(self.records[at], self.order)) if self.order else list(places)

    def first(self, count: int, claimed: Sequence[Record] = ()) -> list[Record]:
        """An excerpt: what is claimed of before marked lines, and these before others, then those with the largest
        `most`; in the order of all.
        """
        if self.order:
            return [self.records[at] for at in self.ordered[:count]]

        def is_claimed(record: Record) -> bool:
            of_record = parts_of(record)
            return any(all(part in of_record for part in parts_of(each)) for each in claimed)

        def rank(at: int) -> tuple[bool, bool, float, int]:
            record = self.records[at]
            marked = bool(self.marked and value_of(record, self.marked))
            return not is_claimed(record), not marked, -value_of(record, self.most) if self.most else 0.0, at

        return [self.records[at] for at in sorted(sorted(range(len(self.records)), key=rank)[:count])]


def _at(record: Record, side: int, name: str) -> Any:
    """A field of one of the rows of a line; None where that row is missing."""
    return getattr(_sides(record)[side], name, None)


def _missing(value: Any) -> bool:
    return unknown(value.value) if isinstance(value, Estimate) else unknown(value) or value in ("", ())


def p_text(estimate: Estimate) -> str:
    """`corrected p .002`, `p .04`, or empty where there is no test."""
    if estimate.p_corrected is not None:
        return f"corrected p{wording.SPACE}{wording.p_value(estimate.p_corrected)}"
    return "" if estimate.p is None else f"p{wording.SPACE}{wording.p_value(estimate.p)}"


class Endings(Row):
    """How answers ended, as shares of them (`lesion.core.rates`).

    Attributes:
        truncated: at the token limit or in a loop; looped: the latter among them.
        unclosed: the thinking was never closed, so that there is no final answer.
        unparsed: of the others, no answer could be read.
        nonfinite: ended because logits were not finite.
    """

    truncated: float = column("Truncated", WHOLE_SHARE)
    looped: float = column("", WHOLE_SHARE, default=0.0)
    unclosed: float = column("", WHOLE_SHARE, default=0.0)
    unparsed: float = column("Unparsed", WHOLE_SHARE)
    nonfinite: float = column("", WHOLE_SHARE, default=0.0)
