"""Prompt styles: from an item to the token ids that a model is given."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any, Protocol, runtime_checkable

from lesion.errors import LesionError, UsageError, nearest
from lesion.tasks.jsonl import JsonLines
from lesion.tasks.task import Item, Task


@runtime_checkable
class Speaker(Protocol):
    """What prompts need of a model: a `lesion.Model` is one."""

    @property
    def name(self) -> str:
        """As typed: a hub id, a folder, `bundled:NAME`."""
        ...

    @property
    def tokenizer(self) -> Any:
        """The Hugging Face tokenizer."""
        ...

    @property
    def context(self) -> int:
        """The most positions that the model can attend over."""
        ...


@dataclass(frozen=True)
class Template:
    """A prompt style written as text.

    Attributes:
        template: the text, with `{question}` and perhaps `{instruction}`.
        special_tokens: who begins the text with special tokens, `tokenizer` or `template`.
        instruction: the instruction for each subject.
        checkpoints: hub ids for which a paper used the style.
    """

    template: str
    special_tokens: str
    instruction: Mapping[str, str] = field(default_factory=dict)
    checkpoints: tuple[str, ...] = ()

    def covers(self, subject: str) -> bool:
        """Whether there is an instruction for the subject, or none is needed."""
        return "{instruction}" not in self.template or subject in self.instruction


@lru_cache(maxsize=1)
def templates() -> Mapping[str, Template]:
    """The styles of `prompts.toml` by name."""
    return {
        name: Template(
            style["template"],
            style["special_tokens"],
            style.get("instruction", {}),
            tuple(style.get("checkpoints", ())),
        )
        for name, style in _data()["styles"].items()
    }


def styles() -> tuple[str, ...]:
    """The names of all styles: `auto`, `raw`, `chat` and the templates."""
    return ("auto", "raw", "chat", *templates())


def resolve(model: Speaker, task: Task, style: str | None = None) -> str:
    """The style in which a model is asked a task.

    Args:
        model: who is asked.
        task: what is asked.
        style: a name of `styles()`; None for the task's own. `auto` is the paper's prompt where the model is
            one of a paper's checkpoints and the prompt covers the subject of the task, else the model's chat
            template, else `plain`.

    Returns:
        A name other than `auto`.

    Raises:
        UsageError: there is no such style; or `chat` was asked of a model without a chat template; or a
            paper's prompt was asked for a task about something else.
    """
    style = style or task.style
    subject: str = getattr(task, "subject", "")
    if style not in styles():
        raise UsageError(
            f"There is no prompt style '{style}'{nearest(style, styles())}; there are {', '.join(styles())}."
        )
    if style == "auto":
        checkpoint = model.name.partition("@")[0].lower()
        for name, template in templates().items():
            if template.covers(subject) and checkpoint in (known.lower() for known in template.checkpoints):
                return name
        return "chat" if _chats(model) else "plain"
    if style == "chat" and not _chats(model):
        raise UsageError(f"{model.name} has no chat template; choose another prompt style: raw or plain.")
    if style in templates() and not templates()[style].covers(subject):
        subjects = ", ".join(templates()[style].instruction)
        raise UsageError(
            f"The prompt style '{style}' has instructions for {subjects} only, not for {task.name}; "
            f"choose auto, raw, chat or plain."
        )
    return style


def encode(
    model: Speaker, task: Task, item: Item, style: str | None = None, max_new_tokens: int | None = None
) -> tuple[int, ...]:
    """The token ids that ask a model an item, special tokens included.

    In style `raw` the question is the whole prompt and is read as the tokenizer reads any text: names of
    control tokens in it are control tokens, since whoever writes whole prompts may mean them. In all other
    styles the question is data: a question that contains `<|im_end|>` is encoded so that these are ten
    characters. (Such a prompt is encoded in pieces between the control tokens of the template; all others in
    one. With `chat`, the question is found by the place where the template puts a message; a template that
    changes its message beyond stripping it cannot be split, and such an item is an error.)

    A special token that begins the text is written once, by the tokenizer or by the template; an end-of-text
    token that a tokenizer appends is left off, since the answer is to follow.

    Args:
        model: who is asked.
        task: what is asked.
        item: the question.
        style: see `resolve`.
        max_new_tokens: room that the answer needs; None for the task's own limit.

    Raises:
        UsageError: see `resolve`.
        LesionError: the prompt does not fit the context together with the answer's tokens, or is empty.
    """
    ids = _encode_prompt(model, task, item, resolve(model, task, style))
    room = 0 if task.kind == "choose" else task.max_new_tokens if max_new_tokens is None else max_new_tokens
    if not ids:
        raise LesionError(f"The prompt of item {item.id} of {task.name} has no tokens.")
    if len(ids) + room > model.context:
        raise LesionError(
            f"Item {item.id} of {task.name} is too long for {model.name}: its prompt has {len(ids):,} tokens, "
            f"and the context of {model.context:,} leaves {max(0, model.context - room):,} when {room:,} "
            f"are kept for the answer. Ask for a shorter answer with --max-new-tokens, leave the item out, "
            f"or choose another model."
        )
    return tuple(ids)


def encode_choices(model: Speaker, task: Task, item: Item, style: str | None = None) -> tuple[tuple[int, ...], ...]:
    """The token ids of each choice of an item, as they follow its prompt.

    A choice follows a `raw` or text prompt after one space, unless the prompt ends or the choice begins with
    white space, and a chat template at once. It is encoded without special tokens, and its names of control
    tokens are characters.

    Raises:
        UsageError: see `resolve`.
        LesionError: a choice has no tokens.
    """
    style = resolve(model, task, style)
    ending = _ending(item, style)
    encoded = []
    for choice in item.choices:
        apart = ending[-1:].isspace() or choice[:1].isspace()
        ids = _follow(model.tokenizer, choice if apart else f" {choice}")
        if not ids:
            raise LesionError(f"The choice '{choice}' of item {item.id} of {task.name} has no tokens.")
        encoded.append(tuple(ids))
    return tuple(encoded)


def encode_solved(model: Speaker, task: Task, item: Item, style: str | None = None) -> tuple[int, ...]:
    """The token ids of an item together with its gold solution: a text to observe a model on.

    The prompt is that of `encode`. The solution (the gold answer where the data set has none, the gold choice where
    there are choices) follows it as `encode_choices` has a choice follow: after one space, unless one of the two has
    white space there already. Of a JSON Lines file in style `raw`, prompt and answer stand as they are, with nothing
    between them, as one text. An item that is scored as running text has no answer and stands alone.

    The text may be longer than the model's context, and may have no tokens; who asks decides what becomes of it.

    Args:
        model: who will read it.
        task: where the item comes from.
        item: the question.
        style: see `resolve`.

    Raises:
        UsageError: see `resolve`.
    """
    style = resolve(model, task, style)
    if isinstance(task, JsonLines) and style == "raw":
        return tuple(_encode_text(model.tokenizer, item.question + item.gold, begin=True))
    solution = item.gold if item.choices else item.solution or item.gold
    if not solution:  # running text is data, whatever style its task names
        return tuple(_encode_pieces(model.tokenizer, "", item.question, "", begin=True))
    apart = _ending(item, style)[-1:].isspace() or solution[:1].isspace()
    ids = _encode_prompt(model, task, item, style)
    return (*ids, *_follow(model.tokenizer, solution if apart else f" {solution}"))


def _encode_prompt(model: Speaker, task: Task, item: Item, style: str) -> list[int]:
    subject: str = getattr(task, "subject", "")
    if style == "raw":
        return _encode_text(model.tokenizer, item.question, begin=True)
    if style == "chat":
        return _encode_chat(model, _chat_message(item.question, subject), item)
    template = templates()[style]
    text = template.template.replace("{instruction}", template.instruction.get(subject, ""))
    before, _, behind = text.partition("{question}")
    begin = template.special_tokens == "tokenizer"
    return _encode_pieces(model.tokenizer, before, item.question, behind, begin)


def _ending(item: Item, style: str) -> str:
    """The text that a prompt in a style ends with; a chat template ends a line."""
    return item.question if style == "raw" else templates()[style].template if style in templates() else "\n"


def encode_passage(model: Speaker, task: Task, item: Item) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The token ids of running text: what stands before it, and those whose log-probability is summed.

    Before it stand the special tokens that the tokenizer begins texts with; where there are none, the first token of
    the text, which nothing predicts. A text that does not fit the context is cut at its end. Names of control tokens
    in it are characters.

    Args:
        model: who reads it.
        task: where the item comes from.
        item: its question is the text.

    Returns:
        (before, scored), each with at least one token, together no more than the context.

    Raises:
        LesionError: there is no token to score.
    """
    before = _beginning(model.tokenizer)
    ids = _follow(model.tokenizer, item.question)
    if not before:
        before, ids = ids[:1], ids[1:]
    scored = ids[: max(0, model.context - len(before))]
    if not before or not scored:
        raise LesionError(
            f"Item {item.id} of {task.name} leaves {model.name} no token to predict; a text needs two, or a tokenizer "
            f"that begins texts with a token of its own."
        )
    return tuple(before), tuple(scored)


