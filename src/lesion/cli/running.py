"""Running a study of any method from the command line, and showing what a folder holds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich.text import Text

from lesion.cli.terminal import Bar, Terminal, say
from lesion.core.method import Method
from lesion.core.result import StudyResult
from lesion.core.study_file import StudyFile
from lesion.engines.config import EngineChoice, opened
from lesion.errors import UsageError
from lesion.outputs import default_folder, refuse_another_kind


def run(
    method: Method[Any],
    study: StudyFile,
    out: Path | None,
    choice: EngineChoice,
    *,
    every: bool = False,
    dry: bool = False,
    track: str | None = None,
    push: str | None = None,
) -> StudyResult | None:
    """Run a study into a folder, show and return its result.

    `every`: all claims and rows; `dry`: say what it costs; `track`: the tracker that keeps its run;
    `push`: the repository of the hub that it is sent to.
    """
    if choice.distributed and not method.distributed:
        what = "This study only reads finished folders" if method.only_reads else "A laboratory trains its models here"
        raise UsageError(f"{what}; leave --workers and --ray out.")
    if dry and not method.distributed:
        raise UsageError("What this study costs is not known beforehand; leave --dry-run out.")
    if not method.distributed and (choice.device_map is not None or choice.trust_remote_code):
        raise UsageError(
            "This study loads no model of yours, so --device-map and --trust-remote-code mean nothing; leave them out."
        )
    if push is not None:
        _refuse_unsendable(method, push)
    # Help need not wait for pandas, and what only reads folders neither for the catalogue of tasks nor for torch.
    from lesion.core.estimate import DryRun
    from lesion.core.temporary_folder import folder_of

    folder = out or default_folder(study.name, study.identity())
    refuse_another_kind(folder, method.folder_kind)
    if not method.only_reads:
        from lesion.core.preflight import look_ahead

        look_ahead(study)
    bar = Bar()
    keeping: AbstractContextManager[Any] = nullcontext(bar)
    if track is not None and not dry:
        from lesion.sharing.tracking import tracked

        keeping = tracked(track, study, bar)
    with keeping as watcher:
        try:
            engines = nullcontext() if method.only_reads else opened(choice, bar)
            with bar, folder_of(folder), engines as make_engine:
                result = method.run(study, folder, watcher=watcher, make_engine=make_engine, dry=dry)
        except DryRun as done:
            bar.say(str(done))
            return None
        except KeyboardInterrupt:
            # A run that ends before its models are loaded has no folder yet.
            kept = method.kept.replace("{folder}", str(folder)) if folder.exists() else "Nothing was kept."
            bar.say(f"Stopped. {kept}")
            raise
        show(result, bar.notes, every=every)
        if watcher is not bar:
            watcher.result = result
    if push is not None:
        from lesion.cli.share import send

        send(folder, push, yes=True)  # it was asked for, and is private and without texts
    return result


def _refuse_unsendable(method: Method[Any], repository: str) -> None:
    """Refuse before the study what could not be sent after it."""
    from lesion.sharing.hub import Remote

    Remote(repository, None)
    if method.only_reads or not method.result_class().TEXTLESS:
        raise UsageError("This study is not sent without a look at its page; leave --push out, and use `lesion push`.")


def show(result: StudyResult, shown_notes: Sequence[str] = (), *, every: bool = False) -> None:
    """Write the report of a result; print the verdict, what limits it, tables, where the report is, and the next step.

    Notes that were said while it ran are not said again; `every`: all claims and rows.
    """
    from lesion.cli.next_step import next_step

    path = result.report()
    console = Terminal()
    console.print(Text(result.verdict, style="bold"))
    for note in result.notes:
        if note not in shown_notes:
            console.note(result.names(note))
    console.print(result.text(every=every))
    for line in result.done():
        say(line)
    say(f"report: {path}")
    if step := next_step(result):
        say(f"next: {step}")
