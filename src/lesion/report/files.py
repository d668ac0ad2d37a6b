"""What every report shares: files written whole or not at all, numbers that JSON can hold, the page's policy."""

from __future__ import annotations

import base64
import errno
import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from lesion.errors import LesionError
from lesion.files import UNFIT, reason
from lesion.outputs import clear_leftovers, own
from lesion.plain import layout
from lesion.report import browser, drawing, theme, wording

HERE = Path(__file__).parent
SCRIPTS = ("page.js", "charts.js", "downloads.js", "answers.js")
"""Parts of the page's one script, in order: each uses those before it."""
_FORMULA = re.compile(r"""[\s\x00-\x1f\x7f-\xa0\u00ad\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff"'`]*[=+\-@\t\r]""")
"""What a spreadsheet may take for a formula, in NFKC form (a full-width sign counts as the plain one); a sign behind
spaces or quotes counts too, because some programs take those away. `downloads.js` says the same."""
_NUMBER = re.compile(r"-(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


@contextmanager
def writing(folder: Path, kind: str, *, figures: bool = True) -> Iterator[Path]:
    """The folder with its `figures`, made if they are not there; what goes wrong within becomes a LesionError.

    Args:
        folder: of the report; what killed processes left unfinished in it is removed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own(folder, kind, adopt=True)
        clear_leftovers(folder)
        if figures:
            (folder / "figures").mkdir(exist_ok=True)
        yield folder
    except OSError as error:
        advice = (
            "free some space and run `lesion report` on the folder again: the answers are kept"
            if error.errno == errno.ENOSPC
            else "give another folder with --out, or make this one writable"
        )
        raise LesionError(
            f"The report could not be written to {folder}: {error.strerror or error}; {advice}."
        ) from error


@contextmanager
def received(folder: Path) -> Iterator[None]:
    """What does not fit while the report of a received folder is made is damage of its files; other errors are ours."""
    try:
        yield
    except (LesionError, OSError):  # of the disk and of standard output others tell
        raise
    except (*UNFIT, AssertionError, jinja2.UndefinedError) as error:
        missing = isinstance(error, jinja2.UndefinedError)
        why = "a value that its page shows is missing" if missing else reason(error)
        raise LesionError(
            f"The study in {folder} is damaged ({why}): its files do not hold what a study leaves there. Run"
            " the same study again on that folder, or get the folder anew."
        ) from error


def spreadsheet(table: pd.DataFrame) -> str:
    """The table as CSV, in which no text is a formula: one that a spreadsheet would run begins with an apostrophe.

    Numbers stay numbers, negative ones too. The page's CSV buttons write the same (`downloads.js`).
    """
    harmless = table.rename(columns=_harmless)
    for place, kind in enumerate(harmless.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            harmless.isetitem(place, harmless.iloc[:, place].map(_harmless).to_numpy(dtype=object))
    return str(harmless.to_csv(index=False, lineterminator="\n"))


def _harmless(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    # A carriage return would end the row for some readers, and what follows it would begin a cell.
    return ";".join(map(_guarded, cell.split(";")))  # where semicolons part cells, what follows one begins a cell


def _guarded(text: str) -> str:
    formula = _FORMULA.match(unicodedata.normalize("NFKC", text)) and not _NUMBER.fullmatch(text)
    return f"'{layout(text)}" if formula else layout(text)


def rendered(carried: browser.Carried, charts: Sequence[drawing.Specification], **values: object) -> str:
    """The text of a self-contained page.

    Args:
        carried: what the item browser reads, from `browser`.
        charts: specifications of Vega-Lite that are drawn on the page.
        values: whatever else `report.html.jinja` names; every text is escaped.
    """
    style = (HERE / "page.css").read_text("utf-8")
    script = "\n".join((HERE / name).read_text("utf-8") for name in SCRIPTS)
    compressed = {"data": browser.compressed(carried)}
    if charts:
        compressed |= {"charts": browser.compressed([theme.config(), *charts]), "vega": _library()}
    body = _environment().get_template("report.html.jinja").render(
        style=Markup(style),
        script=Markup(script),
        compressed=compressed,
        browsable=bool(carried["cells"]),
        left_out=_left_out(carried),
        policy=Markup(policy(style, script, drawing.bundle() if charts else "")),
        **values,
    )  # fmt: skip
    return wording.printable(body)


@functools.cache
def _library() -> str:
    return browser.compressed(drawing.bundle())


def policy(style: str, script: str, library: str = "") -> str:
    """The page's Content-Security-Policy: this style sheet and these scripts by their hash; no requests."""
    scripts = " ".join(_hash(text) for text in (script, library) if text)
    # Vega sets styles of its own elements, so that with charts the style sheet cannot be the only one.
    styles = "'unsafe-inline'" if library else _hash(style)
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


@functools.cache  # it keeps the templates that it has compiled: as dear as a figure
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _code
    return environment


def _code(text: str) -> Markup:
    """The text, escaped, in which what stands between backquotes is a command."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _left_out(carried: browser.Carried) -> list[tuple[str, int, int]]:
    """Per task of which not all items are carried: its name, how many are, how many there are."""
    return [
        (task["name"], len(task["items"]), task["total"])
        for task in carried["tasks"]
        if len(task["items"]) < task["total"]
    ]
