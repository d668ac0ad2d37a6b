"""What a truncation search found, in sentences written from its numbers; nothing without an interval and a count."""

from __future__ import annotations

from typing import Literal

from lesion.report import wording
from lesion.report.finding import Finding, limits
from lesion.report.values import Estimate
from lesion.report.wording import ALPHA
from lesion.studies.truncation.numbers import (
    nats,
    nats_estimate,
    nats_interval,
    percent_estimate,
    points_change,
    probability,
)
from lesion.studies.truncation.result import (
    UNEDITED,
    Cell,
    Decompositions,
    Elimination,
    Role,
    ScreenOutcome,
    Tested,
    Tokens,
    TruncationSummary,
)
from lesion.studies.truncation.rival_findings import beyond_forbidding, beyond_form, spectrum

Direction = Literal["gain", "loss", "none"]
ROLES: tuple[Role, ...] = ("right", "tempting")


def findings(summary: TruncationSummary, work: Decompositions | None = None) -> list[Finding]:
    """The verdict on the test items first, then tokens, composition and how the search went."""
    parts = [
        _chosen(summary),
        *limits((base.task, f"{base.part} item", base.accuracy.value, base.items) for base in summary.unedited),
    ]
    parts[1:1] = spectrum(summary, _changed(summary, "gain"), _changed(summary, "loss"))
    if summary.composed and summary.composed_tests:
        parts.append(_composed(summary))
    if sentences := tokens(summary):
        parts.append(Finding("The right and the tempting token", (), tuple(sentences)))
    if sentences := how(summary, work):
        parts.append(Finding("How the search went", (), tuple(sentences)))
    return parts


def verdict(summary: TruncationSummary) -> str:
    """One sentence for the head of the page: what the edit that was chosen does on the test items.

    That is the composition where there is one; the single edit that it began with is then named behind it.
    """
    if summary.chosen is None or summary.kept is None:
        return summary.nothing or ""
    kept = f"Keeping {summary.name(summary.kept)}"
    tests = summary.best_tests if summary.kept == summary.chosen else summary.composed_tests
    collapsed = [test.task for test in tests if test.collapsed]
    by_direction: dict[str, list[Tested]] = {"gain": [], "loss": [], "none": []}
    for test in tests:
        if not test.collapsed:
            by_direction[direction(summary, test)].append(test)
    unchanged = wording.listed([test.task for test in by_direction["none"]], "or")
    none = f"no evidence of a change in {_objective(summary)} on {unchanged}"
    changes = [
        f"{verb} {wording.listed([f'{test.task} by {_size(summary, test)}' for test in by_direction[what]])}"
        for what, verb in (("gain", "improves"), ("loss", "harms"))
        if by_direction[what]
    ]
    text = f"{kept} {' and '.join(changes)} on test items" if changes else f"{kept} was chosen on validation items"
    if unchanged:
        text += f"; {none}" if changes else f"; on test items {none}"
    text += "."
    if collapsed:
        text += f" On {wording.listed(collapsed)} it gives nearly always one answer: accuracy says nothing there."
    for what, beside in (("gain", beyond_forbidding), ("loss", beyond_form)):
        text += "".join(f" {more}" for test in by_direction[what] if (more := beside(summary, test.task)))
    text += "".join(_beside(summary, test) for test in by_direction["none"])
    if summary.kept != summary.chosen:
        text += f" The best single edit keeps {summary.name(summary.chosen)}."
    return text


def _changed(summary: TruncationSummary, what: Direction) -> list[str]:
    """The tasks on which the edit that the search leaves behind is better, or worse, on test items."""
    if summary.chosen is None:
        return []
    tests = summary.best_tests if summary.kept == summary.chosen else summary.composed_tests
    return [test.task for test in tests if not test.collapsed and direction(summary, test) == what]


def _objective(summary: TruncationSummary) -> str:
    return "log-probability of gold answers" if summary.by_gold else "accuracy"


def _beside(summary: TruncationSummary, test: Tested) -> str:
    """What surely changes on a task although the objective does not: a sentence behind a space, or nothing."""
    changes = []
    if summary.by_gold and _beyond(test.gain) and (test.gain.p is None or test.gain.p <= ALPHA):
        changes.append(f"accuracy {points_change(test.gain)}")
    if not summary.by_gold and _beyond(test.gold_gain):
        ends = nats_interval(test.gold_gain.low, test.gold_gain.high)
        changes.append(f"log-probability of gold answers {nats(test.gold_gain.value)} nats {ends}")
    for role, gain in (("right", test.right_gain), ("tempting", test.tempting_gain)):
        if gain is not None and _beyond(gain):
            changes.append(f"probability of the {role} token {points_change(gain)}")
    return f" But on {test.task}: {wording.listed(changes)}." if changes else ""


