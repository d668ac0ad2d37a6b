"""The line under a study that says what to run next: the first of its checks that names a step, as it is typed."""

from __future__ import annotations

import shlex

from lesion.core.options import ASKING, typed, values_of
from lesion.core.result import StudyResult
from lesion.core.study_file import TaskChoice
from lesion.registry import method_of, methods

SHARED = {"MODEL", "task", "device", *ASKING} - {"items"}
"""What a study of another kind takes over: how questions are put, not how many."""
PER_TASK = set(TaskChoice.model_fields) - {"name"}
"""What a study file can set for each task."""


def next_step(result: StudyResult) -> str:
    """The command line of the first check that names a step; empty where none does, or where a study file asks tasks in
    ways that no options say.
    """
    study = getattr(result.summary, "study", None)
    # What a person has to fill in stands in capitals.
    steps = (check for check in result.checks() if check.command and "FOLDER" not in check.options)
    check = next(steps, None)
    if check is None or study is None:
        return ""
    values, words = values_of(study), shlex.split(check.options)
    tasks = getattr(study, "tasks", None) or [getattr(study, "task", None)]
    for name in PER_TASK:  # options say one for all tasks
        of_tasks = {getattr(choice, name, None) for choice in tasks}
        if not of_tasks - {None}:
            continue
        if len(of_tasks) > 1 or name not in values:
            return ""
        (values[name],) = of_tasks
    method = method_of(study)
    if check.command == method.command:
        kept = {name: value for name, value in values.items() if f"--{name.replace('_', '-')}" not in words}
        command = ["lesion", *method.command.split(), *typed(method.options, kept), "--out", str(result.folder)]
        return f"{shlex.join(command)} {check.options}"
    other = next((other for other in methods().values() if other.command == check.command), None)
    if other is None:  # a command that writes a model
        model = typed(method.options, {"MODEL": values["MODEL"]})
        return f"{shlex.join(['lesion', check.command, *model])} {check.options}"
    shared = {name: value for name, value in values.items() if name in SHARED}
    return f"{shlex.join(['lesion', *other.command.split(), *typed(other.options, shared)])} {check.options}".strip()
