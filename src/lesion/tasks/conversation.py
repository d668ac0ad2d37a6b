"""Conversations: an item as a chat template writes it, under a system prompt and arguments of the template."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lesion.errors import LesionError, UsageError, nearest
from lesion.tasks import chat
from lesion.tasks.style import Style
from lesion.tasks.task import Item, Task
from lesion.tasks.thinking import OPEN
from lesion.tasks.written import Written, names_control

if TYPE_CHECKING:
    from lesion.tasks.prompts import Speaker

SWITCHES = ("enable_thinking", "thinking")
"""What chat templates call the argument that switches thinking."""
_OTHER_DAY = datetime(2038, 12, 25, 13, 47, 31)


def refuse_unfit(model: Speaker, task: Task, style: Style) -> None:
    """Refuse settings of a chat that the chat template of a model does not heed.

    Raises:
        UsageError: the template knows no thinking, no system prompt, or no such argument; or the task scores choices,
            before which nothing can be thought.
        LesionError: the template cannot be used.
    """
    known = chat.arguments_of(model.tokenizer)
    switches = known.intersection(SWITCHES)
    for key, _ in style.arguments:
        if key not in known:
            raise UsageError(
                f"The chat template of {model.name} has no argument '{key}'{nearest(key, sorted(known))}; it has"
                f" {', '.join(sorted(known)) or 'none'}."
            )
        if style.thinking and key in switches:
            raise UsageError(f"--thinking sets the template argument {key} already; leave one of the two out.")
    if style.thinking == "on" and task.kind in ("choose", "contrast"):
        raise UsageError(
            f"{task.name} is scored right after its prompt, before anything is thought; give that task"
            ' prompt_style = "chat thinking=off" in a study file, or leave --thinking out.'
        )
    if names_control(model.tokenizer, style.system):
        raise UsageError(f"The system prompt contains control tokens of {model.name}; write it as plain text.")
    text = _render(model, [{"role": "user", "content": "Question"}], style)
    if style.system.strip() not in text:
        raise UsageError(f"The chat template of {model.name} leaves a system prompt out; leave --system out.")
    thinks = text.rstrip().endswith(OPEN)
    if style.thinking == "on" and not (switches or thinks):
        raise UsageError(
            f"The chat template of {model.name} knows no thinking (it has no argument {' or '.join(SWITCHES)}); leave"
            " --thinking out, or choose a model that thinks."
        )
    if style.thinking == "off" and (thinks or not switches):
        why = f"answers begin with {OPEN}" if thinks else f"it has no argument {' or '.join(SWITCHES)}"
        raise UsageError(f"The chat template of {model.name} cannot switch thinking off ({why}); leave --thinking out.")


def write_chat(model: Speaker, item: Item, instruction: str, style: Style) -> Written:
    """The prompt that asks a model an item in a chat; solved questions are earlier turns.

    Raises:
        LesionError: the chat template changes a message in which the question cannot be told from the template; or it
            has turns for shots, and one of them names a control token.
    """
    question = item.question.strip()
    behind = f"\n{instruction}" if instruction else ""
    turns: list[dict[str, str]] = []
    for solved, solution in item.shots:
        if names_control(model.tokenizer, solved + solution + question):
            raise LesionError(
                f"Item {item.id} or a solved question before it contains control tokens of {model.name} as text, and "
                f"they cannot be kept apart in a chat; choose --prompt-style plain."
            )
        turns += [{"role": "user", "content": solved.strip()}, {"role": "assistant", "content": solution}]

    def render(question: str) -> str:
        return _render(model, [*turns, {"role": "user", "content": question + behind}], style)

    if not names_control(model.tokenizer, question):
        return Written(render(question))
    mark = "QUESTION-GOES-HERE"
    before, _, after = render(mark).partition(mark)
    if before + question + after != render(question):
        raise LesionError(
            f"Item {item.id} contains control tokens of {model.name} as text, and the chat template rewrites "
            f"its message, so that they cannot be kept apart; choose --prompt-style plain."
        )
    return Written(before, question, after)


def dated(model: Speaker, style: Style) -> bool:
    """Whether the prompts of a style hold the date or the time, by the clock of the chat template.

    Raises:
        LesionError: the template cannot be used.
    """
    turns = [{"role": "user", "content": "Question"}]
    return style.name == "chat" and _render(model, turns, style) != _render(model, turns, style, _OTHER_DAY)


def _render(model: Speaker, turns: list[dict[str, str]], style: Style, now: datetime = chat.DAY) -> str:
    system = [{"role": "system", "content": style.system}] if style.system else []
    arguments: dict[str, Any] = {key: json.loads(value) for key, value in style.arguments}
    if style.thinking:
        arguments |= dict.fromkeys(chat.arguments_of(model.tokenizer).intersection(SWITCHES), style.thinking == "on")
    return chat.render(model.tokenizer, [*system, *turns], model.name, now, add_generation_prompt=True, **arguments)
