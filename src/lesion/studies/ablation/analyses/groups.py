"""Accuracy by group of items (number of steps, subject, level), under every edit, from the answers."""

from __future__ import annotations

import re

from lesion.edits.edit import BASELINE
from lesion.edits.place import Unit
from lesion.report import wording
from lesion.report.marks import Map
from lesion.report.parts import Part
from lesion.report.rows import Rows, column
from lesion.report.values import SHARE, Estimate
from lesion.statistics.paired import wilson
from lesion.studies.ablation.cell import Labels
from lesion.studies.ablation.result import Material
from lesion.studies.ablation.sweep import Factor

MOST_GROUPS = 24
"""More groups than this are labels of items rather than groups of them: no table is made."""
CELL = ["model_name", "task", "edit"]


class GroupShare(Labels):
    """The accuracy on a group of items without an edit (`cut` is *unedited*), or without a block."""

    unit: Unit = column("Unit", wording.UNIT_NAMES.__getitem__, label=True)
    factor: Factor = column("Factor", wording.factor_name, label=True)
    group: str = column("Group", label=True)
    cut: str = column("Block", label=True)
    edit: str = column()
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
        edits = {"unedited": str(BASELINE)} | {str(cell.layer): cell.edit for cell in curve.cells}
        where = {"model": curve.model, "task": curve.task, "unit": curve.unit, "factor": curve.factor}
        for label in labels:
            for cut, edit in edits.items():
                if (cell := (curve.model, curve.task, edit, label)) in counted:
                    right, n = counted[cell]
                    low, high = wilson(right, n, material.summary.study.level)
                    accuracy = Estimate(value=right / n, low=low, high=high)
                    rows.append(
                        GroupShare(**where, group=label, cut=cut, edit=edit, right=right, items=n, accuracy=accuracy)
                    )
    return rows


def part(material: Material) -> Part | None:
    """Accuracy per group and block; None where no task has groups."""
    rows = shares(material)
    if not rows:
        return None
    panel = ("model", "task", "unit", "factor")
    mark = Map("accuracy", "cut", "groups", hue="share", full=1.25, panel=panel, wide=True, caption="Accuracy in %.")
    about = "Number of items in brackets. The groups are small: compare with care."
    table = Rows("", rows, (GroupShare,), "Accuracy by group of items")
    return Part("Accuracy by group of items", table, (mark,), (), about, "Groups", wide=True)


def natural(label: str) -> list[tuple[int, int, str]]:
    """A sort key under which `2 steps` stands before `10 steps`."""
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in re.split(r"(\d+)", label) if piece]
