"""What an isolation and its evaluation found, in sentences written from their numbers; nothing without an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lesion.report import selection_prose, wording
from lesion.report.prose import STOPPING_SHARE, Finding
from lesion.report.sweeps import regimes
from lesion.report.trials import Asked, Edited, Effect, Evaluation, number


@dataclass(frozen=True)
class Evidence:
    """Whether one edit changes the skill, more than its random controls and more than every control.

    Each is True or False by its interval, or None where that was not measured. For `boost` the direction is a gain.
    """

    edit: Edited
    boost: bool
    changed: bool | None
    beyond_random: bool | None
    beyond_controls: bool | None
    strength: float

    @property
    def selective(self) -> bool:
        """All three, each with an interval beyond 0."""
        return bool(self.changed and self.beyond_random and self.beyond_controls)


def findings(found: Evaluation | None, isolation: Mapping[str, Any]) -> list[Finding]:
    """What was found: per skill and direction the verdict over the methods, then a sentence or two per method.

    Args:
        found: the evaluation, if there is one.
        isolation: the summary's `isolation`, or an empty mapping.
    """
    told: list[Finding] = []
    if found is not None:
        for skill in found.skills:
            for name, edits in regimes(found.tried).items():
                told.extend(_skill(found, skill, edits, boost=name == "boost"))
        if not found.skills:
            told.extend(_plain(found))
        if found.choice:
            told.append(Finding("The choice, tested", (chosen(found.choice, found),)))
    if isolation:
        first, *rest = [*selection_prose.selected(isolation), ""]
        told.append(Finding("What was selected" if told else "", (first,) * bool(first), tuple(filter(None, rest))))
    return [finding for finding in told if finding.headline or finding.sentences]


def evidence(found: Evaluation, skill: Asked, edit: Edited) -> Evidence | None:
    """What is known of one edit on a skill; None where the skill was not answered under it."""
    effect = skill.effects.get(edit.key)
    if effect is None or effect.change is None or skill.scored:
        return None
    boost = edit.factor > 1
    sign = -1.0 if boost else 1.0
    known = [
        difference
        for control in found.controls
        if not control.scored and (difference := found.difference(edit.key, skill.name, control.name)) is not None
    ]
    spread = effect.random
    # A gain is a drop below 0: then it is the upper end of the interval that has to lie beyond 0.
    far = [sign * end for d in known if (end := d.high if boost else d.low) is not None]
    margins = [sign * d.value for d in known]
    return Evidence(
        edit=edit,
        boost=boost,
        changed=_beyond(effect.change_low, effect.change_high, boost=boost),
        beyond_random=None if spread is None else _beyond(spread.beyond_low, spread.beyond_high, boost=boost),
        beyond_controls=None if not far or len(far) < len(known) else min(far) > 0,
        strength=min([*margins, sign * effect.change]),
    )


def strongest(found: Evaluation, skill: Asked, edits: Sequence[Edited]) -> Evidence | None:
    """The most selective of a method's edits: most evidence first, then the largest change beyond every control."""
    known = [one for edit in edits if (one := evidence(found, skill, edit)) is not None]
    return max(
        known,
        key=lambda e: (e.selective, sum(bool(x) for x in (e.changed, e.beyond_random, e.beyond_controls)), e.strength),
        default=None,
    )


def chosen(choice: Mapping[str, Any], found: Evaluation | None = None) -> str:
    """The edit chosen on validation items and what it did on test items that had no part in choosing it."""
    name = _name(found, str(choice.get("chosen") or ""))
    validation, test = (int(choice.get(key) or 0) for key in ("validation_items", "test_items"))
    gain, low, high = (number(choice.get(key)) for key in ("gain", "gain_low", "gain_high"))
    skill = str(choice.get("skill") or "the skill")
    candidates = wording.counted(len(choice.get("candidates") or ()), "edit")
    told = (
        f"Of {candidates} tried on {wording.counted(validation, 'validation item')} of {skill}, {name} was chosen. "
        f"On {wording.counted(test, 'test item')} that had no part in the choice, accuracy goes from "
        f"{wording.percent(number(choice.get('baseline_test')))} to "
        f"{wording.percent(number(choice.get('accuracy_test')))}"
    )
    if gain is None or low is None or high is None:
        return f"{told}."
    verdict = (
        "a gain that chance does not explain" if low > 0 else "a loss" if high < 0 else "no evidence of any change"
    )
    p = number(choice.get("p"))
    told += f": {signed(gain)} points {wording.interval(low, high)}"
    told += f", p{wording.SPACE}{wording.p_value(p)}" if p is not None else ""
    told += f", {verdict}."
    spread = choice.get("random") or {}
    beyond = [number(spread.get(f"gain_beyond{end}")) for end in ("", "_low", "_high")]
    if beyond[0] is not None and beyond[1] is not None and beyond[2] is not None:
        draws = wording.counted(int(spread.get("draws") or 0), "draw")
        evidence_of = "" if beyond[1] > 0 else ": no evidence that it gains more"
        told += (
            f" Against as many random weights ({draws}): {signed(beyond[0])} points "
            f"{wording.interval(beyond[1], beyond[2])}{evidence_of}."
        )
    before = number(choice.get("accuracy_validation")), number(choice.get("baseline_validation"))
    if before[0] is not None and before[1] is not None:
        told += f" On the validation items it had been {signed(before[0] - before[1])} points."
    for control in choice.get("controls") or ():
        drop = number(control.get("drop"))
        if drop is not None:
            interval = wording.interval(number(control.get("drop_low")), number(control.get("drop_high")))
            told += f" {control.get('task')}: a drop of {wording.points(drop)} points {interval}."
    return told


