"""Conversations: an item as a chat template writes it, under a system prompt and arguments of the template."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lesion.errors import LesionError, UsageError, nearest
from lesion.plain import short
from lesion.tasks import chat
from lesion.tasks.style import OPEN, Style
from lesion.tasks.task import Item, Task

if TYPE_CHECKING:
    from lesion.tasks.prompts import Speaker


@dataclass(frozen=True)
class Written:
    """A prompt as text.

    Attributes:
        before: what a template has before the question; names of control tokens in it are control tokens.
        question: the data; names of control tokens in it are characters.
        behind: what a template has behind the question; as `before`.
        begin: whether the tokenizer's own beginning stands before it all.
    """

    before: str
    question: str = ""
    behind: str = ""
    begin: bool = False

    def ids(self, tokenizer: Any) -> list[int]:
        """The token ids: of the whole text in one, or in pieces where the question names control tokens."""
        start = beginning(tokenizer) if self.begin else []
        if not names_control(tokenizer, self.question):
            ids: list[int] = list(tokenizer.encode(self.before + self.question + self.behind, add_special_tokens=False))
            return ids if start and ids[: len(start)] == start else start + ids
        first, *others = self.pieces(tokenizer)
        ids = [*start, *section(tokenizer, "", first)]
        for control, text in zip(others[::2], others[1::2], strict=True):
            ids += [tokenizer.convert_tokens_to_ids(control), *section(tokenizer, control, text)]
        return ids

    def pieces(self, tokenizer: Any) -> list[str]:
        """Texts and the control tokens that are meant in turn, a text first and last."""
        names = "|".join(map(re.escape, _controls(tokenizer)))
        control = re.compile(f"({names})" if names else "(?!)")  # the latter is found nowhere
        *head, near = control.split(self.before)
        close, *tail = control.split(self.behind)
        return [*head, near + self.question + close, *tail]


def apart(ending: str, text: str) -> str:
    """A text as it follows an ending: after one space, unless there is white space already."""
    return text if ending[-1:].isspace() or text[:1].isspace() else f" {text}"


def section(tokenizer: Any, control: str, text: str) -> list[int]:
    """The ids of a text that stands behind a control token ("": at the beginning), as in one encoding of both.

    Names of control tokens in the text are characters. Tokenizers differ in what they do there. Those that put `▁`
    before every text do so behind every control token too (Llama 2 as first released), or at the beginning of the whole
    alone; some control tokens swallow white space.
    """
    if control and not names_control(tokenizer, text):
        behind = _behind_control(tokenizer, control, text)
        if behind is not None:
            return behind
    # One encoding cannot both mean the control token and spell the text: what it would do is found out in parts.
    if _swallows(tokenizer, control):
        text = text.lstrip()
    if control and _behind_control(tokenizer, control, "a") not in (None, spell(tokenizer, "a")):
        # Nothing begins anew behind this control token, and nothing does behind a line break.
        behind = continued(spell(tokenizer, "\n"), spell(tokenizer, f"\n{text}"))
        if behind:
            return behind
    return spell(tokenizer, text)


def continued(before: list[int], whole: list[int]) -> list[int]:
    """The ids that a whole has behind those of what stands before; none where it does not begin with them."""
    return whole[len(before) :] if whole[: len(before)] == before else []


def spell(tokenizer: Any, text: str) -> list[int]:
    """The ids of a text that stands alone, in which names of control tokens are characters."""
    # Not verbose: what does not fit the context is said by lesion.
    return list(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True, verbose=False))


def names_control(tokenizer: Any, text: str) -> bool:
    """Whether a text contains the name of a control token."""
    return any(control in text for control in _controls(tokenizer))


def beginning(tokenizer: Any) -> list[int]:
    """The special tokens that a tokenizer begins every text with, without those that it appends."""
    probe = "a"
    plain = list(tokenizer.encode(probe, add_special_tokens=False))
    full = list(tokenizer.encode(probe, add_special_tokens=True))
    for start in range(len(full) - len(plain) + 1):
        if plain and full[start : start + len(plain)] == plain:
            return full[:start]
    return []


def _behind_control(tokenizer: Any, control: str, text: str) -> list[int] | None:
    """The ids behind a control token in one encoding with it; None where it is not read as that token."""
    ids = list(tokenizer.encode(control + text, add_special_tokens=False))
    return ids[1:] if ids[:1] == [tokenizer.convert_tokens_to_ids(control)] else None


def _swallows(tokenizer: Any, control: str) -> bool:
    """Whether a control token takes away the white space behind it, as those of Phi-3 do."""
    return any(token.rstrip for token in tokenizer.added_tokens_decoder.values() if token.content == control)


def _controls(tokenizer: Any) -> list[str]:
    """The control tokens of a tokenizer as text, the longest first."""
    contents = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    return sorted(contents, key=len, reverse=True)


ROLES = ("user", "system", "assistant")
SWITCHES = ("enable_thinking", "thinking")
"""What chat templates call the argument that switches thinking."""
Turn = tuple[str, str]
"""Role and content of a message."""
_FORMS = tuple(map(frozenset[str], ((), ROLES, ROLES[:1], ROLES[:2], ROLES[::2], ROLES[1:2], ROLES[2:], ROLES[1:])))
"""Which roles' messages are lists of parts, in the order in which it is tried."""
_OTHER_DAY = datetime(2038, 12, 25, 13, 47, 31)


