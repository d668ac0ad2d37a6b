"""How a long run shows itself: a bar with rate and time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

# Seconds between two lines where there is no terminal to draw a bar on.
LINE_EVERY = 15.0


class Bar:
    """A watcher of runs (`lesion.watching.Watcher`) that draws on standard error."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task: TaskID | None = None
        self._name = ""
        self.told: list[str] = []
        self._done = self._fresh = self._total = 0
        self._started = self._spoke = time.monotonic()

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, model: str, asked: int, stored: int, what: str = "answers") -> None:
        """Work on a model starts: so many answers (or texts) in all, so many of them stored already."""
        self._name, self._total, self._done, self._fresh = model, asked, stored, 0
        self._started = self._spoke = time.monotonic()
        self._task = self._bar.add_task(escape(f"{model}, {what}"), total=asked, completed=stored, rate="")
        if not self.console.is_terminal or stored:
            already = f", {stored:,} of them stored already" if stored else ""
            self.say(f"{model}: {asked:,} {what}{already}")

    def answered(self, count: int) -> None:
        """So many more answers are stored."""
        self._done += count
        self._fresh += count
        now = time.monotonic()
        rate = self._fresh / max(now - self._started, 1e-9)
        if self._task is not None:
            self._bar.update(self._task, completed=self._done, rate=f"{rate:,.1f}/s")
        if not self.console.is_terminal and now - self._spoke >= LINE_EVERY:
            self._spoke = now
            left = (self._total - self._done) / max(rate, 1e-9)
            self.say(f"{self._name}: {self._done:,} of {self._total:,}, {rate:,.1f}/s, {_clock(left)} left")

    def note(self, text: str) -> None:
        """Something the person should know."""
        self.told.append(text)
        self.say(f"note: {text}")

    def say(self, text: str) -> None:
        """A line above the bar. The terminal may break it; a log keeps it whole."""
        self.console.print(text, markup=False, soft_wrap=True)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
