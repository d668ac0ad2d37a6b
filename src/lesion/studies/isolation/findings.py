"""Findings of an isolation and its evaluation: sentences written from their numbers; no claim without an interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lesion.core import clustered_intervals
from lesion.report import wording
from lesion.report.finding import Finding, limits
from lesion.report.values import Estimate
from lesion.report.wording import ALPHA, SPACE, STOPPING_SHARE, counted, interval, percent, points, signed
from lesion.studies.isolation.evaluation import (
    Choice,
    EditedModel,
    EvaluatedTask,
    Evaluation,
    RandomControls,
    TaskUnderEdit,
)
from lesion.studies.isolation.evidence import Evidence, beyond, random_ratio, strongest
from lesion.studies.isolation.result import Excluded, Isolation, IsolationSummary, Overlap, Selected
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
    if evaluation is not None:
        every.extend(
            limits(
                (task.name, "item", None if task.scored else task.baseline.result.value, task.items)
                for task in evaluation.tasks
            )
        )
        if sentences := _shared(evaluation):
            every.append(Finding("Shared templates", (), tuple(sentences)))
    if isolation is not None and (sentences := selected(isolation)):
        every.append(Finding("What was selected" if every else "", (sentences[0],), tuple(sentences[1:])))
    unedited = [] if evaluation is None or evaluation.tried else _unedited(evaluation)
    return [*unedited, *every] or [Finding("", ("Nothing has been measured yet.",))]


def _unedited(evaluation: Evaluation) -> list[Finding]:
    """What the unedited model does, where no edit was tried."""
    sentences = []
    for task in evaluation.tasks:
        result = task.baseline.result
        ends = "" if task.scored else f" {interval(result.low, result.high)}"
        what = (
            f"perplexity {wording.perplexity(result.value)}" if task.scored else f"{percent(result.value)} right{ends}"
        )
        sentences.append(f"{task.name}: {what} without an edit ({counted(task.items, 'item')}).")
    return [Finding("", tuple(sentences))] if sentences else []


def _shared(evaluation: Evaluation) -> list[str]:
    """How much wider intervals are over what items share, and which changes they do not carry."""
    tried = {edit.edit for edit in evaluation.tried}
    texts = []
    for task in evaluation.tasks:
        measured = [
            (evaluation.name_of(cell.edit), cell.change, cell.clustered)
            for cell in task.cells
            if cell.edit in tried and cell.clustered is not None
        ]
        texts.append(clustered_intervals.changes(task.name, task.items, task.shared, measured))
    return [text for text in texts if text is not None]


def chosen(choice: Choice, evaluation: Evaluation) -> str:
    """The edit chosen on validation items and what it did on test items that had no part in choosing it."""
    text = (
        f"{evaluation.name_of(choice.chosen)} was chosen of {counted(len(choice.candidates), 'edit')} on"
        f" {counted(choice.validation_items, 'validation item')} of {choice.skill}. On"
        f" {counted(choice.test_items, 'test item')}: {percent(choice.baseline_test)} to"
        f" {percent(choice.accuracy_test)}"
    )
    gain = choice.gain
    if gain.value is None or gain.low is None or gain.high is None:
        return f"{text}."
    verdict = "no evidence of a change"
    if gain.p is None or gain.p <= ALPHA:
        verdict = "a gain" if gain.low > 0 else "a loss" if gain.high < 0 else verdict
    p = f", p{SPACE}{wording.p_value(gain.p)}" if gain.p is not None else ""
    sentences = [f"{text}, {signed(gain.value)} points {interval(gain.low, gain.high)}{p}: {verdict}."]
    if choice.random is not None and _known(choice.random.gain_beyond) is not None:
        random = _random(evaluation.by_edit[choice.chosen], choice.random.draws)
        sentences.append(_beyond(random, choice.random.gain_beyond, boost=False))
    change = choice.accuracy_validation - choice.baseline_validation
    sentences.append(f"On the validation items: {signed(change)} points.")
    unable = {task.name for task in evaluation.controls if not task.informative}
    for control in choice.controls:
        drop = f" drops {points(control.drop.value)} points {interval(control.drop.low, control.drop.high)}"
        sentences.append(f"{control.task}{' is uninformative' if control.task in unable else drop}.")
    return " ".join(sentences)


def _skill(evaluation: Evaluation, skill: EvaluatedTask, edits: Sequence[EditedModel], *, boost: bool) -> list[Finding]:
    by_method: dict[str, list[EditedModel]] = {}
    for edit in edits:
        by_method.setdefault(edit.method_name, []).append(edit)
    known = {
        method: best for method, group in by_method.items() if (best := strongest(evaluation, skill, group)) is not None
    }
    if not known:
        return []
    headline = [_verdict(evaluation, skill, known, boost=boost)]
    headline += [_suffering(method, best) for method, best in known.items() if best.selective and best.suffering]
    if skill.near_guessing:
        at = f"{percent(skill.baseline.result.value)} unedited, {percent(skill.chance, 0)} by guessing"
        headline.append(f"{skill.name} is near guessing ({at}): what an edit takes of it can hardly show.")
    headline += [_uninformative(task) for task in evaluation.controls if not task.scored and not task.informative]
    if any(len(by_method[method]) > 1 for method in known):
        headline.append(
            "Shown is each method's most selective edit; p is corrected for all edits tried, intervals are not."
        )
    if not boost and not any(control.kind == "generate" and control.informative for control in evaluation.controls):
        headline.append("No informative control is generated: damage to all generation is not ruled out.")
    ordered = sorted(known.values(), key=lambda best: (not best.selective, -abs(_size(skill, best))))
    sentences = [_method(evaluation, skill, best) for best in ordered]
    subject = f"What {'boosting' if boost else 'cutting'} does to {skill.name}"
    if all(edit.selects for edit in edits):
        subject = f"{'Boosting' if boost else 'Cutting'} the weights selected for {skill.name}"
    return [Finding(subject, tuple(headline), tuple(sentences))]


def _size(skill: EvaluatedTask, best: Evidence) -> float:
    return skill.effects[best.edit.edit].change.value or 0.0


def _uninformative(control: EvaluatedTask) -> str:
    result = control.baseline.result
    chance = "not known" if control.chance is None else percent(control.chance, 0)
    at = f"{percent(result.value)} {interval(result.low, result.high)}".rstrip()
    return f"{control.name} is uninformative: unedited {at}, chance {chance}."


def _suffering(method: str, evidence: Evidence) -> str:
    """`With MathNeuro, running text suffers too (×1.99 [1.75, 2.27] on primer:text).`"""
    ratios = []
    for control in evidence.suffering:
        ratio = control.effects[evidence.edit.edit].change
        value = wording.DASH if ratio.value is None else wording.figures(ratio.value, 3)
        ratios.append(f"×{value} {wording.plain_interval(ratio.low, ratio.high, 3)} on {control.name}")
    return f"With {method}, running text suffers too ({'; '.join(ratios)})."


def _verdict(evaluation: Evaluation, skill: EvaluatedTask, known: Mapping[str, Evidence], *, boost: bool) -> str:
    informative = [control for control in evaluation.controls if control.informative]
    singular, plural = ("raises", "raise") if boost else ("hurts", "hurt")
    if not informative:
        alone = {method: best.parts[:3] + best.parts[4:] for method, best in known.items()}
        sure = [method for method, shown in alone.items() if all(shown)]
        more = "".join(
            f" {wording.listed(group)} {singular if len(group) == 1 else plural} it more than {against}."
            for group, against in _against({method: known[method] for method in sure})
        )
        return f"Whether any edit {singular} {skill.name} selectively is unknown: no control is informative.{more}"
    yes = [method for method, best in known.items() if best.selective]
    no = [method for method, best in known.items() if not best.selective]
    every = "every control" if len(informative) == len(evaluation.controls) else "every informative control"
    if not yes:
        unmeasured = any(None in best.parts for best in known.values())
        why = " (not all was measured)" if unmeasured else ""
        groups = _against(known)
        random = groups[0][1] if len(groups) == 1 else "the controls of its own"
        return f"No evidence that any edit {singular} {skill.name} beyond both {random} and {every}{why}."
    sentences = []
    for group, against in _against({method: known[method] for method in yes}):
        verb = singular if len(group) == 1 else plural
        does = "does" if against.startswith("the same") else "do"
        itself = f"{'they' if len(group) > 1 else 'it'} {verb} {every}"
        text = f"{wording.listed(group)} {verb} {skill.name} more than {against} {does}, and more than {itself}."
        sentences.append(wording.capital(text))
    return " ".join([*sentences, *([f"No such evidence for {wording.listed(no)}."] if no else [])])


def _against(known: Mapping[str, Evidence]) -> list[tuple[list[str], str]]:
    """Methods with what else their edits were measured against: those with whole blocks as rivals and those without."""
    groups: dict[bool, list[str]] = {}
    for method, best in known.items():
        groups.setdefault(best.beyond_rivals is not None, []).append(method)
    rivals = " and the whole block and MLP that hold most of its weights"
    return [
        (methods, f"{_elsewhere(known[method].edit for method in methods)}{rivals if has else ''}")
        for has, methods in groups.items()
    ]


def _method(evaluation: Evaluation, skill: EvaluatedTask, evidence: Evidence) -> str:
    edit, effect = evidence.edit, skill.effects[evidence.edit.edit]
    sentences = [
        f"{evaluation.name_of(edit.edit)} ({counted(edit.selected, 'weight')}, {percent(edit.share, 2)}):"
        f" {percent(skill.baseline.result.value)} to {percent(effect.result.value)},"
        f" {_change(effect.change, evidence)}",
        "No random control was measured."
        if effect.random is None
        else _beyond(_random(edit, effect.random.draws), effect.random.beyond, boost=evidence.boost),
        *(
            f"{evaluation.name_of(rival.edit)} gives {percent(rival.result.value)}."
            f" {_beyond('it', rival.beyond, boost=True)}"
            for rival in effect.rivals
        ),
        *(_against_control(evaluation, skill, control, evidence) for control in evaluation.controls),
    ]
    wrong = 1 - (effect.result.value or 0.0)
    truncated = effect.rates.truncated
    if not evidence.boost and truncated and wrong > 0 and truncated >= STOPPING_SHARE * wrong:
        unended = f"{percent(truncated, 0)} of the answers {wording.unended(effect.rates.looped)}"
        sentences.append(f"{unended}: part of the loss may be stopping.")
    if (share := _unparsed(effect, evidence)) is not None:
        sentences.append(f"{percent(share, 0)} of the answers are unparsed: read them.")
    return wording.capital(" ".join(filter(None, sentences)))


def _unparsed(effect: TaskUnderEdit, evidence: Evidence) -> float | None:
    """The unparsed share under an edit, where it makes up much of what is wrong; else None."""
    wrong, unparsed = 1 - (effect.result.value or 0.0), effect.rates.unparsed
    much = not evidence.boost and unparsed and wrong > 0 and unparsed >= STOPPING_SHARE * wrong
    return unparsed if much else None


def _change(drop: Estimate, evidence: Evidence) -> str:
    if (known := _known(drop, evidence.boost)) is None:
        return "without an interval."
    value, ends = known
    what = "gain" if evidence.boost else "loss"
    text = f"a {what} of {points(value)} points {ends}"
    if drop.p_corrected is not None:
        text += f", p{SPACE}corrected{SPACE}{wording.p_value(drop.p_corrected)}"
    return f"{text}." if evidence.changed and evidence.corrected else f"{text}: no evidence of a {what}."


def _elsewhere(edits: Iterable[EditedModel]) -> str:
    """What the matched random controls of edits are."""
    return "as many random weights" if all(edit.selects for edit in edits) else "the same change at random places"


def _random(edit: EditedModel, draws: int) -> str:
    return f"{_elsewhere([edit])} ({counted(draws, 'draw')})"


def _beyond(control: str, difference: Estimate, *, boost: bool) -> str:
    """`Beyond as many random weights (3 draws): +60.0 points [55.0, 65.0].`"""
    if (known := _known(difference, boost)) is None:
        return f"Beyond {control}: no interval."
    word = "Beyond" if beyond(difference, boost=boost) else "No evidence beyond"
    word = "Less than" if beyond(difference, boost=not boost) else word
    return f"{word} {control}: {signed(known[0])} points {known[1]}."


def _against_control(evaluation: Evaluation, skill: EvaluatedTask, control: EvaluatedTask, evidence: Evidence) -> str:
    effect = control.effects.get(evidence.edit.edit)
    if effect is None:
        return f"{control.name} was not measured."
    change = effect.change
    if control.scored:
        if change.value is None or _known(change) is None:
            return ""
        ratio = f"×{wording.figures(change.value, 4)} {wording.plain_interval(change.low, change.high)}"
        text = f"{control.name}: perplexity {ratio}"
        if (random := random_ratio(control, effect)) is not None:
            text += f", ×{wording.figures(random, 4)} under the random controls"
        return f"{text}: running text suffers too." if control in evidence.suffering else f"{text}."
    if not control.informative:
        return ""
    difference = evaluation.difference(evidence.edit.edit, skill.name, control.name)
    drop = f"{control.name} (drop {points(change.value)} {interval(change.low, change.high)})"
    return _beyond(drop, difference or Estimate(value=None), boost=evidence.boost)


def _known(drop: Estimate, boost: bool = False) -> tuple[float, str] | None:
    """A drop with its interval as text, of a boost as a gain; None where it has no interval."""
    if drop.value is None or drop.low is None or drop.high is None:
        return None
    return (-drop.value, interval(-drop.high, -drop.low)) if boost else (drop.value, interval(drop.low, drop.high))


def _without_skill(evaluation: Evaluation) -> list[Finding]:
    """Where no task is called the skill: the largest drop of each task over the edits tried, or gain if none drops."""
    sentences = []
    for task in evaluation.tasks:
        effects = [task.effects[edit.edit] for edit in evaluation.tried if edit.edit in task.effects]
        effects = [effect for effect in effects if not task.scored and _known(effect.change) is not None]
        if not effects:
            continue
        largest = max(effects, key=lambda effect: effect.change.value or 0.0)
        gain = (largest.change.value or 0.0) < 0
        if gain:
            largest = min(effects, key=lambda effect: effect.change.value or 0.0)
        change, p = _known(largest.change, boost=gain), largest.change.p_corrected
        assert change is not None
        corrected = "" if p is None else f", p{SPACE}corrected{SPACE}{wording.p_value(p)}"
        sure = beyond(largest.change, boost=gain) and p is not None and p <= ALPHA
        unsure = "" if sure else f": no evidence of a {'gain' if gain else 'loss'}"
        sentences.append(
            f"{task.name}: largest {'gain' if gain else 'drop'} of {counted(len(effects), 'edit')}"
            f" {points(change[0])} points {change[1]}, with {evaluation.name_of(largest.edit)}{corrected}"
            f"{unsure}{_beside(largest.random)}."
        )
    several = ("Selectivity is not judged: no task was named as the skill (--skill).",) if len(sentences) > 1 else ()
    return [Finding("", tuple(sentences), several)] if sentences else []


def _beside(random: RandomControls | None) -> str:
    """The accuracies under an edit's matched random controls, as the end of a sentence."""
    if random is None:
        return ""
    ends = dict.fromkeys(points(value, 0) for value in (random.lowest, random.highest))
    return f"; under {counted(random.draws, 'matched random control')} accuracy is {'–'.join(ends)}{SPACE}%"


