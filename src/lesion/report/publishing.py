"""A page written: one self-contained file under a policy, and beside it its figures as PNG and SVG, its tables as CSV.

Files are written whole or not at all.
"""

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
from typing import NamedTuple

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from lesion.atomic import replace
from lesion.errors import LesionError
from lesion.files import UNFIT, reason
from lesion.outputs import clear_leftovers, note_written, own
from lesion.plain import layout
from lesion.report import browser, drawing, theme, wording
from lesion.report.blocks import Figure, Page, Panel
from lesion.report.drawing import Specification
from lesion.report.figures import Specified, specify, still, whole
from lesion.report.table import Table

HERE = Path(__file__).parent
SCRIPTS = ("page.js", "charts.js", "downloads.js", "answers.js")
"""Parts of the page's one script, in order: each uses those before it."""
_FORMULA = re.compile(r"""[\s\x00-\x1f\x7f-\xa0\u00ad\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff"'`]*[=+\-@\t\r]""")
"""What a spreadsheet may take for a formula, in NFKC form (a full-width sign counts as the plain one); a sign behind
spaces or quotes counts too, because some programs take those away. `downloads.js` says the same."""
_NUMBER = re.compile(r"-(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


@contextmanager
def writing(folder: Path, kind: str, *, figures: bool = True) -> Iterator[Path]:
    """The folder with its `figures`, made if they are not there; what goes wrong within becomes a LesionError."""
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
    harmless = table.rename(columns=lambda name: _harmless(str(name)))
    for place, kind in enumerate(harmless.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            cells = harmless.iloc[:, place].to_numpy(dtype=object)
            known = {text: _harmless(text) for text in {cell for cell in cells if isinstance(cell, str)}}
            texts = [known[cell] if isinstance(cell, str) else cell for cell in cells]
            harmless.isetitem(place, pd.Series(texts, dtype=object).to_numpy())
    return str(harmless.to_csv(index=False, lineterminator="\n"))


def _harmless(text: str) -> str:
    # A carriage return would end the row for some readers, and what follows it would begin a cell.
    return ";".join(map(_guarded, text.split(";")))  # where semicolons part cells, what follows one begins a cell


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
    """The text, escaped, in which what stands between backquotes is a command; no line ends within an option's name."""

    def command(found: re.Match[str]) -> str:
        inside = re.sub(r"(?<= )(--[a-z-]+)", r"<span>\1</span>", found[1])
        return f"<code>{inside}</code>"

    return Markup(re.sub(r"`([^`]+)`", command, str(escape(text))))


def _left_out(carried: browser.Carried) -> list[tuple[str, int, int]]:
    """Per task of which not all items are carried: its name, how many are, how many there are."""
    return [
        (task["name"], len(task["items"]), task["total"])
        for task in carried["tasks"]
        if len(task["items"]) < task["total"]
    ]


def publish(folder: Path, kind: str, page: Page) -> Path:
    """Write `report.html`, `figures/*.png`, `figures/*.svg` and the tables as CSV into a folder, each whole."""
    specified = _specified(page)
    text = _html(page, specified)
    pictures = {figure.name: drawing.svg(whole(figure, specified)) for figure in _figures(page) if figure.name}
    tables = [block for block in (*page.tables, *page.blocks()) if isinstance(block, Table) and block.name]
    with writing(folder, kind, figures=bool(pictures)) as place:
        for name, picture in pictures.items():
            replace(place / "figures" / f"{name}.svg", drawing.svg_file(picture))
            replace(place / "figures" / f"{name}.png", drawing.png_file(picture))
        for table in tables:
            replace(place / f"{table.name}.csv", spreadsheet(table.frame))
        path = place / "report.html"
        replace(path, text)
        figures = [f"figures/{name}.{kind}" for name in pictures for kind in ("svg", "png")]
        note_written(place, kind, {*figures, *(f"{table.name}.csv" for table in tables)})
    return path


def html(page: Page) -> str:
    """The text of the page: no request leaves it; texts of models and tasks are never parsed."""
    return _html(page, _specified(page))


def _html(page: Page, specified: Specified) -> str:
    charts: list[Specification] = []
    numbers: dict[int, list[int]] = {}
    first = [page.opening.figure] if page.opening.figure else []
    panels = {
        id(figure): [_drawn(panel, specified, charts, numbers, small=figure.small) for panel in figure.panels]
        for figure in (*first, *(figure for figure in _figures(page) if figure is not page.opening.figure))
    }
    return rendered(
        page.carried,
        charts,
        page=page,
        title=page.title,
        version=page.version,
        approximate=page.approximate,
        figure_panels=lambda figure: panels[id(figure)],
        tone=theme.tone,
        symbol=symbol,
        several_models=len(page.carried["models"]) > 1,
    )


def symbol(index: int, colour: str) -> Markup:
    """The mark of a series in a legend, as Vega draws it."""
    outline = _OUTLINES[theme.SHAPES[index % len(theme.SHAPES)]]
    return Markup('<path d="{}" fill="{}"/>').format(outline, colour)


_OUTLINES = {
    "circle": "M17 3.6a3.4 3.4 0 1 0 .01 0Z",
    "square": "M13.9 3.9h6.2v6.2h-6.2Z",
    "triangle-up": "M17 3.2l3.9 6.8h-7.8Z",
    "diamond": "M17 2.6l3.6 4.4l-3.6 4.4l-3.6 -4.4Z",
    "triangle-down": "M17 10.8l3.9 -6.8h-7.8Z",
    "cross": "M15.7 2.8h2.6v2.9h2.9v2.6h-2.9v2.9h-2.6v-2.9h-2.9v-2.6h2.9Z",
    "triangle-right": "M20.8 7l-6.8 3.9v-7.8Z",
    "triangle-left": "M13.2 7l6.8 3.9v-7.8Z",
}


class Drawn(NamedTuple):
    """A panel on the page: its heading, and of every chart its picture and the number of its specification."""

    title: str
    charts: list[tuple[Markup, int]]


def _specified(page: Page) -> Specified:
    specified: Specified = {}
    for figure in _figures(page):
        specify(figure, specified)
    return specified


def _drawn(
    panel: Panel, specified: Specified, carried: list[Specification], numbers: dict[int, list[int]], *, small: bool
) -> Drawn:
    """The panel's pictures; a chart that stands on the page twice is carried once.

    Args:
        carried: the specifications that the page carries; those of new charts are added.
        numbers: of every chart drawn so far its number, once for each time that it was drawn; this time is added.
    """
    pictures = []
    for chart in panel.charts:
        specification = specified[id(chart)]
        # The picture is there where no script runs; the script draws the same with numbers on pointing.
        plain = still(specification) | {"datasets": specification["datasets"], "config": specification["config"]}
        before = numbers.setdefault(id(chart), [])
        number = before[0] if before else len(carried)
        name = f"c{number}-" + "again-" * len(before)
        width = theme.SMALL if small else theme.HALF_PAGE
        picture = drawing.apart(drawing.svg({"width": width, **plain}), name)
        pictures.append((Markup(picture), number))
        if not before:
            carried.append({key: value for key, value in specification.items() if key != "config"})
        before.append(number)
    return Drawn(panel.title, pictures)


def _figures(page: Page) -> Iterator[Figure]:
    return (block for block in page.blocks() if isinstance(block, Figure))
