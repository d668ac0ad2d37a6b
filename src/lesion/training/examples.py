"""Examples: token ids of a prompt and of its answer, with the token that ends an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.tasks.continuations import encode_choices
from lesion.tasks.prompts import encode
from lesion.tasks.task import Item, Task

IGNORED = -100  # the label of a token that is not learned, as transformers has it


@dataclass(frozen=True)
class Example:
    """Token ids of a prompt and of its completion (answer and end token), on which the loss is; neither is empty."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]


def end_token(model: Model) -> int:
    """The token that ends an answer: the first at which the model stops, or that of its tokenizer."""
    ends = model.network.generation_config.eos_token_id
    end = next(iter(ends), None) if isinstance(ends, list) else ends
    end = model.tokenizer.eos_token_id if end is None else end
    if end is None:
        raise LesionError(
            f"{model.name} has no token that ends an answer; name one as eos_token_id in its generation_config.json."
        )
    return int(end)


def example(model: Model, task: Task, item: Item, text: str, style: str | None = None) -> Example:
    """An item with a text as its answer: a solution, or a teacher's words.

    The prompt is that of `lesion.tasks.prompts.encode`; the text, without white space around it, follows it as a choice
    would (`encode_choices`), with the model's end token behind it.
    """
    words = text.strip()
    if not words:
        raise LesionError(f"Item {item.id} of {task.name} has no answer that could be learned; leave it out.")
    (completion,) = encode_choices(model, task, replace(item, choices=(words,)), style)
    completion = (*completion, end_token(model))
    prompt = encode(model, task, item, style, max_new_tokens=0)
    if len(prompt) + len(completion) > model.context:
        raise LesionError(
            f"Item {item.id} of {task.name} is too long for {model.name}: its prompt has {len(prompt):,} tokens and its"
            f" answer {len(completion):,}, and the context has {model.context:,}. Leave the item out."
        )
    return Example(prompt, completion)


def examples(model: Model, task: Task, items: Sequence[Item], style: str | None = None) -> list[Example]:
    """Items with their gold choice where there are choices, else their solution or gold answer."""
    return [
        example(model, task, item, item.gold if item.choices else item.solution or item.gold, style) for item in items
    ]
