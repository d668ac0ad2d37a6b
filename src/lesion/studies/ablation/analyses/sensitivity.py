"""What a full table can find: the smallest loss, what is critical at other shares, and intervals over clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lesion.core import clustered_intervals
from lesion.core.clustered_intervals import OverClusters
from lesion.edits.place import Unit
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import WHOLE_SHARE
from lesion.report.parts import Part
from lesion.report.rows import Rows, column
from lesion.report.values import Number
from lesion.statistics.critical import SHARE
from lesion.statistics.spared import SPARED
from lesion.studies.ablation.cell import Cell
from lesion.studies.ablation.claims import smallest_loss
from lesion.studies.ablation.curves import Curve
from lesion.studies.ablation.material import Labels, Material
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.ablation.sweep import Factor

Doubt = tuple[str, OverClusters, float, str]


class Found(Labels):
    """What the rule can find under one unit and factor, and the critical blocks if another share had to be lost."""

    unit: Unit = column("Unit", wording.UNIT_NAMES.__getitem__, label=True)
    factor: Factor = column("Factor", wording.factor_name, label=True)
    right: int = column("Right")
    fewest_right: int = column("Fewest right")
    smallest_loss: Number = column("Smallest loss", WHOLE_SHARE)
    critical: dict[str, str] = column("Critical at {}")


def part(material: Material) -> Part | None:
    """The smallest loss that can be found, and what is critical at other shares; None where evaluation stopped."""
    rows = [
        Found(
            model=model, task=result.task, unit=reach.unit, factor=reach.factor, right=reach.right,
            fewest_right=reach.fewest_right, smallest_loss=reach.smallest_loss,
            critical={WHOLE_SHARE.text(at.share): wording.layer_runs(at.critical) for at in reach.shares},
        )
        for model, result in material.summary.results
        for reach in result.sensitivity
        if reach.shares
    ]  # fmt: skip
    if not rows:
        return None
    caption = (
        "Right: items that the unedited model has right; nothing can be critical with fewer than the fewest. Smallest"
        " loss: of its accuracy above chance, called critical with 80 % power by a cut that repairs no item."
    )
    own_claims = (*other_shares(material.summary), *over_clusters(material.summary))
    table = Rows("", rows, (Found,), "What can be found, and critical blocks at other shares", caption)
    return Part("What could have been found", table, (), own_claims, smallest_loss(material), "Power")


@rule(
    "All n models agree at a required loss of 50 %, not at 75 %.",
    needs="the same critical blocks in every finished model of a family, at each share",
)
def other_shares(summary: AblationSummary) -> Iterable[Claim]:
    """Families that agree at some shares only."""
    reached = [(model, result.task, reach) for model, result in summary.results for reach in result.sensitivity]
    for family in summary.invariance.families if summary.invariance else ():
        members = {member.model for member in family.finished}
        for cut in dict.fromkeys((task, reach.unit, reach.factor) for _, task, reach in reached):
            own = [each for model, task, each in reached if model in members and (task, each.unit, each.factor) == cut]
            if len(own) < 2:
                continue
            by_share = [
                (at[0].share, len({each.critical for each in at}) == 1)
                for at in zip(*(o.shares for o in own), strict=True)
            ]
            agree, differ = (
                [WHOLE_SHARE(share) for share, same in by_share if same is wanted] for wanted in (True, False)
            )
            if agree and differ:
                where = f" ({wording.axis_name(cut[1], cut[2])})" if cut[1:] != ("block", 0.0) else ""
                yield Claim(
                    (
                        f"{cut[0]}{where}: all {len(own)} models agree at a required loss of"
                        f" {wording.listed(agree, 'or')}{wording.SPACE}%, not at {wording.listed(differ, 'or')}"
                        f"{wording.SPACE}%.",
                    ),
                    (),
                    family.family,
                )


@rule(
    "Items of A share n templates; over these, intervals of drops are up to w times as wide.",
    "Over templates the verdict would not stand for block L.",
    needs=f"at least {clustered_intervals.FEWEST} clusters, and intervals over them at least"
    f" {clustered_intervals.MATERIAL:g} times as wide as over items",
)
def over_clusters(summary: AblationSummary) -> Iterable[Claim]:
    """Whether verdicts stand if templates, relations or subjects were drawn, not items."""
    for model in summary.models:
        curves = [curve for curve in summary.curves if curve.model == model.model and not curve.stopped]
        for result in model.tasks:
            own = [curve for curve in curves if curve.task == result.task]
            intervals = {_name(cell): cell.clustered for curve in own for cell in curve.cells if cell.clustered}
            text = clustered_intervals.widened(result.task, result.items, result.shared, intervals)
            if text:
                enough = result.shared and intervals and result.shared.clusters >= clustered_intervals.FEWEST
                doubts = [doubt for curve in own for doubt in _doubts(curve)]
                stands = (clustered_intervals.verdicts(result.shared.what, doubts),) if result.shared and enough else ()
                yield Claim((text, *stands), (), model.model if len(summary.models) > 1 else "")


def _doubts(curve: Curve) -> Iterator[Doubt]:
    """The verdicts whose bound lies outside the interval of the drop over items, and inside that over clusters."""
    baseline = (curve.result.baseline.accuracy.value or 0.0) - curve.result.guessing
    what = "the accuracy above guessing" if curve.result.guessing else "the accuracy"
    half, quarter = SHARE * baseline, SPARED * baseline
    for cell in curve.cells:
        of, low, high = cell.clustered, cell.drop.low, cell.drop.high
        if of is None or low is None or high is None:
            continue
        if cell.critical and of.low <= half < low:
            yield f"{_name(cell)} as critical", of, half, f"half of {what}"
        if cell.spared and high < quarter <= of.high:
            yield f"{_name(cell)} as spared", of, quarter, f"a quarter of {what}"


def _name(cell: Cell) -> str:
    how = "" if cell.factor == 0 else f" {wording.changed(cell.factor)}"
    return f"{wording.place(cell.unit, cell.layer, cell.part)}{how}"
