"""Commands made from the options of a study: flags, defaults, help and panels come from the study's own fields."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args

import typer

from lesion.cli import running
from lesion.cli.parsing import numbers, whole
from lesion.cli.terminal import say
from lesion.core.fields import MODEL
from lesion.core.method import Method
from lesion.core.options import HARDWARE, WHAT, Option
from lesion.engines.config import EngineChoice
from lesion.errors import UsageError

_hardware = partial(typer.Option, rich_help_panel=HARDWARE)
Model = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL)]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")]
Dtype = Annotated[str, _hardware(help="Data type: auto, float32, bfloat16 or float16.")]
Device = Annotated[str, _hardware(help="Device: auto, cpu, cuda, cuda:1, …")]
Workers = Annotated[
    int | None,
    _hardware("--workers", metavar="N", help="Number of worker processes, each with the whole model; needs Ray."),
]
Ray = Annotated[
    str | None,
    _hardware(
        "--ray", metavar="ADDRESS", help="Use a Ray cluster: auto, HOST:PORT, …; one worker per GPU, or --workers."
    ),
]
GpusPerWorker = Annotated[
    int, _hardware("--gpus-per-worker", metavar="N", help="Number of GPUs that one model is spread over.")
]
DeviceMap = Annotated[
    str | None,
    _hardware(
        "--device-map",
        metavar="TEXT",
        help="Spread a model over the devices here with accelerate: auto, balanced, …; in place of --device.",
    ),
]
TrustRemoteCode = Annotated[
    bool, _hardware("--trust-remote-code", help="Run code that came with a checkpoint; read it first.")
]
WORKERS = {
    "workers": Workers,
    "ray": Ray,
    "gpus_per_worker": GpusPerWorker,
    "device_map": DeviceMap,
    "trust_remote_code": TrustRemoteCode,
}
"""Options that are fields of `EngineChoice`."""
Every = Annotated[bool, typer.Option("--all", help="Print every claim and every row.")]
Track = Annotated[
    str | None,
    typer.Option("--track", metavar="NAME", help="Keep progress, claims and figures in trackio, wandb or mlflow."),
]
Push = Annotated[
    str | None,
    typer.Option("--push", metavar="OWNER/NAME", help="Send the finished study as `lesion push`: private, no texts."),
]
Dry = Annotated[bool, typer.Option("--dry-run", help="Answer a few items, say what the rest costs, and stop.")]
OUTLETS = {"track": Track, "push": Push}
"""Where else a study goes while it runs and once it is finished."""
MODELS = ("model", "models")
REVISION = "Branch, tag or commit of the model; for one of several give MODEL@REVISION."
_SYNTAX = {"": "", "repeat": " Repeatable.", "comma": " Comma-separated list."}


def command(
    method: Method[Any],
    run: Callable[..., object] = running.run,
    *,
    shown: Collection[str] | None = None,
    more: Mapping[str, tuple[Any, Any]] = MappingProxyType({}),
) -> Callable[..., None]:
    """The command of a method, for typer: its study's options, `--out`, and where others can answer, `--workers`.

    Help shows what is required and the options in `shown`; without it, all. `more` are annotation and default of
    options of the command alone, which `run` is given.
    """
    options = method.options

    def run_method(**values: Any) -> None:
        out: Path | None = values.pop("out")
        every: bool = values.pop("every")
        dry: bool = values.pop("dry_run", False)
        outlets = {name: values.pop(name) for name in OUTLETS if name in values}
        revision: str | None = values.pop("revision", None)
        workers = {name: values.pop(name) for name in WORKERS if name in values}
        own = {name: values.pop(name) for name in more}
        set_options = [
            option for option in options if not (values[option.name] in (None, []) or values[option.name] is False)
        ]
        chosen = {option.name: _value(option, values[option.name]) for option in set_options}
        if revision is not None and "models" in chosen and "revisions" in chosen:
            raise UsageError("--revision is one checkpoint and --revisions are several; give one of the two.")
        if revision is not None:
            chosen |= _at(revision, {name: chosen[name] for name in MODELS if name in chosen})
        chosen = method.expanded(chosen, lambda text: say(f"note: {text}"))
        study = method.study.from_options(name=method.default_name or method.kind, **chosen)
        engine = getattr(study, "engine", None) or "transformers"
        run(method, study, out, EngineChoice(engine, **workers), every=every, dry=dry, **outlets, **own)

    run_method.__doc__ = method.help
    parameters = [*_parameters(method, options), *(_named(name, *declared) for name, declared in more.items())]
    if shown is not None:
        parameters = [each if each.name in shown else _hidden(each) for each in parameters]
    run_method.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run_method


def _at(revision: str, models: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a command with the one model that they name at a revision."""
    for name, named in models.items():
        (first, *others) = [named] if isinstance(named, str) else named
        if others:
            raise UsageError(
                f"--revision is of one model, and {len(others) + 1} are given; write {first}@{revision} in place of"
                " the one that is meant."
            )
        at = {"source": first, "revision": revision}
        return {name: at if isinstance(named, str) else [at]}
    return {}


