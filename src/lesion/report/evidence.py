"""Whether an edit is selective: what the intervals and the corrected p of its cells carry, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lesion.report.trials import Asked, Edited, Effect, Evaluation

ALPHA = 0.05
"""The corrected p (Holm over all edits tried) up to which a change counts, in addition to its interval."""
SUFFERS = 1.05
"""The ratio of perplexities above which, by its whole interval, running text is said to suffer."""


@dataclass(frozen=True)
class Evidence:
    """Whether one edit changes the skill, more than its random controls and more than every control that can tell.

    Each is True or False by its interval, or None where that was not measured. For `boost` the direction is a gain.

    Attributes:
        corrected: p on the skill, corrected over all edits tried, is at most `ALPHA`.
        beyond_controls: over the controls that can tell; None where there is none, or one was not answered.
        suffering: the scored controls that get worse by more than `SUFFERS` and than under random weights.
        strength: the least of the change and its margins over those controls.
    """

    edit: Edited
    boost: bool
    changed: bool | None
    corrected: bool | None
    beyond_random: bool | None
    beyond_controls: bool | None
    suffering: tuple[Asked, ...]
    strength: float

    @property
    def parts(self) -> tuple[bool | None, ...]:
        """What a selective edit has to show."""
        return self.changed, self.corrected, self.beyond_random, self.beyond_controls

    @property
    def surely_changed(self) -> bool:
        """The change's interval lies beyond 0, and its corrected p is small."""
        return bool(self.changed and self.corrected)

    @property
    def selective(self) -> bool:
        """All of it, each with an interval beyond 0, and a small corrected p."""
        return all(self.parts)


def evidence(found: Evaluation, skill: Asked, edit: Edited) -> Evidence | None:
    """What is known of one edit on a skill; None where the skill was not answered under it."""
    effect = skill.effects.get(edit.key)
    if effect is None or effect.change is None or skill.scored:
        return None
    boost = edit.factor > 1
    sign = -1.0 if boost else 1.0
    telling = [control for control in found.controls if not control.scored and control.informs]
    known = [
        difference
        for control in telling
        if (difference := found.difference(edit.key, skill.name, control.name)) is not None
    ]
    spread = effect.random
    # A gain is a drop below 0: then it is the upper end of the interval that has to lie beyond 0.
    far = [sign * end for d in known if (end := d.high if boost else d.low) is not None]
    return Evidence(
        edit=edit,
        boost=boost,
        changed=beyond(effect.change_low, effect.change_high, boost=boost),
        corrected=None if effect.p_corrected is None else effect.p_corrected <= ALPHA,
        beyond_random=None if spread is None else beyond(spread.beyond_low, spread.beyond_high, boost=boost),
        beyond_controls=None if not far or len(far) < len(telling) else min(far) > 0,
        suffering=tuple(c for c in found.controls if c.scored and suffers(c, c.effects.get(edit.key))),
        strength=min([*(sign * d.value for d in known), sign * effect.change]),
    )


def strongest(found: Evaluation, skill: Asked, edits: Sequence[Edited]) -> Evidence | None:
    """The most selective of a method's edits: most evidence first, then the largest change beyond every control."""
    known = [one for edit in edits if (one := evidence(found, skill, edit)) is not None]
    return max(known, key=lambda e: (e.selective, sum(bool(part) for part in e.parts), e.strength), default=None)


def suffers(control: Asked, effect: Effect | None) -> bool:
    """Whether the interval of a ratio of perplexities lies above `SUFFERS` and above the random controls' ratio."""
    if effect is None or effect.change is None or effect.change_low is None or effect.change_high is None:
        return False
    return effect.change_low > max(SUFFERS, random_ratio(control, effect) or 0.0)


def random_ratio(control: Asked, effect: Effect) -> float | None:
    """The mean perplexity under the matched random controls, divided by the unedited model's."""
    if effect.random is None or effect.random.mean is None or not control.value:
        return None
    return effect.random.mean / control.value


def beyond(low: float | None, high: float | None, *, boost: bool) -> bool | None:
    """Whether an interval of drops lies beyond 0 in the direction meant: above for a loss, below for a gain."""
    if low is None or high is None:
        return None
    return high < 0 if boost else low > 0
