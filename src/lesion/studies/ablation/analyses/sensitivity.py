"""What a full table can find: the smallest loss, and what is critical at other shares."""

from __future__ import annotations

from lesion.report import wording
from lesion.report.parts import Part
from lesion.report.rows import Rows, column
from lesion.report.values import WHOLE_SHARE, Number
from lesion.studies.ablation.cell import Swept
from lesion.studies.ablation.result import Material


class Found(Swept):
    """What the rule can find under one unit and factor, and the critical blocks if another share had to be lost."""

    right: int = column("Right")
    fewest_right: int = column("Fewest right")
    smallest_loss: Number = column("Smallest critical loss", WHOLE_SHARE)
    critical: dict[str, str] = column("Critical at {}")


def part(material: Material) -> Part | None:
    """The smallest loss that can be found, and what is critical at other shares; None where evaluation stopped."""
    rows = [
        Found(
            model=model, task=result.task,
            **reach.model_dump(include={"unit", "factor", "right", "fewest_right", "smallest_loss"}),
            critical={WHOLE_SHARE.text(at.share): wording.layer_runs(at.critical) or "none" for at in reach.shares},
        )
        for model, result in material.summary.results
        for reach in result.sensitivity
        if reach.shares
    ]  # fmt: skip
    if not rows:
        return None
    caption = (
        "Right: items that the unedited model has right. Fewest right: with fewer, a cut that leaves guessing alone is"
        " not critical. Smallest critical loss: of the accuracy above chance, found with 80 % power where no item is"
        " repaired."
    )
    table = Rows("", rows, (Found,), "Power", caption)
    return Part("What could have been found", table, (), (), short="Power")
