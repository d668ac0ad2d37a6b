"""Dissociations: both tests have to pass at a place, and in both directions for a double one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lesion.edits.edit import SCALES
from lesion.report import wording
from lesion.report.table import Table
from lesion.statistics.critical import Pairs, p_critical
from lesion.statistics.paired import holm
from lesion.statistics.spared import p_spared
from lesion.studies.ablation.analyses import dissociation
from lesion.studies.ablation.material import Material
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.summary import summarise

ITEMS = 100
EDITS = [SCALES["block"](layer, 0.0) for layer in range(4)]


def summary(edits=EDITS, **right: list[int]):
    """A summary in which a task has so many items right: unedited, then without each block, the first ones."""
    rows = [
        {
            "model_name": "m", "task": task, "edit": edit, "item": f"i{item}", "correct": item < counts[place],
            "finish": "stop", "parsed": "1", "scores": (), "text": "1", "tokens": 1, "engine": "e",
        }
        for task, counts in right.items()
        for place, edit in enumerate(["baseline", *map(str, edits)])
        for item in range(ITEMS)
    ]  # fmt: skip
    items = pd.DataFrame([{"task": task, "item": f"i{item}"} for task in right for item in range(ITEMS)])
    study = Study.make(models=["m"], tasks=list(right), items=ITEMS)
    return summarise(study, {"m": edits}, pd.DataFrame(rows), items)


def told(summary) -> list[str]:
    claims = dissociation.come_apart(dissociation.dissociations(summary.views))
    return [sentence.replace(wording.SPACE, " ") for claim in claims for sentence in claim.sentences]


def test_the_cells_say_what_is_spared_by_its_own_test_corrected_over_the_blocks():
    (task,) = summary(sums=[80, 0, 78, 62, 80]).models[0].tasks
    counts = [Pairs(80, 0, 0), Pairs(2, 78, 0), Pairs(18, 62, 0), Pairs(0, 80, 0)]
    p = [p_spared(each) for each in counts]
    assert [cell.p_spared for cell in task.cells] == pytest.approx(p)
    assert [cell.p_spared_corrected for cell in task.cells] == pytest.approx(holm(p))
    assert [cell.spared for cell in task.cells] == [False, True, False, True]
    assert [cell.critical for cell in task.cells] == [
        bool(value <= 0.05) for value in holm([p_critical(each) for each in counts])
    ]


def test_a_double_dissociation_has_a_place_in_both_directions():
    found = summary(sums=[80, 0, 79, 78, 5], words=[70, 70, 3, 69, 0])
    (pair,) = dissociation.dissociations(found.views)
    assert (pair.first_alone, pair.second_alone, pair.double) == ("0", "1", True)
    assert told(found) == [
        "sums and words come apart in both directions.",
        "Block 0 is critical for sums and spares words.",
        "Block 1 is critical for words and spares sums.",
    ]


def test_of_several_factors_each_is_named():
    edits = [SCALES["block"](layer, factor) for factor in (0.0, 0.5) for layer in range(2)]
    found = summary(edits, sums=[80, 79, 78, 0, 80], words=[70, 70, 70, 70, 1])
    (pair,) = dissociation.dissociations(found.views)
    assert (pair.model, pair.factor) == ("m", 0.5)
    assert told(found)[1] == "Block 0 scaled by 0.5 is critical for sums and spares words."


def test_a_place_in_one_direction_stands_in_the_table_and_is_no_claim():
    found = summary(sums=[80, 0, 79, 78, 0], words=[70, 70, 68, 69, 69])
    assert told(found) == []
    table = Table.of(dissociation.part(Material(found)).rows)
    assert list(table.frame["first_alone"].str.replace(" ", "")) == ["0,3"]
    assert list(table.frame["second_alone"]) == [""]


def test_no_evidence_of_a_loss_is_no_evidence_that_a_task_is_spared():
    """18 of 70 lost is not critical, and with few items right nothing is spared at all."""
    (pair,) = dissociation.dissociations(summary(sums=[80, 0, 79, 78, 80], words=[70, 52, 2, 69, 69]).views)
    assert (pair.first, pair.second, pair.first_alone, pair.second_alone) == ("sums", "words", "", "1")
    few = summary(sums=[80, 0, 79, 78, 80], words=[8, 8, 8, 8, 8])
    assert dissociation.part(Material(few)) is None


def test_of_many_pairs_the_first_are_claimed():
    numbers = {f"t{place}": [80, *np.where(np.arange(4) == place, 0, 80).tolist()] for place in range(4)}
    assert len(told(summary(**numbers))) == 3 * dissociation.MOST
