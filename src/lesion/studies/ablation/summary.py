"""From stored answers to the numbers of a study: accuracies, paired drops, tests; perplexities of running text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import attrgetter

import numpy as np
import pandas as pd
from jaxtyping import Bool

from lesion.core.clustered_intervals import OverClusters, Sharing
from lesion.core.rates import approximate, by_edit, complete, first_scores, rates, verdicts
from lesion.core.values import alike, with_corrected
from lesion.edits.edit import BASELINE
from lesion.edits.place import UNITS, Unit
from lesion.report.values import Estimate
from lesion.report.wording import counted
from lesion.statistics.bets import confidence_sequence
from lesion.statistics.contrasts import perplexity, perplexity_p, perplexity_ratio
from lesion.statistics.critical import (
    POWER,
    SHARES,
    Pairs,
    critical,
    critical_cells,
    fewest_right,
    pairs,
    smallest_loss,
)
from lesion.statistics.paired import ALPHA, Contrast, accuracy, holm, paired_drop, sign_flip_exact
from lesion.statistics.relative_losses import difference, p_loses_more
from lesion.studies.ablation.cell import Apart, Cell, Scores
from lesion.studies.ablation.drops import drops, forced_baseline, forced_under, margins
from lesion.studies.ablation.result import (
    AblationSummary,
    AtShare,
    KindContrast,
    ModelResult,
    Sensitivity,
    Stopped,
    TaskResult,
    TextResult,
    TextUnderEdit,
)
from lesion.studies.ablation.screening import chosen_edits, limited, no_screen, screened
from lesion.studies.ablation.stopping import Stopping, Verdicts, baseline_of
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.sweep import PlaceEdit, kind_of, place_of_edit, text_of
from lesion.tasks.item_clusters import Shared, shared
from lesion.tasks.judges.judge import stands
from lesion.tasks.task import TRUNCATED

Right = Bool[np.ndarray, " items"]


def summarise(
    study: Study,
    plan: Mapping[str, Sequence[PlaceEdit]],
    answers: pd.DataFrame,
    items: pd.DataFrame,
    guessing: Mapping[str, float] | None = None,
    without_chat: Mapping[str, Collection[str]] | None = None,
    tried: Mapping[tuple[str, str], Sequence[PlaceEdit]] | None = None,
) -> AblationSummary:
    """The numbers of a study without those of its families: what is known of every edit that has all its answers.

    An edit that is still missing answers is left out and named in the task's `planned`; a task without a complete
    baseline is left out with a note. Running text and what else is scored by log-probability has perplexities.

    Args:
        guessing: the accuracy of guessing of each task that has one, in 0…1.
        without_chat: by model, the tasks whose prompts did not use the chat template that the model has.
        tried: by model and task, edits of earlier studies of the same items: corrections count them.
    """
    notes: list[str] = []
    unscreened: list[str] = []
    models = []
    of_tasks = {choice.name: items[items["task"] == choice.name] for choice in study.tasks}
    drawn = {task: list(of_task["item"]) for task, of_task in of_tasks.items()}
    for model, edits in plan.items():
        tasks: list[TaskResult] = []
        texts: list[TextResult] = []
        of_model = answers[answers["model_name"] == model]
        stopping = None
        if study.stop is not None:
            columns = (of_model[column] for column in ("task", "edit", "item", "correct"))
            stopping = Stopping(study.stop, drawn, edits).replay(Verdicts(zip(*columns, strict=True)))
        for task, ids in drawn.items():
            of_task = of_model[of_model["task"] == task]
            if is_running_text(of_task) and (text := text_result(task, ids, of_task, edits, study.level)):
                texts.append(text)
                unscreened.append(task)
                continue
            own = _Task(study, task, of_tasks[task], of_task, edits, (guessing or {}).get(task, 0.0))
            if stopping is None:
                begun, result = "all items", own.full((tried or {}).get((model, task), ()))
            else:
                begun, result = "the items of the first round", own.stopped(stopping)
            if result is None:
                notes.append(f"{model} has not answered {begun} of {task} without an edit yet.")
                continue
            changes: dict[str, object] = {"without_chat": task in (without_chat or {}).get(model, ())}
            if study.screens:
                top = study.screen_top
                changes["screen"] = screened(of_model, ids, result, edits, level=study.level, seed=study.seed, top=top)
                if any(map(len, of_task["scores"])):
                    unscreened.append(task)
            tasks.append(result.model_copy(update=changes))
            notes += _nonfinite(model, task, of_task, edits)
        if study.screen_top is not None:
            kept = chosen_edits(of_model, drawn, edits, study.screen_top)
            notes += limited(model, tasks, kept, len(edits), study.screen_top)
        models.append(ModelResult(model=model, tasks=apart(tasks, study.level), texts=texts))
    if study.screens:
        notes += map(no_screen, dict.fromkeys(unscreened))
    engines = list(dict.fromkeys(answers["engine"]))
    if len(engines) > 1:
        notes.append(
            f"Answers were given by more than one engine: {'; '.join(each or 'not recorded' for each in engines)}."
        )
    return AblationSummary(
        engine="; ".join(filter(None, engines)),
        approximate=approximate(study.decoding.stop_loops),
        study=study,
        models=models,
        notes=notes,
    )


@dataclass(frozen=True)
class _Task:
    """A task of one model: its items, the answers so far under which edits, and how often a guess is right."""

    study: Study
    task: str
    items: pd.DataFrame
    answers: pd.DataFrame
    edits: Sequence[PlaceEdit]
    chance: float

    def full(self, beside: Sequence[PlaceEdit]) -> TaskResult | None:
        """The result of a full table; None where the baseline is not complete.

        `beside` are edits that corrections count and no more.
        """
        frames = complete(self.answers, list(self.items["item"]))
        baseline = frames.get(str(BASELINE))
        if baseline is None:
            return None
        cells: dict[PlaceEdit, Cell] = {}
        sensitivity = []
        of_items = shared(self.task, self.items)
        further = Counter((edit.unit, edit.factor) for edit in beside)
        for kind in alike(self.edits, "unit", "factor"):
            tests = len(kind) + further[kind[0].unit, kind[0].factor]
            done = {edit: frames[text] for edit in kind if (text := text_of(edit, self.task)) in frames}
            if done:
                of_kind, reach = self._cells(baseline, done, tests, of_items)
                cells |= of_kind
                sensitivity.append(reach)
        whole = [edit for edit in self.edits if edit.unit in UNITS]
        return TaskResult(
            task=self.task,
            items=len(self.items),
            baseline=_scores(baseline, self.study.level),
            cells=[cells[edit] for edit in self.edits if edit in cells],
            planned=sorted({edit.layer for edit in self.edits if self.study.screen_top is None}),
            sensitivity=sensitivity,
            guessing=self.chance,
            shared=Sharing.of(of_items),
            contrasts=contrasts(self.task, frames, whole, self.study.level),
            forced=forced_baseline(baseline, self.study.level),
        )

    def _cells(
        self, baseline: pd.DataFrame, answered: Mapping[PlaceEdit, pd.DataFrame], tests: int, of_items: Shared | None
    ) -> tuple[dict[PlaceEdit, Cell], Sensitivity]:
        """The cells of one unit and factor, and what the rule can find in them.

        p-values are corrected over all `tests` of the finished study: an edit that is still missing answers counts.
        """
        level, chance = self.study.level, self.chance
        right, gold = verdicts(baseline), self.items.set_index("item")["gold"]
        after = [verdicts(frame) for frame in answered.values()]
        ended = right & ~baseline["finish"].isin(TRUNCATED).to_numpy()
        stated = [_stated(frame, gold, ended & ~now) for frame, now in zip(answered.values(), after, strict=True)]
        tested_drops = drops(right, after, tests, level, chance, stated=stated)
        by_margin = margins(baseline, answered, tests, level)
        by_word = margins(baseline, answered, tests, level, against_word=True)
        by_force = forced_under(baseline, answered, tests, level)
        cells = {}
        for (edit, frame), now, of_drop, cut in zip(answered.items(), after, tested_drops, stated, strict=True):
            cells[edit] = Cell(
                **dict(_scores(frame, level)),
                **place_of_edit(edit, self.task),
                **of_drop,
                stated=cut or None,
                critical=critical(of_drop["p_critical_corrected"]),
                spared=critical(of_drop["p_spared_corrected"]),
                margin=by_margin.get(edit),
                word_margin=by_word.get(edit),
                forced=by_force.get(edit),
                clustered=OverClusters.of(right.astype(float) - now, of_items, paired_drop(right, now, level), level),
            )
        losses = [pairs(right, now).retaining(cut) for now, cut in zip(after, stated, strict=True)]
        first, correct = next(iter(answered)), int(right.sum())
        shares = []
        if first.unit in UNITS:
            for share in SHARES:
                calls = critical_cells(losses, tests - len(after), share, chance)
                layers = [edit.layer for edit, called in zip(answered, calls, strict=True) if called]
                shares.append(AtShare(share=share, critical=layers))
        return cells, Sensitivity(
            unit=first.unit,
            factor=first.factor,
            tests=tests,
            right=correct,
            fewest_right=fewest_right(tests, items=len(right), chance=chance),
            power=POWER,
            smallest_loss=smallest_loss(correct, tests, len(right), chance),
            shares=shares,
        )

    def stopped(self, stopping: Stopping) -> TaskResult | None:
        """The result where cells stop once they are decided; None where the first round is not answered yet.

        Every number is over the items that the cell was evaluated on until it was decided, whatever else is stored.
        Intervals are confidence sequences, which hold at whatever number of items evaluation stopped. There are no
        p-values, and `critical` is None: that is a question for a full table. The baseline of the task is over all
        items that any cell has.
        """
        level, ids = self.study.level, list(self.items["item"])
        reached = stopping.reached[baseline_of(self.task)]
        if not reached:
            return None
        frames, decisions = by_edit(self.answers), stopping.decided
        baseline = frames[str(BASELINE)].loc[ids[:reached]]
        cells = []
        for edit in self.edits:
            text = text_of(edit, self.task)
            own = ids[: stopping.reached[self.task, text]]
            unedited, edited = baseline.loc[own], frames[text].loc[own]
            cells.append(
                Cell(
                    **dict(_scores(edited, level, stopped=True)),
                    **place_of_edit(edit, self.task),
                    drop=Estimate.of(confidence_sequence(verdicts(unedited), verdicts(edited), 1 - level)),
                    decided=decisions[self.task, text],
                    baseline=_scores(unedited, level, stopped=True),
                )
            )
        return TaskResult(
            task=self.task,
            items=reached,
            baseline=_scores(baseline, level, stopped=True),
            cells=cells,
            planned=sorted({edit.layer for edit in self.edits}),
            guessing=self.chance,
            stopping=Stopped(
                effect=stopping.plan.effect,
                level=stopping.plan.level,
                items=len(ids),
                finished=all(cell.decided != "open" or cell.items == len(ids) for cell in cells),
            ),
        )


def _stated(frame: pd.DataFrame, gold: pd.Series, lost: Right) -> int:
    """How many lost answers state the gold answer and were cut off, where the unedited model had ended by itself."""
    cut = frame[lost & frame["finish"].isin(TRUNCATED).to_numpy()]
    return sum(stands(text, str(right)) for text, right in zip(cut["text"], gold.loc[cut.index], strict=True))


def _scores(frame: pd.DataFrame, level: float, *, stopped: bool = False) -> Scores:
    """Accuracy with Wilson's interval, or where evaluation stopped with a confidence sequence, and rates."""
    right = verdicts(frame)
    share = accuracy(right, level)
    if stopped:
        # Right minus wrong is 1 or −1, with the mean 2p − 1 for an accuracy of p.
        mean = confidence_sequence(right, ~right, 1 - level)
        share = Contrast(float(right.mean()), (1 + mean.low) / 2, (1 + mean.high) / 2)
    return Scores(items=len(right), accuracy=Estimate.of(share), **rates(frame))


