"""Whether the models of a family depend on the same blocks: base, children, and controls that were not trained; whether
other tasks lose far less at these blocks; and when they become critical over a training of which there are checkpoints.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any, Literal

from lesion.core.values import alike
from lesion.report import wording
from lesion.report.blocks import Folded, Prose
from lesion.report.claims import Claim, Standing, rule
from lesion.report.marks import Bars, Curves, Map
from lesion.report.parts import Part
from lesion.report.rows import Row, Rows, column, subject
from lesion.report.table import Table
from lesion.report.values import POINTS, WHOLE_SHARE, Form, Number
from lesion.statistics.paired import ALPHA
from lesion.studies.ablation.cell import Cell
from lesion.studies.ablation.invariance.judged import (
    between_claimed,
    claimed,
    controls,
    decided,
    facts,
    sets_with,
    with_base,
)
from lesion.studies.ablation.invariance.result import (
    RHO,
    BetweenTasks,
    FamilyResult,
    FamilyTask,
    Onset,
    Overlap,
    Pair,
    Word,
    axes,
    moment,
)
from lesion.studies.ablation.result import Material

Role = Literal["child", "control", "sibling", "end"]
STANDING: dict[Word, Standing] = {"holds": "holds", "does not hold": "fails", "cannot tell": "unknown"}


class InFamily(Row):
    """Which family and task a line is about."""

    family: str = column("Family", label=True)
    task: str = column("Task", label=True)

    @classmethod
    def of(cls, family: FamilyResult, task: FamilyTask) -> InFamily:
        """That of a family's task."""
        return InFamily(family=family.family, task=task.task)


class Compared(InFamily):
    """Two models of a family on one task; their `Pair` and `Overlap` stand beside it.

    Attributes:
        role: of the model: a child of the base or a control, against the base or against each other (`sibling`: two
            children), or the end of the training that the other is a checkpoint of.
        distance: ‖W − base‖ / ‖base‖ of the model, where known; accuracy: of the model, unedited.
    """

    model: str = column("Model", label=True)
    against: str = column("Against", label=True)
    role: Role = column("Is a")
    distance: Number = column("‖ΔW‖/‖W‖", Form(2, significant=True), default=None)
    accuracy: Number = column("Accuracy", WHOLE_SHARE, default=None)


class FamilyPlace(InFamily):
    """Which block of which model of a family a cell is about.

    Attributes:
        name: of the model in its family; model: its own.
        depth: of the block: 0 is the first, 1 the last.
        lost_share: of the model's own accuracy.
        depths_differ: whether the family has models of different depth.
    """

    name: str = column("Model", label=True)
    depth: Number = column("Depth", WHOLE_SHARE)
    lost_share: Number = column("Accuracy lost", WHOLE_SHARE)
    depths_differ: bool
    blocks: int | None = None
    model: str


def compared(family: FamilyResult, task: FamilyTask) -> Iterator[tuple[Compared, Pair, Overlap]]:
    """Every two models of a family that can be compared on a task."""
    members, names = {member.model: member for member in family.members}, family.labels
    for pair, sets in zip(task.pairs, task.overlaps, strict=True):
        member, skill = members[pair.b], task.skill(pair.b)
        roles: dict[Role, bool] = {
            "end": pair.kind == "time",
            "control": member.control,
            "child": pair.a == family.base,
        }
        labels = Compared(
            **dict(InFamily.of(family, task)),
            model=names[pair.b],
            against=names[pair.a],
            role=next((role for role, so in roles.items() if so), "sibling"),
            distance=member.distance,
            accuracy=skill and skill.accuracy,
        )
        yield labels, pair, sets


