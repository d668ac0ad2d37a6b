"""An evaluation's summary as values: edits, tasks, and what each edit did to each task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from lesion.errors import LesionError
from lesion.report import wording

Summary = Mapping[str, Any]
METHODS = {
    "mathneuro": "MathNeuro",
    "wanda": "Wanda",
    "wanda-rows": "Wanda per row",
    "lape": "LAPE",
    "magnitude": "magnitude",
    "random": "random",
}
"""How methods are written for people; others as they are."""
RATES = ("truncated", "looped", "unparsed", "nonfinite")
"""How answers ended, as shares."""
ABOVE_CHANCE = 0.10
"""A control can tell only if the lower limit of its unedited accuracy is at least so far above chance: what is at the
floor before an edit has nothing to lose, and would look spared by every edit."""


@dataclass(frozen=True)
class Edited:
    """One edit of an evaluation: what was selected, how, and by what it was multiplied.

    Attributes:
        key: under which its answers are stored.
        random_of: the key of the edit that it is the matched random control of.
        share: selected of all scored weights, in 0…1.
        achieved: the factor that the selected weights really got, after rounding.
    """

    key: str
    label: str
    method: str
    keep: float | None
    samples: int | None
    repeat: int | None
    factor: float
    random_of: str | None
    seed: int | None
    selected: int | None
    total: int | None
    share: float | None
    achieved: float | None

    @property
    def method_name(self) -> str:
        """`MathNeuro`; the edit's own label where the method is not known."""
        return self.label if self.method == "custom" else METHODS.get(self.method, self.method)

    @property
    def name(self) -> str:
        """`MathNeuro, keep 5 %, ×0`, with the repeat where there are several."""
        parts = [self.method_name]
        if self.keep is not None:
            parts.append(f"keep{wording.SPACE}{wording.keep(self.keep)}")
        if self.repeat:
            parts.append(f"repeat{wording.SPACE}{self.repeat}")
        if self.random_of is not None and self.seed is not None:
            parts.append(f"seed{wording.SPACE}{self.seed}")
        return f"{', '.join(parts)}, {wording.factor(self.factor)}"


@dataclass(frozen=True)
class Spread:
    """The matched random controls of an edit on a task.

    Attributes:
        mean: of their accuracies (0…1), or of their perplexities, with the `lowest` and the `highest`.
        drop: their mean drop.
        beyond: how much more the edit drops than they do, with its interval.
    """

    draws: int
    mean: float | None
    lowest: float | None
    highest: float | None
    drop: float | None
    beyond: float | None
    beyond_low: float | None
    beyond_high: float | None


@dataclass(frozen=True)
class Effect:
    """What one edit did to one task.

    Attributes:
        value: the accuracy in 0…1, or the perplexity of a task of kind `score`, with its interval.
        change: the drop in accuracy, or the perplexity's ratio to the baseline's, with its interval.
    """

    edit: Edited
    value: float
    low: float | None
    high: float | None
    change: float | None
    change_low: float | None
    change_high: float | None
    p: float | None
    p_corrected: float | None
    truncated: float | None
    unparsed: float | None
    nonfinite: float | None
    random: Spread | None
    looped: float | None = None


@dataclass(frozen=True)
class Asked:
    """One task of an evaluation: the unedited model on it, and the effect of every edit by key.

    `value`, `low` and `high` are the baseline's accuracy in 0…1, or its perplexity, `None` where not known.
    `chance` is the accuracy of guessing in 0…1, None for perplexity or where it is not known.
    `broken` are the keys of edits under which the measure is not a finite number.
    """

    name: str
    role: str | None
    kind: str
    items: int
    value: float | None
    low: float | None
    high: float | None
    truncated: float | None
    unparsed: float | None
    nonfinite: float | None
    effects: Mapping[str, Effect]
    broken: frozenset[str] = frozenset()
    chance: float | None = None
    looped: float | None = None

    @property
    def informs(self) -> bool:
        """Whether the unedited model is surely above chance (by `ABOVE_CHANCE`), so that a loss could show."""
        if self.scored or self.low is None or self.chance is None:
            return False
        return self.low - self.chance >= ABOVE_CHANCE - 1e-9

    @property
    def guessed(self) -> float | None:
        """Where charts draw a line of chance: only where answers are chosen."""
        return self.chance if self.kind == "choose" else None

    @property
    def scored(self) -> bool:
        """Whether it is measured by perplexity, of which less is better."""
        return self.kind == "score"


