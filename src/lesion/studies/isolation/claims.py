"""What an isolation and an evaluation claim: whether an edit takes the skill alone, and what was selected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.core import clustered_intervals
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import CHANGE, POINTS, SHARE, WHOLE_SHARE, Form, decimals
from lesion.report.rows import p_text, subject
from lesion.report.values import Estimate
from lesion.report.wording import ALPHA, SPACE, STOPPING_SHARE, counted
from lesion.studies.isolation.evaluation import ChosenEdit, EditedModel, EvaluatedTask, Evaluation, TaskUnderEdit
from lesion.studies.isolation.evidence import Evidence, beyond, strongest
from lesion.studies.isolation.lines import Measured
from lesion.studies.isolation.result import Isolation, Overlap, Selected

Line = tuple[Measured, EditedModel]
RATIO = Form(3, significant=True)
TEST = (
    "a loss (of a boost, a gain) whose 95 % interval excludes 0 and whose exact paired p is at most .05, corrected by"
    " Holm's method over all edits tried"
)


@rule(
    "Without the N weights that M selects, the skill falls from A to B, more than any control or under random weights.",
    "…: not shown to be more than under random weights (than the whole block, than control C loses).",
    "…: whether the skill alone falls cannot be told, since no control is informative.",
    "… is not shown to change the skill.",
    needs=f"{TEST}; the same interval for the difference to the matched random controls, to every informative control"
    " and, of a boost, to the whole block and MLP that hold most of its weights",
)
def what_the_skill_loses(evaluation: Evaluation, lines: Sequence[Line]) -> Iterable[Claim]:
    """Of every method and direction its most selective edit, beside what it is measured against."""
    for skill in evaluation.skills:
        best: list[Evidence] = []
        groups: dict[tuple[bool, str], list[EditedModel]] = {}
        for edit in evaluation.tried:
            groups.setdefault((edit.boosts, edit.method_name), []).append(edit)
        best = [found for edits in groups.values() if (found := strongest(evaluation, skill, edits)) is not None]
        for each in sorted(best, key=lambda each: (not each.selective, -each.strength)):
            effect = skill.effects[each.edit.edit]
            sentences = [_falls(evaluation, skill, each), _numbers(each, effect)]
            if caveats := _rivals(evaluation, effect) if effect.rivals else _caveats(evaluation, each, effect):
                sentences.append(f"{wording.capital('; '.join(caveats))}.")
            yield Claim(tuple(filter(None, sentences)), _rows(lines, each.edit.edit))


def _rows(lines: Sequence[Line], edit: str) -> tuple[Line, ...]:
    return tuple(line for line in lines if line[0].edit == edit)


def _under(evaluation: Evaluation, edit: EditedModel) -> str:
    """`Without the 18,237 weights that MathNeuro selects`; of other edits `Under block 3, ×0`."""
    if not edit.selects or edit.method == "custom" or edit.factor is None:
        return f"Under {evaluation.name_of(edit.edit)}"
    weights = f"the {edit.selected:,} weights that {edit.method_name} selects"
    return f"Without {weights}" if edit.factor == 0 else f"With {weights} {wording.factor(edit.factor)}"


def _moves(evaluation: Evaluation, task: EvaluatedTask, edit: EditedModel) -> str:
    before, after = task.baseline.result.value or 0.0, task.effects[edit.edit].result.value or 0.0
    verb = "falls" if after < before else "rises" if after > before else "stays"
    ends = f"at {SHARE.text(after)}" if verb == "stays" else f"from {SHARE.text(before)} to {SHARE.text(after)}"
    return f"{_under(evaluation, edit)}, {task.name} {verb} {ends}"


def _falls(evaluation: Evaluation, skill: EvaluatedTask, evidence: Evidence) -> str:
    edit = evidence.edit
    moves, random = _moves(evaluation, skill, edit), "random weights" if edit.selects else "the same change elsewhere"
    if not (evidence.changed and evidence.corrected):
        return f"{moves}: not shown to be a {'gain' if evidence.boost else 'loss'}."
    others = f"under {random}{' and whole blocks' if evidence.beyond_rivals is not None else ''}"
    if not any(control.informative for control in evaluation.controls):
        more = f", more than {others}" if all(evidence.parts[:3] + evidence.parts[4:]) else ""
        return f"{moves}{more}; no informative control can tell whether it does so alone."
    if evidence.selective:
        every = "any control" if all(c.informative for c in evaluation.controls) else "any informative control"
        return f"{moves}, more than {every} and more than {others}."
    missing = [f"than under {random}"] if not evidence.beyond_random else []
    if evidence.beyond_rivals is False:
        missing.append("than under the whole block or MLP")
    for control in (control for control in evaluation.controls if control.informative):
        difference = evaluation.difference(edit.edit, skill.name, control.name)
        if difference is None or not beyond(difference, boost=evidence.boost):
            missing.append(f"than {control.name} {'gains' if evidence.boost else 'loses'}")
    return f"{moves}, but not shown to be more {wording.listed(missing, 'or')}."


def _numbers(evidence: Evidence, effect: TaskUnderEdit) -> str:
    """The loss or gain with its interval and test, and how much of it random controls do not give."""
    change = _sought(effect.change, evidence.boost)
    p = f" ({text})" if (text := p_text(effect.change)) else ""
    text = f"The {'gain' if evidence.boost else 'loss'} is {POINTS.text(change)}{p}"
    if effect.random is None:
        return f"{text}; no random control was measured."
    what = "as many random weights" if evidence.edit.selects else "the same change at other places"
    more = CHANGE.text(_sought(effect.random.beyond, evidence.boost))
    return f"{text}, {more} beyond that under {what} ({counted(effect.random.draws, 'draw')})."


def _sought(drop: Estimate, boost: bool) -> Estimate:
    return drop.negative if boost else drop


def _rivals(evaluation: Evaluation, effect: TaskUnderEdit) -> list[str]:
    return [
        f"{evaluation.name_of(rival.edit)} reaches {SHARE.text(rival.result.value)} (the boost"
        f" {CHANGE.text(rival.beyond.negative)})"
        for rival in effect.rivals
    ]


def _caveats(evaluation: Evaluation, evidence: Evidence, effect: TaskUnderEdit) -> list[str]:
    """What else may stand behind a loss: answers without an end or unreadable, running text, damage to generation."""
    wrong, texts = 1 - (effect.result.value or 0.0), []
    if not evidence.boost and wrong > 0:
        rates = effect.rates
        if rates.truncated and rates.truncated >= STOPPING_SHARE * wrong:
            texts.append(f"{WHOLE_SHARE.text(rates.truncated)} of the answers {wording.unended(rates.looped)}")
        if rates.unparsed and rates.unparsed >= STOPPING_SHARE * wrong:
            texts.append(f"{WHOLE_SHARE.text(rates.unparsed)} of the answers cannot be read")
    for control in evidence.suffering:
        change = control.effects[evidence.edit.edit].change
        texts.append(f"running text suffers too, perplexity ×{RATIO.text(change)} on {control.name}")
    generated = any(control.kind == "generate" and control.informative for control in evaluation.controls)
    if evidence.selective and not evidence.boost and not generated:
        texts.append("no control is generated, so that damage to all generation is not ruled out")
    return texts


@rule(
    "T falls most without E, from A to B.",
    "T: no edit of N is shown to change it.",
    needs=f"tasks of which none is named as the skill; {TEST}",
)
def what_changes_most(evaluation: Evaluation, lines: Sequence[Line]) -> Iterable[Claim]:
    """Where no task is the skill: of every task the largest loss, or the largest gain where none is lost."""
    if evaluation.skills:
        return
    for task in (task for task in evaluation.tasks if not task.scored):
        own = [line for line in lines if line[0].task == task.name and line[0].tried and line[0].drop.low is not None]
        if not own:
            continue
        loses = any((line.drop.value or 0.0) > 0 for line, _ in own)
        line, edit = max(own, key=lambda each: (each[0].drop.value or 0.0) * (1 if loses else -1))
        same = line.changed or not line.drop.value
        said = f"{_moves(evaluation, task, edit)}{'' if same else ', not shown to be a change'}."
        change = CHANGE.text(line.drop.negative)
        several = f"largest of {counted(len(own), 'edit')}, " if len(own) > 1 else ""
        numbers = f"That is {change} ({several}{p_text(line.drop)})".replace(", )", ")").replace(" ()", "")
        if line.random_lowest is not None and line.random_highest is not None:
            ends = dict.fromkeys(map(WHOLE_SHARE, (line.random_lowest, line.random_highest)))
            numbers += f"; under matched random controls accuracy is {wording.DASH.join(ends)}{SPACE}%"
        yield Claim((said, f"{numbers}."), ((line, edit),))


@rule("The unedited model has A of T right.", "Nothing has been measured yet.", needs="an evaluation without an edit")
def what_the_model_can(evaluation: Evaluation) -> Iterable[Claim]:
    """What the unedited model does, where no edit was tried."""
    if not evaluation.tasks:
        yield Claim(("Nothing has been measured yet.",))
    for task in evaluation.tasks if not evaluation.tried else ():
        result, items = task.baseline.result, counted(task.items, "item")
        what = f"perplexity {Form(4, significant=True).text(result)}" if task.scored else f"{SHARE.text(result)} right"
        yield Claim((f"{task.name}: {what} without an edit ({items}).",))


@rule(
    "On N test items the chosen edit gains (loses) X points.",
    "On N test items the chosen edit is not shown to change the skill.",
    needs="an edit chosen on validation items; on the test items an exact paired p of at most .05 and an interval that"
    " excludes 0",
)
def what_the_chosen_edit_does(evaluation: Evaluation) -> Iterable[Claim]:
    """What the edit that validation items chose does on test items, beside random controls and on the controls."""
    choice = evaluation.choice
    if choice is None:
        return
    gain, name = choice.gain, evaluation.name_of(choice.chosen)
    shown = None not in (gain.low, gain.high) and (gain.p is None or gain.p <= ALPHA)
    sure = shown and ((gain.low or 0.0) > 0 or (gain.high or 0.0) < 0)
    moves = f"{SHARE.text(choice.baseline_test)} to {SHARE.text(choice.accuracy_test)}"
    items = counted(choice.test_items, "test item")
    said = f"On {items} that chose nothing, {name} takes {choice.skill} from {moves}"
    yield Claim(
        (
            f"{said}{'' if sure else ': not shown to be a change'}.",
            f"The change is {CHANGE.text(gain)}{f' ({text})' if (text := p_text(gain)) else ''}; on the"
            f" {counted(choice.validation_items, 'validation item')} that chose it among"
            f" {counted(len(choice.candidates), 'edit')}"
            f" {CHANGE.text(choice.accuracy_validation - choice.baseline_validation)}.",
            *_beside(evaluation, choice),
        )
    )


def _beside(evaluation: Evaluation, choice: ChosenEdit) -> list[str]:
    """What random controls give, and what the informative controls lose."""
    informative = {task.name for task in evaluation.controls if task.informative}
    texts = [f"{control.task} {_changes(control.drop)}" for control in choice.controls if control.task in informative]
    if choice.random is not None and choice.random.gain_beyond.low is not None:
        texts.insert(0, f"beyond random controls it is {CHANGE.text(choice.random.gain_beyond)}")
    return [f"{wording.capital('; '.join(texts))}."] if texts else []


def _changes(drop: Estimate) -> str:
    return f"changes by {CHANGE.text(drop.negative)}"


@rule(
    "Items share N templates; over these, intervals are up to F times as wide.",
    "… Over these the verdict would not stand for E.",
    needs="items in at least five clusters, and half of the intervals at least 1.1 times as wide over these",
)
def over_clusters(evaluation: Evaluation, lines: Sequence[Line]) -> Iterable[Claim]:
    """How much wider intervals are over what items share, and which changes they do not carry."""
    tried = {edit.edit for edit in evaluation.tried}
    for task in evaluation.tasks:
        cells = [cell for cell in task.cells if cell.edit in tried and cell.clustered is not None]
        known = [(evaluation.name_of(cell.edit), cell.change, cell.clustered) for cell in cells if cell.clustered]
        if known and (text := clustered_intervals.changes(task.name, task.items, task.shared, known)):
            yield Claim((text,), tuple(line for line in lines if line[0].task == task.name and line[0].tried))


@rule(
    "M selects N of T weights, from A of block K to B of block L.",
    "P parameters with N weights could not be scored.",
    needs="counts, which need no test",
)
def where_the_weights_lie(isolation: Isolation) -> Iterable[Claim]:
    """Of every method how much it selects, and the blocks with the smallest and the largest share."""
    unscored = [entry for entry in isolation.coverage if not entry.scored]
    for method in dict.fromkeys(selection.method for selection in isolation.selections):
        own = [each for each in isolation.selections if each.method == method]
        each = max(own, key=lambda selection: (selection.samples, selection.keep))
        fine = Form(2, 100.0, "%")
        share = fine.text(each.share)
        sentences = [f"{each.name} selects {each.selected:,} of {each.total:,} weights ({share}){_spread(each, fine)}."]
        if unscored:
            weights = sum(entry.weights for entry in unscored)
            sentences.append(f"{counted(len(unscored), 'parameter')} with {weights:,} weights could not be scored.")
            unscored = []
        yield Claim(tuple(sentences), (each,))


def _spread(selection: Selected, fine: Form) -> str:
    shares = selection.density
    if len(shares) < 2:
        return ""
    least, most = (choose(sorted(shares), key=lambda block: shares[block]) for choose in (min, max))
    low, high = fine.text(shares[least]), fine.text(shares[most])
    return ", as many in every block" if low == high else f": {low} of block {least} to {high} of block {most}"


@rule(
    "Selections from N draws of texts share F of their weights; random ones would share G.",
    needs="at least two draws; an interval needs three",
)
def what_other_texts_select(isolation: Isolation) -> Iterable[Claim]:
    """Of every method and share how far its repeats agree, at the most texts."""
    chosen: dict[str, Overlap] = {}
    for overlap in isolation.agreements:
        if overlap.label not in chosen or overlap.samples > chosen[overlap.label].samples:
            chosen[overlap.label] = overlap
    two = decimals(2)
    for overlap in chosen.values():
        said = (
            f"Selections from {counted(overlap.repeats, 'draw')} of {counted(overlap.samples, 'text')} overlap by"
            f" {two.text(overlap.mean)} (intersection over union); random ones would by {two.text(overlap.chance)}."
        )
        single = ("One pair has no interval.",) if overlap.repeats == 2 else ()
        yield Claim((said, *single), (overlap,), subject(overlap, list(chosen.values())))


@rule(
    "N super weights were excluded from every selection; E had held K of them.",
    needs="the option that excludes super weights",
)
def which_super_weights(isolation: Isolation) -> Iterable[Claim]:
    """Which super weights were excluded, how many each selection had held, and where they were not sought."""
    excluded = isolation.excluded
    if excluded is None:
        return
    held = zip(isolation.names, isolation.selections, strict=True)
    number = counted(len(excluded.weights), "weight")
    sentences = [
        f"{number} with the largest activation spikes were excluded from every selection, first"
        f" {excluded.weights[0].name}.",
        f"Before, {'; '.join(f'{name} held {len(each.super_weights)}' for name, each in held)}.",
    ]
    if excluded.unsearched:
        blocks = wording.numbered("block", excluded.unsearched)
        sentences.append(f"Not searched, since their down projections could not be followed: {blocks}.")
    yield Claim(tuple(sentences), excluded.weights)
