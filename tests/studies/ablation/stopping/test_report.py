"""A stopped table says so: in its claims, in files and on the page, and claims nothing that only a full table shows."""

from pathlib import Path

import numpy as np
import pytest
from made import study, valid
from made_stopped import ASKED, DRAWN, stopped, stopped_form

from lesion.report import wording
from lesion.studies.ablation import claims
from lesion.studies.ablation.analyses import groups, unfinished
from lesion.studies.ablation.report import AblationResult
from lesion.studies.ablation.result import Material
from written import write_layers


def plain(text: str) -> str:
    return " ".join(text.replace(wording.SPACE, " ").split())


def told(summary) -> str:
    material = Material(summary)
    return plain(" ".join(claim.text for claim in (*claims.which_blocks(material), *claims.what_was_decided(material))))


def test_what_was_decided_after_how_many_answers_is_claimed_and_of_a_full_table_nothing():
    text = told(stopped()[0])
    assert "exceeds the effect for sums" in text
    assert "critical for" not in text
    assert "Only a full table shows which places are critical" in text
    assert "answers were evaluated" in text
    assert "full table" not in told(study()[0])


def test_the_first_screen_says_what_exceeds_and_the_page_how_to_get_the_full_table(tmp_path):
    html = plain(write_layers(tmp_path, *stopped()).read_text("utf-8"))
    assert "exceeds the effect" in html[html.index('id="verdict"') :][:2000]
    assert "run the same command without stopping" in html


def test_the_csv_has_the_items_and_the_decision_of_every_cell_and_no_p():
    table = AblationResult(Path("nowhere"), stopped()[0]).table_full
    for row in table.to_dict("records"):
        assert row["items"] == ASKED[row["layer"]]
        assert row["baseline_items"] == row["items"]
        assert row["baseline_accuracy"] - row["accuracy"] == pytest.approx(row["drop"], abs=1e-12)
        assert row["baseline_low"] <= row["baseline_accuracy"] <= row["baseline_high"]
        assert np.isnan(row["p_corrected"]) if row["p_corrected"] is not None else True
    decided = {(row["task"], row["layer"]): row["decided"] for row in table.to_dict("records")}
    assert decided["sums", 2] == "exceeds"
    assert table["critical"].isna().all(), "only a full table says what is critical"
    assert [decided["facts", layer] for layer in (0, 1)] == ["open", "not"]
    assert dict(zip(table["layer"], table["baseline_accuracy"], strict=True)) == {0: 0.9, 1: 1.0, 2: 1.0, 3: 1.0}
    full = AblationResult(Path("nowhere"), study()[0]).table_full
    assert full["decided"].isna().all()
    assert set(full["items"]) == set(full["baseline_items"]) == {10}


def test_a_block_left_open_on_a_task_is_not_said_to_be_spared_by_it():
    def answer(decided: str) -> str:
        form = stopped_form()
        form["models"][0]["tasks"][1]["cells"][2]["decided"] = decided
        return told(valid(form))

    assert answer("not").startswith("Block 2 exceeds the effect for sums and spares facts.")
    assert "spares facts" not in answer("open")


def test_a_stopped_cell_is_not_a_missing_one_but_a_study_that_goes_on_is_not_finished():
    assert unfinished.missing(Material(*stopped())) == []
    assert unfinished.missing(Material(*stopped(finished=False))) == [
        f"base on {task}: not decided after 10 of {DRAWN} items." for task in ("sums", "facts")
    ]


def test_groups_of_items_are_told_of_full_tables_only():
    assert groups.shares(Material(*stopped())) == []
