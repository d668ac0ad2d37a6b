"""GSM8K: grade-school word problems with a written solution and a number as answer (Cobbe et al. 2021)."""

from __future__ import annotations

import re

from lesion.tasks.benchmark import Hub, Mathematics
from lesion.tasks.gold_classes import DERIVATION
from lesion.tasks.source import SourceRow, identify
from lesion.tasks.task import Item

_CALCULATOR = re.compile(r"<<[^<>]*>>")


class Gsm8k(Mathematics):
    """GSM8K from the hub (the 1,319 problems of `test`) or from a local file with its fields `question` and `answer`.

    The gold answer is what stands behind `####`, without thousands separators; the solution is the text
    before it without the calculator marks `<<48/2=24>>`; the group is the number of steps, one per calculator
    mark (0 steps where a solution has none).

    512 new tokens leave room for a chain of thought of twice the longest solution in the data.
    """

    title = "gsm8k"
    hub = Hub("openai/gsm8k", "main", "test", ("train",))
    max_new_tokens = 512
    gold_classes = DERIVATION

    def item(self, row: SourceRow, index: int) -> Item:
        """The item of a row."""
        question = row.written("question")
        solution, mark, gold = row.written("answer").rpartition("####")
        if not mark or not gold.strip():
            raise row.fault("there is no answer behind '####'.")
        steps = len(_CALCULATOR.findall(solution))
        return Item(
            id=identify(question, index),
            question=question,
            gold=gold.strip().replace(",", ""),
            solution=_CALCULATOR.sub("", solution).strip(),
            group="1 step" if steps == 1 else f"{steps} steps",
        )