def _tables(families: Sequence[FamilyResult]) -> Iterator[Table]:
    """Every family's models against its base, its bases of other seeds against each other, and all other pairs."""
    caption = (
        "ρ: rank correlation of the drops over blocks; p one-sided over orders of the blocks. Without noise: of the"
        " true drops, with the interval of a bootstrap over items. By chance: two random sets of these sizes."
        " Surely lost: in the model the whole interval of the drop is too small; surely new: the reverse."
    )
    slugs = [re.sub(r"[^A-Za-z0-9._-]+", "-", family.family)[:60] for family in families]
    for at, family in enumerate(families):
        slug = slugs[at]
        if slugs.count(slug) > 1:
            slug += f"-{at + 1}"
        pairs = [row for task in family.tasks for row in compared(family, task)]
        seeds = {member.model for member in family.seeds}
        with_base = [row for row in pairs if row[1].a == family.base and row[1].kind == "variant"]
        of_seeds = [row for row in pairs if {row[1].a, row[1].b} <= seeds]
        others = [row for row in pairs if row not in with_base and row not in of_seeds]
        for kind, title, rows in (
            ("controls", "against the base", with_base),
            ("seeds", "other seeds", of_seeds),
            ("pairs", "other pairs", others),
        ):
            if rows:
                title = f"{family.family}: {title}"
                yield Table.of(Rows(f"{kind}-{slug}", rows, (Compared, Pair, Overlap), title, caption))


def cells(material: Material) -> Iterator[tuple[FamilyResult, FamilyPlace, Cell]]:
    """Every block of every model of the families, under the unit and factor that are compared."""
    shared = material.summary.invariance
    if shared is None:
        return
    curves = [curve for curve in material.curves if (curve.unit, curve.factor) == (shared.unit, shared.factor)]
    for family in shared.families:
        blocks = {member.model: member.blocks or 1 for member in family.members}
        for curve in (curve for curve in curves if curve.model in blocks):
            whole = curve.result.baseline.accuracy.value or math.nan
            of_family: dict[str, Any] = {"family": family.family, "name": family.labels[curve.model]}
            of_family |= {**dict(curve.labels), "depths_differ": family.depths_differ, "blocks": blocks[curve.model]}
            last = blocks[curve.model] - 1 or math.nan
            for cell in curve.cells:
                yield family, FamilyPlace(**of_family, depth=cell.layer / last, lost_share=cell.size / whole), cell


@rule
def same_blocks(families: Sequence[FamilyResult]) -> Iterable[Claim]:
    """Of every family, whether its children depend on the blocks of the base, and whether that could have failed.

    Says: All (S of the) N blocks critical for A in the children are critical in the base too; chance would give C. | A
    child no longer needs block L, or has its blocks in another order of importance. | Whether A depends on the same
    blocks in base and children cannot be told: why. | A control agrees less (as well, so that the agreement is no
    evidence of what training keeps). | Not compared with noise of the same size.
    Needs: the rule that the page states (`judged.RULE`): an overlap of critical blocks beyond chance and, where it can
    be measured, an order of blocks that agrees beyond chance, beside controls that agree less
    """
    for family in families:
        words = family.verdict.by_task
        tasks = sorted(claimed(family.tasks), key=lambda task: words[task.task] != family.verdict.word)
        for task in tasks[:1]:
            every, shared = facts(family, task), _shared(family, task)
            why = "; ".join(fact.text for fact in decided(every)[:2])
            agreed = all(fact.side in ("favour", "uncontrolled") for fact in every)
            names = wording.listed([family.labels[child.model] for child in family.children]) or "children"
            question = f"Whether {task.task} depends on the same blocks in {names} as in the base cannot be told"
            sentences = [f"{question}: {why}.", shared, shared and _controls(family, task, agreed=True)]
            if words[task.task] == "does not hold":
                sentences = [f"{why}.", shared, _controls(family, task, agreed=False)]
            elif agreed:
                sentences = [shared, _order(family, task), _controls(family, task, agreed=True)]
            rows = tuple(row for row in compared(family, task) if row[1].a == family.base)
            named = subject(InFamily.of(family, task), [InFamily.of(each, task) for each in families])
            yield Claim(tuple(filter(None, sentences)), rows, named, standing=STANDING[words[task.task]])


