"""Short texts of values: what `repr` shows of objects that hold whole networks, tensors or tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from lesion.plain import plain, short

LONGEST, LONGEST_PART = 300, 120
"""Characters of a whole text, and of the value of one field in it."""
MOST_VALUES = 4


def described(value: object, *parts: object) -> str:
    """`Class(part, part)`, on one line and at most 300 characters long."""
    text = plain(f"{type(value).__name__}({', '.join(map(str, parts))})")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]}…)"


def brief(value: object, limit: int = LONGEST_PART) -> str:
    """The `repr` of a value where it is short; else the number of its values, or its class."""
    if isinstance(value, str):
        return repr(short(value, limit))
    if type(value).__module__.partition(".")[0] in ("torch", "transformers", "pandas", "numpy"):
        return f"<{type(value).__name__}>"
    if isinstance(value, Collection) and not isinstance(value, bytes):
        text = _listed(value, limit) if len(value) <= MOST_VALUES else None
        return text if text is not None and len(text) <= limit else f"<{len(value):,} values>"
    text = repr(value)
    return text if len(text) <= limit else f"{type(value).__name__}(…)"


def _listed(values: Collection[Any], limit: int) -> str | None:
    if isinstance(values, Mapping):
        return "{" + ", ".join(f"{brief(key, limit)}: {brief(each, limit)}" for key, each in values.items()) + "}"
    if not isinstance(values, list | tuple):
        return None
    inside = ", ".join(brief(each, limit) for each in values)
    return f"[{inside}]" if isinstance(values, list) else f"({inside}{',' * (len(values) == 1)})"


def short_repr(value: Any) -> str:
    """What a dataclass shows of itself: its fields that are not their defaults, each briefly. For `__repr__`."""
    shown = [field for field in dataclasses.fields(value) if field.repr]
    values = {field.name: getattr(value, field.name) for field in shown}
    defaults = {field.name: _default(field) for field in shown}
    return described(value, *(f"{key}={brief(each)}" for key, each in values.items() if not _same(each, defaults[key])))


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _same(value: object, default: object) -> bool:
    """Whether a value is its default; arrays are not compared."""
    plain_kinds = (str, int, float, tuple, list, dict)
    return value is default or (isinstance(value, plain_kinds) and type(value) is type(default) and value == default)
