"""The Python functions of studies, each made from its method; of a method from another package too, by its command."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from lesion.core.functions import function_of
from lesion.core.method import Method
from lesion.registry import methods


def _named() -> dict[str, Method[Any]]:
    """The methods that have a command of their own, by the names of their functions."""
    named = {method.command.replace("-", "_"): method for method in methods().values() if " " not in method.command}
    return {name: method for name, method in named.items() if name}


@cache
def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("_") or (method := _named().get(name)) is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    function = function_of(method)
    function.__module__ = __name__
    return function
