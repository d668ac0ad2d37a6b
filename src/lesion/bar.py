"""How a long run shows itself: a bar with rate and time left on a terminal and in a notebook, lines elsewhere.

`watching` says who is told: by default a terminal or a notebook shows a bar, and a log stays as it is.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from lesion.markup import boxed, line
from lesion.plain import plain
from lesion.progress import Silent, Watcher

# Seconds between two lines where there is no terminal to draw a bar on.
LINE_EVERY = 15.0
# Seconds between two drawings in a notebook.
DRAWN_EVERY = 0.25
# Seconds, and news of answers, that the pace is taken from; and seconds without which nothing is said about it.
WINDOW, NEWS, SETTLED = 60.0, 20, 10.0
# Pieces of work that a notebook shows at once.
MOST_WORKS = 8


class Pace:
    """How fast answers come of late. What passes before the first ones, while workers start, does not count."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._expected: tuple[float, float, int] | None = None

    def expect(self, seconds: float, now: float, done: int) -> None:
        """What is left now is expected to take so many seconds."""
        self._expected = now, seconds, done

    def see(self, now: float, done: int) -> None:
        """So many answers are there now, by a clock in seconds."""
        self._seen.append((now, done))
        while len(self._seen) > NEWS and self._seen[1][0] <= now - WINDOW:
            self._seen.popleft()

    @property
    def rate(self) -> float | None:
        """Answers a second; None as long as too few were seen to tell."""
        if not self._seen:
            return None
        (began, before), (now, done) = self._seen[0], self._seen[-1]
        return (done - before) / (now - began) if now - began >= SETTLED and done > before else None

    def text(self, left: int) -> str:
        """The pace and the time that so many answers take; empty as long as too little was seen.

        Where a time was expected, it counts the less the more is done since, and all that was seen since counts: the
        pace of late depends on which answers came of late.
        """
        rate = self.rate
        if self._expected is not None and self._seen:
            began, seconds, before = self._expected
            now, done = self._seen[-1]
            share = (done - before) / max(1, done - before + left)
            likely = (1 - share) * ((1 - share) * seconds + now - began)
        else:
            likely = left / rate if rate else math.inf
        clock = f"{_clock(likely)} left" if math.isfinite(likely) else ""
        return ", ".join(filter(None, [f"{rate:,.1f}/s" if rate else "", clock]))


class Bar:
    """A watcher of runs (`lesion.progress.Watcher`) that draws on standard error.

    Args:
        console: where it draws, in place of standard error; nothing but what this class gives it is printed there.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[pace]}", markup=False),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task: TaskID | None = None
        self._name = ""
        self.notes: list[str] = []
        self._done = self._total = 0
        self._pace = Pace()
        self._spoke = time.monotonic()

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, model: str, total: int, stored: int, what: str = "answers") -> None:
        """Work on a model starts: so many answers (or texts) in all, so many of them stored already."""
        self._name, self._total, self._done, self._pace = model, total, stored, Pace()
        self._spoke = time.monotonic()
        self._task = self._bar.add_task(plain(f"{model}, {what}"), total=total, completed=stored, pace="")
        if not self.console.is_terminal or stored:
            already = f", {stored:,} of them stored already" if stored else ""
            counted = f"{total:,} {what}" if total != 1 else f"1 {what.removesuffix('s')}"
            self.say(f"{model}: {counted}{already}")

    def answered(self, count: int) -> None:
        """So many more answers are stored."""
        now = time.monotonic()
        self._done += count
        self._pace.see(now, self._done)
        pace = self._pace.text(self._total - self._done)
        if self._task is not None:
            self._bar.update(self._task, completed=self._done, pace=pace)
        if not self.console.is_terminal and now - self._spoke >= LINE_EVERY:
            self._spoke = now
            self.say(", ".join(filter(None, [f"{self._name}: {self._done:,} of {self._total:,}", pace])))

    def expect(self, seconds: float) -> None:
        """What is left may take so many seconds."""
        self._pace.expect(seconds, time.monotonic(), self._done)

    def note(self, text: str) -> None:
        """Something the person should know."""
        self.notes.append(text)
        self.say(f"note: {text}")

    def say(self, text: str) -> None:
        """A line above the bar. The terminal may break it; a log keeps it whole."""
        self.console.print(plain(text), soft_wrap=True)


class NotebookBar:
    """A watcher of runs that draws in the output of a notebook's cell; it needs no widgets."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html, self._handle = HTML, display(HTML(""), display_id=True)
        self.notes: list[str] = []
        self._works: list[_Work] = []
        self._drew = 0.0

    def begin(self, model: str, total: int, stored: int, what: str = "answers") -> None:
        """Work on a model starts: so many answers (or texts) in all, so many of them stored already."""
        self._works.append(_Work(f"{model}, {what}", total, stored))
        self._draw()

    def answered(self, count: int) -> None:
        """So many more answers are stored."""
        if not self._works:
            return
        work, now = self._works[-1], time.monotonic()
        work.done += count
        work.pace.see(now, work.done)
        if now - self._drew >= DRAWN_EVERY or work.done >= work.total:
            self._draw()

    def expect(self, seconds: float) -> None:
        """What is left may take so many seconds."""
        if self._works:
            self._works[-1].pace.expect(seconds, time.monotonic(), self._works[-1].done)

    def note(self, text: str) -> None:
        """Something the person should know."""
        self.notes.append(text)
        self._draw()

    def _draw(self) -> None:
        self._drew = time.monotonic()
        lines = [work.html() for work in self._works[-MOST_WORKS:]]
        self._handle.update(self._html(boxed([*(line(f"note: {text}") for text in self.notes), *lines])))


class _Work:
    """A piece of work: what it is, how much there is, and how much is done."""

    def __init__(self, name: str, total: int, done: int) -> None:
        self.name, self.total, self.done, self.pace = name, total, done, Pace()

    def html(self) -> Markup:
        left = self.total - self.done
        text = ", ".join(filter(None, [f"{self.done:,} of {self.total:,} {self.name}", self.pace.text(left)]))
        bar = Markup('<progress value="{}" max="{}" style="width:240px"></progress>').format(self.done, self.total)
        return bar + line(text, "display:inline-block;margin-left:10px")


@contextmanager
def watching(watcher: Watcher | None, progress: bool | None) -> Iterator[Watcher]:
    """Who is told how a run goes.

    Args:
        progress: True shows a bar, False nothing, notes neither; None: a bar in a notebook and on a terminal, nothing
            where standard error is a file or a pipe.
    """
    here = _notebook()
    if watcher is not None:
        yield watcher
    elif progress is False or (progress is None and not here and not sys.stderr.isatty()):
        yield Silent()
    elif here:
        yield NotebookBar()
    else:
        with Bar() as bar:
            yield bar


def _notebook() -> bool:
    """Whether the code runs in a cell of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
