"""What a truncation search found, in sentences written from its numbers; nothing without an interval and a count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lesion.report import wording
from lesion.report.evidence import ALPHA
from lesion.report.finding import Finding
from lesion.report.trials import number
from lesion.report.wording import signed
from lesion.studies.truncation.cells import UNEDITED, Cell, Search, Tested, Tokens
from lesion.studies.truncation.maps import Measure, change, collapsed, nats, nats_interval


def findings(search: Search) -> list[Finding]:
    """What was found: the verdict on the test items first, then tokens, composition and how the search went."""
    told = [_chosen(search)]
    if search.composed and search.composed_tests:
        told.append(_composed(search))
    if sentences := tokens(search):
        told.append(Finding("The right and the tempting token", (), tuple(sentences)))
    if sentences := how(search):
        told.append(Finding("How the search went", (), tuple(sentences)))
    return [finding for finding in told if finding.headline or finding.sentences]


def verdict(search: Search) -> str:
    """One sentence for the head of the page: what the edit that was found does on the test items.

    That is the composition where there is one; the single edit that it began with is then named behind it.
    """
    if search.chosen is None or search.kept is None:
        return _full_stop(search.nothing or "Nothing has been chosen yet")
    kept = f"Keeping {search.name(search.kept)}"
    tests = search.best_tests if search.kept == search.chosen else search.composed_tests
    if not tests:
        return f"{kept} was chosen on the validation items; it has not been asked on test items."
    label = [test for test in tests if test.collapsed]
    told = {
        what: [t for t in tests if not t.collapsed and direction(search, t) == what]
        for what in ("gain", "loss", "none")
    }
    of = "log-probability of the gold answers" if search.by_gold else "accuracy"
    none = f"there is no evidence that it changes the {of} on {wording.listed([t.task for t in told['none']], 'or')}"
    parts = [
        f"{verb} {wording.listed([f'{test.task} by {_by(search, test)}' for test in told[what]])}"
        for what, verb in (("gain", "improves"), ("loss", "harms"))
        if told[what]
    ]
    if parts:
        head = f"{kept} {' and '.join(parts)}, on test items that had no part in choosing it"
        head += f"; {none}." if told["none"] else "."
    elif told["none"]:
        head = f"{kept} was chosen on the validation items; on the test items {none}."
    else:
        head = f"{kept} was chosen on the validation items."
    if label:
        names = wording.listed([test.task for test in label])
        head += f" On {names} it gives nearly all test items one answer, so that no accuracy tells what it can do."
    head += "".join(_beside(search, test) for test in told["none"])
    if search.kept != search.chosen:
        head += f" The best single edit keeps {search.name(search.chosen)}."
    return head


def _beside(search: Search, test: Tested) -> str:
    """What changes for certain on a task although the objective does not: a sentence behind a space, or nothing."""
    found = []
    if search.by_gold and _beyond(test.gain_low, test.gain_high) and (test.p is None or test.p <= ALPHA):
        ends = wording.interval(test.gain_low, test.gain_high)
        found.append(f"the accuracy changes by {signed(test.gain or 0.0)} points {ends}")
    if not search.by_gold and _beyond(test.gold_low, test.gold_high):
        ends = nats_interval(test.gold_low, test.gold_high)
        found.append(f"the log-probability of the gold answers changes by {nats(test.gold_gain)} nats {ends}")
    for name in ("right", "tempting"):
        value, low, high = (getattr(test, f"p_{name}_gain{end}") for end in ("", "_low", "_high"))
        if _beyond(low, high):
            ends = wording.interval(low, high)
            found.append(f"the probability of the {name} token changes by {signed(value or 0.0)} points {ends}")
    return f" But on {test.task} {wording.listed(found)}." if found else ""


def _beyond(low: float | None, high: float | None) -> bool:
    """Whether an interval lies on one side of 0."""
    return low is not None and high is not None and (low > 0 or high < 0)


def _by(search: Search, test: Tested) -> str:
    """`12.0 points [5.0, 19.0]`, or in nats: how much an edit changes a task, without its direction."""
    if search.by_gold:
        value, low, high = test.gold_gain or 0.0, test.gold_low or 0.0, test.gold_high or 0.0
        ends = sorted((abs(low), abs(high)))
        return f"{abs(value):.2f} nats [{ends[0]:.2f},{wording.SPACE}{ends[1]:.2f}]"
    low, high = sorted((abs(test.gain_low or 0.0), abs(test.gain_high or 0.0)))
    return f"{wording.points(abs(test.gain or 0.0))} points {wording.interval(low, high)}"


def direction(search: Search, test: Tested) -> str:
    """`gain` or `loss` where the objective's interval on test items lies beyond 0 (and p is small), else `none`."""
    if search.by_gold:
        low, high, sure = test.gold_low, test.gold_high, True
    else:
        low, high, sure = test.gain_low, test.gain_high, test.p is None or test.p <= ALPHA
    if low is None or high is None or not sure:
        return "none"
    return "gain" if low > 0 else "loss" if high < 0 else "none"


