"""Studies of the recall laboratory: every combination of a study file's lists, each in a folder of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from lesion.atomic import keep
from lesion.core.lock import locked
from lesion.core.run import Run
from lesion.core.values import read_summary
from lesion.errors import UsageError
from lesion.models.names import device_of
from lesion.outputs import refuse_another_kind
from lesion.plain import visible
from lesion.progress import Watcher
from lesion_labs.recall import language as languages
from lesion_labs.recall.recipe import Recipe, preset
from lesion_labs.recall.report import RecallResult
from lesion_labs.recall.result import AGAIN, STUDY_KIND, RecallStudySummary, StudyTraining
from lesion_labs.recall.run import CELLS, STUDY, finished, language_of, run
from lesion_labs.recall.seeds import groups
from lesion_labs.recall.study_file import RecallStudy

LISTS = ("noise", "vocabulary", "width", "feed_forward", "optimiser", "steps", "seed")


def recipes(study: RecallStudy) -> list[Recipe]:
    """One recipe for each training of a study, seeds innermost."""
    digest = languages.read(study.corpus)[1] if study.corpus is not None else None
    lists = [getattr(study, name) or (None,) for name in LISTS]
    return [
        preset(
            study.preset,
            **dict(zip(LISTS, values, strict=True)),
            keep=study.keep or None,
            length=study.length,
            batch=study.batch,
            measured=study.measured,
            corpus=digest,
        )
        for values in itertools.product(*lists)
    ]


def cell_name(recipe: Recipe) -> str:
    """The folder of a training within its study's."""
    return (
        f"{recipe.feed_forward}-{recipe.optimiser}-{recipe.steps}-noise{recipe.noise!r}-vocabulary{recipe.vocabulary}"
        f"-width{recipe.width}-seed{recipe.seed}"
    )


def run_recall(study: RecallStudy, run: Run) -> RecallResult:
    """Run every training of a study and gather them in `summary.json`; go on where an interrupted run stopped.

    Each training has a folder of its own in `cells`, as `run` leaves it. A study that has the trainings of a folder's
    summary too can add more. Whatever is refused is refused before anything is written.
    """
    planned = recipes(study)
    device_of(study.device)
    language_of(max(planned, key=lambda recipe: recipe.vocabulary), study.corpus)
    _refuse(run.folder, planned)
    with locked(run.folder, STUDY_KIND):
        return RecallResult(run.folder, _run(study, planned, run.folder, run.watcher))


def _refuse(folder: Path, planned: Sequence[Recipe]) -> None:
    """Look through the whole folder before anything in it changes."""
    refuse_another_kind(folder, STUDY_KIND)
    for recipe in planned:
        finished(folder / CELLS / cell_name(recipe), recipe)
    earlier = read_summary(RecallStudySummary, folder, AGAIN)
    if earlier is None:
        return
    kept = {f"{CELLS}/{cell_name(recipe)}" for recipe in planned}
    lost = [cell.folder for cell in earlier.cells if cell.folder not in kept]
    if lost:
        raise UsageError(
            f"{folder} has a study with {len(lost)} of {len(earlier.cells)} trainings that this one does not have, for"
            f" example {Path(lost[0]).name}; its summary would lose them. Give another folder with --out, or a study"
            " that has them too."
        )


def _run(study: RecallStudy, planned: Sequence[Recipe], folder: Path, watcher: Watcher) -> RecallStudySummary:
    trainings = {}
    for number, recipe in enumerate(planned, 1):
        place = f"{CELLS}/{cell_name(recipe)}"
        name = f"{visible(study.name)} {number} of {len(planned)}"
        trainings[place] = run(
            recipe, folder / place, corpus=study.corpus, device=study.device, watcher=watcher, name=name
        )
    own = tuple(name for name in StudyTraining.model_fields if name != "folder")
    cells = [
        StudyTraining(folder=place, **{name: getattr(trained, name) for name in own})
        for place, trained in trainings.items()
    ]
    summary = RecallStudySummary(
        version=version("lesion"), study=study, cells=tuple(cells), groups=tuple(groups(list(trainings.values())))
    )
    summary.write(folder)
    keep(folder / STUDY, study.to_toml())
    return summary