def _nonfinite(model: str, task: str, answers: pd.DataFrame, edits: Sequence[PlaceEdit]) -> list[str]:
    broken = answers["edit"][answers["finish"] == "nonfinite"].value_counts()
    return [
        f"{model}, {task}, edit {edit}: {counted(int(broken[edit]), 'answer')} broken off because logits were not"
        " finite, and counted as wrong."
        for edit in [str(BASELINE), *(text_of(edit, task) for edit in edits)]
        if edit in broken
    ]


def apart(tasks: Sequence[TaskResult], level: float) -> list[TaskResult]:
    """The tasks of a model, with what is `apart` of their critical cells.

    Tested are other tasks for which the place is neither critical nor spared, with answers of the cell's task as right
    that count so in its own test. p is corrected over all places of the family and all other tasks, tested or not.
    """
    if len(tasks) < 2 or any(result.stopping for result in tasks):
        return list(tasks)
    place = attrgetter("layer", "unit", "factor", "part")
    others = {result.task: {place(cell): cell for cell in result.cells} for result in tasks}
    updated = []
    for result in tasks:
        of_cells: dict[Cell, list[Apart]] = {}
        for reach in result.sensitivity:
            tested = [
                (cell, other, against)
                for cell in result.cells
                if cell.critical and (cell.unit, cell.factor) == (reach.unit, reach.factor)
                for other in tasks
                if other.task != result.task
                for against in [others[other.task].get(place(cell))]
                if against is not None and against.outcome == "cannot be told"
            ]
            counts = [
                (_pairs(result, cell).retaining(cell.stated or 0), _pairs(other, against))
                for cell, other, against in tested
            ]
            chances = [(result.guessing, other.guessing) for _, other, _ in tested]
            p = [p_loses_more(*both, *chance) for both, chance in zip(counts, chances, strict=True)]
            corrected = holm(p, reach.tests * (len(tasks) - 1))
            for number, (cell, other, _) in enumerate(tested):
                if corrected[number] <= ALPHA:
                    of = Estimate.of(difference(*counts[number], *chances[number], level), p[number], corrected[number])
                    of_cells.setdefault(cell, []).append(Apart(task=other.task, difference=of))
        cells = [cell.model_copy(update={"apart": tuple(of_cells.get(cell, ()))}) for cell in result.cells]
        updated.append(result.model_copy(update={"cells": tuple(cells)}))
    return updated


