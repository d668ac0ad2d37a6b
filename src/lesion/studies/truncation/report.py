"""The result of a truncation search: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from lesion.core.result import S, StudyResult
from lesion.report import wording
from lesion.report.blocks import Block, Check, Folded, entries
from lesion.report.checks import FEW, GAIN
from lesion.report.claims import Claim, rule
from lesion.report.marks import Bars, Curves, Map, Mark
from lesion.report.parts import Part
from lesion.report.rows import Rows, p_text
from lesion.report.table import Table
from lesion.report.values import CHANGE, NATS, SHARE, WHOLE_POINTS, Estimate, decimals
from lesion.report.wording import counted
from lesion.statistics.detectable import smallest_drop
from lesion.studies.truncation.result import (
    BEST,
    FORCED,
    CellState,
    Compared,
    EditOf,
    Outcome,
    RevisionOutcome,
    Rival,
    Score,
    SingularValue,
    Step,
    Tested,
    Tokens,
    TruncatedMatrix,
    TruncationSummary,
    Unedited,
)

VERBS = {1: "rises", -1: "falls", 0: "goes"}
UNSHOWN = {0: ": not shown to be a change"}
GAINS_FIRST = {1: 0, -1: 1, 0: 2}


def moves(name: str, what: str, side: int, ends: str) -> str:
    """`With block 3 left out, sums falls from 41.0 % to 21.0 % on test items`, without its full stop."""
    return f"With {name}, {what} {VERBS[side]} {ends} on test items"


def ends(before: float | None, after: float | None) -> str:
    """`from 41.0 % to 47.5 %`."""
    return f"from {SHARE.text(before)} to {SHARE.text(after)}"


def one_answer(name: str, task: str) -> str:
    """That an accuracy under an edit is only that of a label."""
    return f"With {name} the model gives nearly always one answer to {task}, so that its accuracy says nothing."


NO_HELP = "a simple rival, forbidding frequent wrong first tokens, gains nothing on the items that choose"


def but_forbidding(tokens: int, level: float | None, *, as_much: bool) -> str:
    """That a gain is not shown to add to forbidding first tokens, which has this accuracy, as much or less."""
    few = f"forbidding {counted(tokens, 'first token')}"
    how = f"{few} does as much" if as_much else f"not shown to add to {few}"
    return f", but {how} ({SHARE.text(level)})"


def size(gain: Estimate, items: int, *further: str) -> str:
    """The change with its interval and test, and what else is surely changed."""
    accuracy = f"accuracy changes by {CHANGE.text(gain)} ({p_text(gain)})".removesuffix(" ()")
    return f"On {counted(items, 'test item')} {wording.listed([accuracy, *further])}."


@rule
def what_the_cut_does(summary: TruncationSummary) -> Iterable[Claim]:
    """What the edit that the search leaves behind does on the test items of every task, beside forbidding tokens.

    Says: With C, T rises from A to B on test items, but forbidding N first tokens does as much (D). | With C, T rises
    from A to B on test items, but not shown to add to forbidding N first tokens (D). | With C, T rises from A to
    B on test items, more than any of its N rivals. | With C, T falls from A to B on test items. | With C, T goes from A
    to B on test items: not shown to be a change. | With C the model gives nearly always one answer to T. | No
    truncation was better than the unedited model on validation items.
    Needs: an interval on test items that excludes 0, and of accuracy an exact paired p of at most .05, not corrected
    for several tasks; rivals are beaten by the same test of the difference
    """
    if summary.chosen is None or summary.kept is None:
        yield Claim((summary.nothing or "Nothing was chosen.",))
        return
    name, edit = f"{summary.name(summary.kept)} kept", EditOf(what=summary.role(summary.kept), edit=summary.kept)
    for test in sorted(summary.kept_tests, key=lambda test: GAINS_FIRST[direction(summary, test)]):
        further = [f"log-probability of gold answers by {NATS.text(test.gold_gain)}"] * (test.gold_gain.side != 0)
        tokens = {"right": test.right_gain, "tempting": test.tempting_gain}
        further += [
            f"probability of the {role} token by {CHANGE.text(g)}" for role, g in tokens.items() if g and g.side
        ]
        sentences = _moves(summary, test, name), size(test.gain, test.items, *further), *_form(summary, test)
        yield Claim(sentences, ((edit, test),))


def direction(summary: TruncationSummary, test: Tested) -> int:
    """1 for a gain, −1 for a loss: the objective's interval on test items lies beyond 0 (and p is small); else 0."""
    if test.collapsed:
        return 0
    return {"accuracy": test.gain, "gold": test.gold_gain}[summary.study.objective].shown


