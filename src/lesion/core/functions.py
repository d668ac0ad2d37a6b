"""Functions of Python made from methods: options, defaults and meanings are those that the study declares.

`lesion.functions` has those of all methods; editors and type checkers read `functions.pyi` beside it, which
`docs/stubs.py` writes from the same declarations. Types are text, as a person would write them:
`str | Task | Sequence[str | Task]`.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticUndefined

from lesion.arguments import validated
from lesion.bar import watching
from lesion.core.fields import Also, OneOrSeveral
from lesion.core.method import Method
from lesion.core.options import Option, options_of
from lesion.core.study_file import Questions
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
    own_tasks: dict[str, Given] = {}
    objects: dict[str, Task] = {}

    def name_of(value: Any) -> Any:
        if not isinstance(value, Task):
            return value
        task = given(value)
        if objects.setdefault(task.name, value) is not value:
            raise UsageError(f"Two tasks are called {task.name}; give each a name of its own.")
        own_tasks[task.name] = task
        return task.name

    named = {
        key: [name_of(each) for each in value] if isinstance(value, list | tuple) else name_of(value)
        for key, value in options.items()
    }
    return named, own_tasks


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
    for option in ("dtype", "device") if here else ("dtype",):
        wanted = options.get(option)
        for name, model in loaded.items():
            text = model.dtype_name if option == "dtype" else _device(model)
            if wanted not in (None, "auto", text, text.partition(":")[0]):
                raise UsageError(
                    f"{name} is loaded already, and its {option} is {text}, not {wanted}; leave {option} out, or load"
                    f" the model with {option}={wanted!r}."
                )


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


COMMON = {
    "out": (
        "str | Path | None",
        "Folder of the study; what lies there already is not evaluated again. By default a temporary one, removed when"
        " Python ends.",
    ),
    "progress": (
        "bool | None",
        "True shows a bar and notes, False nothing; by default a notebook and a terminal show them, a log does not.",
    ),
    "watcher": ("Watcher | None", "Receives progress and notes in place of a bar (`lesion.Watcher`)."),
}
"""Arguments that are no options of a study, each with its type and meaning; their default is None."""
TELLS_ALL = "check"
"""The function whose docstring says what the options mean that studies share."""
_LAST = ("None", "Sequence", "Mapping")
ENGINE = "`transformers` or `vllm`; or `EngineChoice(workers=2)`, which says too on what it runs."
PLACES = {
    "Any": "typing",
    "Literal": "typing",
    "Mapping": "collections.abc",
    "Path": "pathlib",
    "Sequence": "collections.abc",
    "Watcher": "lesion.progress",
}
"""Where what annotations name is, beside the classes of `Also`."""
KINDS = inspect.Parameter


def parameters(method: Method[Any]) -> list[inspect.Parameter]:
    """The parameters of a method's function: models, what is required, then the rest by name, its own before shared."""
    annotated = set(method.study.__annotations__)
    ordered = sorted(method.options, key=lambda option: not annotated.issuperset(option.path[:1]))
    first = [option for option in ordered if option.argument] + [
        option for option in ordered if not option.argument and (option.required or option.first)
    ]
    made = []
    for option in [*first, *(option for option in ordered if option not in first)]:
        types = members(option.annotation, option.metadata)
        if option.argument.endswith("…"):  # several arguments in place of a list
            made.append(inspect.Parameter(option.python, KINDS.VAR_POSITIONAL, annotation=" | ".join(types[:-1])))
        elif option in first:
            made.append(inspect.Parameter(option.python, KINDS.POSITIONAL_OR_KEYWORD, annotation=" | ".join(types)))
        else:
            value = default(option)
            types += ["None"] if value is None and "None" not in types else []
            annotation = " | ".join(types)
            made.append(inspect.Parameter(option.python, KINDS.KEYWORD_ONLY, annotation=annotation, default=value))
    for name, (annotation, _) in COMMON.items():
        made.append(inspect.Parameter(name, KINDS.KEYWORD_ONLY, annotation=annotation, default=None))
    return made


def default(option: Option) -> Any:
    """The default in Python: a list of one value is that value; a word that stands for no value is that word."""
    if isinstance(option.default, tuple) and len(option.default) == 1:
        return option.default[0]
    words = [part for part in members(option.annotation, option.metadata) if part.startswith("Literal")]
    normal = any(isinstance(each, BeforeValidator) for each in option.metadata)
    if option.default is None and normal and any(repr(option.shown) in part for part in words):
        return option.shown
    return option.default


def members(annotation: Any, metadata: Sequence[Any] = ()) -> list[str]:
    """The types of which Python may give one, as text: those of study files, and what `Also` says beside them."""
    for each in metadata:
        if isinstance(each, BeforeValidator) and each.json_schema_input_type is not PydanticUndefined:
            annotation = each.json_schema_input_type
    types = list(_members(annotation))
    if any(isinstance(each, OneOrSeveral) for each in metadata):
        types = [*members(*_inner(get_args(annotation)[0])), *types]
    types += [each.place.partition(":")[2] for each in metadata if isinstance(each, Also)]
    return sorted(dict.fromkeys(types), key=lambda text: [text.startswith(last) for last in _LAST])


def _members(annotation: Any) -> Iterator[str]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from members(*_inner(annotation))
    elif origin in (Union, UnionType):
        for part in inner:
            yield from members(*_inner(part))
    elif origin is Literal:
        yield f"Literal[{', '.join(map(repr, inner))}]"
    elif origin in (tuple, list):
        yield f"Sequence[{' | '.join(members(*_inner(inner[0])))}]"
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "Mapping[str, Any]"
    else:
        yield "None" if annotation in (None, NoneType) else annotation.__name__


def _inner(annotation: Any) -> tuple[Any, Sequence[Any]]:
    """What stands in an `Annotated`, and what stands beside it."""
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[0], get_args(annotation)[1:]
    return annotation, ()


def places(annotation: Any, metadata: Sequence[Any] = ()) -> Iterator[tuple[str, str]]:
    """The classes that `Also` names, each with its module."""
    for each in metadata:
        if isinstance(each, Also):
            module, _, name = each.place.partition(":")
            yield name, module
    for part in get_args(annotation):
        yield from places(*_inner(part)) if get_origin(annotation) is not Literal else ()


def documented(method: Method[Any]) -> str:
    """The docstring of a method's function: what it does, every argument, an example, and what it raises."""
    several = "models" in method.study.model_fields
    meaning = {option.python: option.help for option in method.options} | {
        name: text for name, (_, text) in COMMON.items()
    }
    meaning |= {"model": "A source for `load`, or a loaded model" + ("; or a list of these." if several else ".")}
    known = {option.python: option.help for option in options_of(Questions) if option.name not in ("task", "items")}
    told_elsewhere = {name for name, text in known.items() if meaning.get(name) == text} | COMMON.keys()
    told_elsewhere = set() if method.command == TELLS_ALL else told_elsewhere
    meaning |= {"engine": ENGINE}
    names = [each.name for each in parameters(method)]
    arguments = [f"    {name}: {meaning[name]}" for name in names if name not in told_elsewhere]
    if rest := [name for name in names if name in told_elsewhere]:
        arguments.append(f"    {', '.join(rest)}: as of `lesion.{TELLS_ALL}`.")
    before, head, after = method.python.strip().partition("Example:")
    parts = [method.help, before.strip(), "\n".join(["Args:", *arguments]), head + after]
    return "\n\n".join(part for part in parts if part)
