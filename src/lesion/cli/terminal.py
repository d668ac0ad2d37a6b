"""What the command prints: on any encoding, and without a character of somebody else's that acts on the terminal.

Everything that goes to standard output or standard error takes one of two ways. Tables, notes and the bar are printed
by a `Terminal`, which escapes what it is given and adds only its own styles. Everything else (`say`, libraries,
warnings, tracebacks) is written to a `Guarded` stream, which stands in the place of `sys.stdout` and `sys.stderr` while
a command runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from lesion import bar
from lesion.errors import LesionError
from lesion.files import reason
from lesion.plain import layout, plain


class OutputError(LesionError):
    """Standard output or standard error takes nothing more, for example because the disk behind it is full."""


class Guarded:
    """A text stream to which anything may be written: what its encoding lacks is escaped, and what acts is too.

    Args:
        stream: where the text goes, a text stream; None where the process was started without one.
        escape: whether control characters other than line breaks and tabs are escaped.
    """

    def __init__(self, stream: Any, escape: bool = True) -> None:
        self.stream = stream
        self._escape = escape

    def write(self, text: str) -> int:
        """Write the text, escaped; raises `OutputError` where the stream takes nothing more."""
        shown = text
        if self._escape:
            # A library's progress bar begins its line anew; nothing else may.
            is_bar = text[:1] == "\r" and self.isatty()
            shown = "\r" + layout(text[1:]) if is_bar else layout(text)
        if self.stream is not None:
            encoding = getattr(self.stream, "encoding", None) or "utf-8"
            with _written():
                self.stream.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write one text after the other."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what is waiting; raises `OutputError` where the stream takes nothing more."""
        if self.stream is not None:
            with _written():
                self.stream.flush()

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        return self.stream is not None and self.stream.isatty()

    @property
    def encoding(self) -> str:
        """The encoding of the stream."""
        return getattr(self.stream, "encoding", None) or "utf-8"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def _written() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(
            f"What there is to say cannot be written ({reason(error)}); files that were made before are whole."
        ) from error


class Terminal(Console):
    """A console whose text is data: no markup, no emoji codes, and nothing in it acts on the terminal."""

    def __init__(self, *, stderr: bool = False) -> None:
        stream = sys.stderr if stderr else sys.stdout
        while not isinstance(stream, Guarded) and hasattr(stream, "rich_proxied_file"):  # a bar stands before it
            stream = stream.rich_proxied_file
        direct = Guarded(stream.stream if isinstance(stream, Guarded) else stream, escape=False)
        super().__init__(file=cast("TextIO", direct), stderr=stderr, highlight=False, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """As `Console.render`, with the text of every segment escaped."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(layout(segment.text), segment.style)

    def note(self, text: str) -> None:
        """A line that says something the person should know. The terminal may break it; a log keeps it whole."""
        self.print(f"note: {plain(text)}", soft_wrap=True)


class Bar(bar.Bar):
    """A watcher of runs (`lesion.progress.Watcher`) that draws on standard error, on which only its own styles act."""

    def __init__(self) -> None:
        super().__init__(Terminal(stderr=True))


@contextmanager
def guarded(escape: bool = True) -> Iterator[None]:
    """Standard output and standard error are `Guarded` within; at the end, what is waiting is written."""
    out, err = Guarded(sys.stdout, escape), Guarded(sys.stderr, escape)
    with redirect_stdout(cast("TextIO", out)), redirect_stderr(cast("TextIO", err)):
        yield
        out.flush()


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and what they are, side by side. Both are shown as they are, never read as markup."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(Text(name), Text(value))
    return grid


def say(text: str, *, error: bool = False) -> None:
    """Print one line; a line break in the text is shown as an escape, so that no name makes a line of its own."""
    print(plain(text), file=sys.stderr if error else sys.stdout)


def abandon() -> None:
    """Let Python end without trying once more to write what standard output did not take."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
