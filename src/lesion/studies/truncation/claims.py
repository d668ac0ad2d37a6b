"""What a truncation search claims: whether a cut helps on test items, beside its rivals, and how the search went."""

from __future__ import annotations

from collections.abc import Iterable

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import CHANGE, NATS, SHARE, WHOLE_SHARE, decimals
from lesion.report.rows import p_text
from lesion.report.values import Estimate
from lesion.report.wording import ALPHA, counted
from lesion.studies.truncation.result import FORCED, UNEDITED, EditOf, Rival, Tested, TruncationSummary

TEST = (
    "an interval on test items that excludes 0, and of accuracy an exact paired p of at most .05, not corrected for"
    " several tasks"
)
VERBS = {1: "raises", -1: "lowers", 0: "takes"}


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
        yield Claim((summary.nothing or "Nothing was chosen.", *_single_edit(summary)))
        return
    gains_first = {1: 0, -1: 1, 0: 2}
    for test in sorted(summary.kept_tests, key=lambda test: gains_first[direction(summary, test)]):
        sentences = [_moves(summary, test, summary.kept), _size(test), *_form(summary, test)]
        yield Claim(tuple(sentences), ((EditOf(what=summary.role(summary.kept), edit=summary.kept), test),))


def direction(summary: TruncationSummary, test: Tested) -> int:
    """1 for a gain, −1 for a loss: the objective's interval on test items lies beyond 0 (and p is small); else 0."""
    if test.collapsed:
        return 0
    return test.gold_gain.side if summary.by_gold else _shown(test.gain)


def _shown(change: Estimate) -> int:
    """The side of 0 on which an interval lies, where p is small as well."""
    return change.side if (change.p or 0.0) <= ALPHA else 0


def rivals_of(summary: TruncationSummary, task: str) -> list[Rival]:
    """The rivals of the cut on a task; of forbidden tokens as many as validation items choose."""
    return [rival for rival in summary.rivals if rival.task == task and (rival.what != "forbidden" or rival.fitted)]


def _fitted(summary: TruncationSummary, task: str) -> Rival | None:
    return next((rival for rival in rivals_of(summary, task) if rival.what == "forbidden"), None)


def _moves(summary: TruncationSummary, test: Tested, edit: str) -> str:
    kept = f"Keeping {summary.name(edit)}"
    if test.collapsed:
        share = WHOLE_SHARE.text(test.label_share)
        return f"{kept} gives one answer to {share} of {test.task}: its accuracy says nothing."
    side = direction(summary, test)
    text = f"{kept} {VERBS[side]} {test.task} from {SHARE.text(test.baseline)} to {SHARE.text(test.accuracy.value)}"
    if summary.by_gold:
        gain = NATS.text(test.gold_gain.value)
        text = f"{kept} {VERBS[side]} the log-probability of gold answers of {test.task} by {gain}"
    rivals = rivals_of(summary, test.task)
    unbeaten = [rival for rival in rivals if not rival.beaten]
    forbidding = _fitted(summary, test.task)
    further = ""
    if side == 0:
        further = ": not shown to be a change"
    elif side == 1 and forbidding in unbeaten and forbidding is not None:
        tokens = counted(len(forbidding.forbidden), "first token")
        further = f", but forbidding {tokens} gives {SHARE.text(forbidding.accuracy.value)}"
    elif side == 1 and unbeaten:
        further = f", but not shown to be more than {unbeaten[0].name}"
    elif side == 1 and rivals:
        further = f", more than any of its {len(rivals)} rivals"
    return f"{text} on test items{further}."


def _size(test: Tested) -> str:
    """The change with its interval and test, and what is surely changed beside what the search maximises."""
    changes = [f"Accuracy changes by {_change(test)}"]
    if test.gold_gain.side:
        changes.append(f"log-probability of gold answers by {NATS.text(test.gold_gain)}")
    for role, gain in (("right", test.right_gain), ("tempting", test.tempting_gain)):
        if gain is not None and gain.side:
            changes.append(f"probability of the {role} token by {CHANGE.text(gain)}")
    return f"{wording.listed(changes)} ({counted(test.items, 'test item')})."


def _change(test: Tested) -> str:
    return f"{CHANGE.text(test.gain)} ({p_text(test.gain)})".removesuffix(" ()")


def _form(summary: TruncationSummary, test: Tested) -> list[str]:
    """What the cut adds to forbidding tokens, and whether the forced choice moves: the form of the answer aside."""
    texts = []
    forbidding = _fitted(summary, test.task)
    if forbidding is not None and forbidding.beyond is not None:
        texts.append(f"on top of forbidding tokens the cut adds {CHANGE.text(forbidding.beyond)}")
    elif any(rival.what == "forbidden" and rival.task == test.task for rival in summary.rivals):
        texts.append("forbidding its frequent wrong first tokens does not help the unedited model")
    for forced in rivals_of(summary, test.task):
        if forced.what in FORCED and forced.edited is not None and forced.beyond is not None:
            moved = f"{CHANGE.text(forced.beyond)}{'' if _shown(forced.beyond) else ', not shown to move'}"
            ends = " to ".join(SHARE.text(share.value) for share in (forced.accuracy, forced.edited))
            texts.append(f"the {forced.name} goes from {ends} ({moved})")
    return [f"{wording.capital('; '.join(texts))}."] if texts else []


