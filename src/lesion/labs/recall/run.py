"""One run of the recall laboratory: train, truncate, and write `summary.json`."""

from __future__ import annotations

import json
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from lesion.atomic import replace
from lesion.core.lock import FolderLock
from lesion.errors import LesionError, UsageError
from lesion.files import UNFIT, stored_object
from lesion.labs.recall import language as languages
from lesion.labs.recall.language import Language
from lesion.labs.recall.measurement import floor, phases, spectra
from lesion.labs.recall.model import initial, names
from lesion.labs.recall.recipe import Recipe, differences
from lesion.labs.recall.training import STATE, refuse_another, train
from lesion.labs.recall.truncation import sweep
from lesion.outputs import refuse_another_kind
from lesion.progress import Silent, Watcher

SUMMARY, REPORT = "summary.json", "report.html"
STUDY, CELLS = "study.toml", "cells"
PARTIAL = "truncated.json"
"""Rows of a sweep that is not finished; gone when it is."""
KIND, STUDY_KIND = "recall", "recall-sweep"
NEEDED = {
    KIND: (
        "noise", "floor", "recipe", "language", "questions", "matrices", "full", "truncated", "training", "phases",
        "machine",
    ),
    STUDY_KIND: ("study", "cells", "groups"),
}  # fmt: skip
"""What a summary must have to be read again."""


def run(
    recipe: Recipe,
    folder: Path,
    *,
    corpus: str | None = None,
    device: str = "auto",
    watcher: Watcher | None = None,
    name: str = "recall",
) -> dict[str, Any]:
    """Train the recipe's model in `folder` and truncate every matrix of it; go on where an interrupted run stopped.

    Args:
        recipe: what to do.
        folder: made if it is not there; a finished run of the same recipe in it is only read.
        corpus: the text, where the recipe's tables come from one (`language_of`).
        device: auto, cpu, cuda, …
        name: what the watcher is told is at work.

    Returns:
        What `summary.json` holds: `noise`, `floor` (`measurement.floor`), `own_answers` where ȳ may be q or τ
        (`Examination.own_answers`), `recipe`, `full` (the unedited model), `truncated` (a
        row for each cut: `truncation.sweep`), `training` (what was measured on the way), `phases`,
        `spectra`, `machine`.

    Raises:
        UsageError: the folder holds another recipe, or the device is not there.
        LesionError: the folder cannot be written.
    """
    folder = Path(folder)
    watcher = watcher or Silent()
    chosen = pick(device)
    language = language_of(recipe, corpus)
    lock = FolderLock(folder, KIND)
    try:
        found = finished(folder, recipe)
        if found is not None:
            return found
        began = time.monotonic()
        weights, training, examination = train(recipe, language, folder, device=chosen, watcher=watcher, name=name)
        full = examination.numbers(examination.traces(weights))
        own = examination.own_answers()
        rows = _partial(folder, recipe)
        for of_matrix in sweep(weights, examination, recipe, watcher, name, rows):
            rows += of_matrix
            _written(folder / PARTIAL, {"recipe": recipe.document(), "truncated": rows})
        summary = {
            "kind": KIND,
            "noise": recipe.noise,
            "floor": floor(recipe.noise, own["noisy"]["noise"]),
            "recipe": recipe.document(),
            **({"own_answers": own} if recipe.own_answers else {}),
            "language": _told(language),
            "questions": {"clean": int(examination.clean.asked.sum()), "noisy": int(examination.noisy.asked.sum())},
            "matrices": list(names(weights)),
            "full": full,
            "truncated": rows,
            "training": training,
            "phases": phases(training),
            "spectra": spectra(weights, _untrained(recipe), language),
            "machine": {
                "device": chosen,
                "name": torch.cuda.get_device_name(chosen) if chosen.startswith("cuda") else platform.machine(),
                "seconds": round(time.monotonic() - began, 1),
                "torch": torch.__version__,
            },
            "version": version("lesion"),
        }
        write(folder, summary)
        (folder / PARTIAL).unlink(missing_ok=True)
        return summary
    finally:
        lock.release()


def finished(folder: Path, recipe: Recipe) -> dict[str, Any] | None:
    """The summary of a recipe's finished run in a folder; None where the run is not finished, or not begun.

    Raises:
        UsageError: the folder holds another recipe, or something else.
        LesionError: what is there cannot be read.
    """
    refuse_another_kind(folder, KIND)
    found = summary_of(folder)
    if found is None:
        refuse_another(folder / STATE, recipe)
        return None
    if found["recipe"] != recipe.document():
        raise UsageError(
            f"{folder} holds a run of another recipe ({differences(found['recipe'], recipe.document())}); give another"
            " folder with --out, or delete that one."
        )
    return found


def summary_of(folder: Path) -> dict[str, Any] | None:
    """The summary of a finished training or study in a folder; None where there is none of this laboratory.

    Raises:
        LesionError: it says that it is of this laboratory, and is not whole.
    """
    path = Path(folder) / SUMMARY
    try:
        found = stored_object(path, "")
    except LesionError:
        return None
    if found is None or found.get("kind") not in list(NEEDED):
        return None
    missing = [name for name in NEEDED[found["kind"]] if name not in found]
    if missing:
        raise LesionError(
            f"{path} is of lab recall but has no {', '.join(missing)}; delete it and give the command that made it"
            " again: what is trained is kept."
        )
    return found


def write(folder: Path, summary: dict[str, Any]) -> None:
    """Write `summary.json`, whole.

    Raises:
        LesionError: the folder cannot be written.
    """
    _written(folder / SUMMARY, summary)


def _written(path: Path, content: dict[str, Any]) -> None:
    try:
        replace(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    except OSError as error:
        raise LesionError(f"{path.parent} cannot be written: {error.strerror or error}; give another --out.") from error


def _partial(folder: Path, recipe: Recipe) -> list[dict[str, Any]]:
    """The rows of a truncation sweep that was interrupted; those of another recipe do not count."""
    try:
        found = stored_object(folder / PARTIAL, "") or {}
        return list(found["truncated"]) if found["recipe"] == recipe.document() else []
    except (*UNFIT, LesionError):
        return []


def language_of(recipe: Recipe, corpus: str | None = None) -> Language:
    """The recipe's tables: generated, or of the text whose digest the recipe names.

    Raises:
        UsageError: the text is another one, is missing, or has too few characters.
    """
    if recipe.corpus is None:
        return languages.generated(recipe.vocabulary, recipe.seed)
    if corpus is None:
        raise UsageError("The tables of this recipe come from a text; give it with --corpus.")
    text, digest = languages.read(corpus)
    if digest != recipe.corpus:
        raise UsageError(f"{corpus} is not the text of this recipe: it has changed since.")
    return languages.of_text(text, recipe.vocabulary, corpus)


def pick(device: str) -> str:
    """The device that is meant; `auto` is the first GPU where there is one.

    Raises:
        UsageError: there is no such device.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        # Read back: on `meta` a tensor can be made, but it holds nothing.
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"There is no device '{device}' here; give auto, cpu or cuda.") from error
    return device


def _untrained(recipe: Recipe) -> dict[str, torch.Tensor]:
    return initial(recipe.feed_forward, recipe.vocabulary, recipe.length, recipe.width, recipe.seed)


def _told(language: Language) -> dict[str, Any]:
    symbols = language.symbols
    return {
        "source": "generator" if symbols is None else "corpus",
        "trigger": language.trigger if symbols is None else symbols[language.trigger],
        "noise_token": language.noise_token if symbols is None else symbols[language.noise_token],
        "trigger_share": float(language.unigram[language.trigger]),
    }