def _beyond(estimate: Estimate) -> bool:
    """Whether an interval lies on one side of 0."""
    return estimate.low is not None and estimate.high is not None and (estimate.low > 0 or estimate.high < 0)


def _size(summary: TruncationSummary, test: Tested) -> str:
    """`12.0 points [5.0, 19.0]`, or in nats: how much an edit changes a task, without its direction."""
    gain = test.gold_gain if summary.by_gold else test.gain
    value, (low, high) = abs(gain.value or 0.0), sorted((abs(gain.low or 0.0), abs(gain.high or 0.0)))
    if summary.by_gold:
        return f"{value:.2f} nats [{low:.2f},{wording.SPACE}{high:.2f}]"
    return f"{wording.points(value)} points {wording.interval(low, high)}"


def direction(summary: TruncationSummary, test: Tested) -> Direction:
    """`gain` or `loss` where the objective's interval on test items lies beyond 0 (and p is small), else `none`."""
    gain = test.gold_gain if summary.by_gold else test.gain
    sure = summary.by_gold or gain.p is None or gain.p <= ALPHA
    if gain.low is None or gain.high is None or not sure:
        return "none"
    return "gain" if gain.low > 0 else "loss" if gain.high < 0 else "none"


def tested(summary: TruncationSummary, test: Tested, *, judged: bool) -> str:
    """One task's sentence: accuracy before and after, and the objective's gain with its interval.

    `judged`: whether it ends with what that shows, which a headline may have said already.
    """
    text = f"{test.task}: accuracy {wording.percent(test.baseline)} → {percent_estimate(test.accuracy)}"
    if test.gain.value is not None:
        text += f", {points_change(test.gain)}"
    if test.gain.p is not None:
        text += f", p{wording.SPACE}{wording.p_value(test.gain.p)}"
    if summary.by_gold and test.gold_gain.value is not None:
        ends = nats_interval(test.gold_gain.low, test.gold_gain.high)
        text += f"; gold answers {nats(test.gold_gain.value)} nats {ends}".rstrip()
    words = {"gain": "a gain", "loss": "a loss", "none": "no evidence of a change"}
    shows = f": {words[direction(summary, test)]} in {_objective(summary)}" if judged else ""
    text += f" (n = {test.items:,}){shows}."
    if test.collapsed:
        text += (
            f" It gives one label to {wording.percent(test.label_share)} of the items: accuracy is that label's share."
        )
    return text


def tokens(summary: TruncationSummary) -> list[str]:
    """Per task and edit, both tokens' probabilities before and after, on the model that was searched."""
    sentences = []
    for task in dict.fromkeys(each.task for each in summary.searched_tokens):
        of_task = {each.edit: each for each in summary.searched_tokens if each.task == task}
        before = of_task.pop(UNEDITED, None)
        if before is None:
            continue
        for edit, after in of_task.items():
            right, tempting = (_token_change(before, after, role) for role in ROLES)
            sentences.append(
                f"{task}, {summary.name(edit)}: right token {right}; tempting token {tempting} (mean probability,"
                f" n = {after.items:,}). Mean margin in log p: {nats_estimate(before.margin)} to"
                f" {nats_estimate(after.margin)} nats."
            )
    return sentences


def _token_change(before: Tokens, after: Tokens, role: Role) -> str:
    return " to ".join(probability(tokens.probability(role)) for tokens in (before, after))


def how(summary: TruncationSummary, work: Decompositions | None) -> list[str]:
    """Screen, elimination, collapse and decompositions, each where there was one."""
    sentences = []
    if summary.screen:
        sentences.append(_screen(summary.screen, summary))
    if summary.elimination:
        sentences.append(_elimination(summary.elimination))
    if many := sum(cell.collapsed for cell in summary.cells):
        sentences.append(
            f"Nearly always one label on a task: {wording.counted(many, 'cell')} (≡ in the maps); accuracy says nothing"
            " there."
        )
    if work is not None:
        seconds = f" in {work.seconds:,.1f} s" if work.seconds is not None and work.computed else ""
        sentences.append(
            f"Decompositions: {work.computed:,} computed{seconds}, {work.read:,} read from disk, {work.reused:,}"
            " reused."
        )
    return sentences


