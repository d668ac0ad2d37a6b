"""Few-shot prompts: any task with solved questions before each of its own."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from lesion.errors import UsageError
from lesion.tasks.counterparts import Aligning
from lesion.tasks.task import Answer, Item, Task
from lesion.tasks.wrapped import WrappedTask, calibration_items

# Where a model goes on with a next question, as it saw several, its answer has ended.
NEXT_QUESTION = "\nQuestion:"
NEXT_PROMPT = "\n\n"


class FewShot(WrappedTask):
    """A task asked after some of its questions with their solutions.

    The shots are drawn from the calibration items of the task by the id of the item that is asked, which is never among
    them, nor a question of the same words. The shots of one item for a smaller number are the first of those for a
    larger one. A shot is solved by its worked solution, with `#### ANSWER` behind it where it does not mark its answer
    itself; by its gold answer where the judge wants that alone; of items with choices, by the gold choice. No
    instruction is given: the shots show what is wanted.

    A generated answer ends where a next question begins: at "\\nQuestion:", in style `raw` also at an empty line.
    """

    def __init__(self, of: Task, count: int) -> None:
        if of.kind == "score":
            raise UsageError(f"{of.name} is scored as text and has no solved questions; fewshot:K:TASK needs some.")
        super().__init__(of, f"fewshot:{count}")
        self.count = count
        self.subject = ""  # the shots show what is wanted
        if self.kind == "generate":
            more = (NEXT_QUESTION, NEXT_PROMPT) if "raw" in (self.style, self.unchatted) else (NEXT_QUESTION,)
            self.stop = tuple(dict.fromkeys((*of.stop, *more)))

    def changed(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items, each with its shots; it raises `UsageError` where the task has not enough other items."""
        pool = calibration_items(self.of)
        solved: dict[str, str] = {}
        with_shots = []
        for item in items:
            shots = draw_shots(item, pool, self.count, self.of.name)
            for shot in shots:
                if shot.id not in solved:
                    solved[shot.id] = solution(self.of, shot)
            with_shots.append(replace(item, shots=tuple((shot.question, solved[shot.id]) for shot in shots)))
        return tuple(with_shots)

    def aligned(self, item: Item) -> Iterable[Item] | None:
        """The aligned items of the task behind the shots of an item, which show none of them."""
        others = self.of.aligned(item) if isinstance(self.of, Aligning) else None
        if others is None:
            return None
        shown = {question for question, _ in item.shots}
        return (replace(other, shots=item.shots) for other in others if other.question not in shown)


def draw_shots(item: Item, pool: Sequence[Item], count: int, task: str) -> list[Item]:
    """Items of a pool to stand before an item: a function of its id and the pool, the first of a seeded order."""
    rng = random.Random(f"shots before {item.id}")
    taken: list[Item] = []
    words = {item.question}
    seen: set[int] = set()
    while len(taken) < count and len(seen) < len(pool):
        place = rng.randrange(len(pool))
        candidate = pool[place]
        if place not in seen and candidate.id != item.id and candidate.question not in words:
            taken.append(candidate)
            words.add(candidate.question)
        seen.add(place)
    if len(taken) < count:
        raise UsageError(
            f"{count} solved questions were asked for before item {item.id} of {task}, and there are {len(taken)} "
            f"others to take; ask for fewer, or give the task more items."
        )
    return taken


def solution(task: Task, item: Item) -> str:
    """What stands behind a solved question: an answer as the judge of the task wants it."""
    if item.choices or not item.solution or item.solution == item.gold:
        return item.gold
    if "####" in item.solution or "\\boxed" in item.solution:
        return item.solution
    texts = (f"{item.solution}\n#### {item.gold}", item.solution, item.gold)
    return next((text for text in texts if task.judge(item, Answer(text)).correct), item.gold)
