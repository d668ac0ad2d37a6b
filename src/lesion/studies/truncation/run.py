"""Running a truncation study: the search, the chosen edit as a file, checkpoints over training, and the summary."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lesion.core import cost
from lesion.core.cached_answers import Recollection, gold_of
from lesion.core.inference import identity, load_chosen
from lesion.core.layers import parse_layers
from lesion.core.outcome import Outcome
from lesion.core.store import Store
from lesion.core.study_file import ModelChoice
from lesion.core.values import read_summary
from lesion.edits.edit import Edit
from lesion.edits.files.artefact import save_edit
from lesion.edits.spectra import Spectra, spectra
from lesion.engines.engine import MakeEngine
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.models.load import Model, refuse_not_finite
from lesion.outputs import kind_of, refuse_another_kind
from lesion.progress import Silent, Watcher
from lesion.studies.truncation.grid import grid
from lesion.studies.truncation.refusals import (
    refuse_few,
    refuse_other_config,
    refuse_other_shape,
    refuse_scores,
    refuse_unaskable,
)
from lesion.studies.truncation.result import TruncationSummary
from lesion.studies.truncation.search import ask_in_full, search, split
from lesion.studies.truncation.study import TruncationStudy
from lesion.studies.truncation.summary import edits_tested, followed, summarise
from lesion.tasks.catalogue import draw, find

BEST = "best.edit"
_AGAIN = "run `lesion truncate` again"


def run_truncation(
    study: TruncationStudy,
    folder: Path,
    *,
    watcher: Watcher | None = None,
    model: Model | None = None,
    make_engine: MakeEngine = TransformersEngine,
) -> Outcome[TruncationSummary]:
    """Search for a truncation into a folder; answers that it has already are not evaluated again.

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
    # What is wrong with an item or a checkpoint is said before hours of search.
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
        outcome = search(study, cells.cells, parts, memory)
        tested = edits_tested(outcome)
        ask_in_full(parts, parts.test, tested, memory, "answers on test items")
        summary = summarise(study, model, cells, outcome, parts, memory)
        asked, wanted = memory.asked, set(memory.wanted)
        # A checkpoint that fails takes nothing with it.
        _keep(folder, _without(summary, study.revisions), outcome.composed or outcome.chosen, model)
        evaluated = {model.fingerprint: study.model}
        for number, revision in enumerate(study.revisions, start=1):
            follower = _follow(study, revision, model, evaluated, store, watcher, make_engine)
            ask_in_full(parts, parts.test, tested, follower, "answers on test items")
            asked, wanted = asked + follower.asked, wanted | follower.wanted
            summary = followed(summary, revision, tested, parts, follower)
            del follower  # its model makes room for the next
            _without(summary, study.revisions[number:]).write(folder)
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


def _without(summary: TruncationSummary, revisions: Sequence[str]) -> TruncationSummary:
    """The summary as far as it has got, with a note on the checkpoints that are still to be evaluated."""
    if not revisions:
        return summary
    note = f"Not asked yet: {', '.join(revisions)}; the same command goes on from here."
    return summary.model_copy(update={"notes": (*summary.notes, note)})


def _follow(
    study: TruncationStudy,
    revision: str,
    model: Model,
    evaluated: dict[str, ModelChoice],
    store: Store,
    watcher: Watcher,
    make_engine: MakeEngine,
) -> Recollection:
    """A checkpoint ready to answer. With the weights of a model in `evaluated` it has that model's name and answers."""
    chosen = _at(study.model, revision)
    there = load_chosen(study, chosen, make_engine)
    refuse_not_finite(there, chosen.name)
    refuse_other_shape(model, study.model.name, there, chosen.name)
    if there.fingerprint in evaluated:
        watcher.note(f"{chosen.name} has the weights of {evaluated[there.fingerprint].name}; its answers are those.")
    named = evaluated.setdefault(there.fingerprint, chosen)
    if there.fingerprint == model.fingerprint:
        there = model  # its spectra are known
    _note(store, named.name, there)
    return Recollection(study, named, there, make_engine(there, study.batch_size), store, watcher)


def recall_truncation(folder: Path) -> TruncationSummary | None:
    """The summary of a search in a folder; None: the folder has no search.

    Raises:
        LesionError: the file is damaged, or the search is not finished.
    """
    if kind_of(Path(folder)) != "truncation":
        return None
    summary = read_summary(TruncationSummary, folder, _AGAIN)
    if summary is None:
        _refuse_unfinished(Path(folder))
    return summary


def _refuse_unfinished(folder: Path) -> None:
    try:
        with Store.read(folder) as store:
            kind, count = tomllib.loads(store.study[1]).get("kind"), len(store)
    except (LesionError, tomllib.TOMLDecodeError):
        return  # whatever it is, it is not a search
    if kind == "truncation":
        raise LesionError(
            f"The search in {folder} is not finished: {count:,} answers are stored, and nothing has been chosen yet."
            f" Run the same `lesion truncate` (or `lesion run`) with --out {folder} again; it goes on from there."
        )


def _at(chosen: ModelChoice, revision: str) -> ModelChoice:
    """The same model at another revision than its source, or the choice itself, names."""
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


def _keep(folder: Path, summary: TruncationSummary, edit: Edit | None, model: Model) -> None:
    """Write the summary, and the edit; an edit of an earlier search that this one does not choose is removed."""
    summary.write(folder)
    if edit is not None:
        save_edit(folder / BEST, edit, model)
        return
    try:
        (folder / BEST).unlink(missing_ok=True)
    except OSError as error:
        raise LesionError(f"{folder} cannot be written: {error.strerror or error}; give another with --out.") from error
