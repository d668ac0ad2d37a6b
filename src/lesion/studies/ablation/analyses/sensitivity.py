"""What a full table can find: the smallest loss, what is critical at other shares, and intervals over clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lesion.core import clustered_intervals
from lesion.core.clustered_intervals import OverClusters
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.parts import Part
from lesion.report.rows import Rows, column
from lesion.report.values import WHOLE_SHARE, Number
from lesion.statistics.critical import SHARE
from lesion.statistics.spared import SPARED
from lesion.studies.ablation.cell import Curve, Swept, manner
from lesion.studies.ablation.result import Material
from lesion.studies.ablation.sweep import alike


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


@rule
def over_clusters(material: Material) -> Iterable[Claim]:
    """Whether verdicts stand if templates, relations or subjects were drawn, not items.

    Says: Items of A share n templates; over these, intervals of drops are up to w times as wide. | Over templates the
    verdict would not stand for block L. | The items ask only n questions, and every copy counts as an item.
    Needs: at least 5 clusters, and intervals over them at least 1.1 times as wide as over items; of copies, 1.1 times
    as many items as questions
    """
    models: dict[tuple[str, ...], list[str]] = {}
    for own in alike((curve for curve in material.curves if not curve.stopped), "model", "task"):
        result = own[0].result
        cells = [cell for curve in own for cell in curve.cells]
        intervals = {cell.place + manner(cell.factor): cell.clustered for cell in cells if cell.clustered}
        text = clustered_intervals.widened(result.task, result.items, result.shared, intervals)
        if text is None:
            continue
        sentences = [text]
        of = result.shared
        if of and intervals and of.clusters >= clustered_intervals.FEWEST and not of.copied:
            doubts = [doubt for curve in own for doubt in _doubts(curve)]
            sentences.append(clustered_intervals.verdicts(of.what, doubts))
        models.setdefault(tuple(sentences), []).append(own[0].model)
    for claimed, names in models.items():
        yield Claim(claimed, subject=material.among(names[0]) * (len(names) == 1))


def _doubts(curve: Curve) -> Iterator[tuple[str, OverClusters, float, str]]:
    """The verdicts whose bound lies outside the interval of the drop over items, and inside that over clusters."""
    what = f"the accuracy{' above guessing' * bool(curve.result.guessing)}"
    half, quarter = SHARE * curve.result.skill, SPARED * curve.result.skill
    for cell in curve.cells:
        of, low, high = cell.clustered, cell.drop.low, cell.drop.high
        if of is None or low is None or high is None:
            continue
        place = cell.place + manner(cell.factor)
        if cell.critical and of.low <= half < low:
            yield f"{place} as critical", of, half, f"half of {what}"
        if cell.spared and high < quarter <= of.high:
            yield f"{place} as spared", of, quarter, f"a quarter of {what}"
