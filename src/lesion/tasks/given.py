"""Tasks that a Python program gives as objects: `lesion.task(...)`, or anything that does what `Task` says.

Such a task is called `python:NAME`. `find` knows it while the call runs to which it was given; a study file cannot
name one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from lesion.arguments import several, shown, validated
from lesion.errors import UsageError
from lesion.plain import short
from lesion.tasks.gold_classes import GoldClasses
from lesion.tasks.jsonl import JUDGES, JsonLines, Listed, ends, gathered, style_of
from lesion.tasks.judges.judge import UNREAD
from lesion.tasks.question_files import float_type, record_row
from lesion.tasks.source import SourceRow
from lesion.tasks.task import Answer, Item, Task, Verdict

HEAD = "python"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_GIVEN: ContextVar[Mapping[str, Given]] = ContextVar("_GIVEN", default={})  # noqa: B039  (nobody changes it)
Rule = Callable[[Item, Answer], Verdict]


@dataclass(frozen=True, repr=False)
class Given(Listed):
    """A task made of items and a judge.

    Attributes:
        gold_classes: of the tokens of right answers, where the task names any.
    """

    rule: Rule = field(repr=False, compare=False, kw_only=True)
    gold_classes: GoldClasses | None = field(default=None, repr=False, compare=False)

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer is right, as the judge says."""
        return UNREAD if answer.finish == "nonfinite" else self.rule(item, answer)


@validated
def task(
    name: str,
    questions: Any,
    *,
    judge: Any = "exact",
    version: str = "",
    max_new_tokens: int = 64,
    stop: str | Iterable[str] | None = None,
    style: str | None = None,
) -> Given:
    r"""A task of your own questions, for `tasks=` of every function.

    Args:
        name: letters, digits, `.`, `-` and `_`; the task is called `python:NAME`.
        questions: mappings with the fields of a line of a JSON Lines file (`prompt` and `answer`; optionally `id`,
            `choices`, `tempting`, `aliases`, `judge`, `solution`, `group`, `stop`, `style`), or a data frame with these
            columns.
        judge: of generated answers: `exact`, `math`, `contains`, or a function of the answer's text and the gold
            answer that returns True or False.
        version: of a judge of your own. A folder goes on only with the same questions and the same judge: one whose
            version or whose code has changed is another.
        max_new_tokens: of an answer.
        stop: strings that end an answer; by default those that the questions name, else a line break where every
            answer is judged `exact`.
        style: the prompt style; by default the one that the questions name, else the chat template of a model that has
            one and of others the prompt as it stands.

    Example:
        >>> mine = lesion.task("sums", [{"prompt": "2 + 2 =", "answer": 4}], judge=lambda text, gold: gold in text)
        >>> lesion.ablate("bundled:llama-base", tasks=[mine, "primer:atlas"])

    Raises:
        UsageError: the name cannot be one, there is no question, or a field is missing or wrong (with the question's
            number).
    """
    # Whoever looks for a task by its name need not wait for it.
    import numpy as np
    import pandas as pd

    def of_floats(cell: Any) -> Any:
        """A list of floating-point numbers as an array, which is read as a column of them is; others as they are."""
        alone = isinstance(cell, list | tuple) and all(isinstance(each, float | np.floating) for each in cell)
        return np.array(cell) if alone else cell

    floats: dict[str, Any] = {}
    if isinstance(questions, pd.DataFrame):
        names = [str(column) for column in questions.columns]
        if len(set(names)) < len(names):
            raise UsageError(f"The data frame of {short(name)} has a column twice: {', '.join(names)}.")
        floats = {str(column): float_type(questions[column].dtype) for column in questions.columns}
        columns = [map(of_floats, questions[column].array) for column in questions.columns]
        questions = [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]
    records = several(questions)
    if records is None:
        raise UsageError(f"The questions of a task are several mappings or a data frame, not {shown(questions)}.")
    own_judge = judge if callable(judge) else None
    if own_judge is None and not (isinstance(judge, str) and judge in JUDGES):
        raise UsageError(f"A judge is {', '.join(JUDGES)}, or a function of text and gold, not {shown(judge)}.")
    rows = [(number, _row(record, name, number, floats)) for number, record in enumerate(records, start=1)]
    if not rows:
        raise UsageError(f"The task {short(name)} has no questions.")
    items, kind = gathered(rows)
    judged = kind == "generate"
    if judged:
        known = _identity(own_judge, version) if own_judge else str(judge)
        keep = [own_judge is None and "judge" in row for _, row in rows]
        items = [
            item if its_own else replace(item, metadata={**item.metadata, "judge": known})
            for item, its_own in zip(items, keep, strict=True)
        ]
    texts = ends(items) if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    plain = JsonLines(_named(name), tuple(items), kind=kind)
    rule = _rule(own_judge) if own_judge and judged else plain.judge
    return Given(_named(name), tuple(items), kind, max_new_tokens, texts, style or style_of(items), rule=rule)


