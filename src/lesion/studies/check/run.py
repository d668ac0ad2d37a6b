"""Running a check: a few questions of each task, unedited, in the prompt style of a study and in the other one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lesion.core.inference import PendingAnswer, answer_cells, pending_cells, prompt_notes
from lesion.core.oddities import ODDITIES, Oddity, oddities
from lesion.core.row import StoredAnswer
from lesion.core.run import Run
from lesion.core.study_file import TaskChoice
from lesion.engines.engine import Decoding, Engine, Request
from lesion.models.load import Model
from lesion.report.values import Estimate
from lesion.statistics.paired import wilson
from lesion.studies.check.report import CheckResult
from lesion.studies.check.result import CheckedTask, CheckSummary, OddAnswers, OtherStyle, SentPrompt
from lesion.studies.check.study import CheckStudy
from lesion.tasks.catalogue import find
from lesion.tasks.guessing import guessing
from lesion.tasks.harness.task import Harness
from lesion.tasks.style import Style
from lesion.tasks.task import Item, Task

SHOWN = 3
"""Prompts that are shown."""


@dataclass
class _Kept:
    """Takes answers as a store does, and keeps them here alone."""

    rows: list[StoredAnswer] = field(default_factory=list)

    def write(self, rows: Iterable[StoredAnswer]) -> int:
        before = len(self.rows)
        self.rows += rows
        return len(self.rows) - before


@dataclass(frozen=True)
class _Asked:
    """A task put in one style: its cells, and the answers in their order."""

    cells: Sequence[PendingAnswer]
    answers: Sequence[StoredAnswer]

    @property
    def style(self) -> str:
        return self.cells[0].style

    @property
    def right(self) -> int:
        return sum(answer.correct for answer in self.answers)

    @property
    def odd(self) -> Counter[Oddity]:
        """How many answers are odd, by oddity."""
        return Counter(
            oddity
            for cell, answer in zip(self.cells, self.answers, strict=True)
            for oddity in oddities(cell.item, answer, generated=cell.task.kind == "generate" and not cell.parts)
        )


def run_check(study: CheckStudy, run: Run) -> CheckResult:
    """Ask the questions; nothing is stored but the summary.

    Raises:
        UsageError: a task does not exist, or the model has no chat template for its style.
        LesionError: the model cannot be loaded, or a prompt does not fit.
    """
    tasks = {choice: find(choice.name) for choice in study.tasks}
    items = {choice: task.load() for choice, task in tasks.items()}
    drawn = run.drawn(study, tasks)
    model = run.load(study, study.model, tasks=tasks)
    engine = run.make_engine(model, study.batch_size)
    count = sum(len(drawn[choice]) * (2 if _other(model, choice, task, "") else 1) for choice, task in tasks.items())
    run.watcher.begin(study.model.name, count, 0, "answers")
    checked = []
    for choice, task in tasks.items():
        asked = _ask(study, run, model, engine, choice, task, drawn[choice])
        for note in prompt_notes(model, asked.cells):
            run.watcher.note(note)
        name = _other(model, choice, task, asked.style)
        other = None
        if name:
            put = choice.model_copy(update={"prompt_style": name})
            other = _ask(study, run, model, engine, put, task, drawn[choice])
        chance = guessing(task, items[choice])
        checked.append(_checked(study, model, engine, choice, task, asked, other, chance))
    summary = CheckSummary(study=study, chat=model.has_chat_template, tasks=tuple(checked))
    run.folder.mkdir(parents=True, exist_ok=True)
    summary.write(run.folder)
    return CheckResult(run.folder, summary)


def _ask(
    study: CheckStudy, run: Run, model: Model, engine: Engine, choice: TaskChoice, task: Task, items: Sequence[Item]
) -> _Asked:
    cells = pending_cells(study, study.model, model, {choice: task}, {choice: items}, ())
    kept = _Kept()
    for rows in answer_cells(engine, model, study.model.name, cells, kept):
        run.watcher.answered(len(rows))
    by_item: Mapping[str, StoredAnswer] = {row.item: row for row in kept.rows}
    return _Asked(tuple(cells.values()), [by_item[item.id] for item in items])


def _other(model: Model, choice: TaskChoice, task: Task, style: str) -> str:
    """The prompt style to try beside one; "" where there is none: the prompt is the task's own affair."""
    if isinstance(task, Harness) or task.kind not in ("generate", "choose"):
        return ""
    if Style.parse(style).name == "chat":
        return "raw"
    if model.has_chat_template:
        return "chat"
    return "plain" if style == "raw" else "raw"


def _checked(
    study: CheckStudy,
    model: Model,
    engine: Engine,
    choice: TaskChoice,
    task: Task,
    asked: _Asked,
    other: _Asked | None,
    chance: float,
) -> CheckedTask:
    count, odd = len(asked.answers), asked.odd
    low, high = wilson(asked.right, count, study.level)
    return CheckedTask(
        task=choice.name,
        kind=task.kind,
        style=asked.style,
        chosen=study.prompt_style_of(study.model, choice) is not None,
        items=count,
        right=asked.right,
        accuracy=Estimate(value=asked.right / count, low=low, high=high),
        guessing=chance,
        tokens=sum(answer.tokens for answer in asked.answers) / count,
        at_limit=asked.cells[0].decoding.max_new_tokens,
        surprise=_surprise(engine, asked.cells),
        random=math.log(int(model.network.config.get_text_config(decoder=True).vocab_size)),
        odd=tuple(OddAnswers(oddity=oddity, answers=odd[oddity]) for oddity in ODDITIES if odd[oddity]),
        other=None
        if other is None
        else OtherStyle(style=other.style, right=other.right, within=other.odd["right within a sentence"]),
        prompts=tuple(
            SentPrompt(
                item=cell.item.id,
                prompt=_sent(model, cell.prompt),
                answer=answer.text,
                gold=cell.item.gold,
                read=answer.parsed,
                right=answer.correct,
                finish=answer.finish,
            )
            for cell, answer in [*zip(asked.cells, asked.answers, strict=True)][:SHOWN]
        ),
    )


def _sent(model: Model, prompt: Sequence[int]) -> str:
    """A prompt as the model is sent it, special tokens included and visible."""
    return str(model.tokenizer.decode(list(prompt), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _surprise(engine: Engine, cells: Sequence[PendingAnswer]) -> float | None:
    """How surprised the model is by its prompts, in nats a token behind the first; None where one token is all."""
    prompts = [cell.prompt for cell in cells if len(cell.prompt) > 1]
    if not prompts:
        return None
    requests = [
        Request(str(number), prompt[:1], decoding=Decoding(max_new_tokens=1), choices=(prompt[1:],))
        for number, prompt in enumerate(prompts)
    ]
    total = sum((*response.answer.scores, math.nan)[0] for response in engine.answer(requests))
    return None if math.isnan(total) else -total / sum(len(prompt) - 1 for prompt in prompts)
