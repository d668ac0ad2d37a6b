"""What the tests of commands share: a command run in this process, saved tiny models, files of questions."""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from lesion.cli.main import code
from lesion.report import drawing, plots
from lesion.report.marks import Mark
from tiny import save as save_network
from tiny import tiny


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit code and what it printed on both streams."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The paragraph that says what went wrong: all that was printed from `lesion: ` on, without the prefix."""
        assert self.err.count("lesion: ") == 1, self.err
        assert "Traceback" not in self.err, self.err
        return self.err.partition("lesion: ")[2]


def lesion(capture, *arguments: object, drawn: bool = False) -> Outcome:
    """Run `lesion ARGUMENTS` here; `capture` is pytest's capsys. Charts are drawn only where a test is about them."""
    capture.readouterr()
    with coarse_figures() if drawn else undrawn(), pytest.MonkeyPatch.context() as patch:
        # Altair looks at every part of a chart by its schema; the tests of charts let it.
        patch.setattr("altair.utils.schemapi.DEBUG_MODE", False)
        left = code([str(argument) for argument in arguments])
    said = capture.readouterr()
    return Outcome(left, said.out, said.err)


def refused(done: Outcome, code: int, *says: str) -> str:
    """Check that a command ended as it should, in one paragraph with these words, and return the paragraph."""
    text = done.complaint
    assert done.code == code, text
    assert text.endswith(".\n"), text
    assert text.count("\n") == 1, text
    for words in says:
        assert words in text, f"{words!r} is not said in: {text}"
    return text


@contextmanager
def coarse_figures() -> Iterator[None]:
    """Figures of few dots, of which the same one is drawn once for all tests; those of figures draw them as they are.

    That a chart is always drawn as the same picture is what `report/test_publishing.py` tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "SCALE", COARSE)
        if drawing.svg is _DRAW:  # else the test has something of its own in its place
            patch.setattr(drawing, "svg", lambda specified: _svg(json.dumps(specified)))
        if drawing.png_file is _DRAW_FILE:
            patch.setattr(drawing, "png_file", _png)
        yield


@contextmanager
def undrawn() -> Iterator[None]:
    """Pages whose charts are empty: what these show is what the tests of each study's page look at."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in Mark.__subclasses__():
            patch.setattr(kind, "charts", lambda *_: (_EMPTY,))
        patch.setattr(plots, "legend", lambda *_: _EMPTY)
        patch.setattr(drawing, "specification", lambda chart: {"datasets": {}, "config": {}})
        patch.setattr(drawing, "svg", lambda specified: "<svg></svg>")
        patch.setattr(drawing, "png_file", lambda picture: b"")
        yield


COARSE = 0.5
_EMPTY = alt.layer()
_DRAW, _DRAW_FILE = drawing.svg, drawing.png_file


@functools.lru_cache(maxsize=1000)
def _svg(specified: str) -> str:
    return _DRAW(json.loads(specified))


@functools.lru_cache(maxsize=300)
def _png(drawn: str) -> bytes:
    assert drawing.SCALE == COARSE
    return _DRAW_FILE(drawn)


def save(folder: Path, family: str = "llama") -> Path:
    """The tiny model of a family with its tokenizer as a folder, and that folder."""
    return save_network(tiny(family), folder)


def write(file: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """A JSON Lines file of the rows."""
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return file


def questions(file: Path, count: int) -> Path:
    """A JSON Lines file of so many sums."""
    return write(file, ({"id": f"{n}", "prompt": f"{n} + {n} =", "answer": f"{n + n}"} for n in range(count)))
