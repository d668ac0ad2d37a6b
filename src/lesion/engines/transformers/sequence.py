"""One request at work, what it has said, and what ends it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

from lesion.engines.checking import ends_of, longest_answer
from lesion.engines.endings import Closing, Loop, StopStrings
from lesion.engines.engine import Request, Response
from lesion.engines.sampling import noise_key
from lesion.engines.transformers.prefixes import NOTHING, Prefix
from lesion.models.load import Model
from lesion.tasks.task import Answer, Finish


@dataclass(eq=False)
class ActiveRequest:
    """A request whose answer is being generated.

    Attributes:
        column: of the table of edits.
        start: the first block that its edit changes; the number of blocks where it changes none.
        limit: tokens that its answer may have.
        ends: tokens that end an answer.
        stop: looks for its stop strings.
        closing: closes its trace at the limit for it; None where it may think on.
        draft: what the answer may begin with, looked at in the pass over the prompt.
        accepted: how much of the draft it did say.
        known: tokens of another edit's answer to the same question; 0 where there is none yet.
        generated: the tokens of its answer so far.
        prefix: what its prompt has in common with others, which is computed once.
        last: of a traced request, between which tokens the latest was chosen (`Response.last`).
    """

    request: Request
    column: int
    start: int
    limit: int
    ends: Collection[int]
    stop: StopStrings
    draft: tuple[int, ...] = ()
    accepted: int = 0
    known: int = 0
    generated: list[int] = field(default_factory=list)
    prefix: Prefix = NOTHING
    closing: Closing | None = None
    last: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of(
        cls, model: Model, request: Request, column: int, stop: StopStrings, start: int = 0, prefix: Prefix = NOTHING
    ) -> ActiveRequest:
        """A request that generates an answer, before the first token."""
        thinking, limit, ends = request.decoding.thinking_tokens, longest_answer(model, request), ends_of(model)
        closing = Closing(model.tokenizer, thinking, stop.opened) if thinking else None
        return cls(request, column, start, limit, ends, stop, prefix=prefix, closing=closing)

    def response(self, finish: Finish, model: Model) -> Response:
        """What its answer is, without the end token and what follows a stop string."""
        spoken = self.generated[:-1] if self.generated and self.generated[-1] in self.ends else self.generated
        text = self.stop.cut(model.tokenizer.decode(spoken, skip_special_tokens=True))
        answer = Answer(text, len(self.generated), finish)
        return Response(self.request.key, answer, tuple(self.generated), last=self.last)

    @cached_property
    def noise_key(self) -> int | None:
        """What its tokens are drawn by; None for a greedy answer."""
        decoding = self.request.decoding
        return noise_key(decoding.seed, self.request.prompt) if decoding.temperature > 0 else None

    @cached_property
    def loop(self) -> Loop | None:
        """Listens for a loop in what is said; None where loops may go on."""
        times = self.request.decoding.stop_loops
        return Loop(times, self.limit) if times else None

    @property
    def plain(self) -> bool:
        """Whether it says the most probable token every time, whatever was said before, and nothing is noted of it."""
        return self.noise_key is None and self.closing is None and not self.request.traced

    def forbidden(self, ahead: int) -> tuple[int, ...]:
        """The tokens that may not be said `ahead` tokens from now: some at the beginning of its answer."""
        return () if self.generated or ahead else self.request.decoding.forbidden

    @property
    def given(self) -> tuple[int, ...]:
        """Prompt and draft."""
        return (*self.request.prompt, *self.draft)

    @property
    def fresh(self) -> int:
        """How many of these tokens are computed for this row."""
        return len(self.request.prompt) - len(self.prefix) + len(self.draft)

    def say(self, token: int, finite: bool) -> Finish | None:
        """What ends the answer now that `token` is its next, or None; at its limit a trace is closed instead."""
        if not finite:
            return "nonfinite"
        if self.closing is not None:
            token = self.closing.instead(self.generated, token)
        self.generated.append(token)
        if token in self.ends or self.stop.hit(self.generated):
            return "stop"
        if len(self.generated) >= self.limit:
            return "length"
        return "loop" if self.loop is not None and self.loop.hit(self.generated) else None

    def judge(self, tokens: list[int], finite: list[bool]) -> Finish | None:
        """Say what follows the prompt as far as the draft holds, and the token after that.

        Args:
            tokens: what follows the prompt, and what follows each token of the draft if all before it are said.
            finite: whether the logits of each of them are.
        """
        self.accepted = 0
        for token, is_finite, drafted in zip(tokens, finite, (*self.draft, None), strict=True):
            if finish := self.say(token, is_finite):
                return finish
            if self.generated[-1] != drafted:
                break
            self.accepted += 1
        return None

    def forget(self) -> None:
        """As if it had never begun."""
        self.generated.clear()
        self.accepted = 0
        self.__dict__.pop("loop", None)
