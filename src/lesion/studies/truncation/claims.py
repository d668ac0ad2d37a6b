"""What a truncation search claims: whether a cut helps on test items, beside its rivals, and how the search went."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import CHANGE, NATS, SHARE, WHOLE_SHARE, decimals
from lesion.report.rows import p_text
from lesion.report.values import Estimate
from lesion.report.wording import ALPHA, counted
from lesion.studies.truncation.result import (
    FORCED,
    UNEDITED,
    EditOf,
    Rival,
    Role,
    Tested,
    Tokens,
    TruncationSummary,
)

Direction = Literal["gain", "loss", "none"]
TEST = (
    "an interval on test items that excludes 0, and of accuracy an exact paired p of at most .05, not corrected for"
    " several tasks"
)


@rule(
    "Keeping C raises T from A to B on test items, but forbidding N first tokens gives D.",
    "Keeping C raises T from A to B on test items, more than any of its N rivals.",
    "Keeping C lowers T from A to B on test items.",
    "Keeping C takes T from A to B on test items: not shown to be a change.",
    "Keeping C gives nearly always one answer on T.",
    "No truncation was better than the unedited model on validation items.",
    needs=f"{TEST}; rivals are beaten by the same test of the difference",
)
def what_the_cut_does(summary: TruncationSummary) -> Iterable[Claim]:
    """What the edit that the search leaves behind does on the test items of every task, beside forbidding tokens."""
    if summary.chosen is None or summary.kept is None:
        yield Claim((summary.nothing or "Nothing was chosen.", *_best_anyway(summary)))
        return
    order = {"gain": 0, "loss": 1, "none": 2}
    for test in sorted(kept_tests(summary), key=lambda test: order[direction(summary, test)]):
        sentences = [_moves(summary, test, summary.kept), _size(summary, test), *_form(summary, test)]
        yield Claim(tuple(sentences), ((EditOf(what=summary.role(summary.kept), edit=summary.kept), test),))


def kept_tests(summary: TruncationSummary) -> tuple[Tested, ...]:
    """The test items under the edit that the search leaves behind."""
    return summary.best_tests if summary.kept == summary.chosen else summary.composed_tests


def direction(summary: TruncationSummary, test: Tested) -> Direction:
    """`gain` or `loss` where the objective's interval on test items lies beyond 0 (and p is small), else `none`."""
    gain = test.gold_gain if summary.by_gold else test.gain
    sure = summary.by_gold or gain.p is None or gain.p <= ALPHA
    if gain.low is None or gain.high is None or not sure or test.collapsed:
        return "none"
    return "gain" if gain.low > 0 else "loss" if gain.high < 0 else "none"


def rivals_of(summary: TruncationSummary, task: str) -> list[Rival]:
    """The rivals of the cut on a task; of forbidden tokens as many as validation items choose."""
    return [rival for rival in summary.rivals if rival.task == task and (rival.what != "forbidden" or rival.fitted)]


def _moves(summary: TruncationSummary, test: Tested, edit: str) -> str:
    kept = f"Keeping {summary.name(edit)}"
    if test.collapsed:
        share = WHOLE_SHARE.text(test.label_share)
        return f"{kept} gives one answer to {share} of {test.task}: its accuracy says nothing."
    found = direction(summary, test)
    verb = {"gain": "raises", "loss": "lowers", "none": "takes"}[found]
    if summary.by_gold:
        text = f"{kept} {verb} the log-probability of gold answers of {test.task} by {NATS.text(test.gold_gain.value)}"
    else:
        text = f"{kept} {verb} {test.task} from {SHARE.text(test.baseline)} to {SHARE.text(test.accuracy.value)}"
    if found == "none":
        return f"{text} on test items: not shown to be a change."
    rivals = rivals_of(summary, test.task)
    if found == "gain" and rivals:
        fitted = next((rival for rival in rivals if rival.what == "forbidden"), None)
        if fitted is not None and not fitted.beaten:
            tokens = counted(len(fitted.forbidden), "first token")
            return f"{text} on test items, but forbidding {tokens} gives {SHARE.text(fitted.accuracy.value)}."
        unbeaten = [rival.name for rival in rivals if not rival.beaten]
        if not unbeaten:
            return f"{text} on test items, more than any of its {len(rivals)} rivals."
        return f"{text} on test items, but not shown to be more than {unbeaten[0]}."
    return f"{text} on test items."


