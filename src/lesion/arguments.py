"""Arguments: what a person gives a public function, converted to what its annotations say or refused by name.

`validated` stands on every public function, and on every class of which a person makes a value. Only the conversion of
arguments ends in `UsageError` here; what a function raises while it runs is left as it is.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import re
import reprlib
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from lesion.errors import UsageError, nearest
from lesion.files import named

# More values than anybody means, of what knows their number and what does not; an endless iterator would never end.
MOST_VALUES, MOST_UNSIZED = 10_000_000, 100_000
LONGEST_TEXT = 4096
LONGEST_NUMBER = 10_000  # bits; of what is longer there is no text
# A null character ends a text for the system, and half of a surrogate pair is no character.
_UNFIT = re.compile("[\0\ud800-\udfff]")
_SEVERAL = (Sequence, Collection, Iterable, list, tuple)
_WORDS = {
    int: "a whole number",
    float: "a finite number",
    str: "text",
    bool: "True or False",
    Path: "a path",
    type(None): "None",
}
LongText = Annotated[str, "of any length"]
"""Text that may be longer than names and paths are."""
_HALF = re.compile("[\ud800-\udfff]")  # of a pair that is one character in UTF-16; no tokenizer takes it
F = TypeVar("F", bound=Callable[..., Any])


class _Refused(Exception):  # noqa: N818  (it never leaves this file)
    """A value that is not what a hint says."""


def validated(target: F) -> F:
    """A function, or a class, whose arguments are converted to what their annotations say before it begins.

    Numbers and arrays of numpy, torch and pandas become Python's; a path may be given where text is meant, and any
    iterable (a generator, a set, an array) where several values are. True and False are no numbers, numbers are
    finite, and text is of characters only, at most 4,096.
    """
    if isinstance(target, type):
        target.__init__ = _validated(target.__init__, target.__name__)  # type: ignore[misc]
        return target
    return _validated(target, target.__qualname__)  # type: ignore[return-value]


def _validated(function: Callable[..., Any], called: str) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.cache
    def hints() -> dict[str, Any]:
        return _hints(function)

    @functools.wraps(function)
    def with_converted(*args: Any, **kwargs: Any) -> Any:
        name = type(args[0]).__name__ if function.__name__ == "__init__" else called
        kwargs = _as_declared(kwargs, signature, getattr(function, "other_names", {}))
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            unknown = next((key for key in kwargs if key not in signature.parameters), None)
            hint = "" if unknown is None else nearest(unknown, signature.parameters)
            wrong = error if unknown is None else f"got an unexpected keyword argument {shown(unknown)}"
            raise UsageError(f"{name}: {wrong}{hint}.") from None
        for key, value in bound.arguments.items():
            if key not in hints():
                continue
            kind = signature.parameters[key].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[key] = tuple(argument(each, hints()[key], f"{name}: {key}") for each in value)
            elif kind is not inspect.Parameter.VAR_KEYWORD:
                bound.arguments[key] = argument(value, hints()[key], f"{name}: {key}")
        return function(*bound.args, **bound.kwargs)

    return with_converted


def _as_declared(
    given: Mapping[str, Any], signature: inspect.Signature, other_names: Mapping[str, str]
) -> dict[str, Any]:
    """Arguments under the names of the signature: `task=` for `tasks=`, where both words mean the same.

    A list of one stands for that one where the plural is given for what there is one of.
    """
    known = signature.parameters
    arguments = {}
    for key, value in given.items():
        new = key if key in known else other_names.get(key, key)
        if new not in known or (new != key and new in given):
            new = key
        single = key == f"{new}s" and isinstance(value, list | tuple) and len(value) == 1
        arguments[new] = value[0] if single else value
    return arguments


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of the parameters; a name that is only there for a type checker says nothing."""
    names = {**vars(__import__("builtins")), **getattr(inspect.unwrap(function), "__globals__", {})}
    hints: dict[str, Any] = {}
    for key, parameter in inspect.signature(function).parameters.items():
        hint = parameter.annotation
        if hint is parameter.empty:
            continue
        try:
            hints[key] = eval(hint, names) if isinstance(hint, str) else hint
        except NameError:
            hints[key] = Any
    return hints


def argument(value: object, hint: Any, name: str) -> Any:
    """A value as its hint says."""
    try:
        return _converted(value, hint, name)
    except _Refused:
        raise UsageError(f"{name} must be {described(hint)}, not {shown(value)}.") from None


