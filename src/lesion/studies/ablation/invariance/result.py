"""The result of the invariance: for every family whether the same layers matter in its models, over time and tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from lesion.edits.place import Unit
from lesion.report import wording
from lesion.report.rows import Row, column, derived
from lesion.report.values import POINTS, WHOLE_SHARE, Estimate, Number, Value, decimals

Word = Literal["holds", "does not hold", "cannot tell"]
Subject = Literal["mathematics", "recall", "reading"]
BASE = "base"
"""The variant from which the others of a family were trained."""
CONTROL = "control"
"""With this word the variant of a model begins that no child is: noise in place of training, or another seed."""
SEED = "seed"
"""A control with this word in its variant is a base that was trained from other random numbers."""
FLOOR = 0.05
"""The accuracy that a model must surpass beyond doubt before it can be said to lose a skill."""
FAR = 0.5
"""The other task loses far less where it loses less than this part of what the first one loses."""
Kind = Literal["variant", "time"]
"""Of a pair: two finished models, or a checkpoint with the end of its training."""


class Member(Value):
    """A model in its family.

    Attributes:
        source: as typed, without the revision.
        variant: base, instruct, …
        step: the number in the revision's name where this is a checkpoint before the end of a training, else None.
        parent: what it was trained from, where not the family's base.
        blocks: how many it has, where known.
        distance: ‖W − base‖ / ‖base‖ over all weights, where known.
    """

    model: str
    source: str
    variant: str | None = None
    revision: str | None = None
    step: int | None = None
    parent: str | None = None
    blocks: int | None = None
    distance: Number = None

    @property
    def control(self) -> bool:
        """Whether it stands beside the children as a control."""
        return (self.variant or "").startswith(CONTROL)


class Axis(NamedTuple):
    """One training over time: its checkpoints by step, and what it ended in."""

    checkpoints: tuple[Member, ...]
    end: Member


def axes(members: Sequence[Member]) -> list[Axis]:
    """The trainings of which there are checkpoints; the last one stands for an end that is missing."""
    trainings = []
    for source in dict.fromkeys(member.source for member in members if member.step is not None):
        own = [member for member in members if member.source == source]
        checkpoints = sorted((member for member in own if member.step is not None), key=lambda member: member.step or 0)
        end = next((member for member in own if member.step is None), None)
        end = end or checkpoints.pop().model_copy(update={"step": None})
        if checkpoints:
            trainings.append(Axis(tuple(checkpoints), end))
    return trainings


class Family(Value):
    """Models that come from one base, or checkpoints of one training.

    Attributes:
        family: its name as labelled, or the source of the training.
        base: the model labelled base.
        members: variants with the base first, then checkpoints.
    """

    family: str
    base: str | None
    members: tuple[Member, ...]

    @property
    def finished(self) -> list[Member]:
        """The members at the end of their training."""
        return [member for member in self.members if member.step is None]

    @property
    def children(self) -> list[Member]:
        """The finished members that were trained from the base."""
        return [each for each in self.finished if each.variant != BASE and each.parent is None and not each.control]

    @property
    def controls(self) -> list[Member]:
        """The finished members that are compared with the base and are no children of it."""
        return [member for member in self.finished if member.control]

    @property
    def seeds(self) -> list[Member]:
        """The base, and the controls that are bases of other seeds; empty without such a control."""
        others = {member.model for member in self.controls if SEED in (member.variant or "").split()}
        return [member for member in self.finished if others and member.model in {self.base, *others}]

    @property
    def labels(self) -> dict[str, str]:
        """The name of each model in charts: its variant, or its own name where variants do not tell it."""
        variants = Counter(member.variant for member in self.finished)
        names = {member.model: member.model for member in self.members}
        names |= {each.model: each.variant for each in self.members if each.variant and variants[each.variant] == 1}
        return names | {each.model: f"step {each.step:,}" for each in self.members if each.step is not None}

    @property
    def depths_differ(self) -> bool:
        """Whether the finished models have different numbers of blocks."""
        return len({member.blocks for member in self.finished if member.blocks}) > 1


class Skill(Value):
    """How well one model does a task, and what its cells can tell.

    Attributes:
        able: whether its accuracy is above `FLOOR` beyond doubt; a model that cannot do a task has none to lose.
        critical: layers.
        reliability: expected rank correlation of two such measurements of its drops; None where they rank nothing.
    """

    model: str
    accuracy: float
    able: bool
    critical: tuple[int, ...]
    reliability: Number = None


RHO = decimals(2)
"""A rank correlation."""


class Pair(Row):
    """The order of layers in two models (`statistics.agreement.Agreement`).

    Attributes:
        rho: Spearman's, as measured, with its one-sided p; corrected over the pairs of the family, task and kind.
        true: that of the true profiles, corrected for noise, so that it may lie above `rho`; no interval where it is
            not measurable.
        ceiling: what two measurements of one profile would show.
    """

    a: str
    b: str
    kind: Kind
    rho: Estimate = column("ρ", RHO, p="p")
    true: Estimate = column("ρ without sampling noise", RHO, ends=("low", "high"))
    p_least: Number
    ceiling: Number = column("Ceiling of ρ", RHO)
    same_top: bool
    top_share: Number
    top_two: int


class Overlap(Row):
    """The critical layers of two models against chance (`statistics.agreement.Overlap`).

    Attributes:
        first, second: critical in a and in b, of the layers that both have.
        lost: critical in a, and beyond doubt not in b; `gained`: the other way round.
    """

    a: str
    b: str
    kind: Kind
    first: tuple[int, ...] = column("Critical, other")
    second: tuple[int, ...] = column("Critical, model", key="critical")
    shared: tuple[int, ...]
    expected: float = column("Shared by chance", decimals(1))
    p: Number = column("p, overlap", wording.p_value, key="p_overlap")
    p_least: Number = None
    lost: tuple[int, ...] = column("Surely lost", default=())
    gained: tuple[int, ...] = column("Surely new", default=())

    @derived.column("Shared", key="shared")
    def shared_count(self) -> int:
        """How many are critical in both."""
        return len(self.shared)

    @derived.column()
    def jaccard(self) -> float | None:
        """Shared, of all blocks that are critical in either."""
        either = {*self.first, *self.second}
        return len(self.shared) / len(either) if either else None


class Joint(Value):
    """The critical layers of the base against those of all children together."""

    base: str
    children: tuple[str, ...]
    kept_by_all: tuple[int, ...]
    shared: int
    expected: float
    p: Number
    p_least: Number = None

    @property
    def smallest(self) -> bool:
        """Whether no overlap of so many blocks could have a smaller p."""
        return self.p is not None and self.p_least is not None and self.p <= self.p_least * (1 + 1e-9)


class Onset(Row):
    """From which checkpoint on a layer is critical at all later ones, and the model able.

    Attributes:
        model, step: of that checkpoint; model None: not critical at the end; step None with a model: only at the end.
        after: step of the checkpoint before it, so that it became critical between the two.
        able_from: step of the first checkpoint from which on the model is able; None: only at the end, or never.
        able_after: step of the checkpoint before that.
        critical_at: steps of all checkpoints at which it is critical.
    """

    source: str = column("Training", label=True)
    layer: int = column("Block")
    step: int | None
    model: str | None
    after: int | None
    able_from: int | None
    able_after: int | None
    critical_at: tuple[int, ...] = ()

    @derived.column("Becomes critical")
    def begins(self) -> str:
        """When the block becomes critical for good: `between step 8 and step 64`; empty where it is not at the end."""
        return "" if self.model is None else moment(self.after, self.step)


def moment(after: int | None, step: int | None) -> str:
    """When something came about that is not so at the checkpoint `after`, and is from `step` on."""
    end, measured = "the end", "the only moment measured"
    if step is not None:
        end, measured = f"step {step:,}", "the first measured"
    return f"before {end}, {measured}" if after is None else f"between step {after:,} and {end}"


class FamilyTask(Value):
    """One task in a family: every model that has answered it, and the comparisons."""

    task: str
    subject: Subject | None
    items: int
    layers: tuple[int, ...]
    skills: tuple[Skill, ...]
    pairs: tuple[Pair, ...]
    overlaps: tuple[Overlap, ...]
    joint: Joint | None
    onset: tuple[Onset, ...] = ()

    def skill(self, model: str) -> Skill | None:
        """That of a model; None where it has not answered all that is needed."""
        return next((skill for skill in self.skills if skill.model == model), None)

    def critical(self, model: str) -> tuple[int, ...]:
        """The critical layers of a model."""
        skill = self.skill(model)
        return skill.critical if skill else ()


class BetweenTasks(Row):
    """Two tasks of one model.

    Attributes:
        layers: critical for a; `critical_shared`: for both.
        relative_a, relative_b: share of the accuracy of each that is lost, on average over `layers`.
        alone_a, alone_b: likewise over those of them that are not critical for b.
        difference: relative_a − relative_b; `ratio`: relative_b / relative_a.
        word: whether b loses far less there.
    """

    model: str = column()
    a: str = column("Task", label=True)
    b: str = column("Other task", label=True)
    rho: Estimate = column("ρ, all blocks", RHO)
    true: Estimate = column("ρ without sampling noise", RHO)
    ceiling: Number
    layers: tuple[int, ...] = column("Critical blocks")
    critical_shared: tuple[int, ...] = column("For both")
    relative_a: Number = column("Task loses there", WHOLE_SHARE)
    relative_b: Number = column("Other loses there", WHOLE_SHARE)
    alone_a: Number = column(form=WHOLE_SHARE)
    alone_b: Number = column("Without shared blocks", WHOLE_SHARE)
    difference: Estimate = column("Difference", POINTS)
    ratio: Estimate = column()
    word: Word = column("Loses far less")


class Verdict(Value):
    """Whether the critical blocks stay the same in a family.

    Attributes:
        between: whether other tasks lose far less at those layers; None where there is nothing to compare.
    """

    word: Word
    by_task: dict[str, Word]
    between: Word | None


class FamilyResult(Family):
    """A family with its comparisons, and what follows from them."""

    notes: tuple[str, ...]
    tasks: tuple[FamilyTask, ...]
    between_tasks: tuple[BetweenTasks, ...]
    verdict: Verdict


class Invariance(Value):
    """How far the models of each family agree under edits of one unit and factor; `rule`: how the words are chosen."""

    unit: Unit
    factor: float
    level: float
    thresholds: dict[str, float]
    rule: str
    families: tuple[FamilyResult, ...]
