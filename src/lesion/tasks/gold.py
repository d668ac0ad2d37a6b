"""The gold answer's log-probability: any task as a score, one forward pass an item, nothing generated."""

from __future__ import annotations

from dataclasses import dataclass

from lesion.errors import UsageError
from lesion.tasks import running
from lesion.tasks.around import Around
from lesion.tasks.task import Answer, Item, Kind, Verdict


def gold_name(task: str) -> str:
    """`gold:TASK`: what stored answers call the gold answers of a task."""
    return f"gold:{task}"


@dataclass(frozen=True)
class Gold(Around):
    """A task whose answer is the summed log-probability of its gold continuation after its prompt (kind `score`).

    `lesion.tasks.continuations.encode_gold` says what the continuation is. Items keep the ids of the task, so that a
    screen by this score and the task itself are about the same items.

    Raises:
        UsageError: the task is scored already.
    """

    def __post_init__(self) -> None:
        if self.of.kind == "score":
            raise UsageError(
                f"{self.of.name} is scored by its log-probability already and has no gold answers; leave 'gold:' out."
            )

    @property
    def name(self) -> str:
        """`gold:TASK`."""
        return gold_name(self.of.name)

    @property
    def kind(self) -> Kind:
        """Scored, whatever the task is."""
        return "score"

    @property
    def max_new_tokens(self) -> int:
        """Nothing is generated."""
        return 1

    @property
    def stop(self) -> tuple[str, ...]:
        """Nothing is generated."""
        return ()

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the log-probability is finite; nothing else is right or wrong about a score."""
        return running.verdict(item, answer)