def _shared(family: FamilyResult, task: FamilyTask) -> str:
    """`All 15 blocks critical for sums in the children are critical in the base too; chance would give 9.4.`"""
    joint = task.joint
    if joint is None or joint.p is None or joint.p > ALPHA:
        return ""
    count = sum(len(task.critical(child)) for child in joint.children)
    of = {count: f"All {count}"}.get(joint.shared, f"{joint.shared} of the {count}")
    children = {1: family.labels[joint.children[0]]}.get(len(joint.children), "the children")
    p = f"p{wording.SPACE}{wording.p_value(joint.p)}{', the smallest possible' * joint.smallest}"
    return (
        f"{of} blocks critical for {task.task} in {children} are critical in the base too; chance would give"
        f" {joint.expected:.1f} ({p})."
    )


def _order(family: FamilyResult, task: FamilyTask) -> str:
    """Blocks that a child has lost; where there are none, the child whose order of blocks is least like the base's."""
    orders = with_base(family.base or "", [child.model for child in family.children], task)
    gone = {child: sets.lost for child, sets in sets_with(family.base, task).items() if child in orders and sets.lost}
    lost = [f"{wording.numbered('block', blocks)} in {family.labels[child]}" for child, blocks in gone.items()]
    if lost:
        return f"No longer needed: {wording.listed(lost)}."
    known = (pair for pair, p in orders.values() if p is not None)
    least = min(known, key=lambda pair: pair.rho.value or 0.0, default=None)
    if least is None:
        return "The drops over all blocks are too alike or too noisy to be ranked."
    return f"The order of all blocks is least like the base's in {family.labels[least.b]} ({_agreeing(least)})."


def _agreeing(pair: Pair) -> str:
    """`ρ 0.94 [0.92, 1.00] without sampling noise`; as measured where the noise cannot be taken out."""
    if pair.true.low is None:
        return f"ρ {RHO(pair.rho.value)}"
    return f"ρ {RHO.text(pair.true)} without sampling noise"


def _controls(family: FamilyResult, task: FamilyTask, *, agreed: bool) -> str:
    """What the control that is most like the base does; noise of the same size is missed where it was not measured."""
    every = controls(family, task)
    missing = f"not compared with noise of the same size (`lesion perturb {family.base} --like CHILD`)"
    if not every:
        return f"{wording.capital(missing)}: whether it could have come out otherwise cannot be told." * agreed
    nearest = every[0]
    numbers = _agreeing(nearest.pair)
    if nearest.sets and nearest.sets.first:
        numbers += f", {len(nearest.sets.shared)} of {len(nearest.sets.first)} critical blocks kept"
    if nearest.less:
        only_seeds = f"; {missing}" * (agreed and all(control.seed for control in every))
        return f"Every control is less like the base than every child (nearest: {nearest.name}, {numbers}){only_seeds}."
    text = f"The nearest control, {nearest.name}, is not shown to be less like the base ({numbers})"
    return f"{text}{', so this is no evidence of what training keeps' * agreed}."


