"""What an isolation and an evaluation claim: whether an edit takes the skill alone, and what was selected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.rows import p_text, subject
from lesion.report.values import CHANGE, FIGURES, POINTS, SHARE, WHOLE_SHARE, Estimate, Form, decimals
from lesion.report.wording import SPACE, STOPPING_SHARE, counted
from lesion.studies.isolation.evaluation import EditedModel, EvaluatedTask, Evaluation, Line, TaskUnderEdit
from lesion.studies.isolation.result import Isolation

OFF = f", {wording.factor(0.0)}"
"""How the name of an edit ends that switches something off."""
SUFFERS = 1.05
"""The ratio of perplexities above which, by its whole interval, running text is said to suffer."""


@dataclass(frozen=True)
class Evidence:
    """Whether one edit changes the skill, more than its random controls and more than every informative control.

    Attributes:
        effect: of the edit on the skill; changed: whether it is shown.
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


def evidence(evaluation: Evaluation, skill: EvaluatedTask, edit: EditedModel) -> Evidence | None:
    """What is known of one edit on a skill; None where the skill was not answered under it."""
    effect = skill.effects.get(edit.edit)
    if effect is None or effect.change.value is None or skill.scored:
        return None
    change = edit.sought(effect.change)
    differences = {
        control.name: edit.sought(evaluation.difference(edit.edit, skill.name, control.name) or Estimate(value=None))
        for control in evaluation.controls
        if control.informative
    }
    beyond = [edit.sought(each.beyond).side == 1 for each in (effect.random, *effect.matched) if each is not None]
    rivals = [edit.sought(rival.beyond).side == 1 for rival in effect.rivals]
    return Evidence(
        edit=edit,
        effect=effect,
        changed=change.side == 1 and change.is_shown,
        beyond_random=bool(beyond) and all(beyond),
        beyond_rivals=all(rivals) if rivals else None,
        beyond_controls={name: difference.side == 1 for name, difference in differences.items()},
        suffering=tuple(c for c in evaluation.controls if c.scored and suffers(c, c.effects.get(edit.edit))),
        strength=min(each.value for each in (change, *differences.values()) if each.value is not None),
    )


def strongest(evaluation: Evaluation, skill: EvaluatedTask, edits: Sequence[EditedModel]) -> Evidence | None:
    """The most selective of a method's edits, with most evidence, and then of the largest change."""

    def order(each: Evidence) -> tuple[bool, int, float]:
        parts = (each.changed, each.beyond_random, each.beyond_rivals, all(each.beyond_controls.values()))
        return each.selective, sum(map(bool, parts)), each.strength

    known = [measured for edit in edits if (measured := evidence(evaluation, skill, edit)) is not None]
    return max(known, key=order, default=None)


def suffers(control: EvaluatedTask, effect: TaskUnderEdit | None) -> bool:
    """Whether the interval of a ratio of perplexities lies above `SUFFERS` and above the random controls' ratio."""
    if effect is None or effect.change.low is None or effect.change.high is None:
        return False
    baseline, by_chance = control.baseline.result.value, 0.0
    if effect.random is not None and baseline:
        by_chance = (effect.random.mean or 0.0) / baseline
    return effect.change.low > max(SUFFERS, by_chance)


@rule
def what_the_skill_loses(evaluation: Evaluation, lines: Sequence[Line]) -> Iterable[Claim]:
    """Of every method and direction its most selective edit, beside what it is measured against.

    Says: Without the N weights that M selects, the skill falls from A to B, more than any control or under random
    weights. | …: not shown to be more than under random weights (than the whole block, than control C loses). | …;
    whether other tasks lose as much cannot be told (no control is informative). | … is not shown to change the skill.
    Needs: a loss (of a boost, a gain) whose 95 % interval excludes 0 and whose exact paired p is at most .05, corrected
    by Holm's method over all edits tried; the same interval for the difference to the matched random controls, to every
    informative control and, of a boost, to the whole block and MLP that hold most of its weights
    """
    for skill in evaluation.skills:
        groups: dict[tuple[bool, str], list[EditedModel]] = {}
        for edit in evaluation.tried:
            groups.setdefault((edit.boosts, edit.method_name), []).append(edit)
        best = [each for edits in groups.values() if (each := strongest(evaluation, skill, edits)) is not None]
        for each in sorted(best, key=lambda each: (not each.selective, -each.strength)):
            sentences = [_falls(evaluation, skill, each), _numbers(each)]
            if caveats := _caveats(evaluation, each):
                sentences.append(f"{wording.capital('; '.join(caveats))}.")
            own = tuple(line for line in lines if line[0].edit == each.edit.edit)
            yield Claim(tuple(sentences), own)


