"""Running a training or a study of the recall laboratory from the command line, and showing what a folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lesion.cli.progress import Bar
from lesion.cli.terminal import Terminal, say, tame
from lesion.labs.recall.study_file import RecallStudy

if TYPE_CHECKING:
    from lesion.labs.recall.recipe import Recipe


def train(recipe: Recipe, out: Path, corpus: str | None, device: str) -> None:
    """Train and truncate into a folder, and show what was found."""
    from lesion.labs.recall.run import run

    with Bar() as bar:
        try:
            summary = run(recipe, out, corpus=corpus, device=device, watcher=bar)
        except KeyboardInterrupt:
            bar.say(_stopped(out))
            raise
    _show(out, summary)


def run(study: RecallStudy, out: Path) -> None:
    """Run a recall study into a folder, and show what was found."""
    from lesion.labs.recall.study import run_recall

    with Bar() as bar:
        try:
            summary = run_recall(study, out, watcher=bar)
        except KeyboardInterrupt:
            bar.say(_stopped(out))
            raise
    _show(out, summary)


def show(folder: Path) -> bool:
    """Write the report of a training or a study anew and print its tables; False where the folder has none."""
    from lesion.labs.recall.run import summary_of

    summary = summary_of(folder)
    if summary is None:
        return False
    _show(folder, summary)
    return True


def _show(folder: Path, summary: dict[str, Any]) -> None:
    from lesion.labs.recall import report as page
    from lesion.labs.recall import tables as recall_tables

    path = page.write(folder, summary)
    told = (
        recall_tables.sweep_text(tame(summary))
        if summary["kind"] == "recall-sweep"
        else recall_tables.text(tame(summary))
    )
    Terminal().print(told)
    say(f"report: {path}")


def _stopped(out: Path) -> str:
    return f"Stopped. What is trained is kept in {out}; the same command goes on from there."
