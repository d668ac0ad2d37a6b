"""Running a tuning study: find the blocks, train every arm, choose its rate on held-out items, test it on others, and
what follows from the answers: gains over the untuned model, differences, damage, the verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool

from lesion.atomic import keep
from lesion.core.layers import canonical_layers
from lesion.core.rates import approximate, rates, verdicts
from lesion.core.run import Evaluation, Pending, Run
from lesion.core.store import refuse_another
from lesion.core.study_file import TaskChoice
from lesion.errors import LesionError, UsageError
from lesion.files import UNFIT, stored_object
from lesion.models.load import Model
from lesion.outputs import refuse_another_kind
from lesion.progress import Watcher
from lesion.report.wording import figures
from lesion.statistics import paired
from lesion.statistics.over_seeds import crossed
from lesion.studies.tuning.model import is_written, write_card, write_model
from lesion.studies.tuning.report import (
    WORTH,
    Accuracy,
    ArmResult,
    Baseline,
    Change,
    Curve,
    Difference,
    Drops,
    TriedRate,
    Tuned,
    TunedModel,
    TuningResult,
    TuningSummary,
    Verdict,
)
from lesion.studies.tuning.study import ALL_ADAPTER, ALL_FULL, CRITICAL, LEAST, RANDOM, TuningStudy, form, label
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
    random_pool,
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


Rates = Mapping[str, tuple[float, Mapping[float, Sequence[float]]]]
"""By arm, the chosen learning rate, and by rate the accuracy of every seed on held-out items; empty for one rate."""
Right = Mapping[str, Bool[np.ndarray, "seeds items"]]
"""Whether each arm is right on each item of a task."""
COMPARED = ((CRITICAL, RANDOM), (CRITICAL, LEAST), (CRITICAL, ALL_ADAPTER), (CRITICAL, ALL_FULL))
"""The differences that are reported, the first of which decides the verdict."""


@dataclass
class _Work:
    """One run, with what all of its parts need.

    Attributes:
        arms: what every arm trains, by its name and seed.
        cells: its training under every learning rate, by name, rate and seed; done: what became of these.
    """

    study: TuningStudy
    folder: Path
    watcher: Watcher
    model: Model
    data: Data
    evaluation: Evaluation
    trainings: int = 0
    arms: dict[tuple[str, int], Arm] = field(default_factory=dict)
    cells: dict[tuple[str, float, int], Cell] = field(default_factory=dict)
    done: dict[Cell, Trained] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def run(self) -> tuple[TuningSummary, int, int]:
        study = self.study
        with self.evaluation.run.watcher.preparing():
            self._ask(self.model, study.model.name, self.data.every_item())
        drops = self._drops()
        training = training_of(study, self.model, self.data, self._note)
        for seed in study.seeds:
            for arm in arms_of(study, self.model, seed, drops):
                self.arms[arm.name, seed] = arm
                for rate in study.learning_rates:
                    self.cells[arm.name, rate, seed] = cell_of(arm, rate, seed, self.model, training)
        critical = drops.critical if drops else ()
        self._announce(critical)
        # With one rate there is nothing to choose: its cells meet the test items at once.
        several = len(study.learning_rates) > 1
        items = {self.data.choice: list(self.data.validation)} if several else self.data.test
        for number, cell in enumerate(self.cells.values(), 1):
            written = study.writes_model and not several
            self._train(cell, items, training, f"({number} of {len(self.cells)})", written=written)
        rates = {name: self._rate(name) for name in study.arms}
        for (name, rate, _), cell in self.cells.items():
            if rate == rates[name][0]:
                self._train(cell, self.data.test, training, "on the test items", written=study.writes_model)
        for cell in self.cells.values():
            forget(self.folder, cell)
        if not study.reinforced:
            self._note_worse()
        blocks = len(self.model.anatomy.blocks)
        pool = random_pool(blocks, budget_of(study, blocks), critical) if RANDOM in study.arms else None
        summary = self._summary(rates, layers=drops, random_from=pool, examples=training.items)
        summary.write(self.folder)
        if study.writes_model:
            write_card(self.folder, summary)
        return summary, self.trainings, len(self.cells)

    def _drops(self) -> Drops | None:
        if not by_drops(self.study.arms):
            return None
        if self.study.layers_from is not None:
            return read_drops(self.study, len(self.model.anatomy.blocks), self.study.layers_from)
        return ablated(self.study, self.model, self.evaluation.run)

    def _announce(self, critical: Sequence[int]) -> None:
        study, blocks = self.study, len(self.model.anatomy.blocks)
        budget = budget_of(study, blocks)
        if 2 * budget > blocks and by_drops(study.arms):
            self._note(
                f"The budget is more than half of the {blocks} blocks: critical, least critical and random overlap."
            )
        elif RANDOM in study.arms and blocks - len(critical) < budget:
            self._note(
                f"{len(critical)} of the {blocks} blocks are critical, so fewer than the budget of {budget} are"
                f" not: random blocks are drawn from all blocks, and the comparison with them is one of critical blocks"
                f" with mostly critical ones."
            )
        for name in study.arms:
            arm = self.arms[name, study.seeds[0]]
            which = f"{name}: blocks {canonical_layers(arm.blocks)} {form(arm.rank)}"
            self.watcher.note(f"{which}, {arm.parameters:,} numbers train.")

    def _note_worse(self) -> None:
        for cell, finished in self.done.items():
            first, last = finished.points[0].loss, finished.points[-1].loss
            if first is not None and last is not None and last > WORSE * first:
                self._note(
                    f"The loss of {label(cell.arm.name)} rose from {figures(first, 3)} to {figures(last, 3)} (learning"
                    f" rate {cell.rate:g}, seed {cell.seed}): give a smaller --learning-rate."
                )

    def _train(
        self, cell: Cell, items: Mapping[TaskChoice, list[Item]], training: Training, purpose: str, *, written: bool
    ) -> None:
        """Train a cell, unless it is trained and has answered the items; with `written` its model is written."""
        earlier = trained(self.folder, cell)
        if earlier is not None:
            self.done[cell] = earlier
            with_it = replace(self.model, fingerprint=earlier.fingerprint)
            there = not written or is_written(self.folder, earlier.fingerprint)
            if there and not self._pending(with_it, items).cells:
                return
        name = f"{label(cell.arm.name)}, rate {cell.rate:g}, seed {cell.seed} {purpose}"
        with tuned(self.model, cell, training, self.folder, self.watcher, name) as (changed, self.done[cell]):
            self.trainings += earlier is None
            self._ask(changed, name, items)
            if written:
                write_model(self.folder, changed)

    def _pending(self, model: Model, items: Mapping[TaskChoice, Sequence[Item]]) -> Pending:
        tasks = {choice: self.data.tasks[choice] for choice in items}
        return self.evaluation.pending(self.study.model, model, (), tasks, items)

    def _name(self, fingerprint: str) -> str:
        """What the model with these weights is called among the answers."""
        tuned = {self.model.fingerprint: ""}.get(fingerprint, f", tuned to {fingerprint}")
        return f"{self.study.model.name}{tuned}"

    def _ask(self, model: Model, title: str, items: Mapping[TaskChoice, Sequence[Item]]) -> None:
        pending, name = self._pending(model, items), self._name(model.fingerprint)
        self.evaluation.answer(self.study.model, model, pending, name=name, title=title)

    def _rate(self, name: str) -> tuple[float, dict[float, list[float]]]:
        """The learning rate of an arm, best on the mean over seeds, the smaller of equals; and accuracy by rate."""
        rates = sorted(self.study.learning_rates)
        if len(rates) == 1:
            return rates[0], {}

        def held_out(rate: float, seed: int) -> float:
            trained = self.done[self.cells[name, rate, seed]].fingerprint
            return float(verdicts(self._answers(trained, self.data.choice, self.data.validation)).mean())

        accuracy = {rate: [held_out(rate, seed) for seed in self.study.seeds] for rate in rates}
        return max(rates, key=lambda rate: (round(float(np.mean(accuracy[rate])), 12), -rate)), accuracy

    def _answers(self, fingerprint: str, choice: TaskChoice, items: Sequence[Item]) -> pd.DataFrame:
        """The answers to these items, in their order, of the model with these weights."""
        frame = self.evaluation.store.answers(model=self._name(fingerprint), task=choice.name)
        return frame.set_index("item").loc[[item.id for item in items]]

    def _summary(self, rates: Rates, **known: Any) -> TuningSummary:
        study, model, data = self.study, self.model, self.data
        baseline = []
        tasks: dict[str, list[Tuned]] = {name: [] for name in study.arms}
        right: dict[TaskChoice, dict[str, np.ndarray]] = {}
        for choice, items in data.test.items():
            before = self._answers(model.fingerprint, choice, items)
            baseline.append(Baseline(task=choice.name, items=len(items), accuracy=accuracy(before, study.level)))
            right[choice] = {}
            for name, of_name in tasks.items():
                trained = [self.done[self.cells[name, rates[name][0], seed]] for seed in study.seeds]
                frames = [self._answers(cell.fingerprint, choice, items) for cell in trained]
                right[choice][name] = own = np.stack([verdicts(frame) for frame in frames])
                change = crossed(own, np.repeat(verdicts(before)[None], len(frames), axis=0), study.level)
                seeds = [accuracy(frame, study.level) for frame in frames]
                about = {"task": choice.name, "items": len(items), "accuracy": own.mean(), "seeds": seeds}
                of_name.append(Tuned(**about, change=Change(**vars(change))))
        arms = [self._arm(name, *rates[name], of_name) for name, of_name in tasks.items()]
        differences = differences_of(right[data.choice], study.level)
        parameters = sum(p.numel() for p in model.network.parameters())
        tuned = {"blocks": len(model.anatomy.blocks), "parameters": parameters, "fingerprint": model.fingerprint}
        return TuningSummary(
            approximate=approximate(study.stop_loops),
            study=study,
            model=TunedModel(name=study.model.name, **tuned),
            held_out=len(data.validation) if len(study.learning_rates) > 1 else 0,
            baseline=baseline,
            arms=arms,
            differences=differences,
            verdict=verdict(arms, differences),
            notes=self.notes,
            **known,
        )

    def _arm(
        self, name: str, rate: float, validation: Mapping[float, Sequence[float]], tasks: Sequence[Tuned]
    ) -> ArmResult:
        seeds = self.study.seeds
        keys = [(tried, seed) for tried in self.study.learning_rates for seed in seeds]
        points = [self.done[self.cells[name, *key]].points for key in keys]
        first = self.arms[name, seeds[0]]
        return ArmResult(
            name=name,
            blocks=[self.arms[name, seed].blocks for seed in seeds],
            rank=first.rank,
            parameters=first.parameters,
            rate=rate,
            rates=[TriedRate(rate=tried, validation=np.mean(own), seeds=own) for tried, own in validation.items()],
            tasks=tasks,
            curves=[Curve(rate=key[0], seed=key[1], points=own) for key, own in zip(keys, points, strict=True)],
        )

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.watcher.note(text)


def _look_ahead(study: TuningStudy, model: Model, data: Data) -> None:
    """Refuse wrong layers, ranks, layer studies, prompts or missing libraries before any item is evaluated."""
    known = None
    if study.layers_from and by_drops(study.arms):
        known = read_drops(study, len(model.anatomy.blocks), study.layers_from)
    arms_of(study, model, study.seeds[0], known)
    for task in data.tasks.values():
        resolve(model, task, study.styled())
    if any(find_spec(library) is None for library in ("trl", "peft")):
        require_trl()


def differences_of(right: Right, level: float) -> tuple[Difference, ...]:
    """The differences of `COMPARED` between the arms that there are, on the same seeds and items."""
    return tuple(
        Difference(first=first, second=second, **vars(crossed(right[first], right[second], level)))
        for first, second in COMPARED
        if first in right and second in right
    )


def verdict(arms: Sequence[ArmResult], differences: Sequence[Difference]) -> Verdict | None:
    """Whether tuning the critical blocks pays; None where critical and random blocks were not both tuned."""
    gains = {arm.name: arm.gain for arm in arms}
    for main in differences:
        if (main.first, main.second) == COMPARED[0]:
            return decide(gains[CRITICAL], main, gains.get(ALL_FULL))
    return None


def decide(gain: Change, main: Difference, full: Change | None) -> Verdict:
    """Whether tuning the critical blocks pays, by one comparison that is named before anything is measured.

    It *pays* when the interval of critical minus random blocks lies above 0 and so does that of the gain itself; it
    *does not pay* when the whole interval of the difference lies below `WORTH`; otherwise it *cannot tell*. It cannot
    tell either where neither the gain of all blocks in full nor that of the critical ones is sure: nothing was learned
    that could be compared.

    Args:
        gain: of the critical blocks; full: of all blocks in full.
        main: critical minus random blocks.
    """
    if full is not None and full.low <= 0 and gain.low <= 0:
        return Verdict(word="cannot tell", reason="nothing learned")
    if main.low > 0 and gain.low > 0:
        return Verdict(word="pays", reason="better")
    if main.low > 0:
        return Verdict(word="cannot tell", reason="no gain")
    if main.high < WORTH:
        return Verdict(word="does not pay", reason="no better")
    return Verdict(word="cannot tell", reason="undecided")


def accuracy(answers: pd.DataFrame, level: float) -> Accuracy:
    """The share of right answers with its interval, and how the answers ended."""
    return Accuracy(**vars(paired.accuracy(verdicts(answers), level)), **rates(answers))
