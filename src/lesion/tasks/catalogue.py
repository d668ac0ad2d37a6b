"""The catalogue of tasks: from a name to the task, and from a task to a seeded draw of its items."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lesion.errors import UsageError, nearest
from lesion.tasks.gsm8k import Gsm8k
from lesion.tasks.jsonl import JsonLines
from lesion.tasks.math500 import Math500
from lesion.tasks.source import existing
from lesion.tasks.task import Item, Task
from lesion.tasks.triviaqa import TriviaQa, check_rule

PRIMER = ("arithmetic", "atlas", "reading")

NAMES = ("gsm8k", "math500", "triviaqa", "jsonl", *(f"primer:{name}" for name in PRIMER))


def find(name: str) -> Task:
    """The task that `name` names.

    Args:
        name: `gsm8k`, `math500`, `triviaqa` (from the hub), the same with `:PATH` (from a local file of the
            same form), `triviaqa…?rule=words|exact|substring`, `jsonl:PATH` or `PATH.jsonl` (any questions),
            `primer:arithmetic`, `primer:atlas`, `primer:reading`.

    Raises:
        UsageError: there is no such task, with the nearest names, or no such file. A JSON Lines file is read
            here, since it says whether its items are generated or chosen; everything wrong with it is raised
            here.
    """
    head, colon, rest = name.partition(":")
    if head == "primer" and colon:
        return _primer(name, rest)
    trivia = head.partition("?")[0] == "triviaqa"
    if head == "jsonl" or (head not in {"gsm8k", "math500"} and not trivia and Path(name).suffix == ".jsonl"):
        file = rest if head == "jsonl" else name
        if not file:
            raise UsageError("Say which file: jsonl:PATH.")
        return JsonLines.read(file, name)
    body, _, query = name.partition("?rule=") if trivia else (name, "", "")
    head, colon, rest = body.partition(":")
    if head in {"gsm8k", "math500", "triviaqa"}:
        if colon and not rest:
            raise UsageError(
                f"There is no path behind the colon of '{name}'; write {head}:PATH, or {head} for the hub."
            )
        path = str(existing(rest)) and rest if colon else None
        if head == "gsm8k":
            return Gsm8k(path)
        if head == "math500":
            return Math500(path)
        return TriviaQa(path, check_rule(query or "words"))
    raise UsageError(
        f"There is no task '{name}'{nearest(name, NAMES)}. There are {', '.join(NAMES)}; "
        f"a file of your own questions is jsonl:PATH."
    )


def _primer(name: str, member: str) -> Task:
    if member not in PRIMER:
        known = [f"primer:{known}" for known in PRIMER]
        raise UsageError(f"There is no task '{name}'{nearest(name, known)}; there are {', '.join(known)}.")
    from lesion.tasks import primer  # builds its world when imported

    task: Task = primer.task(member)
    return task


def draw(task: Task, items: int | None, seed: int) -> list[Item]:
    """A seeded sample of the items of a task, without replacement, in seeded order.

    Items are ordered by the SHA-256 of seed and id, so that the same seed draws the same items on every
    platform, whatever the order of the file, and a smaller draw is the beginning of a larger one.

    Args:
        task: where the items come from.
        items: how many; None for all.
        seed: any integer.

    Raises:
        UsageError: fewer than one item is asked for, or more than there are.
    """
    there = list(task.load())
    if items is not None and items < 1:
        raise UsageError(f"{items} items were asked for; ask for at least 1.")
    if items is not None and items > len(there):
        raise UsageError(f"{items:,} items were asked for, and {task.name} has {len(there):,}.")
    there.sort(key=lambda item: hashlib.sha256(f"{seed}:{item.id}".encode("utf-8", "surrogatepass")).digest())
    return there[:items]
