"""Engines opened for a while: what is chosen is started, makes engines of models, and is closed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lesion.engines.config import EngineChoice
from lesion.errors import UsageError
from lesion.progress import Silent, Watcher

if TYPE_CHECKING:
    from lesion.engines.factory import Opened

# What has to be installed for what is chosen, and how it is said.
_LIBRARIES = {
    "vllm": "The engine vllm needs vLLM, which is not installed: pip install 'lesion[vllm]' on a machine with a GPU;"
    " for a CPU see docs/how-to/several-gpus.md.",
    "ray": "Workers need Ray, which is not installed: pip install 'lesion[ray]'.",
}


@contextmanager
def opened(choice: EngineChoice, watcher: Watcher | None = None) -> Iterator[Opened]:
    """What makes engines of models, until the `with` ends; workers and engines end with it."""
    for library, needed in (("vllm", choice.engine == "vllm"), ("ray", choice.distributed)):
        if needed and importlib.util.find_spec(library) is None:
            raise UsageError(_LIBRARIES[library])
    if choice.distributed:
        from lesion.engines.ray.joining import look_ahead

        look_ahead(choice)
    from lesion.engines.factory import Opened, refuse_few_gpus  # they need torch

    if not choice.distributed:
        refuse_few_gpus(choice)
        with Opened(choice, None) as made:
            yield made
        return
    from lesion.engines.ray.cluster import joined

    with joined(choice, watcher or Silent()) as cluster, Opened(choice, cluster) as made:
        yield made
