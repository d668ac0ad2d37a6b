"""The line under a study that says what to run next: the first of its checks that names a step, as it is typed."""

from __future__ import annotations

import shlex

from lesion.core.options import ASKING, of_tasks, typed, values_of
from lesion.core.result import StudyResult
from lesion.core.shared import goes_on
from lesion.registry import method_of, methods

SHARED = {"MODEL", "task", "device", *ASKING} - {"items"}
"""What a study of another kind takes over: how questions are put, not how many."""


def next_step(result: StudyResult) -> str:
    """The command line of the first check that names a step; empty where none does, where a study file asks tasks in
    ways that no options say, or where no study goes on in its folder.
    """
    if not goes_on(result.folder):
        return ""
    study = getattr(result.summary, "study", None)
    # What a person has to fill in stands in capitals.
    steps = (check for check in result.checks() if check.command and "FOLDER" not in check.options)
    check = next(steps, None)
    if check is None or study is None:
        return ""
    values, words = values_of(study), shlex.split(check.options)
    per_task = of_tasks(study)
    if any(len(of_task) > 1 or name not in values for name, of_task in per_task.items()):
        return ""
    values |= {name: of_task.pop() for name, of_task in per_task.items()}
    method = method_of(study)
    if check.command == method.command:
        kept = {name: value for name, value in values.items() if f"--{name.replace('_', '-')}" not in words}
        where = [] if per_task.keys() - {"items"} or "--out" in words else ["--out", str(result.folder)]
        command = ["lesion", *method.command.split(), *typed(method.options, kept), *where]
        return f"{shlex.join(command)} {check.options}"
    other = next((other for other in methods().values() if other.command == check.command), None)
    if other is None:  # a command that writes a model
        model = typed(method.options, {"MODEL": values["MODEL"]})
        return f"{shlex.join(['lesion', check.command, *model])} {check.options}"
    shared = {name: value for name, value in values.items() if name in SHARED}
    return f"{shlex.join(['lesion', *other.command.split(), *typed(other.options, shared)])} {check.options}".strip()
