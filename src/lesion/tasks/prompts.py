"""Prompt styles: from an item to the token ids that ask a model; `continuations.py` has what follows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from typing import Any, Protocol, runtime_checkable

from lesion.errors import LesionError, UsageError, nearest
from lesion.plain import short
from lesion.tasks.conversation import Written, apart, forms_of, refuse_unfit, write_chat
from lesion.tasks.source import Fields, packaged
from lesion.tasks.style import OPEN, Style
from lesion.tasks.task import Item, Task


@runtime_checkable
class Speaker(Protocol):
    """What prompts need of a model: a `lesion.Model` is one.

    Attributes:
        name: as typed, a hub id, a folder, `bundled:NAME`.
        context: the most positions that the model can attend over.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def tokenizer(self) -> Any: ...  # noqa: D102
    @property
    def context(self) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class Template:
    """A prompt style written as text.

    Attributes:
        template: the text, with `{question}` and perhaps `{instruction}`.
        special_tokens: who begins the text with special tokens, `tokenizer` or `template`.
        instruction: the instruction for each subject.
        checkpoints: hub ids for which a paper used the style.
        repeats: whether solved questions may stand before the question in the same form.
    """

    template: str
    special_tokens: str
    instruction: Mapping[str, str] = field(default_factory=dict)
    checkpoints: Sequence[str] = ()
    repeats: bool = False

    def covers(self, subject: str) -> bool:
        """Whether there is an instruction for the subject, or none is needed."""
        return "{instruction}" not in self.template or subject in self.instruction


@lru_cache(maxsize=1)
def templates() -> Mapping[str, Template]:
    """The styles of `prompts.toml` by name."""
    return {name: Template(**style) for name, style in _data()["styles"].items()}


def styles() -> tuple[str, ...]:
    """The names of all styles: `auto`, `raw`, `chat` and the templates."""
    return ("auto", "raw", "chat", *templates())


def resolve(model: Speaker, task: Task, style: str | None = None) -> str:
    """The style in which a model is asked a task.

    `style` is a name of `styles()`, with settings of a chat behind it perhaps (`lesion.tasks.style`); None for the
    task's own. `auto` is the paper's prompt where the model is one of a paper's checkpoints and the prompt covers the
    subject of the task, else the model's chat template, else what the task says (`unchatted`), else `plain`; it is
    never returned.
    """
    wanted = Style.parse(style or "")
    blank = style if style and style.isspace() else None  # is no name, and not nothing either
    wanted = replace(wanted, name=_named(model, task, blank or wanted.name or task.style))
    if not wanted.set:
        if wanted.name == "chat":
            forms_of(model, wanted, solved=False)
        return wanted.name
    if wanted.name == "chat":
        refuse_unfit(model, task, wanted)
        return str(wanted)
    thinks = wanted.set == ("--thinking",) and wanted.thinking == "on" and _begins_thinking(wanted.name)
    if thinks or task.kind == "score":  # running text has no prompt
        return wanted.name
    settings = " and ".join(wanted.set)
    if not _chats(model):
        raise UsageError(f"{model.name} has no chat template, so that nothing can be set in one; leave {settings} out.")
    refuse_unfit(model, task, wanted)  # else the advice would lead to the next refusal
    raise UsageError(
        f"{task.name} is asked of {model.name} in the style '{wanted.name}', which has no place for {settings}; choose"
        f" --prompt-style chat, leave {settings} out, or give the task a prompt_style of its own in a study file."
    )


def _begins_thinking(name: str) -> bool:
    return name in templates() and templates()[name].template.rstrip().endswith(OPEN)