def _pairs(result: TaskResult, cell: Cell) -> Pairs:
    lost, won = cell.lost or 0, cell.won or 0
    return Pairs(lost, result.right - lost, won, result.items - result.right - won)


def contrasts(
    task: str, frames: Mapping[str, pd.DataFrame], edits: Sequence[PlaceEdit], level: float
) -> list[KindContrast]:
    """Every pair of kinds at every place that has answered both, of units with a replacement and another kind.

    One test a pair: McNemar's exact test of the items that only one of the two has right; where a kind has several
    draws, its generalisation (`sign_flip_exact`) to how many draws have an item right. p is corrected by Holm over
    places × pairs of a unit, those that still miss answers included.

    Args:
        frames: answers to all items by the text of the edit, in one order.
    """
    places: dict[Unit, dict[str, dict[str, list[PlaceEdit]]]] = {}
    for edit in edits:
        if kind := kind_of(edit.factor):
            places.setdefault(edit.unit, {}).setdefault(edit.address, {}).setdefault(kind, []).append(edit)
    every = []
    for of_unit in places.values():
        pairs = [pair for by_kind in of_unit.values() for pair in combinations(by_kind.items(), 2)]
        of_pairs = [_contrast(task, frames, pair, level) for pair in pairs]
        every += with_corrected([each for each in of_pairs if each is not None], "difference", len(pairs))
    return every


