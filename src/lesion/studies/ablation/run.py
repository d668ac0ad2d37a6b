"""Running a study: plan → engine → judge → store, asking only for what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import pandas as pd

from lesion.core.inference import ask, clamped, identity, load_chosen, missing
from lesion.core.layers import parse_layers
from lesion.core.outcome import Outcome
from lesion.core.store import Store
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.edits.edit import Scale
from lesion.engines.engine import MakeEngine
from lesion.engines.transformers.engine import TransformersEngine
from lesion.models.load import Model, peek
from lesion.outputs import refuse_another_kind
from lesion.progress import Silent, Watcher
from lesion.studies.ablation.invariance.families import families
from lesion.studies.ablation.invariance.summary import invariance
from lesion.studies.ablation.reach import Reach
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.ablation.screening import refuse_doubled, screen, timed
from lesion.studies.ablation.stopping import Stopping
from lesion.studies.ablation.stopping_run import ask_until_decided, asked_otherwise, refuse_scored
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.summary import summarise
from lesion.studies.ablation.sweep import sweep
from lesion.tasks.catalogue import draw, find
from lesion.tasks.task import Item, Task


def run(
    study: Study,
    folder: Path,
    *,
    watcher: Watcher | None = None,
    models: Mapping[str, Model] | None = None,
    make_engine: MakeEngine = TransformersEngine,
) -> Outcome[AblationSummary]:
    """Run a study into a folder; what is stored there already is not asked again.

    Args:
        study: what to ask.
        folder: of the store; made when absent.
        watcher: is told how it goes.
        models: models that are loaded already, by the name the study gives them.
        make_engine: the engine for a model and a batch size.

    Raises:
        UsageError: a task, a layer or a number of items does not exist; nothing has been asked then.
        LesionError: a model cannot be loaded, a prompt does not fit, the folder belongs to another study or process,
            or cannot be written. Every answer given until then is stored.
    """
    watcher = watcher or Silent()
    refuse_another_kind(Path(folder), "layers")
    tasks = {choice: find(choice.name) for choice in study.tasks}
    drawn = {choice: draw(task, study.items_of(choice), study.seed) for choice, task in tasks.items()}
    refuse_doubled(study)
    if study.stop is not None:
        refuse_scored(tasks)
        for note in asked_otherwise(Path(folder), study.stop):
            watcher.note(note)
    _look_ahead(study, models or {})
    asked = planned = 0
    plan: dict[str, Sequence[Scale]] = {}
    with Store.open(folder, identity(study, tasks, drawn), study.to_toml(), "layers") as store:
        for choice, items in drawn.items():
            store.add_items(choice.name, items)
        for chosen in study.models:
            model = (models or {}).get(chosen.name) or load_chosen(study, chosen, make_engine)
            if model.not_finite:
                watcher.note(model.complaint(chosen.name))
            layers = parse_layers(study.edits.layers, len(model.anatomy.blocks), chosen.name)
            plan[chosen.name] = sweep(model.anatomy, study.edits.unit, layers, study.edits.factor)
            _note_model(store, chosen.name, model, plan[chosen.name])
            more, there = _ask(study, chosen, model, tasks, drawn, plan[chosen.name], make_engine, store, watcher)
            asked, planned = asked + more, planned + there
        summary, _, _ = _summary(study, plan, store)
    return Outcome(Path(folder), summary, asked, planned)


def _ask(
    study: Study,
    chosen: ModelChoice,
    model: Model,
    tasks: Mapping[TaskChoice, Task],
    drawn: Mapping[TaskChoice, Sequence[Item]],
    edits: Sequence[Scale],
    make_engine: MakeEngine,
    store: Store,
    watcher: Watcher,
) -> tuple[int, int]:
    """Ask one model all that has no answer yet; how many answers came, and how many its tables look at."""
    # What is wrong with an item is told before anything is asked.
    cells = missing(study, chosen, model, tasks, drawn, edits, store)
    total = (len(edits) + 1) * sum(map(len, drawn.values()))
    engine = make_engine(model, study.batch_size)
    asked = planned = 0
    if study.screen:
        asked, planned = screen(study, chosen, model, tasks, drawn, edits, engine, store, watcher)
    what = "answers" if study.stop is None else "answers at most, fewer where all is decided sooner"
    watcher.begin(chosen.name, total, total - len(cells), what)
    for text in clamped(model, cells.values()):
        watcher.note(text)
    stopping: Stopping | None = None
    ids = {choice.name: [item.id for item in items] for choice, items in drawn.items()}
    if study.stop is None:
        keeper = Reach(store, chosen.name, ids, edits, watcher.note)
        coming = ask(engine, model, chosen.name, cells, keeper)
    else:
        stopping = Stopping(study.stop, ids, edits)
        coming = ask_until_decided(stopping, engine, model, chosen.name, cells, store)
    with timed(store.folder, chosen.name, "study") if study.screen else nullcontext() as done:
        for count in coming:
            asked += count
            watcher.answered(count)
            if done is not None:
                done(count)
    if stopping is None:
        return asked, planned + total
    watcher.note(f"{chosen.name}: {stopping.told()}")
    return asked, planned + stopping.answers


def _look_ahead(study: Study, loaded: Mapping[str, Model]) -> None:
    """What is wrong with a later model is told before the first one works for hours."""
    for chosen in study.models[1:]:
        blocks = None if chosen.name in loaded else peek(chosen.source, revision=chosen.revision)
        if blocks is not None:
            parse_layers(study.edits.layers, blocks, chosen.name)


def recall(folder: Path) -> tuple[Study, AblationSummary, pd.DataFrame, pd.DataFrame]:
    """The study of a folder as far as it has got: the study, its summary, its answers and its items.

    Loads no model and works while another process writes.

    Raises:
        LesionError: there is no store in the folder, or it is damaged.
    """
    from lesion.edits.edit import parse

    plan: dict[str, Sequence[Scale]] = {}
    with Store.read(folder) as store:
        study = Study.parse(store.study[1], "The stored study")
        known = {row["name"]: row["metadata"] for row in store.models().to_dict("records")}
        for chosen in study.models:
            texts = known.get(chosen.name, {}).get("edits", [])
            plan[chosen.name] = [edit for edit in map(parse, texts) if isinstance(edit, Scale)]
        return study, *_summary(study, plan, store)


def answers_and_items(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every stored answer of the study in a folder, and the items of its tasks.

    Raises:
        LesionError: there is no store in the folder, or it is damaged.
    """
    with Store.read(folder) as store:
        return _answers_and_items(Study.parse(store.study[1], "The stored study"), store)


