"""What people type on a command line: lists by commas, usable paths, and how help shows both."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from typer.models import OptionInfo, ParameterInfo

from lesion.core.options import DECODING, HARDWARE, STATISTICS, TRAINING, WHAT
from lesion.errors import UsageError
from lesion.files import named
from lesion.plain import short

PANELS = (WHAT, TRAINING, STATISTICS, DECODING, HARDWARE)
_PLACEHOLDERS = {int: "N", float: "X", Path: "PATH", str: "TEXT"}


def numbers(text: str, kind: type[int] | type[float], option: str) -> list[Any]:
    """Numbers by commas."""
    values: list[Any] = []
    for piece in text.split(","):
        try:
            values.append(kind(piece))
        except ValueError:
            what = "whole numbers" if kind is int else "numbers"
            raise UsageError(f"{option} takes {what} by commas; '{short(piece.strip())}' is none.") from None
    return values


def whole(text: str) -> int | str:
    """Digits as a number; anything else as it is, for the study's own validation to judge."""
    try:
        return int(text)
    except ValueError:
        return text


def checked(command: Callable[..., None]) -> Callable[..., None]:
    """The command for typer, its paths read by `lesion.files.named`.

    Its help has a panel for every subject, in the order of `PANELS`, and a placeholder for what an option takes.
    A path is expanded (`~`); one that is empty, broken or cannot be followed is wrong use before anything begins.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters = [
        parameter.replace(
            annotation=_shown(parameter.name, _usable(parameter.name, parameter.annotation)),
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


def _usable(name: str, annotation: Any) -> Any:
    """The annotation with a parser, where it is one of a path."""
    information = _information(annotation)
    kind = annotation if information is None else get_args(annotation)[0]
    if information is None or information.parser is not None or _inner(kind) is not Path:
        return annotation
    option = f"--{name.replace('_', '-')}" if isinstance(information, OptionInfo) else information.metavar or name
    changed = copy.copy(information)
    changed.parser = lambda text: named(text, option) if isinstance(text, str) else text
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
