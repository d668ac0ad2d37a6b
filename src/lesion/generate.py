"""Generate: what a model says to a prompt, as it is and under edits; `Model.generate` and `Model.compare` are these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from lesion.arguments import LongText, several, validated
from lesion.edits.edit import BASELINE, Compose, Edit, EditLike, Single
from lesion.edits.files.artefact import edit_for
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import UsageError
from lesion.models.load import Model
from lesion.models.owner import observing
from lesion.tasks.given import Given
from lesion.tasks.judges.judge import UNREAD
from lesion.tasks.prompts import encode
from lesion.tasks.style import Style
from lesion.tasks.task import Item
from lesion.tasks.thinking import opening


@validated
def generate(
    model: Model,
    prompt: LongText,
    edit: EditLike = None,
    *,
    max_new_tokens: int = 64,
    prompt_style: str | None = None,
    thinking: str | None = None,
    system: str | None = None,
    template_arguments: str | Sequence[str] = (),
    thinking_tokens: int | None = None,
    stop: str | Sequence[str] = (),
) -> str:
    """What a model says to a prompt, greedily; see `Model.generate`."""
    edits = [BASELINE if edit is None else edit_for(model, edit)]
    style = _style(model, prompt_style, thinking, system, template_arguments)
    return _answers(model, prompt, edits, style, _decoding(max_new_tokens, thinking_tokens, stop))[0]


@validated
@observing("a comparison", unedited=True)
def compare(
    model: Model,
    prompt: LongText,
    edits: Any,
    *,
    max_new_tokens: int = 64,
    prompt_style: str | None = None,
    thinking: str | None = None,
    system: str | None = None,
    template_arguments: str | Sequence[str] = (),
    thinking_tokens: int | None = None,
    stop: str | Sequence[str] = (),
) -> pd.DataFrame:
    """What a model says to a prompt as it is and under each of several edits; see `Model.compare`."""
    edits = list(edits) if isinstance(edits, Iterator) else edits
    one = isinstance(edits, Single | Compose) or several(edits) is None
    given = [edits] if one else several(edits) or []
    listed = [BASELINE, *(edit_for(model, edit) for edit in given)]
    if len(listed) == 1:
        raise UsageError("Give at least one edit to compare with the model as it is, such as '3×0'.")
    style = _style(model, prompt_style, thinking, system, template_arguments)
    answers = _answers(model, prompt, listed, style, _decoding(max_new_tokens, thinking_tokens, stop))
    return pd.DataFrame({"edit": list(map(str, listed)), "answer": answers})


def _style(
    model: Model, name: str | None, thinking: str | None, system: str | None, arguments: str | Sequence[str]
) -> str:
    """The prompt style with its settings: the chat template where none is named, or `raw` where there is none."""
    arguments = (arguments,) if isinstance(arguments, str) else arguments
    style = Style.parse(name or "").having(thinking, system, arguments)
    return str(replace(style, name=style.name or ("chat" if model.has_chat_template else "raw")))


def _decoding(most: int, thinking: int | None, stop: str | Sequence[str]) -> Decoding:
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    return Decoding(max_new_tokens=most, stop=stops, thinking_tokens=thinking or 0)


def _answers(model: Model, prompt: str, edits: list[Edit], style: str, decoding: Decoding) -> list[str]:
    item = Item("prompt", prompt, "")
    asked = Given("python:prompt", (item,), lambda _, __: UNREAD, max_new_tokens=decoding.max_new_tokens, style=style)
    ids = encode(model, asked, item, style, max_new_tokens=1)
    requests = [Request(str(number), ids, edit, decoding) for number, edit in enumerate(edits)]
    said = {response.key: response.answer.text for response in TransformersEngine(model).answer(requests)}
    # With the tag that the prompt ends in, what is thought and what is answered can be told apart.
    begun = opening(model.tokenizer, ids)
    return [begun + said[request.key] for request in requests]