def _contrast(
    task: str, frames: Mapping[str, pd.DataFrame], pair: Sequence[tuple[str, list[PlaceEdit]]], level: float
) -> KindContrast | None:
    """One pair at one place, without correction; None where an answer is missing."""
    (first, (edit, *_)), (second, _) = pair
    texts = [[text_of(each, task) for each in edits] for _, edits in pair]
    if any(text not in frames for of_kind in texts for text in of_kind):
        return None
    first_right, second_right = (np.array([verdicts(frames[text]) for text in of_kind]) for of_kind in texts)
    counts = len(second_right) * first_right.sum(0).astype(int), len(first_right) * second_right.sum(0).astype(int)
    difference = Estimate(value=float(first_right.mean() - second_right.mean()))
    if len(first_right) == len(second_right) == 1:
        difference = Estimate.of(paired_drop(first_right[0], second_right[0], level))
    difference = difference.model_copy(update={"p": sign_flip_exact(counts[0] - counts[1])})
    return KindContrast(layer=edit.layer, unit=edit.unit, first=first, second=second, difference=difference)


FEW_TEXTS = 5
"""Fewer texts than these are said to be few."""


def is_running_text(answers: pd.DataFrame) -> bool:
    """Whether these are log-probabilities of one text each, of which none is right or wrong."""
    return any(len(scores) == 1 and not text for scores, text in zip(answers["scores"], answers["text"], strict=True))


