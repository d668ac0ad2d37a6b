"""Functions of Python made from methods: options, defaults and meanings are those that the study declares.

`lesion.functions` has those of all methods; editors and type checkers read `functions.pyi` beside it.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from lesion.arguments import validated
from lesion.bar import watching
from lesion.core.method import Method
from lesion.core.signatures import PLACES, documented, parameters, places
from lesion.core.temporary_folder import folder_of
from lesion.edits.apply import as_it_is
from lesion.edits.edit import Compose, Single
from lesion.engines.config import EngineChoice, opened
from lesion.errors import UsageError
from lesion.models.load import Model
from lesion.models.owner import held
from lesion.tasks.given import Given, given, offered
from lesion.tasks.task import Task


def function_of(method: Method[Any]) -> Callable[..., Any]:
    """The Python function of a method.

    Its arguments are the study's options; `model` may be a loaded model or several, tasks and edits may be values.
    Types are checked before anything begins, words by the study itself, which says what they must be.
    """
    made = parameters(method)
    options = {option.python: option for option in method.options}

    def run(*given: Any, **named: Any) -> Any:
        bound = inspect.signature(run).bind(*given, **named).arguments
        out, own_watcher, progress = (bound.pop(key, None) for key in ("out", "watcher", "progress"))
        choice = EngineChoice.of(bound.get("engine") or "transformers")
        if "engine" in bound:
            bound["engine"] = choice.engine
        chosen, tasks = _with_names({options[key].name: value for key, value in bound.items() if value is not None})
        here = choice.engine == "transformers" and not choice.distributed
        with _alone_with(chosen), watching(own_watcher, progress) as watcher, offered(tasks):
            plain, loaded = _named(chosen)
            _refuse_other_than_loaded(plain, loaded, here=here)
            plain = method.expanded(plain, watcher.note)
            study = method.study.from_options(name=method.default_name or method.kind, **plain)
            with folder_of(out) as folder, opened(choice, watcher) as make_engine:
                return method.run(study, folder, watcher=watcher, make_engine=make_engine, models=loaded)

    run.__name__ = run.__qualname__ = method.command.replace("-", "_")
    run.__doc__ = documented(method)
    run.__signature__ = inspect.Signature([_checkable(each, _classes(method)) for each in made])  # type: ignore[attr-defined]
    run.other_names = _other_names(method)  # type: ignore[attr-defined]
    checked = validated(run)
    result = method.result.partition(":")[2]
    checked.__signature__ = inspect.Signature(made, return_annotation=result)  # type: ignore[attr-defined]
    return checked


def _classes(method: Method[Any]) -> dict[str, Any]:
    """What the annotations of a method's function name."""
    named = {name: module for option in method.options for name, module in places(option.annotation, option.metadata)}
    return {name: getattr(import_module(module), name) for name, module in (PLACES | named).items()}


def _checkable(parameter: inspect.Parameter, classes: dict[str, Any]) -> inspect.Parameter:
    """A parameter with its annotation as a value; what a word may be is left to the study, which names the choices."""
    return parameter.replace(annotation=eval(re.sub(r"Literal\[[^]]*\]", "str", parameter.annotation), classes))


def _other_names(method: Method[Any]) -> dict[str, str]:
    """What may be said for an argument: one for several and the other way round, and the key in study files."""
    other: dict[str, str] = {}
    for option in method.options:
        key = option.path if len(option.path) == 1 else ()
        names = (option.name, *key, f"{option.python}s", option.python.removesuffix("s"))
        other |= {name: option.python for name in names if name != option.python}
    return other


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


def _with_names(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Given]]:
    """The options with tasks by their names, and the tasks that were given as objects."""
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
    """Refuse a dtype or a device that a loaded model does not have."""
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