def _moves(evaluation: Evaluation, task: EvaluatedTask, edit: EditedModel) -> str:
    """`Without the 18,237 weights that MathNeuro selects, sums falls from 88.0 % to 20.0 %`; `Without block 3, …`."""
    name = evaluation.name_of(edit.edit)
    under = f"Without {name.removesuffix(OFF)}" if name.endswith(OFF) else f"Under {name}"
    if edit.selects and edit.method != "custom" and edit.factor is not None:
        weights = f"the {edit.selected:,} weights that {edit.method_name} selects"
        under = f"With {weights} {wording.factor(edit.factor)}" if edit.factor else f"Without {weights}"
    before, after = task.baseline.result.value or 0.0, task.effects[edit.edit].result.value or 0.0
    if before == after:
        return f"{under}, {task.name} stays at {SHARE.text(after)}"
    verb = "falls" if after < before else "rises"
    return f"{under}, {task.name} {verb} from {SHARE.text(before)} to {SHARE.text(after)}"


def _falls(evaluation: Evaluation, skill: EvaluatedTask, evidence: Evidence) -> str:
    edit, controls = evidence.edit, evidence.beyond_controls
    moves, effect, verb = _moves(evaluation, skill, edit), *(("gain", "gains") if edit.boosts else ("loss", "loses"))
    if not evidence.changed:
        return f"{moves}: not shown to be a {effect}."
    missing = [f"than under {edit.elsewhere}"] * (not evidence.beyond_random)
    missing += ["than under the whole block or MLP"] * (evidence.beyond_rivals is False)
    missing += [f"than {name} {verb}" for name, beyond in controls.items() if not beyond]
    if missing:
        return f"{moves}, but not shown to be more {wording.listed(missing, 'or')}."
    if not controls:
        return f"{moves}; whether other tasks {verb.removesuffix('s')} as much cannot be told."
    some = " informative" * (len(controls) < len(evaluation.controls))
    others = f"more than under {edit.elsewhere}{' and whole blocks' * (evidence.beyond_rivals is not None)}"
    return f"{moves}, more than any{some} control and {others}."


def _numbers(evidence: Evidence) -> str:
    """The loss or gain with its interval and test, and how much of it random controls do not give."""
    edit, change, random = evidence.edit, evidence.effect.change, evidence.effect.random
    what = "gain" if edit.boosts else "loss"
    text = f"The {what} is {POINTS.text(edit.sought(change))}{_tested(change)}"
    if random is None:
        return f"{text}; no random control was measured."
    more, draws = CHANGE.text(edit.sought(random.beyond)), counted(random.draws, "draw")
    return f"{text}; the difference to {edit.elsewhere} ({draws}) is {more}."


def _tested(change: Estimate) -> str:
    return f" ({text})" if (text := p_text(change)) else ""


