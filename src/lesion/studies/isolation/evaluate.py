"""Evaluating: baseline and edits of the weights on the same items, every edit beside its matched random controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lesion.core.inference import ask, clamped, identity, missing
from lesion.core.store import Store
from lesion.core.study_file import ModelChoice, Questions
from lesion.edits.edit import Edit, ScaleParameters
from lesion.engines.engine import MakeEngine
from lesion.engines.transformers.engine import TransformersEngine
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.studies.isolation.evaluation import EditedModel, Evaluation
from lesion.studies.isolation.evaluation_items import draw_items, seen
from lesion.studies.isolation.plan import Roles, keep_plan
from lesion.studies.isolation.summary import summarise
from lesion.tasks.catalogue import find


def evaluate(
    questions: Questions,
    chosen: ModelChoice,
    model: Model,
    planned: Sequence[EditedModel],
    edits: Mapping[str, ScaleParameters],
    folder: Path,
    watcher: Watcher,
    roles: Roles | None = None,
    make_engine: MakeEngine = TransformersEngine,
) -> tuple[Evaluation, int, int]:
    """Ask the baseline and every edit; a folder of the same questions takes further edits.

    Returns:
        The numbers; how many answers were asked for, and planned.

    Raises:
        UsageError: a task or a number of items does not exist.
        LesionError: the folder belongs to other questions or cannot be written. Answers given until then are stored.
    """
    tasks = {choice: find(choice.name) for choice in questions.tasks}
    roles = roles or Roles()
    drawn = draw_items(questions, roles.used, folder)
    roles = replace(roles, notes=(*roles.notes, *seen(drawn, roles.used)))
    with Store.open(folder, identity(questions, tasks, drawn), questions.to_toml(), "isolation") as store:
        for choice, items in drawn.items():
            store.add_items(choice.name, items)
        dtype = str(model.dtype).removeprefix("torch.")
        about = {"blocks": len(model.anatomy.blocks), "family": model.anatomy.family, "dtype": dtype}
        store.add_model(model.fingerprint, chosen.name, about)
        kinds = {choice.name: task.kind for choice, task in tasks.items()}
        plan = keep_plan(folder, chosen.name, dtype, kinds, planned, roles, questions.level)
        everything: list[Edit] = [edits[edit.edit] for edit in planned]
        cells = missing(questions, chosen, model, tasks, drawn, everything, store)
        total = (len(planned) + 1) * sum(map(len, drawn.values()))
        watcher.begin(chosen.name, total, total - len(cells))
        for text in clamped(model, cells.values()):
            watcher.note(text)
        for counted in ask(make_engine(model, questions.batch_size), model, chosen.name, cells, store):
            watcher.answered(counted)
        evaluation = summarise(plan, store.answers(), store.items())
    return evaluation, len(cells), total
