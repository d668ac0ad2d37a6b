"""What tests of a search share: a file of questions, an engine that answers by a table, and a search done by hand."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from commandline import write
from lesion.engines.engine import Response
from lesion.studies.truncation.study import TruncationStudy
from lesion.tasks.task import Answer
from tiny import tokenizer

COUNT = 30
MODEL = "tiny:llama"


@dataclass(frozen=True)
class Say:
    """What is said to one item: whether it is right, the gold answer's log-probability, and what is said if wrong."""

    right: bool
    gold: float = -1.0
    wrong: str | None = None


Table = Callable[[str, str], Say]
"""From an edit in text form and the id of an item to what is said."""


class Known:
    """An engine that answers by a table. It notes what it is asked, and may die."""

    def __init__(self, table: Table, count: int = COUNT, lives: int | None = None) -> None:
        self.table, self.lives = table, lives
        self.asked: list[tuple[str, str, str]] = []
        spell = tokenizer()
        self._id = {tuple(spell(question(n) + end).input_ids): f"i{n}" for n in range(count) for end in ("", " ")}

    def __call__(self, model, batch_size):
        return self

    def answer(self, requests):
        for request in requests:
            if len(self.asked) == self.lives:
                raise RuntimeError("the engine died")
            item = self._id[request.prompt]
            if request.decoding.max_new_tokens == 1 and not request.choices and not request.tokens:
                yield Response(request.key, Answer(""))  # the first token of an answer, which is none here
                continue
            kind = "contrast" if request.tokens else "gold" if request.choices else "answer"
            self.asked.append((str(request.edit), item, kind))
            answer = self._say(kind, item, self.table(str(request.edit), item))
            if kind == "contrast" and answer.finish == "stop":
                answer = self._beside(answer, len(request.tokens), len(request.choices))
            yield Response(request.key, answer)

    def _say(self, kind: str, item: str, say: Say) -> Answer:
        number = int(item[1:])
        if kind == "gold":
            finish = "nonfinite" if math.isnan(say.gold) else "stop"
            return Answer("", 0, finish, (say.gold,))
        text = gold(number) if say.right else say.wrong if say.wrong is not None else f"no{number}"
        if kind == "answer":
            return Answer(text, 3, "stop")
        if math.isnan(say.gold):
            return Answer("", 0, "nonfinite", (math.nan, math.nan))
        return Answer(text, 0, "stop", (say.gold, say.gold - 0.5), (1, 2) if say.right else (number + 2, 1))

    def _beside(self, answer: Answer, tokens: int, whole: int) -> Answer:
        """A contrast with further tokens that tempt, unlikely ones, and the scores of whole texts, if there are any."""
        first = answer.scores[:tokens]
        scores = (*first, *[-9.0] * (tokens - len(first)), *first[:1] * (whole > 0), *[-9.0] * (whole - 1))
        return replace(answer, scores=scores, ranks=(*answer.ranks, *[99] * (tokens - len(answer.ranks))))

    @property
    def edits(self) -> list[str]:
        """The edits that were asked for, each once, in the order in which they first came."""
        return list(dict.fromkeys(edit for edit, _, _ in self.asked))


def question(number: int) -> str:
    """The question of an item."""
    return f"what is {number}?"


def gold(number: int) -> str:
    """What is right to say."""
    return f"yes{number}"


def questions(file: Path, count: int = COUNT) -> Path:
    """A file of questions whose answers are generated."""
    return write(file, ({"id": f"i{n}", "prompt": question(n), "answer": gold(n)} for n in range(count)))


def contrasts(file: Path, count: int = COUNT) -> Path:
    """A file of questions with a tempting answer each. A token is a character, so that the prompt ends in the space."""
    rows = ({"id": f"i{n}", "prompt": f"{question(n)} ", "answer": f"{n % 10}", "tempting": "x"} for n in range(count))
    return write(file, rows)


def study(task: Path, **values) -> TruncationStudy:
    """A search of the tiny model's up matrices on a file."""
    told = {"model": MODEL, "items": "all", "matrices": "mlp.up", "keep": [0.5, 0.25], "screen": "none"}
    return TruncationStudy.make(tasks=[str(task)], **{**told, "decoding": {"max_new_tokens": 3}, **values})


def order(seed: int, count: int = COUNT) -> list[str]:
    """The ids of the items in the order of their draw."""
    return sorted((f"i{n}" for n in range(count)), key=lambda one: hashlib.sha256(f"{seed}:{one}".encode()).digest())


def validation(seed: int, share: float = 0.2, count: int = COUNT) -> list[str]:
    """The ids of the validation items."""
    return order(seed, count)[: math.ceil(share * count)]


def rival(edit: str) -> bool:
    """Whether an edit is none of the grid: a random subspace, a scaled matrix or a deleted branch."""
    return "random" in edit or "×" in edit


def luck(*parts: object) -> float:
    """A number from 0 to 1 that depends on its arguments alone."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6], "big") / 2**48


def chance(seed: object, share: float = 0.5) -> Table:
    """Every edit right on about a share of the items, with log-probabilities that go with it loosely."""

    def say(edit: str, item: str) -> Say:
        right = luck(seed, edit, item) < share
        return Say(right, round(-2 + right + luck(seed, edit, item, "gold"), 2))

    return say


def accuracy(table: Table, edit: str, items: Sequence[str]) -> float:
    """Share of the items that are right under an edit."""
    return sum(table(edit, item).right for item in items) / len(items)


def log_probability(table: Table, edit: str, items: Sequence[str]) -> float:
    """Mean log-probability of the gold answers under an edit."""
    return sum(table(edit, item).gold for item in items) / len(items)
