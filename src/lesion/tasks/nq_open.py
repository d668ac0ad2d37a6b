"""NQ-open: questions that people typed into a search engine, answered without documents (Lee et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lesion.errors import UsageError
from lesion.tasks.judges import judge
from lesion.tasks.source import Row, hub_rows, identify, local_rows, need, rows_of, whole
from lesion.tasks.task import Answer, Item, Kind, Verdict
from lesion.tasks.triviaqa import check_rule


@dataclass(frozen=True)
class NqOpen:
    """NQ-open from the hub (`google-research-datasets/nq_open`, the 3,610 questions of `validation`) or a file.

    A local file has the fields of the hub: `question` and `answer`, a list of right answers, none of them the main
    one. The questions are written in lower case without a mark at their end; they are asked with a question mark, as
    lm-evaluation-harness does.

    The rule of `judge.aliases` is part of the name: `nq_open?rule=exact` is the exact match of the field. 32 new
    tokens are a short sentence. Stop strings: the next question, and an empty line.

    Raises:
        UsageError: there is no such rule.
    """

    path: str | None = None
    rule: judge.TriviaRule = "words"
    kind: Kind = "generate"
    max_new_tokens: int = 32
    stop: tuple[str, ...] = ("\nQuestion:", "\nUser:", "\n\n")
    style: str = "auto"
    subject: str = "trivia"

    def __post_init__(self) -> None:
        check_rule(self.rule, "nq_open")

    @property
    def name(self) -> str:
        """`nq_open`, with `:PATH` for a local file and `?rule=…` when the rule is not `words`."""
        path = "" if self.path is None else f":{self.path}"
        return f"nq_open{path}" + ("" if self.rule == "words" else f"?rule={self.rule}")

    def load(self) -> Sequence[Item]:
        """Every question, in the order of the file.

        Raises:
            LesionError: the hub cannot be reached.
            UsageError: the local file cannot be read, or a row has no question or no answer.
        """
        return self._items

    def calibration(self) -> Sequence[Item]:
        """From the hub, the questions of `train`; else `load()`."""
        return self._pool if self.path is None else self._items

    @cached_property
    @rows_of
    def _items(self) -> tuple[Item, ...]:
        return self._read(self._hub("validation") if self.path is None else local_rows(self.path))

    @cached_property
    def _pool(self) -> tuple[Item, ...]:
        return self._read(self._hub("train"))

    def _hub(self, split: str) -> list[Row]:
        return hub_rows("nq_open", "google-research-datasets/nq_open", None, split)

    def _read(self, rows: Sequence[Row]) -> tuple[Item, ...]:
        items = []
        for index, row in enumerate(rows):
            question, answers = (need(row, field, self.name, index) for field in ("question", "answer"))
            if not isinstance(question, str) or not question.strip():
                raise UsageError(f"Row {index} of {self.name} has no question.")
            if not isinstance(answers, list) or not answers or not all(isinstance(a, str) for a in answers):
                raise UsageError(f"Row {index} of {self.name}: 'answer' must be a list of at least one text.")
            where = f"Row {index} of {self.name}"
            written = [whole(answer.strip(), "answer", where) for answer in answers if answer.strip()]
            if not written:
                raise UsageError(f"Row {index} of {self.name} has an empty answer only.")
            gold, *others = dict.fromkeys(written)  # in order, each once
            asked = whole(question.strip(), "question", where)
            items.append(
                Item(
                    id=identify(question, index),
                    question=asked if asked.endswith("?") else f"{asked}?",
                    gold=gold,
                    aliases=tuple(others),
                )
            )
        return tuple(items)

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer names one of the right ones, by the task's rule."""
        if answer.finish == "nonfinite":
            return judge.UNREAD
        return judge.aliases(answer.text, item.gold, item.aliases, self.rule)
