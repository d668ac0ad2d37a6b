"""From the answers of finished folders to a comparison: pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lesion.core.clustered_intervals import Sharing
from lesion.core.rates import verdicts
from lesion.core.values import with_corrected
from lesion.errors import UsageError
from lesion.report import wording
from lesion.report.values import Estimate
from lesion.statistics.contrasts import mean, mean_p, paired_difference_of_drops
from lesion.statistics.paired import Contrast, accuracy, mcnemar_exact, paired_drop, sign_flip_exact, sign_flips
from lesion.studies.comparison import result
from lesion.studies.comparison.reading import Match, Source, aligned, digest, matches, read, sources_of
from lesion.studies.comparison.result import UNEDITED, Compared, Pair, Unit
from lesion.studies.comparison.study import ComparisonStudy
from lesion.tasks.item_clusters import Shared, shared


class Gathered(NamedTuple):
    """What folders hold for a comparison: the pairs of models with their items in common, and notes."""

    matches: list[Match]
    notes: list[str]

    @property
    def sources(self) -> list[Source]:
        """The models of all pairs, each once."""
        return sources_of(self.matches)


def gathered(study: ComparisonStudy, out: Path) -> Gathered:
    """Read the folders of a study."""
    notes: list[str] = []
    return Gathered(matches(read(study.folders, study.labels, out, notes), study.tasks, notes), notes)


def summarise(study: ComparisonStudy, read_folders: Gathered) -> result.ComparisonSummary:
    """The comparison of what was read of the folders of a study."""
    paired, notes, sources = read_folders.matches, list(read_folders.notes), read_folders.sources
    names = list(dict.fromkeys(task for pair in paired for task in pair.items))
    pairs = [_pair(match, study, notes) for match in paired]
    for pair in pairs:
        if not pair.cells:
            raise UsageError(
                f"{pair.a} and {pair.b} have no edit in common, and were not both evaluated unedited; run one of the"
                " studies again with edits of the other."
            )
    drops = [drop for source in sources for task in names for drop in _drops(source, task, paired, study.level)]
    return result.ComparisonSummary(
        study=study,
        sides=tuple(source.side for source in sources),
        tasks=tuple(_task_items(task, sources, paired) for task in names),
        pairs=corrected(pairs),
        drops=tuple(drops),
        digest=digest(sources),
        notes=tuple(dict.fromkeys(notes)),
    )


def corrected(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """The pairs with p corrected by Holm (1979) over all of them: one family for each question on a task.

    The questions: do the unedited models differ, do they differ under an edit, does an edit take more from one.
    """
    cells = [cell for pair in pairs for cell in pair.cells]
    for field in ("difference", "extra_drop"):
        families: dict[tuple[str, bool], list[int]] = defaultdict(list)
        for place, cell in enumerate(cells):
            if getattr(cell, field) is not None:
                families[cell.task, cell.unedited].append(place)
        for places in families.values():
            for place, cell in zip(places, with_corrected([cells[at] for at in places], field), strict=True):
                cells[place] = cell
    adjusted = iter(cells)
    return tuple(pair.model_copy(update={"cells": tuple(islice(adjusted, len(pair.cells)))}) for pair in pairs)


def _pair(match: Match, study: ComparisonStudy, notes: list[str]) -> Pair:
    a, b, items = match
    level = study.level
    same = a.side.fingerprint == b.side.fingerprint
    cells = []
    for task, common in items.items():
        shared = [edit for edit in a.edits(task) if edit in b.edits(task)]
        edits = [(edit, edit) for edit in shared]
        if same:
            edits += aligned(a, b, task)
        paired = {edit for pair in edits for edit in pair}
        if alone := sum(edit not in paired for source in (a, b) for edit in source.edits(task)):
            notes.append(
                f"{task}: {wording.counted(alone, 'edit')} of {a.side.label} or {b.side.label} without a counterpart in"
                " the other: compared with the own unedited model only."
            )
        made = {each: _compared(a, b, task, common, each, level) for each in edits}
        cells += [cell for cell in made.values() if cell is not None]
        if without := [" → ".join(dict.fromkeys(each)) for each, cell in made.items() if cell is None]:
            notes.append(f"{task}: no item was answered by both under {wording.listed(without)}; left out.")
    answered = {cell.task for cell in cells if cell.unedited}
    unanswered = {
        task: all_wrong
        for task in study.tasks or a.items
        if task not in answered and (task, UNEDITED) in a.cells and unit_of(task, (a,)) in (None, "points")
        if (all_wrong := _unscored(a, b, task, pd.Index([]), level))
    }
    return Pair(a=a.side.label, b=b.side.label, same_model=same, cells=tuple(cells), unanswered=unanswered)


def _compared(
    a: Source, b: Source, task: str, common: pd.Index, edits: tuple[str, str], level: float
) -> Compared | None:
    rows = a.cells[task, edits[0]], b.cells[task, edits[1]]
    items = answered(common, *(each.index for each in rows))
    if items.empty:
        return None
    named: dict[str, Any] = {"task": task, "edit_a": edits[0], "edit_b": edits[1], "items": len(items)}
    named["extra_drop"] = _extra_drop(a, b, task, items, edits, level)
    unit = unit_of(task, (a, b))
    if edits == (UNEDITED, UNEDITED) and unit in (None, "points"):
        named["unscored"] = _unscored(a, b, task, common, level)
    if unit is not None:
        first, second = (values(each, items) for each in rows)
        p = mean_p(second - first) if unit == "nats" else _by_sign_flips(second - first)
        return Compared(
            **named,
            a=Estimate.of(_mean(first, level, unit)),
            b=Estimate.of(_mean(second, level, unit)),
            difference=Estimate.of(_mean(second - first, level, unit, least=-1.0), p),
            counts=None,
            score_unit=unit,
        )
    first, second = (right(each, items) for each in rows)
    gained, lost = int((second & ~first).sum()), int((first & ~second).sum())
    difference = paired_drop(second, first, level)
    of_items = _clusters(a, task, items)
    return Compared(
        **named,
        a=Estimate.of(accuracy(first, level)),
        b=Estimate.of(accuracy(second, level)),
        difference=Estimate.of(difference, mcnemar_exact(gained, lost)),
        counts=result.Counts(
            gained=gained, lost=lost, both_right=int((first & second).sum()), both_wrong=int((~first & ~second).sum())
        ),
        shared=Sharing.of(of_items),
        clustered=result.Clustered.of(second.astype(float) - first, of_items, difference, level),
    )


def _unscored(a: Source, b: Source, task: str, common: pd.Index, level: float) -> result.Unscored | None:
    """The difference on all items of the first, where answers of the second without a score count as wrong."""
    rows = a.cells[task, UNEDITED]
    theirs = b.cells.get((task, UNEDITED), rows.iloc[:0])
    # The same id, read differently: another item. Where all are others, the first side's have no answer.
    changed = b.items[task].index.difference(common, sort=False) if len(common) else common
    items, scored = rows.index[~rows.index.isin(changed)], answered(common, theirs.index)
    share = (theirs["share"] if "share" in theirs else pd.Series(1.0, theirs.index)).reindex(scored)
    if len(scored) == len(items) and (share == 1).all():
        return None
    least = pd.Series(values(theirs, scored), scored) * share.astype(float)
    first, second = values(rows, items), least.reindex(items).fillna(0.0).to_numpy(dtype=np.float64)
    change, clustered = _mean(second - first, level, "points", least=-1.0), None
    if not ({*first, *second} - {0.0, 1.0}):
        change = paired_drop(second == 1, first == 1, level)
        clustered = result.Clustered.of(second - first, _clusters(a, task, items), change, level)
    lows, highs = zip(*((each.low, each.high) for each in (change, clustered) if each is not None), strict=True)
    return result.Unscored(
        items=len(items) - int((share == 1).sum()), of=len(items), value=change.value, low=min(lows), high=max(highs)
    )


def _clusters(a: Source, task: str, items: pd.Index) -> Shared | None:
    """What items share, of the task or, in a log, by their groups."""
    own = a.items[task].loc[items]
    return shared(task, own) or (shared("jsonl", own) if a.kind == "log" else None)


def _mean(values: np.ndarray, level: float, unit: Unit, least: float = 0.0) -> Contrast:
    """The mean with its interval; a share of answers, in points, is never below `least` nor above 1."""
    found = mean(values, level)
    return found if unit != "points" else Contrast(found.value, max(found.low, least), min(found.high, 1.0))


def _extra_drop(
    a: Source, b: Source, task: str, common: pd.Index, edits: tuple[str, str], level: float
) -> Estimate | None:
    """The drop in b minus that in a; None for the unedited models, for two edits, and without unedited answers."""
    edit = edits[0]
    if edit == UNEDITED or edits[1] != edit or any((task, UNEDITED) not in source.cells for source in (a, b)):
        return None
    rows = [source.cells[task, each] for source in (b, a) for each in (UNEDITED, edit)]
    items = answered(common, *(each.index for each in rows))
    if items.empty:
        return None
    if a.scored(task):
        yours, mine = (values(rows[i], items) - values(rows[i + 1], items) for i in (0, 2))
        return Estimate.of(mean(yours - mine, level), mean_p(yours - mine))
    yours, mine = (np.stack([right(rows[i], items), right(rows[i + 1], items)]) for i in (0, 2))
    differences = (yours[0].astype(int) - yours[1]) - (mine[0].astype(int) - mine[1])
    return Estimate.of(paired_difference_of_drops(yours, mine, level), sign_flip_exact(differences))


def _drops(source: Source, task: str, paired: Sequence[Match], level: float) -> list[result.Drop]:
    """Every edit of a source on the items of a task that it shares with another."""
    before, edits = source.cells.get((task, UNEDITED)), source.edits(task)
    if before is None or edits == [UNEDITED]:
        return []
    shared = {item for match in paired if source in match[:2] for item in match.items.get(task, ())}
    drops = []
    for edit in edits:
        after = source.cells[task, edit]
        if edit == UNEDITED:
            continue
        items = answered(before.index[before.index.isin(shared)], after.index)
        if items.empty:
            continue
        if source.scored(task):
            value, drop = mean(values(after, items), level), mean(values(before, items) - values(after, items), level)
        else:
            first, second = right(before, items), right(after, items)
            value, drop = accuracy(second, level), paired_drop(first, second, level)
        named = {"side": source.side.label, "task": task, "edit": edit, "items": len(items)}
        drops.append(result.Drop(**named, value=Estimate.of(value), drop=Estimate.of(drop)))
    return drops


def _task_items(task: str, sources: Sequence[Source], paired: Sequence[Match]) -> result.TaskItems:
    everyone = common_items(task, paired)
    unit = unit_of(task, [source for source in sources if task in source.items])
    verdicts = unedited_verdicts(task, sources, everyone)
    counts = {"wrong": int((~verdicts).all(axis=1).sum()), "right": int(verdicts.all(axis=1).sum())}
    return result.TaskItems(
        name=task,
        scored=unit is not None,
        score_unit=unit or "nats",
        sides=len(verdicts.columns),
        items=len(everyone),
        answered=len(verdicts),
        **(counts if unit is None else {}),
    )


def common_items(task: str, paired: Sequence[Match]) -> pd.Index:
    """The items of a task that all pairs that have the task share."""
    first, *others = (match.items[task] for match in paired if task in match.items)
    return answered(first, *others)


def answered(items: pd.Index, *others: pd.Index) -> pd.Index:
    """Those of the items that all others have, too, in their order."""
    for other in others:
        items = items if items.equals(other) else items[items.isin(other)]
    return items


def unedited_verdicts(task: str, sources: Sequence[Source], items: pd.Index) -> pd.DataFrame:
    """[items, sides] whether the unedited models are right, for the items that all sides with the task answered."""
    cells = {
        source.side.label: source.cells[task, UNEDITED]["correct"]
        for source in sources
        if (task, UNEDITED) in source.cells
    }
    frame = pd.DataFrame(cells).reindex(items).dropna()
    return frame.astype(bool)


def right(rows: pd.DataFrame, items: pd.Index) -> np.ndarray:
    """[items] whether each answer is right."""
    return verdicts(rows)[rows.index.get_indexer(items)]


def values(rows: pd.DataFrame, items: pd.Index) -> np.ndarray:
    """[items] the score of each, such as its log-probability; NaN where it is not finite, 1 or 0 of a verdict."""
    pairs = zip(rows["scores"], rows["correct"], strict=True)
    scores = np.array([each[0] if each else float(right) for each, right in pairs], dtype=np.float64)
    return scores[rows.index.get_indexer(items)]


def unit_of(task: str, sources: Sequence[Source]) -> Unit | None:
    """What the scores of sources are in; None where all answers are right or wrong, which else count as 1 and 0."""
    units = {unit for source in sources if (unit := source.unit(task)) is not None}
    return None if not units else units.pop() if len(units) == 1 else "score"


def _by_sign_flips(differences: np.ndarray) -> float:
    changed = differences[differences != 0]
    return float(sign_flips(changed[:, None], 0)[0]) if len(changed) else 1.0