def signed(value: float) -> str:
    """A change in points with its sign: `+1.5`, `−0.4`."""
    text = wording.points(value)
    return f"+{text}" if value > 0 and float(text) != 0 else text


def _skill(found: Evaluation, skill: Asked, edits: Sequence[Edited], *, boost: bool) -> list[Finding]:
    by_method: dict[str, list[Edited]] = {}
    for edit in edits:
        by_method.setdefault(edit.method_name, []).append(edit)
    best = {method: strongest(found, skill, group) for method, group in by_method.items()}
    known = {method: one for method, one in best.items() if one is not None}
    if not known:
        return []
    headline = [_verdict(skill, known, boost=boost)]
    if any(len(by_method[method]) > 1 for method in known):
        headline.append(
            "Of each method the most selective edit is told; the intervals do not allow for having picked it."
        )
    if not boost and not any(control.kind == "generate" for control in found.controls):
        headline.append(
            "No control has to be generated here: damage to generating anything would look like a loss of the skill."
        )
    sentences = [_method(found, skill, one, len(by_method[method])) for method, one in known.items()]
    subject = f"{'Boosting' if boost else 'Cutting'} what is selected for {skill.name}"
    return [Finding(subject, tuple(headline), tuple(sentences))]


def _verdict(skill: Asked, known: Mapping[str, Evidence], *, boost: bool) -> str:
    yes = [method for method, one in known.items() if one.selective]
    no = [method for method, one in known.items() if not one.selective]
    does = "raises" if boost else "hurts"
    if not yes:
        lacking = [e for e in known.values() if e.beyond_random is None or e.beyond_controls is None]
        why = " (for some, no random controls or no other tasks were measured)" if lacking else ""
        return (
            f"No evidence that any edit {does} {skill.name} both more than as many random weights and more than "
            f"every control{why}."
        )
    told = (
        f"{wording.listed(yes)} {does if len(yes) == 1 else does[:-1]} {skill.name} more than as many random weights "
        "and more than every control."
    )
    if no:
        told += f" For {wording.listed(no)} there is no such evidence."
    return told[0].upper() + told[1:]


def _method(found: Evaluation, skill: Asked, evidence: Evidence, tried: int) -> str:
    edit, effect = evidence.edit, skill.effects[evidence.edit.key]
    told = f"{edit.name}"
    if edit.selected is not None:
        share = f", {wording.percent(edit.share, 2)}" if edit.share is not None else ""
        told += f" ({wording.counted(edit.selected, 'weight')}{share})"
    told += f": {skill.name} goes from {wording.percent(skill.value)} to {wording.percent(effect.value)}, "
    told += _changed(effect, evidence)
    told += " " + _against_random(effect, evidence)
    for control in found.controls:
        told += " " + _against_control(found, skill, control, evidence)
    wrong = 1 - effect.value
    if not evidence.boost and effect.truncated and wrong > 0 and effect.truncated >= STOPPING_SHARE * wrong:
        told += (
            f" There {wording.percent(effect.truncated, 0)} of the answers hit the token limit: part of the loss may "
            "be one of stopping."
        )
    if not evidence.boost and effect.unparsed and wrong > 0 and effect.unparsed >= STOPPING_SHARE * wrong:
        told += (
            f" From {wording.percent(effect.unparsed, 0)} of the answers nothing could be read: look at them before "
            "speaking of a lost skill."
        )
    told = told[0].upper() + told[1:]
    return told.rstrip() + (f" The most selective of {tried} edits." if tried > 1 else "")


