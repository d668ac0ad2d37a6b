"""Dissociations: both tests have to pass at a place, and in both directions for a double one."""

import numpy as np
import pytest
from made_counts import counted, sentences

from lesion.edits.edit import SCALES
from lesion.report.table import Table
from lesion.statistics.critical import Pairs, p_critical
from lesion.statistics.paired import holm
from lesion.statistics.spared import p_spared
from lesion.studies.ablation.analyses import dissociation

EDITS = [SCALES["block"](layer, 0.0) for layer in range(4)]


def pairs(edits=EDITS, **right: list[int]) -> list[dissociation.Dissociation]:
    return dissociation.dissociations(counted(edits, right).curves)


def claimed(found: list[dissociation.Dissociation]) -> list[str]:
    return sentences(dissociation.come_apart(found))


def test_the_cells_say_what_is_spared_by_its_own_test_corrected_over_the_blocks():
    (task,) = counted(EDITS, {"sums": [80, 0, 78, 62, 80]}).summary.models[0].tasks
    counts = [Pairs(80, 0, 0), Pairs(2, 78, 0), Pairs(18, 62, 0), Pairs(0, 80, 0)]
    p = [p_spared(each) for each in counts]
    assert [cell.p_spared for cell in task.cells] == pytest.approx(p)
    assert [cell.p_spared_corrected for cell in task.cells] == pytest.approx(holm(p))
    assert [cell.spared for cell in task.cells] == [False, True, False, True]
    assert [cell.critical for cell in task.cells] == [
        bool(value <= 0.05) for value in holm([p_critical(each) for each in counts])
    ]


def test_a_double_dissociation_has_a_place_in_both_directions():
    (pair,) = found = pairs(sums=[80, 0, 79, 78, 5], words=[70, 70, 3, 69, 0])
    assert (pair.first_alone, pair.second_alone, pair.double) == ("0", "1", True)
    assert claimed(found) == [
        "sums and words come apart in both directions.",
        "Block 0 is critical for sums and spares words.",
        "Block 1 is critical for words and spares sums.",
    ]


def test_of_several_factors_each_is_named():
    edits = [SCALES["block"](layer, factor) for factor in (0.0, 0.5) for layer in range(2)]
    (pair,) = found = pairs(edits, sums=[80, 79, 78, 0, 80], words=[70, 70, 70, 70, 1])
    assert (pair.model, pair.factor) == ("m", 0.5)
    assert claimed(found)[1] == "Block 0 scaled by 0.5 is critical for sums and spares words."


def test_a_place_in_one_direction_stands_in_the_table_and_is_no_claim():
    material = counted(EDITS, {"sums": [80, 0, 79, 78, 0], "words": [70, 70, 68, 69, 69]})
    part = dissociation.part(material)
    assert part.claims == ()
    frame = Table.of(part.rows).frame
    assert list(frame["first_alone"].str.replace(" ", "")) == ["0,3"]
    assert list(frame["second_alone"]) == [""]


def test_no_evidence_of_a_loss_is_no_evidence_that_a_task_is_spared():
    """18 of 70 lost is not critical, and with few items right nothing is spared at all."""
    (pair,) = pairs(sums=[80, 0, 79, 78, 80], words=[70, 52, 2, 69, 69])
    assert (pair.first, pair.second, pair.first_alone, pair.second_alone) == ("sums", "words", "", "1")
    assert pairs(sums=[80, 0, 79, 78, 80], words=[8, 8, 8, 8, 8]) == []


def test_of_many_pairs_the_first_are_claimed():
    numbers = {f"t{place}": [80, *np.where(np.arange(4) == place, 0, 80).tolist()] for place in range(4)}
    assert len(claimed(pairs(**numbers))) == 3 * dissociation.MOST
