"""A memory of the memory laboratory, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lesion.cli.progress import Bar
from lesion.cli.running import show
from lesion.labs.memory.method import METHOD

if TYPE_CHECKING:
    from lesion.labs.memory.study import MemoryStudy


def train(study: MemoryStudy, out: Path) -> None:
    """Train and truncate into a folder, and show the result."""
    from lesion.labs.memory.api import MemoryResult
    from lesion.labs.memory.run import run_memory

    with Bar() as bar:
        try:
            summary = run_memory(study, out, bar)
        except KeyboardInterrupt:
            bar.say(f"Stopped. {METHOD.kept}")
            raise
    show(MemoryResult(out, summary), bar.told)
