"""The atlas as contrasts: how likely is the right value of a fact, and how likely that of most others?"""

from __future__ import annotations

from functools import cache

from lesion.tasks import contrast
from lesion.tasks.primer.task import PrimerTask, task
from lesion.tasks.task import Item

NAME = "primer:atlas?form=contrast"


@cache
def _items(pool: bool) -> tuple[Item, ...]:
    facts = task("atlas").load()
    return tuple(contrast.frequent([contrast.item(i.id, i.question, i.gold, group=i.group) for i in facts]))


def atlas() -> PrimerTask:
    """The facts of the atlas in the prompts of `primer:atlas`: what the bundled model knows, without generating.

    Tempting is the value that most other facts of the relation have: the town where most people live.
    """
    return PrimerTask(NAME, 1, _items, contrast.verdict, kind="contrast")
