"""An associative memory from Python, as values."""

from __future__ import annotations

from rich.console import RenderableType
from typing_extensions import override

from lesion.core.result import StudyResult
from lesion.core.run import Run
from lesion.labs.memory import report as page
from lesion.labs.memory import tables
from lesion.labs.memory.result import MemorySummary
from lesion.labs.memory.run import run_memory
from lesion.labs.memory.study import MemoryStudy
from lesion.report.blocks import Page


class MemoryResult(StudyResult[MemorySummary]):
    """An associative memory with noise: its training, truncations, the sweep over sizes, and the first step."""

    SUMMARY = MemorySummary

    @classmethod
    @override
    def run(cls, study: MemoryStudy, run: Run) -> MemoryResult:
        return cls(run.folder, run_memory(study, run.folder, run.watcher))

    @override
    def page(self) -> Page:
        return page.report(self.summary)

    @override
    def text(self) -> RenderableType:
        return tables.text(self.summary)
