"""Readiness: how a model answers a few questions of a task, unedited, before many are put to it under edits.

`examine` asks them in the prompt style of a study and in the other one, and looks at what is odd about the answers.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from lesion.core.inference import PendingAnswer, answer_cells, pending_cells, prompt_notes
from lesion.core.row import StoredAnswer
from lesion.core.study_file import ModelChoice, Questions, TaskChoice
from lesion.engines.engine import Decoding, Engine, Request
from lesion.models.load import Model
from lesion.progress import Silent, Watcher
from lesion.report.rows import Row, column, derived
from lesion.report.values import SHARE, Estimate, Value, decimals
from lesion.statistics.paired import wilson
from lesion.tasks.given import HEAD as GIVEN
from lesion.tasks.harness.task import Harness
from lesion.tasks.judges import judge
from lesion.tasks.style import Style
from lesion.tasks.task import Item, Task

SHOWN = 3
"""Prompts that are shown."""
MOST_ODD = 0.3
"""From this share of the answers on an oddity is said."""


class SentPrompt(Row):
    """A prompt exactly as it was sent, and the answer.

    Attributes:
        prompt: with all special tokens.
        read: what the judge read from the answer; None where it could read nothing.
        finish: how the answer ended: `stop`, `length`, `loop` or `nonfinite`.
        choices: among which the model chose; empty where it wrote.
    """

    item: str = column("Item", label=True)
    prompt: str = column("Prompt")
    answer: str = column("Answer")
    gold: str = column("Gold answer")
    read: str | None = column("Read")
    right: bool = column("Right")
    finish: str = column("Ended by")
    choices: tuple[str, ...] = ()


class OddAnswers(Value):
    """How many answers have an oddity."""

    oddity: Oddity
    answers: int


class OtherStyle(Value):
    """The same questions in the other prompt style.

    Attributes:
        within: how many answers are judged wrong though the gold answer stands in them.
    """

    style: str
    right: int
    within: int

    @property
    def could(self) -> int:
        """Right answers if those counted in which the gold answer stands."""
        return self.right + self.within


class CheckedTask(Row):
    """A task as one model is asked it.

    Attributes:
        kind: how it is answered.
        style: the prompt style that was taken.
        chosen: whether it was given, or follows from model and task.
        accuracy: with Wilson's interval.
        guessing: the accuracy of guessing.
        at_limit: the token limit of an answer.
        surprise: of the prompts in nats a token, as the model reads them; None where it was not measured.
        random: the same of random tokens: the logarithm of the size of the vocabulary.
        odd: how many answers are odd, and how.
        other: None where there is no other style to try.
        prompts: the first as they were sent.
    """

    task: str = column("Task", label=True)
    kind: str
    style: str = column("Prompt style")
    chosen: bool
    items: int = column("Items")
    right: int = column("Right")
    accuracy: Estimate = column("Accuracy", SHARE)
    guessing: float = column("Guessing", SHARE)
    tokens: float = column("Tokens an answer", decimals(1))
    at_limit: int = column("Token limit")
    surprise: float | None = column("Surprise of the prompts", decimals(2, "nats a token"))
    random: float = column(key="random_surprise")
    odd: tuple[OddAnswers, ...]
    other: OtherStyle | None
    prompts: tuple[SentPrompt, ...]

    @derived.column("Other style")
    def other_style(self) -> str | None:
        """The prompt style that was tried beside."""
        return None if self.other is None else self.other.style

    @derived.column("Right in it")
    def other_right(self) -> int | None:
        """Right answers in the other style."""
        return None if self.other is None else self.other.right

    @property
    def could(self) -> int:
        """Right answers if those counted in which the gold answer stands."""
        return self.right + self.odd_answers("right within a sentence")

    def odd_answers(self, oddity: Oddity) -> int:
        """How many answers have an oddity."""
        return next((each.answers for each in self.odd if each.oddity == oddity), 0)


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


def examine(
    study: Questions,
    chosen: ModelChoice,
    model: Model,
    engine: Engine,
    choice: TaskChoice,
    task: Task,
    items: Sequence[Item],
    chance: float,
    watcher: Watcher | None = None,
) -> CheckedTask:
    """A task as a model is asked it, with what the other prompt style makes of the same questions."""
    watcher = watcher or Silent()

    def asked(put: TaskChoice) -> _Asked:
        cells, kept = pending_cells(study, chosen, model, {put: task}, {put: items}, ()), _Kept()
        for rows in answer_cells(engine, model, chosen.name, cells, kept):
            watcher.answered(len(rows))
        by_item = {row.item: row for row in kept.rows}
        return _Asked(tuple(cells.values()), [by_item[item.id] for item in items])

    evaluated = asked(choice)
    for note in prompt_notes(model, evaluated.cells):
        watcher.note(note)
    name, other = other_style(model, task, evaluated.style), None
    if name:
        other = asked(choice.model_copy(update={"prompt_style": name}))
    count, odd = len(evaluated.answers), evaluated.odd
    low, high = wilson(evaluated.right, count, study.level)
    pairs = [*zip(evaluated.cells, evaluated.answers, strict=True)]
    return CheckedTask(
        task=choice.name,
        kind=task.kind,
        style=evaluated.style,
        chosen=study.prompt_style_of(chosen, choice) is not None,
        items=count,
        right=evaluated.right,
        accuracy=Estimate(value=evaluated.right / count, low=low, high=high),
        guessing=chance,
        tokens=sum(answer.tokens for answer in evaluated.answers) / count,
        at_limit=evaluated.cells[0].decoding.max_new_tokens,
        surprise=_surprise(engine, evaluated.cells),
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
                choices=cell.item.choices if cell.task.kind == "choose" else (),
            )
            for cell, answer in pairs[:SHOWN]
        ),
    )


def other_style(model: Model, task: Task, style: str) -> str:
    """The prompt style to try beside one; "" where there is none: the prompt is the task's own affair."""
    if isinstance(task, Harness) or task.kind not in ("generate", "choose"):
        return ""
    if Style.parse(style).name == "chat":
        return "raw"
    if model.has_chat_template:
        return "chat"
    return "plain" if style == "raw" else "raw"


