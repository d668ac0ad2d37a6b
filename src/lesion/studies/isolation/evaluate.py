"""Evaluating: baseline and edits of the weights on the same items, every edit beside its matched random controls."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any

from lesion.atomic import replace
from lesion.core.inference import ask, clamped, identity, missing
from lesion.core.store import Store
from lesion.core.study_file import ModelChoice, Questions
from lesion.edits.edit import Edit, ScaleParameters
from lesion.edits.selections.random_control import Random
from lesion.edits.selections.selection import Count, Selection, count
from lesion.edits.weights import written
from lesion.engines.engine import MakeEngine
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.files import stored_object, understood
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.studies.isolation.evaluation_items import Used, draw_items, seen
from lesion.studies.isolation.evaluation_summary import summarise
from lesion.studies.isolation.select_weights import method_of
from lesion.tasks.catalogue import find

PLAN = "plan.json"


@dataclass(frozen=True)
class Planned:
    """An edit that is evaluated, and what the summary says of it.

    Attributes:
        edit: its text form, under which answers are stored.
        label, digest: of its selection.
        method, keep, samples, repeat: how it came about; None where not known.
        factor: that selected weights are multiplied by.
        random_of: text form of the edit whose matched random control it is, or None.
        seed: of the draw, of a random control.
        randoms: text forms of its matched random controls.
        selected, total: weights.
        achieved: Σ|w| after ÷ before, over what is selected, with the sign of the factor.
    """

    edit: str
    label: str
    digest: str
    method: str
    keep: float | None
    samples: int | None
    repeat: int | None
    factor: float
    random_of: str | None
    seed: int | None
    randoms: tuple[str, ...]
    selected: int
    total: int
    achieved: float

    @property
    def share(self) -> float:
        """Of all weights that could have been selected."""
        return self.selected / self.total


@dataclass(frozen=True)
class Candidate:
    """A selection to evaluate: where it comes from, and its counts where they are known."""

    selection: Selection
    samples: int | None = None
    repeat: int | None = None
    keep: float | None = None
    method: str | None = None
    counts: tuple[Count, ...] | None = None


def plan(
    model: Model,
    candidates: Sequence[Candidate],
    factors: Sequence[float],
    random_controls: int,
    note: Callable[[str], None],
) -> tuple[list[Planned], dict[str, ScaleParameters]]:
    """Every candidate under every factor, each with its random controls, tried once on the model without asking it.

    Two selections with the same count in every matrix share their random controls. A factor of 1 changes nothing and is
    left out with a note: it is the baseline.

    Returns:
        What is planned, and the edits by their text form.

    Raises:
        LesionError: an edit selects nothing or everything, or moves fewer than 99 % of what it selects.
    """
    planned: list[Planned] = []
    edits: dict[str, ScaleParameters] = {}
    drawn: dict[tuple[object, ...], list[str]] = {}
    if 1.0 in factors:
        note("The factor 1 changes nothing and is not asked: it is the baseline.")
    for candidate in candidates:
        selection = candidate.selection
        counts = count(selection, model) if candidate.counts is None else candidate.counts
        for factor in factors:
            if factor == 1.0:
                continue
            edit = ScaleParameters(selection, factor)
            if str(edit) in edits:
                continue
            edits[str(edit)] = edit
            sizes: tuple[object, ...] = (factor, *(c.selected for c in counts))
            controls = [ScaleParameters(Random(selection, seed), factor) for seed in range(random_controls)]
            if sizes in drawn:
                controls = []
            drawn.setdefault(sizes, [str(control) for control in controls])
            planned.append(_planned(model, edit, candidate, counts, randoms=tuple(drawn[sizes])))
            for control in controls:
                edits[str(control)] = control
                planned.append(_planned(model, control, candidate, counts, random_of=str(edit)))
    return planned, edits


def _planned(
    model: Model,
    edit: ScaleParameters,
    candidate: Candidate,
    counts: Sequence[Count],
    random_of: str | None = None,
    randoms: tuple[str, ...] = (),
) -> Planned:
    with written(model, [edit]) as effects:
        before, after = sum(e.before for e in effects), sum(e.after for e in effects)
    selection = edit.selection
    method, keep = method_of(candidate.selection)
    return Planned(
        edit=str(edit),
        label=selection.label,
        digest=selection.digest,
        method="random" if random_of else candidate.method or method,
        keep=keep if candidate.keep is None else candidate.keep,
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


@dataclass(frozen=True)
class Roles:
    """Which of the tasks is the skill, and how an edit is chosen.

    Attributes:
        skill: name of the task, or None where it is not known.
        validation: the share of items on which an edit is chosen; None: none is chosen.
        notes: what the person should know of the edits on these tasks.
        used: which items were calibration texts of the edits; others are asked, as long as there are enough.
    """

    skill: str | None = None
    validation: float | None = None
    notes: tuple[str, ...] = ()
    used: Used = field(default_factory=dict)


def evaluate(
    questions: Questions,
    chosen: ModelChoice,
    model: Model,
    planned: Sequence[Planned],
    edits: Mapping[str, ScaleParameters],
    folder: Path,
    watcher: Watcher,
    roles: Roles | None = None,
    make_engine: MakeEngine = TransformersEngine,
) -> tuple[dict[str, Any], int, int]:
    """Ask the baseline and every edit; a folder of the same questions takes further edits.

    Returns:
        The numbers, as in `summary.json` under `evaluation`; how many answers were asked for, and planned.

    Raises:
        UsageError: a task or a number of items does not exist.
        LesionError: the folder belongs to other questions or cannot be written. Answers given until then are stored.
    """
    tasks = {choice: find(choice.name) for choice in questions.tasks}
    roles = roles or Roles()
    drawn = draw_items(questions, roles.used, folder)
    roles = replace_fields(roles, notes=(*roles.notes, *seen(drawn, roles.used)))
    with Store.open(folder, identity(questions, tasks, drawn), questions.to_toml(), "isolation") as store:
        for choice, items in drawn.items():
            store.add_items(choice.name, items)
        store.add_model(
            model.fingerprint,
            chosen.name,
            {
                "blocks": len(model.anatomy.blocks),
                "family": model.anatomy.family,
                "dtype": (dtype := str(model.dtype).removeprefix("torch.")),
            },
        )
        kinds = {choice.name: task.kind for choice, task in tasks.items()}
        written_plan = _keep_plan(folder, chosen.name, kinds, planned, roles, questions.level, dtype)
        everything: list[Edit] = [edits[entry.edit] for entry in planned]
        cells = missing(questions, chosen, model, tasks, drawn, everything, store)
        total = (len(planned) + 1) * sum(map(len, drawn.values()))
        watcher.begin(chosen.name, total, total - len(cells))
        for text in clamped(model, cells.values()):
            watcher.note(text)
        for counted in ask(make_engine(model, questions.batch_size), model, chosen.name, cells, store):
            watcher.answered(counted)
        summary = summarise(written_plan, store.answers(), store.items())
    return summary, len(cells), total


def _keep_plan(
    folder: Path,
    model: str,
    kinds: Mapping[str, str],
    planned: Sequence[Planned],
    roles: Roles,
    level: float,
    dtype: str,
) -> dict[str, Any]:
    """Write what is planned beside the answers, together with what was planned there before."""
    before = read_plan(folder)
    entries = {entry["edit"]: entry for entry in (before or {}).get("edits", [])}
    for one in planned:
        # Random controls that were asked for before stay the edit's own.
        randoms = dict.fromkeys([*entries.get(one.edit, {}).get("randoms", ()), *one.randoms])
        entries[one.edit] = {**asdict(one), "share": one.share, "randoms": list(randoms)}
    plan = {
        "model": model,
        "dtype": dtype,
        "tasks": dict(kinds),
        "edits": list(entries.values()),
        "skill": roles.skill or (before or {}).get("skill"),
        "validation": roles.validation,
        "level": level,
        "notes": list(dict.fromkeys([*(before or {}).get("notes", []), *roles.notes])),
    }
    try:
        replace(folder / PLAN, json.dumps(plan, indent=1))
    except OSError as error:
        raise LesionError(f"{folder / PLAN} cannot be written: {error.strerror}.") from error
    return plan


def read_plan(folder: Path) -> dict[str, Any] | None:
    """The plan of an evaluation in a folder; None where there is none.

    Raises:
        LesionError: the file is damaged.
    """
    again = "remove it and run the command again"
    plan = stored_object(folder / PLAN, again)
    if plan is not None:
        with understood(folder / PLAN, again):
            plan["tasks"], plan["level"]
            if not all(isinstance(entry["edit"], str) for entry in plan["edits"]):
                raise TypeError("an edit in it is no text")
    return plan