def tested(search: Search, test: Tested) -> str:
    """One task's sentence: accuracy before and after with the gain and its interval, and the gold log-probability."""
    told = (
        f"{test.task}: accuracy {wording.percent(test.baseline)} → {wording.percent(test.accuracy)} "
        f"{wording.interval(test.low, test.high)}"
    ).rstrip()
    if test.gain is not None:
        told += f", {signed(test.gain)} points {wording.interval(test.gain_low, test.gain_high)}".rstrip()
    if test.p is not None:
        told += f", p{wording.SPACE}{wording.p_value(test.p)}"
    if test.gold_gain is not None:
        told += f"; gold answers {nats(test.gold_gain)} nats {nats_interval(test.gold_low, test.gold_high)}".rstrip()
    told += f" (n = {test.items:,}). "
    told += {"gain": "A gain that chance does not explain", "loss": "A loss", "none": "No evidence of a change"}[
        direction(search, test)
    ]
    told += f", judged by {'log-probability' if search.by_gold else 'accuracy'}." if test.gold_gain is not None else "."
    if test.collapsed:
        share = "" if test.label_share is None else f" to {wording.percent(test.label_share)} of the items"
        told += f" It gives one label{share}: its accuracy says how frequent that label is, not what the model can do."
    return told


def tokens(search: Search) -> list[str]:
    """Per task and edit, both tokens' probabilities and ranks before and after, at the main revision."""
    told = []
    shown = main_tokens(search)
    for task in dict.fromkeys(one.task for one in shown):
        of_task = {one.edit: one for one in shown if one.task == task}
        before = of_task.pop(UNEDITED, None)
        if before is None:
            continue
        for edit, after in of_task.items():
            told.append(
                f"{task}, {search.name(edit)}: the right token goes from {_chance(before, 'right')} to "
                f"{_chance(after, 'right')}, the tempting one from {_chance(before, 'tempting')} to "
                f"{_chance(after, 'tempting')} (mean probability, n = {after.items:,}; median rank "
                f"{_rank(before.rank_right)} → {_rank(after.rank_right)} and {_rank(before.rank_tempting)} → "
                f"{_rank(after.rank_tempting)}). The margin, mean log p right − log p tempting, goes from "
                f"{_margin(before)} to {_margin(after)} nats."
            )
    return told


def main_tokens(search: Search) -> list[Tokens]:
    """The tokens of the model that was searched: those without a revision, else those of the last one."""
    revisions = list(dict.fromkeys(one.revision for one in search.tokens))
    if not revisions:
        return []
    main = None if None in revisions else revisions[-1]
    return [one for one in search.tokens if one.revision == main]


def how(search: Search) -> list[str]:
    """Screen, elimination, collapse and decompositions, each where there was one."""
    told = []
    asked = search.search
    screen, elimination = (asked.get(name) or {} for name in ("screen", "elimination"))
    work = search.cost.get("decompositions") or {}
    if screen:
        told.append(_screen(screen, search))
    if elimination:
        told.append(_elimination(elimination))
    if many := collapsed(search.cells):
        told.append(
            f"{wording.counted(many, 'cell')} {'gives' if many == 1 else 'give'} one label nearly always on a task; "
            "there accuracy says nothing, and the map is hatched."
        )
    if work:
        computed, read, reused = (int(work.get(name) or 0) for name in ("computed", "read", "reused"))
        seconds = number(work.get("seconds"))
        told.append(
            f"{wording.counted(computed, 'matrix').replace('matrixs', 'matrices')} decomposed"
            + (f" in {seconds:,.1f} s" if seconds is not None and computed else "")
            + f", {read:,} read from disk; {wording.counted(reused, 'time')} a decomposition was used again."
        )
    return told


def _screen(screen: Mapping[str, Any], search: Search) -> str:
    asked = screen.get("items")
    items = wording.counted(asked, "validation item") if isinstance(asked, int) else "all validation items"
    told = (
        f"A screen by the log-probability of gold answers ({items} of "
        f"each task) picked what was asked further: the best {int(screen.get('best') or 0):,}, and "
        f"{int(screen.get('random') or 0):,} of the others drawn by the seed to judge the screen. Of "
        f"{wording.counted(len(search.cells), 'cell')}, {search.complete:,} {_were(search.complete)} asked in full"
        + (f" and {search.given_up:,} {_were(search.given_up)} given up early." if search.given_up else ".")
    )
    found = number(screen.get("rank_correlation"))
    if found is not None:
        low, high = number(screen.get("low")), number(screen.get("high"))
        told += (
            f" Rank correlation of the screen with the full evaluation, over those asked in full: {found:.2f}".replace(
                "-", wording.MINUS
            )
        )
        if low is not None and high is not None:
            told += f" [{low:.2f},{wording.SPACE}{high:.2f}]".replace("-", wording.MINUS)
        told += "."
    return told