def selected(isolation: Isolation) -> list[str]:
    """How much was selected, how far repeats agree, and what was not scored: counts, which need no interval."""
    sentences = []
    if isolation.selections:
        total = max(selection.total for selection in isolation.selections)
        sentences.append(
            f"{counted(len(isolation.selections), 'selection')} of {total:,} scored weights, for"
            f" {isolation.study.skill} against {wording.listed(list(isolation.study.controls))}."
        )
    if isolation.excluded is not None:
        sentences += _excluded(isolation, isolation.excluded)
    # Of every method the selection with the most texts and the largest share: the least noisy one.
    named = list(zip(isolation.names, isolation.selections, strict=True))
    for method in dict.fromkeys(selection.method for selection in isolation.selections):
        own = (entry for entry in named if entry[1].method == method)
        sentences += _extent(*max(own, key=lambda entry: (entry[1].samples, entry[1].keep)))
    # Of every method and share the overlap at the most texts.
    for label in dict.fromkeys(overlap.label for overlap in isolation.agreements):
        overlaps = (overlap for overlap in isolation.agreements if overlap.label == label)
        sentences.append(_agreement(max(overlaps, key=lambda overlap: overlap.samples)))
    unscored = [entry for entry in isolation.coverage if not entry.scored]
    if unscored:
        weights = sum(entry.weights for entry in unscored)
        sentences.append(f"Not scored: {counted(len(unscored), 'parameter')} with {weights:,} weights.")
    return sentences


