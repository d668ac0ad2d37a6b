"""Question files: rows of JSON Lines, a JSON list, CSV or Parquet, each also packed with gzip, and their fields."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
import math
import re
import string
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import Any

from lesion import files
from lesion.errors import UsageError
from lesion.plain import short
from lesion.tasks.judges.notation import WORDS, superscripts
from lesion.tasks.source import Fields, SourceRow

_ARROW = {"halffloat": "float16", "float": "float32", "double": "float64"}
_WHOLE = re.compile(r"[0-9]{1,9}")
_WORD = re.compile(r"(?P<number>(?<![\d/^])(?<!\^{)(?:(?<!\w)[-+−])?\d+(?:[.,:/⁄^×*–−-]\d+)*)|[^\W\d_]+")
_MARK, _JOINED = re.compile(r"\s*(?:[^\w\s]|_|\Z)"), re.compile(r"\s+(?:and|or)\b")
_NUMERALS = (
    WORDS["numerals"]["ones"],
    ["", *WORDS["numerals"]["ranks"]],
    ["", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x"],
)


class Number(str):
    """A number in the form it was written; it may be the index of a choice."""


def float_type(dtype: Any) -> Callable[[float], object] | None:
    """The numpy type of the floating-point numbers of a column or array, also in lists and categories; None: none."""
    import numpy as np  # whoever looks for a task by its name need not wait for it

    dtype = getattr(getattr(dtype, "categories", None), "dtype", dtype)
    dtype = getattr(dtype, "pyarrow_dtype", dtype)
    while hasattr(dtype, "value_type"):
        dtype = dtype.value_type
    dtype = np.dtype(_ARROW[str(dtype)]) if str(dtype) in _ARROW else dtype
    return dtype.type if getattr(dtype, "kind", "") == "f" else None


def field_value(value: Any, name: str, where: str, *, floats: Callable[[float], object] | None = None) -> Any:
    """A Python, numpy or pandas value as JSON Lines would have it: numbers as `Number`, arrays as lists.

    `floats` is the `float_type` of the column, whose numbers have lost their form: 4.0 is 4, and 0.1 of 32 bits is 0.1.
    """
    if hasattr(value, "tolist") and value.ndim:
        floats, value = floats or float_type(value.dtype), value.tolist()
    if isinstance(value, list | tuple):
        return [field_value(each, name, where, floats=floats) for each in value]
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta) or "datetime64" in type(value).__name__:
        raise UsageError(f"{where}: '{name}' is a date or a time; give it as a text, in the form that answers have.")
    written = str(value) if hasattr(value, "dtype") else None
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, bool) or not isinstance(plain, int | float | Decimal):
        return plain
    if not isinstance(plain, int) and not math.isfinite(plain):
        raise UsageError(f"{where}: '{name}' is {plain}, not a finite number; give a text.")
    if floats is not None and isinstance(plain, float):
        whole = plain.is_integer() and abs(plain) < 2**53
        return Number(int(plain) if whole else floats(plain))  # the text of 32 bits is shorter
    try:
        return Number(written or plain)
    except ValueError:  # thousands of digits
        raise UsageError(f"{where}: '{name}' is a number of thousands of digits; give it as a text.") from None


def plain(value: Any) -> Any:
    """What stands in a row with its numbers as Python's, not as they were written."""
    if isinstance(value, Number):
        return json.loads(value)
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    number = value.item() if hasattr(value, "item") and not value.ndim else value
    return isinstance(number, float) and math.isnan(number)


def chosen(answer: str, choices: Sequence[str], where: str) -> str:
    """The choice that an answer names, by its text or else by its place; an answer that names none is returned.

    A number counts from 0; a capital letter from A, where no choice is that letter, capital or not.
    """
    place, start = None, "0"
    if isinstance(answer, Number) and _WHOLE.fullmatch(answer):
        place = int(answer)
    elif len(answer) == 1 and answer in string.ascii_uppercase and answer.lower() not in map(str.lower, choices):
        place, start = string.ascii_uppercase.index(answer), "A"
    if place is None or place >= len(choices):
        return str(answer)
    alike = next((choice for choice in choices if choice != choices[place] and _reads_like(choice, answer)), None)
    if alike is not None:
        raise UsageError(
            f"{where}: the answer {short(answer)} may be the choice '{short(alike)}' or the place of"
            f" '{short(choices[place])}' among the choices, counted from {start}; give the right choice as a text in"
            " quotation marks, letter for letter."
        )
    return choices[place]


