"""What people type on a command line, read strictly: numbers in ASCII digits, lists by commas, usable paths."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from typer.models import OptionInfo, ParameterInfo

from lesion.core.options import DECODING, HARDWARE, STATISTICS, TRAINING, WHAT
from lesion.errors import UsageError
from lesion.files import named
from lesion.plain import short

PANELS = (WHAT, TRAINING, STATISTICS, DECODING, HARDWARE)
_PLACEHOLDERS = {int: "N", float: "X", Path: "PATH", str: "TEXT"}
Number = TypeVar("Number", int, float)
# Python reads more: 1_0, and the digits of every script.
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_REAL = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE)


def number(text: str, kind: type[Number]) -> Number:
    """A number in ASCII digits, spaces around it allowed."""
    text = text.strip()
    if len(text) > 100 or not (_WHOLE if kind is int else _REAL).fullmatch(text):
        raise ValueError(f"'{short(text)}' is not a number")
    return kind(text)


def numbers(text: str, kind: type[Number], option: str) -> list[Number]:
    """Numbers by commas."""
    values: list[Any] = []
    for piece in text.split(","):
        try:
            values.append(number(piece, kind))
        except ValueError:
            what = "whole numbers" if kind is int else "numbers"
            raise UsageError(f"{option} takes {what} by commas; '{short(piece.strip())}' is none.") from None
    return values


def whole(text: str) -> int | str:
    """Digits as a number; anything else as it is, for the study's own validation to judge."""
    try:
        return number(text, int)
    except ValueError:
        return text


def checked(command: Callable[..., None]) -> Callable[..., None]:
    """The command for typer, its paths read by `lesion.files.named` and its numbers by `number`.

    Its help has a panel for every subject, in the order of `PANELS`, and a placeholder for what an option takes.
    A path is expanded (`~`); one that is empty, broken or cannot be followed is wrong use before anything begins.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters = [
        parameter.replace(
            annotation=_shown(parameter.name, _strict(parameter.name, parameter.annotation)),
            kind=inspect.Parameter.KEYWORD_ONLY,
        )
        for parameter in signature.parameters.values()
    ]
    parameters.sort(key=lambda parameter: _place(parameter.annotation))

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        command(*arguments, **options)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__
    return run


def _strict(name: str, annotation: Any) -> Any:
    """The annotation with a parser, where it is one of a path or a number."""
    information = _information(annotation)
    if information is None or information.parser is not None:
        return annotation
    kind = get_args(annotation)[0]
    inner = _inner(kind)
    option = f"--{name.replace('_', '-')}" if isinstance(information, OptionInfo) else information.metavar or name
    if inner is Path:
        parser: Callable[[Any], Any] = functools.partial(_path, option)
    elif inner in (int, float):
        parser = functools.partial(_number, option, inner, information.min)
    else:
        return annotation
    changed = copy.copy(information)
    changed.parser, changed.min = parser, None
    return Annotated[kind, changed]


def _information(annotation: Any) -> ParameterInfo | None:
    return next((entry for entry in getattr(annotation, "__metadata__", ()) if isinstance(entry, ParameterInfo)), None)


def _shown(name: str, annotation: Any) -> Any:
    """The annotation with a placeholder for its value and the panel of its help, where it says none."""
    information = _information(annotation)
    if information is None:
        return annotation
    kind, shown = get_args(annotation)[0], copy.copy(information)
    if not isinstance(shown, OptionInfo):
        shown.metavar = shown.metavar or name.upper()
    else:
        shown.metavar = shown.metavar or _PLACEHOLDERS.get(_inner(kind))
        shown.rich_help_panel = shown.rich_help_panel or WHAT
    return Annotated[kind, shown]


def _place(annotation: Any) -> int:
    """Arguments first, then options in the order of their panels."""
    information = _information(annotation)
    panel = information.rich_help_panel if isinstance(information, OptionInfo) else None
    return 0 if panel is None else 1 + (PANELS.index(panel) if panel in PANELS else len(PANELS))


def _inner(kind: Any) -> Any:
    """`Path` of `Path`, `Path | None` and `list[Path]`; and so on."""
    if get_origin(kind) in (Union, UnionType):
        return _inner(next(part for part in get_args(kind) if part is not type(None)))
    return _inner(get_args(kind)[0]) if get_origin(kind) is list else kind


def _path(option: str, text: Any) -> Any:
    return named(text, option) if isinstance(text, str) else text


def _number(option: str, kind: type[int] | type[float], least: int | float | None, text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        value = number(text, kind)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise UsageError(f"'{option}' takes {what}, not '{short(text)}'.") from None
    if least is not None and value < least:
        raise UsageError(f"'{option}' takes a number from {least:g}, not {short(text)}.")
    return value
