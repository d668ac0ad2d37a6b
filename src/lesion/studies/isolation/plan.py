"""The plan of an evaluation: edits with their matched random controls, kept in `plan.json` beside the answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lesion.atomic import keep
from lesion.core.apart import NOTHING_USED, Used
from lesion.core.values import read_value
from lesion.edits.apply import applied
from lesion.edits.edit import Edit, MatchedIn, Scale, ScaleBlock, ScaleMlp, ScaleParameters, parts, with_factor
from lesion.edits.matched import matched_controls
from lesion.edits.place import UNITS
from lesion.edits.replace import Replace
from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.matched_control import Matched
from lesion.edits.selections.random_control import Random, left_out
from lesion.edits.selections.selection import Count, count
from lesion.edits.units import of_units, site_of
from lesion.edits.weights import written
from lesion.errors import UsageError
from lesion.models.anatomy import Anatomy
from lesion.models.load import Model
from lesion.models.units import Experts, Slices
from lesion.report import wording
from lesion.report.values import Value
from lesion.studies.isolation.evaluation import EditedModel
from lesion.studies.isolation.selections import method_of

PLAN = "plan.json"
BOOSTS = (1.1, 1.25, 1.5)
"""Factors of the block and the MLP that a boost is compared with."""


@dataclass(frozen=True)
class CandidateEdit:
    """An edit to evaluate: where it comes from; of a selection its counts where they are known, and what was seen on
    the texts of its controls.
    """

    edit: Edit
    samples: int | None = None
    repeat: int | None = None
    counts: Sequence[Count] | None = None
    texts: tuple[Inputs, ...] = ()


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
    used: Used = NOTHING_USED


class EvaluationPlan(Value):
    """What an evaluation consists of, as in `plan.json`: the tasks' kinds by name, the edits, and their `Roles`.

    `chance` is the accuracy of guessing in 0…1 by task; running text has none.
    """

    model: str
    dtype: str
    tasks: dict[str, str]
    chance: dict[str, float]
    edits: tuple[EditedModel, ...]
    skill: str | None
    validation: float | None
    level: float
    notes: tuple[str, ...] = ()

    @property
    def tried(self) -> list[EditedModel]:
        """The edits that are neither the random control nor the rival of another."""
        return [edit for edit in self.edits if edit.tried]


def plan(
    model: Model,
    candidates: Sequence[CandidateEdit],
    factors: Sequence[float],
    random_controls: int,
    note: Callable[[str], None],
    matched_in: Sequence[MatchedIn] = ("count",),
) -> tuple[list[EditedModel], dict[str, Edit]]:
    """Every candidate under every factor with its matched random controls, each tried once, without an answer.

    Two selections with the same count in every matrix, and without the same listed weights, share their random
    controls; a control that is tried itself is planned once. A boost, by a factor above 1, has rivals too (`_rivals`).
    A factor of 1 changes nothing and is left out with a note: it is the baseline.

    Args:
        model: whose edits they are.
        candidates: what is tried.
        factors: in place of their own; none of an edit of the spectrum alone.
        random_controls: of each edit.
        note: takes what the person should know.
        matched_in: what random controls share with a selection, so many of each kind.

    Returns:
        What is planned, and the edits by their text form.

    Raises:
        UsageError: an edit names a place that the model does not have, or has no factor although one is given; or
            all that is tried changes nothing.
        LesionError: an edit selects nothing or everything, or moves fewer than 99 % of what it selects.
    """
    planned: list[EditedModel] = []
    edits: dict[str, Edit] = {}
    drawn: dict[tuple[object, ...], tuple[str, ...]] = {}
    tried: dict[str, tuple[Edit, CandidateEdit]] = {}
    for candidate in candidates:
        for edit in [with_factor(candidate.edit, factor) for factor in factors] or [candidate.edit]:
            tried.setdefault(str(edit), (edit, candidate))
    unchanged = [text for text, (edit, _) in tried.items() if _factor(edit) == 1.0]
    if unchanged and len(unchanged) == len(tried):
        raise UsageError(
            f"{', '.join(unchanged)}: the factor 1 changes nothing, so that there is nothing to evaluate; give another"
            " factor, such as 0."
        )
    if unchanged:
        note("The factor 1 changes nothing and is not asked: it is the baseline.")
    for text, (edit, candidate) in tried.items():
        if text in unchanged:
            continue
        counts = _counts(edit, candidate, model)
        own: dict[str, tuple[MatchedIn, Edit]] = {}
        names: list[str] = []
        for kind in matched_in:
            sizes = (
                (_factor(edit), _without(edit), *(c.selected for c in counts))
                if counts and kind == "count"
                else (text,)
            )
            texts = _texts(edit, candidate) if kind == "importance" else ()
            if (kind, sizes) not in drawn:
                lacking = kind == "importance" and not texts
                controls = [] if lacking else matched_controls(edit, model, random_controls, kind, texts)
                drawn[kind, sizes] = tuple(map(str, controls))
                own |= {str(each): (kind, each) for each in controls}
            names += drawn[kind, sizes]
            if len(drawn[kind, sizes]) < random_controls:
                note(_fewer(edit, kind, len(drawn[kind, sizes]), random_controls))
        rivals = {str(rival): rival for rival in _rivals(edit, counts)}
        planned.append(_planned(model, edit, candidate, counts, randoms=tuple(names), rivals=tuple(rivals)))
        own = {name: each for name, each in own.items() if name not in tried}
        planned += [
            _planned(model, control, candidate, counts, random_of=text, matched_in=kind)
            for kind, control in own.values()
        ]
        edits |= {text: edit, **{name: control for name, (_, control) in own.items()}}
        own_rivals = {name: rival for name, rival in rivals.items() if name not in tried and name not in edits}
        planned += [_planned(model, rival, CandidateEdit(rival), (), rival_of=text) for rival in own_rivals.values()]
        edits |= own_rivals
    return planned, edits


def _rivals(edit: Edit, counts: Sequence[Count]) -> list[Edit]:
    """What a boost must be better than: the block that holds most of its weights, and its MLP, by each of `BOOSTS`."""
    if not counts or (_factor(edit) or 0.0) <= 1:
        return []
    selected: dict[int, int] = {}
    for part in counts:
        if part.block is not None and part.selected:
            selected[part.block] = selected.get(part.block, 0) + part.selected
    if not selected:
        return []
    most = max(selected, key=selected.__getitem__)
    return [make(most, factor) for make in (ScaleBlock, ScaleMlp) for factor in BOOSTS]


def _fewer(edit: Edit, kind: MatchedIn, there: int, wanted: int) -> str:
    """Why an edit has fewer random controls than were asked for."""
    if kind == "count":
        reason = "there are no more places to draw from"
    elif not all(isinstance(part, ScaleParameters) for part in parts(edit)):
        reason = f"only selections of weights are matched in {kind}"
    else:
        reason = (
            "the edit does not hold what was observed on texts of controls" if there == 0 else "no more are different"
        )
    return f"{_name(edit)}: {there} random controls matched in {kind}, not {wanted}: {reason}."


def _name(edit: Edit) -> str:
    return edit.selection.label if isinstance(edit, ScaleParameters) else _label(edit)


def _texts(edit: Edit, candidate: CandidateEdit) -> tuple[Inputs, ...]:
    """What was observed on the texts of an edit's controls: by the isolation, else as the selection holds it."""
    if candidate.texts or not isinstance(edit, ScaleParameters):
        return candidate.texts
    selection = edit.selection.parts[0] if left_out(edit.selection) is not None else edit.selection
    return tuple(each.only() for each in getattr(selection, "controls", ()))


