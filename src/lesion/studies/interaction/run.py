"""Running an interaction study: each place alone, then the sets that the designs ask for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.core.baseline import baseline_first
from lesion.core.cached_answers import gold_tasks
from lesion.core.run import Run, refuse_scored
from lesion.edits.table import tabulate
from lesion.studies.interaction.report import InteractionResult
from lesion.studies.interaction.study import InteractionStudy, places_of
from lesion.studies.interaction.summary import Answers, PlannedSets, edit_of, important, planned, summarise
from lesion.tasks.catalogue import find
from lesion.tasks.wrapped import guessing

MANY = 120
"""From so many edits on, how many there are is said before they are evaluated."""


def run_interaction(study: InteractionStudy, run: Run) -> InteractionResult:
    """Evaluate each place alone and every set; a folder of the same questions takes further designs and places."""
    tasks = {choice: find(choice.name) for choice in study.tasks}
    refuse_scored(tasks, "; name a task whose answers are judged.")
    items = run.drawn(study, tasks)
    model = run.load(study, study.model, finite=True)
    places = places_of(study, len(model.anatomy.blocks), study.model.name)
    tabulate([edit_of(study, [place]) for place in places], model.anatomy)  # says which place the model does not have
    measured = gold_tasks(tasks) if study.measure == "gold" else tasks
    with run.evaluation(study, items, tasks=tasks) as evaluation:
        evaluation.add(study.model.name, model)
        if study.measure != "gold":
            # No set is called critical: one that takes all must be shown by its own test.
            baseline_first(evaluation, study.model, model, 1, anyway=study.anyway)

        def evaluate(sets: Iterable[Sequence[str]]) -> Answers:
            edits = [edit_of(study, each) for each in sets]
            evaluation.answer(study.model, model, evaluation.pending(study.model, model, edits, measured))
            answers = evaluation.store.answers(model=study.model.name)
            return Answers(study, answers, {choice.name: [item.id for item in items[choice]] for choice in tasks})

        singles = [(place,) for place in places]
        plan = planned(study, places, None)
        _note_many(study, run, plan, sum(map(len, items.values())))
        others = len(plan.sets) + len(places) * plan.ordered_by_importance
        evaluation.later = {choice.name: others * len(evaluation.items_of(choice)) for choice in measured}
        order = important(evaluate(singles), places) if plan.ordered_by_importance else ()
        evaluation.later = {}
        plan = planned(study, places, order)
        answers = evaluate([*singles, *plan.sets])
        guesses = {choice.name: guessing(task, items[choice]) for choice, task in tasks.items()}
        summary = summarise(study, model.fingerprint, plan, answers, guesses)
    summary.write(run.folder)
    answered = (1 + len(singles) + len(plan.sets)) * sum(map(len, items.values()))
    return InteractionResult(run.folder, summary, evaluation.evaluated, answered)


def _note_many(study: InteractionStudy, run: Run, plan: PlannedSets, items: int) -> None:
    edits = 1 + len(plan.places) * (1 + plan.ordered_by_importance) + len(plan.sets)
    if edits > MANY:
        designs = ", ".join(study.design)
        run.watcher.note(
            f"{designs} of {len(plan.places)} places: {edits:,} edits on {items:,} items are {edits * items:,} answers;"
            " fewer places are quicker."
        )
