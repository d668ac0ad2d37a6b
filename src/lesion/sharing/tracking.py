"""Experiment trackers: progress while a study runs, its claims and figures at the end; trackio, wandb or mlflow."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from lesion import files
from lesion.core.result import StudyResult
from lesion.core.study_file import StudyFile
from lesion.errors import LesionError, UsageError
from lesion.files import reason
from lesion.progress import Watcher
from lesion.report.names import names_in
from lesion.sharing import privacy

LIBRARIES = ("trackio", "wandb", "mlflow")
PROJECT = "lesion"
SHOWN_BY = {"trackio": f"trackio show --project {PROJECT}", "mlflow": "mlflow ui"}
"""Commands that show the runs here; wandb says itself where they are."""
ALONE = {"settings": {"console": "off", "disable_git": True, "x_disable_meta": True}}
"""Has wandb keep what it is given alone: not what is printed, the command and the repository, with paths in them."""
EVERY = 5.0
"""Seconds between two points of progress."""


class Runs:
    """trackio and wandb, which have one interface."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._alone = ALONE if library.__name__ == "wandb" else {}

    def begin(self, name: str, settings: Mapping[str, str]) -> None:
        """A run of the project `lesion`."""
        self._library.init(project=PROJECT, name=name, config=dict(settings), **self._alone)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """A point of each curve."""
        self._library.log(dict(numbers), step=step)

    def end(self, claims: Sequence[str], figures: Sequence[Path]) -> None:
        """Claims as a table, figures as pictures; neither where the study broke off. The run ends also if one fails."""
        try:
            if claims:
                table = self._library.Table(columns=["claim"], data=[[claim] for claim in claims])
                self._library.log({"claims": table})
            if figures:
                self._library.log({figure.stem: self._library.Image(str(figure)) for figure in figures})
        finally:
            self._library.finish()


class Mlflow:
    """mlflow, whose files are artifacts."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def begin(self, name: str, settings: Mapping[str, str]) -> None:
        """A run of the experiment `lesion`."""
        self._library.set_experiment(PROJECT)
        self._library.start_run(run_name=name)
        self._library.log_params(settings)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """A point of each metric."""
        self._library.log_metrics(dict(numbers), step=step)

    def end(self, claims: Sequence[str], figures: Sequence[Path]) -> None:
        """Claims and figures as artifacts."""
        if claims:
            self._library.log_text("".join(f"- {claim}\n" for claim in claims), "claims.md")
        for figure in figures:
            self._library.log_artifact(str(figure), "figures")
        self._library.end_run("FINISHED" if claims or figures else "KILLED")


Tracker = Runs | Mlflow


def tracker(library: str) -> Tracker:
    """The tracker of a library, imported now."""
    if library not in LIBRARIES:
        raise UsageError(f"--track takes {', '.join(LIBRARIES)}, not '{library}'.")
    try:
        module = import_module(library)
    except ModuleNotFoundError as error:
        raise UsageError(f"--track {library} needs a package: pip install 'lesion[{library}]' ({error}).") from None
    return Mlflow(module) if library == "mlflow" else Runs(module)


class Tracked:
    """A watcher that hands on what it is told, and has a tracker keep how far the study is.

    A tracker that fails later ends no study: that is noted once.

    Attributes:
        result: what the study has shown, set once its figures are written.
    """

    def __init__(self, inner: Watcher, tracker: Tracker) -> None:
        self._inner, self._tracker = inner, tracker
        self._total = self._done = self._step = self._kept = 0
        self._spoke, self._failed = 0.0, False
        self.result: StudyResult[Any] | None = None

    def begin(self, model: str, total: int, stored: int, what: str = "answers") -> None:
        """Handed on."""
        self._log()
        self._total, self._done = total, stored
        self._inner.begin(model, total, stored, what)

    def answered(self, count: int) -> None:
        """Handed on, and kept every few seconds."""
        self._inner.answered(count)
        self._done, self._step = self._done + count, self._step + count
        if time.monotonic() - self._spoke >= EVERY or self._done >= self._total:
            self._log()

    def note(self, text: str) -> None:
        """Handed on."""
        self._inner.note(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _log(self) -> None:
        if self._step > self._kept and self._total:
            self._spoke, self._kept = time.monotonic(), self._step
            numbers = {"answers": float(self._step), "share done": self._done / self._total}
            self.attempt(lambda: self._tracker.log(numbers, self._step))

    def attempt(self, telling: Callable[[], None]) -> None:
        """Tell the tracker something."""
        try:
            with silenced():
                telling()
        except Exception as error:
            if not self._failed:
                self._inner.note(f"The tracker failed ({reason(error)}); the study goes on without it.")
            self._failed = True


def silenced() -> AbstractContextManager[Any]:
    """Whatever a tracker prints of itself is no part of what a command says."""
    return redirect_stdout(io.StringIO())


@contextmanager
def tracked(library: str, study: StudyFile, watcher: Watcher) -> Iterator[Tracked]:
    """The watcher with a tracker beside it, whose run begins now and ends with the `with`."""
    kept = tracker(library)
    entries = study.model_dump(mode="json", exclude_none=True)
    names = privacy.public_names(names_in(study), files.texts(entries))
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in entries.items()}
    settings = {key: privacy.replaced(value, names) for key, value in texts.items()}
    try:
        with silenced():
            kept.begin(study.name, settings)
    except Exception as error:
        raise LesionError(f"{library} keeps no run ({reason(error)}); mend that, or leave --track out.") from error
    if library in SHOWN_BY:
        watcher.note(f"{library} keeps this run as {study.name}; see it with `{SHOWN_BY[library]}`.")
    watching = Tracked(watcher, kept)
    try:
        yield watching
    finally:
        result = watching.result
        claims = [] if result is None else [privacy.replaced(claim, names) for claim in result.findings]
        pictures = [] if result is None else sorted((Path(result.folder) / "figures").glob("*.png"))
        watching.attempt(lambda: kept.end(claims, pictures))
