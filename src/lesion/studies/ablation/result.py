"""The result of a layer study: per model and task the unedited model, every edit with its tests, screens, the plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import pandas as pd

from lesion.core.clustered_intervals import Sharing
from lesion.core.layers import removal
from lesion.core.values import SUMMARY, ModelAndTask, Summary, read_summary, summary_kind
from lesion.edits.place import Unit
from lesion.edits.units import part_of
from lesion.errors import UsageError, nearest
from lesion.files import named
from lesion.report import wording
from lesion.report.rows import Row, column
from lesion.report.values import POINTS, WHOLE_SHARE, Estimate, Form, Number, Value, decimals, omitted
from lesion.statistics.sequential_families import Decision
from lesion.studies.ablation.cell import Cell, Curve, Place, Scores, curves
from lesion.studies.ablation.drops import Forced
from lesion.studies.ablation.invariance.result import FamilyResult, Invariance
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.sweep import Factor


class Loss(Place):
    """What one edit takes of the gold solutions.

    Attributes:
        lost: log-probability per token in nats; no value where some item has none under the edit.
        rank: 1 where most is lost, among the layers of one unit and factor.
        nonfinite: items without a number under the edit.
    """

    lost: Estimate = column("Lost per token", decimals(3, "nats"))
    lost_per_answer: Number = column()
    nonfinite: int = column()
    rank: int = column("Rank")

    @property
    def size(self) -> float:
        """What is lost, by which the terminal chooses what it shows."""
        return math.inf if self.lost.value is None else self.lost.value


class Agreement(Value):
    """Spearman's ρ of a screen with the drops of generated accuracy over `layers`, of whose drops `tied` are equal."""

    unit: Unit
    factor: Factor
    layers: int
    tied: int
    rho: Estimate


class Amount(Value):
    """How many answers, and tokens of them."""

    answers: int
    tokens: int


class Screen(Value):
    """The screen of one model on one task.

    Attributes:
        top: edits of each unit and factor to which generation was limited; None where it was not.
        items: how many gold solutions were scored, under no edit and under each.
        generated: what was generated for the table.
        baseline: log-probability per token without an edit, in nats.
    """

    items: int
    scored: Amount
    generated: Amount
    baseline: float
    losses: tuple[Loss, ...]
    agreement: tuple[Agreement, ...]
    top: int | None = omitted()


class Prospect(Row):
    """What the planned tests of one kind on one task can find, before any answer, if the baseline is this accurate.

    Attributes:
        baseline: the accuracy assumed of the unedited model.
        loss: the share of it that the edit is assumed to take.
        power: the chance that a place is called as expected then (`statistics.power`).
        detectable: the smallest loss called critical, or the largest called spared, with 80 % power; None: none.
        needed: about how many items give 80 % power at that loss; None: too many.
    """

    task: str = column("Task", label=True)
    expect: str = column("Expected")
    items: int = column("Items")
    tests: int = column("Tests")
    baseline: float = column("Baseline assumed", WHOLE_SHARE)
    loss: float = column("Loss assumed", WHOLE_SHARE)
    power: float = column("Power", WHOLE_SHARE)
    detectable: Number = column("Detectable loss", WHOLE_SHARE, default=None)
    needed: int | None = column("Items needed", decimals(0), default=None)


class Outcome(ModelAndTask):
    """One hypothesis of a plan on one model.

    Attributes:
        p: of its own exact test; p_corrected: by Holm over the tests of the plan; None where it is not measured yet.
        confirmed: whether the test passes; None where it is not measured.
        right: items that the baseline has right.
        detectable: with these, the smallest loss that is called critical with 80 % power, or the largest called spared,
            as a share of the baseline's accuracy; None where none is.
    """

    place: str = column("Place")
    expect: str = column("Expected")
    factor: Factor = column("Factor", wording.factor_name, label=True)
    drop: Estimate | None = column("Drop", POINTS, default=None)
    p: Number = column("p", wording.p_value, default=None)
    p_corrected: Number = column("Corrected p", wording.p_value, default=None)
    confirmed: bool | None = column("Confirmed", default=None)
    right: int | None = column("Right before", decimals(0), default=None)
    detectable: Number = column("Detectable loss", WHOLE_SHARE, default=None)

    @property
    def expected(self) -> str:
        """`block 3 is critical for sums`, `head 9.6 replaced by the mean spares facts`."""
        edit = removal(self.place)
        how = "" if self.factor == 0 else f" {wording.changed(self.factor)}"
        verb = "is critical for" if self.expect == "critical" else "spares"
        return f"{wording.place(edit.unit, edit.layer, part_of(edit))}{how} {verb} {self.task}"


