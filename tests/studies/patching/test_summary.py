"""The numbers of a patching study on readouts made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from lesion.statistics.contrasts import ratio_of_means
from lesion.studies.patching import report
from lesion.studies.patching.passes import Pair, Place, Readout
from lesion.studies.patching.summary import Measured, name_of, summarise

PAIR = Pair("0", (1, 2, 3, 4), (1, 5, 3, 4), 6, 7, ("a", "b"), ("x", "y"))
PLACES = [Place("block", 0), Place("attention", 0)]


def at(task, direction, kind, layer, position, head=None):
    """The cell there."""
    cells = task.of(direction, kind)
    return next((cell for cell in cells if (cell.layer, cell.head, cell.position) == (layer, head, position)), None)


def measured(clean, corrupted, restored):
    def readout(difference):
        return Readout(difference, 0.0, difference / 10)

    patches = {
        name_of("denoise", PLACES[0], "last"): readout(restored),
        name_of("noise", PLACES[0], "last"): readout(clean),
    }
    patches |= {name_of("denoise", PLACES[1], "last"): readout(corrupted)}
    return Measured(PAIR, readout(clean), readout(corrupted), patches)


def summed(rows):
    about = {"model": "m", "task": "t", "blocks": 1, "left_out": ["9"]}
    return summarise([measured(*row) for row in rows], PLACES, 0.95, **about)


def test_effects_are_ratios_of_means_so_that_a_pair_without_a_difference_divides_by_nothing():
    task = summed([(4.0, -2.0, 1.0), (2.0, -2.0, 2.0), (1.0, 1.0, 1.5)])
    cell = at(task, "denoise", "block", 0, "last")
    assert cell.effect.value == pytest.approx((3.0 + 4.0 + 0.5) / (6.0 + 4.0 + 0.0))
    assert cell.effect.p == pytest.approx(stats.ttest_1samp([3.0, 4.0, 0.5], 0).pvalue)
    assert cell.log_probability.value == pytest.approx(0.25)
    assert at(task, "noise", "block", 0, "last").effect.value == 0.0  # the clean run stays as it is
    assert at(task, "denoise", "attention", 0, "last").effect.p == 1.0
    assert cell.effect.p_corrected == pytest.approx(min(1.0, 3 * cell.effect.p))  # three cells, Holm's first step
    assert (task.pairs, task.left_out) == (3, ("9",))
    assert (task.clean_right, task.corrupted_right) == (1.0, pytest.approx(2 / 3))


def test_the_interval_of_a_ratio_covers_it_as_often_as_it_says():
    rng, hits = np.random.default_rng(0), 0
    for _ in range(400):
        wholes = rng.normal(4, 2, 30)
        estimate = ratio_of_means(0.3 * wholes + rng.normal(0, 1, 30), wholes, 0.9)
        hits += estimate.low <= 0.3 <= estimate.high
    assert stats.binomtest(hits, 400, 0.9).pvalue > 0.01
    exact = ratio_of_means(np.array([1.0, -2.0, 3.0]), np.array([1.0, -2.0, 3.0]))
    assert tuple(exact.__dict__.values()) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([(-1.0, -2.0, 0.0), (-1.5, -2.0, 0.0), (1.0, -2.0, 0.0)], "only 33 % of the clean runs prefer the right"),
        ([(1.0, -2.0, 0.0), (1.0, 4.0, 0.0)], "is not shown to change the logit difference"),
    ],
)
def test_a_model_that_does_not_know_the_answers_leaves_it_open(rows, why):
    task = summed(rows)
    assert not task.told
    (claim,) = report.where_it_is_carried([task])
    assert "cannot be told" in claim.text
    assert why in claim.text.replace("\N{NO-BREAK SPACE}", " ")
    assert report.what_writes_it([task]) == ()


def carried(spread, blocks=9):
    """What is claimed where block 3 restores 75 % at the last token, by more or less over the pairs."""
    place = Place("block", 3)
    moves = [3.0 + spread * (-1) ** index for index in range(12)]
    rows = [
        Measured(
            PAIR, Readout(2.0, 0.0, -1.0), Readout(-2.0, 0.0, -2.0),
            {name_of(direction, place, "last"): Readout(-2.0 + move, 0.0, 0.0) for direction in ("denoise", "noise")},
        )
        for move in moves
    ]  # fmt: skip
    task = summarise(rows, [place], 0.95, model="m", task="t", blocks=blocks, left_out=[])
    return [claim.text.replace("\N{NO-BREAK SPACE}", " ") for claim in report.where_it_is_carried([task])]


def test_half_of_the_answer_is_said_to_be_restored_only_where_the_interval_says_so():
    assert carried(0.1)[0].startswith(
        "At least half of the answer is restored at the last token (block 3). Most is restored at the last token after"
        " block 3: 75 % ["
    )
    (unsure,) = carried(3.0)
    assert unsure.startswith("No kind of position is shown to restore half of the answer. Most is restored at ")
    assert "beyond chance" not in unsure
    (none,) = carried(12.0)
    assert none.endswith("which 12 pairs do not show to be beyond chance (p .85, corrected for 2 patches).")
    p = stats.ttest_1samp([3.0 + 12.0 * (-1) ** index for index in range(12)], 0).pvalue
    assert 2 * p == pytest.approx(0.85, abs=0.005)


def test_what_the_last_block_restores_at_the_last_token_by_construction_is_no_finding():
    assert carried(0.1, blocks=4) == []


def test_heads_that_restore_and_heads_that_work_against_the_answer_are_named_where_they_are_beyond_chance():
    heads = [Place("head", 3, head) for head in range(3)]

    def pair(index):
        noise = 0.1 * (-1) ** index
        moved = {0: 2.0 + noise, 1: -1.0 + noise, 2: noise}
        patches = {
            name_of(direction, place, "last"): Readout(sign * (moved[place.head] - 2.0), 0.0, 0.0)
            for direction, sign in (("denoise", 1.0), ("noise", -1.0))
            for place in heads
        }
        return Measured(PAIR, Readout(2.0, 0.0, -1.0), Readout(-2.0, 0.0, -2.0), patches)

    about = {"model": "m", "task": "t", "blocks": 4, "left_out": []}
    task = summarise([pair(index) for index in range(12)], heads, 0.95, **about)
    assert at(task, "denoise", "head", 3, "last", 1).effect.value == pytest.approx(-0.25)
    (claim,) = report.which_heads([task])
    most, against = claim.sentences
    assert "restore a share beyond chance, most 3.0 at the last token (50 %" in most.replace("\N{NO-BREAK SPACE}", " ")
    assert "take a share away beyond chance, most 3.1" in against
    assert "3.2" not in most + against
