"""`lesion compare` for programs: the summary on standard output, an exit code where the last side is worse."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lesion.cli import running
from lesion.cli.terminal import say
from lesion.core.method import Method
from lesion.core.result import StudyResult
from lesion.core.study_file import StudyFile
from lesion.engines.config import EngineChoice
from lesion.errors import UsageError
from lesion.report import wording

WORSE = "worse"
IS_WORSE = 3
"""The exit code where the last side is worse; 1 and 2 are of comparisons that could not be made."""
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, nothing else; a page only with --out.")]
FailIf = Annotated[
    str | None,
    typer.Option(
        metavar=WORSE,
        help="Exit with 3 where the last side, unedited, is shown to be worse by more than --margin on any task: the"
        " upper end of the interval of its difference lies below −margin. Items of the first side for which the last"
        " has no score are wrong here, also those of a whole task. Each task is judged by itself: of many tasks one"
        " may fail by chance.",
    ),
]
Margin = Annotated[float | None, typer.Option(metavar="POINTS", help="For --fail-if, in points. Default: 0.")]
OPTIONS: Mapping[str, tuple[Any, Any]] = {"json": (Json, False), "fail_if": (FailIf, None), "margin": (Margin, None)}
"""Options that are none of the study: annotation and default."""


def run(
    method: Method[Any],
    study: StudyFile,
    out: Path | None,
    choice: EngineChoice,
    *,
    every: bool,
    dry: bool,
    track: str | None,
    json: bool,
    fail_if: str | None,
    margin: float | None,
) -> None:
    """Compare, and fail where that is asked for."""
    if fail_if not in (None, WORSE):
        raise UsageError(f"--fail-if takes {WORSE}, not '{fail_if}'.")
    if margin is not None and (fail_if is None or not 0 <= margin <= 100):
        raise UsageError(f"--margin stands with --fail-if {WORSE} and is a number of points from 0 to 100.")
    if json and track is not None:
        raise UsageError("--json prints the summary and nothing else; leave --track out.")
    result: StudyResult | None
    if json:
        from lesion.core.temporary_folder import folder_of

        with folder_of(out) as folder:
            result = method.run(study, folder)
        if out is not None:
            result.report()
        print(result.summary.text(), end="")
    else:
        result = running.run(method, study, out, choice, every=every, dry=dry, track=track)
    if fail_if is not None and result is not None:
        for note in result.summary.notes if json else ():
            say(f"note: {note}", error=True)
        _fail_if_worse(result.summary, (margin or 0.0) / 100)


def _fail_if_worse(summary: Any, margin: float) -> None:
    last = {side.label for side in summary.sides if side.folder == summary.sides[-1].folder}
    worse = [said for pair in summary.pairs if pair.b in last and (said := _worse(pair, margin))]
    for said in worse:
        say(said, error=True)
    if worse:
        raise typer.Exit(IS_WORSE)


def _worse(pair: Any, margin: float) -> str:
    """Where the second side is shown to be worse; empty where it is not shown."""
    cells = [cell for cell in pair.cells if cell.unedited]
    judged = [cell for cell in cells if cell.unit == "points"]
    if left := [cell.task for cell in cells if cell not in judged]:
        say(f"note: not judged by --fail-if, which is in points: {wording.listed(left)}.", error=True)
    if not judged and not pair.unanswered:
        raise UsageError(f"No task of {pair.b} against {pair.a} is in points, unedited; leave --fail-if out.")
    unscored = {cell.task: cell.unscored for cell in judged if cell.unscored} | dict(pair.unanswered)
    for task, found in unscored.items():
        of = f"{wording.counted(found.items, 'item')} of {found.of:,} in {pair.a}"
        say(f"note: {task}: {pair.b} has no score for {of}; for --fail-if they are wrong.", error=True)
    changes = {task: (found.value, found.high) for task, found in unscored.items()}
    for cell in judged:
        highs = [each.high for each in (cell.difference, cell.clustered) if each is not None and each.high is not None]
        if highs:
            changes.setdefault(cell.task, (cell.difference.value, max(highs)))
    worse = [
        f"{task} ({100 * value:+.1f} points, at most {100 * high:+.1f})"
        for task, (value, high) in changes.items()
        if high < -margin
    ]
    if not worse:
        return ""
    return f"{pair.b} is worse than {pair.a} by more than {100 * margin:g} points on {wording.listed(worse)}."
