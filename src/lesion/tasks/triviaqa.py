"""TriviaQA: closed-book trivia questions with many accepted answers (Joshi et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

from lesion.errors import UsageError, nearest
from lesion.tasks.judges import judge
from lesion.tasks.source import Row, hub_rows, identify, local_rows, need, rows_of, words
from lesion.tasks.task import Answer, Item, Kind, Verdict

RULES: tuple[judge.TriviaRule, ...] = get_args(judge.TriviaRule)


@dataclass(frozen=True)
class TriviaQa:
    """TriviaQA without documents, from the hub (`mandarjoshi/trivia_qa`, `rc.nocontext`) or a file.

    From the hub comes the split `validation`. A local file has either the fields of the hub, `{"question",
    "answer": {"value", "aliases", …}}`, or the short form `{"id", "question", "golden_answers": […]}`. A row
    whose id has been seen is the same question with another document and is left out.

    The rule of `judge.aliases` is part of the name: `triviaqa?rule=substring` is the one of Nepal et al.
    (2025), who look for the main answer only. The short form has no main answer: there the rule looks for any
    of them, and the item's gold answer is the first of the list.

    32 new tokens are a short sentence. Stop strings: the next question, and an empty line.

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
        check_rule(self.rule)

    @property
    def name(self) -> str:
        """`triviaqa`, with `:PATH` for a local file and `?rule=…` when the rule is not `words`."""
        path = "" if self.path is None else f":{self.path}"
        return f"triviaqa{path}" + ("" if self.rule == "words" else f"?rule={self.rule}")

    def load(self) -> Sequence[Item]:
        """Every question once, in the order of the file.

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
        return hub_rows("triviaqa", "mandarjoshi/trivia_qa", "rc.nocontext", split)

    def _read(self, rows: Sequence[Row]) -> tuple[Item, ...]:
        items: dict[str, Item] = {}
        for index, row in enumerate(rows):
            item = self._item(row, index)
            items.setdefault(item.id, item)
        return tuple(items.values())

    def _item(self, row: Row, index: int) -> Item:
        question = words(row, "question", self.name, index)
        if "golden_answers" in row:
            answers, main = row["golden_answers"], False
            question = unquote_csv(question)
        else:
            answer = need(row, "answer", self.name, index)
            if not isinstance(answer, dict):
                raise UsageError(f"Row {index} of {self.name}: 'answer' must be an object with 'value' and 'aliases'.")
            answers, main = [need(answer, "value", self.name, index), *answer.get("aliases", ())], True
        if not isinstance(answers, list) or not answers:
            raise UsageError(f"Row {index} of {self.name} has no answers.")
        if not all(isinstance(answer, str | int | float) for answer in answers):
            raise UsageError(f"Row {index} of {self.name}: every answer must be a text.")
        gold, *others = dict.fromkeys(map(str, answers))  # in order, each once
        identity = row.get("id") or row.get("question_id") or identify(question, index)
        return Item(
            id=str(identity),
            question=question,
            gold=gold,
            aliases=tuple(others),
            metadata={"main_answer": main},
        )

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer names the gold answer or an alias, by the task's rule."""
        if answer.finish == "nonfinite":
            return judge.UNREAD
        only_gold = self.rule == "substring" and item.metadata.get("main_answer", True)
        return judge.aliases(answer.text, item.gold, () if only_gold else item.aliases, self.rule)


def check_rule(rule: str, task: str = "triviaqa") -> judge.TriviaRule:
    """The rule of that name.

    Raises:
        UsageError: there is none, with the nearest.
    """
    for known in RULES:
        if rule == known:
            return known
    raise UsageError(f"There is no rule '{rule}' for {task}{nearest(rule, RULES)}; there are {', '.join(RULES)}.")


def unquote_csv(question: str) -> str:
    """The question without the quoting of a CSV cell that some copies of the data kept.

    `"Who said ""God is dead""?"` becomes `Who said "God is dead"?`. Only a question that stands in quotation
    marks as a whole, with all marks inside doubled and at least one pair of them, is such a cell; others stay
    as they are.
    """
    inside = question[1:-1]
    quoted = len(question) > 1 and question[0] == question[-1] == '"'
    if quoted and '""' in inside and '"' not in inside.replace('""', ""):
        return inside.replace('""', '"')
    return question
