"""RACE: questions with options about passages from English examinations (Lai et al. 2017)."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lesion.errors import UsageError
from lesion.files import named, parse_json
from lesion.tasks import options
from lesion.tasks.options import Form, check_form
from lesion.tasks.source import Row, existing, fields_of, hub_rows, identify, local_rows, read_text, rows_of
from lesion.tasks.task import Answer, Item, Kind, Verdict

REPOSITORY = "ehovy/race"
ENDINGS = (".txt", ".json", ".jsonl")
LEVELS = ("high", "middle")
LONGEST_LITERAL = 1_000_000


@dataclass(frozen=True)
class Race:
    """RACE from the hub (`ehovy/race`, `high`, the 3,498 questions of `test`) or from local files.

    Local is a file or a folder, with all folders in it, of files `.txt`, `.json` or `.jsonl` that hold passages as
    the original data does: one JSON object `{"id", "article", "questions": […], "options": [[…], …], "answers":
    ["A", …]}` a file, a list of them, or one a line. The rows of the hub are read from a local file too, one question
    each (`ehovy/race`) or one passage with its `problems` (`EleutherAI/race`, the last questions of whose passages
    lm-evaluation-harness asks, after the others with their answers).

    Every question is an item, and is asked alone: "Article: …", "Question: …", "Answer:". A blank that an option is
    to fill, written `_`, stays as it is. The form is part of the name. `letter` shows the options behind letters and
    scores the letters; `text` scores the options, as lm-evaluation-harness does. The group is `high` or `middle`
    where the id or the folder says so.

    Raises:
        UsageError: there is no such form.
    """

    path: str | None = None
    form: Form = "letter"
    kind: Kind = "choose"
    max_new_tokens: int = 1
    stop: tuple[str, ...] = ()
    style: str = "answer"

    def __post_init__(self) -> None:
        check_form(self.form, "race")

    @property
    def name(self) -> str:
        """`race`, with `:PATH` for local files and `?form=text` when the options are scored."""
        path = "" if self.path is None else f":{self.path}"
        return f"race{path}" + ("" if self.form == "letter" else f"?form={self.form}")

    @property
    def subject(self) -> str:
        """What instructions are written for: `letter`, or nothing."""
        return "letter" if self.form == "letter" else ""

    def load(self) -> Sequence[Item]:
        """Every question, in the order of the files and passages.

        Raises:
            LesionError: the hub cannot be reached.
            UsageError: a local file cannot be read, or a passage is malformed; with the passage.
        """
        return self._items

    def calibration(self) -> Sequence[Item]:
        """From the hub, the questions of `train`; else `load()`."""
        return self._pool if self.path is None else self._items

    @cached_property
    @rows_of
    def _items(self) -> tuple[Item, ...]:
        return self._read(_hub(self.name, "test") if self.path is None else _local(self.path))

    @cached_property
    def _pool(self) -> tuple[Item, ...]:
        return self._read(_hub(self.name, "train"))

    def _read(self, rows: Iterable[tuple[str, str, Row]]) -> tuple[Item, ...]:
        items: list[Item] = []
        counts: Counter[str] = Counter()
        articles: dict[str, tuple[str, str]] = {}
        for where, level, row in rows:
            article = options.text(_need(row, ("article",), where), "article", where)
            problems = _problems(row, where)
            identity = str(row.get("id") or row.get("example_id") or identify(article, len(articles)))
            known, first = articles.setdefault(identity, (article, where))
            # Questions of one passage may be rows of their own, but whole passages stand once.
            if known != article or (counts[identity] and "question" not in row):
                raise UsageError(f"{where}: the passage {identity} was there before: {first}; ids must be unique.")
            group = next((name for name in LEVELS if identity.startswith(name)), level)
            for question, there, answer, place in problems:
                asked = options.text(question, "question", place)
                chosen_among, right = options.check(there, answer, self.form, place)
                number = counts[identity]
                counts[identity] += 1
                items.append(
                    options.item(
                        f"{identity}:{number}",
                        f"Article: {article}\n\nQuestion: {asked}",
                        chosen_among,
                        right,
                        self.form,
                        group,
                        {"passage": identity},
                    )
                )
        return tuple(items)

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the right option was chosen."""
        return options.verdict(item, answer)


