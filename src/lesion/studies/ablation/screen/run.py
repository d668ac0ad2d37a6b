"""Running the screen of a layer study: gold solutions are scored under every edit."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.core.cached_answers import gold_of, gold_tasks
from lesion.core.run import Evaluation, Pending
from lesion.core.study_file import ModelChoice
from lesion.errors import UsageError
from lesion.models.load import Model
from lesion.studies.ablation.kinds.references import References, pending_of
from lesion.studies.ablation.screen.screening import ITEMS, chosen_edits, no_screen
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.sweep import PlaceEdit
from lesion.tasks.wrapped import gold_name


def refuse_doubled(study: Study) -> None:
    """Refuse a screen of what the study asks as a task of its own, or one that limits a study which stops."""
    if study.screen_top is not None and study.stop is not None:
        raise UsageError(
            "--screen-top and --stop-when do not go together: what stopping decides is corrected over every edit, and"
            " edits that are not generated have no answers. Leave one of them out."
        )
    names = {choice.name for choice in study.tasks}
    doubled = next((name for name in names if gold_name(name) in names), None)
    if study.screens and doubled is not None:
        raise UsageError(
            f"A screen of {doubled} is {gold_name(doubled)}, which this study asks already; leave out one or the other."
        )


def screen(
    evaluation: Evaluation,
    chosen: ModelChoice,
    model: Model,
    edits: Sequence[PlaceEdit],
    references: References,
) -> None:
    """Score the gold solutions of tasks that generate, under no edit and under each, and keep them as `gold:TASK`."""
    generating = {choice: task for choice, task in evaluation.tasks.items() if task.kind == "generate"}
    for choice in evaluation.tasks:
        if choice not in generating:
            evaluation.run.watcher.note(no_screen(choice.name))
    items = {gold_of(choice): evaluation.items[choice][:ITEMS] for choice in generating}
    evaluation.ask(gold_tasks(generating), items)
    pending = pending_of(evaluation, chosen, model, edits, references, gold_tasks(generating), items)
    evaluation.planned += pending.total
    evaluation.answer(chosen, model, pending, "answers of the screen")


def pending_at_top(
    evaluation: Evaluation,
    chosen: ModelChoice,
    model: Model,
    edits: Sequence[PlaceEdit],
    references: References,
    top: int,
) -> Pending:
    """What is left to answer where generation is limited to what the screen ranks first (`chosen_edits`).

    Tasks that generate nothing are answered under every edit.
    """
    generating = {choice: task for choice, task in evaluation.tasks.items() if task.kind == "generate"}
    others = {choice: task for choice, task in evaluation.tasks.items() if choice not in generating}
    ids = {choice.name: [item.id for item in evaluation.items[choice]] for choice in generating}
    kept = chosen_edits(evaluation.store.answers(model=chosen.name), ids, edits, top)
    parts = [
        pending_of(evaluation, chosen, model, own, references, tasks)
        for own, tasks in ((kept, generating), (edits, others))
    ]
    return Pending(sum(part.total for part in parts), {**parts[0].cells, **parts[1].cells})
