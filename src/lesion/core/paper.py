"""A result for a paper: figures at the width of a column and of a page, a table, a paragraph, and the method's source.

Lines of a paper are 85 mm wide in two columns and 178 mm in one (Elsevier, IEEE and ACL differ by a few millimetres).
Types in figures are 7 to 8 points at that size.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from lesion import atomic
from lesion.errors import LesionError
from lesion.report import drawing, plots, theme, wording
from lesion.report.blocks import Figure
from lesion.report.drawing import Specification
from lesion.report.figures import Specified, specify, still
from lesion.report.table import Table

if TYPE_CHECKING:
    from lesion.core.result import StudyResult

WIDTHS = {"column": 85.0, "page": 178.0}
"""In millimetres."""
FORMATS = ("pdf", "svg", "png", "latex", "paragraph")
POINTS_PER_MM = 72 / 25.4
TYPE = 7.5
"""Points of the types in a figure."""
HEIGHT = 110
"""Of a plot that has no height of its own, in points."""
MOST_COLUMNS, MOST_ROWS = 6, 12
"""Of a table."""
PIXELS = 300 / 72
"""Pixels of a PNG to a point: 300 to an inch."""
_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "→": r"$\to$"}
_TEX |= {character: f"\\{character}" for character in "&%$#_{}"}
_TEX |= {"×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$", "ρ": r"$\rho$", "τ": r"$\tau$", "α": r"$\alpha$", "÷": "/"}
_TEX |= {"●": r"$\bullet$", "○": r"$\circ$", "…": r"\ldots{}", "\N{NO-BREAK SPACE}": "~", "–": "--", "·": r"$\cdot$"}
_TEX |= {"±": r"$\pm$", "Δ": r"$\Delta$", "—": "---", "’": "'"}


def export(result: StudyResult[Any], out: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write what a paper takes of a result; the paths.

    `figure-column.pdf` and `figure-page.pdf` (and `.svg`, `.png`), `table.tex` (booktabs), `paragraph.tex`,
    `references.bib`, and `paper.tex`, which shows them all and compiles.

    Args:
        result: of a study.
        out: a folder, made when absent.
        formats: of `FORMATS`.

    Raises:
        LesionError: the result has nothing to show, or the folder cannot be written.
    """
    page = result.page()
    figure = next((block for block in page.blocks() if isinstance(block, Figure) and block.name), None)
    files: dict[str, str | bytes] = {}
    pictures = [kind for kind in ("pdf", "svg", "png") if kind in formats]
    if figure is not None and pictures:
        for name, width in WIDTHS.items():
            drawn = printed(figure, width)
            files |= {f"figure-{name}.{kind}": _picture(drawn, kind) for kind in pictures}
    if "latex" in formats:
        files["table.tex"] = table(result.shown())
    if "paragraph" in formats:
        files["paragraph.tex"] = paragraph(result)
        files["references.bib"] = references(result.summary.kind)
    if {"latex", "paragraph"} <= {*formats}:
        files["paper.tex"] = document(result.question, figure is not None and "pdf" in formats, result.summary.kind)
    if not files:
        raise LesionError(f"{result.folder} has no figure to draw; leave the formats out for its table and paragraph.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            atomic.replace(out / name, content)
    except OSError as error:
        raise LesionError(f"{out} cannot be written: {error.strerror or error}; give another with --out.") from error
    return [out / name for name in files]


def printed(figure: Figure, width: float) -> str:
    """A figure as SVG, so many millimetres wide, with types of `TYPE` points; a pixel is a point."""
    target = width * POINTS_PER_MM
    columns = 1 if width < 120 else figure.columns
    inner = target / columns - 60.0
    drawn = ""
    for _ in range(6):  # what stands beside the plots, axes and titles, does not grow with them
        drawn = drawing.svg(_specified(figure, columns, inner, target))
        excess = _width(drawn) - target
        if abs(excess) < 1 or inner - excess / columns < 40:
            break
        inner -= excess / columns
    return drawing.svg_file(drawn)


def _specified(figure: Figure, columns: int, inner: float, whole: float) -> Specification:
    own: Specified = {}
    bare = replace(figure, columns=columns)
    specify(bare, own)
    panels, legends = [], []
    for panel in bare.panels:
        charts = [_sized(still(own[id(chart)]), inner) for chart in panel.charts]
        if panel.legend:
            legends.append(drawing.specification(plots.legend(panel.legend, round(inner))))
            charts.append(still(legends[-1]))
        if panel.title:
            charts[0] = {**charts[0], "title": drawing.seen(panel.title)}
        panels.append({"vconcat": charts, "spacing": 3} if len(charts) > 1 else charts[0])
    drawn: Specification = panels[0] if len(panels) == 1 else {"concat": panels, "columns": columns, "spacing": 8}
    if figure.legend:
        legends.append(drawing.specification(plots.legend(figure.legend, round(whole - 75))))
        drawn = {"vconcat": [drawn, still(legends[-1])], "spacing": 6}
    charts = [*own.values(), *legends]
    datasets = {name: rows for chart in charts for name, rows in chart.get("datasets", {}).items()}
    scales = dict.fromkeys(("color", "fill", "shape", "opacity", "size", "strokeDash", "strokeWidth"), "independent")
    small = {"labelFontSize": TYPE, "titleFontSize": TYPE, "titlePadding": 4, "labelPadding": 3}
    config = theme.config()
    config["axis"] |= small
    config["axisY"] = {"tickCount": 5}
    config["view"] |= {"continuousWidth": inner, "discreteWidth": inner, "continuousHeight": HEIGHT}
    config["title"] |= {"fontSize": TYPE + 0.5, "offset": 3}
    config["text"] |= {"fontSize": TYPE}
    config["legend"] |= {"labelFontSize": TYPE, "titleFontSize": TYPE}
    config["padding"] = 0
    return {**_typed(drawn), "resolve": {"scale": scales}, "datasets": datasets, "config": config}


def _sized(specified: Any, width: float) -> Any:
    """A chart whose plots are so many points wide; a width in steps stays."""
    if isinstance(specified, list):
        return [_sized(part, width) for part in specified]
    if not isinstance(specified, dict):
        return specified
    sized = {key: _sized(value, width) if key in _VIEWS else value for key, value in specified.items()}
    if isinstance(sized.get("width"), int | float):
        sized["width"] = width
    return sized


_TYPES = ("fontSize", "labelFontSize", "titleFontSize")
_VIEWS = ("layer", "concat", "hconcat", "vconcat", "spec")


def _typed(specified: Any) -> Any:
    """A chart whose own sizes of type are those of a paper."""
    if isinstance(specified, list):
        return [_typed(part) for part in specified]
    if not isinstance(specified, dict):
        return specified
    typed = {key: value if key == "datasets" else _typed(value) for key, value in specified.items()}
    return {key: TYPE if key in _TYPES else value for key, value in typed.items()}


def _width(drawn: str) -> float:
    return float(re.sub(r"[^\d.]", "", ElementTree.fromstring(drawn).get("width", "0")))


def _picture(drawn: str, kind: str) -> str | bytes:
    import vl_convert

    if kind == "svg":
        return drawn
    made: bytes = vl_convert.svg_to_pdf(drawn) if kind == "pdf" else vl_convert.svg_to_png(drawn, scale=PIXELS)
    return made


def tex(text: str) -> str:
    """A text in which LaTeX reads every character as it stands."""
    text = re.sub(r'"([^"]*)"', r"``\1''", text)
    return "".join(_TEX.get(character, character) for character in text)


def table(shown: Table) -> str:
    """A table for booktabs: at most `MOST_COLUMNS` columns and `MOST_ROWS` rows, the marked rows first."""
    columns = [column for column in shown.columns if len({column.write(row) for row in shown.records}) > 1]
    columns = (columns or list(shown.columns))[:MOST_COLUMNS]
    rows = sorted(shown.records, key=lambda row: not (shown.mark is not None and shown.mark(row)))
    left = len(rows) - MOST_ROWS
    lines = [
        r"\begin{tabular}{" + "".join("r" if column.number else "l" for column in columns) + "}",
        r"\toprule",
        " & ".join(tex(column.title) for column in columns) + r" \\",
        r"\midrule",
        *(" & ".join(tex(column.write(row)) for column in columns) + r" \\" for row in rows[:MOST_ROWS]),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if left > 0:
        lines.append(f"% {wording.counted(left, 'further row')}: {shown.name}.csv of the study has them all.")
    return "\n".join(lines) + "\n"


def paragraph(result: StudyResult[Any]) -> str:
    """The claims of the first part as a paragraph, with what they rest on."""
    first = next(iter(result.shown_parts), None)
    claims = [claim.text for claim in (first.claims if first else ())] or list(result.findings)
    sentences = [*claims, *filter(None, (result.basis, result.approximate))]
    cited = wording.listed([f"\\citet{{{key}}}" for key in _keys(result.summary.kind)])
    how = f"Method: {cited}; " if cited else ""
    return f"{tex(' '.join(sentences))} {how}computed with \\texttt{{lesion}} {tex(result.summary.version)}.\n"


def references(kind: str) -> str:
    """The BibTeX entries of the papers that a kind of study is from."""
    return "\n".join(_entry(key, fields) for key, fields in _known(kind))


def _known(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    papers = tomllib.loads((Path(__file__).parent / "references.toml").read_text("utf-8"))
    for key, fields in papers.items():
        if kind in fields["kinds"]:
            yield key, fields


def _keys(kind: str) -> Iterable[str]:
    return (key for key, _ in _known(kind))


def _entry(key: str, fields: dict[str, Any]) -> str:
    body = [f"  {name} = {{{value}}}," for name, value in fields.items() if name not in ("kinds", "entry")]
    return "\n".join([f"@{fields['entry']}{{{key},", *body, "}"]) + "\n"


def document(title: str, figure: bool, kind: str) -> str:
    """A document that shows figure, table and paragraph, and compiles with `pdflatex`."""
    shown = (
        r"\begin{figure}\centering\includegraphics[width=85mm]{figure-column.pdf}\caption{At 85 mm.}\end{figure}"
        "\n"
        r"\begin{figure}\centering\includegraphics[width=\textwidth]{figure-page.pdf}\caption{At 178 mm.}\end{figure}"
        if figure
        else ""
    )
    cited = r"\bibliographystyle{plainnat}\bibliography{references}" if any(_keys(kind)) else ""
    return rf"""\documentclass[10pt]{{article}}
\usepackage[utf8]{{inputenc}}
\usepackage[T1]{{fontenc}}
\usepackage[a4paper,textwidth=178mm]{{geometry}}
\usepackage{{booktabs,graphicx,natbib}}
\begin{{document}}
\section*{{{tex(title)}}}
\input{{paragraph}}
\begin{{table}}[h]\centering\small
\input{{table}}
\end{{table}}
{shown}
{cited}
\end{{document}}
"""