def _caveats(evaluation: Evaluation, evidence: Evidence) -> list[str]:
    """What a whole block gives too; what else may stand behind a loss: answers without an end, damage to all text."""
    if evidence.effect.rivals:
        ends = [(each, SHARE.text(each.result.value), each.beyond.negative) for each in evidence.effect.rivals]
        return [f"{evaluation.name_of(r.edit)} reaches {end} (the boost {CHANGE.text(more)})" for r, end, more in ends]
    rates, texts = evidence.effect.rates, []
    loss = not evidence.edit.boosts
    many = STOPPING_SHARE * (1 - (evidence.effect.result.value or 0.0))
    for rate, what in ((rates.truncated, wording.unended(rates.looped)), (rates.unparsed, "cannot be read")):
        if loss and (rate or 0.0) >= many > 0:
            texts.append(f"{WHOLE_SHARE.text(rate)} of the answers {what}")
    for control in evidence.suffering:
        ratio = Form(3, significant=True).text(control.effects[evidence.edit.edit].change)
        texts.append(f"running text suffers too, perplexity ×{ratio} on {control.name}")
    generated = any(control.kind == "generate" and control.informative for control in evaluation.controls)
    if evidence.changed and not evidence.beyond_controls:
        texts.append("no informative control was answered")
    if evidence.selective and loss and not generated:
        texts.append("no control is generated, so that damage to all generation is not ruled out")
    return texts


@rule
def what_changes_most(evaluation: Evaluation, lines: Sequence[Line]) -> Iterable[Claim]:
    """Where no task is the skill: of every task the largest loss, or the largest gain where none is lost, of those that
    are shown where some are; tasks of which a change is shown come first.

    Says: T falls most without E, from A to B. | T: no edit of N is shown to change it.
    Needs: tasks of which none is named as the skill; a loss (of a boost, a gain) whose 95 % interval excludes 0 and
    whose exact paired p is at most .05, corrected by Holm's method over all edits tried
    """
    if evaluation.skills:
        return
    ordered: list[tuple[bool, Claim]] = []
    for task in (task for task in evaluation.tasks if not task.scored):
        own = [line for line in lines if line[0].task == task.name and line[0].tried and line[0].drop.low is not None]
        if not own:
            continue
        candidates = [each for each in own if each[0].changed] or own
        loses = any((line.drop.value or 0.0) > 0 for line, _ in candidates)
        line, edit = max(candidates, key=lambda each: (each[0].drop.value or 0.0) * (1 if loses else -1))
        unsure = "" if line.changed or not line.drop.value else ", not shown to be a change"
        several = f", the largest of {counted(len(own), 'edit')}" * (len(own) > 1)
        numbers = f"The change is {CHANGE.text(line.drop.negative)}{_tested(line.drop)}{several}"
        if line.random_lowest is not None and line.random_highest is not None:
            ends = dict.fromkeys(map(WHOLE_SHARE, (line.random_lowest, line.random_highest)))
            numbers += f"; under matched random controls accuracy is {wording.DASH.join(ends)}{SPACE}%"
        claim = Claim((f"{_moves(evaluation, task, edit)}{unsure}.", f"{numbers}."), ((line, edit),))
        ordered.append((not line.changed, claim))
    yield from (claim for _, claim in sorted(ordered, key=lambda each: each[0]))


@rule
def what_the_model_can(evaluation: Evaluation) -> Iterable[Claim]:
    """What the unedited model does, where no edit was tried.

    Says: Unedited, A of N items of T are right. | Nothing has been measured yet.
    Needs: an evaluation without an edit
    """
    if not evaluation.tasks:
        yield Claim(("Nothing has been measured yet.",))
    for task in () if evaluation.tried else evaluation.tasks:
        items, result = counted(task.items, "item"), task.baseline.result
        text = f"Unedited, {SHARE.text(result)} of {items} of {task.name} are right."
        if task.scored:
            text = f"Unedited, the perplexity of {task.name} is {FIGURES.text(result)} ({items})."
        yield Claim((text,))


