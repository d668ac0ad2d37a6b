"""Stopping: which answers a layer study still needs, round by round, as a function of the answers that there are.

A cell is an edit on a task. All tasks of a model go through the same rounds: in each, the baseline and every cell that
is still open are asked the next items, in the seeded order of the draw. Then the evidence is looked at, and cells that
are decided are asked no more (`sequential`). A look sees the whole rounds up to it and nothing else, so that a study
which was interrupted, or whose folder holds more answers than it needs, comes to the same decisions.

What is decided is what the full table would say: a cell is critical when its drop over all the items exceeds the
effect, and beyond them too, and it is not when its drop over all the items does not. So what is left open when all have
been asked lost more than the effect there, but not so much more that this could not be luck.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from lesion.edits.edit import BASELINE, Scale
from lesion.engines.engine import Engine
from lesion.errors import UsageError
from lesion.models.load import Model
from lesion.studies.asking import Cell, ask
from lesion.studies.database import FILE
from lesion.studies.questions import TaskChoice
from lesion.studies.row import Row
from lesion.studies.sequential import Decision, Evidence, decide, log_e_values, rounds
from lesion.studies.store import Store
from lesion.studies.study import StopPlan
from lesion.tasks.task import Task

BUDGET = 128
"""Requests of a round, at least: when few cells are open they are asked more items at once, and batches stay full."""


@dataclass(frozen=True)
class Slice:
    """What a round asks of a task: the items from `start` up to `stop`, of the draw, under each of the edits.

    Attributes:
        task: its name.
        start, stop: places in the seeded order of the items.
        edits: text forms, the baseline's first.
    """

    task: str
    start: int
    stop: int
    edits: tuple[str, ...]

    @property
    def answers(self) -> int:
        """How many answers these are."""
        return (self.stop - self.start) * len(self.edits)


class Verdicts:
    """Whether the answers of one model were right, by task, edit and item. A keeper of answers (`asking.Keeper`).

    Args:
        rows: task, edit, item and whether the answer was right, of all answers that there are.
    """

    def __init__(self, rows: Iterable[tuple[str, str, str, bool]]) -> None:
        self._right: dict[tuple[str, str], dict[str, bool]] = {}
        for task, edit, item, right in rows:
            self._right.setdefault((task, edit), {})[item] = bool(right)

    def add(self, row: Row) -> None:
        """Remember one more answer."""
        self._right.setdefault((row.task, row.edit), {})[row.item] = row.correct

    def of(self, task: str, edit: str, items: Sequence[str]) -> Bool[np.ndarray, " items"] | None:
        """[items] whether each was answered rightly under an edit; None where one has no answer yet."""
        there = self._right.get((task, edit), {})
        if any(item not in there for item in items):
            return None
        return np.array([there[item] for item in items], dtype=bool)


class Stopping:
    """Where the stopped study of one model stands.

    Args:
        plan: the effect, and the share of wrong decisions that is allowed.
        items: the ids of each task's items in seeded order.
        edits: the cells of every task.

    Attributes:
        asked: items of each task that the baseline was asked, in whole rounds.
        evidence: of every cell, by task and text form of the edit; empty before the first look. Its limits are left at
            −1 and 1: no decision needs them.
        decided: likewise what it is.
    """

    def __init__(self, plan: StopPlan, items: Mapping[str, Sequence[str]], edits: Sequence[Scale]) -> None:
        self.plan, self.items = plan, items
        self.asked = dict.fromkeys(items, 0)
        self.evidence: dict[tuple[str, str], Evidence] = {}
        self.decided: dict[tuple[str, str], Decision] = {(task, str(edit)): "open" for task in items for edit in edits}
        families: dict[tuple[str, str, float], list[str]] = {}
        for task in items:
            for edit in edits:
                families.setdefault((task, edit.unit, edit.factor), []).append(str(edit))
        self._families = [(task, edits) for (task, _, _), edits in families.items()]

    @property
    def full(self) -> int:
        """Answers of the full table: the most that can be asked."""
        cells = {task: sum(of == task for of, _ in self.decided) for task in self.items}
        return sum((1 + cells[task]) * len(ids) for task, ids in self.items.items())

    @property
    def answers(self) -> int:
        """Answers that were looked at."""
        return sum(self.asked.values()) + sum(one.items for one in self.evidence.values())

    def open(self, task: str) -> list[str]:
        """The edits that are not decided on a task."""
        return [edit for (of, edit), what in self.decided.items() if of == task and what == "open"]

    def round(self) -> tuple[Slice, ...]:
        """What the next round asks, of all tasks together; nothing where all is decided or all items have been asked.

        A slice ends where one of `rounds` does: at the next of these ends, or at a later one, so that all tasks
        together have about `BUDGET` answers.
        """
        going = {task: self.open(task) for task, ids in self.items.items() if self.asked[task] < len(ids)}
        going = {task: edits for task, edits in going.items() if edits}
        want = math.ceil(BUDGET / max(1, sum(1 + len(edits) for edits in going.values())))
        return tuple(
            Slice(task, self.asked[task], self._end(task, self.asked[task] + want), (str(BASELINE), *edits))
            for task, edits in going.items()
        )

    def _end(self, task: str, least: int) -> int:
        """The first end of a round beyond what has been asked that is not before `least`; the last where none is."""
        total = len(self.items[task])
        ends = [stop for _, stop in rounds(total) if stop > self.asked[task]]
        return next((stop for stop in ends if stop >= least), total)

    def look(self, verdicts: Verdicts) -> bool:
        """Take in the next round and decide anew what is open.

        Args:
            verdicts: the answers, perhaps with more than those of the round.

        Returns:
            False where the round is not answered in full yet, and nothing has changed; or there is none.
        """
        slices = self.round()
        seen: dict[tuple[str, str], Bool[np.ndarray, " items"]] = {}
        for one in slices:
            for edit in one.edits:
                found = verdicts.of(one.task, edit, self.items[one.task][: one.stop])
                if found is None:
                    return False
                seen[one.task, edit] = found
        for one in slices:
            self.asked[one.task] = one.stop
            baseline = seen[one.task, str(BASELINE)]
            for edit in one.edits[1:]:
                self.evidence[one.task, edit] = self._evidence(one.task, baseline, seen[one.task, edit])
        for task, edits in self._families:
            if any(self.decided[task, edit] == "open" for edit in edits) and all(
                (task, edit) in self.evidence for edit in edits
            ):
                for edit, what in zip(
                    edits, decide([self.evidence[task, edit] for edit in edits], self.plan.level), strict=True
                ):
                    if self.decided[task, edit] == "open":
                        self.decided[task, edit] = what
        return bool(slices)

    def _evidence(
        self, task: str, baseline: Bool[np.ndarray, " items"], edited: Bool[np.ndarray, " items"]
    ) -> Evidence:
        differences = baseline.astype(np.int64) - edited.astype(np.int64)
        above, below = log_e_values(differences, self.plan.effect, len(self.items[task]))
        return Evidence(
            len(differences), float(differences.mean()), -1.0, 1.0, float(above[..., -1]), float(below[..., -1])
        )

    def replay(self, verdicts: Verdicts) -> Stopping:
        """Go through all rounds that are answered in full; this itself."""
        while self.look(verdicts):
            pass
        return self

    def told(self) -> str:
        """What was saved, as a sentence without its subject: `decided after 812 of 5,400 answers: …`."""
        undecided = sum(what == "open" for what in self.decided.values())
        once = sum(map(len, self.items.values()))
        share = (
            f"{self.answers:,} of {self.full:,} answers: {self.answers / once:.1f} evaluations of the unedited model"
        )
        instead = f" instead of {self.full / once:.1f}"
        if not undecided:
            return f"decided after {share}{instead}."
        cells = f"{undecided} of {len(self.decided)} cells"
        if self.round():
            return f"{cells} not decided yet after {share}{instead}."
        return f"{cells} left open with all items asked, after {share}{instead}."


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


def asked_otherwise(folder: Path, plan: StopPlan) -> str | None:
    """A note where answers were looked at before under another effect or level than `plan` has; None elsewhere.

    Raises:
        LesionError: the store is damaged.
    """
    if not (folder / FILE).exists():
        return None
    with Store.read(folder) as store:
        before = tomllib.loads(store.study[1]).get("stop") if len(store) else None
    if before is None or (before["effect"], before["level"]) == (plan.effect, plan.level):
        return None
    return (
        f"The answers there were looked at before with effect {before['effect']:g} and level {before['level']:g}. What"
        f" is promised about wrong decisions holds for an effect that is chosen before anybody looks."
    )


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
            keys.get((one.task, edit, item))
            for one in slices
            for item in stopping.items[one.task][one.start : one.stop]
            for edit in one.edits
        )
        asked = {key: cells[key] for key in wanted if key is not None}
        if asked:
            yield from ask(engine, model, name, asked, keeper)
        if not stopping.look(verdicts):
            break