@dataclass(frozen=True)
class Named:
    """A tokenizer and whose it is, as far as a chat needs a model."""

    name: str
    tokenizer: Any
    context: int = 0


def refuse_unfit(model: Speaker, task: Task, style: Style) -> None:
    """Refuse settings of a chat that the chat template of a model does not heed."""
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
    text = _render(model, [("user", "Question")], style, forms_of(model, style, solved=False))
    if not contains(style.system, text):
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
    """The prompt that asks a model an item in a chat; solved questions are earlier turns."""
    question = item.question.strip()
    behind = f"\n{instruction}" if instruction else ""
    turns: list[Turn] = []
    for solved, solution in item.shots:
        if names_control(model.tokenizer, solved + solution + question):
            raise LesionError(
                f"Item {item.id} or a solved question before it contains control tokens of {model.name} as text, and "
                f"they cannot be kept apart in a chat; choose --prompt-style plain."
            )
        turns += [("user", solved.strip()), ("assistant", solution)]
    forms = forms_of(model, style, solved=bool(item.shots))

    def render(question: str) -> str:
        return _render(model, [*turns, ("user", question + behind)], style, forms)

    text = render(question)
    for role, content in (*turns, ("user", question + behind)):
        if not contains_part(content, text):
            raise UsageError(
                f"The chat template of {model.name} leaves '{short(content, 60)}' out, a message of the {role} in item"
                f" {short(item.id, 60)}; choose --prompt-style plain or raw, or mend the template."
            )
    if not names_control(model.tokenizer, question):
        return Written(text)
    mark = "QUESTION-GOES-HERE"
    before, _, after = render(mark).partition(mark)
    if before + question + after != text:
        raise LesionError(
            f"Item {item.id} contains control tokens of {model.name} as text, and the chat template rewrites "
            f"its message, so that they cannot be kept apart; choose --prompt-style plain."
        )
    return Written(before, question, after)


def forms_of(model: Speaker, style: Style, *, solved: bool) -> frozenset[str]:
    """The roles whose messages a chat template reads as lists of parts, as those of models that see images do.

    A template that reads texts gets texts; the others get what transformers gives them, `[{"type": "text", …}]`.

    `solved`: whether solved questions stand before the question, as earlier turns.
    """
    return _forms(model.tokenizer, str(model.tokenizer.chat_template), model.name, str(style), solved)