def _factor(edit: Edit) -> float | None:
    """The one factor of an edit; None where it has none or several."""
    factors = {float(part.factor) if isinstance(part, Scale | ScaleParameters) else None for part in parts(edit)}
    return factors.pop() if len(factors) == 1 else None


def _counts(edit: Edit, candidate: CandidateEdit, model: Model) -> Sequence[Count]:
    """How much of every matrix a single selection takes; nothing of any other edit."""
    if not isinstance(edit, ScaleParameters):
        return ()
    return count(edit.selection, model) if candidate.counts is None else candidate.counts


def _planned(
    model: Model,
    edit: Edit,
    candidate: CandidateEdit,
    counts: Sequence[Count],
    random_of: str | None = None,
    rival_of: str | None = None,
    randoms: tuple[str, ...] = (),
    rivals: tuple[str, ...] = (),
    matched_in: MatchedIn = "count",
) -> EditedModel:
    made = {
        "edit": str(edit),
        "random_of": random_of,
        "rival_of": rival_of,
        "randoms": randoms,
        "factor": _factor(edit),
    }
    made |= {"matched_in": matched_in, "rival_of": rival_of, "rivals": rivals}
    made |= {"samples": candidate.samples, "repeat": candidate.repeat}
    if not isinstance(edit, ScaleParameters):
        with applied(model, edit):
            touched = [_weights(edit, address, model.anatomy) for address in model.anatomy.scored]
        return EditedModel(
            label=_label(edit),
            digest="",
            method="random" if random_of else "custom",
            keep=None,
            seed=None,
            selected=sum(touched),
            total=sum(math.prod(matrix.shape) for matrix in model.anatomy.scored.values()),
            achieved=None,
            **made,
        )
    assert isinstance(candidate.edit, ScaleParameters)
    with written(model, [edit]) as effects:
        before, after = sum(e.before for e in effects), sum(e.after for e in effects)
    selection = edit.selection
    method, share = method_of(candidate.edit.selection)
    taken = left_out(selection)
    return EditedModel(
        label=selection.text.removesuffix(f"@{selection.digest}"),
        digest=selection.digest,
        without="" if random_of is not None or taken is None else taken.label,
        method="random" if random_of else method,
        keep=share,
        seed=selection.seed if isinstance(selection, Random | Matched) and random_of else None,
        selected=sum(c.selected for c in counts),
        size=before / sum(c.selected for c in counts),
        total=sum(c.total for c in counts),
        achieved=math.copysign(after / before, edit.factor),
        **made,
    )


