"""Running a study that stops early: what it refuses, what it notes, and its rounds of evaluation (`stopping`)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from lesion.core.database import FILE
from lesion.core.inference import PendingAnswer, answer_cells
from lesion.core.row import StoredAnswer
from lesion.core.store import Store
from lesion.engines.engine import Engine
from lesion.models.load import Model
from lesion.studies.ablation.stopping.stopping import Stopping, Verdicts
from lesion.studies.ablation.study import StopPlan

SCORED = (
    " and nothing can be decided; leave it out, or ask it without --stop-when. `lesion evaluate` compares"
    " log-probabilities."
)
"""What to do where a task has no accuracy that could be decided on."""


def notes_on_other_plan(folder: Path, plan: StopPlan) -> list[str]:
    """Notes where stored answers were looked at before under another effect, level or rule than `plan` has."""
    if not (folder / FILE).exists():
        return []
    with Store.read(folder) as store:
        before = tomllib.loads(store.study[1]).get("stop") if len(store) else None
    if before is None:
        return []
    settings = (before["effect"], before["level"], before.get("rule", plan.rule))
    if settings == (plan.effect, plan.level, plan.rule):
        return []
    by = "" if settings[2] == plan.rule else f" by {settings[2]}"
    error = "family-wise error" if plan.rule == "e-Holm" else "false discovery rate"
    return [
        f"The answers there were looked at before with effect {before['effect']:g} and level {before['level']:g}{by}."
        f" The {error} is limited for an effect and a rule that are chosen before anybody looks."
    ]


def answer_until_decided(
    stopping: Stopping, engine: Engine, model: Model, name: str, cells: Mapping[str, PendingAnswer], store: Store
) -> Iterator[list[StoredAnswer]]:
    """Evaluate round after round until all is decided or answered; yields the rows that were stored together.

    `cells` are those of the full table that have no answer yet, by their key (`inference.pending_cells`).
    """
    stored = store.answers(model=name)
    verdicts = Verdicts(zip(*(stored[column] for column in ("task", "edit", "item", "correct")), strict=True))
    keys = {(cell.choice.name, str(cell.edit), cell.item.id): key for key, cell in cells.items()}
    while stops := stopping.round():
        wanted = (
            keys.get((task, edit, item))
            for task, items in stopping.items.items()
            for place, item in enumerate(items)
            for (other, edit), stop in stops.items()
            if other == task and stopping.reached[task, edit] <= place < stop
        )
        pending = {key: cells[key] for key in wanted if key is not None}
        if pending:
            for rows in answer_cells(engine, model, name, pending, store):
                verdicts.add(rows)
                yield rows
        if not stopping.look(verdicts):
            break
