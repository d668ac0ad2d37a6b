"""Signatures of Python functions made from methods: arguments, types, defaults and docstrings, as studies declare them.

Types are text, as a person would write them: `str | Task | Sequence[str | Task]`. From the same declarations `stub`
writes the `.pyi` file that editors and type checkers read.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticUndefined

from lesion.core.fields import Also, OneOrSeveral
from lesion.core.method import Method
from lesion.core.options import Option

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
    own = set(method.study.__annotations__)
    ordered = sorted(method.options, key=lambda option: not own.issuperset(option.path[:1]))
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
    meaning |= {"engine": ENGINE}
    arguments = [f"    {each.name}: {meaning[each.name]}" for each in parameters(method)]
    before, head, rest = method.python.strip().partition("Example:")
    parts = [method.help, before.strip(), "\n".join(["Args:", *arguments]), head + rest]
    return "\n\n".join(part for part in parts if part)


def stub(title: str, functions: dict[str, Method[Any]]) -> str:
    """The text of the `.pyi` file of a module with the functions of methods."""
    imports = set(PLACES.items())
    text = []
    for name, method in functions.items():
        for option in method.options:
            imports |= set(places(option.annotation, option.metadata))
        module, _, result = method.result.partition(":")
        imports.add((result, module))
        text += [f"def {name}(", *_lines(parameters(method)), f") -> {result}:"]
        docstring = documented(method).replace("\\", "\\\\")
        text += [textwrap.indent(f'"""{docstring}\n"""', "    ", lambda line: bool(line.strip())), ""]
    body = "\n".join(text)
    modules: dict[str, list[str]] = {}
    for name, module in sorted(imports, key=lambda each: each[::-1]):
        modules.setdefault(module, []).append(name)
    lines = [f"from {module} import {', '.join(names)}" for module, names in modules.items()]
    return f'# ruff: noqa\n# fmt: off\n"""{title}"""\n\n' + "\n".join(lines) + "\n\n" + body


def _lines(made: Sequence[inspect.Parameter]) -> Iterator[str]:
    """The parameters as they stand in a definition, one a line."""
    star = False
    for each in made:
        if each.kind is KINDS.KEYWORD_ONLY and not star:
            star = True
            yield "    *,"
        star = star or each.kind is KINDS.VAR_POSITIONAL
        mark = "*" if each.kind is KINDS.VAR_POSITIONAL else ""
        value = "" if each.default is each.empty else f" = {each.default!r}"
        yield f"    {mark}{each.name}: {each.annotation}{value},"