@dataclass(frozen=True)
class Difference:
    """How much more an edit takes from the skill than from a control: difference of the drops, with its interval."""

    edit: str
    skill: str
    control: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Evaluation:
    """Everything that an evaluation measured."""

    model: str
    edits: Mapping[str, Edited]
    tasks: tuple[Asked, ...]
    differences: tuple[Difference, ...]
    choice: Mapping[str, Any] | None
    dtype: str | None = None

    @cached_property
    def tried(self) -> tuple[Edited, ...]:
        """The edits that are not the random control of another."""
        return tuple(edit for edit in self.edits.values() if edit.random_of is None)

    @property
    def skills(self) -> list[Asked]:
        """The tasks whose place was sought."""
        return [task for task in self.tasks if task.role == "skill"]

    @property
    def controls(self) -> list[Asked]:
        """The tasks that must survive."""
        return [task for task in self.tasks if task.role == "control"]

    @property
    def colours(self) -> list[str]:
        """Method names in the order of their colours."""
        return list(dict.fromkeys(edit.method_name for edit in self.tried))

    def difference(self, edit: str, skill: str, control: str) -> Difference | None:
        """The selectivity of an edit, where it was worked out."""
        return next((d for d in self.differences if (d.edit, d.skill, d.control) == (edit, skill, control)), None)


def evaluation(summary: Summary) -> Evaluation | None:
    """The summary's `evaluation`, or None where it has none.

    Raises:
        LesionError: it does not have the form that an evaluation writes.
    """
    entry = summary.get("evaluation")
    if not entry:
        return None
    try:
        edits = {edit.key: edit for edit in map(_edited, entry.get("edits") or ())}
        return Evaluation(
            model=str(entry.get("model") or ""),
            edits=edits,
            tasks=tuple(_asked(task, edits) for task in entry.get("tasks") or ()),
            differences=tuple(
                Difference(d["edit"], d["skill"], d["control"], value, number(d.get("low")), number(d.get("high")))
                for d in entry.get("selectivity") or ()
                if (value := number(d.get("difference"))) is not None
            ),
            choice=entry.get("choice") or None,
            dtype=entry.get("dtype"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LesionError(
            f"The summary is not one that an evaluation wrote ({type(error).__name__}: {error}). "
            "Run the evaluation again on the same folder: what was answered is kept."
        ) from error


def number(value: Any) -> float | None:
    """The value as a finite float, or None."""
    return float(value) if value is not None and math.isfinite(value) else None


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _edited(entry: Mapping[str, Any]) -> Edited:
    factor = number(entry.get("factor"))
    return Edited(
        key=str(entry["edit"]),
        label=str(entry.get("label") or entry["edit"]),
        method=str(entry.get("method") or "custom"),
        keep=number(entry.get("keep")),
        factor=0.0 if factor is None else factor,
        random_of=entry.get("random_of"),
        samples=_whole(entry.get("samples")),
        repeat=_whole(entry.get("repeat")),
        seed=_whole(entry.get("seed")),
        selected=_whole(entry.get("selected")),
        total=_whole(entry.get("total")),
        share=number(entry.get("share")),
        achieved=number(entry.get("achieved")),
    )


def _asked(entry: Mapping[str, Any], edits: Mapping[str, Edited]) -> Asked:
    kind = str(entry.get("kind") or "generate")
    measure = "perplexity" if kind == "score" else "accuracy"
    baseline = entry.get("baseline") or {}
    effects = [_effect(cell, edits, measure) for cell in entry.get("cells") or ()]
    return Asked(
        name=str(entry["task"]),
        role=entry.get("role"),
        kind=kind,
        items=int(entry.get("items") or 0),
        value=number(baseline.get(measure)),
        **{name: number(baseline.get(name)) for name in ("low", "high", *RATES)},
        effects={effect.edit.key: effect for effect in effects if effect is not None},
        broken=frozenset(cell["edit"] for cell in entry.get("cells") or () if number(cell.get(measure)) is None),
        chance=number(entry.get("chance", 0.0 if kind == "generate" else None)),
    )


def _effect(cell: Mapping[str, Any], edits: Mapping[str, Edited], measure: str) -> Effect | None:
    value = number(cell.get(measure))
    if value is None:
        return None
    change = "ratio" if measure == "perplexity" else "drop"
    rates = ("low", "high", "p", "p_corrected", *RATES)
    spread = cell.get("random")
    return Effect(
        edit=edits[cell["edit"]],
        value=value,
        change=number(cell.get(change)),
        change_low=number(cell.get(f"{change}_low")),
        change_high=number(cell.get(f"{change}_high")),
        **{name: number(cell.get(name)) for name in rates},
        random=_spread(spread, measure) if spread else None,
    )


def _spread(entry: Mapping[str, Any], measure: str) -> Spread:
    parts = ("lowest", "highest", "drop", "beyond", "beyond_low", "beyond_high")
    return Spread(
        int(entry.get("draws") or 0), number(entry.get(measure)), *(number(entry.get(name)) for name in parts)
    )


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the known values, or None."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
