"""Running a truncation study: the search, the chosen edit as a file, checkpoints over training, and the summary."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from lesion.atomic import replace
from lesion.core import cost
from lesion.core.cached_answers import Recollection, gold_of
from lesion.core.inference import identity, load_chosen
from lesion.core.layers import parse_layers
from lesion.core.outcome import Outcome
from lesion.core.rates import loops
from lesion.core.store import Store
from lesion.core.study_file import ModelChoice
from lesion.edits.edit import BASELINE, Edit
from lesion.edits.files.artefact import save_edit
from lesion.edits.spectra import Spectra, spectra
from lesion.engines.engine import MakeEngine
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.files import stored_object, understood
from lesion.models.load import Model, refuse_not_finite
from lesion.outputs import refuse_another_kind
from lesion.progress import Silent, Watcher
from lesion.studies.truncation import summary as numbers
from lesion.studies.truncation.grid import Grid, grid
from lesion.studies.truncation.refusals import (
    refuse_few,
    refuse_other_config,
    refuse_other_shape,
    refuse_scores,
    refuse_unaskable,
)
from lesion.studies.truncation.search import Found, Split, ask_in_full, search, split
from lesion.studies.truncation.study import TruncationStudy
from lesion.tasks.catalogue import draw, find

SUMMARY, BEST = "truncation.json", "best.edit"
POINTS = 200  # of a spectrum in the summary


def run_truncation(
    study: TruncationStudy,
    folder: Path,
    *,
    watcher: Watcher | None = None,
    model: Model | None = None,
    make_engine: MakeEngine = TransformersEngine,
) -> Outcome:
    """Search for a truncation into a folder; answers that it has already are not asked again.

    Args:
        study: what to search, and on which items.
        folder: made when absent; one of the same questions takes further cells, and other shares of validation items.
        watcher: is told how it goes.
        model: the study's model, where it is loaded already.
        make_engine: the engine for a model and a batch size.

    Raises:
        UsageError: a task, matrix, layer, revision or number of items does not exist, or a task cannot be searched by.
        LesionError: the model cannot be loaded, its weights are not finite, or the folder belongs to other questions
            or cannot be written. Answers given until then are stored.
    """
    watcher = watcher or Silent()
    folder = Path(folder)
    refuse_another_kind(folder, "truncation")
    tasks = {choice: find(choice.name) for choice in study.tasks}
    refuse_scores(tasks)
    drawn = {choice: draw(task, study.items_of(choice), study.seed) for choice, task in tasks.items()}
    refuse_few(drawn)
    model = model or load_chosen(study, study.model, make_engine)
    refuse_not_finite(model, study.model.name)
    cells = grid(
        model.anatomy,
        parse_layers(study.layers, len(model.anatomy.blocks), study.model.name),
        study.matrices,
        study.keep,
        study.side,
    )
    # What is wrong with an item or a checkpoint is told before hours of search.
    refuse_unaskable(study, model, tasks, drawn)
    for revision in study.revisions:
        refuse_other_config(model, study.model.name, _at(study.model, revision))
    parts = split(tasks, drawn, study.validation)
    with (
        Store.open(folder, identity(study, tasks, drawn), study.to_toml(), "truncation") as store,
        _counted(spectra(model), folder),
    ):
        for choice, items in drawn.items():
            store.add_items(choice.name, items)
            store.add_items(gold_of(choice).name, items)
        _note(store, study.model.name, model)
        memory = Recollection(study, study.model, model, make_engine(model, study.batch_size), store, watcher)
        found = search(study, cells.cells, parts, memory)
        shown = _shown(found)
        ask_in_full(parts, parts.test, shown, memory, "answers on test items")
        summary = _summary(study, model, cells, found, parts, memory)
        asked, wanted = memory.asked, set(memory.wanted)
        # A checkpoint that fails takes nothing with it.
        _keep(folder, _without(summary, study.revisions), found.composed or found.chosen, model)
        told = {model.fingerprint: study.model}
        for number, revision in enumerate(study.revisions, start=1):
            follower = _follow(study, revision, model, told, store, watcher, make_engine)
            ask_in_full(parts, parts.test, shown, follower, "answers on test items")
            asked, wanted = asked + follower.asked, wanted | follower.wanted
            for edit in (BASELINE, *shown):
                summary["tokens"] += numbers.tokens(edit, parts, follower, study.level, revision)
                summary["revisions"] += numbers.along(edit, parts, follower, study.level, revision)
            del follower  # its model makes room for the next
            _write(folder, _without(summary, study.revisions[number:]))
    return Outcome(folder, summary, asked, len(wanted))


@contextmanager
def _counted(used: Spectra, folder: Path) -> Iterator[None]:
    """Add the decompositions made meanwhile to those of earlier runs in the folder, whatever happens."""
    names = ("computed", "read", "reused", "seconds")
    before = {name: getattr(used, name) for name in names}
    try:
        yield
    finally:
        known = cost.read(folder).get("decompositions") or {}
        more = {name: known.get(name, 0) + getattr(used, name) - before[name] for name in names}
        cost.note(folder, "decompositions", more)


def _without(summary: Mapping[str, Any], revisions: Sequence[str]) -> Mapping[str, Any]:
    """The summary as far as it has got, with a note on the checkpoints that are still to be asked."""
    if not revisions:
        return summary
    note = f"Not asked yet: {', '.join(revisions)}; the same command goes on from here."
    return {**summary, "notes": [*summary["notes"], note]}


def _follow(
    study: TruncationStudy,
    revision: str,
    model: Model,
    told: dict[str, ModelChoice],
    store: Store,
    watcher: Watcher,
    make_engine: MakeEngine,
) -> Recollection:
    """A checkpoint ready to be asked. One with the weights of a model in `told` goes by that one's name and answers."""
    chosen = _at(study.model, revision)
    there = load_chosen(study, chosen, make_engine)
    refuse_not_finite(there, chosen.name)
    refuse_other_shape(model, study.model.name, there, chosen.name)
    if there.fingerprint in told:
        watcher.note(f"{chosen.name} has the weights of {told[there.fingerprint].name}; its answers are those.")
    named = told.setdefault(there.fingerprint, chosen)
    if there.fingerprint == model.fingerprint:
        there = model  # its spectra are known
    _note(store, named.name, there)
    return Recollection(study, named, there, make_engine(there, study.batch_size), store, watcher)


