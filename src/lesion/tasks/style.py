"""Prompt styles as text: a name, and what is set of a chat (`chat thinking=on system="Be brief."`); thinking."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lesion.errors import UsageError
from lesion.plain import short

SWITCH = ("on", "off")
_SETTING = re.compile(r'\s+([A-Za-z_]\w*)=("(?:[^"\\]|\\.)*"|[^\s"]\S*)')
_FORM = re.compile(rf"([^\s=]*)((?:{_SETTING.pattern})*)\s*")
_ARGUMENT = re.compile(r"[A-Za-z_]\w*=")
_BARE = re.compile(r"[A-Za-z][\w.-]*")


@dataclass(frozen=True)
class Style:
    """A prompt style as it is asked for; `str` of it reads back.

    Attributes:
        name: of the style; "" for the task's own.
        thinking: `on` or `off`; "" for what the chat template does by itself.
        system: the system prompt; "" for that of the chat template.
        arguments: further arguments of the chat template, (name, value as JSON), sorted.
    """

    name: str = ""
    thinking: str = ""
    system: str = ""
    arguments: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Style:
        """The style of a text: a name, then settings, each KEY=VALUE; a value is JSON, or else the text that it is."""
        match = _FORM.fullmatch(text) or _FORM.fullmatch(f" {text}")
        if match is None:
            raise UsageError(
                f"'{short(text)}' is no prompt style; write a name, then settings: chat thinking=on"
                ' system="Be brief.".'
            )
        settings = {key: _json(value) for key, value in _SETTING.findall(match[2])}
        thinking, system = (str(json.loads(settings.pop(key, '""'))) for key in ("thinking", "system"))
        return cls(match[1]).having(thinking, system, [f"{key}={value}" for key, value in settings.items()])

    def having(self, thinking: str | None, system: str | None, arguments: Sequence[str] | None) -> Style:
        """The style with these settings where it has none of its own; an argument is KEY=VALUE."""
        if thinking not in (None, "", "auto", *SWITCH):
            raise UsageError(f"Thinking is on, off or auto, not '{short(str(thinking))}'.")
        if wrong := next((each for each in arguments or () if not _ARGUMENT.match(each)), None):
            raise UsageError(f"'{short(wrong)}' is no argument of a chat template; write KEY=VALUE.")
        pairs = (argument.partition("=") for argument in arguments or ())
        parsed = {key: _json(value) for key, _, value in pairs}
        return replace(
            self,
            thinking=self.thinking or (thinking if thinking in SWITCH else ""),
            system=self.system or system or "",
            arguments=tuple(sorted((parsed | dict(self.arguments)).items())),
        )

    def __str__(self) -> str:
        settings = [("thinking", json.dumps(self.thinking))] if self.thinking else []
        settings += [("system", json.dumps(self.system))] if self.system else []
        return " ".join(filter(None, (self.name, *(f"{k}={_bare(v)}" for k, v in (*settings, *self.arguments)))))

    @property
    def set(self) -> tuple[str, ...]:
        """What is set, as options of the command."""
        options = {"--thinking": self.thinking, "--system": self.system, "--template-argument": self.arguments}
        return tuple(option for option, value in options.items() if value)


def _json(value: str) -> str:
    """A value as JSON, whatever it was written as: `3`, `true` and `"high"` are JSON, and `high` is a text."""
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = value
    if isinstance(parsed, list | dict):
        raise UsageError(f"{short(value)} is neither a text, a number, true nor false; give one of these.")
    return json.dumps(parsed)


def _bare(value: str) -> str:
    """A value as it stands in a style: a plain word without its quotation marks, if it reads back."""
    text = json.loads(value)
    return text if isinstance(text, str) and _BARE.fullmatch(text) and _json(text) == value else value


OPEN, CLOSE = "<think>", "</think>"

# Tokens at the end of a prompt among which the opening tag and white space behind it lie.
_REACH = 16


def opening(tokenizer: Any, prompt: Sequence[int]) -> str:
    """The opening tag, with the white space behind it, that ends a prompt; "" where a prompt does not end in one."""
    ending: str = tokenizer.decode(list(prompt[-_REACH:]), skip_special_tokens=False)
    return ending[ending.rfind(OPEN) :] if ending.rstrip().endswith(OPEN) else ""


def answer_start(text: str, opened: bool = False) -> int | None:
    """Where the final answer begins in a text.

    Behind the last closing tag and the white space after it; 0 where nothing was thought; None where the thinking,
    which the prompt may have `opened`, was never closed, and there is no final answer.
    """
    place = text.rfind(CLOSE)
    if place >= 0:
        return len(text) - len(text[place + len(CLOSE) :].lstrip())
    return None if opened or text.lstrip().startswith(OPEN) else 0


def parted(text: str) -> tuple[str, str | None]:
    """The trace of a stored answer, with its tags, and the final answer; None for one that was never begun."""
    start = answer_start(text)
    return (text, None) if start is None else (text[:start], text[start:])


def unclosed(text: str) -> bool:
    """Whether a stored answer never closed its thinking."""
    return answer_start(text) is None
