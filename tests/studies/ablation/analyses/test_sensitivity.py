"""What a full table can find, and what is critical at other shares, as rows and claims."""

from made import form, valid
from made_stopped import stopped

from lesion.report import wording
from lesion.report.table import Table
from lesion.studies.ablation.analyses import sensitivity
from lesion.studies.ablation.result import Material

CRITICAL = {"base": {0.3: [1, 2], 0.5: [2], 0.8: []}, "child": {0.3: [2, 3], 0.5: [2], 0.8: [2]}}


def test_the_table_has_a_row_per_model_and_task_with_the_blocks_at_every_share():
    summary = form(tasks=("sums",))
    for model in summary["models"]:
        shares = [{"share": share, "critical": layers} for share, layers in CRITICAL[model["model"]].items()]
        model["tasks"][0]["sensitivity"] = [
            {"unit": "block", "factor": 0.0, "tests": 4, "right": 9, "fewest_right": 11, "power": 0.8,
             "smallest_loss": 0.62, "shares": shares}
        ]  # fmt: skip
    part = sensitivity.part(Material(valid(summary)))
    rows = Table.of(part.rows).records
    assert [
        [row[key] for key in ("model", "task", "right", *(f"{share}{wording.SPACE}%" for share in (30, 50, 80)))]
        for row in rows
    ] == [["base", "sums", 9, "1, 2", "2", "none"], ["child", "sums", 9, "2, 3", "2", "2"]]


def test_a_stopped_study_has_none_of_that():
    assert sensitivity.part(Material(stopped()[0])) is None
