"""Running a tuning study: find the blocks, train every arm, choose its rate on held-out items, test it on others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from lesion.atomic import keep
from lesion.core.layers import canonical_layers
from lesion.core.run import Evaluation, Pending, Run
from lesion.core.store import refuse_another
from lesion.core.study_file import TaskChoice
from lesion.errors import LesionError, UsageError
from lesion.files import UNFIT, stored_object
from lesion.models.load import Model
from lesion.outputs import refuse_another_kind
from lesion.progress import Watcher
from lesion.report.wording import figures
from lesion.studies.tuning.model import is_written, write_card, write_model
from lesion.studies.tuning.report import TuningResult
from lesion.studies.tuning.result import Drops, TuningSummary
from lesion.studies.tuning.study import ALL_FULL, RANDOM, TuningStudy, label
from lesion.studies.tuning.summary import summarise
from lesion.studies.tuning.training import (
    Arm,
    Cell,
    Data,
    Trained,
    Training,
    ablated,
    arms_of,
    budget_of,
    by_drops,
    cell_of,
    forget,
    prepare,
    read_drops,
    trained,
    training_of,
    tuned,
)
from lesion.tasks.prompts import resolve
from lesion.tasks.task import Item
from lesion.training.blocks import require_trl

MARK = "tuning.json"
"""Whose folder it is, from the first training on."""
WORSE = 1.5
"""A loss that ends at so many times what it began with was not trained but damaged."""


def run_tuning(study: TuningStudy, run: Run) -> TuningResult:
    """Run a tuning study, or go on where an interrupted run stopped; a folder takes further arms, rates and seeds.

    Models that are loaded already must be in float32; their weights are changed meanwhile and put back bit for bit.
    """
    data = prepare(study)
    refuse_another_kind(run.folder, "tuning")
    refuse_another(run.folder, "tuning", _study_there(run.folder), study)
    model = run.load(data.questions, study.model, tasks=data.tasks, finite=True)
    model.refuse_packed("trained")
    if model.dtype != torch.float32:
        raise UsageError(f"{study.model.name} is in {model.dtype}; a tuning needs it loaded with dtype='float32'.")
    _look_ahead(study, model, data)
    with run.evaluation(data.questions, data.every_item(), tasks=data.tasks) as evaluation:
        keep(run.folder / MARK, json.dumps({"study": study.to_toml()}))
        summary, trained_now, planned = _Work(study, run.folder, run.watcher, model, data, evaluation).run()
        return TuningResult(run.folder, summary, evaluation.evaluated, planned, trained_now)


def _study_there(folder: Path) -> TuningStudy | None:
    """The study whose folder it is; further arms, rates and seeds are welcome in it, other items or steps are not."""
    advice = "give another folder with --out"
    noted = stored_object(folder / MARK, advice)
    try:
        return None if noted is None else TuningStudy.parse(noted["study"], "The stored study")
    except (*UNFIT, LesionError) as error:
        raise LesionError(f"{folder / MARK} is damaged ({' '.join(str(error).split())}); {advice}.") from error


@dataclass
class _Work:
    """One run, with what all of its parts need."""

    study: TuningStudy
    folder: Path
    watcher: Watcher
    model: Model
    data: Data
    evaluation: Evaluation
    trainings: int = 0
    notes: list[str] = field(default_factory=list)
    read: tuple[tuple[str, int], pd.DataFrame] | None = None

    def run(self) -> tuple[TuningSummary, int, int]:
        study = self.study
        self._ask(self.model, study.model.name, self.data.every_item())
        drops = self._drops()
        training = training_of(study, self.model, self.data, self._note)
        known = (None, ()) if drops is None else (drops.drops, drops.critical)
        arms = {seed: arms_of(study, self.model, seed, *known) for seed in study.seeds}
        self._announce(arms, known[1])
        cells = {
            (arm.name, rate, seed): cell_of(arm, rate, seed, self.model, training)
            for seed in study.seeds
            for arm in arms[seed]
            for rate in study.learning_rates
        }
        choose = {self.data.choice: list(self.data.validation)} if len(study.learning_rates) > 1 else {}
        done: dict[Cell, Trained] = {}
        for number, cell in enumerate(cells.values(), 1):
            # With one rate there is nothing to choose: its cell meets the test items at once.
            items: dict[TaskChoice, list[Item]] = choose or self.data.test
            written = study.writes_model and not choose
            done[cell] = self._cell(cell, items, training, f"({number} of {len(cells)})", written=written)
        rates = {name: self._rate(name, cells, done) for name in study.arms}
        for (name, rate, _), cell in cells.items():
            if rate == rates[name][0]:
                done[cell] = self._cell(cell, self.data.test, training, "on the test items", written=study.writes_model)
        for cell in cells.values():
            forget(self.folder, cell)
        if not study.reinforced:
            self._note_worse(done)
        summary = summarise(
            study,
            self.model,
            self.data,
            [[arm for seed in study.seeds for arm in arms[seed] if arm.name == name] for name in study.arms],
            rates,
            {key: done[cell] for key, cell in cells.items()},
            drops,
            training.items,
            self._answers,
            self.notes,
        )
        summary.write(self.folder)
        if study.writes_model:
            write_card(self.folder, summary)
        return summary, self.trainings, len(cells)

    def _drops(self) -> Drops | None:
        if not by_drops(self.study.arms):
            return None
        if self.study.layers_from is not None:
            return read_drops(self.study, len(self.model.anatomy.blocks))
        return ablated(self.study, self.model, self.evaluation.run)

    def _announce(self, arms: Mapping[int, Sequence[Arm]], critical: Sequence[int]) -> None:
        blocks = len(self.model.anatomy.blocks)
        budget = budget_of(self.study, blocks)
        if 2 * budget > blocks and by_drops(self.study.arms):
            self._note(
                f"The budget is more than half of the {blocks} blocks: critical, least critical and random overlap."
            )
        elif RANDOM in self.study.arms and blocks - len(critical) < budget:
            self._note(
                f"{len(critical)} of the {blocks} blocks are critical, so fewer than the budget of {budget} are not:"
                f" random blocks are drawn from all blocks, and the comparison with them is one of critical blocks with"
                f" mostly critical ones."
            )
        for arm in arms[self.study.seeds[0]]:
            how = "in full" if arm.rank is None else f"by adapters of rank {arm.rank}"
            all_blocks = arm.name == ALL_FULL or len(arm.blocks) == blocks
            which = "all blocks" if all_blocks else label(canonical_layers(arm.blocks))
            name = "" if label(arm.name) == which else f"{label(arm.name)}: "
            self.watcher.note(f"{name}{which} {how}, {arm.parameters:,} numbers train.")

    def _note_worse(self, done: Mapping[Cell, Trained]) -> None:
        """Note trainings whose loss rose: the learning rate was too large."""
        for cell, finished in done.items():
            first, last = finished.points[0].loss, finished.points[-1].loss
            if first is not None and last is not None and last > WORSE * first:
                self._note(
                    f"The loss of {label(cell.arm.name)} rose from {figures(first, 3)} to {figures(last, 3)} (learning"
                    f" rate {cell.rate:g}, seed {cell.seed}): give a smaller --learning-rate."
                )

    def _cell(
        self,
        cell: Cell,
        items: Mapping[TaskChoice, list[Item]],
        training: Training,
        purpose: str,
        written: bool = False,
    ) -> Trained:
        """Train a cell, unless it is trained and has answered the items; with `written` its model is written."""
        earlier = trained(self.folder, cell)
        if earlier is not None:
            with_it = replace(self.model, fingerprint=earlier.fingerprint)
            if not self._pending(with_it, items).cells and (
                not written or is_written(self.folder, earlier.fingerprint)
            ):
                return earlier
        name = f"{label(cell.arm.name)}, rate {cell.rate:g}, seed {cell.seed} {purpose}"
        with tuned(self.model, cell, training, self.folder, self.watcher, name) as (changed, finished):
            self.trainings += earlier is None
            self._ask(changed, name, items)
            if written:
                write_model(self.folder, changed)
        return finished

    def _pending(self, model: Model, items: Mapping[TaskChoice, Sequence[Item]]) -> Pending:
        tasks = {choice: self.data.tasks[choice] for choice in items}
        return self.evaluation.pending(self.study.model, model, (), tasks, items)

    def _ask(self, model: Model, title: str, items: Mapping[TaskChoice, Sequence[Item]]) -> None:
        same = model.fingerprint == self.model.fingerprint
        name = self.study.model.name + ("" if same else f", tuned to {model.fingerprint}")
        self.evaluation.answer(self.study.model, model, self._pending(model, items), name=name, title=title)

    def _rate(
        self, name: str, cells: Mapping[tuple[str, float, int], Cell], done: Mapping[Cell, Trained]
    ) -> tuple[float, dict[float, list[float]]]:
        """The learning rate of an arm, best on the mean over seeds, the smaller of equals; and accuracy by rate."""
        rates = sorted(self.study.learning_rates)
        if len(rates) == 1:
            return rates[0], {}

        def held_out(rate: float, seed: int) -> float:
            trained = done[cells[name, rate, seed]].fingerprint
            return float(self._answers(trained, self.data.choice, self.data.validation)["correct"].astype(bool).mean())

        accuracy = {rate: [held_out(rate, seed) for seed in self.study.seeds] for rate in rates}
        return max(rates, key=lambda rate: (round(float(np.mean(accuracy[rate])), 12), -rate)), accuracy

    def _answers(self, fingerprint: str, choice: TaskChoice, items: Sequence[Item]) -> pd.DataFrame:
        """The answers to these items, in their order, of the model with these weights."""
        size = len(self.evaluation.store)
        if self.read is None or self.read[0] != (choice.name, size):
            self.read = (choice.name, size), self.evaluation.store.answers(task=choice.name)
        frame = self.read[1]
        return frame[frame["model"] == fingerprint].set_index("item").loc[[item.id for item in items]]

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.watcher.note(text)


def _look_ahead(study: TuningStudy, model: Model, data: Data) -> None:
    """Refuse wrong layers, ranks, layer studies, prompts or missing libraries before any item is evaluated."""
    known = read_drops(study, len(model.anatomy.blocks)).drops if study.layers_from and by_drops(study.arms) else None
    stand_in = known or tuple(0.0 for _ in model.anatomy.blocks)
    arms_of(study, model, study.seeds[0], stand_in)
    for task in data.tasks.values():
        resolve(model, task, study.styled())
    if any(find_spec(library) is None for library in ("trl", "peft")):
        require_trl()
