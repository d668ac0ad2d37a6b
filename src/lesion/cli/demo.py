"""`lesion demo`: the methods on the bundled families, a study a chapter, and one report over them."""

from __future__ import annotations

import textwrap
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lesion.cli.terminal import Bar, say
from lesion.errors import LesionError
from lesion.files import reason
from lesion.plain import plain

if TYPE_CHECKING:
    from lesion.core.study_file import StudyFile
    from lesion.report.parts import Chapter

TITLE = "Which blocks arithmetic depends on in two small families of language models"
STUDIES = {
    "layers": ("demo", "every block is switched off in turn"),
    "drift": ("demo-drift", "the drift of tokens from layer to layer"),
    "isolation": ("demo-isolation", "the weights that arithmetic alone needs"),
    "truncation": ("demo-truncation", "parts of spectra are removed"),
    "overlay": (None, "all of them compared, block by block"),
}
"""By folder: the shipped study (None: the comparison of those before), and what it does."""


def demo(
    out: Annotated[Path, typer.Option("--out", help="Output folder; running again into it continues the demo.")] = Path(
        "lesion-demo"
    ),
) -> None:
    """Run all methods on the bundled models and write one report; takes minutes."""
    from lesion.outputs import own
    from lesion.registry import load_study, method_of
    from lesion.report.parts import story
    from lesion.report.publishing import publish
    from lesion.studies.overlay.study import OverlayStudy

    try:
        out.mkdir(parents=True, exist_ok=True)
        own(out, "demo")
    except OSError as error:
        raise LesionError(f"{out} cannot be written: {reason(error)}; give another folder with --out.") from error
    chapters: dict[str, Chapter | None] = {}
    with Bar() as bar:
        try:
            for number, (folder, (name, what)) in enumerate(STUDIES.items(), start=1):
                bar.say(f"{number} of {len(STUDIES)}: {what}")
                if name is None:
                    study: StudyFile = OverlayStudy(folders=[str(out / other) for other in chapters])
                else:
                    study = load_study(name)
                if folder == "drift":  # its hinges and steps are compared with the critical blocks found here
                    study = study.model_copy(update={"study": str(out / "layers")})
                result = method_of(study).run(study, out / folder, watcher=bar)
                result.report()
                chapters[folder] = result.chapter()
        except KeyboardInterrupt:
            bar.say(f"Stopped. Every answer so far is kept in {out}; the same command goes on from there.")
            raise
    shown = [(chapter, f"{folder}/report.html") for folder, chapter in chapters.items() if chapter is not None]
    path = publish(out, "demo", story(TITLE, "demo", version("lesion"), shown))
    for chapter, _ in shown:
        say("")
        say(chapter.title)
        for claim in chapter.claims:
            for line in textwrap.wrap(plain(claim.text), 106):
                say(f"  {line}")
    say("")
    say(f"report: {path}")
