"""MATH-500: competition problems with answers in LaTeX (Hendrycks et al. 2021, Lightman et al. 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lesion.errors import UsageError
from lesion.plain import short
from lesion.tasks.judges import judge
from lesion.tasks.source import hub_rows, identify, local_rows, rows_of, words
from lesion.tasks.task import Answer, Item, Kind, Verdict


@dataclass(frozen=True)
class Math500:
    """MATH-500 from the hub (`HuggingFaceH4/MATH-500`, `test`) or from a local file.

    The group is the level, "level 1" to "level 5"; the subject of a problem is in its metadata. Answers are
    judged by `judge.math`. 1,024 new tokens are enough for most written solutions; models that think at
    length need more.
    """

    path: str | None = None
    kind: Kind = "generate"
    max_new_tokens: int = 1024
    stop: tuple[str, ...] = ("\nQuestion:", "\nUser:")
    style: str = "auto"
    subject: str = "math"

    @property
    def name(self) -> str:
        """`math500`, or `math500:PATH` for a local file."""
        return "math500" if self.path is None else f"math500:{self.path}"

    def load(self) -> Sequence[Item]:
        """Every problem, in the order of the file.

        Raises:
            LesionError: the hub cannot be reached.
            UsageError: the local file cannot be read, or a row has no problem or no answer.
        """
        return self._items

    @cached_property
    @rows_of
    def _items(self) -> tuple[Item, ...]:
        rows = (
            hub_rows("math500", "HuggingFaceH4/MATH-500", None, "test") if self.path is None else local_rows(self.path)
        )
        items: dict[str, Item] = {}
        for index, row in enumerate(rows):
            question = words(row, "problem", self.name, index)
            item = Item(
                id=str(row.get("unique_id") or identify(question, index)),
                question=question,
                gold=words(row, "answer", self.name, index),
                solution=str(row.get("solution", "")),
                group=f"level {row['level']}" if "level" in row else "",
                metadata={"subject": str(row.get("subject", ""))},
            )
            if items.setdefault(item.id, item) is not item:
                raise UsageError(f"Row {index} of {self.name}: the id '{short(item.id)}' was there before.")
        return tuple(items.values())

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the expression that the answer arrives at equals the gold answer."""
        if answer.finish == "nonfinite":
            return judge.UNREAD
        return judge.math(answer.text, item.gold, item.aliases, complete=answer.finish == "stop")
