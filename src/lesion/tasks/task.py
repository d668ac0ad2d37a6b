"""What a model is asked: items, answers, verdicts, and the contract of a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from lesion.reprs import short_repr

Finish = Literal["stop", "length", "loop", "nonfinite"]
TRUNCATED: tuple[Finish, ...] = ("length", "loop")
"""How an answer ends that did not end itself: at the token limit, or in a loop, which would have led there."""
Kind = Literal["generate", "choose", "score", "contrast"]


@dataclass(frozen=True)
class Item:
    """One question with its gold answer.

    Attributes:
        id: unique within the task.
        question: what is asked, without any prompt style around it (for `score`: the text whose tokens are scored).
        gold: the right answer as the data set states it (for `choose`: the text of the right choice; for `score`: "").
        aliases: other right answers.
        choices: for `choose`, the texts to choose among; for `contrast`, the gold answer and what tempts, as
            they follow the prompt: rivals of the right text, and last " the" (`lesion.tasks.contrast`).
        solution: the worked solution that ends in the gold answer, where the data set has one.
        group: a label to break the accuracy down by (number of steps, subject, level), or "".
        shots: solved questions that stand before this one, each with its solution.
    """

    id: str
    question: str
    gold: str
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    solution: str = ""
    group: str = ""
    shots: tuple[tuple[str, str], ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False, repr=False)

    __repr__ = short_repr


@dataclass(frozen=True)
class Answer:
    """What the model said.

    Attributes:
        text: the generated text, stop string removed; for `choose`, the text of the chosen option; for `contrast`, the
            most probable token as text.
        tokens: number of generated tokens (0 for `choose` and `contrast`; for `score`, of those that were scored).
        finish: `stop` (end of text or a stop string), `length` (hit the token limit: truncated), `loop` (stopped since
            it repeated itself, where that was asked for: truncated too) or `nonfinite` (logits were NaN or infinite).
        scores: per choice, the summed log-probability in nats; for `score`, that of the text alone; for `contrast`,
            the log-probabilities of the first tokens of the right text, its rivals and " the", and behind these those
            of the whole right text and its rivals (`lesion.tasks.contrast`); empty for `generate`.
        ranks: for `contrast`, the ranks of the same tokens among all tokens, 1 for the most
            probable; empty for the others, and where logits were not finite.
        greedy: per choice that was scored, whether each of its tokens is the most probable one at its place; empty
            where logits were not finite.
    """

    text: str
    tokens: int = 0
    finish: Finish = "stop"
    scores: tuple[float, ...] = ()
    ranks: tuple[int, ...] = ()
    greedy: tuple[bool, ...] = field(default=(), compare=False)

    __repr__ = short_repr


@dataclass(frozen=True)
class Verdict:
    """What the judge found: right or wrong, and the answer it read (`None`: no answer could be parsed)."""

    correct: bool
    parsed: str | None


@runtime_checkable
class Task(Protocol):
    """A source of items with a judge.

    Attributes:
        name: the text form that names the task, as typed: `gsm8k`, `gsm8k:PATH`, `primer:arithmetic`.
        kind: `generate` (free text), `choose` (the most likely of the item's choices), `score` (running text, whose
            log-probability is the answer) or `contrast` (probability and rank of a right token, its rivals and " the").
        max_new_tokens: default limit for one answer.
        stop: strings that end an answer.
        style: the default prompt style of the task (`raw`: the question as it stands; `auto`: resolved per model).

    A task may name classes of its gold tokens by a further attribute, `gold_classes`
    (`lesion.tasks.gold_classes.GoldClasses`).
    """

    # properties, so that frozen dataclasses are tasks too
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def kind(self) -> Kind: ...  # noqa: D102
    @property
    def max_new_tokens(self) -> int: ...  # noqa: D102
    @property
    def stop(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def style(self) -> str: ...  # noqa: D102

    def load(self) -> Sequence[Item]:
        """Every item, in the order of the data set. Reads the file or the hub once."""
        ...

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer is right."""
        ...