def part(material: Material) -> Part | None:
    """The critical blocks of every family side by side, and how far every two models agree; None without families."""
    shared = material.summary.invariance
    if shared is None or not shared.families:
        return None
    finished = {member.model for family in shared.families for member in family.finished}
    strips = [(place, cell) for _, place, cell in cells(material) if place.model in finished]
    reasons = tuple(
        f"{family.family}, {task.task}, {family.verdict.by_task[task.task]}: {fact.text}."
        for family in shared.families
        for task in family.tasks
        for fact in decided(facts(family, task))
    )
    place = wording.UNIT_NAMES[shared.unit]
    maps = Map(
        "lost_share", "layer", "name", boxed="critical", full=1.0, panel=("family", "task"), name="invariance",
        depth="blocks",
        caption=f"Share of the model's own accuracy that is lost without a {place}. Boxed: critical.",
    ).figure(strips, "invariance")  # fmt: skip
    depths = Curves(
        "accuracy", "depth", "name", panel=("family", "task"), only={"depths_differ": True}, low=0.0, high=100.0,
        name="invariance-depth", caption=f"Accuracy without a {place}, over its depth: 0 % is the first.",
    )  # fmt: skip
    return Part(
        "The same blocks in base and children?",
        Rows("invariance", strips, (FamilyPlace, Cell)),
        (depths,),
        same_blocks(shared.families),
        " ".join(note for family in shared.families for note in family.notes),
        "Invariance",
        own=(
            Folded("Model by model", tuple(filter(None, (maps, *_tables(shared.families))))),
            Folded("Task by task, and how the words are chosen", (Prose((shared.rule,), reasons),)),
        ),
        wide=True,
        table=False,
    )


class InModel(Row):
    """Which model of which family a line is about.

    Attributes:
        name: of the model in its family.
        claimed: whether the word of the family is about the first task, and not about the other.
    """

    family: str = column("Family", label=True)
    name: str = column("Model", label=True)
    claimed: bool


@rule
def less_elsewhere(families: Sequence[FamilyResult]) -> Iterable[Claim]:
    """What the tasks that a family's word is about lose at their critical blocks, against what other tasks do.

    Says: Cutting a block critical for A costs it S % of its accuracy on average, other tasks T %. | … nearly all of it
    through blocks that are critical for both. | Whether others lose less than half as much cannot be told.
    Needs: what the other task loses ÷ what A loses, at the blocks critical for A: below 0.5 by its bootstrap interval
    over items in every model and task (far less), above it in one (not)
    """
    for family in families:
        entries = between_claimed(family.tasks, family.between_tasks)
        if not entries or family.verdict.between is None:
            continue
        skill = wording.listed(list(dict.fromkeys(entry.a for entry in entries)))
        others = wording.listed(list(dict.fromkeys(entry.b for entry in entries)))
        own, other = (
            WHOLE_SHARE.text(fmean(getattr(entry, f"relative_{side}") or 0.0 for entry in entries)) for side in "ab"
        )
        lead = f"Cutting a block critical for {skill} costs it {own} of its accuracy on average, {others} {other}"
        yield Claim(
            (f"{lead}{_without_shared(entries)}.", _extreme(family, entries)),
            tuple(entries),
            family.family * (len(families) > 1),
            standing=STANDING[family.verdict.between],
        )


def _without_shared(entries: Sequence[BetweenTasks]) -> str:
    """How much of it is left without the blocks that are critical for both."""
    both = sorted({layer for entry in entries for layer in entry.critical_shared})
    alone = [entry.alone_b for entry in entries if entry.alone_b is not None]
    if not both or not alone:
        return ""
    return f" ({WHOLE_SHARE.text(fmean(alone))} without {wording.numbered('block', both)}, critical for both)"


def _extreme(family: FamilyResult, entries: Sequence[BetweenTasks]) -> str:
    """The comparison that decides: the one in which the other task loses most beside the first."""
    most = max(entries, key=lambda entry: entry.ratio.value or 0.0)
    difference = f"the difference is {POINTS.text(most.difference)} ({most.b} in {family.labels[most.model]})"
    begin, end = {"holds": ("E", ""), "does not hold": ("Not e", ""), "cannot tell": ("Whether e", " cannot be told")}[
        family.verdict.between or "cannot tell"
    ]
    return f"{begin}very other task loses less than half as much{end}; where it is least clear, {difference}."


