"""Whether an edit is selective: what the intervals and the corrected p of its cells carry, and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lesion.report.values import Estimate
from lesion.report.wording import ALPHA
from lesion.studies.isolation.evaluation import EditedModel, EvaluatedTask, Evaluation, TaskUnderEdit

SUFFERS = 1.05
"""The ratio of perplexities above which, by its whole interval, running text is said to suffer."""


@dataclass(frozen=True)
class Evidence:
    """Whether one edit changes the skill, more than its random controls and more than every informative control.

    For a boost the direction is a gain.

    Attributes:
        effect: of the edit on the skill.
        changed: whether the interval lies beyond 0, and p, corrected over all edits tried, is at most `ALPHA`.
        beyond_random: more than its random controls of every kind; False where it has none.
        beyond_rivals: more than the whole block and MLP that hold most of its weights; None where it has no rivals.
        beyond_controls: more than every informative control, by its name; not where one was not answered.
        suffering: the scored controls that get worse by more than `SUFFERS` and than under random weights.
        strength: the least of the change and its margins over those controls.
    """

    edit: EditedModel
    effect: TaskUnderEdit
    changed: bool
    beyond_random: bool
    beyond_rivals: bool | None
    beyond_controls: Mapping[str, bool]
    suffering: tuple[EvaluatedTask, ...]
    strength: float

    @property
    def beyond_all_else(self) -> bool:
        """More than random controls and, of a boost, than its rivals."""
        return self.beyond_random and self.beyond_rivals is not False

    @property
    def selective(self) -> bool:
        """All of it, and an informative control to tell by."""
        alone = bool(self.beyond_controls) and all(self.beyond_controls.values())
        return self.changed and self.beyond_all_else and alone

    @property
    def order(self) -> tuple[bool, int, float]:
        """Most evidence first, then the largest change beyond every control."""
        parts = (self.changed, self.beyond_random, self.beyond_rivals, all(self.beyond_controls.values()))
        return self.selective, sum(map(bool, parts)), self.strength


def evidence(evaluation: Evaluation, skill: EvaluatedTask, edit: EditedModel) -> Evidence | None:
    """What is known of one edit on a skill; None where the skill was not answered under it."""
    effect = skill.effects.get(edit.edit)
    if effect is None or effect.change.value is None or skill.scored:
        return None
    sign = -1 if edit.boosts else 1  # a gain is a drop below 0
    differences = {
        control.name: evaluation.difference(edit.edit, skill.name, control.name) or Estimate(value=None)
        for control in evaluation.controls
        if control.informative
    }
    margins = [sign * each.value for each in (effect.change, *differences.values()) if each.value is not None]
    drawn = [] if effect.random is None else [effect.random, *effect.matched]
    p = effect.change.p_corrected
    return Evidence(
        edit=edit,
        effect=effect,
        changed=effect.change.side == sign and p is not None and p <= ALPHA,
        beyond_random=bool(drawn) and all(each.beyond.side == sign for each in drawn),
        beyond_rivals=all(rival.beyond.side == sign for rival in effect.rivals) if effect.rivals else None,
        beyond_controls={name: difference.side == sign for name, difference in differences.items()},
        suffering=tuple(c for c in evaluation.controls if c.scored and suffers(c, c.effects.get(edit.edit))),
        strength=min(margins),
    )


def strongest(evaluation: Evaluation, skill: EvaluatedTask, edits: Sequence[EditedModel]) -> Evidence | None:
    """The most selective of a method's edits."""
    known = [measured for edit in edits if (measured := evidence(evaluation, skill, edit)) is not None]
    return max(known, key=lambda each: each.order, default=None)


def suffers(control: EvaluatedTask, effect: TaskUnderEdit | None) -> bool:
    """Whether the interval of a ratio of perplexities lies above `SUFFERS` and above the random controls' ratio."""
    if effect is None or effect.change.low is None or effect.change.high is None:
        return False
    baseline, random = control.baseline.result.value, effect.random
    by_chance = 0.0 if random is None or not baseline else (random.mean or 0.0) / baseline
    return effect.change.low > max(SUFFERS, by_chance)
