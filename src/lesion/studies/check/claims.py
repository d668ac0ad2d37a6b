"""Claims of a check: how a task goes as it is asked, what is odd about the answers, and what to change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.core.oddities import SAID
from lesion.core.readiness import MOST_ODD, CheckedTask, remedy
from lesion.report.claims import Claim, rule
from lesion.report.forms import WHOLE_SHARE
from lesion.report.rows import subject
from lesion.statistics.detectable import near_guessing


@rule
def readiness(tasks: Sequence[CheckedTask], chat: bool) -> Iterable[Claim]:
    """How each task goes as it is asked, and what to change.

    Says: N of M answers are right. | N of M answers are right; K are empty. | N of M answers are right; guessing has G.
    | This is a chat model, and the prompts are not in its chat template. With --prompt-style chat K of M are right. |
    With --task 'FILE?judge=contains' at least K of M are right. | Many answers meet the limit of L tokens: try more
    with --max-new-tokens. | The prompts surprise the model as random tokens would: does the tokenizer belong to these
    weights? | M questions do not tell this from guessing.
    Needs: the counts; an oddity in three of ten answers; guessing within Wilson's interval of the accuracy; more right
    answers to the same questions in the other prompt style, or where a whole word in an answer counts; as many nats a
    token of the prompts as the logarithm of the vocabulary
    """
    for task in tasks:
        near = near_guessing(task.right, task.items, task.guessing) if task.guessing else task.right == 0
        first = f"{task.right} of {task.items} answers are right"
        if task.guessing:
            first += f", and guessing has {WHOLE_SHARE.text(task.guessing)}"
        frequent = [odd for odd in task.odd if odd.answers >= MOST_ODD * task.items]
        if frequent and task.right < task.items:
            most = max(frequent, key=lambda odd: odd.answers)
            first += f"; {most.answers} are {SAID[most.oddity]}"
        advice = [*remedy(task, chat)]
        yield Claim((f"{first}.", *(advice or _doubt(task, near=near))), (task,), subject(task, tasks))


def _doubt(task: CheckedTask, *, near: bool) -> Iterable[str]:
    """Why a study of losses could show nothing, where nothing that was tried makes more answers right."""
    if near and task.surprise is not None and task.surprise >= task.random:
        yield (
            f"The prompts surprise the model as random tokens would ({task.surprise:.1f} nats a token; random"
            f" {task.random:.1f}): does the tokenizer belong to these weights?"
        )
    elif near and task.right:
        yield f"{task.items} questions do not tell this from guessing: check more with --items, or give an easier task."
    elif near:
        yield "No loss can be seen where nothing is right: give an easier task, solved examples, or another model."
