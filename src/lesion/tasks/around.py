"""Around: what a task made from another has in common with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lesion.tasks.task import Answer, Item, Kind, Task, Verdict


@dataclass(frozen=True)
class Around:
    """A task made from another: asked, limited and judged as that one, unless it says otherwise.

    Args:
        of: the other task.
    """

    of: Task

    @property
    def kind(self) -> Kind:
        """That of the task."""
        return self.of.kind

    @property
    def max_new_tokens(self) -> int:
        """That of the task."""
        return self.of.max_new_tokens

    @property
    def stop(self) -> tuple[str, ...]:
        """Those of the task."""
        return self.of.stop

    @property
    def style(self) -> str:
        """The prompt style of the task."""
        return self.of.style

    @property
    def subject(self) -> str:
        """What instructions are written for: as for the task."""
        return str(getattr(self.of, "subject", ""))

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer is right, by the rule of the task."""
        return self.of.judge(item, answer)


def pool(of: Task) -> Sequence[Item]:
    """The items of a task that are set aside for calibration; all of them where none are."""
    items: Sequence[Item] = getattr(of, "calibration", of.load)()
    return items
