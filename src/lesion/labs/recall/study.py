"""Sweeps of the recall laboratory: every combination of a study file's lists, each in a folder of its own."""

from __future__ import annotations

import itertools
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lesion.errors import LesionError
from lesion.labs.recall import language as languages
from lesion.labs.recall.recipe import Recipe, preset
from lesion.labs.recall.run import STUDY_KIND, language_of, pick, refuse_others, run, write
from lesion.labs.recall.seeds import groups
from lesion.studies.recall_study import RecallStudy
from lesion.watching import Silent, Watcher
from lesion.whole import replace

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

    Each training has a folder of its own in `cells`, as `run` leaves it. More trainings can be added to a folder.

    Returns:
        What `summary.json` holds: `kind` (`recall-sweep`), `study`, `cells` (a line for each training: `folder`,
        `recipe`, `full`, `phases`) and `groups` (`seeds.groups`: means and spreads over seeds).

    Raises:
        UsageError: a folder holds something else, the corpus is too small, or the device is not there.
        LesionError: the folder cannot be written.
    """
    watcher = watcher or Silent()
    planned = recipes(study)
    pick(study.device)
    # Whether the corpus is large enough is told before anything is trained.
    language_of(max(planned, key=lambda recipe: recipe.vocabulary), study.corpus)
    folder = Path(folder)
    refuse_others(folder, STUDY_KIND)
    try:
        (folder / "cells").mkdir(parents=True, exist_ok=True)
        replace(folder / "study.toml", study.to_toml())
    except OSError as error:
        raise LesionError(f"{folder} cannot be written: {error.strerror or error}; give another --out.") from error
    done = []
    for number, recipe in enumerate(planned, 1):
        place = Path("cells") / cell_name(recipe)
        told = f"{study.name} {number} of {len(planned)}"
        found = run(recipe, folder / place, corpus=study.corpus, device=study.device, watcher=watcher, name=told)
        done.append((str(place), found))
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
    return summary
