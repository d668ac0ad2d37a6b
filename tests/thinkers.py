"""Chat templates in the manner of models that think, written for these tests, and models that have them."""

import copy
from dataclasses import replace

from lesion.models.load import Model
from tiny import model

_TURNS = (
    "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' ~ m.content ~ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}"
)
PLAIN = _TURNS + "{% endif %}"
"""Of a model that does not think."""
SWITCHED = (
    _TURNS + "{% if effort is defined %}{{ 'effort ' ~ effort ~ '\n' }}{% endif %}"
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
    "{% endif %}"
)
"""As Qwen3's: the model writes the opening tag itself; without thinking the prompt has an empty trace."""
OPENED = _TURNS + "{{ '<think>\n' }}{% endif %}"
"""As that of R1's distillates: the prompt ends in the opening tag, and nothing switches it."""
NO_SYSTEM = PLAIN.replace("in messages", "in messages if m.role != 'system'")
"""Leaves a system prompt out."""


def thinker(template: str | None, family: str = "llama") -> Model:
    """A tiny model with a chat template."""
    made = model(family)
    tokenizer = copy.deepcopy(made.tokenizer)
    tokenizer.chat_template = template
    return replace(made, tokenizer=tokenizer)
