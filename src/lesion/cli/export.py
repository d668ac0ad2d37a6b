"""`lesion export`: what a paper takes of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lesion.cli.terminal import say


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a study.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the paper's files.")],
    pdf: Annotated[bool, typer.Option("--pdf", help="The figure as PDF.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="The figure as SVG.")] = False,
    png: Annotated[bool, typer.Option("--png", help="The figure as PNG, 300 pixels to an inch.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="The table for booktabs.")] = False,
    paragraph: Annotated[bool, typer.Option("--paragraph", help="The claims as a paragraph, and BibTeX.")] = False,
) -> None:
    """Write a figure at the width of a column and of a page, a table, a paragraph and BibTeX; all without a choice."""
    from lesion.core.preflight import refuse_no_folder
    from lesion.registry import recall

    refuse_no_folder(folder)
    chosen = {"pdf": pdf, "svg": svg, "png": png, "latex": latex, "paragraph": paragraph}
    for path in recall(folder).export(out, [name for name, wanted in chosen.items() if wanted]):
        say(str(path))
