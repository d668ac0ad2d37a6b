"""Types and shapes checked while tests run: every function, method and dataclass of `lesion` as its annotations say.

beartype checks types. Where an annotation names axes (jaxtyping), one call is one scope: an axis is as long in every
argument and in the result. That costs, so that only such functions pay for it; jaxtyping's own hook makes a scope of
every call, which takes longer than most of what is tested. Private functions, and those inside functions, are checked
only if they name axes: a tenth of the suite's time went into them, and mypy reads all callers that they have. Of a
function that names axes the first hundred calls of a process are looked at, and one in sixteen of the others.
"""

import ast
import dataclasses
import functools
import hashlib
import sys
import typing
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType, ModuleType
from unittest.mock import patch

import typer
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, jaxtyped

_THIS = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


class NotAsAnnotatedError(TypeError):
    """What a function was given, or gives, is not what its annotations say; a TypeError, as it would mostly end in."""


EVERY, SOME, MADE = 100, 16, 20
_STRICTLY = BeartypeConf(violation_type=NotAsAnnotatedError)


def checked(function: Callable) -> Callable:
    """The function, checked against its annotations; a name that is only there for mypy is not checked."""
    written = function.__annotations__
    hints = {name: _resolved(hint, function.__globals__) for name, hint in written.items()}
    function.__annotations__ = hints
    inner = beartype(function, conf=_STRICTLY)
    function.__annotations__ = inner.__annotations__ = written  # which others read, as typer does
    if not any(map(_names_axes, hints.values())):
        return inner

    calls = 0

    @functools.wraps(function)
    def with_axes(*args, **kwargs):
        __tracebackhide__ = True
        nonlocal calls
        calls += 1
        if calls > EVERY and calls % SOME:
            return function(*args, **kwargs)
        with jaxtyped("context"):
            return inner(*args, **kwargs)

    return with_axes


def checked_axes(function: Callable) -> Callable:
    """The function, checked if it names axes; one inside a function, made anew with every call, the first times."""
    code = function.__code__
    if code not in _left:
        hints = (_resolved(hint, function.__globals__) for hint in function.__annotations__.values())
        _left[code] = MADE * any(map(_names_axes, hints))
    if not _left[code]:
        return function
    _left[code] -= 1
    return checked(function)


_left: dict[CodeType, int] = {}
"""How often a function that is made again is checked again."""


def checked_class(kind: type) -> type:
    """The class; if it is a dataclass, what it is made of is checked; `lesion.arguments.validated` does so itself."""
    if dataclasses.is_dataclass(kind) and "__init__" in vars(kind) and not hasattr(kind.__init__, "__wrapped__"):
        kind.__init__ = checked(kind.__init__)
    return kind


def _resolved(hint: object, names: dict) -> object:
    if not isinstance(hint, str):
        return hint
    try:
        found = eval(hint, names)
    except (NameError, AttributeError, TypeError):  # not there at run time, or not yet
        return typing.Any
    # Commands are given the context of the click that typer brings, which is no typer.Context.
    return typing.Any if found is typer.Context else found


def _names_axes(hint: object) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(map(_names_axes, typing.get_args(hint)))


class _Decorating(ast.NodeTransformer):
    """Puts a decorator on every function, next to its `def`, and on every class, outside of all others."""

    def __init__(self) -> None:
        self.inside = 0

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.decorator_list.insert(0, _decorator("checked_class", node))
        before, self.inside = self.inside, 0
        self.generic_visit(node)
        self.inside = before
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        private = node.name.startswith("_") and not node.name.endswith("__")
        node.decorator_list.append(_decorator("checked_axes" if self.inside or private else "checked", node))
        self.inside += 1
        self.generic_visit(node)
        self.inside -= 1
        return node


def _decorator(name: str, at: ast.stmt) -> ast.expr:
    place = {key: getattr(at, key) for key in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
    load = ast.Load()
    module = ast.Call(ast.Name("__import__", load, **place), [ast.Constant("checked", **place)], [], **place)
    return ast.Attribute(module, name, load, **place)


class _Loader(SourceFileLoader):
    def source_to_code(self, data, path, *, _optimize=-1):
        return super().source_to_code(_Decorating().visit(ast.parse(data, path)), path, _optimize=_optimize)

    def get_code(self, fullname: str):
        kept = functools.partial(cache_from_source, optimization=f"checked{_THIS}")
        with patch("importlib._bootstrap_external.cache_from_source", kept):
            return super().get_code(fullname)


class _Finder:
    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None):
        if name.partition(".")[0] != self.package:
            return None
        spec: ModuleSpec | None = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def check(package: str) -> None:
    """Check what is imported of a package from now on."""
    # Before Python 3.12 the members of a protocol are gathered anew for every value that is looked at.
    if sys.version_info < (3, 12) and not hasattr(typing._get_protocol_attrs, "cache_info"):
        typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)
    sys.meta_path.insert(0, _Finder(package))
