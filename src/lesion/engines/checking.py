"""What every engine checks of requests before it answers the first, and the tokens that end an answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import chain

from lesion.engines.engine import Request
from lesion.errors import LesionError
from lesion.models.load import Model


def ends_of(model: Model) -> set[int]:
    """The tokens that end an answer: those of the generation settings, and the tokenizer's."""
    ends = model.network.generation_config.eos_token_id
    return {*(ends if isinstance(ends, list) else [ends]), model.tokenizer.eos_token_id} - {None}


def spelling(model: Model) -> str:
    """Digest, 16 hex digits, of what decides the text of an answer beside the tokens that the network chooses.

    That is how every token is read back, and which of them end an answer or are no text.
    """
    tokenizer = model.tokenizer
    texts = tokenizer.decode(list(range(len(tokenizer))), skip_special_tokens=True)
    words = sorted(tokenizer.get_vocab().items())
    parts = json.dumps([texts, words, sorted(ends_of(model)), sorted(tokenizer.all_special_ids)])
    return hashlib.sha256(parts.encode("ascii")).hexdigest()[:16]


def longest_answer(model: Model, request: Request) -> int:
    """How many tokens an answer may have: the request's limit, and what the context leaves.

    The last token of an answer is never read: behind a prompt of n tokens a context of c positions holds c − n + 1.
    """
    return min(request.decoding.max_new_tokens, model.context - len(request.prompt) + 1)


def check_texts(model: Model, texts: Iterable[Sequence[int]]) -> None:
    """Refuse texts with tokens that the network does not know: the tokenizer is that of another model."""
    known = model.network.get_input_embeddings().num_embeddings
    if any(max(text, default=0) >= known for text in texts):
        raise _misfit(model, known)


def _misfit(model: Model, known: int) -> LesionError:
    return LesionError(
        f"The tokenizer of {model.name} does not fit its network: it writes tokens beyond the {known:,} that the"
        f" network has embeddings for. Put the tokenizer that the model was trained with into its folder."
    )


def check_requests(model: Model, requests: Iterable[Request]) -> None:
    """Refuse prompts and choices that are empty, do not fit the context, or have tokens unknown to the network."""
    # Looked up once: a configuration takes its time, and a search has many requests.
    known = model.network.get_input_embeddings().num_embeddings
    context = model.context
    for request in requests:
        # The last token of a choice or an answer, and what is looked up, is read at the token before it.
        longest = len(request.prompt) + max((len(choice) - 1 for choice in request.choices), default=0)
        if not all(request.choices):
            raise LesionError(f"A choice of {request.key} is empty; a choice needs at least one token to be scored.")
        if not request.prompt:
            raise LesionError(f"The prompt of {request.key} is empty; a model needs at least one token to start from.")
        if max(*request.prompt, *request.tokens, *request.decoding.forbidden, *chain(*request.choices), 0) >= known:
            raise _misfit(model, known)
        if longest > context:
            raise LesionError(
                f"The prompt of {request.key} has {len(request.prompt)} tokens and does not fit the context of"
                f" {model.name}, {context} tokens; leave this item out or shorten it."
            )