@rule
def what_the_chosen_edit_does(evaluation: Evaluation) -> Iterable[Claim]:
    """What the edit that validation items chose does on test items, beside random controls and on the controls.

    Says: On N test items the chosen edit gains (loses) X points. | On N test items the chosen edit is not shown to
    change the skill.
    Needs: an edit chosen on validation items; on the test items an exact paired p of at most .05 and an interval that
    excludes 0
    """
    if (choice := evaluation.choice) is None:
        return
    gain, name = choice.gain, evaluation.name_of(choice.chosen)
    unsure = ": not shown to be a change" * (gain.shown == 0)
    informative = {task.name for task in evaluation.controls if task.informative}
    known = [control for control in choice.controls if control.task in informative]
    further = [f"{control.task} changes by {CHANGE.text(control.drop.negative)}" for control in known]
    if choice.random is not None and choice.random.gain_beyond.low is not None:
        further.insert(0, f"beyond random controls it is {CHANGE.text(choice.random.gain_beyond)}")
    items, chosen_on = counted(choice.test_items, "test item"), counted(choice.validation_items, "item")
    shares = f"{SHARE.text(choice.baseline_test)} to {SHARE.text(choice.accuracy_test)}"
    chosen = CHANGE.text(choice.accuracy_validation - choice.baseline_validation)
    among = f"on the {chosen_on} that chose it among {counted(len(choice.candidates), 'edit')} {chosen}"
    first = f"On {items} that chose nothing, {name} takes {choice.skill} from {shares}{unsure}."
    second = f"The change is {CHANGE.text(gain)}{_tested(gain)}; {among}."
    yield Claim((first, second, *[f"{wording.capital('; '.join(further))}."] * bool(further)))


@rule
def where_the_weights_lie(isolation: Isolation) -> Iterable[Claim]:
    """Of every method how much it selects, and the blocks with the smallest and the largest share.

    Says: M: N of T weights are selected, from A of block K to B of block L.
    Needs: counts, which need no test
    """
    fine = Form(2, 100.0, "%")
    for method in dict.fromkeys(selection.method for selection in isolation.selections):
        own = [each for each in isolation.selections if each.method == method]
        each = max(own, key=lambda selection: (selection.samples, selection.keep))
        selected = f"{each.name}: {each.selected:,} of {each.total:,} weights ({fine.text(each.share)}) are selected"
        blocks = sorted(each.density, key=lambda block: (each.density[block], block))
        if len(blocks) > 1:
            low, high = (fine.text(each.density[block]) for block in (blocks[0], blocks[-1]))
            spread = f", from {low} of block {blocks[0]} to {high} of block {blocks[-1]}"
            selected += ", as many in every block" if low == high else spread
        yield Claim((f"{selected}.",), (each,))


@rule
def what_other_texts_select(isolation: Isolation) -> Iterable[Claim]:
    """Of every method and share how far its repeats agree, at the most texts.

    Says: Selections from N draws of texts share F of their weights; random ones would share G.
    Needs: at least two draws; an interval needs three
    """
    two = decimals(2)
    chosen = {each.label: each for each in sorted(isolation.agreements, key=lambda each: each.samples)}
    for overlap in chosen.values():
        draws = f"{counted(overlap.repeats, 'draw')} of {counted(overlap.samples, 'text')}"
        mean = f"{two.text(overlap.mean)}{' (one pair, no interval)' * (overlap.repeats == 2)}"
        text = f"Selections from {draws} share {mean} of their weights; random ones would share"
        about = subject(overlap, list(chosen.values()))
        yield Claim((f"{text} {two.text(overlap.chance)} (intersection over union).",), (overlap,), about)


@rule
def which_super_weights(isolation: Isolation) -> Iterable[Claim]:
    """Which super weights were excluded, and where they were not sought.

    Says: N super weights were excluded from every selection, first W.
    Needs: the option that excludes super weights
    """
    if (excluded := isolation.excluded) is None:
        return
    number, first = counted(len(excluded.weights), "weight"), excluded.weights[0].name
    spikes = f"{number} with the largest activation spikes were excluded from every selection, first {first}."
    blocks = wording.numbered("block", excluded.unsearched)
    unsearched = f"Not searched, since their down projections could not be followed: {blocks}."
    yield Claim((spikes, *[unsearched] * bool(excluded.unsearched)), excluded.weights)
