"""Whether an edit is selective: what the intervals and the corrected p of its cells carry, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lesion.report.values import Estimate
from lesion.report.wording import ALPHA
from lesion.studies.isolation.evaluation import EditedModel, EvaluatedTask, Evaluation, TaskUnderEdit

SUFFERS = 1.05
"""The ratio of perplexities above which, by its whole interval, running text is said to suffer."""


@dataclass(frozen=True)
class Evidence:
    """Whether one edit changes the skill, more than its random controls and more than every informative control.

    Each is True or False by its interval, or None where that was not measured. For `boost` the direction is a gain.

    Attributes:
        corrected: p on the skill, corrected over all edits tried, is at most `ALPHA`.
        beyond_random: more than its random controls of every kind.
        beyond_rivals: more than the whole block and MLP that hold most of its weights; None where it has no rivals.
        beyond_controls: over the informative controls; None where there is none, or one was not answered.
        suffering: the scored controls that get worse by more than `SUFFERS` and than under random weights.
        strength: the least of the change and its margins over those controls.
    """

    edit: EditedModel
    changed: bool | None
    corrected: bool | None
    beyond_random: bool | None
    beyond_rivals: bool | None
    beyond_controls: bool | None
    suffering: tuple[EvaluatedTask, ...]
    strength: float

    @property
    def boost(self) -> bool:
        """Whether a gain is sought."""
        return self.edit.boosts

    @property
    def parts(self) -> tuple[bool | None, ...]:
        """What a selective edit has to show."""
        rivals = () if self.beyond_rivals is None else (self.beyond_rivals,)
        return self.changed, self.corrected, self.beyond_random, self.beyond_controls, *rivals

    @property
    def selective(self) -> bool:
        """All of it, each with an interval beyond 0, and a small corrected p."""
        return all(self.parts)


def evidence(evaluation: Evaluation, skill: EvaluatedTask, edit: EditedModel) -> Evidence | None:
    """What is known of one edit on a skill; None where the skill was not answered under it."""
    effect = skill.effects.get(edit.edit)
    if effect is None or effect.change.value is None or skill.scored:
        return None
    boost = edit.boosts
    sign = -1.0 if boost else 1.0
    informative = [control for control in evaluation.controls if control.informative]
    differences = [evaluation.difference(edit.edit, skill.name, control.name) for control in informative]
    known = [difference for difference in differences if difference is not None and difference.value is not None]
    # A gain is a drop below 0: then it is the upper end of the interval that has to lie beyond 0.
    ends = [sign * end for d in known if (end := d.high if boost else d.low) is not None]
    every = [beyond(of.beyond, boost=boost) for of in (effect.random, *effect.matched) if of is not None]
    return Evidence(
        edit=edit,
        changed=beyond(effect.change, boost=boost),
        corrected=None if effect.change.p_corrected is None else effect.change.p_corrected <= ALPHA,
        beyond_random=None if effect.random is None else all(every),
        beyond_rivals=all(beyond(rival.beyond, boost=boost) for rival in effect.rivals) if effect.rivals else None,
        beyond_controls=None if not ends or len(ends) < len(informative) else min(ends) > 0,
        suffering=tuple(c for c in evaluation.controls if c.scored and suffers(c, c.effects.get(edit.edit))),
        strength=min([*(sign * d.value for d in known if d.value is not None), sign * effect.change.value]),
    )


def strongest(evaluation: Evaluation, skill: EvaluatedTask, edits: Sequence[EditedModel]) -> Evidence | None:
    """The most selective of a method's edits: most evidence first, then the largest change beyond every control."""
    known = [measured for edit in edits if (measured := evidence(evaluation, skill, edit)) is not None]
    return max(known, key=lambda e: (e.selective, sum(bool(part) for part in e.parts), e.strength), default=None)


def suffers(control: EvaluatedTask, effect: TaskUnderEdit | None) -> bool:
    """Whether the interval of a ratio of perplexities lies above `SUFFERS` and above the random controls' ratio."""
    if effect is None or None in (effect.change.value, effect.change.high) or effect.change.low is None:
        return False
    return effect.change.low > max(SUFFERS, random_ratio(control, effect) or 0.0)


def random_ratio(control: EvaluatedTask, effect: TaskUnderEdit) -> float | None:
    """The mean perplexity under the matched random controls, divided by the unedited model's."""
    baseline = control.baseline.result.value
    if effect.random is None or effect.random.mean is None or not baseline:
        return None
    return effect.random.mean / baseline


def beyond(drops: Estimate, *, boost: bool) -> bool | None:
    """Whether an interval of drops lies beyond 0 in the direction meant: above for a loss, below for a gain."""
    if drops.low is None or drops.high is None:
        return None
    return drops.high < 0 if boost else drops.low > 0
