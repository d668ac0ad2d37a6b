"""`lesion demo`: the methods on the bundled families, a study a chapter, and one report over them.

With `--model` on any other one, with tasks that it can do, but not too well.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lesion.atomic import keep
from lesion.cli.terminal import Bar, say
from lesion.errors import LesionError, UsageError
from lesion.files import read_object, reason
from lesion.models.source import find
from lesion.plain import plain
from lesion.progress import Watcher

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
NOTE = "demo.json"
SKILLS = (
    "arithmetic:add?digits=3",
    "arithmetic:add",
    "arithmetic:subtract",
    "arithmetic:add?digits=1",
    "arithmetic:subtract?digits=1",
)
"""From hard to easy."""
CONTROLS = ("agreement", "induction", "greater_than", "arithmetic:copy", "arithmetic:words")
MEASURED = 40
"""Items on which the unedited model shows whether a task fits it."""
ROOM = (0.25, 0.95)
"""Baseline accuracies between which a drop and a gain can show."""
WANTED = 0.8
ITEMS, SEARCHED_BLOCKS = 60, 4


def demo(
    model: Annotated[
        str | None,
        typer.Option(
            help="Any other model (a folder, a GGUF file, a hub id), with tasks that it finds neither too hard nor too"
            " easy; by default the bundled ones."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Output folder; running again into it continues the demo.")] = Path(
        "lesion-demo"
    ),
) -> None:
    """Run all methods on the bundled models, or on a model of your own, and write one report; takes minutes."""
    if model is not None:
        find(model)
    refuse_another(out, model)
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
            own_studies = studies_of(model, out, bar) if model is not None else {}
            for number, (folder, (name, what)) in enumerate(STUDIES.items(), start=1):
                bar.say(f"{number} of {len(STUDIES)}: {what}")
                if name is None:
                    study: StudyFile = OverlayStudy(folders=[str(out / other) for other in chapters])
                else:
                    study = own_studies.get(folder) or load_study(name)
                if folder == "drift":  # its hinges and steps are compared with the critical blocks found here
                    study = study.model_copy(update={"study": str(out / "layers")})
                result = method_of(study).run(study, out / folder, watcher=bar)
                result.report()
                chapters[folder] = result.chapter()
        except KeyboardInterrupt:
            bar.say(f"Stopped. Every answer so far is kept in {out}; the same command goes on from there.")
            raise
    shown = [(chapter, f"{folder}/report.html") for folder, chapter in chapters.items() if chapter is not None]
    path = publish(
        out, "demo", story(TITLE if model is None else f"What {model} depends on", "demo", version("lesion"), shown)
    )
    for chapter, _ in shown:
        say("")
        say(chapter.title)
        for claim in chapter.claims:
            for line in textwrap.wrap(plain(claim.text), 106):
                say(f"  {line}")
    say("")
    say(f"report: {path}")


def studies_of(source: str, folder: Path, watcher: Watcher) -> dict[str, StudyFile]:
    """The study of every chapter but the last, by its folder.

    Which tasks fit is measured once and noted in the folder.
    """
    skill, controls, blocks = _chosen(source, folder, watcher)
    from lesion.studies.ablation.study import Study
    from lesion.studies.drift.study import DriftStudy
    from lesion.studies.isolation.study import IsolationStudy
    from lesion.studies.truncation.study import TruncationStudy

    tasks = [skill, *controls]
    last = f"{max(0, blocks - SEARCHED_BLOCKS)}-{blocks - 1}"
    return {
        "layers": Study.make(
            models=[source], tasks=tasks, items=ITEMS, title=f"Which blocks of {source} does each skill depend on?"
        ),
        "drift": DriftStudy.make(
            models=[source],
            task=skill,
            runs=3,
            items=20,
            starts=3,
            title=f"Do tokens leave their clusters in {source}?",
        ),
        "isolation": IsolationStudy.make(
            model=source,
            skill=skill,
            controls=controls,
            share=[0.01, 0.05],
            random_controls=2,
            tasks=tasks,
            items=ITEMS,
            title=f"Which weights of {source} does {skill} alone need?",
        ),
        "truncation": TruncationStudy.make(
            model=source,
            tasks=[skill],
            items=2 * ITEMS,
            matrices=["mlp"],
            layers=last,
            keep=[0.5, 0.1],
            screen={"items": 20, "best": 6, "random": 2},
            title=f"Does removing a part of an MLP matrix in the last blocks make {source} better at {skill}?",
        ),
    }


def refuse_another(folder: Path, source: str | None) -> None:
    """Refuse a folder with the demo of another model; None is the demo on the bundled ones."""
    noted = read_object(folder / NOTE).get("model") if (folder / NOTE).is_file() else None
    if noted == source or (noted is None and not (folder / "layers").exists()):
        return
    whose = f"the demo of {noted}" if noted is not None else "the demo of the bundled models"
    raise UsageError(f"{folder} holds {whose}; give another folder with --out.")


def _chosen(source: str, folder: Path, watcher: Watcher) -> tuple[str, list[str], int]:
    """The skill, its controls and the number of blocks; tried out in the folder `fit`."""
    if (folder / NOTE).is_file():
        noted = read_object(folder / NOTE)
        try:
            return str(noted["skill"]), [str(name) for name in noted["controls"]], int(noted["blocks"])
        except (KeyError, TypeError, ValueError) as error:
            raise LesionError(
                f"{folder / NOTE} is damaged; delete it, and the same command writes it again."
            ) from error
    from lesion.models.load import peek
    from lesion.registry import method_of
    from lesion.studies.ablation.study import Study

    blocks = peek(source)
    if blocks is None:
        raise LesionError(f"{source} does not say how many blocks it has; study it with lesion ablate.")
    study = Study.make(
        models=[source],
        tasks=[*SKILLS, *CONTROLS],
        items=MEASURED,
        edits={"layers": "0"},
        title=f"Which tasks fit {source}?",
    )
    result = method_of(study).run(study, folder / "fit", watcher=watcher)
    result.report()
    accuracies = {of_task.task: of_task.baseline.accuracy.value or 0.0 for _, of_task in result.summary.results}
    skill, controls = fitting(accuracies)
    if accuracies[skill] == 0:
        raise LesionError(
            f"{source} solves none of {MEASURED} items of {', '.join(SKILLS)}: no cut can show a loss. Study it with "
            "questions of your own: lesion ablate MODEL --task FILE.jsonl."
        )
    noted = {"model": source, "skill": skill, "controls": controls, "blocks": blocks, "accuracy": accuracies}
    keep(folder / NOTE, json.dumps(noted) + "\n")
    return skill, controls, blocks


def fitting(accuracies: Mapping[str, float]) -> tuple[str, list[str]]:
    """The skill and its controls by the accuracies of the unedited model.

    The skill is the hardest whose accuracy lies in `ROOM`, or else the one with the highest. Controls are the two whose
    accuracies are nearest to `WANTED`.
    """
    within = [name for name in SKILLS if ROOM[0] <= accuracies[name] <= ROOM[1]]
    skill = within[0] if within else max(SKILLS, key=lambda name: accuracies[name])
    nearest = sorted(CONTROLS, key=lambda name: abs(accuracies[name] - WANTED))[:2]
    return skill, [name for name in CONTROLS if name in nearest]
