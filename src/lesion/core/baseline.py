"""The baseline first: the unedited model answers before any edit, and a study that could show nothing stops there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from lesion.core.readiness import CheckedTask, examine, remedy
from lesion.core.run import Evaluation
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.edits.edit import BASELINE
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.plain import short
from lesion.statistics.detectable import too_low
from lesion.tasks.wrapped import guessing

ASKED = 10
"""Questions of a hopeless task that are put in the other prompt style too."""


class NothingToShow(LesionError):  # noqa: N818 (a study in which it is said goes on with its other models)
    """No edit of a model could be shown to do anything on any task."""


def baseline_first(
    evaluation: Evaluation, chosen: ModelChoice, model: Model, tests: int | None, *, anyway: bool
) -> None:
    """Have the unedited model answer, and stop where nothing could be shown on any task.

    Args:
        tests: cells of the largest family of a task, among which a loss is tested; None where a gain counts too, so
            that nothing can be shown only where no answer is right.
        anyway: only note it.
    """
    if evaluation.run.dry:
        return  # what a run costs is known from a few items, with or without an edit
    pending = evaluation.pending(chosen, model, ())
    evaluation.answer(chosen, model, pending, "answers without an edit", estimated=False)
    reasons = dict(hopeless(evaluation, chosen, tests))
    if len(reasons) == len(evaluation.tasks) and not anyway:
        stop(evaluation, chosen, model, reasons)
    for reason in reasons.values():
        evaluation.run.watcher.note(reason)


def hopeless(evaluation: Evaluation, chosen: ModelChoice, tests: int | None) -> Iterator[tuple[TaskChoice, str]]:
    """The tasks on which nothing can be shown, each with the reason; a score of passages always shows something."""
    answers = evaluation.store.answers(model=chosen.name)
    answers = answers[answers["edit"] == str(BASELINE)]
    for choice, task in evaluation.tasks.items():
        if task.kind == "score":
            continue
        items = evaluation.items_of(choice)
        unedited = answers[(answers["task"] == choice.name) & answers["item"].isin([item.id for item in items])]
        right, count, reason = int(unedited["correct"].sum()), len(unedited), None
        if tests is not None:
            reason = too_low(chosen.name, choice.name, right, count, tests, guessing(task, items))
        elif not right:
            reason = f"{chosen.name}, {choice.name}: without an edit none of {count:,} answers is right."
        if reason is not None:
            yield choice, reason


def stop(evaluation: Evaluation, chosen: ModelChoice, model: Model, reasons: Mapping[TaskChoice, str]) -> None:
    """Show three answers to each task, try the other prompt style, and stop."""
    study, lines = evaluation.study, []
    for choice, reason in reasons.items():
        task, items = evaluation.tasks[choice], evaluation.items_of(choice)[:ASKED]
        chance = guessing(task, evaluation.items_of(choice))
        checked = examine(study, chosen, model, evaluation.engine(model), choice, task, items, chance)
        if advice := [*remedy(checked, model.has_chat_template)]:
            advice = [f"Of the first {checked.items} questions, {checked.right} are right.", *advice]
        lines += [" ".join([reason, *advice]), *shown(checked)]
    words = ["lesion", "check", str(chosen.source), *(word for choice in reasons for word in ("--task", choice.name))]
    styles = {style for choice in reasons if (style := study.prompt_style_of(chosen, choice)) is not None}
    words += ["--prompt-style", *styles] if len(styles) == 1 else []
    raise NothingToShow(
        f"Too few answers are right for what this study tests, so it stops before any edit of {chosen.name}.",
        *lines,
        f"What the model is sent, and how its answers are read: {shlex.join(words)}",
        f"--anyway (in a study file `anyway = true`) goes on in {evaluation.run.folder} all the same; other"
        " prompts need another folder (--out).",
    )


def shown(task: CheckedTask) -> Iterator[str]:
    """Its first answers, a line each."""
    for sent in task.prompts:
        said = repr(short(sent.answer.strip(), 120)) if sent.answer.strip() else "nothing"
        verdict = "right" if sent.right else f"wrong, the gold answer is {short(sent.gold)!r}"
        yield f"item {sent.item}: the model answers {said} ({verdict})"
