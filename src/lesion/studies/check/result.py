"""What a check finds: of each task how it was asked, how it went and what is odd, and the prompts as they were sent."""

from __future__ import annotations

from typing import Literal

from lesion.core.oddities import Oddity
from lesion.core.values import Summary
from lesion.report.forms import SHARE, decimals
from lesion.report.rows import Row, column, derived
from lesion.report.values import Estimate, Value
from lesion.studies.check.study import CheckStudy


class SentPrompt(Row):
    """A prompt exactly as it was sent, and the answer.

    Attributes:
        prompt: with all special tokens.
        read: what the judge read from the answer; None where it could read nothing.
        finish: how the answer ended: `stop`, `length`, `loop` or `nonfinite`.
    """

    item: str = column("Item", label=True)
    prompt: str = column("Prompt")
    answer: str = column("Answer")
    gold: str = column("Gold answer")
    read: str | None = column("Read")
    right: bool = column("Right")
    finish: str = column("Ended by")


class OddAnswers(Value):
    """How many answers have an oddity."""

    oddity: Oddity
    answers: int


class OtherStyle(Value):
    """The same questions in the other prompt style.

    Attributes:
        within: how many answers are judged wrong though the gold answer stands in them.
    """

    style: str
    right: int
    within: int


class CheckedTask(Row):
    """A task as one model is asked it.

    Attributes:
        kind: how it is answered.
        style: the prompt style that was taken.
        chosen: whether it was given, or follows from model and task.
        accuracy: with Wilson's interval.
        guessing: the accuracy of guessing.
        at_limit: the token limit of an answer.
        surprise: of the prompts in nats a token, as the model reads them; None where it was not measured.
        random: the same of random tokens: the logarithm of the size of the vocabulary.
        odd: how many answers are odd, and how.
        other: None where there is no other style to try.
        prompts: the first as they were sent.
    """

    task: str = column("Task", label=True)
    kind: str
    style: str = column("Prompt style")
    chosen: bool
    items: int = column("Items")
    right: int = column("Right")
    accuracy: Estimate = column("Accuracy", SHARE)
    guessing: float = column("Guessing", SHARE)
    tokens: float = column("Tokens an answer", decimals(1))
    at_limit: int = column("Token limit")
    surprise: float | None = column("Surprise of the prompts", decimals(2, "nats a token"))
    random: float = column(key="random_surprise")
    odd: tuple[OddAnswers, ...]
    other: OtherStyle | None
    prompts: tuple[SentPrompt, ...]

    @derived.column("Other style")
    def other_style(self) -> str | None:
        """The prompt style that was tried beside."""
        return None if self.other is None else self.other.style

    @derived.column("Right in it")
    def other_right(self) -> int | None:
        """Right answers in the other style."""
        return None if self.other is None else self.other.right

    def odd_answers(self, oddity: Oddity) -> int:
        """How many answers have an oddity."""
        return next((each.answers for each in self.odd if each.oddity == oddity), 0)


class CheckSummary(Summary):
    """All that a check found.

    Attributes:
        chat: whether the model has a chat template.
    """

    kind: Literal["check"] = "check"
    study: CheckStudy
    chat: bool
    tasks: tuple[CheckedTask, ...]
