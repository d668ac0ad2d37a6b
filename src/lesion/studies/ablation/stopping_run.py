"""Running a study that stops asking: what it refuses, what it notes, and asking round after round (`stopping`)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lesion.core.database import FILE
from lesion.core.inference import Cell, ask
from lesion.core.row import Row
from lesion.core.store import Store
from lesion.core.study_file import TaskChoice
from lesion.engines.engine import Engine
from lesion.errors import UsageError
from lesion.models.load import Model
from lesion.studies.ablation.stopping import Stopping, Verdicts
from lesion.studies.ablation.study import StopPlan
from lesion.tasks.task import Task


def refuse_scored(tasks: Mapping[TaskChoice, Task]) -> None:
    """A task whose answers are log-probabilities has no accuracy that could be decided on.

    Raises:
        UsageError: there is one.
    """
    for choice, task in tasks.items():
        if task.kind == "score":
            raise UsageError(
                f"{choice.name} is scored, not judged, so nothing in it is right or wrong and nothing can be decided;"
                f" leave it out, or ask it without --stop-when. `lesion evaluate` compares log-probabilities."
            )


def asked_otherwise(folder: Path, plan: StopPlan) -> list[str]:
    """Notes where answers were looked at before under another effect or level than `plan` has.

    Raises:
        LesionError: the store is damaged.
    """
    if not (folder / FILE).exists():
        return []
    with Store.read(folder) as store:
        before = _stop(store)
    if before is None or (before["effect"], before["level"]) == (plan.effect, plan.level):
        return []
    return [
        f"The answers there were looked at before with effect {before['effect']:g} and level {before['level']:g}. The"
        " false discovery rate is limited for an effect that is chosen before anybody looks."
    ]


def _stop(store: Store) -> dict[str, Any] | None:
    """The table `stop` of a stored study that has answers."""
    found: dict[str, Any] | None = tomllib.loads(store.study[1]).get("stop") if len(store) else None
    return found


class _Remembering:
    """A store that notes in `verdicts` what is written to it."""

    def __init__(self, store: Store, verdicts: Verdicts) -> None:
        self._store, self._verdicts = store, verdicts

    def keys(self) -> set[str]:
        return self._store.keys()

    def write(self, rows: Iterable[Row]) -> int:
        rows = list(rows)
        new = self._store.write(rows)
        for row in rows:
            self._verdicts.add(row)
        return new


def stored_verdicts(store: Store, model: str) -> Verdicts:
    """What the store has of a model, by the model's name."""
    there = store.answers(model=model)
    return Verdicts(zip(*(there[column] for column in ("task", "edit", "item", "correct")), strict=True))


def ask_until_decided(
    stopping: Stopping, engine: Engine, model: Model, name: str, cells: Mapping[str, Cell], store: Store
) -> Iterator[int]:
    """Ask round after round until all is decided or all items have been asked; how many answers were stored at a time.

    Args:
        stopping: at its start.
        engine: that answers.
        model: the model itself.
        name: the model, as the study names it.
        cells: every cell of the full table that has no answer yet, by its key (`asking.missing`).
        store: where answers are kept.
    """
    verdicts = stored_verdicts(store, name)
    keeper = _Remembering(store, verdicts)
    keys = {(cell.choice.name, str(cell.edit), cell.item.id): key for key, cell in cells.items()}
    while slices := stopping.round():
        wanted = (
            keys.get((task, edit, item))
            for task, items in stopping.items.items()
            for place, item in enumerate(items)
            for one in slices
            if one.task == task and one.start <= place < one.stop
            for edit in one.edits
        )
        asked = {key: cells[key] for key in wanted if key is not None}
        if asked:
            yield from ask(engine, model, name, asked, keeper)
        if not stopping.look(verdicts):
            break