def rivals_of(summary: TruncationSummary, task: str) -> list[Rival]:
    """The rivals of the cut on a task; of forbidden tokens as many as validation items choose."""
    return [rival for rival in summary.rivals if rival.task == task and (rival.what != "forbidden" or rival.fitted)]


def _moves(summary: TruncationSummary, test: Tested, name: str) -> str:
    if test.collapsed:
        return one_answer(name, test.task)
    side, rivals = direction(summary, test), rivals_of(summary, test.task)
    text = moves(name, test.task, side, ends(test.baseline, test.accuracy.value))
    if summary.by_gold:
        text = moves(
            name, f"the log-probability of gold answers of {test.task}", side, f"by {NATS.text(test.gold_gain.value)}"
        )
    unbeaten = [rival for rival in rivals if not rival.beaten]
    further = UNSHOWN.get(side, "")
    if side == 1 and (forbidding := [rival for rival in unbeaten if rival.what == "forbidden"]):
        level = forbidding[0].accuracy.value or 0.0
        as_much = not summary.by_gold and level >= (test.accuracy.value or 0.0)
        further = but_forbidding(len(forbidding[0].forbidden), level, as_much=as_much)
    elif side == 1 and unbeaten:
        further = f", but not shown to be more than {unbeaten[0].name}"
    elif side == 1 and rivals:
        further = f", more than any of its {len(rivals)} rivals"
    return f"{text}{further}."


def _form(summary: TruncationSummary, test: Tested) -> list[str]:
    """What the cut adds to forbidding tokens, and whether the forced choice moves: the form of the answer aside."""
    texts, rivals = [], [rival for rival in summary.rivals if rival.task == test.task]
    if any(rival.what == "forbidden" for rival in rivals) and not any(rival.fitted for rival in rivals):
        texts.append(NO_HELP)
    for rival in rivals:
        if rival.fitted and rival.beyond is not None:
            texts.append(f"on top of forbidding tokens the cut adds {CHANGE.text(rival.beyond)}")
        if rival.what in FORCED and rival.edited is not None and rival.beyond is not None:
            moved = f"{CHANGE.text(rival.beyond)}{', not shown to move' * (rival.beyond.shown == 0)}"
            texts.append(f"the {rival.name} goes {ends(rival.accuracy.value, rival.edited.value)} ({moved})")
    return [f"{wording.capital('; '.join(texts))}."] if texts else []


@rule
def whether_the_spectrum_matters(summary: TruncationSummary) -> Iterable[Claim]:
    """Whether a cut beats what stands in its place: random subspaces of its rank, deletion, and a constant factor.

    Says: Nothing in the spectrum is shown to matter. | On T the cut gives A; in its place random subspaces of its rank
    B to C, deletion D.
    Needs: a change on test items; nothing is shown to matter unless the cut beats each rival by an exact paired p of at
    most .05 and an interval above 0
    """
    for test in summary.kept_tests:
        rivals = rivals_of(summary, test.task)
        placed = [rival for rival in rivals if rival.what not in (*FORCED, "forbidden")]
        side = direction(summary, test)
        if side == 0 or not placed:
            continue
        drawn = [rival.accuracy.value or 0.0 for rival in placed if rival.what == "subspace"]
        levels = [f"{rival.name} {SHARE.text(rival.accuracy.value)}" for rival in placed if rival.what != "subspace"]
        if drawn:
            span = f"{SHARE(min(drawn))} to {SHARE.text(max(drawn))}"
            levels.insert(0, f"{len(drawn)} random subspaces of that rank {span}")
        beaten = all(rival.beaten for rival in rivals)
        first = ["Nothing in the spectrum is shown to matter."] * (side == 1 and not beaten)
        cut = f"On {test.task} the cut gives {SHARE.text(test.accuracy)}; in its place {wording.listed(levels)}."
        yield Claim((*first, cut), tuple(placed))


