"""The result of a check: each task with its prompts as they were sent, the answers, and what to change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from rich.console import Group, RenderableType
from rich.text import Text

from lesion.core.readiness import MOST_ODD, SAID, CheckedTask, SentPrompt, examine, other_style, remedy
from lesion.core.result import StudyResult
from lesion.core.values import Summary
from lesion.plain import plain
from lesion.report import wording
from lesion.report.blocks import Check
from lesion.report.claims import Claim, rule
from lesion.report.marks import Bars
from lesion.report.parts import Part
from lesion.report.rows import Rows, subject
from lesion.report.values import WHOLE_SHARE
from lesion.statistics.detectable import near_guessing
from lesion.studies.check.study import CheckStudy
from lesion.tasks.catalogue import find
from lesion.tasks.prompts import common_start
from lesion.tasks.wrapped import guessing

if TYPE_CHECKING:
    from lesion.core.run import Run


class CheckSummary(Summary):
    """All that a check found."""

    kind: Literal["check"] = "check"
    study: CheckStudy
    chat: bool
    tasks: tuple[CheckedTask, ...]


@rule
def readiness(tasks: Sequence[CheckedTask], chat: bool) -> Iterable[Claim]:
    """How each task goes as it is asked, and what to change.

    Says: N of M answers are right. | N of M answers are right; K are empty. | N of M answers are right; guessing has G.
    | This is a chat model, and the prompts are not in its chat template. With --prompt-style chat K of M are right. |
    With --task 'FILE?judge=contains' K of M are right. | Many answers meet the limit of L tokens: try more
    with --max-new-tokens. | The prompts surprise the model as random tokens would: does the tokenizer belong to these
    weights? | M questions do not tell this from guessing.
    Needs: the counts; an oddity in three of ten answers; guessing within Wilson's interval of the accuracy; three of
    ten more right answers to the same questions in the other prompt style, or where whole words in an answer count; as
    many nats a token of the prompts as the logarithm of the vocabulary
    """
    for task in tasks:
        near = _is_near(task)
        first = f"{task.right} of {task.items} answers are right"
        if task.guessing:
            first += f", and guessing has {WHOLE_SHARE.text(task.guessing)}"
        frequent = [odd for odd in task.odd if odd.answers >= MOST_ODD * task.items]
        if frequent and task.right < task.items:
            most = max(frequent, key=lambda odd: odd.answers)
            first += f"; {most.answers} are {SAID[most.oddity]}"
        advice = [*remedy(task, chat)]
        if near and task.surprise is not None and task.surprise >= task.random:
            surprised = (
                f"The prompts surprise the model as random tokens would ({task.surprise:.1f} nats a token; random"
                f" {task.random:.1f}): does the tokenizer belong to these weights?"
            )
            sentences = [surprised, *advice[:1]]
        else:
            sentences = advice or [*_doubt(task, near=near)]
        yield Claim((f"{first}.", *sentences), (task,), subject(task, tasks))


def _is_near(task: CheckedTask) -> bool:
    return not task.right or near_guessing(task.right, task.items, task.guessing)


def _doubt(task: CheckedTask, *, near: bool) -> Iterable[str]:
    """Why a study of losses could show nothing, where nothing that was tried makes more answers right."""
    if near and task.right:
        yield f"{task.items} questions do not tell this from guessing: check more with --items, or give an easier task."
    elif near:
        yield "No loss can be seen where nothing is right: give an easier task, solved examples, or another model."


INDENT = "  │ "
FEW_LINES = 3
"""More lines that all prompts begin with are shown once."""
ENDS = {"stop": "ended by itself", "length": "cut off at the token limit", "loop": "stopped in a loop"}


class CheckResult(StudyResult[CheckSummary]):
    """How a model is asked, and what it answers."""

    SUMMARY = CheckSummary
    EYEBROW = "check"
    READING = (
        "Prompts stand exactly as they were sent, special tokens included. The interval of an accuracy is Wilson's.",
    )

    @property
    def question(self) -> str:
        """The title of the page."""
        return f"Is {self.summary.study.model.name} asked as it should be?"

    def parts(self) -> Sequence[Part]:
        """The tasks, and the prompts of each."""
        tasks = self.summary.tasks
        rows = Rows("tasks", tasks, (CheckedTask,), "Tasks")
        shown = [
            Part(
                f"{wording.counted(len(task.prompts), 'prompt')} of {task.task}, exactly as sent",
                Rows(f"prompts-{number}", task.prompts, (SentPrompt,), task.task),
            )
            for number, task in enumerate(tasks, 1)
        ]
        marks = (Bars("accuracy", "task"),)
        return (Part("Accuracy of the unedited model", rows, marks, readiness(tasks, self.summary.chat)), *shown)

    def checks(self) -> Sequence[Check]:
        """Whether another prompt style does better, or a study can follow."""
        tasks = self.summary.tasks
        for task in tasks:
            if task.other is not None and task.other.right - task.right >= MOST_ODD * task.items:
                style = task.other.style
                text = f"{task.task}: in the prompt style {style} {task.other.right} of {task.items} are right"
                if any(each.other is None or each.other.could < each.could for each in tasks):
                    return [Check("bad", f'{text}; "style": "{style}" in its lines keeps that of other tasks.')]
                return [Check("bad", f"{text}.", "check", f"--prompt-style {style}")]
        if any(map(_is_near, tasks)):
            return []
        return [Check("open", "Which blocks these answers depend on: lesion ablate.", "ablate")]

    def text(self, *, every: bool = False) -> RenderableType:
        """How each task went, then its prompts and answers; `every`: the table too."""
        first, *others = self.claims
        said = [replace(first, sentences=first.sentences[1:], subject=""), *others]  # the verdict stands above
        shown: list[RenderableType] = [
            Text(plain(claim.text.replace(wording.SPACE, " "))) for claim in said if claim.sentences
        ]
        for task in self.summary.tasks:
            why = "as given" if task.chosen else self._why(task)
            shown.append(Text(plain(f"{task.task}, in the prompt style {task.style} ({why})"), style="bold"))
            shared = _shared([sent.prompt for sent in task.prompts])
            for place, sent in enumerate(task.prompts):
                shown += [Text(plain(line)) for line in _lines(sent, shared if place else "")]
        return Group(*shown, *([super().text(every=True)] if every else []))

    def _why(self, task: CheckedTask) -> str:
        if task.style.startswith("chat"):
            return "the model has a chat template"
        return "the model has no chat template" if not self.summary.chat else "what the task asks for"


def _shared(prompts: Sequence[str]) -> str:
    """The whole lines that all prompts begin with, solved examples say; none where they are few."""
    begin = prompts[0][: common_start(*prompts)] if prompts else ""
    begin = begin[: begin.rfind("\n") + 1]
    return begin if begin.count("\n") > FEW_LINES else ""


def _lines(sent: SentPrompt, shared: str = "") -> Iterator[str]:
    """An answer with its prompt, without what is `shared` with the first one."""
    verdict = "right" if sent.right else f"wrong, gold answer: {sent.gold}"
    how = "chosen" if sent.choices else ENDS.get(sent.finish, sent.finish)
    yield f"item {sent.item}: {verdict}; {how}"
    if shared:
        yield f"{INDENT}(begins with the same {shared.count(chr(10))} lines)"
    yield from (f"{INDENT}{line}" for line in sent.prompt[len(shared) :].split("\n"))
    if sent.choices:
        yield f"  chosen of {len(sent.choices)} ({' | '.join(sent.choices)}):"
    else:
        yield f"  answer ({'nothing could be read' if sent.read is None else f'read: {sent.read}'}):"
    yield from (f"{INDENT}{line}" for line in sent.answer.split("\n"))


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
