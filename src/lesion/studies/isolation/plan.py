"""The plan of an evaluation: edits with their matched random controls, kept in `plan.json` beside the answers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lesion.atomic import keep
from lesion.core.values import read_value
from lesion.edits.apply import applied
from lesion.edits.edit import Edit, MatchedIn, Scale, ScaleBlock, ScaleMlp, ScaleParameters, parts, with_factor
from lesion.edits.place import UNITS
from lesion.edits.replace import Replace
from lesion.edits.selections.controls import Matched, Random, left_out, matched_controls
from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.selection import Count, Selection, count
from lesion.edits.units import of_units, site_of
from lesion.edits.weights import written
from lesion.errors import UsageError
from lesion.models.anatomy import Anatomy
from lesion.models.load import Model
from lesion.models.units import Experts, Slices
from lesion.report import wording
from lesion.report.values import Value
from lesion.studies.isolation.evaluation import EditedModel
from lesion.studies.isolation.study import METHODS

PLAN = "plan.json"
BOOSTS = (1.1, 1.25, 1.5)
"""Factors of the block and the MLP that a boost is compared with."""
RIVALS = 2 * len(BOOSTS)
"""Edits that a boost is compared with."""


@dataclass(frozen=True)
class CandidateEdit:
    """An edit to evaluate; of a selection its draw of texts, its counts, and what was seen on texts of its controls."""

    edit: Edit
    samples: int | None = None
    repeat: int | None = None
    counts: Sequence[Count] | None = None
    texts: tuple[Inputs, ...] = ()


class PlannedEdits(NamedTuple):
    """The edits to evaluate with their random controls and rivals, by text form, and what the person should know."""

    entries: tuple[EditedModel, ...]
    edits: Mapping[str, Edit]
    notes: tuple[str, ...] = ()


class EvaluationPlan(Value):
    """What an evaluation consists of, as in `plan.json`.

    Attributes:
        tasks: their kinds by name.
        chance: the accuracy of guessing in 0…1 by task; running text has none.
        validation: the share of items on which an edit is chosen; None: none is chosen.
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

    def role(self, task: str) -> str | None:
        """Whether a task is the skill or a control; None where none is the skill."""
        if self.skill not in self.tasks:
            return None
        return "skill" if task == self.skill else "control"


def plan(
    model: Model,
    candidates: Sequence[CandidateEdit],
    factors: Sequence[float],
    random_controls: int,
    matched_in: Sequence[MatchedIn] = ("count",),
) -> PlannedEdits:
    """Every candidate under every factor with its matched random controls, each tried once, without an answer.

    Two selections with the same count in every matrix, and without the same listed weights, share their random
    controls. A boost, by a factor above 1, has rivals too (`_rivals`).

    Args:
        factors: in place of their own; none of an edit of the spectrum alone.
        matched_in: what random controls share with a selection, so many of each kind.
    """
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
    notes = ["The factor 1 changes nothing and is not asked: it is the baseline."] if unchanged else []
    entries: dict[str, EditedModel] = {}
    edits: dict[str, Edit] = {}
    drawn: dict[tuple[object, ...], list[Edit]] = {}

    def add(edit: Edit, candidate: CandidateEdit, counts: Sequence[Count], **roles: Any) -> None:
        own = "randoms" in roles  # what is tried itself is no control of another
        if str(edit) not in edits and (own or str(edit) not in tried):
            edits[str(edit)] = edit
            entries[str(edit)] = _planned(model, edit, candidate, counts, **roles)

    for text in unchanged:
        del tried[text]
    for text, (edit, candidate) in tried.items():
        counts = _counts(edit, candidate, model)
        controls: dict[str, tuple[MatchedIn, Edit]] = {}
        for kind in matched_in:
            own: tuple[object, ...] = (kind, text)
            if isinstance(edit, ScaleParameters) and kind == "count":
                own = (edit.factor, left_out(edit.selection), *(part.selected for part in counts))
            if own not in drawn:
                texts = _texts(edit, candidate) if kind == "importance" else ()
                lacking = kind == "importance" and not texts
                drawn[own] = [] if lacking else matched_controls(edit, model, random_controls, kind, texts)
            controls |= {str(control): (kind, control) for control in drawn[own]}
            if len(drawn[own]) < random_controls:
                notes.append(_fewer(edit, kind, len(drawn[own]), random_controls))
        rivals = _rivals(edit, counts)
        add(edit, candidate, counts, randoms=tuple(controls), rivals=tuple(map(str, rivals)))
        for kind, control in controls.values():
            add(control, candidate, counts, random_of=text, matched_in=kind)
        for rival in rivals:
            add(rival, CandidateEdit(rival), (), rival_of=text)
    return PlannedEdits(tuple(entries.values()), edits, tuple(notes))