def _named(model: Speaker, task: Task, style: str) -> str:
    """The name of a style, never `auto`."""
    subject: str = getattr(task, "subject", "")
    if style not in styles():
        raise UsageError(
            f"There is no prompt style '{style}'{nearest(style, styles())}; there are {', '.join(styles())}."
        )
    if style == "auto":
        checkpoint, own = model.name.partition("@")[0].lower(), getattr(task, "unchatted", "plain") != "plain"
        for name, template in templates().items():
            known = () if own or not template.covers(subject) else (known.lower() for known in template.checkpoints)
            if checkpoint in known:
                return name
        return "chat" if _chats(model) else getattr(task, "unchatted", "plain")
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

    In style `raw` the question is the whole prompt and is read as the tokenizer reads any text: names of control tokens
    in it are control tokens. In all other styles the question is data: `<|im_end|>` in it is ten characters. (Such a
    prompt is encoded in pieces between the control tokens of the template, all others in one. With `chat`, a template
    that changes its message beyond stripping it cannot be split, and such an item is an error.)

    A special token that begins the text is written once, by the tokenizer or by the template; an end-of-text
    token that a tokenizer appends is left off, since the answer is to follow.

    `max_new_tokens` is the room that the answer needs; None for the task's own limit.
    """
    refuse_immense(model, task, item)
    ids = write(model, task, item, resolve(model, task, style)).ids(model.tokenizer)
    room = task.max_new_tokens if max_new_tokens is None else max_new_tokens
    if task.kind in ("choose", "contrast"):
        room = 0
    if not ids:
        raise LesionError(f"The prompt of item {item.id} of {task.name} has no tokens.")
    most = model.context - max(0, room - 1)  # the last token of an answer needs no position
    if len(ids) > most:
        text = f"Item {item.id} of {task.name} is too long for {model.name}: its prompt has {len(ids):,} tokens, "
        if len(ids) > model.context:
            text += f"and the context has {model.context:,}. Leave the item out, or choose another model."
        else:
            text += (
                f"and with an answer of up to {room:,} tokens the context of {model.context:,} holds prompts of"
                f" {max(0, most):,}. Ask for a shorter answer with --max-new-tokens, leave the item out, or choose"
                " another model."
            )
        raise LesionError(text)
    return tuple(ids)


def longest_text(context: int) -> int:
    """So many characters may fit a context, at 16 a token and never fewer than a million."""
    return max(1_000_000, 16 * context)


def refuse_immense(model: Speaker, task: Task, item: Item) -> None:
    """Refuse a prompt that cannot fit the context before it is put into tokens, which takes 300 bytes a character."""
    length = len(item.question) + sum(len(question) + len(solution) for question, solution in item.shots)
    if length > longest_text(model.context):
        raise LesionError(
            f"Item {short(item.id, 60)} of {task.name} is too long for {model.name}: its prompt has {length:,}"
            f" characters, and the context has {model.context:,} tokens. Leave the item out."
        )


def write(model: Speaker, task: Task, item: Item, style: str) -> Written:
    """The prompt that asks a model an item, as text.

    Shots of an item stand before its question, each in the form of the style with its solution behind it as a choice
    would follow, and an empty line between two; in style `chat` they are earlier turns.
    """
    subject: str = getattr(task, "subject", "")
    how = Style.parse(style)
    if style == "raw":
        return Written(_repeated(item, "", ""), begin=True)
    if how.name == "chat":
        return write_chat(model, item, _data()["instructions"]["chat"].get(subject, ""), how)
    template = templates()[style]
    if item.shots and not template.repeats:
        able = ["raw", "chat", *(name for name, other in templates().items() if other.repeats)]
        raise UsageError(
            f"The prompt style '{style}' has no place for the solved questions of {task.name}; choose "
            f"{', '.join(able)}."
        )
    text = template.template.replace("{instruction}", template.instruction.get(subject, ""))
    before, _, behind = text.partition("{question}")
    return Written(before, _repeated(item, before, behind), behind, begin=template.special_tokens == "tokenizer")


def _repeated(item: Item, before: str, behind: str) -> str:
    """The question of an item with its shots before it, each between the same texts, the first begun already."""
    solved = (
        f"{question}{behind}{apart(question + behind, solution)}\n\n{before}" for question, solution in item.shots
    )
    return "".join((*solved, item.question))


@lru_cache(maxsize=1)
def _data() -> Fields:
    return packaged("prompts.toml")


def _chats(model: Speaker) -> bool:
    return bool(getattr(model.tokenizer, "chat_template", None))


def common_start(*sequences: Sequence[object]) -> int:
    """How many elements all sequences begin with alike: tokens, words or letters."""
    return sum(1 for _ in takewhile(lambda each: each.count(each[0]) == len(each), zip(*sequences, strict=False)))
