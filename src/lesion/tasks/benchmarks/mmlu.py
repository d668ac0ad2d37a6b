"""MMLU: questions with four options from 57 subjects (Hendrycks et al. 2021)."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from lesion.errors import UsageError
from lesion.files import named, read_text
from lesion.tasks.benchmark import Choice, Hub
from lesion.tasks.source import SourceRow, identify
from lesion.tasks.task import Item

PARTS = ("_test", "_dev", "_val")
CELLS = 6


class Mmlu(Choice):
    """MMLU from the hub (the 14,042 questions of `test`) or from local files.

    Local are the CSV files of the original data, one a subject, rows of question, four options and the letter of the
    answer without a header (`marketing_test.csv`, of the subject marketing); a folder of them, of which every
    `*_test.csv` is read; or a JSON Lines, JSON or Parquet file with the fields of the hub: `question`, `subject`,
    `choices` and `answer`, a number from 0 or a letter.

    Form `letter` asks as lm-evaluation-harness does, form `text` as its "continuation" variant. No examples stand
    before the question in either. The group is the subject. A model is observed on the 1,816 questions of `validation`
    and `dev`; the hub's `auxiliary_train` comes from other examinations and names no subject.
    """

    title = "mmlu"
    shared = "subject"
    hub = Hub("cais/mmlu", "all", "test", ("validation", "dev"))

    @property
    def style(self) -> str:
        """`answer` for letters and `plain` for texts, the two prompts of lm-evaluation-harness."""
        return "answer" if self.setting == "letter" else "plain"

    def files(self, path: str) -> list[Path]:
        """The files that a path or a folder names, in the order of their names."""
        place = named(path, "path of mmlu")
        if not place.is_dir():
            return super().files(path)
        files = sorted(place.glob("*_test.csv"))
        if not files:
            raise UsageError(f"There is no file *_test.csv in the folder {path}; give a file of it.")
        return files

    def rows(self, file: Path) -> Iterable[SourceRow]:
        """The rows of a file in the fields of the hub."""
        return _csv_rows(file) if file.suffix == ".csv" else super().rows(file)

    def read(self, rows: Iterable[SourceRow]) -> Iterator[Item]:
        """The items of rows; ids count within the subject, so that the file of one subject has those of the hub."""
        counts: Counter[str] = Counter()
        for row in rows:
            question, subject = row.text("question"), row.text("subject")
            item = self.choice("", question, row, "choices", subject)
            identity = identify("\n".join((question, *item.metadata["options"])), counts[subject])
            counts[subject] += 1
            yield replace(item, id=f"{subject}-{identity}")

    def observed(self) -> Iterable[Item]:
        """What a model is observed on; ids say of which split."""
        for split in self.hub.pool:
            yield from (replace(item, id=f"{split}-{item.id}") for item in self.made(self.online(split)))


def _csv_rows(path: Path) -> Iterator[SourceRow]:
    # Every line break is part of a cell or ends a row as it stands.
    reader = csv.reader(io.StringIO(read_text(path, fault=UsageError), newline=""), strict=True)
    subject = path.stem
    for part in PARTS:
        subject = subject.removesuffix(part)
    empty = True
    try:
        for cells in filter(None, reader):
            where = f"{path}, line {reader.line_num}"
            if len(cells) != CELLS:
                raise UsageError(
                    f"{where}: there are {len(cells)} cells; a row of MMLU has {CELLS}: the question, four options and "
                    f"the letter of the answer."
                )
            question, *choices, answer = cells
            empty = False
            yield SourceRow({"question": question, "subject": subject, "choices": choices, "answer": answer}, where)
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: this is not CSV ({error}).") from error
    if empty:
        raise UsageError(f"{path} is empty; a task needs at least one item.")