def _rivals(edit: Edit, counts: Sequence[Count]) -> list[Edit]:
    """What a boost must be better than: the block that holds most of its weights, and its MLP, by each of `BOOSTS`."""
    if (_factor(edit) or 0.0) <= 1:
        return []
    selected: Counter[int] = Counter()
    for part in counts:
        if part.block is not None and part.selected:
            selected[part.block] += part.selected
    most = [block for block, _ in selected.most_common(1)]
    return [make(block, factor) for block in most for make in (ScaleBlock, ScaleMlp) for factor in BOOSTS]


def _fewer(edit: Edit, kind: MatchedIn, there: int, wanted: int) -> str:
    """Why an edit has fewer random controls than were asked for."""
    if kind == "count":
        reason = "there are no more places to draw from"
    elif not all(isinstance(part, ScaleParameters) for part in parts(edit)):
        reason = f"only selections of weights are matched in {kind}"
    elif there:
        reason = "no more are different"
    else:
        reason = "the edit does not hold what was observed on texts of controls"
    name = edit.selection.label if isinstance(edit, ScaleParameters) else _label(edit)
    return f"{name}: {there} random controls matched in {kind}, not {wanted}: {reason}."


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
    **roles: Any,
) -> EditedModel:
    about = {"edit": str(edit), "factor": _factor(edit), "random_of": random_of, **roles}
    about |= {"samples": candidate.samples, "repeat": candidate.repeat}
    if not isinstance(edit, ScaleParameters):
        with applied(model, edit):
            touched = [_weights(edit, address, model.anatomy) for address in model.anatomy.scored]
        return EditedModel(
            label=_label(edit),
            digest="",
            method="random" if random_of else "custom",
            selected=sum(touched),
            total=sum(math.prod(matrix.shape) for matrix in model.anatomy.scored.values()),
            **about,
        )
    assert isinstance(candidate.edit, ScaleParameters)
    with written(model, [edit]) as effects:
        before, after = sum(e.before for e in effects), sum(e.after for e in effects)
    selection = edit.selection
    method, share = method_of(candidate.edit.selection)
    taken, selected = left_out(selection), sum(part.selected for part in counts)
    return EditedModel(
        label=selection.text.removesuffix(f"@{selection.digest}"),
        digest=selection.digest,
        without="" if random_of is not None or taken is None else taken.label,
        method="random" if random_of else method,
        keep=share,
        seed=selection.seed if isinstance(selection, Random | Matched) and random_of else None,
        selected=selected,
        size=before / selected,
        total=sum(part.total for part in counts),
        achieved=math.copysign(after / before, edit.factor),
        **about,
    )


def method_of(selection: Selection) -> tuple[str, float | None]:
    """The name of a selection's method and its share, listed weights that were taken away from it aside; `custom` and
    None for what set algebra made otherwise.
    """
    if left_out(selection) is not None:
        selection = selection.parts[0]
    name = "wanda-rows" if getattr(selection, "per", "") == "row" else selection.kind
    if name not in METHODS:
        return ("random", None) if name == "random" else ("custom", None)
    return name, float(getattr(selection, "keep", math.nan))


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
    return any(
        part.selection.touches(address)
        if isinstance(part, ScaleParameters)
        else address == part.address or (isinstance(part, Scale | Replace) and address.startswith(f"{part.address}."))
        for part in parts(edit)
    )


def _label(edit: Edit) -> str:
    """`block 3`, `MLP of blocks 0–3`, where the factor is said beside it; else the edit's text."""
    scaled = [part for part in parts(edit) if isinstance(part, Scale)]
    layers, units = sorted({part.layer for part in scaled}), {part.unit for part in scaled}
    if _factor(edit) is None or len(units) != 1 or not units <= set(UNITS) or len(layers) != len(list(parts(edit))):
        return str(edit)
    unit = units.pop()
    return f"{'' if unit == 'block' else f'{wording.UNIT_NAMES[unit]} of '}{wording.numbered('block', layers)}"


def keep_plan(folder: Path, plan: EvaluationPlan) -> EvaluationPlan:
    """Write what is planned beside the answers, together with what was planned there before."""
    before = read_plan(folder)
    if before is not None:
        edits = {edit.edit: edit for edit in before.edits}
        for edit in plan.edits:
            if edit.random_of is not None and edit.edit in edits:
                continue  # it was tried itself, or is the control of another edit already
            # Random controls that were evaluated before stay the edit's own.
            earlier = edits[edit.edit].randoms if edit.edit in edits else ()
            edits[edit.edit] = edit.model_copy(update={"randoms": tuple(dict.fromkeys([*earlier, *edit.randoms]))})
        notes = tuple(dict.fromkeys([*before.notes, *plan.notes]))
        skill = plan.skill or before.skill
        plan = plan.model_copy(update={"edits": tuple(edits.values()), "skill": skill, "notes": notes})
    keep(folder / PLAN, plan.model_dump_json(indent=1) + "\n")
    return plan


def read_plan(folder: Path) -> EvaluationPlan | None:
    """The plan of an evaluation in a folder; None where there is none."""
    return read_value(EvaluationPlan, folder / PLAN, "remove it and run the command again")
