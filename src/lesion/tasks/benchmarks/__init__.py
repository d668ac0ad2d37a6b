"""The benchmarks: every file here is one, found by its name."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from lesion.tasks.benchmark import Benchmark


def _benchmark(module: str) -> type[Benchmark]:
    values = vars(import_module(f"{__name__}.{module}")).values()
    return next(value for value in values if isinstance(value, type) and getattr(value, "title", "") == module)


BENCHMARKS = {module.name: _benchmark(module.name) for module in pkgutil.iter_modules(__path__)}
