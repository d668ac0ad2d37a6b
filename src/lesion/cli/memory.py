"""Running the memory laboratory from the command line, and showing what a folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lesion.cli.progress import Bar
from lesion.cli.terminal import Terminal, say
from lesion.plain import tame

if TYPE_CHECKING:
    from lesion.labs.memory.recipe import Recipe


def train(recipe: Recipe, out: Path) -> None:
    """Train and truncate into a folder, and show what was found; what is finished there is only read."""
    from lesion.labs.memory.folder import claimed
    from lesion.labs.memory.lab import run_memory

    with claimed(out, recipe) as found:
        if found is None:
            with Bar() as bar:
                found = run_memory(recipe, bar)
        _show(out, found)


def show(folder: Path) -> bool:
    """Write the report of a memory anew and print its tables; False where the folder has none."""
    from lesion.labs.memory.folder import summary_of

    summary = summary_of(folder)
    if summary is None:
        return False
    _show(folder, summary)
    return True


def _show(folder: Path, summary: dict[str, Any]) -> None:
    from lesion.labs.memory import report as page
    from lesion.labs.memory import tables as memory_tables

    path = page.write(folder, summary)
    Terminal().print(memory_tables.text(tame(summary)))
    say(f"report: {path}")
