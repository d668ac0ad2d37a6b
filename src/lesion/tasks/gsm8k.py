"""GSM8K: grade-school word problems with a written solution and a number as answer (Cobbe et al. 2021)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lesion.errors import UsageError
from lesion.tasks.judges import judge
from lesion.tasks.source import Row, hub_rows, identify, local_rows, rows_of, words
from lesion.tasks.task import Answer, Item, Kind, Verdict

_CALCULATOR = re.compile(r"<<[^<>]*>>")


@dataclass(frozen=True)
class Gsm8k:
    """GSM8K from the hub (`openai/gsm8k`, `main`, the 1,319 problems of `test`) or from a local file.

    The gold answer is what stands behind `####`, without thousands separators; the solution is the text
    before it without the calculator marks `<<48/2=24>>`; the group is the number of steps, one per calculator
    mark (0 steps where a solution has none). Answers are judged by `judge.math`.

    512 new tokens leave room for a chain of thought of twice the longest solution in the data. The stop
    strings are where a base model starts to write itself a next problem.
    """

    path: str | None = None
    kind: Kind = "generate"
    max_new_tokens: int = 512
    stop: tuple[str, ...] = ("\nQuestion:", "\nUser:")
    style: str = "auto"
    subject: str = "math"

    @property
    def name(self) -> str:
        """`gsm8k`, or `gsm8k:PATH` for a local file."""
        return "gsm8k" if self.path is None else f"gsm8k:{self.path}"

    def load(self) -> Sequence[Item]:
        """Every problem, in the order of the file.

        Raises:
            LesionError: the hub cannot be reached.
            UsageError: the local file cannot be read, or a row has no question or no `####`.
        """
        return self._items

    def calibration(self) -> Sequence[Item]:
        """From the hub, the 7,473 problems of `train`; else `load()`."""
        return self._pool if self.path is None else self._items

    @cached_property
    @rows_of
    def _items(self) -> tuple[Item, ...]:
        return self._read(self._hub("test") if self.path is None else local_rows(self.path))

    @cached_property
    def _pool(self) -> tuple[Item, ...]:
        return self._read(self._hub("train"))

    def _hub(self, split: str) -> list[Row]:
        return hub_rows("gsm8k", "openai/gsm8k", "main", split)

    def _read(self, rows: Sequence[Row]) -> tuple[Item, ...]:
        items = []
        for index, row in enumerate(rows):
            question, written = (words(row, field, self.name, index) for field in ("question", "answer"))
            solution, mark, gold = written.rpartition("####")
            if not mark or not gold.strip():
                raise UsageError(f"Row {index} of {self.name} has no answer behind '####'.")
            steps = len(_CALCULATOR.findall(solution))
            items.append(
                Item(
                    id=identify(question, index),
                    question=question,
                    gold=gold.strip().replace(",", ""),
                    solution=_CALCULATOR.sub("", solution).strip(),
                    group="1 step" if steps == 1 else f"{steps} steps",
                )
            )
        return tuple(items)

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the number that the answer arrives at is the gold number."""
        if answer.finish == "nonfinite":
            return judge.UNREAD
        return judge.math(answer.text, item.gold, item.aliases, complete=answer.finish == "stop")