def described(hint: Any) -> str:
    """What a hint wants, in words: `text or several of these`."""
    if hint is Any:
        return "a value"
    if hint == LongText:
        return "text"
    if isinstance(hint, types.UnionType) or get_origin(hint) is Union:
        several = [part for part in get_args(hint) if get_origin(part) in _SEVERAL]
        covered = {int} if float in get_args(hint) else set()
        single = list(dict.fromkeys(described(part) for part in get_args(hint) if part not in {*several, *covered}))
        words = [*single, *(["several of these"] if several and single else map(described, several))]
        return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) in _SEVERAL:
        return "several values" if get_args(hint)[0] is Any else f"several, each {described(get_args(hint)[0])}"
    if get_origin(hint) is not None:
        return "a mapping" if issubclass(get_origin(hint), Mapping) else described(get_origin(hint))
    if hint in _WORDS:
        return _WORDS[hint]
    name = getattr(hint, "__name__", str(hint))
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def shown(value: object) -> str:
    """A value for a message: its text where that is short and plain, else what kind of thing it is."""
    if not isinstance(value, str | bytes | bool | int | float | complex | list | tuple | set | dict | Path | None):
        return f"a value of the type {type(value).__name__}"
    try:
        return reprlib.repr(value)
    except Exception:  # integers of thousands of digits have no text
        return f"a value of the type {type(value).__name__}"


def _converted(value: Any, hint: Any, name: str) -> Any:
    if hint in (Any, object):
        return value
    origin, inner = get_origin(hint), get_args(hint)
    if hint is LongText:
        if _HALF.search(_require(isinstance(value, str), value)):
            raise UsageError(f"{name} has half of a character in it (a surrogate without its pair): {shown(value)}.")
        return value
    if isinstance(hint, types.UnionType) or origin is Union:
        return _as_one_of(value, inner, name)
    if hint in (None, type(None)):
        return _require(value is None, value)
    if origin is Literal:
        plain = _plain(value)
        return _require(any(plain == one for one in inner if type(one) is type(plain)), plain)
    if hint is bool:
        return _require(isinstance(_plain(value), bool), _plain(value))
    if hint is int:
        plain = _plain(value)
        whole = isinstance(plain, int) and not isinstance(plain, bool)
        return _require(whole and plain.bit_length() < LONGEST_NUMBER, plain)
    if hint is float:
        return _finite(_plain(value))
    if hint is str:
        return _text(value)
    if hint is Path:
        return Path(_place(_require(isinstance(value, str | os.PathLike), value), name))
    if origin in _SEVERAL:
        values = several(value)
        converted = [_converted(each, inner[0], name) for each in _require(values is not None, values)]
        return tuple(converted) if origin is tuple else converted
    _require(isinstance(value, origin or hint), value)
    if inner and issubclass(origin, Mapping):
        entry = getattr(inner[1], "array_type", inner[1])  # the axes of one tensor bind none of another's
        for key, each in value.items():
            _converted(key, inner[0], name), _converted(each, entry, name)
    return value


def _as_one_of(value: Any, hints: Sequence[Any], name: str) -> Any:
    """The first that it is already, else the first that it can become."""
    if Path in hints and isinstance(value, str | os.PathLike):
        place = _place(value, name)
        return place if str in hints else Path(place)
    if float in hints:
        hints = [hint for hint in hints if hint is not int]
    for exactly in (True, False):
        for hint in hints:
            if exactly != (isinstance(hint, type) and type(value) is hint):
                continue
            try:
                return _converted(value, hint, name)
            except _Refused:
                continue
    raise _Refused


def _require(holds: bool, value: Any) -> Any:
    if not holds:
        raise _Refused
    return value


def _plain(value: Any) -> Any:
    """A number of numpy, torch or pandas as Python's; all else as it is."""
    return _listed(value) if getattr(value, "ndim", None) == 0 else value


def _listed(value: Any) -> Any:
    """What another library's number or array is in Python's own values; all else as it is."""
    if not hasattr(type(value), "tolist"):
        return value
    try:
        return value.tolist()
    except Exception:  # whatever its library raises, of a tensor without values for one
        raise _Refused from None


def _finite(value: Any) -> float:
    _require(isinstance(value, Real) and not isinstance(value, bool), value)
    try:
        return float(_require(math.isfinite(value), value))
    except OverflowError:
        raise _Refused from None


def _text(value: Any) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    _require(isinstance(text, str) and len(text) <= LONGEST_TEXT and _UNFIT.search(text) is None, text)
    return str(text)


def several(value: object) -> list[Any] | None:
    """What an iterable gives, as Python's own values; None for what is one thing, as text and mappings are."""
    try:
        plain = _listed(value)
        if not isinstance(plain, Iterable) or isinstance(plain, str | bytes | bytearray | Mapping):
            return None
        most = MOST_VALUES if isinstance(plain, Sized) else MOST_UNSIZED
        entries = list(islice(plain, most + 1))
    except (_Refused, TypeError):  # an iterable of none, such as a tensor without axes
        return None
    return entries if len(entries) <= most else None


def _place(value: str | os.PathLike[str], name: str) -> str | Path:
    """A path as it was given, checked (`lesion.files.named`), the home folder put in for `~`."""
    expanded = named(_text(value), f"argument {name.rpartition(' ')[2]}")
    return expanded if not isinstance(value, str) else str(expanded) if value.startswith("~") else value
