"""A result for a paper: figures at the width of a column and of a page, a table, a paragraph, and the method's source.

Lines of a paper are 85 mm wide in two columns and 178 mm in one (Elsevier, IEEE and ACL differ by a few millimetres).
Types in figures are 7 to 8 points at that size.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from lesion.atomic import keep
from lesion.report import drawing, plots, theme, wording
from lesion.report.blocks import Figure
from lesion.report.drawing import Specification
from lesion.report.figures import Specified, specify, still, whole

if TYPE_CHECKING:
    from lesion.core.result import StudyResult

WIDTHS = {"column": 85.0, "page": 178.0}
"""In millimetres."""
POINTS_PER_MM = 72 / 25.4
TYPE = 7.5
"""Points of the types in a figure."""
HEIGHTS = (110, 80, 60)
"""Of a plot that has no height of its own, in points; the first with which the figure fits a page."""
TALLEST = 215.0
"""Millimetres of a figure: a caption must stand on its page."""
MOST_COLUMNS, MOST_ROWS = 6, 40
"""Of a table."""
MOST_CLAIMS = 8
"""Of a paragraph."""
PIXELS = 300 / 72
"""Pixels of a PNG to a point: 300 to an inch."""
_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "→": r"$\to$"}
_TEX |= {character: f"\\{character}" for character in "&%$#_{}"} | {character: f"${character}$" for character in "<>|"}
_TEX |= {"×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$", "ρ": r"$\rho$", "τ": r"$\tau$", "α": r"$\alpha$", "÷": "/"}
_TEX |= {"●": r"$\bullet$", "○": r"$\circ$", "…": r"\ldots{}", "\N{NO-BREAK SPACE}": "~", "–": "--", "·": r"$\cdot$"}
_TEX |= {"±": r"$\pm$", "Δ": r"$\Delta$", "—": "---", "’": "'"}


def export(result: StudyResult[Any], out: Path) -> list[Path]:
    """Write what a paper takes of a result; the paths.

    `figure-column.pdf` and `figure-page.pdf` (and `.svg`, `.png`), `table.tex` (booktabs), `paragraph.tex`,
    `references.bib`, and `paper.tex`, which shows them all with their captions and compiles.
    """
    page = result.page()
    figure = next((block for block in page.blocks() if isinstance(block, Figure) and block.name), None)
    files: dict[str, str | bytes] = {}
    captions: dict[str, str] = {}
    if figure is not None:
        for name, width in WIDTHS.items():
            drawn, panels = printed(figure, width)
            files |= {f"figure-{name}.{kind}": _picture(drawn, kind) for kind in ("pdf", "svg", "png")}
            captions[name] = caption(figure, panels)
    files["table.tex"], captions["table"] = table(result)
    files |= {"paragraph.tex": paragraph(result), "references.bib": references(result)}
    files["paper.tex"] = document(result, captions)
    for name, content in files.items():
        keep(out / name, content)
    return [out / name for name in files]


def printed(figure: Figure, width: float) -> tuple[str, int]:
    """A figure as SVG, so many millimetres wide, with types of `TYPE` points; and how many of its panels fit a page.

    A pixel is a point.
    """
    target, tallest = width * POINTS_PER_MM, TALLEST * POINTS_PER_MM
    whole = replace(figure, columns=1 if width < 120 else figure.columns)
    inner, drawn = _fitted(whole, target)
    for height in HEIGHTS[1:]:
        if _size(drawn, "height") > tallest:
            drawn = drawing.svg(_specified(whole, inner, height))
    count = len(whole.panels)
    while _size(drawn, "height") > tallest and count > whole.columns:
        rows = math.ceil(count / whole.columns)
        count = whole.columns * max(1, min(rows - 1, int(rows * tallest / _size(drawn, "height"))))
        shown = replace(whole, panels=whole.panels[:count])
        drawn = drawing.svg(_specified(shown, inner, HEIGHTS[-1]))
    return drawing.svg_file(drawn), count


def _fitted(figure: Figure, target: float) -> tuple[float, str]:
    """How wide the plots are in a figure of a width in points, and the figure."""
    inner = target / figure.columns - 60.0
    drawn = drawing.svg(_specified(figure, inner, HEIGHTS[0]))
    for _ in range(5):  # what stands beside the plots, axes and titles, does not grow with them
        excess = (_size(drawn, "width") - target) / figure.columns
        if abs(excess) < 0.5 or inner - excess < 40:
            break
        inner -= excess
        drawn = drawing.svg(_specified(figure, inner, HEIGHTS[0]))
    return inner, drawn


def _specified(figure: Figure, inner: float, height: int) -> Specification:
    merged: Specified = {}
    specify(figure, merged)
    sized = {
        chart: {**_sized(_legible(own, inner), inner), "datasets": own["datasets"]} for chart, own in merged.items()
    }
    drawn = whole(figure, sized, legend=inner * figure.columns, gaps=(3, 8, 6))
    small = {"labelFontSize": TYPE, "titleFontSize": TYPE, "titlePadding": 4, "labelPadding": 3}
    config = drawn.pop("config")
    config["axis"] |= small
    config["axisX"] |= {"labelOverlap": "greedy"}
    config["axisY"] = {"tickCount": 5}
    config["view"] |= {"continuousWidth": inner, "discreteWidth": inner, "continuousHeight": height}
    config["title"] |= {"fontSize": TYPE + 0.5, "offset": 3}
    config["text"] |= {"fontSize": TYPE}
    config["legend"] |= {"labelFontSize": TYPE, "titleFontSize": TYPE}
    config["padding"] = 0
    return {**_typed(drawn), "config": config}


def _legible(chart: Specification, width: float) -> Specification:
    """A chart in thin lines, whose cells have texts only where all of these fit, by the size of types in a paper."""
    rooms = [row["room"] for rows in chart["datasets"].values() for row in rows if "room" in row]
    fit = str(max(rooms, default=0) * TYPE / theme.TEXT <= width).lower()
    text = json.dumps(still(chart)).replace(plots.FITS, fit)
    drawn: Specification = json.loads(re.sub(r'"strokeWidth": 2\b(?!\.)', '"strokeWidth": 1', text))
    return drawn


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


def _size(drawn: str, side: str) -> float:
    return float(re.sub(r"[^\d.]", "", ElementTree.fromstring(drawn).get(side, "0")))


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


def table(result: StudyResult[Any]) -> tuple[str, str]:
    """The main table for booktabs and its caption: at most `MOST_COLUMNS` columns, the marked rows of a long table."""
    shown = result.shown().in_short(result.names)
    every = shown.records
    marked = [row for row in every if shown.mark is not None and shown.mark(row)] if len(every) > MOST_ROWS else []
    rows = (marked or every)[:MOST_ROWS]
    brief = next((part.rows.brief for part in result.shown_parts if part.rows and part.rows.name == shown.name), ())
    columns = [
        column
        for column in shown.columns
        if column.key in brief or len(every) == 1 or len({column.write(row) for row in every}) > 1
        if 2 * sum(column.write(row) == wording.DASH for row in rows) < len(rows)
    ]
    last = ("outcome", "baseline_accuracy")
    columns.sort(key=lambda column: (column.key in last, column.key not in brief))
    columns = columns[:MOST_COLUMNS]
    lines = [
        r"\begin{tabular}{" + "".join("r" if column.number else "l" for column in columns) + "}",
        r"\toprule",
        " & ".join(tex(column.title) for column in columns) + r" \\",
        r"\midrule",
        *(" & ".join(tex(column.write(row)) for column in columns) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    first = f"The first {MOST_ROWS} of " if len(rows) < len(marked or every) else ""
    excerpt = f" {first}{len(marked):,} rows of {len(every):,}: {shown.marked}." if marked else ""
    excerpt = excerpt or f" {first}{len(every):,} rows." * bool(first)
    sequences = "confidence sequence" in result.tested
    brackets = f" Brackets: {result.level} {'confidence sequences' if sequences else 'intervals'}."
    brackets *= any("[" in line for line in lines)
    return "\n".join(lines) + "\n", tex(f"{shown.caption}{brackets}{excerpt}".strip())


def caption(figure: Figure, panels: int) -> str:
    """The caption of a figure of which the first panels are shown."""
    rest = len(figure.panels) - panels
    return tex(figure.caption + f" Not shown: {wording.counted(rest, 'further panel')}." * (rest > 0))


def paragraph(result: StudyResult[Any]) -> str:
    """The claims for a paper as a paragraph: what holds of all models where something does, then the tests."""
    claims = result.for_paper
    chosen = [claim for claim in claims if not claim.subject] or claims
    by_subject: dict[str, list[str]] = {}
    for claim in chosen[:MOST_CLAIMS]:
        by_subject.setdefault(claim.subject, []).extend(claim.sentences)
    study = getattr(result.summary, "study", None)
    models = getattr(study, "models", None) or [model for model in (getattr(study, "model", None),) if model]
    named = wording.listed([result.names(model.name) for model in models])
    sentences = [tex(f"Model{'s' * (len(models) > 1)}: {named}.")] if models else []
    sentences += [
        (rf"\emph{{{tex(subject)}:}} " if subject else "") + tex(" ".join(texts))
        for subject, texts in by_subject.items()
    ]
    sentences += map(tex, filter(None, (result.names(result.basis), result.approximate, result.tested)))
    cited = wording.listed([rf"\citet{{{key}}}" for key, _ in _papers(result)])
    sentences.append(f"Method: {cited}; computed" if cited else "Computed")
    return rf"{' '.join(sentences)} with \texttt{{lesion}} {tex(result.summary.version)}." + "\n"


def references(result: StudyResult[Any]) -> str:
    """The BibTeX entries of the papers that a study's method is from."""
    return "\n".join(_entry(key, fields) for key, fields in _papers(result))


