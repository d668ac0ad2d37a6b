"""The memory laboratory as a method."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from lesion.core.method import Method
from lesion.labs.memory.study import MemoryStudy

if TYPE_CHECKING:
    from lesion.engines.engine import MakeEngine
    from lesion.labs.memory.api import MemoryResult
    from lesion.models.load import Model
    from lesion.progress import Watcher


class Memory(Method[MemoryStudy]):
    """A linear associative memory with noise: where the noise lies in its spectrum, and what truncation does."""

    kind = "memory"
    study = MemoryStudy
    kept = "Nothing is kept of an unfinished memory; the same command starts it anew."
    distributed = False

    @override
    def run(
        self,
        study: MemoryStudy,
        folder: Path,
        watcher: Watcher | None,
        make_engine: MakeEngine,
        models: Mapping[str, Model] | None = None,
    ) -> MemoryResult:
        from lesion.labs.memory.api import MemoryResult
        from lesion.labs.memory.run import run_memory

        return MemoryResult(folder, run_memory(study, folder, watcher))

    @override
    def recall(self, folder: Path) -> MemoryResult | None:
        from lesion.labs.memory.api import MemoryResult
        from lesion.labs.memory.run import recall_memory

        summary = recall_memory(folder)
        return None if summary is None else MemoryResult(folder, summary)


METHOD = Memory()
