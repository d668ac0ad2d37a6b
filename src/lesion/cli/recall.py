"""A single training of the recall laboratory, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lesion.cli.progress import Bar
from lesion.cli.running import show
from lesion.labs.recall.study_file import METHOD

if TYPE_CHECKING:
    from lesion.labs.recall.recipe import Recipe


def train(recipe: Recipe, out: Path, corpus: str | None, device: str) -> None:
    """Train and truncate into a folder, and show what was found."""
    from lesion.labs.recall.report import RecallResult
    from lesion.labs.recall.run import run

    with Bar() as bar:
        try:
            summary = run(recipe, out, corpus=corpus, device=device, watcher=bar)
        except KeyboardInterrupt:
            bar.say(f"Stopped. {METHOD.kept.replace('{folder}', str(out))}")
            raise
    show(RecallResult(out, summary))