def _papers(result: StudyResult[Any]) -> list[tuple[str, dict[str, Any]]]:
    papers = tomllib.loads((Path(__file__).parent / "references.toml").read_text("utf-8"))
    return [(key, fields) for key, fields in papers.items() if type(result).__name__ in fields["results"]]


def _entry(key: str, fields: dict[str, Any]) -> str:
    body = [f"  {name} = {{{value}}}," for name, value in fields.items() if name not in ("results", "entry")]
    body.append(f"  howpublished = {{arXiv:{fields['eprint']}}},")  # plain styles show no eprint
    return "\n".join([f"@{fields['entry']}{{{key},", *body, "}"]) + "\n"


def document(result: StudyResult[Any], captions: dict[str, str]) -> str:
    """A document that shows paragraph, figures and table with their captions, and compiles with `pdflatex`."""
    shown = [_float("table", rf"\caption{{{captions['table']}}}", r"\medskip\small\input{table}")]
    for name in (name for name in WIDTHS if name in captions):
        picture = rf"\includegraphics[width={WIDTHS[name]:g}mm]{{figure-{name}.pdf}}"
        shown.append(_float("figure", picture, rf"\caption{{{captions[name]}}}"))
    cited = r"\bibliographystyle{plainnat}\bibliography{references}" if _papers(result) else ""
    return rf"""\ifdefined\pdfminorversion\pdfminorversion=7\fi
\documentclass[10pt]{{article}}
\usepackage[utf8]{{inputenc}}
\usepackage[a4paper,textwidth=178mm,textheight=250mm]{{geometry}}
\usepackage{{booktabs,graphicx,natbib}}
\emergencystretch=3em
\begin{{document}}
\section*{{{tex(result.question)}}}
\input{{paragraph}}
{"".join(shown)}{cited}
\end{{document}}
"""


def _float(kind: str, *content: str) -> str:
    return "\n".join([rf"\begin{{{kind}}}[htbp]\centering", *content, rf"\end{{{kind}}}", ""])