def _answers_and_items(study: Study, store: Store) -> tuple[pd.DataFrame, pd.DataFrame]:
    items = store.items()
    drawn = items["task"].isin([choice.name for choice in study.tasks])  # none that only a screen looks at
    return store.answers(), items[drawn].reset_index(drop=True)


def _summary(
    study: Study, plan: Mapping[str, Sequence[Scale]], store: Store
) -> tuple[AblationSummary, pd.DataFrame, pd.DataFrame]:
    """The numbers of the answers so far, also of models of one family together; the answers; the items."""
    answers, items = _answers_and_items(study, store)
    summary = summarise(study, plan, answers, items)
    known = {row["name"]: row["metadata"] for row in store.models().to_dict("records")}
    notes = [metadata["complaint"] for metadata in known.values() if "complaint" in metadata]
    notes += summary.notes
    if study.stop is not None:
        if families(study.models, {}):
            notes.append(
                "Models of one family are compared on full tables only, since cells stop after different items: run the"
                " same study without stopping into the same folder."
            )
        return summary.model_copy(update={"notes": tuple(notes)}), answers, items
    numbers = {name: metadata.get("blocks") for name, metadata in known.items()}
    blocks = {name: number for name, number in numbers.items() if isinstance(number, int)}
    shared = invariance(study, summary, answers, items, blocks)
    return summary.model_copy(update={"notes": tuple(notes), "invariance": shared}), answers, items


def _note_model(store: Store, name: str, model: Model, edits: Sequence[Scale]) -> None:
    store.add_model(
        model.fingerprint,
        name,
        {
            "blocks": len(model.anatomy.blocks),
            "family": model.anatomy.family,
            "dtype": str(model.dtype).removeprefix("torch."),
            "edits": [str(edit) for edit in edits],
            **({"complaint": model.complaint(name)} if model.not_finite else {}),
        },
    )
