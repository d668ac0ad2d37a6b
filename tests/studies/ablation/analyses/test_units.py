"""What is claimed of inner units whose margins are known, an outcome each."""

import pytest

from lesion.report import wording
from lesion.report.values import Estimate
from lesion.studies.ablation.analyses.units import which_units
from lesion.studies.ablation.cell import Cell, Curve, Scores
from lesion.studies.ablation.result import TaskResult


def cell(head: int, drop: float, margin: Estimate | None = None, *, critical: bool = False, p: float = 1.0) -> Cell:
    return Cell(
        layer=1, unit="head", factor=0.0, part=head, items=100, truncated=0.0, unparsed=0.0, margin=margin,
        accuracy=Estimate(value=0.9 - drop), critical=critical, spared=False,
        drop=Estimate(value=drop, low=drop - 0.1, high=drop + 0.1, p=p, p_corrected=p),
    )  # fmt: skip


def margin(value: float, p: float = 0.001) -> Estimate:
    return Estimate(value=value, low=value - 0.5, high=value + 0.5, p=p, p_corrected=p)


def claimed(*cells: Cell) -> list[str]:
    scores = Scores(items=100, accuracy=Estimate(value=0.9), truncated=0.0, unparsed=0.0)
    result = TaskResult(task="ioi", items=100, baseline=scores, cells=cells)
    (claim,) = which_units([Curve("m", result, "head", 0.0, cells)])
    assert claim.subject == ""
    return [text.replace(wording.SPACE, " ") for text in claim.sentences]


def test_where_no_head_loses_that_is_what_was_measured():
    assert "No drop was measured." in claimed(cell(0, 0.0), cell(1, -0.1))


def test_critical_heads_stand_before_those_that_only_change_the_accuracy():
    assert claimed(cell(0, 0.2, p=0.01), cell(1, 0.6, critical=True), cell(2, 0.0)) == [
        "Head 1.1 is critical for ioi, of 3 heads; head 1.0 changes the accuracy (corrected p at most .05).",
        "The largest drop is 60.0 points [50.0, 70.0] of 90.0 %, at head 1.1.",
    ]


@pytest.mark.parametrize(
    ("margins", "says"),
    [
        (
            (margin(2.0), margin(1.0), margin(-1.5)),
            "falls most without head 1.0, by 2.000 nats [1.500, 2.500] (2 such heads) and rises most without head 1.2,"
            " by 1.500 nats [1.000, 2.000].",
        ),
        ((margin(2.0), margin(-1.0, 0.5)), "falls most without head 1.0, by 2.000 nats [1.500, 2.500]."),
        ((margin(0.1, 0.5), margin(-0.1, 0.5)), "is not shown to move."),
    ],
)
def test_heads_that_move_the_difference_of_two_tokens(margins, says):
    sentences = claimed(*(cell(head, 0.0, each) for head, each in enumerate(margins)))
    assert sentences[0].startswith("No head is shown to be critical for ioi, of")
    assert sentences[2] == f"The difference log p(right) − log p(tempting) {says}"
