"""`lesion demo`: the whole story on the bundled families, a study a chapter, and one report over them."""

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


def demo(
    out: Annotated[Path, typer.Option("--out", help="Output folder; running again into it continues the demo.")] = Path(
        "lesion-demo"
    ),
) -> None:
    """Run all methods on the bundled models and write one report; takes minutes."""
    from lesion.outputs import own
    from lesion.studies import demo_page as story
    from lesion.studies.ablation import report as page
    from lesion.studies.ablation.run import recall, run
    from lesion.studies.ablation.study import Study
    from lesion.studies.drift import report as drift
    from lesion.studies.drift.run import run_drift
    from lesion.studies.drift.study import DriftStudy
    from lesion.studies.isolation import report as isolation
    from lesion.studies.isolation.run import recall_isolation, run_isolation
    from lesion.studies.isolation.study import IsolationStudy
    from lesion.studies.overlay import report as overlay
    from lesion.studies.overlay.summary import profiles, summarise
    from lesion.studies.truncation import report as truncation
    from lesion.studies.truncation.run import run_truncation
    from lesion.studies.truncation.study import TruncationStudy

    try:
        out.mkdir(parents=True, exist_ok=True)
        own(out, "demo")
    except OSError as error:
        raise LesionError(f"{out} cannot be written: {reason(error)}; give another folder with --out.") from error
    parts = {name: out / name for name in ("layers", "drift", "isolation", "truncation")}
    with Bar() as bar:
        try:
            chapters = []
            bar.say("1 of 4: every block of eight models is switched off in turn")
            found = run(Study.load("demo"), parts["layers"], watcher=bar).summary
            _, _, answers, items = recall(parts["layers"])
            page.write(parts["layers"], found, answers, items)
            chapters.append(story.layers(found, "layers/report.html"))
            bar.say("2 of 4: the drift of tokens from layer to layer")
            # Named here, since the folder of the demo is the person's: its critical blocks are compared with curves.
            study = DriftStudy.load("demo-drift").model_copy(update={"study": str(parts["layers"])})
            found = run_drift(study, parts["drift"], watcher=bar).summary
            drift.write(parts["drift"], found)
            chapters.append(story.drift(found, "drift/report.html"))
            bar.say("3 of 4: the weights that arithmetic alone needs")
            run_isolation(IsolationStudy.load("demo-isolation"), parts["isolation"], watcher=bar)
            recalled = recall_isolation(parts["isolation"])
            assert recalled is not None
            isolation.write(parts["isolation"], *recalled)
            chapters.append(story.isolation(recalled[0], "isolation/report.html"))
            bar.say("4 of 4: parts of spectra are removed")
            search = run_truncation(TruncationStudy.load("demo-truncation"), parts["truncation"], watcher=bar).summary
            truncation.write(parts["truncation"], search)
            chapters.append(story.truncation(search, "truncation/report.html"))
        except KeyboardInterrupt:
            bar.say(f"Stopped. Every answer so far is kept in {out}; the same command goes on from there.")
            raise
    laid = summarise(profiles(list(parts.values())))
    overlay.write(out / "overlay", laid)
    chapters.append(story.overlay(laid, "overlay/report.html"))
    path = story.write(out, TITLE, chapters, version("lesion"))
    for chapter in chapters:
        say("")
        say(chapter.title)
        for told in chapter.found:
            if told.headline:
                lead = f"{told.subject}: " if told.subject else ""
                for line in textwrap.wrap(plain(lead + " ".join(told.headline)), 106):
                    say(f"  {line}")
    say("")
    say(f"report: {path}")
