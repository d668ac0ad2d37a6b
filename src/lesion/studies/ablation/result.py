"""The result of a layer study: per model and task the unedited model, and every edit with its drop and its tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from lesion.core.sharing import OverClusters, Sharing
from lesion.core.values import SUMMARY, Endings, Estimate, Number, Summary, Value, read_summary, summary_kind
from lesion.edits.place import Part, Unit
from lesion.edits.units import scaling
from lesion.errors import UsageError, nearest
from lesion.files import named
from lesion.statistics.critical import rule
from lesion.statistics.sequential import Decision
from lesion.studies.ablation.curves import Curve, View, of_model, views
from lesion.studies.ablation.invariance.result import Invariance
from lesion.studies.ablation.study import StopPlan, Study
from lesion.studies.ablation.sweep import Factor, Replacement, text_of


class Scores(Endings):
    """Accuracy over items, and how their answers ended."""

    items: int
    accuracy: Estimate


class Place(Value):
    """One block, one branch or one inner unit of it, under a factor or a replacement.

    Attributes:
        factor: what multiplies it, or the kind of what replaces it: `mean`, `position`, `resample`, `resample 1`,
            `optimal`.
        reference: the digest of what a replacement is taken from.
        part: the number of the head, key-value group, neuron or expert, or the name of the matrix; None of a block or
            branch.
    """

    layer: int
    unit: Unit
    factor: Factor
    reference: str = Field(default="", exclude_if=lambda digest: not digest)
    part: Part | None = Field(default=None, exclude_if=lambda part: part is None)

    @property
    def edit(self) -> str:
        """The text form of the edit, under which its answers are stored."""
        if isinstance(self.factor, str):
            place = scaling(self.unit, self.layer, 0.0, self.part).address
            return text_of(Replacement(place, self.factor, (("", self.reference),)), "")
        return str(scaling(self.unit, self.layer, self.factor, self.part))


class Cell(Place, Scores):
    """One edit on one task.

    Attributes:
        drop: baseline accuracy minus that under the edit, on the same items; p of "the edit changes nothing".
        p_critical: of "the edit takes at most half of the accuracy"; `p_critical_corrected`: by Holm over the layers.
        critical: only of a full table.
        p_spared: of "the edit takes at least a quarter of the accuracy"; `p_spared_corrected`: by Holm over the layers.
        spared: that it takes less, by this test; only of a full table.
        margin: of tasks that compare two tokens, how much of the difference of their log-probabilities is lost, in
            nats; p of "nothing", corrected by Holm over the layers.
        clustered: the drop's interval over the clusters that items share; None where there are none.
        decided: where evaluation stopped, whether the drop exceeds the effect.
        baseline: where evaluation stopped, the unedited model on the items of this cell.
    """

    drop: Estimate
    p_critical: Number = None
    p_critical_corrected: Number = None
    critical: bool | None = None
    p_spared: Number = None
    p_spared_corrected: Number = None
    spared: bool | None = None
    margin: Estimate | None = Field(default=None, exclude_if=lambda margin: margin is None)
    clustered: OverClusters | None = Field(default=None, exclude_if=lambda clustered: clustered is None)
    decided: Decision | None = None
    baseline: Scores | None = None

    @property
    def marked(self) -> bool:
        """Whether it is critical; where evaluation stopped, whether its drop exceeds the effect."""
        return bool(self.critical) if self.decided is None else self.decided == "exceeds"


class AtShare(Value):
    """The layers that would be critical if this share of the baseline's accuracy had to be lost."""

    share: float
    critical: tuple[int, ...]


class Sensitivity(Value):
    """What the rule can find under one unit and factor (`statistics.critical`); of inner units without `shares`.

    Attributes:
        tests: layers over which Holm's correction goes.
        right: items that the baseline has right.
        smallest_loss: a share of the baseline's accuracy; None where nothing can be critical.
    """

    unit: Unit
    factor: Factor
    tests: int
    right: int
    fewest_right: int
    power: float
    smallest_loss: Number
    shares: tuple[AtShare, ...]


class Stopped(Value):
    """How a task was evaluated that stops a cell once it is decided: `items` were drawn; `finished`: none is left."""

    effect: float
    level: float
    items: int
    finished: bool


class Loss(Place):
    """What one edit takes of the gold solutions.

    Attributes:
        lost: log-probability per token in nats; no value where some item has none under the edit.
        rank: 1 where most is lost, among the layers of one unit and factor.
        nonfinite: items without a number under the edit.
    """

    lost: Estimate
    lost_per_answer: Number
    nonfinite: int
    rank: int


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
    top: int | None = Field(default=None, exclude_if=lambda top: top is None)


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