def _reads_like(choice: str, answer: str) -> bool:
    """Whether a choice may be meant by a whole number or a letter.

    It is where the first number of its first three words is this, or it has this as a word: before a mark or the end
    (`B: x`, `plan B`), at its beginning (`B flat`; but `A dog` and `I am` are sentences), or a number among at most
    three words (`two cm`).
    """
    text = unicodedata.normalize("NFKC", superscripts(choice)).casefold()
    words = list(islice(_WORD.finditer(text), 4))
    counted, names = answer.isdecimal(), [answer.lower()]
    if counted:
        names = [numerals[int(answer)] for numerals in _NUMERALS if int(answer) < len(numerals)]
    for place, word in enumerate(words[: 3 if counted else 2]):
        if _JOINED.match(text, word.end()):
            return False
        if counted and word["number"]:
            return _same_number(word[0], answer)
        near = len(words) <= 3 if counted else place == 0
        if word[0] in names and (_MARK.match(text, word.end()) or (near and word[0] not in ("a", "i"))):
            return True
    return False


def _same_number(text: str, answer: str) -> bool:
    try:
        return Decimal(text) == Decimal(answer)
    except InvalidOperation:
        return False


ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
MOST_BYTES = 256 << 20
"""Of a file, packed and unpacked."""
MOST_ROWS = 300_000
LISTS = ("choices", "aliases", "stop")
"""Fields that hold a list; one text may stand alone in the last."""
EXAMPLE = '{"prompt": "2 + 2 =", "answer": "4"}'

_PACKED = ".gz"
_MAGIC = b"\x1f\x8b"
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_LIST = re.compile(r"""\s*(?:\[\s*["'\]0-9]|".+"\s*\Z)""", re.DOTALL)  # also one in Python's notation, to be refused


def is_question_file(name: str) -> bool:
    """Whether a name ends as that of a question file does."""
    return name.lower().removesuffix(_PACKED).endswith(ENDINGS)


def read_rows(path: Path) -> list[tuple[int, SourceRow]]:
    """The rows of a question file, numbered as their messages and ids do: lines of JSON Lines, else from 1."""
    data = _unpacked(path, files.read_bytes(path, limit=MOST_BYTES, fault=UsageError))
    ending = Path(path.name.lower().removesuffix(_PACKED)).suffix
    if ending == ".parquet":
        return _parquet(data, str(path))
    text = files.decoded(data, path, UsageError)
    return list(_csv(text, str(path), ending) if ending in (".csv", ".tsv") else json_rows(text, str(path)))


def json_rows(text: str, file: str) -> Iterator[tuple[int, SourceRow]]:
    """The rows of JSON: a list of objects, one object, or one a line; numbers stay as they are written."""
    start = text.lstrip()[:1]
    if start == "[":
        values = _parse(text, file, 1, file)
        if not isinstance(values, list):
            raise UsageError(f"{file}: this is not a list of JSON objects.")
        _refuse_many(len(values), file)
        for number, value in enumerate(values, start=1):
            yield number, SourceRow(_object(value, f"{file}, item {number}"), f"{file}, item {number}")
        return
    lines = text.split("\n")
    written = sum(map(bool, map(str.strip, lines)))
    if written > 1 and lines[0].strip() == "{":  # one object over several lines
        yield 1, SourceRow(_object(_parse(text, file, 1, file), file), file)
        return
    _refuse_many(written, file)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{file}, line {number}"
            yield number, SourceRow(_object(_parse(line, file, number, where), where), where)


def _unpacked(path: Path, data: bytes) -> bytes:
    if not data.startswith(_MAGIC):
        if path.name.lower().endswith(_PACKED) and data:
            raise UsageError(f"{path} is not packed with gzip, though its name ends in {_PACKED}; rename the file.")
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} cannot be unpacked: {files.reason(error)}. Pack or download it again.") from error
    if len(unpacked) > MOST_BYTES:
        raise UsageError(f"{path} unpacks to more than {MOST_BYTES:,} bytes; at most that many are read. Take a part.")
    return unpacked


def _refuse_many(rows: int, file: str) -> None:
    if rows > MOST_ROWS:
        raise UsageError(f"{file} has {rows:,} questions; at most {MOST_ROWS:,} are read. Take a part of the file.")


