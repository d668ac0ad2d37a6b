"""One answer as it is stored, and the key that says which answer it is."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lesion.tasks.task import Finish, Item


@dataclass(frozen=True)
class Asked:
    """An item that a study asks, with the digest of how answers to it are judged (`core.inference.item_digest`)."""

    item: Item
    digest: str = ""


@dataclass(frozen=True)
class StoredAnswer:
    """One answer of one model under one edit to one item, with its verdict.

    Attributes:
        model: fingerprint of the model.
        model_name: the name as typed.
        edit: text form of the edit (`3×0`, `baseline`).
        prompt_style: the prompt style that was used, resolved (never `auto`).
        text: what the model said; begun with the opening tag of thinking where the prompt ends in it.
        finish: `stop`, `length`, `loop` or `nonfinite`.
        parsed: the answer the judge read, or None when it could read none.
        scores: per choice, the summed log-probability in nats; of contrasts see `Answer`;
            empty for generated answers.
        ranks: for contrasts, the ranks of the same tokens, from 1; empty for all others.
        group: the item's label to break the accuracy down by, or "".
        engine: what answered, in words (`Response.engine`).
        prompt: digest of the token ids that the model was sent (`core.inference.prompt_digest`).
    """

    model: str
    model_name: str
    edit: str
    task: str
    item: str
    decoding: str
    prompt_style: str
    text: str
    tokens: int
    finish: Finish
    correct: bool
    parsed: str | None = None
    scores: tuple[float, ...] = ()
    ranks: tuple[int, ...] = ()
    group: str = ""
    question: str = ""
    gold: str = ""
    engine: str = ""
    prompt: str = ""

    @cached_property
    def key(self) -> str:
        """The key of this answer (`answer_key`)."""
        return answer_key(self.model, self.edit, self.task, self.item, self.decoding, self.prompt_style, self.prompt)


def answer_key(model: str, edit: str, task: str, item: str, decoding: str, prompt_style: str, prompt: str) -> str:
    """The key of an answer, 64 hex digits: SHA-256 of everything that decides what the answer will be.

    The parts are joined as a JSON list, so that no two different lists of them read the same.

    `model` is the fingerprint: the same weights under two names are one model. `prompt` is the digest of the token ids.
    """
    parts = [model, edit, task, item, decoding, prompt_style, prompt]
    return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()  # ASCII, lone surrogates escaped


def storable(text: str) -> str:
    """The text as the store keeps it: a lone surrogate, which UTF-8 cannot hold, becomes U+FFFD.

    Two surrogates that make a pair become their character. Everything else survives as it is, NUL characters
    and texts of many megabytes included.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def numbers_to_json(numbers: Sequence[int | float]) -> str | None:
    """Scores or ranks as a JSON list, None for none. One that is not finite becomes null: JSON has no word for it."""
    return json.dumps([number if math.isfinite(number) else None for number in numbers]) if numbers else None


def numbers_from_json(text: str | None) -> tuple[int | float, ...]:
    """The scores or ranks that `numbers_to_json` wrote; null reads as NaN."""
    return () if text is None else tuple(math.nan if number is None else number for number in json.loads(text))