class TaskResult(Value):
    """One model on one task.

    Attributes:
        items: of the baseline; where evaluation stopped, the most that any cell has.
        planned: layers that the finished study will have.
        sensitivity: per unit and factor; of full tables only.
        stopping: None in a full table.
        guessing: the accuracy of guessing, in 0…1; 0 where it is not known.
        shared: what items share; None where its groups are no clusters, and where evaluation stopped.
        contrasts: of kinds of ablation, where there are several; of full tables only.
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
    shared: Sharing | None = Field(default=None, exclude_if=lambda shared: shared is None)
    contrasts: tuple[KindContrast, ...] = Field(default=(), exclude_if=lambda contrasts: not contrasts)

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


class TextUnderEdit(Place):
    """Running text under one edit.

    Attributes:
        perplexity: of a token; None where it is not finite.
        ratio: to the perplexity of the unedited model on the same texts; p of "it is 1".
    """

    perplexity: Estimate
    ratio: Estimate


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

    def of(self, unit: Unit, factor: Factor) -> tuple[TextUnderEdit, ...]:
        """The cells of one unit and factor by layer."""
        chosen = (cell for cell in self.cells if (cell.unit, cell.factor) == (unit, factor))
        return tuple(sorted(chosen, key=lambda cell: cell.layer))


class ModelResult(Value):
    """One model on all tasks of which its baseline is complete; those of running text apart."""

    model: str
    tasks: tuple[TaskResult, ...]
    texts: tuple[TextResult, ...] = ()


class Prospect(Value):
    """What the planned tests of one kind on one task can find, before any answer, if the baseline is this accurate.

    Attributes:
        baseline: the accuracy assumed of the unedited model.
        loss: the share of it that the edit is assumed to take.
        power: the chance that a place is called as expected then (`statistics.power`).
        detectable: the smallest loss called critical, or the largest called spared, with 80 % power; None: none.
        needed: about how many items give 80 % power at that loss; None: too many.
    """

    task: str
    expect: str
    items: int
    tests: int
    baseline: float
    loss: float
    power: float
    detectable: Number = None
    needed: int | None = None


class Outcome(Value):
    """One hypothesis of a plan on one model.

    Attributes:
        p: of its own exact test; p_corrected: by Holm over the tests of the plan; None where it is not measured yet.
        confirmed: whether the test passes; None where it is not measured.
        right: items that the baseline has right.
        detectable: with these, the smallest loss that is called critical with 80 % power, or the largest called spared,
            as a share of the baseline's accuracy; None where none is.
    """

    model: str
    task: str
    place: str
    expect: str
    factor: Factor
    drop: Estimate | None = None
    p: Number = None
    p_corrected: Number = None
    confirmed: bool | None = None
    right: int | None = None
    detectable: Number = None


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
    def rule(self) -> str:
        """By which rule places are marked, as a sentence."""
        return rule() if self.study.stop is None else stopped_rule(self.study.stop)

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
        return tuple(curve for model in self.models for curve in of_model(model))

    @property
    def several(self) -> tuple[bool, bool]:
        """Whether there are several models, and several units or factors."""
        curves = self.curves
        return len({curve.model for curve in curves}) > 1, len({(curve.unit, curve.factor) for curve in curves}) > 1

    @property
    def views(self) -> tuple[View, ...]:
        """What is drawn together."""
        return views(self.curves)


def read_layers(folder: Path) -> AblationSummary | None:
    """The summary of a layer study in a folder; None where it has none, or one of another kind.

    Raises:
        LesionError: the file is damaged.
    """
    if summary_kind(folder) != "layers":
        return None
    return read_summary(AblationSummary, folder, f"`lesion report {folder}` writes it anew")


def read_finished(folder: str | Path, models: Sequence[str]) -> AblationSummary:
    """The full table of a layer study that somebody named, of one of these models at least.

    Raises:
        UsageError: there is no such study in the folder, it is about other models, or evaluation stopped before its
            full table.
        LesionError: its `summary.json` cannot be read, or is damaged.
    """
    path = named(folder, "study") / SUMMARY
    if not path.is_file():
        raise UsageError(
            f"There is no {path}; --study is the folder of a finished layer study, such as `lesion ablate` leaves it."
        )
    summary = read_layers(path.parent)
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


def stopped_rule(stop: StopPlan) -> str:
    """What a study decides that stops cells once they are decided, as a sentence for reports."""
    return (
        f"Asking stopped as soon as a cell was decided. A place exceeds the effect when its drop exceeds"
        f" {100 * stop.effect:g} points, on all items of the study and beyond them, and it does not when its drop on"
        f" all of them does not; inferred from the items asked so far by e-values from bets, with {stop.rule} over the"
        f" layers of one model, task, unit and factor. {_limited(stop)} What was not decided is open. Which places are"
        f" critical, only a full table says."
    )


def _limited(stop: StopPlan) -> str:
    """What error a stopped study limits."""
    if stop.rule == "e-Holm":
        return (
            f"The family-wise error is at most {100 * stop.level:g} %: that is the chance that any of these layers is"
            " wrongly called exceeding, on all items and beyond them, and the chance that any is wrongly called not,"
            " on all items."
        )
    return (
        f"The false discovery rate is at most {100 * stop.level:g} %: that is the expected share of wrong ones among"
        " the places called exceeding, on all items and beyond them, and among those called not, on all items. It does"
        " not limit the chance of any wrong call in a study."
    )
