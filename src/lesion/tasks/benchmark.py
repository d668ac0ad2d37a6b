"""Benchmarks: what all tasks on rows of a data set share. Each is one file in `benchmarks/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import ascii_uppercase
from typing import ClassVar

from lesion import files
from lesion.errors import LesionError, UsageError, nearest
from lesion.plain import short
from lesion.tasks.judges import judge
from lesion.tasks.question_files import plain, read_rows
from lesion.tasks.source import SourceRow, hub_rows, whole
from lesion.tasks.task import Answer, Item, Kind, Verdict

NEXT_QUESTION = ("\nQuestion:", "\nQ:", "\nProblem:", "\nUser:", "\nHuman:")
"""Where a base model starts to write itself a next question."""


@dataclass(frozen=True)
class Hub:
    """A data set on the hub.

    Attributes:
        repository: id of the data set.
        subset: name of the configuration, or None when there is only one.
        split: what is asked.
        pool: what a model is observed on; none: what is asked.
    """

    repository: str
    subset: str | None
    split: str
    pool: tuple[str, ...] = ()


@dataclass(frozen=True)
class Benchmark(ABC):
    """A task whose items are rows of a data set, from the hub or from local files of the same form.

    A new benchmark is a subclass in a file of its own in `benchmarks/`. It declares the class variables that differ.
    Most are of a kind that is here already (`Mathematics`, `Trivia`, `Choice`, `Contrast`), and write `item` only.

    Args:
        path: a local file; None: the hub.
        setting: what stands behind the `?` of the name, `exact` in `triviaqa?rule=exact`; None: the default.
    """

    path: str | None = None
    setting: str | None = None

    title: ClassVar[str]
    hub: ClassVar[Hub]
    option: ClassVar[str] = ""
    """What may stand behind the `?` of the name."""
    settings: ClassVar[tuple[str, ...]] = ("",)
    """What the option may be, the default first."""
    kind: ClassVar[Kind] = "generate"
    max_new_tokens: ClassVar[int] = 1
    stop: ClassVar[tuple[str, ...]] = ()
    shared: ClassVar[str] = ""
    """What items of one cluster share, in a word; "" where groups are no clusters (`tasks.item_clusters`)."""

    def __post_init__(self) -> None:
        if self.setting is None:
            object.__setattr__(self, "setting", self.settings[0])
        self.check(str(self.setting))

    def check(self, setting: str) -> None:
        """Refuse a setting that there is none of."""
        if setting not in self.settings:
            raise UsageError(
                f"There is no {self.option} '{setting}' for {self.title}{nearest(setting, self.settings)}; "
                f"there are {', '.join(self.settings)}."
            )

    @property
    def name(self) -> str:
        """The title, with `:PATH` for a local file and `?OPTION=SETTING` where that is not the default."""
        place = "" if self.path is None else f":{self.path}"
        return f"{self.title}{place}" + ("" if self.setting == self.settings[0] else f"?{self.option}={self.setting}")

    @property
    def style(self) -> str:
        """The prompt style."""
        return "auto"

    @property
    def subject(self) -> str:
        """What instructions are written for; "" for none."""
        return ""

    def load(self) -> Sequence[Item]:
        """Every item, in the order of the data set."""
        return self._items

    def calibration(self) -> Sequence[Item]:
        """Without a path, items of other splits where there are some; else `load()`."""
        return self._pool

    @classmethod
    def cluster(cls, question: str, gold: str, group: str) -> str:
        """The cluster of an item, from what a store keeps of it: its group."""
        return group

    @abstractmethod
    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer is right."""

    @abstractmethod
    def read(self, rows: Iterable[SourceRow]) -> Iterable[Item]:
        """The items of rows; it raises `UsageError` where a row is malformed."""

    def files(self, path: str) -> list[Path]:
        """The local files that a path names; it raises `UsageError` where there are none."""
        return [files.existing(path)]

    def rows(self, file: Path) -> Iterable[SourceRow]:
        """The rows of a local file: Parquet; or JSON, one object, a list of them, or one a line."""
        rows = read_rows(file)
        if not rows:
            raise UsageError(f"{file} is empty; a task needs at least one item.")
        return (SourceRow(plain(row.fields), f"{file}, row {index}") for index, (_, row) in enumerate(rows))

    def evaluated(self) -> Iterable[Item]:
        """The items that are evaluated without a path."""
        return self.made(self.online(self.hub.split))

    def observed(self) -> Iterable[Item]:
        """What a model is observed on without a path."""
        return [item for split in self.hub.pool for item in self.made(self.online(split))] or self._items

    def made(self, rows: Iterable[SourceRow]) -> tuple[Item, ...]:
        """The items of rows, checked."""
        try:
            items = tuple(self.read(rows))
            for index, item in enumerate(items):
                for text in (item.id, item.question, item.gold, item.solution, item.group, *item.aliases):
                    whole(text, short(text), f"Item {index} of {self.name}")
            return items
        except LesionError:
            raise
        except files.UNFIT as error:
            raise UsageError(
                f"The rows of {short(self.name, 300)} do not have the form of this task ({files.reason(error)})."
                " Is this the file of another data set?"
            ) from error

    @cached_property
    def _items(self) -> tuple[Item, ...]:
        if self.path is None:
            return tuple(self.evaluated())
        return self.made(row for file in self.files(self.path) for row in self.rows(file))

    @cached_property
    def _pool(self) -> tuple[Item, ...]:
        return tuple(self.observed()) if self.path is None else self._items

    def online(self, split: str) -> Iterable[SourceRow]:
        """The rows of a split of the hub."""
        rows = hub_rows(self.title, self.hub.repository, self.hub.subset, split)
        group = self.hub.subset or ""
        return (SourceRow(fields, f"SourceRow {index} of {self.name}", group) for index, fields in enumerate(rows))