class Planned(Value):
    """What was written down before any answer was there, and what came of it.

    Attributes:
        made: when, as an ISO date and time.
        digest: the first 12 hexadecimal digits of the plan's SHA-256.
        answers: how many answers to the planned tasks were there already; 0 of a plan that deserves the name.
        prospects: what the tests could find, as it was written down with them.
    """

    made: str
    digest: str
    answers: int
    outcomes: tuple[Outcome, ...]
    prospects: tuple[Prospect, ...] = ()


WITHOUT_CHAT = (
    "The model has a chat template, and the prompts were sent without it: try --prompt-style chat before anything else."
)


class AtShare(Value):
    """The layers that would be critical if this share of the baseline's accuracy had to be lost."""

    share: float
    critical: tuple[int, ...]


class Sensitivity(Value):
    """What the rule can find under one unit and factor (`statistics.critical`); of inner units without `shares`.

    Attributes:
        tests: layers over which Holm's correction goes.
        right: items that the baseline has right.
        smallest_loss: a share of the baseline's accuracy above chance; None where nothing can be critical.
    """

    unit: Unit
    factor: Factor
    tests: int
    right: int
    fewest_right: int
    power: float
    smallest_loss: Number
    shares: tuple[AtShare, ...]


class KindContrast(Value):
    """Two kinds of ablation at one block or branch on the same items.

    Attributes:
        first, second: the kinds: `zero`, or of a replacement.
        difference: accuracy under the first minus under the second; p of "it does not matter which", corrected by Holm
            over places × pairs of kinds of one unit. Without an interval where a kind has several draws.
    """

    layer: int
    unit: Unit
    first: str
    second: str
    difference: Estimate


class Stopped(Value):
    """How a task was evaluated that stops a cell once it is decided: `items` were drawn; `finished`: none is left."""

    effect: float
    level: float
    items: int
    finished: bool


class TaskResult(Value):
    """One model on one task.

    Attributes:
        items: of the baseline; where evaluation stopped, the most that any cell has.
        planned: layers that the finished study will have.
        sensitivity: per unit and factor; of full tables only.
        stopping: None in a full table.
        guessing: the accuracy of guessing, in 0…1; 0 where it is not known.
        without_chat: whether the model has a chat template and the prompts did not use it.
        shared: what items share; None where its groups are no clusters, and where evaluation stopped.
        contrasts: of kinds of ablation, where there are several; of full tables only.
        forced: the forced answers of the unedited model, of tasks with rivals; of full tables only.
    """

    task: str
    items: int
    baseline: Scores
    cells: tuple[Cell, ...]
    planned: tuple[int, ...] = ()
    sensitivity: tuple[Sensitivity, ...] = ()
    stopping: Stopped | None = None
    screen: Screen | None = None
    guessing: float = 0.0
    without_chat: bool = omitted(False)
    shared: Sharing | None = omitted()
    contrasts: tuple[KindContrast, ...] = omitted(())
    forced: Forced | None = omitted()

    @property
    def right(self) -> int:
        """How many items the unedited model has right."""
        return round((self.baseline.accuracy.value or 0.0) * self.items)

    @property
    def skill(self) -> float:
        """The accuracy of the unedited model above guessing."""
        return (self.baseline.accuracy.value or 0.0) - self.guessing

    @property
    def answers(self) -> int:
        """Answers behind the table."""
        return self.items + sum(cell.items for cell in self.cells)

    def decided(self, decision: Decision) -> int:
        """How many cells were decided so."""
        return sum(cell.decided == decision for cell in self.cells)

    def of(self, unit: Unit, factor: Factor) -> tuple[Cell, ...]:
        """The cells of one unit and factor by layer."""
        chosen = (cell for cell in self.cells if (cell.unit, cell.factor) == (unit, factor))
        return tuple(sorted(chosen, key=lambda cell: cell.layer))


PERPLEXITY, RATIO = Form(4, significant=True), Form(3, significant=True)