def text_result(
    task: str, ids: Sequence[str], answers: pd.DataFrame, edits: Sequence[PlaceEdit], level: float
) -> TextResult | None:
    """The perplexity of a task under every edit that has scored all of its texts; None without a complete baseline.

    Args:
        edits: that the study plans; p-values are corrected over all of one unit and factor, missing ones too.
    """
    frames = complete(answers, ids)
    unedited = frames.get(str(BASELINE))
    if unedited is None:
        return None
    tokens = unedited["tokens"].to_numpy(dtype=np.int64)
    before = first_scores(unedited)
    cells: list[TextUnderEdit] = []
    for kind in alike(edits, "unit", "factor"):
        after = {edit: first_scores(frames[text]) for edit in kind if (text := text_of(edit, task)) in frames}
        of_kind = [
            TextUnderEdit(
                **place_of_edit(edit, task),
                perplexity=_estimate(perplexity(scores, tokens, level)),
                ratio=_estimate(perplexity_ratio(before, scores, tokens, level), perplexity_p(before, scores, tokens)),
            )
            for edit, scores in after.items()
        ]
        cells += with_corrected(of_kind, "ratio", len(kind))
    return TextResult(
        task=task,
        texts=len(ids),
        tokens=int(tokens.sum()),
        baseline=_estimate(perplexity(before, tokens, level)),
        planned=len(edits),
        cells=cells,
    )


def text_limits(model: str, text: TextResult, vocabulary: int | None) -> Iterator[str]:
    """What limits the perplexities of a text, a sentence each; `vocabulary`: tokens that the model chooses among."""
    about = f"{model}, {text.task}: "
    if text.texts == 1:
        yield f"{about}one text has no interval and no test, which go by the spread between texts; give more text."
    elif text.texts < FEW_TEXTS:
        yield f"{about}{text.texts} texts are few; intervals go by the spread between them and are wide."
    worst = text.baseline.value
    if vocabulary and worst is not None and worst >= vocabulary:
        yield (
            f"{about}worse than guessing. The perplexity of the unedited model is {worst:,.0f}, and choosing any of its"
            f" {vocabulary:,} tokens alike gives {vocabulary:,}: what a cut takes cannot be told from such a text."
        )


def _estimate(contrast: Contrast, p: float | None = None) -> Estimate:
    if not math.isfinite(contrast.high):
        return Estimate(value=contrast.value, p=p)
    return Estimate.of(contrast, p)