def _changed(effect: Effect, evidence: Evidence) -> str:
    change = effect.change or 0.0
    interval = _interval(effect.change_low, effect.change_high, evidence.boost)
    if effect.change_low is None or effect.change_high is None:
        return "without an interval."
    if evidence.boost:
        if evidence.changed:
            return f"a gain of {wording.points(-change)} points {interval}."
        return f"{signed(-change)} points {interval}: no evidence of a gain."
    if evidence.changed:
        return f"a drop of {wording.points(change)} points {interval}."
    return f"a drop of {wording.points(change)} points {interval}: no evidence of a loss."


def _against_random(effect: Effect, evidence: Evidence) -> str:
    spread = effect.random
    if spread is None:
        return "Its matched random control was not measured."
    draws = wording.counted(spread.draws, "draw")
    if spread.beyond is None or spread.beyond_low is None or spread.beyond_high is None:
        return f"Its random controls ({draws}) have no interval to compare with."
    interval = _interval(spread.beyond_low, spread.beyond_high, evidence.boost)
    value = -spread.beyond if evidence.boost else spread.beyond
    what = "gain" if evidence.boost else "loss"
    if evidence.beyond_random:
        return f"That is {wording.points(value)} points {interval} more than as many random weights ({draws})."
    return f"No evidence of more {what} than with as many random weights: {signed(value)} points {interval} ({draws})."


def _against_control(found: Evaluation, skill: Asked, control: Asked, evidence: Evidence) -> str:
    effect = control.effects.get(evidence.edit.key)
    if effect is None:
        return f"{control.name} was not measured."
    if control.scored:
        if effect.change is None or effect.change_low is None or effect.change_high is None:
            return ""
        interval = wording.plain_interval(effect.change_low, effect.change_high)
        told = f"The perplexity of {control.name} is {effect.change:.3f} times {interval} the unedited model's"
        if effect.random is not None and effect.random.mean is not None and control.value:
            told += f", {effect.random.mean / control.value:.3f} times with random weights"
        return f"{told}."
    drops = wording.interval(effect.change_low, effect.change_high)
    drop = f"{control.name} drops {wording.points(effect.change)} {drops}"
    difference = found.difference(evidence.edit.key, skill.name, control.name)
    if difference is None or difference.low is None or difference.high is None:
        return f"{drop}; the difference was not worked out."
    value = -difference.value if evidence.boost else difference.value
    interval = _interval(difference.low, difference.high, evidence.boost)
    beyond = _beyond(difference.low, difference.high, boost=evidence.boost)
    against = _beyond(difference.low, difference.high, boost=not evidence.boost)
    what = "gains" if evidence.boost else "loses"
    if beyond:
        return f"{drop}: {skill.name} {what} {wording.points(value)} points {interval} more."
    if against:
        return f"{drop}: {skill.name} {what} {wording.points(-value)} points less than it, {signed(value)} {interval}."
    return f"{drop}: no evidence that {skill.name} {what} more, {signed(value)} points {interval}."


def _plain(found: Evaluation) -> list[Finding]:
    """Where no task is called the skill: what the tried edits did to each task, the largest drop of each."""
    told = []
    for task in found.tasks:
        effects = [task.effects[edit.key] for edit in found.tried if edit.key in task.effects]
        known = [effect for effect in effects if None not in (effect.change, effect.change_low, effect.change_high)]
        if not known or task.scored:
            continue
        worst = max(known, key=lambda effect: effect.change or 0.0)
        sure = worst.change_low is not None and worst.change_low > 0
        told.append(
            f"{task.name}: the largest drop of {wording.counted(len(known), 'edit')} is "
            f"{wording.points(worst.change)} points {wording.interval(worst.change_low, worst.change_high)}, with "
            f"{worst.edit.name}{'' if sure else ': no evidence of a loss'}."
        )
    if not told:
        return []
    headline = "No task was named as the skill and none as a control, so nothing is said here about selectivity."
    return [Finding("", (headline,), tuple(told))]


def _beyond(low: float | None, high: float | None, *, boost: bool) -> bool | None:
    """Whether an interval of drops lies beyond 0 in the direction meant: above for a loss, below for a gain."""
    if low is None or high is None:
        return None
    return high < 0 if boost else low > 0


def _interval(low: float | None, high: float | None, boost: bool) -> str:
    """An interval of drops; turned into one of gains for a boost."""
    if boost and low is not None and high is not None:
        return wording.interval(-high, -low)
    return wording.interval(low, high)


def _name(found: Evaluation | None, key: str) -> str:
    edit = found.edits.get(key) if found is not None else None
    return edit.name if edit is not None else key or "no edit"