def _size(summary: TruncationSummary, test: Tested) -> str:
    """The change with its interval and test, and what is surely changed beside what the search maximises."""
    change = f"Accuracy changes by {CHANGE.text(test.gain)}{_p(test.gain)}"
    gold = f"log-probability of gold answers by {NATS.text(test.gold_gain)}" if _sure(test.gold_gain) else ""
    tokens = [
        f"probability of the {role} token by {CHANGE.text(gain)}"
        for role, gain in (("right", test.right_gain), ("tempting", test.tempting_gain))
        if gain is not None and _sure(gain)
    ]
    return f"{wording.listed([change, *filter(None, (gold, *tokens))])} ({counted(test.items, 'test item')})."


def _p(estimate: Estimate) -> str:
    return f" ({text})" if (text := p_text(estimate)) else ""


def _sure(estimate: Estimate) -> bool:
    return estimate.low is not None and estimate.high is not None and (estimate.low > 0 or estimate.high < 0)


def _form(summary: TruncationSummary, test: Tested) -> list[str]:
    """What the cut adds to forbidding tokens, and whether the forced choice moves: the form of the answer aside."""
    texts = []
    fitted = next((rival for rival in rivals_of(summary, test.task) if rival.what == "forbidden"), None)
    if fitted is not None and fitted.beyond is not None:
        texts.append(f"on top of forbidding tokens the cut adds {CHANGE.text(fitted.beyond)}")
    elif any(rival.what == "forbidden" and rival.task == test.task for rival in summary.rivals):
        texts.append("forbidding its frequent wrong first tokens does not help the unedited model")
    for forced in (rival for rival in summary.rivals if rival.task == test.task and rival.what in FORCED):
        if forced.edited is not None and forced.beyond is not None:
            moves = _sure(forced.beyond) and (forced.beyond.p or 0) <= ALPHA
            moved = "" if moves else ", not shown to move"
            texts.append(
                f"the {forced.name} goes from {SHARE.text(forced.accuracy.value)} to {SHARE.text(forced.edited.value)}"
                f" ({CHANGE.text(forced.beyond)}{moved})"
            )
    return [f"{wording.capital('; '.join(texts))}."] if texts else []


def _best_anyway(summary: TruncationSummary) -> list[str]:
    """What the best cell does on test items although it was not chosen."""
    if summary.best is None:
        return []
    return [
        f"The best, {summary.name(summary.best)}, changes accuracy of {test.task} on test items by"
        f" {CHANGE.text(test.gain)}{_p(test.gain)}."
        for test in summary.best_tests[:2]
    ]


@rule(
    "Nothing in the spectrum of C is shown to matter: random subspaces of its rank give A to B, deletion D.",
    "The cut beats all N of its rivals.",
    needs="a gain on test items; an exact paired p of at most .05 and an interval above 0 for the cut over each rival",
)
def whether_the_spectrum_matters(summary: TruncationSummary) -> Iterable[Claim]:
    """Whether a cut beats what stands in its place: random subspaces of its rank, deletion, and a constant factor."""
    for test in kept_tests(summary) if summary.chosen else ():
        rivals = [rival for rival in rivals_of(summary, test.task) if rival.what not in FORCED]
        placed = [rival for rival in rivals if rival.what != "forbidden"]
        if direction(summary, test) == "none" or not placed:
            continue
        drawn = [rival.accuracy.value or 0.0 for rival in placed if rival.what == "subspace"]
        levels = [f"{rival.name} {SHARE.text(rival.accuracy.value)}" for rival in placed if rival.what != "subspace"]
        if drawn:
            ends = f"{SHARE(min(drawn))} to {SHARE.text(max(drawn))}"
            levels.insert(0, f"{len(drawn)} random subspaces of that rank {ends}")
        said: tuple[str, ...] = ()
        if direction(summary, test) == "gain":
            beaten = all(rival.beaten for rival in rivals_of(summary, test.task))
            every = f"The cut beats all {len(rivals_of(summary, test.task))} of its rivals."
            said = (every if beaten else "Nothing in the spectrum is shown to matter.",)
        numbers = f"On {test.task} the cut gives {SHARE.text(test.accuracy)}; in its place {wording.listed(levels)}."
        yield Claim((*said, numbers), tuple(placed))


