"""`lesion demo`: the methods on the bundled families, a study a chapter, and one report over them."""

from __future__ import annotations

import textwrap
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from lesion.cli.progress import Bar
from lesion.cli.terminal import say
from lesion.errors import LesionError
from lesion.files import reason
from lesion.plain import plain

TITLE = "Which blocks arithmetic depends on in two small families of language models"
STUDIES = {
    "layers": ("demo", "every block of eight models is switched off in turn"),
    "drift": ("demo-drift", "the drift of tokens from layer to layer"),
    "isolation": ("demo-isolation", "the weights that arithmetic alone needs"),
    "truncation": ("demo-truncation", "parts of spectra are removed"),
}
"""By folder: the shipped study, and what it does."""


def demo(
    out: Annotated[Path, typer.Option("--out", help="Output folder; running again into it continues the demo.")] = Path(
        "lesion-demo"
    ),
) -> None:
    """Run all methods on the bundled models and write one report; takes minutes."""
    from lesion.core.method import carried_out
    from lesion.engines.transformers.engine import TransformersEngine
    from lesion.outputs import own
    from lesion.registry import load_study, method_of
    from lesion.report.publishing import publish
    from lesion.report.story import story
    from lesion.studies.overlay.api import overlay

    try:
        out.mkdir(parents=True, exist_ok=True)
        own(out, "demo")
    except OSError as error:
        raise LesionError(f"{out} cannot be written: {reason(error)}; give another folder with --out.") from error
    chapters = []
    with Bar() as bar:
        try:
            for number, (folder, (name, what)) in enumerate(STUDIES.items(), start=1):
                bar.say(f"{number} of {len(STUDIES)}: {what}")
                study = load_study(name)
                if folder == "drift":  # its hinges and steps are compared with the critical blocks found here
                    study = study.model_copy(update={"study": str(out / "layers")})
                result = carried_out(method_of(study), study, out / folder, bar, TransformersEngine)
                result.report()
                chapters.append((result.chapter(), f"{folder}/report.html"))
        except KeyboardInterrupt:
            bar.say(f"Stopped. Every answer so far is kept in {out}; the same command goes on from there.")
            raise
    compared = overlay(*(out / folder for folder in STUDIES))
    compared.report(out / "overlay")
    chapters.append((compared.chapter(), "overlay/report.html"))
    shown = [(chapter, page) for chapter, page in chapters if chapter is not None]
    path = publish(out, "demo", story(TITLE, "demo", version("lesion"), shown))
    for chapter, _ in shown:
        say("")
        say(chapter.title)
        for finding in chapter.findings:
            if finding.headline:
                lead = f"{finding.subject}: " if finding.subject else ""
                for line in textwrap.wrap(plain(lead + " ".join(finding.headline)), 106):
                    say(f"  {line}")
    say("")
    say(f"report: {path}")