def recall_truncation(folder: Path) -> dict[str, Any] | None:
    """The summary of a search in a folder; None: the folder has no search.

    Raises:
        LesionError: the file is damaged, or the search is not finished.
    """
    path, again = Path(folder) / SUMMARY, "run `lesion truncate` again"
    summary = stored_object(path, again)
    if summary is None:
        _refuse_unfinished(Path(folder))
        return None
    with understood(path, again):
        summary["search"], summary["cells"], summary["notes"]
    return summary


def _refuse_unfinished(folder: Path) -> None:
    try:
        with Store.read(folder) as store:
            kind, count = tomllib.loads(store.study[1]).get("kind"), len(store)
    except (LesionError, tomllib.TOMLDecodeError):
        return  # whatever it is, it is no search
    if kind == "truncation":
        raise LesionError(
            f"The search in {folder} is not finished: {count:,} answers are stored, and nothing has been chosen yet."
            f" Run the same `lesion truncate` (or `lesion run`) with --out {folder} again; it goes on from there."
        )


def _at(chosen: ModelChoice, revision: str) -> ModelChoice:
    """The same model at another revision than the one that its source or it names itself."""
    source = chosen.source if Path(chosen.source).expanduser().is_dir() else chosen.source.partition("@")[0]
    return chosen.model_copy(update={"source": source, "revision": revision})


def _note(store: Store, name: str, model: Model) -> None:
    store.add_model(
        model.fingerprint,
        name,
        {
            "blocks": len(model.anatomy.blocks),
            "family": model.anatomy.family,
            "dtype": str(model.dtype).removeprefix("torch."),
        },
    )


def _shown(found: Found) -> list[Edit]:
    """The edits that are told on test items: the chosen one, or the best that there is, and the composition."""
    return [edit for edit in (found.chosen or found.best, found.composed) if edit is not None]


