"""Findings of an isolation and its evaluation: sentences written from their numbers; no claim without an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lesion.core.values import Estimate
from lesion.report import wording
from lesion.report.finding import Finding
from lesion.report.wording import ALPHA, STOPPING_SHARE, signed
from lesion.studies.isolation import selection_findings
from lesion.studies.isolation.evaluation import (
    Choice,
    EditedModel,
    EvaluatedTask,
    Evaluation,
    TaskUnderEdit,
)
from lesion.studies.isolation.evidence import Evidence, beyond, random_ratio, strongest
from lesion.studies.isolation.result import IsolationSummary
from lesion.studies.isolation.sweeps import regimes


def findings(summary: IsolationSummary) -> list[Finding]:
    """Per skill and direction the verdict over the methods, then the choice, then what was selected."""
    every: list[Finding] = []
    evaluation, isolation = summary.evaluation, summary.isolation
    if evaluation is not None:
        for skill in evaluation.skills:
            for name, edits in regimes(evaluation.tried).items():
                every.extend(_skill(evaluation, skill, edits, boost=name == "boost"))
        if not evaluation.skills:
            every.extend(_without_skill(evaluation))
        if evaluation.choice:
            every.append(Finding("The chosen edit on test items", (chosen(evaluation.choice, evaluation),)))
    if isolation is not None:
        first, *rest = [*selection_findings.selected(isolation), ""]
        every.append(Finding("What was selected" if every else "", (first,) * bool(first), tuple(filter(None, rest))))
    kept = [finding for finding in every if finding.headline or finding.sentences]
    return kept or [Finding("", ("Nothing has been measured yet.",))]


def chosen(choice: Choice, evaluation: Evaluation) -> str:
    """The edit chosen on validation items and what it did on test items that had no part in choosing it."""
    gain, name = choice.gain, evaluation.name_of(choice.chosen)
    text = (
        f"Of {wording.counted(len(choice.candidates), 'edit')} tried on "
        f"{wording.counted(choice.validation_items, 'validation item')} of {choice.skill}, {name} was chosen. "
        f"On {wording.counted(choice.test_items, 'test item')} that had no part in the choice, accuracy goes from "
        f"{wording.percent(choice.baseline_test)} to {wording.percent(choice.accuracy_test)}"
    )
    if gain.value is None or gain.low is None or gain.high is None:
        return f"{text}."
    sure = gain.p is None or gain.p <= ALPHA
    verdict = (
        "a gain that chance does not explain"
        if gain.low > 0 and sure
        else "a loss"
        if gain.high < 0 and sure
        else "no evidence of any change"
    )
    p = f", p{wording.SPACE}{wording.p_value(gain.p)}" if gain.p is not None else ""
    text += f": {signed(gain.value)} points {wording.interval(gain.low, gain.high)}{p}, {verdict}."
    if choice.random is not None:
        more = choice.random.gain_beyond
        if more.value is not None and more.low is not None:
            text += (
                f" Against as many random weights ({wording.counted(choice.random.draws, 'draw')}): "
                f"{signed(more.value)} points {wording.interval(more.low, more.high)}"
                f"{'' if more.low > 0 else ': no evidence that it gains more'}."
            )
    change = choice.accuracy_validation - choice.baseline_validation
    text += f" On the validation items it had been {signed(change)} points."
    uninformative = {task.name for task in evaluation.controls if not task.informative}
    for control in choice.controls:
        if control.task in uninformative:
            text += f" {control.task} is uninformative."
        else:
            interval = wording.interval(control.drop.low, control.drop.high)
            text += f" {control.task}: a drop of {wording.points(control.drop.value)} points {interval}."
    return text


def _skill(evaluation: Evaluation, skill: EvaluatedTask, edits: Sequence[EditedModel], *, boost: bool) -> list[Finding]:
    by_method: dict[str, list[EditedModel]] = {}
    for edit in edits:
        by_method.setdefault(edit.method_name, []).append(edit)
    best = {method: strongest(evaluation, skill, group) for method, group in by_method.items()}
    known = {method: evidence for method, evidence in best.items() if evidence is not None}
    if not known:
        return []
    headline = [_verdict(evaluation, skill, known, boost=boost)]
    headline += [_suffering(method, one) for method, one in known.items() if one.selective and one.suffering]
    headline += [
        uninformative(control) for control in evaluation.controls if not control.scored and not control.informative
    ]
    if any(len(by_method[method]) > 1 for method in known):
        headline.append(
            "Each method is represented by its most selective edit. The intervals do not allow for having picked it; "
            "the corrected p allows for all edits tried."
        )
    if not boost and not any(control.kind == "generate" and control.informative for control in evaluation.controls):
        headline.append(
            "No informative control has to be generated: damage to generating any text would look like a loss of the "
            "skill."
        )
    sentences = [_method(evaluation, skill, one, len(by_method[method])) for method, one in known.items()]
    subject = f"{'Boosting' if boost else 'Cutting'} the weights selected for {skill.name}"
    return [Finding(subject, tuple(headline), tuple(sentences))]


def uninformative(control: EvaluatedTask) -> str:
    """Why an answered control says nothing of selectivity: the unedited model is at chance, or not surely above it."""
    result = control.baseline.result
    chance = "not known" if control.chance is None else wording.percent(control.chance, 0)
    at = f"{wording.percent(result.value)} {wording.interval(result.low, result.high)}".rstrip()
    return f"{control.name} is uninformative: the unedited model is at {at} (chance {chance})."


def _suffering(method: str, evidence: Evidence) -> str:
    ratios = [
        f"{_ratio(control.effects[evidence.edit.edit].change)} on {control.name}" for control in evidence.suffering
    ]
    return f"With {method}, running text suffers too ({'; '.join(ratios)})."


def _ratio(ratio: Estimate) -> str:
    """`×1.99 [1.75, 2.27]`: a ratio of perplexities with its interval."""
    value = wording.DASH if ratio.value is None else wording.figures(ratio.value, 3)
    return f"×{value} {wording.plain_interval(ratio.low, ratio.high, 3)}"


def _verdict(evaluation: Evaluation, skill: EvaluatedTask, known: Mapping[str, Evidence], *, boost: bool) -> str:
    answered = [control for control in evaluation.controls if not control.scored]
    informative = [control for control in answered if control.informative]
    does = "raises" if boost else "hurts"
    if not informative:
        why = "no control that is answered is informative" if answered else "no control is answered"
        sure = [method for method, one in known.items() if one.surely_changed and one.beyond_random]
        text = f"Whether any edit {does} {skill.name} selectively cannot be said: {why}."
        if sure:
            verb = does if len(sure) == 1 else does[:-1]
            text += f" Compared with random weights alone, {wording.listed(sure)} {verb} it more."
        return text
    yes = [method for method, one in known.items() if one.selective]
    no = [method for method, one in known.items() if not one.selective]
    limits = ["is answered"] * (len(answered) < len(evaluation.controls))
    limits += ["is informative"] * (len(informative) < len(answered))
    every = "every control" + (f" that {wording.listed(limits)}" if limits else "")
    if not yes:
        unmeasured = any(None in one.parts for one in known.values())
        why = " (for some, not all of this was measured)" if unmeasured else ""
        return (
            f"No evidence that any edit {does} {skill.name} both more than as many random weights and more than "
            f"{every}{why}."
        )
    text = (
        f"{wording.listed(yes)} {does if len(yes) == 1 else does[:-1]} {skill.name} more than as many random weights "
        f"and more than {every}."
    )
    if no:
        text += f" For {wording.listed(no)} there is no such evidence."
    return text[0].upper() + text[1:]


def _method(evaluation: Evaluation, skill: EvaluatedTask, evidence: Evidence, tried: int) -> str:
    edit, effect = evidence.edit, skill.effects[evidence.edit.edit]
    text = f"{edit.name} ({wording.counted(edit.selected, 'weight')}, {wording.percent(edit.share, 2)}): {skill.name}"
    text += f" goes from {wording.percent(skill.baseline.result.value)} to {wording.percent(effect.result.value)}, "
    text += f"{_change(effect.change, evidence)} {_against_random(effect, evidence)}"
    for control in evaluation.controls:
        text += f" {_against_control(evaluation, skill, control, evidence)}"
    wrong = 1 - (effect.result.value or 0.0)
    truncated, unparsed = effect.rates.truncated, effect.rates.unparsed
    if not evidence.boost and truncated and wrong > 0 and truncated >= STOPPING_SHARE * wrong:
        text += (
            f" {wording.percent(truncated, 0)} of the answers {wording.unended(effect.rates.looped)}: part of the loss"
            " may be one of stopping."
        )
    if not evidence.boost and unparsed and wrong > 0 and unparsed >= STOPPING_SHARE * wrong:
        text += (
            f" In {wording.percent(unparsed, 0)} of the answers no answer could be parsed: read them before calling the"
            " skill lost."
        )
    text = text[0].upper() + text[1:]
    return text.rstrip() + (f" The most selective of {tried} edits." if tried > 1 else "")


def _change(drop: Estimate, evidence: Evidence) -> str:
    if drop.value is None or drop.low is None or drop.high is None:
        return "without an interval."
    interval = _interval(drop, evidence.boost)
    what = "gain" if evidence.boost else "loss"
    if not evidence.boost:
        text = f"a drop of {wording.points(drop.value)} points {interval}"
    elif evidence.changed:
        text = f"a gain of {wording.points(-drop.value)} points {interval}"
    else:
        text = f"{signed(-drop.value)} points {interval}"
    if drop.p_corrected is not None:
        text += f", p{wording.SPACE}corrected{wording.SPACE}{wording.p_value(drop.p_corrected)}"
    if not evidence.changed:
        return f"{text}: no evidence of a {what}."
    if not evidence.corrected:
        why = "without a corrected p" if drop.p_corrected is None else "corrected for all edits tried"
        return f"{text}: {why}, no evidence of a {what}."
    return f"{text}."


def _against_random(effect: TaskUnderEdit, evidence: Evidence) -> str:
    random = effect.random
    if random is None:
        return "Its matched random control was not measured."
    draws, more = wording.counted(random.draws, "draw"), random.beyond
    if more.value is None or more.low is None or more.high is None:
        return f"Its random controls ({draws}) have no interval to compare with."
    interval = _interval(more, evidence.boost)
    value = -more.value if evidence.boost else more.value
    what = "gain" if evidence.boost else "loss"
    if evidence.beyond_random:
        return f"That is {wording.points(value)} points {interval} more than as many random weights ({draws})."
    return f"No evidence of more {what} than with as many random weights: {signed(value)} points {interval} ({draws})."


def _against_control(evaluation: Evaluation, skill: EvaluatedTask, control: EvaluatedTask, evidence: Evidence) -> str:
    effect = control.effects.get(evidence.edit.edit)
    if effect is None:
        return f"{control.name} was not measured."
    change = effect.change
    if control.scored:
        if change.value is None or change.low is None or change.high is None:
            return ""
        interval = wording.plain_interval(change.low, change.high)
        text = f"The perplexity of {control.name} is {wording.figures(change.value, 4)} times {interval} the unedited"
        text += " model's"
        if (random := random_ratio(control, effect)) is not None:
            text += f", {wording.figures(random, 4)} times with random weights"
        return f"{text}: running text suffers too." if control in evidence.suffering else f"{text}."
    if not control.informative:
        return f"{control.name} is uninformative."
    drop = f"{control.name} drops {wording.points(change.value)} {wording.interval(change.low, change.high)}"
    difference = evaluation.difference(evidence.edit.edit, skill.name, control.name)
    if difference is None or difference.value is None or difference.low is None or difference.high is None:
        return f"{drop}; the difference was not worked out."
    value = -difference.value if evidence.boost else difference.value
    interval = _interval(difference, evidence.boost)
    what = "gains" if evidence.boost else "loses"
    if beyond(difference, boost=evidence.boost):
        return f"{drop}: {skill.name} {what} {wording.points(value)} points {interval} more."
    if beyond(difference, boost=not evidence.boost):
        return f"{drop}: {skill.name} {what} {wording.points(-value)} points less than it, {signed(value)} {interval}."
    return f"{drop}: no evidence that {skill.name} {what} more, {signed(value)} points {interval}."


def _without_skill(evaluation: Evaluation) -> list[Finding]:
    """Where no task is called the skill: the largest drop of each task over the edits tried."""
    sentences = []
    for task in evaluation.tasks:
        effects = [task.effects[edit.edit] for edit in evaluation.tried if edit.edit in task.effects]
        known = [one for one in effects if None not in (one.change.value, one.change.low, one.change.high)]
        if not known or task.scored:
            continue
        worst = max(known, key=lambda effect: effect.change.value or 0.0)
        drop, p = worst.change, worst.change.p_corrected
        sure = drop.low is not None and drop.low > 0 and p is not None and p <= ALPHA
        corrected = "" if p is None else f", p{wording.SPACE}corrected{wording.SPACE}{wording.p_value(p)}"
        sentences.append(
            f"{task.name}: the largest drop of {wording.counted(len(known), 'edit')} is "
            f"{wording.points(drop.value)} points {wording.interval(drop.low, drop.high)}, with "
            f"{evaluation.name_of(worst.edit)}{corrected}{'' if sure else ': no evidence of a loss'}."
        )
    if not sentences:
        return []
    headline = "No task was named as the skill and none as a control, so nothing is said here about selectivity."
    return [Finding("", (headline,), tuple(sentences))]


def _interval(drop: Estimate, boost: bool) -> str:
    """An interval of drops; turned into one of gains for a boost."""
    if boost and drop.low is not None and drop.high is not None:
        return wording.interval(-drop.high, -drop.low)
    return wording.interval(drop.low, drop.high)
