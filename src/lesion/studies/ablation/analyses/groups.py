"""Accuracy by group of items (number of steps, subject, level), under every edit, from the answers."""

from __future__ import annotations

from lesion.plain import natural
from lesion.report.marks import Map
from lesion.report.parts import Part
from lesion.report.rows import Rows, column
from lesion.report.values import SHARE, Estimate
from lesion.statistics.paired import wilson
from lesion.studies.ablation.cell import SWEPT, Under
from lesion.studies.ablation.result import Material

MOST_GROUPS = 24
"""More groups than this are labels of items rather than groups of them: no table is made."""
TITLE = "Accuracy by group of items"
CELL = ["model_name", "task", "edit"]


class GroupShare(Under):
    """The accuracy on a group of items without an edit, or without a block."""

    group: str = column("Group", label=True)
    right: int = column("Right")
    items: int = column("Items")
    accuracy: Estimate = column("Accuracy", SHARE)

    @property
    def groups(self) -> str:
        """The group with its number of items."""
        return f"{self.group} ({self.items})"


def shares(material: Material) -> list[GroupShare]:
    """Every curve whose task has 2 to `MOST_GROUPS` groups, by group and block.

    Curves of a study that stops cells once they are decided are left out: what is left of a group is no random sample.
    """
    answers, items = material.answers, material.items
    if answers.empty or items.empty or "group" not in items:
        return []
    known = items.assign(group=items["group"].fillna("").astype(str)).drop_duplicates(["task", "item"])
    known = known.loc[known["group"] != "", ["task", "item", "group"]]
    groups = {task: sorted(set(labels), key=natural) for task, labels in known.groupby("task")["group"]}
    verdicts = answers[[*CELL, "item", "correct"]].drop_duplicates([*CELL, "item"]).merge(known, on=["task", "item"])
    counts = verdicts.astype({"correct": bool}).groupby([*CELL, "group"])["correct"].agg(["sum", "count"])
    counted = {cell: (int(right), int(n)) for cell, right, n in counts.itertuples()}
    rows = []
    for curve in material.curves:
        labels = groups.get(curve.task, [])
        if curve.stopped or not 2 <= len(labels) <= MOST_GROUPS:
            continue
        for label in labels:
            for under in curve.edits:
                if (cell := (curve.model, curve.task, under.edit, label)) in counted:
                    right, n = counted[cell]
                    low, high = wilson(right, n, material.summary.study.level)
                    accuracy = Estimate(value=right / n, low=low, high=high)
                    rows.append(GroupShare(**dict(under), group=label, right=right, items=n, accuracy=accuracy))
    return rows


def part(material: Material) -> Part | None:
    """Accuracy per group and block; None where no task has groups."""
    rows = shares(material)
    if not rows:
        return None
    mark = Map("accuracy", "cut", "groups", hue="share", full=1.25, panel=SWEPT, wide=True)
    about = "In %; the number of items in brackets. The groups are small: compare with care."
    return Part(TITLE, Rows("", rows, (GroupShare,), TITLE), (mark,), (), about, "Groups", wide=True)
