"""Tokens of lm-evaluation-harness: from its texts to token ids, as its own Hugging Face model has them.

What stands here is what `lm_eval.models.huggingface.HFLM` sends to a decoder by default; the tests hold it to that
token for token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lesion.errors import LesionError, UsageError


@dataclass(frozen=True)
class Part:
    """One request to a model.

    Attributes:
        choices: token ids of each continuation that is scored after the prompt; empty where an answer is generated.
        cut: how many tokens were left out at the beginning of the prompt, since it does not fit the context.
    """

    prompt: tuple[int, ...]
    choices: tuple[tuple[int, ...], ...] = ()
    cut: int = 0


@dataclass(frozen=True)
class HarnessTokens:
    """What the harness makes of texts for one model.

    Args:
        context: the most tokens that a prompt and its answer may have together.
        add_bos: whether texts begin with the tokenizer's special tokens; None: as the tokenizer has it.
    """

    tokenizer: Any
    context: int
    name: str
    add_bos: bool | None = None

    @property
    def prefix(self) -> int:
        """The token that begins a text, else the one that ends it; it raises `LesionError` where there is neither."""
        tokens = (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id)
        prefix = next((token for token in tokens if token is not None), None)
        if prefix is None:
            raise LesionError(
                f"The tokenizer of {self.name} names neither a first nor a last token of a text (bos, eos); the "
                f"harness needs one."
            )
        return int(prefix)

    def encode(self, text: str) -> list[int]:
        """A text with what the tokenizer begins texts with, unless it begins with that already."""
        return self._encode(text, self.tokenizer.decode([self.prefix]))

    def _encode(self, text: str, begun: str | None) -> list[int]:
        begins = False if begun is not None and text.startswith(begun) else self.add_bos
        settings = {} if begins is None else {"add_special_tokens": begins}
        return list(self.tokenizer.encode(text, verbose=False, **settings))

    def pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """The ids of a context and those of what follows it.

        White space at the end of the context goes over to the continuation. The two are encoded as one text, whose ids
        behind as many as the context has alone are the continuation's. Nothing stands before an empty context but the
        `prefix`.
        """
        if not context:
            ids = list(self.tokenizer.encode(continuation, add_special_tokens=False, verbose=False))
            return ([self.prefix], ids) if ids[:1] != [self.prefix] else (ids[:1], ids[1:])
        bare = context.rstrip()
        before = self.encode(bare)
        return before, self.encode(bare + context[len(bare) :] + continuation)[len(before) :]

    def likelihood(self, pairs: Sequence[tuple[str, str]]) -> tuple[Part, ...]:
        """What is asked to score continuations, each after its context: one part where all prompts are the same.

        Of what is too long, the beginning of the context is left out; the last token of a continuation need not fit.
        """
        parts = [self._scored(*self.pair(*texts), *texts) for texts in pairs]
        if len({part.prompt for part in parts}) == 1:
            return (Part(parts[0].prompt, tuple(part.choices[0] for part in parts), max(part.cut for part in parts)),)
        return tuple(parts)

    def _scored(self, before: list[int], ids: list[int], context: str, continuation: str) -> Part:
        if not ids:
            raise LesionError(
                f"The continuation {continuation!r} behind {context[-40:]!r} has no tokens of its own for {self.name}; "
                f"nothing can be scored."
            )
        if len(ids) > self.context:
            raise LesionError(
                f"A continuation that begins with {continuation[:40]!r} has {len(ids):,} tokens and does not fit the "
                f"context of {self.name}, {self.context:,} tokens."
            )
        kept = [*before, *ids][-(self.context + 1) :]
        return Part(tuple(kept[: -len(ids)]), (tuple(ids),), len(before) + len(ids) - len(kept))

    def rolling(self, text: str) -> tuple[Part, ...]:
        """What is asked to score a whole text: windows of as many tokens as the context has, none predicted twice.

        The first window stands behind the `prefix`; the last one reaches back as far as the context does. A text
        without tokens has no windows.
        """
        ids = self.encode(text)
        parts = []
        for start in range(0, len(ids), self.context):
            end = min(start + self.context, len(ids))
            before = ids[end - self.context - 1 : start] if start else [self.prefix]
            parts.append(Part(tuple(before), (tuple(ids[start:end]),)))
        return tuple(parts)

    def generation(self, context: str, max_new_tokens: int) -> Part:
        """What is asked for an answer: of what is too long, the end that leaves room for the answer."""
        room = self.context - max_new_tokens
        if room < 1:
            raise UsageError(
                f"Answers of up to {max_new_tokens:,} tokens do not fit the context of {self.name}, {self.context:,} "
                f"tokens; ask for fewer: --max-new-tokens {max(1, self.context // 2)}."
            )
        ids = self._encode(context, self.tokenizer.bos_token)
        return Part(tuple(ids[-room:]), cut=max(0, len(ids) - room))
