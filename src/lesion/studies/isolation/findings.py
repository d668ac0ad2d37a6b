"""What an isolation and its evaluation found, in sentences written from their numbers; nothing without an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lesion.report import wording
from lesion.report.evidence import ALPHA, Evidence, beyond, random_ratio, strongest
from lesion.report.finding import Finding
from lesion.report.trials import Asked, Edited, Effect, Evaluation, number
from lesion.report.wording import STOPPING_SHARE, signed
from lesion.studies.isolation import selection_findings as selection_prose
from lesion.studies.isolation.sweeps import regimes


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
    p = number(choice.get("p"))
    sure = p is None or p <= ALPHA
    verdict = (
        "a gain that chance does not explain"
        if low > 0 and sure
        else "a loss"
        if high < 0 and sure
        else "no evidence of any change"
    )
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
    silent = {task.name for task in found.controls if not task.informs} if found is not None else set()
    for control in choice.get("controls") or ():
        drop = number(control.get("drop"))
        if control.get("task") in silent:
            told += f" {control.get('task')} cannot tell."
        elif drop is not None:
            interval = wording.interval(number(control.get("drop_low")), number(control.get("drop_high")))
            told += f" {control.get('task')}: a drop of {wording.points(drop)} points {interval}."
    return told


def _skill(found: Evaluation, skill: Asked, edits: Sequence[Edited], *, boost: bool) -> list[Finding]:
    by_method: dict[str, list[Edited]] = {}
    for edit in edits:
        by_method.setdefault(edit.method_name, []).append(edit)
    best = {method: strongest(found, skill, group) for method, group in by_method.items()}
    known = {method: one for method, one in best.items() if one is not None}
    if not known:
        return []
    headline = [_verdict(found, skill, known, boost=boost)]
    headline += [_suffering(method, one) for method, one in known.items() if one.selective and one.suffering]
    headline += [cannot_tell(control) for control in found.controls if not control.scored and not control.informs]
    if any(len(by_method[method]) > 1 for method in known):
        headline.append(
            "Of each method the most selective edit is told; the intervals do not allow for having picked it; "
            "the corrected p of its change allows for all edits tried."
        )
    if not boost and not any(control.kind == "generate" and control.informs for control in found.controls):
        headline.append(
            "No control that can tell has to be generated here: damage to generating anything would look like a loss "
            "of the skill."
        )
    sentences = [_method(found, skill, one, len(by_method[method])) for method, one in known.items()]
    subject = f"{'Boosting' if boost else 'Cutting'} what is selected for {skill.name}"
    return [Finding(subject, tuple(headline), tuple(sentences))]


def cannot_tell(control: Asked) -> str:
    """Why an answered control says nothing of selectivity: the unedited model is at chance, or not surely above it."""
    if control.value is None:
        return f"{control.name} cannot tell: the unedited model has no accuracy there."
    chance = "not known" if control.chance is None else wording.percent(control.chance, 0)
    interval = wording.interval(control.low, control.high)
    at = f"{wording.percent(control.value)} {interval}".rstrip()
    return f"{control.name} cannot tell: the unedited model is at {at} (chance {chance})."


def _suffering(method: str, one: Evidence) -> str:
    ratios = [f"{_ratio(control.effects[one.edit.key])} on {control.name}" for control in one.suffering]
    return f"With {method}, running text suffers too ({'; '.join(ratios)})."


def _ratio(effect: Effect) -> str:
    """`×1.99 [1.75, 2.27]`: a ratio of perplexities with its interval."""
    ratio = wording.DASH if effect.change is None else wording.figures(effect.change, 3)
    return f"×{ratio} {wording.plain_interval(effect.change_low, effect.change_high, 3)}"


def _verdict(found: Evaluation, skill: Asked, known: Mapping[str, Evidence], *, boost: bool) -> str:
    answered = [control for control in found.controls if not control.scored]
    telling = [control for control in answered if control.informs]
    does = "raises" if boost else "hurts"
    if not telling:
        why = "no control that is answered can tell" if answered else "no control is answered"
        sure = [method for method, one in known.items() if one.surely_changed and one.beyond_random]
        told = f"Whether any edit {does} {skill.name} selectively cannot be said: {why}."
        if sure:
            verb = does if len(sure) == 1 else does[:-1]
            told += f" Compared with random weights alone, {wording.listed(sure)} {verb} it more."
        return told
    yes = [method for method, one in known.items() if one.selective]
    no = [method for method, one in known.items() if not one.selective]
    limits = ["is answered"] * (len(answered) < len(found.controls)) + ["can tell"] * (len(telling) < len(answered))
    every = "every control" + (f" that {wording.listed(limits)}" if limits else "")
    if not yes:
        lacking = [e for e in known.values() if None in e.parts]
        why = " (for some, not all of this was measured)" if lacking else ""
        return (
            f"No evidence that any edit {does} {skill.name} both more than as many random weights and more than "
            f"{every}{why}."
        )
    told = (
        f"{wording.listed(yes)} {does if len(yes) == 1 else does[:-1]} {skill.name} more than as many random weights "
        f"and more than {every}."
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
            f" There {wording.percent(effect.truncated, 0)} of the answers {wording.unended(effect.looped)}: part of "
            "the loss may "
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
    what = "gain" if evidence.boost else "loss"
    if not evidence.boost:
        told = f"a drop of {wording.points(change)} points {interval}"
    elif evidence.changed:
        told = f"a gain of {wording.points(-change)} points {interval}"
    else:
        told = f"{signed(-change)} points {interval}"
    if effect.p_corrected is not None:
        told += f", p{wording.SPACE}corrected{wording.SPACE}{wording.p_value(effect.p_corrected)}"
    if not evidence.changed:
        return f"{told}: no evidence of a {what}."
    if not evidence.corrected:
        why = "without a corrected p" if effect.p_corrected is None else "with all edits tried allowed for"
        return f"{told}: {why}, no evidence of a {what}."
    return f"{told}."


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
        ratio = wording.figures(effect.change, 4)
        told = f"The perplexity of {control.name} is {ratio} times {interval} the unedited model's"
        if (random := random_ratio(control, effect)) is not None:
            told += f", {wording.figures(random, 4)} times with random weights"
        return f"{told}: running text suffers too ({_ratio(effect)})." if control in evidence.suffering else f"{told}."
    if not control.informs:
        return f"{control.name} cannot tell."
    drops = wording.interval(effect.change_low, effect.change_high)
    drop = f"{control.name} drops {wording.points(effect.change)} {drops}"
    difference = found.difference(evidence.edit.key, skill.name, control.name)
    if difference is None or difference.low is None or difference.high is None:
        return f"{drop}; the difference was not worked out."
    value = -difference.value if evidence.boost else difference.value
    interval = _interval(difference.low, difference.high, evidence.boost)
    more = beyond(difference.low, difference.high, boost=evidence.boost)
    against = beyond(difference.low, difference.high, boost=not evidence.boost)
    what = "gains" if evidence.boost else "loses"
    if more:
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
        p = worst.p_corrected
        sure = worst.change_low is not None and worst.change_low > 0 and p is not None and p <= ALPHA
        corrected = "" if p is None else f", p{wording.SPACE}corrected{wording.SPACE}{wording.p_value(p)}"
        told.append(
            f"{task.name}: the largest drop of {wording.counted(len(known), 'edit')} is "
            f"{wording.points(worst.change)} points {wording.interval(worst.change_low, worst.change_high)}, with "
            f"{worst.edit.name}{corrected}{'' if sure else ': no evidence of a loss'}."
        )
    if not told:
        return []
    headline = "No task was named as the skill and none as a control, so nothing is said here about selectivity."
    return [Finding("", (headline,), tuple(told))]


def _interval(low: float | None, high: float | None, boost: bool) -> str:
    """An interval of drops; turned into one of gains for a boost."""
    if boost and low is not None and high is not None:
        return wording.interval(-high, -low)
    return wording.interval(low, high)


def _name(found: Evaluation | None, key: str) -> str:
    edit = found.edits.get(key) if found is not None else None
    return edit.name if edit is not None else key or "no edit"