@rule
def how_the_search_went(summary: TruncationSummary) -> Iterable[Claim]:
    """The best cell on validation items, and the screen where there was one.

    Says: C is the best of N cuts on validation items; there, partly by luck, accuracy changes by X. | The screen left
    the best K and R random others of N cuts; its rank correlation with the full evaluation is ρ.
    Needs: counts; the rank correlation of the screen has an interval by resampling cells
    """
    sentences, best = [], summary.by_edit.get(summary.best or "")
    if best is not None:
        objective = "log-probability of gold answers" if summary.by_gold else "accuracy"
        changes = wording.listed([CHANGE.text(outcome.gain) for outcome in best.outcomes])
        most = f"{wording.capital(best.name)} is the best of {counted(summary.complete, 'cut')} by {objective}"
        sentences = [f"{most} on validation items; there, partly by luck, accuracy changes by {changes}."]
    if screen := summary.screen:
        others = f"{screen.random:,} random others of {counted(len(summary.cells), 'cut')}"
        correlation = f"its rank correlation with the full evaluation is {decimals(2).text(screen.rank_correlation)}"
        sentences.append(f"The screen left the best {screen.best:,} and {others}; {correlation}.")
    if sentences:
        yield Claim(tuple(sentences), () if best is None else (best,))


CHOSEN_APART = "Chosen on other items than it is tested on."
METHOD = "Truncations are tried on validation items; the best is tested on items that the search never saw."


class SearchedResult(StudyResult[S]):
    """A study that chooses an edit on some items and tests it on others."""

    TEXTLESS = True

    def split(self) -> Iterable[tuple[str, int, int]]:
        """Of each task its name, on how many items an edit was chosen, and on how many it was tested."""
        return ()

    @property
    def by_perplexity(self) -> bool:
        """Whether nothing is right or wrong, so that no accuracy can change."""
        return False

    @property
    @override
    def basis(self) -> str:
        counts = [
            f"{name}: chosen on {chosen:,}, tested on {counted(test, 'item')}" for name, chosen, test in self.split()
        ]
        drop = None if self.by_perplexity else smallest_drop(min(test for _, _, test in self.split()), 1)
        missed = f"; changes under about {WHOLE_POINTS.text(drop)} can be missed" if drop is not None else ""
        return f"{'; '.join(counts)}{missed}."

    @override
    def done(self) -> list[str]:
        return super().done() + ([f"edit: {self.folder / BEST}"] if (self.folder / BEST).exists() else [])


@dataclass(frozen=True)
class TruncationResult(SearchedResult[TruncationSummary]):
    """A truncation search: its numbers, and the edit that it chose as a file.

    Attributes:
        table: one row per cell and task, as in `cells.csv`.
    """

    SUMMARY = TruncationSummary
    EYEBROW = "truncation of weights"
    CHAPTER = (METHOD, "Truncation")
    READING = (
        "A cell replaces one matrix by a part of its spectrum: the largest singular values (top) or the smallest"
        " (bottom), keep being the fraction of the rank.",
        "That a removal helps does not show that the removed part of the spectrum is special: it must be better than"
        " all of its rivals. First tokens are forbidden at decoding, those of the unedited model's most frequent wrong"
        " answers on validation items; random subspaces, a deleted branch and a constant factor stand in the place of"
        " the cut.",
    )
    TESTED = (
        "The cut was chosen on validation items and tested on others by McNemar's exact test; p are not corrected for"
        " several tasks. Brackets: {level} intervals."
    )

    @property
    def edit(self) -> Path | None:
        """The `.edit` file of the chosen edit, or of the composition; None: no edit was better."""
        return self.folder / BEST if self.summary.chosen else None

    @override
    def shown(self) -> Table:
        return Table.of(_cells(self.summary))

    @override
    def parts(self) -> list[Part]:
        return list(_parts(self.summary))

    @override
    def split(self) -> list[tuple[str, int, int]]:
        return [(task.name, task.validation_items, task.test_items) for task in self.summary.tasks]

    @override
    def checks(self) -> list[Check]:
        return list(_checks(self.summary))

    @property
    @override
    def facts(self) -> list[tuple[str, str]]:
        study = self.summary.study.model_dump(mode="json", exclude_none=True, exclude={"kind", "title"})
        return list(entries({**study, **self.summary.model.model_dump(exclude={"name"})}))