def _single_edit(summary: TruncationSummary) -> list[str]:
    """What the best cell does on test items, where another edit or none is left behind."""
    if summary.best is None or summary.best == summary.kept:
        return []
    return [
        f"The best single edit, {summary.name(summary.best)}, changes accuracy of {test.task} by {_change(test)} on"
        " test items."
        for test in summary.best_tests[:2]
    ]


@rule(
    "Nothing in the spectrum of C is shown to matter: random subspaces of its rank give A to B, deletion D.",
    "The cut beats all N of its rivals.",
    needs="a gain on test items; an exact paired p of at most .05 and an interval above 0 for the cut over each rival",
)
def whether_the_spectrum_matters(summary: TruncationSummary) -> Iterable[Claim]:
    """Whether a cut beats what stands in its place: random subspaces of its rank, deletion, and a constant factor."""
    for test in summary.kept_tests:
        rivals = rivals_of(summary, test.task)
        placed = [rival for rival in rivals if rival.what not in (*FORCED, "forbidden")]
        side = direction(summary, test)
        if side == 0 or not placed:
            continue
        drawn = [rival.accuracy.value or 0.0 for rival in placed if rival.what == "subspace"]
        levels = [f"{rival.name} {SHARE.text(rival.accuracy.value)}" for rival in placed if rival.what != "subspace"]
        if drawn:
            ends = f"{SHARE(min(drawn))} to {SHARE.text(max(drawn))}"
            levels.insert(0, f"{len(drawn)} random subspaces of that rank {ends}")
        sentences = [
            f"On {test.task} the cut gives {SHARE.text(test.accuracy)}; in its place {wording.listed(levels)}."
        ]
        if side == 1 and all(rival.beaten for rival in rivals):
            sentences.insert(0, f"The cut beats all {len(rivals)} of its rivals.")
        elif side == 1:
            sentences.insert(0, "Nothing in the spectrum is shown to matter.")
        yield Claim(tuple(sentences), tuple(placed))


@rule(
    "Composing over matrices kept N of M steps: C.",
    needs="a composition; a step stays where the validation score gets better",
)
def what_was_composed(summary: TruncationSummary) -> Iterable[Claim]:
    """How many steps of the composition stayed, and the best single edit that it began with."""
    if summary.path:
        stayed = sum(step.accepted for step in summary.path)
        text = f"Matrix by matrix, {stayed} of {counted(len(summary.path), 'step')} stayed"
        yield Claim((f"{text}: {summary.name(summary.composed or '')}.", *_single_edit(summary)), summary.path)


@rule("Under E the right token goes from A to B, the tempting one from C to D.", needs="a contrast task")
def how_the_two_tokens_move(summary: TruncationSummary) -> Iterable[Claim]:
    """Per task and edit, both tokens' mean probabilities before and after, on the model that was searched."""
    unedited = {tokens.task: tokens for tokens in summary.searched_tokens if tokens.edit == UNEDITED}
    for after in (tokens for tokens in summary.searched_tokens if tokens.edit != UNEDITED):
        before = unedited[after.task]
        right = f"{SHARE.text(before.p_right)} to {SHARE.text(after.p_right)}"
        tempting = f"{SHARE.text(before.p_tempting)} to {SHARE.text(after.p_tempting)}"
        yield Claim(
            (
                f"{after.task}, {summary.name(after.edit)}: the right token goes from {right}, the tempting one from"
                f" {tempting} (mean probability, {counted(after.items, 'item')}).",
                f"The margin in log p goes from {NATS.text(before.margin)} to {NATS.text(after.margin)}.",
            ),
            (before, after),
        )


@rule(
    "C was the best of N cells on validation items; there, partly by luck, it gains X.",
    "Screened: the best K and R random others of N cells were evaluated in full.",
    "N cells were given up early, which saved M answers.",
    needs="counts; the rank correlation of the screen has an interval by resampling cells",
)
def how_the_search_went(summary: TruncationSummary) -> Iterable[Claim]:
    """The best cell on validation items, the screen and what was given up early, each where there was one."""
    sentences, best = [], summary.by_edit.get(summary.best or "")
    if best is not None:
        objective = "log-probability of gold answers" if summary.by_gold else "accuracy"
        changes = wording.listed([CHANGE.text(outcome.gain) for outcome in best.outcomes])
        sentences.append(
            f"{wording.capital(best.name)} is the best of {counted(summary.complete, 'cell')} by {objective} on"
            f" validation items; there, partly by luck, accuracy changes by {changes}."
        )
    if screen := summary.screen:
        sentences.append(
            f"The screen left the best {screen.best:,} and {screen.random:,} random others of"
            f" {counted(len(summary.cells), 'cell')}; its rank correlation with the full evaluation is"
            f" {decimals(2).text(screen.rank_correlation)}."
        )
    if given := summary.elimination:
        sentences.append(
            f"{counted(given.eliminated, 'cell')} given up early at {counted(given.looks, 'look')} saved"
            f" {counted(given.answers_saved, 'answer')}; with a chance of at most {SHARE.text(given.error)} any was as"
            " good as the unedited model."
        )
    if sentences:
        yield Claim(tuple(sentences), () if best is None else (best,))