def remedy(task: CheckedTask, chat: bool) -> Iterable[str]:
    """What would make more answers right, of what was tried, as sentences; `chat`: the model has a chat template."""
    other, within = task.other, task.odd_answers("right within a sentence")
    contains = _contains(task.task)
    tried = [(task.right, ""), (task.right + within, contains)]
    if other is not None:
        put = f"--prompt-style {other.style}"
        tried += [(other.right, put), (other.right + other.within, f"{put} and {contains}")]
    right, change = max(tried, key=lambda pair: pair[0])  # of equal ones the first, which changes least
    if right - task.right < MOST_ODD * task.items:  # so few that chance may make the difference
        if task.right < task.items and task.odd_answers("cut off") >= MOST_ODD * task.items:
            yield f"Many answers meet the limit of {task.at_limit} tokens: try more with --max-new-tokens."
        return
    if chat and other is not None and other.style == "chat" and change.startswith("--"):
        yield "This is a chat model, and the prompts are not in its chat template."
    yield f"With {change} {right} of {task.items} are right."


def _contains(task: str) -> str:
    """How the questions of a task are judged by whether the answer contains the gold answer."""
    if task.startswith(GIVEN):
        return '"judge": "contains" in the questions'
    return f"--task {shlex.quote(f'{task}?judge=contains')}"


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


Oddity = Literal["empty", "echoes the question", "goes on", "cut off", "unread", "right within a sentence"]
ODDITIES: tuple[Oddity, ...] = get_args(Oddity)
SAID = {
    "empty": "empty",
    "echoes the question": "repeating the question",
    "goes on": "followed by a next question",
    "cut off": "cut off at the token limit",
    "unread": "without an answer that could be read",
    "right within a sentence": "judged wrong though the gold answer stands in them",
}
"""What answers with an oddity are, behind `3 of 10 answers are …`."""
ECHO = 24
"""Characters at the end of a question that an answer that echoes it says again; of a shorter question all."""


def oddities(item: Item, answer: StoredAnswer, *, generated: bool) -> tuple[Oddity, ...]:
    """What is odd about an answer.

    `generated`: whether the model wrote it; a choice can only be unread.
    """
    present: dict[Oddity, bool] = {"unread": answer.parsed is None and bool(answer.text.strip())}
    if generated:
        text, question = _plain(answer.text), _plain(item.question)
        present |= {
            "empty": not answer.text.strip(),
            "echoes the question": bool(question) and question[-ECHO:] in text,
            "goes on": goes_on(item.question, answer.text),
            "cut off": answer.finish == "length",
            "right within a sentence": _right_within(item, answer),
        }
    return tuple(oddity for oddity in ODDITIES if present.get(oddity))


def goes_on(question: str, answer: str) -> bool:
    """Whether behind an answer a line begins as the question does, with a next one: `Q: 3 + 4`, `Question: …`."""
    head = re.match(r"\s*(\w+\s*[:=?+*/-]|\w+\s+\w+)", question)
    if head is None:
        return False
    first = _plain(head[1])
    label = re.match(r"\s*(\w+)\s*:", question)
    lines = [_plain(line) for line in answer.strip().splitlines()[1:]]
    starts = (first, _plain(f"{label[1]}:")) if label else (first,)
    return any(line.startswith(starts) for line in lines if line)


def _right_within(item: Item, answer: StoredAnswer) -> bool:
    """Whether whole words of an answer, judged exactly, are the gold answer or an alias."""
    if answer.correct or item.metadata.get("judge") != "exact":
        return False
    return judge.contains(answer.text, item.gold, item.aliases).correct


def _plain(text: str) -> str:
    """A text in lower case, its runs of spaces one."""
    return " ".join(text.lower().split())
