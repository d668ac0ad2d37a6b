"""Reading an isolation or an evaluation of edits from its folder, as far as it has got."""

from __future__ import annotations

import tomllib
from pathlib import Path

from lesion.core.rates import loops
from lesion.core.store import Store
from lesion.core.values import read_summary, summary_kind
from lesion.errors import LesionError
from lesion.outputs import kind_of
from lesion.studies.isolation.activation_cache import FILE as STATISTICS
from lesion.studies.isolation.evaluation import Evaluation
from lesion.studies.isolation.plan import read_plan
from lesion.studies.isolation.result import Isolation, IsolationSummary
from lesion.studies.isolation.study import EvaluationStudy, IsolationStudy
from lesion.studies.isolation.summary import summarise


def recall_isolation(folder: Path) -> IsolationSummary | None:
    """An isolation or evaluation as far as it has got; None: the folder has none."""
    isolation, planned = stored(folder), read_plan(folder)
    if planned is None:
        return None if isolation is None else summarised(isolation.study, isolation, None)
    with Store.read(folder) as store:
        evaluation, text = summarise(planned, store.answers(), store.items()), store.study[1]
    kind = EvaluationStudy if tomllib.loads(text).get("kind") == "evaluation" else IsolationStudy
    return summarised(kind.parse(text, "The stored study"), isolation, evaluation)


def stored(folder: Path) -> Isolation | None:
    """The isolation in a folder; None where none was made there."""
    try:
        if (kind_of(folder) or summary_kind(folder)) != "isolation":
            return None
        summary = read_summary(IsolationSummary, folder, "run `lesion isolate` again")
    except LesionError:
        if (folder / STATISTICS).exists():
            raise
        return None  # of an evaluation alone everything is in the store and the plan
    return None if summary is None else summary.isolation


def summarised(
    study: IsolationStudy | EvaluationStudy, isolation: Isolation | None, evaluation: Evaluation | None
) -> IsolationSummary:
    """All numbers of what was isolated and evaluated."""
    notes = [note for part in (isolation, evaluation) if part is not None for note in part.notes]
    if isolation is not None and evaluation is not None:
        own = {selection.digest for selection in (*isolation.selections, isolation.excluded) if selection is not None}
        if others := {edit.label for edit in evaluation.tried if edit.digest not in own}:
            notes.append(f"Not among the selections that were isolated in this folder: {', '.join(sorted(others))}.")
    label = loops(study.decoding.stop_loops).get("approximate") if evaluation is not None else None
    return IsolationSummary(
        approximate=label,
        study=study,
        isolation=isolation,
        evaluation=evaluation,
        notes=tuple(dict.fromkeys(notes)),
    )
