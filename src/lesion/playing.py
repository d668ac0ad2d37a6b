"""Playing: what a model says to a prompt, as it is and under edits; `Model.generate` and `Model.compare` are these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from lesion.arguments import LongText, several, validated
from lesion.edits.edit import BASELINE, Compose, Edit, EditLike, Single
from lesion.edits.given import edit_for
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import UsageError
from lesion.models.load import Model
from lesion.tasks.given import Given
from lesion.tasks.judges.judge import UNREAD
from lesion.tasks.prompts import encode
from lesion.tasks.task import Item


@validated
def generate(
    model: Model,
    prompt: LongText,
    edit: EditLike = None,
    *,
    max_new_tokens: int = 64,
    prompt_style: str | None = None,
    stop: str | tuple[str, ...] = (),
) -> str:
    """What a model says to a prompt, greedily; see `Model.generate`."""
    edits = [BASELINE if edit is None else edit_for(model, edit)]
    return _answers(model, prompt, edits, max_new_tokens, prompt_style, stop)[0]


@validated
def compare(
    model: Model,
    prompt: LongText,
    edits: Any,
    *,
    max_new_tokens: int = 64,
    prompt_style: str | None = None,
    stop: str | tuple[str, ...] = (),
) -> pd.DataFrame:
    """What a model says to a prompt as it is and under each of several edits; see `Model.compare`."""
    edits = list(edits) if isinstance(edits, Iterator) else edits
    one = isinstance(edits, Single | Compose) or several(edits) is None
    given = [edits] if one else several(edits) or []
    listed = [BASELINE, *(edit_for(model, edit) for edit in given)]
    if len(listed) == 1:
        raise UsageError("Give at least one edit to compare with the model as it is, such as '3×0'.")
    answers = _answers(model, prompt, listed, max_new_tokens, prompt_style, stop)
    return pd.DataFrame({"edit": list(map(str, listed)), "answer": answers})


def _answers(
    model: Model, prompt: str, edits: list[Edit], most: int, style: str | None, stop: str | tuple[str, ...]
) -> list[str]:
    style = style or ("chat" if model.has_chat_template else "raw")
    item = Item("prompt", prompt, "")
    asked = Given("python:prompt", (item,), lambda _, __: UNREAD, max_new_tokens=most, style=style)
    decoding = Decoding(max_new_tokens=most, stop=(stop,) if isinstance(stop, str) else stop)
    ids = encode(model, asked, item, style, max_new_tokens=1)
    requests = [Request(str(number), ids, edit, decoding) for number, edit in enumerate(edits)]
    said = {response.key: response.answer.text for response in TransformersEngine(model).answer(requests)}
    return [said[request.key] for request in requests]
