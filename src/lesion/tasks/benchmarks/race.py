"""RACE: questions with options about passages from English examinations (Lai et al. 2017)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from lesion.errors import UsageError
from lesion.files import named
from lesion.tasks.benchmark import Choice, Hub
from lesion.tasks.source import SourceRow, identify
from lesion.tasks.task import Item

ENDINGS = (".txt", ".json", ".jsonl")
LEVELS = ("high", "middle")
COLUMNS = {"questions": "question", "options": "options", "answers": "answer"}


class Race(Choice):
    """RACE from the hub (the 3,498 questions of `high`, `test`) or from local files.

    Local is a file or a folder, with all folders in it, of files `.txt`, `.json` or `.jsonl` that hold passages as
    the original data does: one JSON object `{"id", "article", "questions": […], "options": [[…], …], "answers":
    ["A", …]}` a file, a list of them, or one a line. The rows of the hub are read from a local file too, one question
    each.

    Every question is an item, and is asked alone: "Article: …", "Question: …", "Answer:". A blank that an option is
    to fill, written `_`, stays as it is. lm-evaluation-harness scores as form `text` does. The group is `high` or
    `middle` where the id or the folder says so.
    """

    title = "race"
    hub = Hub("ehovy/race", "high", "test", ("train",))
    style = "answer"

    def files(self, path: str) -> list[Path]:
        """The files that a path or a folder names, in the order of their names."""
        place = named(path, "path of race")
        if not place.is_dir():
            return super().files(path)
        files = sorted(file for file in place.rglob("*") if file.suffix in ENDINGS and file.is_file())
        if not files:
            raise UsageError(f"There is no file {', '.join('*' + ending for ending in ENDINGS)} in the folder {path}.")
        return files

    def rows(self, file: Path) -> Iterator[SourceRow]:
        """The rows of a file, each with the level that the folder says."""
        level = file.parent.name if file.parent.name in LEVELS else ""
        return (replace(row, group=level) for row in super().rows(file))

    def read(self, rows: Iterable[SourceRow]) -> Iterator[Item]:
        """The questions of all passages."""
        counts: Counter[str] = Counter()
        articles: dict[str, tuple[str, str]] = {}
        for row in rows:
            article = row.text("article")
            questions = _questions(row)
            passage = str(row.fields.get("id") or row.fields.get("example_id") or identify(article, len(articles)))
            known, first = articles.setdefault(passage, (article, row.where))
            # Questions of one passage may be rows of their own, but whole passages stand once.
            if known != article or (counts[passage] and "question" not in row):
                raise row.fault(f"the passage {passage} was there before: {first}; ids must be unique.")
            group = next((level for level in LEVELS if passage.startswith(level)), row.group)
            for question in questions:
                yield self.choice(
                    f"{passage}:{counts[passage]}",
                    f"Article: {article}\n\nQuestion: {question.text('question')}",
                    question,
                    "options",
                    group,
                    passage=passage,
                )
                counts[passage] += 1


def _questions(row: SourceRow) -> list[SourceRow]:
    """Every question of a row in either form, with `question`, `options` and `answer`."""
    if "question" in row:
        return [row]
    columns = {field: row[field] for field in COLUMNS}
    for field, column in columns.items():
        if not isinstance(column, list):
            raise row.fault(f"'{field}' must be a list with an entry for each question.")
    lengths = [len(column) for column in columns.values()]
    if len({*lengths}) > 1:
        raise row.fault(
            f"there are {lengths[0]} questions, options for {lengths[1]} and {lengths[2]} answers; there must be "
            f"as many of each."
        )
    problems = [dict(zip(COLUMNS.values(), entries, strict=True)) for entries in zip(*columns.values(), strict=True)]
    if not problems:
        raise row.fault("the passage has no questions.")
    return [SourceRow(problem, f"{row.where}, question {number}") for number, problem in enumerate(problems)]