def _hub(name: str, split: str) -> Iterable[tuple[str, str, Row]]:
    rows = hub_rows("race", REPOSITORY, "high", split)
    return ((f"Row {index} of {name}", "high", row) for index, row in enumerate(rows))


def files(path: str) -> list[Path]:
    """The files that a path or a folder names, in the order of their names.

    Raises:
        UsageError: there are none.
    """
    place = named(path, "path of race")
    if not place.is_dir():
        return [existing(path)]
    found = sorted(file for file in place.rglob("*") if file.suffix in ENDINGS and file.is_file())
    if not found:
        raise UsageError(f"There is no file {', '.join('*' + ending for ending in ENDINGS)} in the folder {path}.")
    return found


def _local(path: str) -> Iterable[tuple[str, str, Row]]:
    for file in files(path):
        level = next((name for name in LEVELS if name == file.parent.name), "")
        rows = local_rows(file) if file.suffix == ".parquet" else _passages(file)
        for index, row in enumerate(rows):
            yield f"{file}, row {index}" if len(rows) > 1 else str(file), level, row


def _passages(file: Path) -> list[Row]:
    """The objects of a file that holds one, a list of them, or one a line."""
    try:
        value = parse_json(read_text(file), str(file), fault=UsageError, halves=True)
    except UsageError:
        return local_rows(file)  # one a line, or not JSON, which is told with its line
    rows = value if isinstance(value, list) else [value]
    if not rows:
        raise UsageError(f"{file} is empty; a task needs at least one item.")
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            raise UsageError(f"{file}, row {index}: this is not a JSON object with a passage and its questions.")
    return rows


def _need(row: Row, fields: Sequence[str], where: str) -> Any:
    for field in fields:
        if field not in row:
            raise UsageError(
                f"{where}: there is no field '{field}'; there are {fields_of(row)}. A passage has "
                f"'article', 'questions', 'options' and 'answers'."
            )
    return row[fields[0]]


def _problems(row: Row, where: str) -> list[tuple[Any, Any, Any, str]]:
    """Question, options, answer and the place for errors, of each question of a row in any of its forms."""
    if "question" in row:
        _need(row, ("question", "options", "answer"), where)
        return [(row["question"], row["options"], row["answer"], where)]
    if "problems" in row:
        problems = _literal(row["problems"], where)
        for problem in problems:
            _need(problem, ("question", "options", "answer"), where)
        columns = tuple([problem[field] for problem in problems] for field in ("question", "options", "answer"))
    else:
        _need(row, ("questions", "options", "answers"), where)
        columns = tuple(row[field] for field in ("questions", "options", "answers"))
        for field, column in zip(("questions", "options", "answers"), columns, strict=True):
            if not isinstance(column, list):
                raise UsageError(f"{where}: '{field}' must be a list with an entry for each question.")
        if len({len(column) for column in columns}) > 1:
            questions, there, answers = map(len, columns)
            raise UsageError(
                f"{where}: there are {questions} questions, options for {there} and {answers} answers; there must be "
                f"as many of each."
            )
    if not columns[0]:
        raise UsageError(f"{where}: the passage has no questions.")
    return [(*problem, f"{where}, question {number}") for number, problem in enumerate(zip(*columns, strict=True))]


def _literal(problems: Any, where: str) -> list[dict[str, Any]]:
    """The problems of a passage, which `EleutherAI/race` keeps as the text of a Python literal."""
    if isinstance(problems, str) and len(problems) <= LONGEST_LITERAL:
        try:
            problems = ast.literal_eval(problems)
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise UsageError(f"{where}: 'problems' is no list of questions.") from error
    if not isinstance(problems, list) or not all(isinstance(problem, dict) for problem in problems):
        raise UsageError(f"{where}: 'problems' is no list of questions.")
    return problems