def _parameters(method: Method[Any], options: Sequence[Option]) -> list[inspect.Parameter]:
    parameters = [_parameter(option) for option in sorted(options, key=lambda option: not option.argument)]
    help = "Output folder; running again into it continues the study."
    help += "" if method.needs_out else " Default: lesion-out/NAME-IDENTITY."
    out = typer.Option("--out", help=help, rich_help_panel=WHAT)
    kind, default = (Path, inspect.Parameter.empty) if method.needs_out else (Path | None, None)
    parameters.append(_named("out", Annotated[kind, out], default))
    parameters.append(_named("every", Every, False))
    outlets = [name for name in OUTLETS if name == "track" or not method.only_reads]
    parameters += [_named(name, OUTLETS[name], None) for name in outlets]
    names = {option.name for option in options}
    if names.intersection(MODELS) and "revision" not in names:
        revision = typer.Option("--revision", metavar="TEXT", help=REVISION, rich_help_panel=WHAT)
        parameters.append(_named("revision", Annotated[str | None, revision], None))
    if method.distributed:
        parameters.append(_named("dry_run", Dry, False))
        for name, annotation in WORKERS.items():
            parameters.append(_named(name, annotation, getattr(EngineChoice(), name)))
    return parameters


def _parameter(option: Option) -> inspect.Parameter:
    kind = _kind(option)
    if option.argument:
        several = list[str] if option.many else str
        return _named(option.name, Annotated[several, typer.Argument(metavar=option.argument, help=option.help)])
    help = option.help + _SYNTAX[option.many] + (f" Default: {option.default_text}." if option.default_text else "")
    declared = typer.Option(option.flag, help=help, rich_help_panel=option.panel, show_default=False)
    if option.required:
        return _named(option.name, Annotated[kind, declared])
    if kind is bool:
        return _named(option.name, Annotated[bool, declared], False)
    return _named(option.name, Annotated[kind | None, declared], None)


def _named(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _hidden(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter left out of help, unless it is required."""
    if parameter.default is inspect.Parameter.empty:
        return parameter
    kind, declared = get_args(parameter.annotation)
    hidden = copy.copy(declared)
    hidden.hidden = True
    return parameter.replace(annotation=Annotated[kind, hidden])


def _kind(option: Option) -> Any:
    """The type of an option for typer, which reads whole numbers and numbers strictly; words stay text."""
    if option.many == "repeat":
        return list[str]
    if option.many == "comma" or str in option.kinds:
        return str
    if bool in option.kinds:
        return bool
    return float if float in option.kinds else int


def _value(option: Option, value: Any) -> Any:
    """What was typed as the value of the study: numbers as numbers, lists by commas."""
    if option.many == "comma":
        if str in option.kinds:
            return _words(value, option.flag)
        return numbers(value, float if float in option.kinds else int, option.flag)
    if not isinstance(value, str) or not option.kinds & {int, float}:
        return value
    if float in option.kinds:
        try:
            return float(value)
        except ValueError:
            return value
    return whole(value)


def _words(text: str, flag: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(f"{flag} takes names by commas; there is nothing between two of them in '{text}'.")
    return words
