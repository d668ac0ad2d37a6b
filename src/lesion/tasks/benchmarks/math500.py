"""MATH-500: competition problems with answers in LaTeX (Hendrycks et al. 2021, Lightman et al. 2023)."""

from __future__ import annotations

from lesion.tasks.benchmark import Hub, Mathematics
from lesion.tasks.source import SourceRow, identify
from lesion.tasks.task import Item


class Math500(Mathematics):
    """MATH-500 from the hub or from a local file with its fields `problem`, `answer`, perhaps `solution` and others.

    The group is the level, "level 1" to "level 5"; the subject of a problem is in its metadata. 1,024 new tokens are
    enough for most written solutions; models that think at length need more.
    """

    title = "math500"
    hub = Hub("HuggingFaceH4/MATH-500", None, "test")
    max_new_tokens = 1024

    def item(self, row: SourceRow, index: int) -> Item:
        """The item of a row."""
        question = row.written("problem")
        return Item(
            id=str(row.fields.get("unique_id") or identify(question, index)),
            question=question,
            gold=row.written("answer"),
            solution=str(row.fields.get("solution", "")),
            group=f"level {row.fields['level']}" if "level" in row else "",
            metadata={"subject": str(row.fields.get("subject", ""))},
        )
