"""What a full table can find, and what is critical at other shares, as rows and claims."""

from __future__ import annotations

from made import form, records, valid
from made_stopped import stopped

from lesion.report import wording
from lesion.report.table import Table
from lesion.studies.ablation.analyses import sensitivity
from lesion.studies.ablation.material import Material


def with_sensitivity(critical: dict[str, dict[float, list[int]]], loss: float | None = 0.62, *, family: bool = True):
    """The made study; of `sums`, per model the layers that are critical at each share."""
    summary = form(tasks=("sums",))
    for model in summary["models"]:
        shares = [{"share": share, "critical": layers} for share, layers in critical[model["model"]].items()]
        model["tasks"][0]["sensitivity"] = [
            {"unit": "block", "factor": 0.0, "tests": 4, "right": 9, "fewest_right": 11, "power": 0.8,
             "smallest_loss": loss, "shares": shares}
        ]  # fmt: skip
    members = [{"model": name, "source": name, "variant": name} for name in ("base", "child")]
    verdict = {"word": "cannot tell", "by_task": {}, "between": None}
    made = {"family": "made", "base": "base", "members": members, "notes": [], "tasks": [], "between_tasks": []}
    shared = {"unit": "block", "factor": 0.0, "level": 0.95, "thresholds": {}, "rule": ""}
    if family:
        summary["invariance"] = shared | {"families": [made | {"verdict": verdict}]}
    return valid(summary), *records(tasks=("sums",))


AGREE_AT_HALF = {"base": {0.3: [1, 2], 0.5: [2], 0.8: []}, "child": {0.3: [2, 3], 0.5: [2], 0.8: [2]}}


def test_the_share_at_which_a_family_agrees_is_claimed():
    (claim,) = sensitivity.other_shares(with_sensitivity(AGREE_AT_HALF)[0])
    assert claim.text.replace(wording.SPACE, " ") == (
        "made: sums: all 2 models agree at a required loss of 50 %, not at 30 or 80 %."
    )


def test_a_family_that_agrees_at_every_share_or_at_none_is_not_singled_out():
    same = {"base": {0.3: [2], 0.5: [2]}, "child": {0.3: [2], 0.5: [2]}}
    other = {"base": {0.3: [1], 0.5: [1]}, "child": {0.3: [2], 0.5: [2]}}
    for critical in (same, other):
        assert sensitivity.other_shares(with_sensitivity(critical)[0]) == ()


def test_the_table_has_a_row_per_model_and_task_with_the_blocks_at_every_share():
    part = sensitivity.part(Material(with_sensitivity(AGREE_AT_HALF, family=False)[0]))
    rows = Table.of(part.rows).records
    assert [
        [row[key] for key in ("model", "task", "right", *(f"{share}{wording.SPACE}%" for share in (30, 50, 80)))]
        for row in rows
    ] == [
        ["base", "sums", 9, "1, 2", "2", ""],
        ["child", "sums", 9, "2, 3", "2", "2"],
    ]


def test_a_stopped_study_has_none_of_that():
    assert sensitivity.part(Material(stopped()[0])) is None