def _screen(screen: ScreenOutcome, summary: TruncationSummary) -> str:
    items = "all validation items" if screen.items == "all" else wording.counted(screen.items, "validation item")
    text = (
        f"Screened by the log-probability of gold answers ({items} of each task): the best {screen.best:,} and"
        f" {screen.random:,} random others of {wording.counted(len(summary.cells), 'cell')} were evaluated in full."
    )
    agreement = screen.rank_correlation
    if agreement.value is not None:
        numbers = f"{agreement.value:.2f}"
        if agreement.low is not None and agreement.high is not None:
            numbers += f" [{agreement.low:.2f},{wording.SPACE}{agreement.high:.2f}]"
        numbers = numbers.replace("-", wording.MINUS)
        text += f" Rank correlation with the full evaluation: {numbers}."
    return text


def _elimination(elimination: Elimination) -> str:
    looks = wording.counted(elimination.looks, "look")
    if not elimination.eliminated:
        return f"No cell was given up early at {looks}."
    return (
        f"Given up early at {looks}: {wording.counted(elimination.eliminated, 'cell')}, which saved"
        f" {wording.counted(elimination.answers_saved, 'answer')}. The chance that any was at least as good as the"
        f" unedited model is at most {wording.percent(elimination.error, 1 if elimination.error < 0.01 else 0)}."
    )


def _chosen(summary: TruncationSummary) -> Finding:
    if summary.best is None:
        return Finding("", (verdict(summary),))
    best, cell = summary.name(summary.best), summary.by_edit[summary.best]
    text = (
        f"{best} is the best of {wording.counted(summary.complete, 'cell')} by {_objective(summary)} on"
        f" {_validation(summary)}"
    )
    if changes := _changes(summary, cell):
        text += f"; there, partly by luck: {wording.listed(changes)}"
    judged = summary.kept != summary.chosen or summary.chosen is None  # else the headline says it
    sentences = [*(tested(summary, test, judged=judged) for test in summary.best_tests), f"{wording.capital(text)}."]
    if summary.chosen is None:
        sentences[0] = f"The best edit, {best}, on test items: {sentences[0]}"
    elif summary.kept != summary.chosen:
        sentences[0] = f"The best single edit alone, {best}, on test items: {sentences[0]}"
    if cell.rank and cell.saved > 0:
        sentences.append(
            f"It keeps {cell.rank:,} of {wording.counted(cell.of, 'singular value')}: {cell.saved:,} parameters fewer"
            " as two thin factors."
        )
    if len(summary.best_tests) > 1:
        sentences.append(f"p and intervals are not corrected for {len(summary.best_tests)} tasks.")
    return Finding("", (verdict(summary),), tuple(sentences))


def _composed(summary: TruncationSummary) -> Finding:
    stayed = sum(step.accepted for step in summary.path)
    back = len(summary.path) - stayed
    headline = (
        f"Matrix by matrix, {wording.counted(stayed, 'step')} stayed, {back:,} rolled back:"
        f" {summary.name(summary.composed or '')}."
    )
    same = summary.composed == summary.chosen
    sentences = (
        ("This is the chosen edit.",)
        if same
        else tuple(tested(summary, t, judged=True) for t in summary.composed_tests)
    )
    return Finding("Composed over layers", (headline,), sentences)


def _changes(summary: TruncationSummary, cell: Cell) -> list[str]:
    """`+12.0 points [5.0, 19.0]` on validation items, with `on TASK` where there are several; by gold, in nats."""
    changes = []
    for outcome in cell.outcomes:
        gold = None if outcome.collapsed else summary.gold_change(outcome)
        where = f" on {outcome.task}" if len(cell.outcomes) > 1 else ""
        if summary.by_gold and gold is not None:
            changes.append(f"{nats(gold)} nats{where}")
        elif not summary.by_gold and outcome.drop.value is not None:
            changes.append(f"{points_change(outcome.drop.negative)}{where}")
    return changes


def _validation(summary: TruncationSummary) -> str:
    return wording.listed(
        [f"{wording.counted(task.validation_items, 'validation item')} of {task.name}" for task in summary.tasks]
    )
