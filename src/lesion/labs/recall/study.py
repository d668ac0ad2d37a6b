"""Sweeps of the recall laboratory: every combination of a study file's lists, each in a folder of its own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lesion.atomic import replace
from lesion.core.lock import FolderLock
from lesion.errors import LesionError, UsageError
from lesion.labs.recall import language as languages
from lesion.labs.recall.measurement import phases
from lesion.labs.recall.recipe import Recipe, preset
from lesion.labs.recall.run import (
    CELLS,
    STUDY,
    STUDY_KIND,
    finished,
    language_of,
    pick,
    run,
    summary_of,
    write,
)  # fmt: skip
from lesion.labs.recall.seeds import groups
from lesion.labs.recall.study_file import RecallStudy
from lesion.outputs import refuse_another_kind
from lesion.plain import visible
from lesion.progress import Silent, Watcher

LISTS = ("noise", "vocabulary", "width", "feed_forward", "optimiser", "steps", "seed")


def recipes(study: RecallStudy) -> list[Recipe]:
    """One recipe for each training of a study, seeds innermost.

    Raises:
        UsageError: the corpus cannot be read.
    """
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
    """The folder of a training within its study's: what a study can vary, spelt out."""
    return (
        f"{recipe.feed_forward}-{recipe.optimiser}-{recipe.steps}-noise{recipe.noise!r}-vocabulary{recipe.vocabulary}"
        f"-width{recipe.width}-seed{recipe.seed}"
    )


def run_recall(study: RecallStudy, folder: Path, watcher: Watcher | None = None) -> dict[str, Any]:
    """Run every training of a study and gather them in `summary.json`; go on where an interrupted run stopped.

    Each training has a folder of its own in `cells`, as `run` leaves it. More trainings can be added to a folder, by a
    study that asks for those of its summary too: none is ever dropped from it. Whatever is refused is refused before
    anything is written.

    Returns:
        What `summary.json` holds: `kind` (`recall-sweep`), `study`, `cells` (a line for each training: `folder`,
        `recipe`, `full`, `phases`) and `groups` (`seeds.groups`: means and spreads over seeds).

    Raises:
        UsageError: a folder holds something else or trainings that the study does not ask for, the corpus is too small,
            or the device is not there.
        LesionError: the folder cannot be written, or another process writes in it.
    """
    watcher = watcher or Silent()
    planned = recipes(study)
    pick(study.device)
    # Whether the corpus is large enough is told before anything is trained.
    language_of(max(planned, key=lambda recipe: recipe.vocabulary), study.corpus)
    folder = Path(folder)
    _refuse(folder, planned)
    lock = FolderLock(folder, STUDY_KIND)
    try:
        return _run(study, planned, folder, watcher)
    finally:
        lock.release()


def _refuse(folder: Path, planned: Sequence[Recipe]) -> None:
    """Look through the whole folder before anything in it changes."""
    refuse_another_kind(folder, STUDY_KIND)
    for recipe in planned:
        finished(folder / CELLS / cell_name(recipe), recipe)
    before = summary_of(folder)
    asked = {f"{CELLS}/{cell_name(recipe)}" for recipe in planned}
    lost = [cell["folder"] for cell in before["cells"] if cell["folder"] not in asked] if before else []
    if before and lost:
        raise UsageError(
            f"{folder} has a study with {len(lost)} of {len(before['cells'])} trainings that this one does not ask for,"
            f" {Path(lost[0]).name} for one; its summary would lose them. Give another folder with --out, or a study"
            " that asks for them too."
        )


def _run(study: RecallStudy, planned: Sequence[Recipe], folder: Path, watcher: Watcher) -> dict[str, Any]:
    done = []
    for number, recipe in enumerate(planned, 1):
        place = Path(CELLS) / cell_name(recipe)
        told = f"{visible(study.name)} {number} of {len(planned)}"
        found = run(recipe, folder / place, corpus=study.corpus, device=study.device, watcher=watcher, name=told)
        # Told anew: what an earlier version said of the same measurements may differ.
        done.append((str(place), {**found, "phases": phases(found["training"])}))
    summary = {
        "kind": STUDY_KIND,
        "study": json.loads(study.model_dump_json(exclude_none=True)),
        "cells": [
            {"folder": place, **{key: found[key] for key in ("recipe", "floor", "full", "phases", "machine")}}
            for place, found in done
        ],
        "groups": groups([found for _, found in done]),
        "version": version("lesion"),
    }
    write(folder, summary)
    try:
        replace(folder / STUDY, study.to_toml())
    except OSError as error:
        raise LesionError(f"{folder} cannot be written: {error.strerror or error}; give another --out.") from error
    return summary
