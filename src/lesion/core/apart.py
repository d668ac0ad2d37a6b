"""Apart: items drawn so that nothing that other studies asked or showed comes back, by value and not by seed or id."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from lesion.core.study_file import Questions, TaskChoice, study_file
from lesion.errors import UsageError
from lesion.files import STUDY_BYTES, parse_toml, read_text
from lesion.tasks.catalogue import draw, find
from lesion.tasks.task import Item, Task
from lesion.tasks.values import shown, value


def draw_apart(study: Questions, choice: TaskChoice, task: Task, avoid: Collection[str] = ()) -> list[Item]:
    """The items of a task in the order of a study's draw, all that it may ask: none whose value its `apart` showed.

    Args:
        study: its seed, and the studies that it keeps apart from.
        choice: how it names the task.
        task: that is drawn from.
        avoid: ids of items that are drawn last.

    Raises:
        UsageError: one of these studies does not exist, or has no tasks; or nothing is left to draw.
    """
    items = draw(task, None, study.seed, avoid)
    if not study.apart:
        return items
    before = frozenset().union(*map(_shown, study.apart))
    left = [item for item in items if value(choice.name, item) not in before]
    if not left:
        raise UsageError(
            f"All {len(items):,} items of {choice.name} were asked or shown by {', '.join(study.apart)}; leave one out"
            " of 'apart', or take another task."
        )
    return left


@cache
def _shown(name: str) -> frozenset[str]:
    """The values of all that the prompts of a study show: of its items and of what stands solved before them."""
    file = study_file(name)
    document = parse_toml(read_text(file, limit=STUDY_BYTES, fault=UsageError), str(file))
    keys = {key: document[key] for key in ("tasks", "items", "seed") if key in document}
    if "tasks" not in keys:
        raise UsageError(f"{name} in 'apart' has no tasks, so that there is nothing to keep apart from.")
    other = Questions.make(**keys)
    drawn = {choice: draw(find(choice.name), other.items_of(choice), other.seed) for choice in other.tasks}
    return frozenset().union(*(shown(choice.name, item) for choice, items in drawn.items() for item in items))