def _parts(summary: TruncationSummary) -> Iterator[Part]:
    tasks = wording.listed([task.name for task in summary.tasks])
    yield Part(
        f"Does removing a part of a matrix make {summary.model.name} better at {tasks}?",
        Rows("", list(_compared(summary)), (Compared,), "On test items"),
        (
            Bars(
                "gain", "name", by="what", panel="task", name="test",
                caption="Gain over the unedited model; on the items that chose it the best of many is partly luck.",
            ),
        ),
        (*what_the_cut_does(summary), *whether_the_spectrum_matters(summary)),
        own=tuple(Folded(rows.title, (Table.of(rows),)) for rows in _tables(summary) if rows.records),
        wide=True,
    )  # fmt: skip
    yield Part(
        "Which matrices, layers and ranks?", _cells(summary), _maps(summary), how_the_search_went(summary),
        short="Search", own=_spectra(summary), wide=True,
    )  # fmt: skip
    if summary.tokens:
        rows = Rows(
            "tokens", [(_edit(summary, tokens.edit), tokens) for tokens in summary.tokens], (EditOf, Tokens),
            "The two tokens", "Mean probabilities; ranks are medians, 1 is the likeliest token; margin: log p right −"
            " log p tempting.",
        )  # fmt: skip
        bars = ("what", "revision") if summary.revisions else "what"
        marks = tuple(
            Bars(value, bars, panel="task", name=f"tokens-{value}") for value in ("margin", "p_right", "p_tempting")
        )
        yield Part("The right and the tempting token", rows, marks, short="Tokens")
    if summary.revisions:
        outcomes = [(_edit(summary, each.edit), each) for each in summary.revisions]
        yield Part(
            "Do other revisions gain as well?",
            Rows("revisions", outcomes, (EditOf, RevisionOutcome), "Revisions"),
            (Bars("accuracy", ("revision", "what"), by="what", panel="task", name="revisions"),),
            short="Revisions",
        )  # fmt: skip
    if summary.path:
        steps = [(step, step.after) for step in summary.path]
        rows = Rows("composition", steps, (Step, Score), "Composition", "On validation items.")
        yield Part("Do cuts of several matrices add up?", rows, short="Composition")


def _spectra(summary: TruncationSummary) -> tuple[Block, ...]:
    """The singular values of every matrix, folded."""
    values = [
        SingularValue(address=spectrum.address, index=index, value=value)
        for spectrum in summary.spectra
        for index, value in zip(spectrum.index, spectrum.values, strict=True)
    ]
    figure = Curves("value", "number", "block", log=True, panel="matrix").figure(values, "spectra")
    rows = Rows("spectra", values, (SingularValue,), "Singular values")
    return (Folded("Spectra", (figure, Table.of(rows))),) if figure is not None else ()


def _edit(summary: TruncationSummary, edit: str) -> EditOf:
    return EditOf(what=summary.role(edit), edit=edit)


def _tables(summary: TruncationSummary) -> tuple[Rows, ...]:
    # The composed edit stands in the table also where it is the best one.
    single = "chosen" if summary.chosen else "best"
    of_edits = ((single, summary.best, summary.best_tests), ("composed", summary.composed, summary.composed_tests))
    tested = [(EditOf(what=what, edit=edit), test) for what, edit, tests in of_edits if edit for test in tests]
    return (
        Rows("test", tested, (EditOf, Tested), "Every edit", "Gold: mean log-probability of the gold answers."),
        Rows(
            "rivals", summary.rivals, (Rival,), "Every rival",
            "Marked: as many forbidden tokens as are best on validation items.", marked="fitted",
        ),
        Rows("baseline", summary.unedited, (Unedited,), "The unedited model"),
    )  # fmt: skip