def _elimination(elimination: Mapping[str, Any]) -> str:
    many, looks = (int(elimination.get(name) or 0) for name in ("eliminated", "looks"))
    error, saved = number(elimination.get("error")), int(elimination.get("answers_saved") or 0)
    at = wording.counted(looks, "look")
    told = f"No cell was given up early, at {at} back at the answers until then."
    if many:
        verb = "was" if many == 1 else "were"
        told = f"{wording.counted(many, 'cell')} {verb} given up early at one of {at}, which saved "
        told += f"{wording.counted(saved, 'answer')}."
    if error is not None and many:
        told += (
            f" The chance that any cell at least as good as the unedited model was given up is at most "
            f"{wording.percent(error, 1 if error < 0.01 else 0)}."
        )
    return told


def _chosen(search: Search) -> Finding:
    if search.best is None:
        return Finding("", (verdict(search),))
    tried = wording.counted(search.complete, "cell")
    by = "the log-probability of gold answers" if search.by_gold else "accuracy"
    told = f"{search.name(search.best)} is the best by {by} on {_validation(search)}, of {tried} asked in full"
    cell = search.by_edit.get(search.best)
    changes = [] if cell is None else _changes(search, cell)
    if changes:
        told += (
            f"; on these items, on which it was picked and of which some is luck, it is at {wording.listed(changes)}"
        )
    sentences = [*(tested(search, test) for test in search.best_tests), f"{_capital(told)}."]
    if search.chosen is None and search.best_tests:
        sentences[0] = f"The best that there is, {search.name(search.best)}, on test items: {sentences[0]}"
    elif search.kept != search.chosen and search.best_tests:
        sentences[0] = f"The best single edit alone, {search.name(search.best)}, on test items: {sentences[0]}"
    if cell is not None and cell.rank and cell.saved is not None and cell.saved > 0:
        sentences.append(
            f"It keeps {cell.rank:,} of {wording.counted(cell.of, 'singular value')}; as two thin factors the matrix "
            f"has {cell.saved:,} parameters fewer."
        )
    if len(search.best_tests) > 1:
        sentences.append(f"p and intervals are not corrected for {len(search.best_tests)} tasks.")
    return Finding("", (verdict(search),), tuple(sentences))


def _composed(search: Search) -> Finding:
    stayed, back = (sum(step.accepted is kept for step in search.path) for kept in (True, False))
    headline = (
        f"Matrix by matrix, {wording.counted(stayed, 'step')} stayed and {back:,} {'was' if back == 1 else 'were'} "
        f"rolled back: {search.name(search.composed or '')}."
    )
    same = search.composed == search.chosen
    sentences = (
        ("That is the chosen edit itself.",) if same else tuple(tested(search, t) for t in search.composed_tests)
    )
    return Finding("Composed over layers", (headline,), sentences)


def _changes(search: Search, cell: Cell) -> list[str]:
    """`+12.0 points [5.0, 19.0]` on validation items, with `on TASK` where there are several; by gold, in nats."""
    found = []
    for one in cell.outcomes.values():
        gold = change(search, cell, Measure("gold", one.task))
        where = f" on {one.task}" if len(cell.outcomes) > 1 else ""
        if search.by_gold and gold is not None:
            found.append(f"{nats(gold)} nats{where}")
        elif not search.by_gold and one.drop is not None:
            low, high = one.drop_low, one.drop_high
            ends = "" if low is None or high is None else f" {wording.interval(0.0 - high, 0.0 - low)}"
            found.append(f"{signed(0.0 - one.drop)} points{ends}{where}")
    return found


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _validation(search: Search) -> str:
    return wording.listed(
        [f"{wording.counted(task.validation_items, 'validation item')} of {task.name}" for task in search.tasks]
    )


def _chance(one: Tokens, role: str) -> str:
    p, low, high = (getattr(one, f"p_{role}{end}") for end in ("", "_low", "_high"))
    digits = 1 if p is None or p >= 0.1 else 2
    return f"{wording.percent(p, digits)} {wording.interval(low, high, digits)}".rstrip()


def _margin(one: Tokens) -> str:
    return f"{nats(one.margin)} {nats_interval(one.margin_low, one.margin_high)}".rstrip()


def _rank(value: float | None) -> str:
    return wording.DASH if value is None else f"{value:,g}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _full_stop(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
