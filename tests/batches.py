"""Batches of prompts under many edits, as an engine answers them."""

from collections.abc import Iterable, Sequence

from lesion.edits.edit import Edit
from lesion.engines.engine import Decoding, Request, Response
from lesion.engines.transformers.engine import TransformersEngine
from lesion.models.load import Model

LIMIT = 6
"""Tokens of an answer."""


def answered(model: Model, requests: Sequence[Request], batch_size: int = 8):
    """The responses by key, one for every request, and the work that the engine counted."""
    engine = TransformersEngine(model, batch_size)
    responses: dict[str, Response] = {response.key: response for response in engine.answer(requests)}
    assert responses.keys() == {request.key for request in requests}
    return responses, engine.work


def questions(texts: Iterable[tuple[int, ...]], edits: Sequence[Edit]) -> list[Request]:
    """Every prompt under every edit."""
    return [
        Request(f"{index} under {edit}", text, edit, Decoding(LIMIT))
        for index, text in enumerate(texts)
        for edit in edits
    ]