def _compared(summary: TruncationSummary) -> Iterator[Compared]:
    """The cut on test items, its rivals there, and the cut on the items that chose it."""
    edit = summary.kept or summary.best or ""
    of_cell = {outcome.task: outcome for cell in summary.cells if cell.edit == edit for outcome in cell.outcomes}
    for test in summary.kept_tests or summary.best_tests:
        task, name, what = test.task, summary.name(edit), "the cut"
        yield Compared(task=task, name=name, what=what, accuracy=test.accuracy, gain=test.gain)
        for rival in rivals_of(summary, task):
            what, level = {"forbidden": "form of the answer"}.get(rival.what, "in its place"), rival.accuracy
            if (gain := rival.gain) is not None:
                yield Compared(task=task, name=rival.name, what=what, accuracy=level, gain=gain, beyond=rival.beyond)
        if outcome := of_cell.get(task):
            name, what = "the cut, on the items that chose it", "chosen on these items"
            yield Compared(task=task, name=name, what=what, accuracy=outcome.accuracy, gain=outcome.gain)


def _cells(summary: TruncationSummary) -> Rows:
    base = {each.task: each.gold for each in summary.unedited if each.part == "validation"}
    lines = []
    for cell in summary.cells:
        for outcome in cell.outcomes or (None,):
            before = None if outcome is None or outcome.collapsed else base[outcome.task]
            gold_gain = None if before is None or outcome is None or outcome.gold is None else outcome.gold - before
            chosen = cell.edit == summary.chosen
            lines.append((cell, outcome, CellState(gold_gain=gold_gain, chosen=chosen, state=_state(summary, cell))))
    return Rows(
        "cells", lines, (TruncatedMatrix, Outcome, CellState), "All cells",
        "Intervals hold for one cell each, not for the best of all. Parameters saved: as two thin factors.",
        marked="chosen", hidden=frozenset({"items", "gold", "collapsed"}),
    )  # fmt: skip


def _state(summary: TruncationSummary, cell: TruncatedMatrix) -> str:
    """What became of a cell, in a few words."""
    if cell.edit == summary.best:
        return "chosen" if summary.chosen else "best, not chosen"
    if cell.eliminated is not None:
        return f"given up after {cell.eliminated:,}"
    if not cell.outcomes:
        return "screened out"
    return "one answer" if any(outcome.collapsed for outcome in cell.outcomes) else "evaluated in full"


def _maps(summary: TruncationSummary) -> tuple[Mark, ...]:
    """Layer × keep of every matrix and side: what the search maximises first."""
    look: dict[str, Any] = {"over": "layer", "up": "keep", "boxed": "chosen", "hue": "gain"}
    answered: dict[str, Any] = {**look, "panel": ("task", "matrix", "side"), "only": {"collapsed": False}}
    accuracy = Map(
        "gain", full=0.2, name="map", **answered,
        caption="Gains on validation items; the colour is full at 20 points. Boxed: the chosen cut. Missing cells were"
        " screened out, given up early, or keep the same as another.",
    )  # fmt: skip
    gold = Map("gold_gain", full=1.0, name="map-gold", caption="Log-probability of gold answers, in nats.", **answered)
    screen = Map("screen", full=1.0, name="map-screen", panel=("matrix", "side"), caption="On the screen.", **look)
    return (gold, accuracy, screen) if summary.by_gold else (accuracy, gold, screen)


def grounds(baselines: Iterable[tuple[str, float, int]], collapsed: Sequence[str], *, gains: bool) -> Iterator[Check]:
    """Whether a test can be believed, by the unedited accuracy and number of items of every task."""
    tests = list(baselines)
    if full := [name for name, accuracy, items in tests if gains and (1 - accuracy) * items < GAIN - 0.5]:
        yield Check("bad", f"Fewer than {GAIN} test items are wrong, so that no gain can show: {wording.listed(full)}.")
    if none := [name for name, accuracy, _ in tests if accuracy == 0]:
        yield Check("bad", f"The unedited model has no test item right: {wording.listed(none)}.")
    if few := [name for name, _, items in tests if items < FEW]:
        yield Check("bad", f"Fewer than {FEW} test items, so that chance decides much: {wording.listed(few)}.")
    if collapsed:
        yield Check("bad", f"Nearly always one answer: {wording.listed(collapsed)}.")


def _checks(summary: TruncationSummary) -> Iterator[Check]:
    tested = [(base.task, base.accuracy.value or 0.0, base.items) for base in summary.unedited if base.part == "test"]
    yield from grounds(tested, [test.task for test in summary.kept_tests if test.collapsed], gains=True)
    if summary.chosen and not summary.study.compose:
        yield Check("good", CHOSEN_APART, "truncate", "--compose")
    elif summary.chosen:
        yield Check("good", CHOSEN_APART)
