"""The plan of an evaluation: edits with their matched random controls, kept in `plan.json` beside the answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lesion.atomic import keep
from lesion.core.values import Value, read_value
from lesion.edits.edit import ScaleParameters
from lesion.edits.selections.random_control import Random
from lesion.edits.selections.selection import Count, Selection, count
from lesion.edits.weights import written
from lesion.models.load import Model
from lesion.studies.isolation.evaluation import EditedModel
from lesion.studies.isolation.evaluation_items import Used
from lesion.studies.isolation.selections import method_of

PLAN = "plan.json"


@dataclass(frozen=True)
class Candidate:
    """A selection to evaluate: where it comes from, and its counts where they are known."""

    selection: Selection
    samples: int | None = None
    repeat: int | None = None
    counts: Sequence[Count] | None = None


@dataclass(frozen=True)
class Roles:
    """Which of the tasks is the skill, and how an edit is chosen.

    Attributes:
        validation: the share of items on which an edit is chosen; None: none is chosen.
        notes: what a reader should know of the edits on these tasks.
        used: the items that were calibration texts of the edits; others are asked first.
    """

    skill: str | None = None
    validation: float | None = None
    notes: tuple[str, ...] = ()
    used: Used = field(default_factory=dict)


class Plan(Value):
    """What an evaluation consists of, as in `plan.json`: the tasks' kinds by name, the edits, and their `Roles`."""

    model: str
    dtype: str
    tasks: dict[str, str]
    edits: tuple[EditedModel, ...]
    skill: str | None
    validation: float | None
    level: float
    notes: tuple[str, ...] = ()

    @property
    def tried(self) -> list[EditedModel]:
        """The edits that are not the random control of another."""
        return [edit for edit in self.edits if edit.random_of is None]


def plan(
    model: Model,
    candidates: Sequence[Candidate],
    factors: Sequence[float],
    random_controls: int,
    note: Callable[[str], None],
) -> tuple[list[EditedModel], dict[str, ScaleParameters]]:
    """Every candidate under every factor with its random controls, each tried once on the weights, without an answer.

    Two selections with the same count in every matrix share their random controls. A factor of 1 changes nothing and is
    left out with a note: it is the baseline.

    Returns:
        What is planned, and the edits by their text form.

    Raises:
        LesionError: an edit selects nothing or everything, or moves fewer than 99 % of what it selects.
    """
    planned: list[EditedModel] = []
    edits: dict[str, ScaleParameters] = {}
    drawn: dict[tuple[object, ...], list[str]] = {}
    if 1.0 in factors:
        note("The factor 1 changes nothing and is not asked: it is the baseline.")
    for candidate in candidates:
        selection = candidate.selection
        counts = count(selection, model) if candidate.counts is None else candidate.counts
        for edit in (ScaleParameters(selection, factor) for factor in factors if factor != 1.0):
            if str(edit) in edits:
                continue
            sizes = (edit.factor, *(c.selected for c in counts))
            controls = [ScaleParameters(Random(selection, seed), edit.factor) for seed in range(random_controls)]
            controls = [] if sizes in drawn else controls
            drawn.setdefault(sizes, [str(control) for control in controls])
            planned.append(_planned(model, edit, candidate, counts, randoms=tuple(drawn[sizes])))
            planned += [_planned(model, control, candidate, counts, random_of=str(edit)) for control in controls]
            edits |= {str(each): each for each in (edit, *controls)}
    return planned, edits


def _planned(
    model: Model,
    edit: ScaleParameters,
    candidate: Candidate,
    counts: Sequence[Count],
    random_of: str | None = None,
    randoms: tuple[str, ...] = (),
) -> EditedModel:
    with written(model, [edit]) as effects:
        before, after = sum(e.before for e in effects), sum(e.after for e in effects)
    selection = edit.selection
    method, share = method_of(candidate.selection)
    return EditedModel(
        edit=str(edit),
        label=selection.label,
        digest=selection.digest,
        method="random" if random_of else method,
        keep=share,
        samples=candidate.samples,
        repeat=candidate.repeat,
        factor=float(edit.factor),
        random_of=random_of,
        seed=selection.seed if isinstance(selection, Random) and random_of else None,
        randoms=randoms,
        selected=sum(c.selected for c in counts),
        total=sum(c.total for c in counts),
        achieved=math.copysign(after / before, edit.factor),
    )


def keep_plan(
    folder: Path,
    model: str,
    dtype: str,
    tasks: Mapping[str, str],
    planned: Sequence[EditedModel],
    roles: Roles,
    level: float,
) -> Plan:
    """Write what is planned beside the answers, together with what was planned there before.

    Raises:
        LesionError: the folder cannot be written, or the plan in it is damaged.
    """
    before = read_plan(folder)
    edits = {edit.edit: edit for edit in before.edits} if before else {}
    for edit in planned:
        # Random controls that were evaluated before stay the edit's own.
        earlier = edits[edit.edit].randoms if edit.edit in edits else ()
        edits[edit.edit] = edit.model_copy(update={"randoms": tuple(dict.fromkeys([*earlier, *edit.randoms]))})
    whole = Plan(
        model=model,
        dtype=dtype,
        tasks=dict(tasks),
        edits=tuple(edits.values()),
        skill=roles.skill or (before.skill if before else None),
        validation=roles.validation,
        level=level,
        notes=tuple(dict.fromkeys([*(before.notes if before else ()), *roles.notes])),
    )
    keep(folder / PLAN, whole.model_dump_json(indent=1) + "\n")
    return whole


def read_plan(folder: Path) -> Plan | None:
    """The plan of an evaluation in a folder; None where there is none.

    Raises:
        LesionError: the file is damaged.
    """
    return read_value(Plan, folder / PLAN, "remove it and run the command again")