@rule(
    "Composing over matrices kept N of M steps: C.",
    needs="a composition; a step stays where the validation score gets better",
)
def what_was_composed(summary: TruncationSummary) -> Iterable[Claim]:
    """How many steps of the composition stayed, and the best single edit that it began with."""
    if not summary.path:
        return
    stayed = sum(step.accepted for step in summary.path)
    text = f"Matrix by matrix, {stayed} of {counted(len(summary.path), 'step')} stayed"
    single = [
        f"The best single edit, {summary.name(summary.best)}, changes accuracy of {test.task} by"
        f" {CHANGE.text(test.gain)}{_p(test.gain)} on test items."
        for test in summary.best_tests[:2]
        if summary.best is not None and summary.composed != summary.best
    ]
    yield Claim((f"{text}: {summary.name(summary.composed or '')}.", *single), summary.path)


@rule("Under E the right token goes from A to B, the tempting one from C to D.", needs="a contrast task")
def how_the_two_tokens_move(summary: TruncationSummary) -> Iterable[Claim]:
    """Per task and edit, both tokens' mean probabilities before and after, on the model that was searched."""
    for before in (tokens for tokens in summary.searched_tokens if tokens.edit == UNEDITED):
        for after in summary.searched_tokens:
            if after.task == before.task and after.edit != UNEDITED:
                right, tempting = (_token(before, after, role) for role in ("right", "tempting"))
                margin = f"{NATS.text(before.margin)} to {NATS.text(after.margin)}"
                yield Claim(
                    (
                        f"{before.task}, {summary.name(after.edit)}: the right token goes from {right}, the tempting"
                        f" one from {tempting} (mean probability, {counted(after.items, 'item')}).",
                        f"The margin in log p goes from {margin}.",
                    ),
                    (before, after),
                )


def _token(before: Tokens, after: Tokens, role: Role) -> str:
    return " to ".join(SHARE.text(tokens.probability(role)) for tokens in (before, after))


@rule(
    "C was the best of N cells on validation items; there, partly by luck, it gains X.",
    "Screened: the best K and R random others of N cells were evaluated in full.",
    "N cells were given up early, which saved M answers.",
    needs="counts; the rank correlation of the screen has an interval by resampling cells",
)
def how_the_search_went(summary: TruncationSummary) -> Iterable[Claim]:
    """The best cell on validation items, the screen and what was given up early, each where there was one."""
    sentences = []
    if summary.best is not None:
        cell = summary.by_edit[summary.best]
        objective = "log-probability of gold answers" if summary.by_gold else "accuracy"
        changes = wording.listed([f"{CHANGE.text(outcome.drop.negative)}" for outcome in cell.outcomes])
        sentences.append(
            f"{wording.capital(cell.name)} is the best of {counted(summary.complete, 'cell')} by {objective} on"
            f" validation items; there, partly by luck, accuracy changes by {changes}."
        )
    if screen := summary.screen:
        items = "all validation items" if screen.items == "all" else counted(screen.items, "validation item")
        agreement = screen.rank_correlation
        known = f"; its rank correlation with the full evaluation is {decimals(2).text(agreement)}"
        sentences.append(
            f"The screen ({items} of each task) left the best {screen.best:,} and {screen.random:,} random others of"
            f" {counted(len(summary.cells), 'cell')}{known if agreement.value is not None else ''}."
        )
    if given := summary.elimination:
        error = SHARE.text(given.error)
        sentences.append(
            f"{counted(given.eliminated, 'cell')} given up early at {counted(given.looks, 'look')} saved"
            f" {counted(given.answers_saved, 'answer')}; with a chance of at most {error} any was as good as the"
            " unedited model."
        )
    if sentences:
        yield Claim(tuple(sentences), tuple(summary.ranked()[:1]))