def _parse(text: str, file: str, line: int, where: str) -> Any:
    def once(pairs: list[tuple[str, object]]) -> Fields:
        row = dict(pairs)
        if len(row) < len(pairs):
            raise UsageError(f"{where}: the field '{short(_twice([name for name, _ in pairs]))}' stands twice.")
        return row

    def refuse(constant: str) -> object:
        raise UsageError(f"{where}: {constant} is not JSON; write it as a text in quotation marks.")

    # Numbers keep the form they were written in: 1.50 stays "1.50".
    return files.parse_json(
        text, file, fault=UsageError, line=line, halves=True, pairs=once, parse_int=Number, parse_float=Number,
        parse_constant=refuse,
    )  # fmt: skip


def _object(value: Any, where: str) -> Fields:
    if not isinstance(value, dict):
        raise UsageError(f"{where}: this is not a JSON object but {files.kind(value)}; an item looks like {EXAMPLE}.")
    return value


def _csv(text: str, file: str, ending: str) -> Iterator[tuple[int, SourceRow]]:
    """The rows of a table; an empty cell is absent, and lists are JSON lists."""
    head = text.lstrip("\n\r").split("\n", 1)[0]
    delimiter = "\t" if ending == ".tsv" else max(_DELIMITERS, key=head.count)
    limit = csv.field_size_limit(MOST_BYTES)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        names = next((row for row in reader if any(row)), [])
        names = [name.strip() for name in names]
        if names and not {"prompt", "answer"} <= set(names):
            listed = ", ".join(f"'{short(name, 40)}'" for name in names[:20])
            raise UsageError(
                f"{file}: the first line of a table names its columns, 'prompt' and 'answer' among them, parted by"
                f" {_DELIMITERS[delimiter]} here; there are {listed}."
            )
        if len(set(names)) < len(names):
            raise UsageError(f"{file}: the column '{short(_twice(names))}' stands twice.")
        number = 0
        for cells in reader:
            if not any(cells):
                continue
            number += 1
            where = f"{file}, row {number} (line {reader.line_num})"
            _refuse_many(number, file)
            if len(cells) != len(names):
                raise UsageError(
                    f"{where}: there are {len(cells)} cells for {len(names)} columns; put a text that holds"
                    f" {_DELIMITERS[delimiter]} into quotation marks."
                )
            row = dict(zip(names, cells, strict=True))
            filled = {name: cell for name, cell in row.items() if cell.strip() or (cell and name == "stop")}
            yield number, SourceRow({name: _cell(name, cell, where) for name, cell in filled.items()}, where)
    except csv.Error as error:
        raise UsageError(f"{file}, line {reader.line_num}: this is not a table ({error}).") from error
    finally:
        csv.field_size_limit(limit)


def _cell(name: str, cell: str, where: str) -> Any:
    if name == "stop" and not _LIST.match(cell):
        return cell.replace("\\n", "\n")  # as after --stop
    if name in LISTS:
        try:
            return json.loads(cell, parse_int=Number, parse_float=Number)
        except (ValueError, RecursionError):
            raise UsageError(f'{where}: \'{name}\' in a table is a JSON list, ["3", "4"] for example.') from None
    return Number(cell) if cell.isascii() and cell.isdigit() and str(int(cell[:9])) == cell else cell


def _parquet(data: bytes, file: str) -> list[tuple[int, SourceRow]]:
    import pyarrow.parquet

    try:
        source = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(data))
        about = source.metadata
        _refuse_many(about.num_rows, file)
        size = sum(about.row_group(group).total_byte_size for group in range(about.num_row_groups))
        if size > MOST_BYTES:
            raise UsageError(f"{file} unpacks to {size:,} bytes; at most {MOST_BYTES:,} are read. Take a part of it.")
        names = source.schema_arrow.names
        if len(set(names)) < len(names):
            raise UsageError(f"{file}: the column '{short(_twice(names))}' stands twice.")
        table = source.read()
        floats = {field.name: float_type(field.type) for field in table.schema}
        records = table.to_pylist()
    except UsageError:
        raise
    except Exception as error:  # pyarrow has many ways to say that a file is damaged
        raise UsageError(f"{file} cannot be read as Parquet: {files.reason(error)}.") from error
    return [(number, record_row(record, f"{file}, row {number}", floats)) for number, record in enumerate(records, 1)]


def record_row(record: dict[Any, Any], where: str, floats: Mapping[str, Any]) -> SourceRow:
    """A row of Python values; a missing value is an absent field."""
    present = {str(name): value for name, value in record.items() if not is_missing(value)}
    return SourceRow(
        {key: field_value(value, key, where, floats=floats.get(key)) for key, value in present.items()}, where
    )


def _twice(names: Sequence[str]) -> str:
    return next(name for name, count in Counter(names).items() if count > 1)
