"""Lesion studies for language models: find the blocks and weights that a skill depends on, and test it by cutting.

Example:
    >>> import lesion
    >>> model = lesion.load("bundled:llama-base")
    >>> with lesion.applied(model, lesion.ScaleBlock(3, 0.0)):
    ...     model.network(**model.tokenizer("2 + 2", return_tensors="pt"))
    >>> lesion.ablate(model, tasks=["primer:arithmetic"], items=100).table
    >>> lesion.truncate(model, "primer:atlas?form=contrast", matrices="mlp.up").edit
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from lesion.threads import sleep_while_waiting

sleep_while_waiting()

# Names are imported when they are first used: `lesion --help` need not wait for torch. Where each is says the stub.
with open(f"{__file__}i", encoding="utf-8") as _stub:
    _HOMES = {name: (module, name) for module, name in re.findall(r"^from (\S+) import (\w+) as", _stub.read(), re.M)}
_HOMES["find_task"] = ("lesion.tasks.catalogue", "find")
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lesion' has no attribute '{name}'")
    module, own = _HOMES[name]
    return getattr(import_module(module), own)


def __dir__() -> list[str]:
    return __all__
