"""MMLU: questions with four options from 57 subjects (Hendrycks et al. 2021)."""

from __future__ import annotations

import csv
import glob
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from lesion.errors import UsageError
from lesion.files import named
from lesion.tasks import options
from lesion.tasks.options import Form, check_form
from lesion.tasks.source import Row, existing, hub_rows, identify, local_rows, need, read_text, rows_of
from lesion.tasks.task import Answer, Item, Kind, Verdict

REPOSITORY = "cais/mmlu"
PARTS = ("_test", "_dev", "_val")
CELLS = 6


@dataclass(frozen=True)
class Mmlu:
    """MMLU from the hub (`cais/mmlu`, `all`, the 14,042 questions of `test`) or from local files.

    Local are the CSV files of the original data, one a subject, rows of question, four options and the letter of the
    answer without a header (`marketing_test.csv`, of the subject marketing); a folder of them, of which every
    `*_test.csv` is read; a pattern such as `data/*_dev.csv`; or JSON Lines, JSON or Parquet files with the fields of
    the hub: `question`, `subject`, `choices` and `answer`, a number from 0 or a letter.

    The form is part of the name. `letter` asks as lm-evaluation-harness does: the question, lettered options,
    "Answer:", and the most likely letter is the answer. `text` is its "continuation" variant: "Question: …",
    "Answer:", and the option with the highest summed log-probability is the answer. No examples stand before the
    question in either. The group is the subject.

    Raises:
        UsageError: there is no such form.
    """

    path: str | None = None
    form: Form = "letter"
    kind: Kind = "choose"
    max_new_tokens: int = 1
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_form(self.form, "mmlu")

    @property
    def name(self) -> str:
        """`mmlu`, with `:PATH` for local files and `?form=text` when the options are scored."""
        path = "" if self.path is None else f":{self.path}"
        return f"mmlu{path}" + ("" if self.form == "letter" else f"?form={self.form}")

    @property
    def style(self) -> str:
        """`answer` for letters and `plain` for texts, the two prompts of lm-evaluation-harness."""
        return "answer" if self.form == "letter" else "plain"

    @property
    def subject(self) -> str:
        """What instructions are written for: `letter`, or nothing."""
        return "letter" if self.form == "letter" else ""

    def load(self) -> Sequence[Item]:
        """Every question, in the order of the files.

        Raises:
            LesionError: the hub cannot be reached.
            UsageError: a local file cannot be read, or a row is malformed; with the row.
        """
        return self._items

    def calibration(self) -> Sequence[Item]:
        """From the hub, the 1,816 questions of `validation` and `dev`, in the subjects of the test; else `load()`.

        The hub's `auxiliary_train` comes from other examinations and names no subject.
        """
        return self._pool if self.path is None else self._items

    @cached_property
    @rows_of
    def _items(self) -> tuple[Item, ...]:
        return self._read(self._hub("test") if self.path is None else self._local(self.path))

    @cached_property
    def _pool(self) -> tuple[Item, ...]:
        return tuple(
            replace(item, id=f"{split}-{item.id}")
            for split in ("validation", "dev")
            for item in self._read(self._hub(split))
        )

    def _hub(self, split: str) -> Iterable[tuple[str, Row]]:
        rows = hub_rows("mmlu", REPOSITORY, "all", split)
        return ((f"Row {index} of {self.name}", row) for index, row in enumerate(rows))

    def _local(self, path: str) -> Iterable[tuple[str, Row]]:
        for file in files(path):
            if file.suffix == ".csv":
                yield from csv_rows(file)
            else:
                yield from ((f"Row {index} of {file}", row) for index, row in enumerate(local_rows(file)))

    def _read(self, rows: Iterable[tuple[str, Row]]) -> tuple[Item, ...]:
        items: list[Item] = []
        counts: Counter[str] = Counter()
        for where, row in rows:
            asked, subject, there, answer = (
                need(row, field, self.name, len(items)) for field in ("question", "subject", "choices", "answer")
            )
            question = options.text(asked, "question", where)
            subject = options.text(subject, "subject", where)
            chosen_among, place = options.check(there, answer, self.form, where)
            # Counted within the subject, so that a file of one subject and the hub's file of all give the same ids.
            identity = identify("\n".join((question, *chosen_among)), counts[subject])
            counts[subject] += 1
            items.append(options.item(f"{subject}-{identity}", question, chosen_among, place, self.form, group=subject))
        return tuple(items)

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the right option was chosen."""
        return options.verdict(item, answer)


def files(path: str) -> list[Path]:
    """The files that a path, a folder or a pattern names, in the order of their names.

    Raises:
        UsageError: there are none.
    """
    place = named(path, "path of mmlu")
    if place.is_dir():
        found = sorted(place.glob("*_test.csv"))
        if not found:
            raise UsageError(
                f"There is no file *_test.csv in the folder {path}; give a file of it, or a pattern: "
                f"'mmlu:{place / '*.csv'}'."
            )
        return found
    if not place.exists() and glob.has_magic(path):
        found = [Path(name) for name in sorted(glob.glob(str(place))) if Path(name).is_file()]
        if not found:
            raise UsageError(f"There is no file that the pattern {path} describes.")
        return found
    return [existing(path)]


def csv_rows(path: Path) -> Iterable[tuple[str, Row]]:
    """File and line, and the row in the fields of the hub, for each row of one of the original CSV files.

    Raises:
        UsageError: the file is empty or no CSV, or a row has not six cells; with the line.
    """
    # Every line break is part of a cell or ends a row as it stands.
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    subject = path.stem
    for part in PARTS:
        subject = subject.removesuffix(part)
    any_row = False
    try:
        for cells in reader:
            where = f"{path}, line {reader.line_num}"
            if not cells:
                continue
            if len(cells) != CELLS:
                raise UsageError(
                    f"{where}: there are {len(cells)} cells; a row of MMLU has {CELLS}: the question, four options and "
                    f"the letter of the answer."
                )
            question, *choices, answer = cells
            any_row = True
            yield where, {"question": question, "subject": subject, "choices": choices, "answer": answer}
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: this is not CSV ({error}).") from error
    if not any_row:
        raise UsageError(f"{path} is empty; a task needs at least one item.")