class TextUnderEdit(Place):
    """Running text under one edit.

    Attributes:
        perplexity: of a token; None where it is not finite.
        ratio: to the perplexity of the unedited model on the same texts; p of "it is 1".
    """

    perplexity: Estimate = column("Perplexity", PERPLEXITY, ends=("low", "high"))
    ratio: Estimate = column("× unedited", RATIO, p="p")

    @property
    def rise(self) -> float | None:
        """The ratio less 1; None where it is not finite."""
        return None if self.ratio.value is None else self.ratio.value - 1

    @property
    def size(self) -> float:
        """The rise, by which the terminal chooses what it shows: infinite where it is not finite."""
        return math.inf if self.rise is None else self.rise


class TextResult(Value):
    """One model on a task of running text, which is scored and not judged.

    Attributes:
        texts, tokens: how many were scored.
        baseline: the perplexity of the unedited model.
        planned: edits that the finished study will have.
    """

    task: str
    texts: int
    tokens: int
    baseline: Estimate
    planned: int
    cells: tuple[TextUnderEdit, ...]


class ModelResult(Value):
    """One model on all tasks of which its baseline is complete; those of running text apart."""

    model: str
    tasks: tuple[TaskResult, ...]
    texts: tuple[TextResult, ...] = ()


class AblationSummary(Summary):
    """All numbers of a layer study: what `summary.json` holds.

    Attributes:
        engine: what the answers were decoded with.
        approximate: what makes the numbers approximate, as sentences.
        invariance: None where no models are of one family, or evaluation stopped.
        planned: None where the study has no hypotheses.
    """

    kind: Literal["layers"] = "layers"
    engine: str
    approximate: str | None = None
    study: Study
    models: tuple[ModelResult, ...]
    invariance: Invariance | None = None
    planned: Planned | None = None

    @property
    def stopped(self) -> bool:
        """Whether cells were evaluated only until they were decided."""
        return any(result.stopping for _, result in self.results)

    @property
    def results(self) -> list[tuple[str, TaskResult]]:
        """Every model's name with each of its tasks."""
        return [(model.model, result) for model in self.models for result in model.tasks]

    @property
    def curves(self) -> tuple[Curve, ...]:
        """Every model on every task under one unit and factor, in the order of the summary."""
        return curves(self.models)

    @property
    def families(self) -> tuple[FamilyResult, ...]:
        """Families of models with their comparisons; none where no models are of one, or evaluation stopped."""
        return () if self.invariance is None else self.invariance.families


@dataclass(frozen=True)
class Material:
    """A layer study as its analyses see it.

    Attributes:
        answers: every answer, as `Store.answers`; empty where they are not at hand.
        items: every item; likewise.
    """

    summary: AblationSummary
    answers: pd.DataFrame = field(default_factory=pd.DataFrame)
    items: pd.DataFrame = field(default_factory=pd.DataFrame)

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """Every model on every task under one unit and factor."""
        return self.summary.curves

    @cached_property
    def maps(self) -> tuple[Curve, ...]:
        """The same of heads, matrices, experts and neurons: curves whose cells are by block and part."""
        return curves(self.summary.models, inner=True)

    def among(self, model: str) -> str:
        """The name of a model, where there are several."""
        return wording.among(model, [other.model for other in self.summary.models])


def read_finished(folder: str | Path, models: Sequence[str]) -> AblationSummary:
    """The full table of a layer study that somebody named, of one of these models at least."""
    path = named(folder, "study") / SUMMARY
    if not path.is_file():
        raise UsageError(
            f"There is no {path}; --study is the folder of a finished layer study, such as `lesion ablate` leaves it."
        )
    again = f"`lesion report {path.parent}` writes it anew"
    summary = read_summary(AblationSummary, path.parent, again) if summary_kind(path.parent) == "layers" else None
    if summary is None:
        raise UsageError(
            f"{path} does not hold a layer study; --study is the folder of one, such as `lesion ablate` leaves it."
        )
    known = [model.model for model in summary.models]
    if not set(models) & set(known):
        raise UsageError(
            f"The study in {folder} is about {', '.join(known) or 'no model'}, not about"
            f" {', '.join(models)}{nearest(models[0], known, limit=1)}; give a layer study of the same models with"
            " --study, or leave it out."
        )
    if any(result.stopping for model, result in summary.results if model in models):
        raise UsageError(
            f"In the layer study in {folder} evaluation stopped as soon as it was decided whether a block's drop"
            " exceeds the effect: the drops are on different items, and only the full table says which blocks are"
            " critical. Run the same study without stopping into that folder, which evaluates the rest, or leave"
            " --study out."
        )
    return summary
