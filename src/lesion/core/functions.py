"""Functions of Python made from methods: a signature alone, whose options, defaults and meanings are the study's.

    @runs(METHOD)
    def drift(model, task, *, clusters=50, **options: Unpack[AnsweringOptions]) -> DriftResult:
        \"\"\"Cluster the hidden states of every layer.\"\"\"

An editor completes the signature, those of `options` too; `help` shows every argument with its default and what it is,
as the study declares it.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypedDict, TypeVar, get_args, get_type_hints

from lesion.bar import watching
from lesion.core.method import Method
from lesion.core.options import options_of
from lesion.core.temporary_folder import folder_of
from lesion.edits.apply import as_it_is
from lesion.edits.edit import Compose, Single
from lesion.engines.config import EngineChoice
from lesion.engines.opening import opened
from lesion.errors import UsageError
from lesion.models.load import Model
from lesion.models.owner import held
from lesion.progress import Watcher
from lesion.tasks.given import Given, given, offered
from lesion.tasks.task import Task

F = TypeVar("F", bound=Callable[..., Any])
COMMON = {
    "engine": "`transformers` or `vllm`; or `EngineChoice(workers=2)`, which says too on what it runs.",
    "out": "Folder of the study; what lies there already is not evaluated again. By default a temporary one, removed"
    " when Python ends.",
    "progress": "True shows a bar and notes, False nothing; by default a notebook and a terminal show them, a log does"
    " not.",
    "watcher": "Receives progress and notes in place of a bar (`lesion.Watcher`).",
}
"""Arguments that are no options of a study."""


class OutputOptions(TypedDict, total=False):
    """Arguments of every function that runs a study."""

    out: str | Path | None
    progress: bool | None
    watcher: Watcher | None


class ReadingOptions(OutputOptions, total=False):
    """Arguments of a study whose models read texts."""

    prompt_style: str | None
    thinking: str | None
    system: str | None
    template_arguments: str | Sequence[str] | None
    device: str


class DecodingOptions(ReadingOptions, total=False):
    """Arguments of a study whose models generate answers."""

    max_new_tokens: int | None
    stop_loops: int | None
    thinking_tokens: int | None
    level: float
    batch_size: int | str


class AnsweringOptions(DecodingOptions, total=False):
    """Arguments of a study whose models answer on any engine."""

    seed: int
    dtype: str
    engine: str | EngineChoice


def runs(method: Method[Any]) -> Callable[[F], F]:
    """Make a function that runs a method of its signature; its body is not used.

    Args:
        method: what is run. Arguments are its study's options by their names, or by the keys of study files; `model` or
            `models` may be loaded models; `engine`, `out`, `progress` and `watcher` are as in `COMMON`. `**options` of
            an unpacked `TypedDict` stands for its keys, whose defaults are the study's.
    """

    def decorate(signature_only: F) -> F:
        signature = inspect.signature(signature_only)
        parameters = list(_unpacked(signature_only, signature, method))
        signature = signature.replace(parameters=parameters)

        @functools.wraps(signature_only)
        def run(*arguments: Any, **named: Any) -> Any:
            bound = signature.bind(*arguments, **named)
            bound.apply_defaults()
            options = dict(bound.arguments)
            out, told, progress = (options.pop(name) for name in ("out", "watcher", "progress"))
            choice = EngineChoice.of(options.pop("engine", "transformers"))
            if "engine" in signature.parameters:
                options["engine"] = choice.engine
            if "models" in method.study.model_fields and "model" in options:
                options["models"] = options.pop("model")
            options, own = _with_names(options)
            here = choice.engine == "transformers" and not choice.distributed
            with _alone_with(options), watching(told, progress) as watcher, offered(own):
                options, loaded = _named(options)
                _refuse_other_than_loaded(options, loaded, here=here)
                options = method.expanded(options, watcher.note)
                study = method.study.from_options(name=method.default_name or method.kind, **options)
                with folder_of(out) as folder, opened(choice, watcher) as make_engine:
                    return method.run(study, folder, watcher=watcher, make_engine=make_engine, models=loaded)

        run.__signature__ = signature  # type: ignore[attr-defined]
        run.other_names = _other_names(method)  # type: ignore[attr-defined]
        run.__doc__ = documented(signature_only.__doc__ or "", signature, method)
        return run  # type: ignore[return-value]

    return decorate


@contextmanager
def _alone_with(options: Mapping[str, Any]) -> Iterator[None]:
    """Have all loaded models of a study for it alone, unedited and in evaluation mode."""
    values = [options[name] for name in ("model", "models") if name in options]
    several = [each for value in values for each in ([value] if isinstance(value, str | Model | dict) else value)]
    models = {id(model.network): model for model in several if isinstance(model, Model)}
    with ExitStack() as stack:
        for _, model in sorted(models.items()):  # in one order, so that two studies never wait for each other
            stack.enter_context(held(model, "a study", calls=True, unedited=True))
        yield


def _other_names(method: Method[Any]) -> dict[str, str]:
    """What may be said for an argument: the name of the option for the key in study files, and the other way round."""
    pairs = {(option.name, option.path[-1]) for option in options_of(method.study) if option.path}
    pairs |= {("model", "models"), ("task", "tasks")}
    both = [(first, second) for first, second in pairs if first != second]
    return dict(both) | {second: first for first, second in both}


def _unpacked(function: Callable[..., Any], signature: inspect.Signature, method: Method[Any]) -> Iterator[Any]:
    """The parameters of a function, with those that its `**options` stands for in its place."""
    defaults: dict[str, Any] = {"engine": "transformers"}
    for option in options_of(method.study):
        single = isinstance(option.default, tuple) and len(option.default) == 1
        for name in {option.name, *option.path[-1:]} - {"engine"}:
            defaults[name] = option.default[0] if single else option.default
    for parameter in signature.parameters.values():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            yield parameter
            continue
        (options,) = get_args(get_type_hints(function)[parameter.name])
        hints = get_type_hints(options)
        for name in sorted(hints, key=lambda name: name in COMMON):
            kind = inspect.Parameter.KEYWORD_ONLY
            yield inspect.Parameter(name, kind, default=defaults.get(name), annotation=hints[name])


def _with_names(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Given]]:
    """The options with tasks by their names, and the tasks that were given as objects.

    Raises:
        UsageError: two different tasks have one name, or one is none.
    """
    own: dict[str, Given] = {}
    objects: dict[str, Task] = {}

    def name_of(value: Any) -> Any:
        if not isinstance(value, Task):
            return value
        task = given(value)
        if objects.setdefault(task.name, value) is not value:
            raise UsageError(f"Two tasks are called {task.name}; give each a name of its own.")
        own[task.name] = task
        return task.name

    named = {
        key: [name_of(each) for each in value] if isinstance(value, list | tuple) else name_of(value)
        for key, value in options.items()
    }
    return named, own


def _named(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Model]]:
    """The options with models by their names and paths as text, and the models that are loaded already."""
    named: dict[str, Any] = {}
    loaded: dict[str, Model] = {}
    for name, value in options.items():
        if name in ("model", "models"):
            single = isinstance(value, str | Model | dict)
            several = [value] if single else list(value)
            loaded |= {model.name: as_it_is(model) for model in several if isinstance(model, Model)}
            names = [model.name if isinstance(model, Model) else model for model in several]
            named[name] = names[0] if single else names
        elif value is not None:
            named[name] = _texts(value)
    return named, loaded


def _refuse_other_than_loaded(options: Mapping[str, Any], loaded: Mapping[str, Model], *, here: bool) -> None:
    """Refuse a dtype or a device that a loaded model does not have.

    Args:
        options: the options, models by name.
        loaded: the models that are loaded already.
        here: whether these answer themselves, and not workers or another engine on devices of their own.

    Raises:
        UsageError: a model has another; what it has is said.
    """
    for option, text_of in {"dtype": _dtype, **({"device": _device} if here else {})}.items():
        given = options.get(option)
        for name, text in ((name, text_of(model)) for name, model in loaded.items()):
            if given not in (None, "auto", text, text.partition(":")[0]):
                raise UsageError(
                    f"{name} is loaded already, and its {option} is {text}, not {given}; leave {option} out, or load"
                    f" the model with {option}={given!r}."
                )


def _dtype(model: Model) -> str:
    return str(model.dtype).removeprefix("torch.")


def _device(model: Model) -> str:
    """The device of a model, or several by commas."""
    return ", ".join(sorted({str(parameter.device) for parameter in model.network.parameters()}))


def _texts(value: object) -> object:
    """A path or an edit as text; a collection with its paths and edits as text."""
    if isinstance(value, Single | Compose):
        return str(value)
    if isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping):
        return [_texts(entry) for entry in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def documented(text: str, signature: inspect.Signature, method: Method[Any]) -> str:
    """A docstring with what every argument is, before its example."""
    several = "models" in method.study.model_fields
    meaning = {"model": "A source for `load`, or a loaded model" + ("; or a list of these." if several else ".")}
    meaning |= {
        key: option.help
        for option in options_of(method.study)
        for key in (option.name, *option.path[-1:])
        if key != "model"
    }
    meaning |= COMMON
    lines = [f"        {name}: {meaning[name]}" for name in signature.parameters if name in meaning]
    arguments = "\n".join(["    Args:", *lines])
    head, example, rest = text.partition("    Example:")
    return f"{head}{arguments}\n\n{example}{rest}" if example else f"{text.rstrip()}\n\n{arguments}\n"
