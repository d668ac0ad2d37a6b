"""Running a check: a few questions of each task, unedited, in the prompt style of a study and in the other one."""

from __future__ import annotations

from lesion.core.readiness import examine, other_style
from lesion.core.run import Run
from lesion.studies.check.report import CheckResult, CheckSummary
from lesion.studies.check.study import CheckStudy
from lesion.tasks.catalogue import find
from lesion.tasks.wrapped import guessing


def run_check(study: CheckStudy, run: Run) -> CheckResult:
    """Ask the questions; nothing is stored but the summary."""
    tasks = {choice: find(choice.name) for choice in study.tasks}
    drawn = run.drawn(study, tasks)
    model = run.load(study, study.model, tasks=tasks)
    engine = run.make_engine(model, study.batch_size)
    count = sum(len(drawn[choice]) * (2 if other_style(model, task, "") else 1) for choice, task in tasks.items())
    run.watcher.begin(study.model.name, count, 0, "answers")
    checked = []
    for choice, task in tasks.items():
        chance = guessing(task, task.load())
        checked.append(examine(study, study.model, model, engine, choice, task, drawn[choice], chance, run.watcher))
    summary = CheckSummary(study=study, chat=model.has_chat_template, tasks=tuple(checked))
    run.folder.mkdir(parents=True, exist_ok=True)
    summary.write(run.folder)
    return CheckResult(run.folder, summary)