def given(task: Task) -> Given:
    """An object that does what `Task` says, as it is known by `find`; one that is of the catalogue, too."""
    if isinstance(task, Given):
        return task
    items = tuple(task.load())
    if not items or not all(isinstance(item, Item) for item in items):
        raise UsageError(f"load() of the task {short(task.name)} must give items (lesion.tasks.task.Item).")
    if len({item.id for item in items}) < len(items):
        raise UsageError(f"Two items of the task {short(task.name)} have one id; ids must be unique.")
    known = _identity(task.judge, str(getattr(task, "version", "")))
    named = tuple(replace(item, metadata={**item.metadata, "by": known}) for item in items)
    texts, classes = tuple(task.stop), getattr(task, "gold_classes", None)
    how = task.style, getattr(task, "unchatted", "plain")
    return Given(_named(task.name), named, task.kind, task.max_new_tokens, texts, *how, classes, rule=task.judge)


@contextmanager
def offered(tasks: Mapping[str, Given]) -> Iterator[None]:
    """`find` knows these tasks within."""
    token = _GIVEN.set({**_GIVEN.get(), **tasks})
    try:
        yield
    finally:
        _GIVEN.reset(token)


def find_given(name: str) -> Given:
    """The task of a name that begins with `python:`."""
    if name not in _GIVEN.get():
        raise UsageError(
            f"{short(name)} is a task that a Python program gave as an object, and only that program has it: call the"
            f" function with tasks=[that task] again. A study file or command takes a JSON Lines file instead."
        )
    return _GIVEN.get()[name]


def _named(name: str) -> str:
    bare = name.removeprefix(f"{HEAD}:")
    if _NAME.fullmatch(bare) is None:
        raise UsageError(f"A task is named by letters, digits, '.', '-' and '_', not '{short(name)}'.")
    return f"{HEAD}:{bare}"


def _row(record: object, name: str, number: int, floats: Mapping[str, Any]) -> SourceRow:
    where = f"Question {number} of {short(name)}"
    if not isinstance(record, Mapping):
        example = "{'prompt': '2 + 2 =', 'answer': '4'}"
        raise UsageError(f"{where} is {shown(record)}; give a data frame, or mappings such as {example}.")
    return record_row(dict(record), where, floats)


def _rule(judge: Callable[[str, str], Any]) -> Rule:
    def verdict(item: Item, answer: Answer) -> Verdict:
        try:
            right = judge(answer.text, item.gold)
        except Exception as error:
            raise UsageError(
                f"The judge failed on item {short(item.id)}: {type(error).__name__}: {short(str(error))}. It is called"
                " with two texts, the model's answer and the right one, and says True or False."
            ) from error
        right = right.item() if hasattr(right, "item") else right
        if not isinstance(right, bool):
            raise UsageError(f"The judge of item {short(item.id)} returned {shown(right)}, not True or False.")
        return Verdict(right, answer.text.strip() or None)

    return verdict


def _identity(judge: Any, version: str) -> str:
    """What tells a judge from another: its name, its version, and a digest of its code where Python shows it.

    The plain values that the code takes from around it (of a closure, of its module, defaults) count as its own.
    """
    function = getattr(judge, "__func__", judge)
    name = getattr(function, "__qualname__", type(judge).__qualname__)
    code = getattr(function, "__code__", None)
    digest = ""
    if isinstance(code, CodeType):
        digest = hashlib.sha256(_code(code) + repr(_around(function, code)).encode()).hexdigest()[:12]
    return "@".join(filter(None, (name, version, digest)))


def _around(function: Any, code: CodeType) -> list[tuple[str, object]]:
    """The plain values that a function takes from around it, by name; of all else the type alone."""
    cells = {}
    for free, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not filled yet
            cells[free] = cell.cell_contents
    from_module = {used: function.__globals__[used] for used in code.co_names if used in function.__globals__}
    defaults = {"": (function.__defaults__, tuple((function.__kwdefaults__ or {}).items()))}
    return [(name, _plainly(value)) for name, value in sorted({**from_module, **cells, **defaults}.items())]


def _plainly(value: object) -> object:
    if isinstance(value, str | int | float | bytes | None):
        return value
    if isinstance(value, tuple | list):
        return [_plainly(each) for each in value]
    return type(value).__qualname__


def _code(code: CodeType) -> bytes:
    constants = [_code(each) if isinstance(each, CodeType) else repr(each).encode() for each in code.co_consts]
    return b"|".join([code.co_code, repr(code.co_names).encode(), *constants])
