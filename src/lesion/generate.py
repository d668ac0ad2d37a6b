"""Generate: what a model says to a prompt, as it is and under edits; `Model.generate` and `Model.compare` are these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from lesion.arguments import several
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
from lesion.tasks.style import Style, opening
from lesion.tasks.task import Item


def generate(model: Model, prompt: str, edit: EditLike, **settings: Any) -> str:
    """What a model says to a prompt, greedily; the settings are those of `Model.generate`."""
    return _answers(model, prompt, [BASELINE if edit is None else edit_for(model, edit)], **settings)[0]


@observing("a comparison", unedited=True)
def compare(model: Model, prompt: str, edits: Any, **settings: Any) -> pd.DataFrame:
    """What a model says to a prompt as it is and under each of several edits; the settings are those of `generate`."""
    edits = list(edits) if isinstance(edits, Iterator) else edits
    is_single = isinstance(edits, Single | Compose) or several(edits) is None
    chosen = [edits] if is_single else several(edits) or []
    listed = [BASELINE, *(edit_for(model, edit) for edit in chosen)]
    if len(listed) == 1:
        raise UsageError("Give at least one edit to compare with the model as it is, such as '3×0'.")
    return pd.DataFrame({"edit": list(map(str, listed)), "answer": _answers(model, prompt, listed, **settings)})


def _answers(
    model: Model,
    prompt: str,
    edits: list[Edit],
    *,
    max_new_tokens: int,
    prompt_style: str | None,
    thinking: str | None,
    system: str | None,
    template_arguments: str | Sequence[str],
    thinking_tokens: int | None,
    stop: str | Sequence[str],
) -> list[str]:
    """By default in the chat template's style, or `raw` where there is none."""
    arguments = (template_arguments,) if isinstance(template_arguments, str) else template_arguments
    chosen = Style.parse(prompt_style or "").having(thinking, system, arguments)
    style = str(replace(chosen, name=chosen.name or ("chat" if model.has_chat_template else "raw")))
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    decoding = Decoding(max_new_tokens=max_new_tokens, stop=stops, thinking_tokens=thinking_tokens or 0)
    item = Item("prompt", prompt, "")
    task = Given("python:prompt", (item,), max_new_tokens=max_new_tokens, style=style, rule=lambda _, __: UNREAD)
    ids = encode(model, task, item, style, max_new_tokens=1)
    requests = [Request(str(number), ids, edit, decoding) for number, edit in enumerate(edits)]
    answers = {response.key: response.answer.text for response in TransformersEngine(model).answer(requests)}
    # With the tag that the prompt ends in, what is thought and what is answered can be told apart.
    begun = opening(model.tokenizer, ids)
    return [begun + answers[request.key] for request in requests]