def _summary(
    study: TruncationStudy, model: Model, cells: Grid, found: Found, parts: Split, memory: Recollection
) -> dict[str, Any]:
    level = study.level
    by_edit = {cell.edit: cell for cell in cells.cells}
    notes = list(found.notes)
    if cells.merged:
        notes.append(
            f"{len(cells.merged)} keeps were not asked again: they keep the same number of components as another, or"
            f" all of them."
        )
    if all(task.kind != "contrast" for task in parts.tasks.values()):
        names = ", ".join(choice.name for choice in parts.tasks)
        notes.append(
            f"{names}: no tempting token, so that no token probabilities are told; ioi, facts and their like have one."
        )
    shown = found.chosen or found.best
    best = None
    if shown is not None:
        cell = by_edit[shown]
        best = {
            "edit": str(shown),
            "address": shown.address,
            "keep": shown.keep,
            "side": shown.side,
            "rank": cell.rank,
            "of": cell.of,
            "saved": cell.saved,
            "score": numbers.finite(found.scores[shown].first),
            "baseline": numbers.finite(found.baseline.first),
            "tasks": numbers.tested(shown, parts, memory, level),
        }
    return {
        "study": {
            "name": study.name,
            "title": study.title,
            "seed": study.seed,
            "level": level,
            "version": version("lesion"),
            **loops(study.decoding.stop_loops),
        },
        "model": {
            "name": study.model.name,
            "fingerprint": model.fingerprint,
            "blocks": len(model.anatomy.blocks),
            "family": model.anatomy.family,
            "dtype": str(model.dtype).removeprefix("torch."),
        },
        "search": {
            "tasks": [
                {
                    "name": choice.name,
                    "kind": task.kind,
                    "validation_items": len(parts.validation[choice]),
                    "test_items": len(parts.test[choice]),
                    "tempting": task.kind == "contrast",
                }
                for choice, task in parts.tasks.items()
            ],
            "matrices": list(cells.matrices),
            "layers": sorted({cell.layer for cell in cells.cells}),
            "keep": list(study.keep),
            "sides": ["top", "bottom"] if study.side == "both" else [study.side],
            "objective": study.objective,
            "cells": len(cells.cells),
            "merged": len(cells.merged),
            "screen": numbers.screened(found, level, study.seed),
            "elimination": _elimination(study, found, parts),
        },
        "baseline": numbers.baselines(parts, memory, level),
        "cells": numbers.cells(cells.cells, found, parts, memory, level),
        "chosen": best if found.chosen is not None else None,
        "best": best,
        "nothing": _nothing(found),
        "composition": None
        if not found.steps
        else {
            "path": numbers.composition(found),
            "edit": str(found.composed) if found.composed else str(found.chosen),
            "tasks": numbers.tested(found.composed or found.chosen, parts, memory, level),  # type: ignore[arg-type]
        },
        "spectra": _spectra(cells, model),
        "tokens": [row for edit in (BASELINE, *_shown(found)) for row in numbers.tokens(edit, parts, memory, level)],
        "revisions": [],
        "notes": notes,
    }


def _nothing(found: Found) -> str | None:
    if found.chosen is not None:
        return None
    if not found.scores:
        return "No cell was answered in full without being given up."
    if found.best is None:
        return "Under every edit the model gives one answer to nearly all items, and the unedited model does not."
    return "No edit is better than the unedited model on the validation items."


def _elimination(study: TruncationStudy, found: Found, parts: Split) -> dict[str, Any] | None:
    if study.eliminate is None or not found.looks:
        return None
    (items,) = parts.validation.values()
    return {
        "error": study.eliminate,
        "looks": found.looks,
        "eliminated": len(found.eliminated),
        "answers_saved": sum(len(items) - seen for seen in found.eliminated.values()),
    }


def _spectra(cells: Grid, model: Model) -> list[dict[str, Any]]:
    """The singular values of the searched matrices, of long spectra some."""
    found = []
    for address in dict.fromkeys(cell.edit.address for cell in cells.cells):
        matrix = model.anatomy.matrix(address)
        values = spectra(model).of(address, matrix.read()).values.cpu().numpy()
        index = np.unique(np.linspace(0, len(values) - 1, min(POINTS, len(values))).round().astype(int))
        found.append({"address": address, "index": index.tolist(), "values": values[index].tolist()})
    return found


def _keep(folder: Path, summary: Mapping[str, Any], edit: Edit | None, model: Model) -> None:
    _write(folder, summary, without_edit=edit is None)
    if edit is not None:
        save_edit(folder / BEST, edit, model)


def _write(folder: Path, summary: Mapping[str, Any], *, without_edit: bool = False) -> None:
    try:
        replace(folder / SUMMARY, json.dumps(summary))
        if without_edit:
            (folder / BEST).unlink(missing_ok=True)
    except OSError as error:
        raise LesionError(f"{folder} cannot be written: {error.strerror or error}; give another with --out.") from error
