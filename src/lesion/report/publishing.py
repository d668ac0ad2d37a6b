"""A page written: one self-contained file, and beside it its figures as PNG and SVG and its tables as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from lesion.atomic import replace
from lesion.report import drawing, theme
from lesion.report.blocks import Figure, Page, Panel
from lesion.report.drawing import Specification
from lesion.report.figures import Specified, specify, still, whole
from lesion.report.files import rendered, spreadsheet, writing
from lesion.report.table import Table


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