def _without(edit: Edit) -> str:
    """The digest of the listed weights that were taken away from a selection; empty where none were."""
    taken = left_out(edit.selection) if isinstance(edit, ScaleParameters) else None
    return "" if taken is None else taken.digest


def _weights(edit: Edit, address: str, anatomy: Anatomy) -> int:
    """How many weights of a matrix an edit changes or takes out of play; of heads and neurons those that read them, of
    an expert all.
    """
    out, into = anatomy.matrix(address).shape
    if _touches(edit, address):
        return out * into
    sliced: dict[Slices, set[int]] = {}
    for part in of_units(edit):
        site, numbers = site_of(part, anatomy)
        if isinstance(site, Experts):
            if anatomy.matrix(address).storage.expert == numbers[0] and anatomy.layer_of(address) == site.layer:
                return out * into
        elif isinstance(site, Slices) and site.address == address:
            sliced.setdefault(site, set()).update(numbers)
    return sum(len(numbers) * out * site.size for site, numbers in sliced.items())


def _touches(edit: Edit, address: str) -> bool:
    """Whether a matrix is truncated, lies in what is scaled or replaced, or is one of which a selection takes some."""
    for part in parts(edit):
        if isinstance(part, ScaleParameters):
            if part.selection.touches(address):
                return True
        elif address == part.address or (isinstance(part, Scale | Replace) and address.startswith(f"{part.address}.")):
            return True
    return False


def _label(edit: Edit) -> str:
    """`block 3`, `MLP of blocks 0–3`, where the factor is said beside it; else the edit's text."""
    scaled = [part for part in parts(edit) if isinstance(part, Scale)]
    layers, units = sorted({part.layer for part in scaled}), {part.unit for part in scaled}
    if _factor(edit) is None or len(units) != 1 or not units <= set(UNITS) or len(layers) != len(list(parts(edit))):
        return str(edit)
    unit = units.pop()
    return f"{'' if unit == 'block' else f'{wording.UNIT_NAMES[unit]} of '}{wording.numbered('block', layers)}"


def keep_plan(
    folder: Path,
    model: str,
    dtype: str,
    tasks: Mapping[str, str],
    chance: Mapping[str, float],
    planned: Sequence[EditedModel],
    roles: Roles,
    level: float,
) -> EvaluationPlan:
    """Write what is planned beside the answers, together with what was planned there before.

    Raises:
        LesionError: the folder cannot be written, or the plan in it is damaged.
    """
    before = read_plan(folder)
    edits = {edit.edit: edit for edit in before.edits} if before else {}
    for edit in planned:
        if edit.random_of is not None and edit.edit in edits:
            continue  # it was tried itself, or is the control of another edit already
        # Random controls that were evaluated before stay the edit's own.
        earlier = edits[edit.edit].randoms if edit.edit in edits else ()
        edits[edit.edit] = edit.model_copy(update={"randoms": tuple(dict.fromkeys([*earlier, *edit.randoms]))})
    whole = EvaluationPlan(
        model=model,
        dtype=dtype,
        tasks=dict(tasks),
        chance=dict(chance),
        edits=tuple(edits.values()),
        skill=roles.skill or (before.skill if before else None),
        validation=roles.validation,
        level=level,
        notes=tuple(dict.fromkeys([*(before.notes if before else ()), *roles.notes])),
    )
    keep(folder / PLAN, whole.model_dump_json(indent=1) + "\n")
    return whole


def read_plan(folder: Path) -> EvaluationPlan | None:
    """The plan of an evaluation in a folder; None where there is none.

    Raises:
        LesionError: the file is damaged.
    """
    return read_value(EvaluationPlan, folder / PLAN, "remove it and run the command again")
