"""Commands made from the options of a study: flags, defaults, help and panels come from the study's own fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lesion.cli import engine_options
from lesion.cli.parsing import number, numbers, whole
from lesion.cli.running import run
from lesion.cli.terminal import say
from lesion.core.method import Method
from lesion.core.options import WHAT, Option, options_of
from lesion.engines.config import EngineChoice
from lesion.errors import UsageError

WORKERS = {
    "workers": engine_options.Workers,
    "ray": engine_options.Ray,
    "gpus_per_worker": engine_options.GpusPerWorker,
}


def command(method: Method[Any]) -> Callable[..., None]:
    """The command of a method, for typer: its study's options, `--out`, and where others can answer, `--workers`."""
    options = [one for one in options_of(method.study) if method.options is None or one.name in method.options]

    def run_method(**values: Any) -> None:
        out: Path | None = values.pop("out")
        workers = {name: values.pop(name) for name in WORKERS if name in values}
        given = [one for one in options if not (values[one.name] in (None, []) or values[one.name] is False)]
        chosen = {one.name: _value(one, values[one.name]) for one in given}
        chosen = method.expanded(chosen, lambda text: say(f"note: {text}"))
        study = method.study.from_options(name=method.default_name or method.kind, **chosen)
        engine = getattr(study, "engine", None) or "transformers"
        run(method, study, out, EngineChoice(engine, **workers))

    run_method.__doc__ = method.help
    run_method.__name__ = method.command.rpartition(" ")[2]
    run_method.__signature__ = inspect.Signature(_parameters(method, options))  # type: ignore[attr-defined]
    return run_method


def _parameters(method: Method[Any], options: Sequence[Option]) -> list[inspect.Parameter]:
    ordered = [*(one for one in options if one.argument), *(one for one in options if not one.argument)]
    parameters = [_parameter(option) for option in ordered]
    help = "Output folder; running again into it continues the study."
    help += "" if method.needs_out else " Default: lesion-out/NAME-IDENTITY."
    out = typer.Option("--out", help=help, rich_help_panel=WHAT)
    kind, default = (Path, inspect.Parameter.empty) if method.needs_out else (Path | None, None)
    parameters.append(_named("out", Annotated[kind, out], default))
    if method.distributed:
        for name, annotation in WORKERS.items():
            parameters.append(_named(name, annotation, 1 if name == "gpus_per_worker" else None))
    return parameters


def _parameter(one: Option) -> inspect.Parameter:
    kind = _kind(one)
    if one.argument:
        several = list[str] if one.many else str
        return _named(one.name, Annotated[several, typer.Argument(metavar=one.argument, help=one.help)])
    help = f"{one.help} Default: {one.default_text}." if one.default_text else one.help
    declared = typer.Option(one.flag, help=help, rich_help_panel=one.panel, show_default=False)
    if one.required:
        return _named(one.name, Annotated[kind, declared])
    if kind is bool:
        return _named(one.name, Annotated[bool, declared], False)
    return _named(one.name, Annotated[kind | None, declared], None)


def _named(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _kind(one: Option) -> Any:
    """The type of an option for typer, which reads whole numbers and numbers strictly; words stay text."""
    if one.many == "repeat":
        return list[str]
    if one.many == "comma" or str in one.kinds:
        return str
    if bool in one.kinds:
        return bool
    return float if float in one.kinds else int


def _value(one: Option, value: Any) -> Any:
    """What was typed as the value of the study: numbers as numbers, lists by commas.

    Raises:
        UsageError: something between two commas is missing or no number.
    """
    if one.many == "comma":
        if str in one.kinds:
            return _words(value, one.flag)
        return numbers(value, float if float in one.kinds else int, one.flag)
    if not isinstance(value, str) or not one.kinds & {int, float}:
        return value
    if float in one.kinds:
        try:
            return number(value, float)
        except ValueError:
            return value
    return whole(value)


def _words(text: str, flag: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(f"{flag} takes names by commas; there is nothing between two of them in '{text}'.")
    return words