@lru_cache(maxsize=8)
def _forms(tokenizer: Any, template: str, name: str, style: str, solved: bool) -> frozenset[str]:
    del template  # it is that of the tokenizer, where it may have been replaced
    how, model = Style.parse(style), Named(name, tokenizer)
    turns: list[Turn] = [("user", "Amber 17?"), ("assistant", "Indigo 23.")] if solved else []
    turns += [("user", "Quartz 42?")]
    texts = [content for _, content in turns]
    heeded: frozenset[str] | None = None
    refusal: LesionError | None = None
    lost = "the question"
    for forms in _FORMS:
        try:
            text = _render(model, turns, how, forms)
        except chat.OutOfTimeError:
            raise
        except LesionError as error:
            refusal = refusal if forms else error
            continue
        if contains_in_order(texts, text) and not written_as_data(text):
            if contains(how.system, text):
                return forms
            heeded = forms if heeded is None else heeded  # `refuse_unfit` refuses the system prompt
        elif solved and contains(texts[-1], text) and not written_as_data(text):
            lost = "solved questions or their answers"
    if heeded is not None:
        return heeded
    if refusal is not None:
        raise refusal
    raise UsageError(
        f"The chat template of {name} leaves {lost} out, whether messages are texts or lists of parts; choose"
        " --prompt-style plain, or mend the template."
    )


def dated(model: Speaker, style: Style) -> bool:
    """Whether the prompts of a style hold the date or the time, by the clock of the chat template."""
    if style.name != "chat":
        return False
    turns, forms = [("user", "Question")], forms_of(model, style, solved=False)
    return _render(model, turns, style, forms) != _render(model, turns, style, forms, _OTHER_DAY)


def cuts(model: Speaker, item: Item, style: Style) -> bool:
    """Whether the chat template writes the beginning of a question alone."""
    if style.name != "chat":
        return False
    text = _render(model, [("user", item.question.strip())], style, forms_of(model, style, solved=False))
    return not contains(item.question, text)


def _render(
    model: Speaker, turns: list[Turn], style: Style, forms: frozenset[str] = frozenset(), now: datetime = chat.DAY
) -> str:
    system = [("system", style.system)] if style.system else []
    arguments: dict[str, Any] = {key: json.loads(value) for key, value in style.arguments}
    if style.thinking:
        arguments |= dict.fromkeys(chat.arguments_of(model.tokenizer).intersection(SWITCHES), style.thinking == "on")
    messages = [
        {"role": role, "content": [{"type": "text", "text": content}] if role in forms else content}
        for role, content in (*system, *turns)
    ]
    return chat.render(model.tokenizer, messages, model.name, now, add_generation_prompt=True, **arguments)


ENOUGH = 12
"""So many characters of the beginning or the end of a text tell that it was cut, not left out."""
_ESCAPES = {r"\"": '"', r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\\": "\\"}
_ESCAPE = re.compile("|".join(map(re.escape, _ESCAPES)))


def contains(content: str, prompt: str) -> bool:
    """Whether all of a text is in a prompt; white space, letter case and escapes of HTML and JSON may differ."""
    return content.strip() in prompt or any(_plain(content) in each for each in _readings(prompt))


def contains_part(content: str, prompt: str) -> bool:
    """Whether a text is in a prompt, or so much of its beginning or its end that it was cut."""
    if contains(content, prompt):
        return True
    plain = _plain(content)
    ends = (plain[:ENOUGH], plain[-ENOUGH:]) if len(plain) > ENOUGH else ()
    return any(end in each for each in _readings(prompt) for end in ends)


def contains_in_order(texts: Sequence[str], prompt: str) -> bool:
    """Whether texts stand in a prompt in their order."""
    prompt = _plain(prompt)
    start = 0
    for text in map(_plain, texts):
        place = prompt.find(text, start)
        if place < 0:
            return False
        start = place + len(text)
    return True


def written_as_data(prompt: str) -> bool:
    """Whether a template wrote a list of parts as Python or JSON shows it, not its text."""
    return re.search(r"""["']type["']:\s*["']text["']""", html.unescape(prompt)) is not None


def _readings(prompt: str) -> tuple[str, str]:
    """A prompt as it stands, and with the escapes of JSON undone."""
    return _plain(prompt), _plain(_ESCAPE.sub(lambda match: _ESCAPES[match[0]], prompt))


def _plain(text: str) -> str:
    return "".join(html.unescape(text).casefold().split())