def _excluded(isolation: Isolation, excluded: Excluded) -> Iterator[str]:
    """Which super weights were excluded, and how many of them each selection had held."""
    weights = counted(len(excluded.weights), "weight")
    yield (
        f"{wording.capital(weights)} with the largest activation spikes (super weights) were excluded from every"
        f" selection and random control, first {excluded.weights[0].name}."
    )
    named = zip(isolation.names, isolation.selections, strict=True)
    yield f"Held before: {'; '.join(f'{len(each.super_weights)} by {name}' for name, each in named)}."
    if excluded.unsearched:
        blocks = wording.numbered("block", excluded.unsearched)
        yield f"Not searched for super weights, as their down projections could not be followed: {blocks}."


def _extent(name: str, selection: Selected) -> list[str]:
    shares = selection.density
    if selection.share is None or len(shares) < 2:
        return []
    least, most = (choose(sorted(shares), key=lambda block: shares[block]) for choose in (min, max))
    low, high = (percent(shares[block], 2) for block in (least, most))
    spread = "the same in every block" if low == high else f"{low} of block {least} to {high} of block {most}"
    return [
        f"{wording.capital(name)}: {counted(selection.selected, 'weight')}, {percent(selection.share, 2)}; {spread}."
    ]


def _agreement(overlap: Overlap) -> str:
    pairs = " (one pair, no interval)" if overlap.repeats == 2 else ""
    if overlap.spread is not None and overlap.spread[0] < overlap.spread[1]:
        pairs = f" ({overlap.spread[0]:.2f} to {overlap.spread[1]:.2f})"
    return (
        f"{overlap.label}, {counted(overlap.samples, 'text')} each: IoU {overlap.mean.value:.2f}{pairs} over"
        f" {counted(overlap.repeats, 'repeat')}, {overlap.chance:.2f} by chance."
    )
