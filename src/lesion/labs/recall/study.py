"""Sweeps of the recall laboratory by study file: every noise × vocabulary × width × optimiser × … × seed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from lesion.errors import LesionError
from lesion.labs.recall import language as languages
from lesion.labs.recall.model import FEED_FORWARDS, FeedForward
from lesion.labs.recall.recipe import PRESETS, RATES, Optimiser, Recipe, preset
from lesion.labs.recall.run import language_of, pick, run, write
from lesion.labs.recall.seeds import groups
from lesion.studies.questions import Number, StudyFile, Text, Whole, different, listed
from lesion.watching import Silent, Watcher
from lesion.whole import replace

Preset = Literal["quick", "released", "paper"]
Keep = Annotated[Number, Field(ge=0, le=1)]


class RecallStudy(StudyFile):
    """Trainings of the recall laboratory, every combination of the lists; each is truncated at every kept fraction.

    What is not given is the preset's. A corpus is a file relative to the folder that the command runs in.

    Example:
        >>> len(RecallStudy.make(kind="recall", noise=[0.4, 0.6], seed=[0, 1, 2]).recipes())
        6
    """

    FORM: ClassVar[str] = "lesion recall"
    SILENT: ClassVar[tuple[str, ...]] = ("name", "title", "device")
    SETS: ClassVar[tuple[tuple[str, ...], ...]] = (("seed",),)

    kind: Literal["recall"] = Field(description="recall")
    preset: Preset = Field(default="quick", description=", ".join(PRESETS))
    noise: Annotated[
        tuple[Annotated[Number, Field(ge=0, lt=1)], ...], BeforeValidator(listed), AfterValidator(different)
    ] = Field(default=(), description="a probability from 0 to below 1, or a list of them")
    vocabulary: Annotated[
        tuple[Annotated[Whole, Field(ge=languages.SMALLEST)], ...], BeforeValidator(listed), AfterValidator(different)
    ] = Field(default=(), description=f"a whole number from {languages.SMALLEST}, or a list of them")
    width: Annotated[tuple[Annotated[Whole, Field(ge=2)], ...], BeforeValidator(listed), AfterValidator(different)] = (
        Field(default=(), description="a whole number from 2, or a list of them")
    )
    feed_forward: Annotated[tuple[FeedForward, ...], BeforeValidator(listed), AfterValidator(different)] = Field(
        default=(), description=f"{', '.join(FEED_FORWARDS)}, or a list of these"
    )
    optimiser: Annotated[tuple[Optimiser, ...], BeforeValidator(listed), AfterValidator(different)] = Field(
        default=(), description=f"{', '.join(RATES)}, or a list of these"
    )
    steps: Annotated[tuple[Annotated[Whole, Field(ge=0)], ...], BeforeValidator(listed), AfterValidator(different)] = (
        Field(default=(), description="a whole number from 0, or a list of them")
    )
    seed: Annotated[
        tuple[Annotated[Whole, Field(ge=0)], ...],
        BeforeValidator(listed),
        Field(min_length=1),
        AfterValidator(different),
    ] = Field(default=(0,), description="a whole number from 0, or a list of them")
    keep: Annotated[tuple[Keep, ...], BeforeValidator(listed), AfterValidator(different)] = Field(
        default=(), description="a kept fraction from 0 to 1, or a list of them"
    )
    length: Annotated[Whole, Field(ge=3)] | None = Field(default=None, description="a whole number from 3")
    batch: Annotated[Whole, Field(ge=1)] | None = Field(default=None, description="a whole number from 1")
    measured: Annotated[Whole, Field(ge=1)] | None = Field(default=None, description="a whole number from 1")
    corpus: Text | None = Field(default=None, description="a text file")
    device: Text = Field(default="auto", description="auto, cpu, cuda or cuda:N")

    def recipes(self) -> list[Recipe]:
        """One recipe for each training, seeds innermost.

        Raises:
            UsageError: the corpus cannot be read.
        """
        digest = languages.read(self.corpus)[1] if self.corpus is not None else None
        names = ("noise", "vocabulary", "width", "feed_forward", "optimiser", "steps", "seed")
        lists = [getattr(self, name) or (None,) for name in names]
        return [
            preset(
                self.preset,
                **dict(zip(names, values, strict=True)),
                keep=self.keep or None,
                length=self.length,
                batch=self.batch,
                measured=self.measured,
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
        UsageError: a cell's folder holds another recipe, the corpus is too small, or the device is not there.
        LesionError: the folder cannot be written.
    """
    watcher = watcher or Silent()
    recipes = study.recipes()
    pick(study.device)
    # Whether the corpus is large enough is told before anything is trained.
    language_of(max(recipes, key=lambda recipe: recipe.vocabulary), study.corpus)
    folder = Path(folder)
    try:
        (folder / "cells").mkdir(parents=True, exist_ok=True)
        replace(folder / "study.toml", study.to_toml())
    except OSError as error:
        raise LesionError(f"{folder} cannot be written: {error.strerror or error}; give another --out.") from error
    done = []
    for number, recipe in enumerate(recipes, 1):
        place = Path("cells") / cell_name(recipe)
        told = f"{study.name} {number} of {len(recipes)}"
        found = run(recipe, folder / place, corpus=study.corpus, device=study.device, watcher=watcher, name=told)
        done.append((str(place), found))
    summary = {
        "kind": "recall-sweep",
        "study": json.loads(study.model_dump_json(exclude_none=True)),
        "cells": [
            {"folder": place, **{key: found[key] for key in ("recipe", "floor", "full", "phases", "machine")}}
            for place, found in done
        ],
        "groups": groups([found for _, found in done]),
    }
    write(folder, summary)
    return summary