class OneARow(Benchmark):
    """A benchmark in which every row is an item."""

    @abstractmethod
    def item(self, row: SourceRow, index: int) -> Item:
        """The item of a row; it raises `UsageError` where the row is malformed."""

    def read(self, rows: Iterable[SourceRow]) -> Iterable[Item]:
        """The item of each row; it raises `UsageError` where a row is malformed, or two have the same id."""
        places: dict[str, str] = {}
        for index, row in enumerate(rows):
            item = self.item(row, index)
            if item.id in places:
                raise row.fault(f"the id '{short(item.id)}' is that of {places[item.id]}; ids must be unique.")
            places[item.id] = row.where
            yield item


class Mathematics(OneARow):
    """Problems whose answer is a number or a formula, judged by `judge.math`."""

    stop = NEXT_QUESTION
    subject = "math"
    judged_by = "math"

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the expression that the answer arrives at equals the gold answer."""
        if answer.finish == "nonfinite":
            return judge.UNREAD
        return judge.math(answer.text, item.gold, item.aliases, complete=answer.finish == "stop")


class Trivia(OneARow):
    """Closed-book questions with several right answers, judged by the rule of `judge.aliases` that the name has.

    32 new tokens are a short sentence. An answer ends at a next question or an empty line.
    """

    option = "rule"
    settings = judge.RULES
    max_new_tokens = 32
    stop = (*NEXT_QUESTION, "\n\n")
    subject = "trivia"

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer names the gold answer or an alias, by the task's rule."""
        if answer.finish == "nonfinite":
            return judge.UNREAD
        return judge.aliases(answer.text, item.gold, item.aliases, str(self.setting))


class Choice(Benchmark):
    """Questions with options. The form in which they are asked is part of the name.

    In form `letter` the question of an item is the question and a line `A. …` for each option, and the choices are the
    letters, as lm-evaluation-harness asks MMLU. In form `text` it is the question alone, and the choices are the
    options, white space around them removed; two options of the same text are one answer, and both are right when one
    is. The options as they stand in the data, and the right letter, are in the metadata of either form.
    """

    option = "form"
    settings = ("letter", "text")
    kind = "choose"

    @property
    def subject(self) -> str:
        """What instructions are written for: `letter`, or nothing."""
        return "letter" if self.setting == "letter" else ""

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the right option was chosen."""
        return judge.UNREAD if answer.finish == "nonfinite" else Verdict(answer.text == item.gold, answer.text)

    def choice(self, identity: str, question: str, row: SourceRow, field: str, group: str, **metadata: str) -> Item:
        """The item of a question with the options in a field of a row.

        The field has 2 to 26 texts, and `answer` the letter of the right one or its place. An option that is empty can
        stand behind a letter, unless it is the right one; it cannot be scored as a text.
        """
        options = row[field]
        if not isinstance(options, list | tuple) or not all(isinstance(option, str) for option in options):
            raise row.fault("the options must be a list of texts.")
        if not 2 <= len(options) <= len(ascii_uppercase):
            raise row.fault(f"there must be 2 to {len(ascii_uppercase)} options, not {len(options)}.")
        letters = tuple(ascii_uppercase[: len(options)])
        right = _place(row, letters)
        for letter, option in zip(letters, options, strict=True):
            whole(option, f"option {letter}", row.where)
            if not option.strip() and (self.setting == "text" or letter == letters[right]):
                way_out = "" if letter == letters[right] else "; write it out, or ask with ?form=letter"
                raise row.fault(f"option {letter} is empty{way_out}.")
        if sum(bool(option.strip()) for option in options) < 2:
            raise row.fault("all options but one are empty.")
        choices = letters if self.setting == "letter" else tuple(option.strip() for option in options)
        lines = [f"{letter}. {option}" for letter, option in zip(letters, options, strict=True)]
        return Item(
            id=identity,
            question="\n".join((question, *lines)) if self.setting == "letter" else question,
            gold=choices[right],
            choices=choices,
            solution=choices[right],
            group=group,
            metadata={**metadata, "options": tuple(options), "letter": letters[right]},
        )


def _place(row: SourceRow, letters: Sequence[str]) -> int:
    """The place of the right option, from 0."""
    answer = row["answer"]
    if isinstance(answer, str) and answer.strip() in letters:
        return letters.index(answer.strip())
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(letters):
        return answer
    raise row.fault(
        f"the answer is {short(repr(answer))}; it must be a letter from A to {letters[-1]}, or a number from 0 to "
        f"{len(letters) - 1}, since there are {len(letters)} options."
    )
