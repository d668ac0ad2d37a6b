"""SVAMP: word problems of one step, varied so that key words alone do not solve them (Patel et al. 2021)."""

from __future__ import annotations

import re

from lesion.tasks.benchmark import Hub, Mathematics
from lesion.tasks.gold_classes import DERIVATION
from lesion.tasks.source import SourceRow
from lesion.tasks.task import Item

_POINT_ZERO = re.compile(r"\.0+(?!\d)")


class Svamp(Mathematics):
    """SVAMP from the hub (the 300 problems of `test`) or from a local file with its fields `ID`, `Body`, `Question`,
    `Equation`, `Answer` and `Type`.

    The solution is the equation with the answer, the group is the operation ("subtraction").
    """

    title = "svamp"
    hub = Hub("ChilleD/SVAMP", None, "test", ("train",))
    max_new_tokens = 256
    gold_classes = DERIVATION

    def item(self, row: SourceRow, index: int) -> Item:
        """The item of a row."""
        body = row.written("Body").strip()
        gold, equation = (_POINT_ZERO.sub("", row.written(field)) for field in ("Answer", "Equation"))
        return Item(
            id=row.written("ID"),
            question=f"{body}{'' if body[-1] in '.?!' else '.'} {row.written('Question').strip()}",
            gold=gold,
            solution=f"{equation.strip().removeprefix('(').removesuffix(')').strip()} = {gold}",
            group=row.written("Type").lower(),
        )
