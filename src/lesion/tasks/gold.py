"""The gold answer's log-probability: any task as a score, one forward pass an item, nothing generated."""

from __future__ import annotations

from lesion.errors import UsageError
from lesion.tasks import running
from lesion.tasks.task import Answer, Item, Task, Verdict
from lesion.tasks.wrapped import WrappedTask


def gold_name(task: str) -> str:
    """`gold:TASK`: what stored answers call the gold answers of a task."""
    return f"gold:{task}"


class Gold(WrappedTask):
    """A task whose answer is the summed log-probability of its gold continuation after its prompt (kind `score`).

    `lesion.tasks.continuations.encode_gold` says what the continuation is. Items keep the ids of the task, so that a
    screen by this score and the task itself are about the same items.
    """

    def __init__(self, of: Task) -> None:
        if of.kind == "score":
            raise UsageError(
                f"{of.name} is scored by its log-probability already and has no gold answers; leave 'gold:' out."
            )
        super().__init__(of, "gold")
        self.kind, self.max_new_tokens, self.stop = "score", 1, ()

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the log-probability is finite; nothing else is right or wrong about a score."""
        return running.verdict(item, answer)
