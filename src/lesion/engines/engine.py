"""The contract of an engine: requests go in, responses come out as they are finished, in any order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lesion.arguments import validated
from lesion.edits.edit import BASELINE, EditLike, as_edit
from lesion.engines.sampling import SAMPLING
from lesion.errors import UsageError
from lesion.tasks.task import Answer

if TYPE_CHECKING:
    from lesion.models.load import Model


@validated
@dataclass(frozen=True)
class Decoding:
    """How answers are decoded: greedy at temperature 0, else sampled (see `lesion.engines.sampling`).

    With `thinking_tokens` a trace of so many tokens is closed (see `lesion.engines.endings`), and the answer goes on
    behind it within `max_new_tokens`, which the trace counts towards; 0 lets it think on.

    With `stop_loops` an answer ends once it has said the same piece so many times in a row (`lesion.engines.endings`);
    0 lets it go on. That is approximate: an answer that would have left its loop is judged by what it said until then.

    No answer begins with one of the `forbidden` token ids: the first token is the most probable, or is drawn, among the
    others. A looked-up token (`Request.tokens`) is forbidden likewise: probabilities and ranks are among the others.
    Choices are scored as they stand.
    """

    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop_loops: int = 0
    thinking_tokens: int = 0
    forbidden: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise UsageError(f"An answer needs at least 1 new token, not {self.max_new_tokens}.")
        if self.temperature < 0:
            raise UsageError(f"The temperature is 0 (greedy) or a positive number, not {self.temperature}.")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p is a share of the probability, above 0 and at most 1, not {self.top_p}.")
        if self.stop_loops < 0 or self.stop_loops == 1:
            raise UsageError(
                f"A loop says the same piece at least 2 times in a row, not {self.stop_loops}; 0 lets loops go on."
            )

        if min(self.forbidden, default=0) < 0:
            raise UsageError(f"Forbidden are ids of tokens, whole numbers from 0, not {list(self.forbidden)}.")
        if self.thinking_tokens < 0:
            raise UsageError(f"Thinking takes at least 1 token, not {self.thinking_tokens}; 0 sets no limit.")
        if self.thinking_tokens >= self.max_new_tokens:
            raise UsageError(
                f"{self.thinking_tokens:,} tokens of thinking leave nothing of the {self.max_new_tokens:,} of an"
                " answer; raise --max-new-tokens, or lower --thinking-tokens."
            )

    def __str__(self) -> str:
        sampled = f"T={self.temperature:g} p={self.top_p:g} seed={self.seed} {SAMPLING}"
        how = "greedy" if self.temperature == 0 else sampled
        # Only where loops are stopped, thinking is limited or tokens are forbidden, so that the keys of answers from
        # before there was the choice stay what they are.
        loops = f" stop_loops={self.stop_loops}" if self.stop_loops else ""
        thinking = f" thinking_tokens={self.thinking_tokens}" if self.thinking_tokens else ""
        forbidden = f" forbidden={list(self.forbidden)}" if self.forbidden else ""
        return f"{how} max={self.max_new_tokens} stop={list(self.stop)!r}{loops}{thinking}{forbidden}"


@dataclass(frozen=True)
class Request:
    """One item under one edit.

    Attributes:
        key: handed back with the response; unique among the requests of one call.
        prompt: token ids, special tokens included.
        edit: also its text form, or several (see `as_edit`).
        choices: token ids of each choice; when given, they are scored and nothing is generated.
        tokens: when given, the probability and rank of each right after the prompt are looked up and nothing is
            generated. With choices as well, the scores of both are given, and no choice is made.
        traced: whether the response says between which tokens the last one was chosen; it is decoded without a draft.
    """

    key: str
    prompt: tuple[int, ...]
    edit: EditLike = BASELINE
    decoding: Decoding = Decoding()
    choices: tuple[tuple[int, ...], ...] = ()
    tokens: tuple[int, ...] = ()
    traced: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "edit", as_edit(self.edit))
        if self.choices and not self.tokens and self.decoding.forbidden:
            raise UsageError(
                f"{self.key}: choices are scored as they stand, so that no token can be forbidden; leave out either."
            )


@dataclass(frozen=True)
class Response:
    """The answer to the request with the same key.

    `engine` says what answered, in words: library and version, dtype, attention, device. It is stored with the answer.
    `last` has, of a traced request, the most probable tokens where the last one was chosen, and their log-probabilities
    in nats.
    """

    key: str
    answer: Answer
    token_ids: tuple[int, ...] = ()
    engine: str = ""
    last: tuple[tuple[int, float], ...] = ()


@runtime_checkable
class Engine(Protocol):
    """Something that answers requests under edits."""

    def answer(self, requests: Iterable[Request]) -> Iterator[Response]:
        """Responses as they are finished, in any order; every request gets exactly one."""
        ...


@runtime_checkable
class MakeEngine(Protocol):
    """What makes the engine of a model: an engine's class, or what `lesion.engines.config.opened` gives."""

    def __call__(self, model: Model, batch_size: int | str) -> Engine:
        """An engine that answers with this model; `batch_size` rows at once, or `auto`."""
        ...


@dataclass
class Work:
    """What an engine has computed so far, in token steps: one token of one row through all blocks.

    Attributes:
        prompt: tokens of prompts and drafts, sharing counted as saved; padding included.
        decoded: decoding steps of rows at work.
        idle: decoding steps spent on rows that had finished.
        steps: forward passes of decoding.
        replayed: those among them that were repeated from a recording.
        drafted: tokens of drafts that were looked at.
        accepted: drafted tokens that were said, each a decoding step saved.
        batch_size: rows at most, as it stands now.
    """

    prompt: int = 0
    decoded: int = 0
    idle: int = 0
    steps: int = 0
    replayed: int = 0
    drafted: int = 0
    accepted: int = 0
    batch_size: int = 0
