"""How a long run shows itself: a bar with rate and time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from lesion.cli.terminal import Terminal
from lesion.plain import plain

# Seconds between two lines where there is no terminal to draw a bar on.
LINE_EVERY = 15.0
# Seconds, and news of answers, that the pace is taken from; and seconds without which nothing is said about it.
WINDOW, NEWS, SETTLED = 60.0, 20, 10.0


class Pace:
    """How fast answers come of late. What passes before the first ones, while workers start, does not count."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

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


class Bar:
    """A watcher of runs (`lesion.progress.Watcher`) that draws on standard error."""

    def __init__(self) -> None:
        self.console = Terminal(stderr=True)
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
            self.say(f"{model}: {total:,} {what}{already}")

    def answered(self, count: int) -> None:
        """So many more answers are stored."""
        now = time.monotonic()
        self._done += count
        self._pace.see(now, self._done)
        pace = self._pace_text()
        if self._task is not None:
            self._bar.update(self._task, completed=self._done, pace=pace)
        if not self.console.is_terminal and now - self._spoke >= LINE_EVERY:
            self._spoke = now
            self.say(", ".join(filter(None, [f"{self._name}: {self._done:,} of {self._total:,}", pace])))

    def _pace_text(self) -> str:
        """The pace and the time that the rest takes at it; empty as long as too little was seen."""
        rate = self._pace.rate
        return f"{rate:,.1f}/s, {_clock((self._total - self._done) / rate)} left" if rate else ""

    def note(self, text: str) -> None:
        """Something the person should know."""
        self.notes.append(text)
        self.say(f"note: {text}")

    def say(self, text: str) -> None:
        """A line above the bar. The terminal may break it; a log keeps it whole."""
        self.console.print(plain(text), soft_wrap=True)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