@lru_cache(maxsize=1)
def _data() -> Mapping[str, Any]:
    return tomllib.loads(resources.files("lesion.tasks").joinpath("prompts.toml").read_text(encoding="utf-8"))


def _chats(model: Speaker) -> bool:
    return bool(getattr(model.tokenizer, "chat_template", None))


def _chat_message(question: str, subject: str) -> tuple[str, str]:
    """The question and what follows it in the user's message."""
    instruction = _data()["instructions"]["chat"].get(subject, "")
    return question.strip(), f"\n{instruction}" if instruction else ""


def _encode_chat(model: Speaker, message: tuple[str, str], item: Item) -> list[int]:
    def render(content: str) -> str:
        return str(
            model.tokenizer.apply_chat_template(
                [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
            )
        )

    question, instruction = message
    if not _has_control(model.tokenizer, question):
        return _encode_text(model.tokenizer, render(question + instruction), begin=False)
    mark = "QUESTION-GOES-HERE"
    before, _, behind = render(mark + instruction).partition(mark)
    if before + question + behind != render(question + instruction):
        raise LesionError(
            f"Item {item.id} contains control tokens of {model.name} as text, and the chat template rewrites "
            f"its message, so that they cannot be kept apart; choose --prompt-style plain."
        )
    return _encode_pieces(model.tokenizer, before, question, behind, begin=False)


def _encode_pieces(tokenizer: Any, before: str, question: str, behind: str, begin: bool) -> list[int]:
    """Ids of a prompt in which the control tokens of the template are meant and those of the question are not."""
    if not _has_control(tokenizer, question):
        return _encode_text(tokenizer, before + question + behind, begin)
    control = re.compile("(" + "|".join(map(re.escape, _controls(tokenizer))) + ")")
    *head, near = control.split(before)  # text and control tokens in turn, text first and last
    close, *tail = control.split(behind)
    ids = _beginning(tokenizer) if begin else []
    for place, piece in enumerate([*head, near + question + close, *tail]):
        ids += [tokenizer.convert_tokens_to_ids(piece)] if place % 2 else _follow(tokenizer, piece)
    return ids


def _has_control(tokenizer: Any, text: str) -> bool:
    return any(control in text for control in _controls(tokenizer))


def _controls(tokenizer: Any) -> list[str]:
    """The control tokens of a tokenizer as text, the longest first."""
    contents = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    return sorted(contents, key=len, reverse=True)


def _encode_text(tokenizer: Any, text: str, begin: bool) -> list[int]:
    """Ids of a text; with `begin`, behind the tokens that the tokenizer begins texts with, each once."""
    ids: list[int] = list(tokenizer.encode(text, add_special_tokens=False))
    if not begin:
        return ids
    start = _beginning(tokenizer)
    return ids if start and ids[: len(start)] == start else start + ids


def _beginning(tokenizer: Any) -> list[int]:
    """The special tokens that a tokenizer begins every text with, without those that it appends."""
    probe = "a"
    plain = list(tokenizer.encode(probe, add_special_tokens=False))
    full = list(tokenizer.encode(probe, add_special_tokens=True))
    for start in range(len(full) - len(plain) + 1):
        if plain and full[start : start + len(plain)] == plain:
            return full[:start]
    return []


def _follow(tokenizer: Any, text: str) -> list[int]:
    """Ids of a text that continues another one and in which control tokens are characters."""
    return list(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