def other_tasks(material: Material) -> Part | None:
    """Every two tasks of every model of the families; None where there are none."""
    families = material.summary.families
    records = []
    for family in families:
        relevant = between_claimed(family.tasks, family.between_tasks)
        records += [
            (InModel(family=family.family, name=family.labels[entry.model], claimed=entry in relevant), entry)
            for entry in family.between_tasks
        ]
    if not records:
        return None
    rows = Rows(
        "between-tasks", records, (InModel, BetweenTasks), "Pairs of tasks",
        "Lost: share of the model's accuracy (where answers are chosen, above guessing) that is lost without a block,"
        " averaged over the blocks critical for the first task.",
    )  # fmt: skip
    mark = Bars(
        "difference", ("name", "b"), panel=("family", "a"), only={"claimed": True}, name="other-tasks",
        caption="What the task loses at its critical blocks minus what the other loses there, as shares of accuracy.",
    )  # fmt: skip
    own_claims = less_elsewhere(families)
    return Part("Do other tasks need these blocks?", rows, (mark,), own_claims, short="Other tasks", wide=True)


@rule
def over_training(families: Sequence[FamilyResult]) -> Iterable[Claim]:
    """When a training learned a task, and since when the blocks that are critical at its end are.

    Says: In the training of M, A is learned between step S and step T, with blocks L critical by then. | Later block L
    becomes critical. | At the end of the training of M no block is shown to be critical for A.
    Needs: critical at a checkpoint and at all later ones, where the model can do the task
    """
    tasks = [(InFamily.of(family, task), task) for family in families for task in claimed(family.tasks)]
    every = [labels for labels, _ in tasks]
    for labels, onsets in ((labels, own) for labels, task in tasks for own in alike(task.onset, "source")):
        source = onsets[0].source
        ending = [onset for onset in onsets if onset.model is not None]
        sentences = [f"At the end of the training of {source} no block is shown to be critical for {labels.task}."]
        if ending:
            able = ending[0].able_from
            at_once = [onset.layer for onset in ending if onset.step == able]
            by_then = f", with {wording.numbered('block', at_once)} critical by then" * bool(at_once)
            learned = moment(ending[0].able_after, able)
            later = [f"block{wording.SPACE}{onset.layer} {onset.begins}" for onset in ending if onset.step != able]
            sentences = [f"In the training of {source}, {labels.task} is learned {learned}{by_then}."]
            sentences += [f"Critical later: {wording.listed(later)}."] * bool(later)
        yield Claim(tuple(sentences), tuple((labels, onset) for onset in ending), subject(labels, every))


def training(material: Material) -> Part | None:
    """Drops over every training, a line per checkpoint; None where there are no checkpoints."""
    families = material.summary.families
    records = []
    for family, place, cell in cells(material):
        for axis in axes(family.members):
            models = [member.model for member in (*axis.checkpoints, axis.end)]
            if place.model in models:
                records.append((models.index(place.model), (_at_checkpoint(family, place), cell)))
    if not records:
        return None
    drawn = [cell for _, cell in sorted(records, key=lambda each: each[0])]
    onsets = [
        (InFamily.of(family, task), onset) for family in families for task in family.tasks for onset in task.onset
    ]
    table = Table.of(Rows("onset", onsets, (InFamily, Onset), "Onset"))
    mark = Map(
        "drop", "layer", "name", boxed="critical", panel=("family", "task"), name="training",
        caption="Drop in points without a block, a line per checkpoint, with what the unedited model has right. Boxed:"
        " critical. Nothing can be critical before the model can do the task.",
    )  # fmt: skip
    return Part(
        "When do blocks become critical?",
        Rows("training", drawn, (FamilyPlace, Cell)),
        (mark,),
        over_training(families),
        short="Training",
        own=(Folded(table.title, (table,)),),
        table=False,
    )


def _at_checkpoint(family: FamilyResult, place: FamilyPlace) -> FamilyPlace:
    """The place under the name of its checkpoint with the accuracy of the unedited model."""
    skills = [task.skill(place.model) for task in family.tasks if task.task == place.task]
    whole = [f" ({100 * skill.accuracy:.0f}{wording.SPACE}%)" for skill in skills if skill is not None]
    return place.model_copy(update={"name": place.name + "".join(whole)})
