"""From numbers of items to estimates: means, tests, slopes and shares against numpy by hand, on made numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from lesion.edits.edit import ScaleBlock
from lesion.edits.units import ScaleHead
from lesion.report.values import Estimate
from lesion.studies.effects import report
from lesion.studies.effects.measurement import Measured
from lesion.studies.effects.result import ScreenAgreement
from lesion.studies.effects.study import EffectsStudy
from lesion.studies.effects.summary import Sample, summarised

ITEMS, BLOCKS = 24, 5
EDITS = [ScaleBlock(layer) for layer in range(BLOCKS)]
STUDY = EffectsStudy.make(models=["m"], tasks=["primer:arithmetic"], unit=["block"])
# Block 0 is read by others, 1 is repaired by the norm alone, 2 by later blocks, 3 not; nothing follows 4.
DIRECT, FROZEN, TOTAL = (0.5, 2.0, 3.0, 1.0, 4.0), (6.0, 2.0, 1.5, 1.0, 4.0), (5.0, 1.0, 1.2, 1.0, 2.0)


def noise(seed: int) -> np.ndarray:
    return 0.1 * np.random.default_rng(seed).normal(size=(ITEMS, BLOCKS))


def arrays() -> dict[str, np.ndarray]:
    made = {"direct": DIRECT + noise(0), "frozen": FROZEN + noise(1), "total": TOTAL + noise(2), "loss": noise(3) + 0.3}
    made["frozen"][:, -1] = made["direct"][:, -1] + 1e-7
    return made


def items() -> list[Measured]:
    made = arrays()
    return [
        Measured(
            tokens=1 + row % 3,
            lens=[-5.0, -4.0, -3.0, -2.0, -1.0, -0.1 * row],
            log_rank=[math.log(1 + row)] * 6,
            top=[0.0] * 5 + [row % 2],
            logit=10.0,
            embedding=-0.5,
            offset=0.0,
            influence=[0.1 * (block + 1) for block in range(BLOCKS)],
            classes={},
            **{name: {str(block): values[row, block] for block in range(BLOCKS)} for name, values in made.items()},
        )
        for row in range(ITEMS)
    ]


@pytest.fixture(scope="module")
def task():
    return summarised(STUDY, "m", "primer:arithmetic", items(), EDITS, None, reference="mean")


def test_effects_are_means_over_items_and_repair_is_split_in_two(task):
    made = arrays()
    for effect in task.effects:
        own = {name: values[:, effect.layer].mean() for name, values in made.items()}
        assert effect.direct.value == pytest.approx(own["direct"])
        assert effect.repaired.value == pytest.approx(own["direct"] - own["total"])
        assert effect.by_blocks.value + effect.by_norm.value == pytest.approx(effect.repaired.value)
        assert effect.loss.low < own["loss"] < effect.loss.high
    assert task.lens[-1].rank.value == pytest.approx(math.factorial(ITEMS) ** (1 / ITEMS))
    assert (task.items, task.tokens, task.reference) == (ITEMS, sum(1 + row % 3 for row in range(ITEMS)), "mean")


def test_what_repairs_a_place_is_tested_by_student_and_corrected_by_holm(task):
    made = arrays()
    tested = {}
    for block in range(BLOCKS - 1):
        values = made["direct"][:, block] - made["frozen"][:, block]
        t = abs(values.mean()) / (values.std(ddof=1) / math.sqrt(ITEMS))
        tested[block] = 2 * stats.t.sf(t, ITEMS - 1)
    running = 0.0
    for rank, (block, p) in enumerate(sorted(tested.items(), key=lambda pair: pair[1])):
        running = max(running, min(1.0, (len(tested) - rank) * p))
        assert task.effects[block].by_blocks.p == pytest.approx(p)
        assert task.effects[block].by_blocks.p_corrected == pytest.approx(running)
    assert task.effects[-1].by_blocks.p is None  # nothing follows: a test of rounding would say anything


def test_each_planted_kind_of_place_is_told_apart(task):
    assert [effect.layer for effect in task.effects if effect.is_read] == [0]
    assert [effect.layer for effect in task.effects if effect.is_repaired] == [1, 2, 4]
    assert [effect.layer for effect in task.effects if effect.is_repaired_by_blocks] == [2]
    (unit,) = task.units
    made = arrays()
    written, taken = (made[name][:, [1, 2, 4]].sum() for name in ("direct", "total"))
    assert unit.repaired.value == pytest.approx(1 - taken / written)
    assert unit.by_blocks.value == pytest.approx(1 - made["frozen"][:, 2].sum() / made["direct"][:, 2].sum())


def test_a_place_that_one_half_of_the_items_chooses_is_measured_on_the_other():
    made = items()
    for row, item in enumerate(made):
        item.direct["3"], item.frozen["3"], item.total["3"] = 2.0 + 0.01 * (-1) ** (row // 2), 2.0, (2.0, 1.0)[row % 2]
        for block in "0124":  # nothing is repaired there
            item.total[block] = item.direct[block] + 0.5 + 0.1 * (row % 3)
    (unit,) = summarised(STUDY, "m", "t", made, EDITS, None, reference="mean").units
    written = np.mean([item.direct["3"] for item in made[::2]])
    assert unit.repaired.value == pytest.approx(1 - 2.0 / written)  # on all items it would be about a quarter


def test_the_slope_is_that_of_least_squares_and_its_interval_that_of_a_plain_bootstrap(task):
    made = arrays()
    (unit,) = task.units
    slope = np.polyfit(made["direct"].mean(0), made["total"].mean(0), 1)[0]
    assert unit.slope.value == pytest.approx(slope)
    generator, drawn = np.random.default_rng(7), []
    for _ in range(2000):
        rows = generator.integers(ITEMS, size=ITEMS)
        drawn.append(np.polyfit(made["direct"][rows].mean(0), made["total"][rows].mean(0), 1)[0])
    width = np.ptp(np.percentile(drawn, [2.5, 97.5]))
    assert unit.slope.high - unit.slope.low == pytest.approx(width, rel=0.15)
    assert unit.slope.low < slope < unit.slope.high


def test_one_item_and_items_that_are_alike_have_no_interval_and_no_test():
    alone = summarised(STUDY, "m", "t", items()[:1], EDITS, None, reference="tempting")
    assert alone.effects[0].direct.low is None
    assert alone.effects[0].repaired.p is None
    assert not any(effect.is_repaired for effect in alone.effects)
    assert alone.reference == "tempting"
    assert Sample(3, 0.95, 0).mean(np.full(3, 2.0)).low is None


def test_what_writes_and_what_costs_most_is_named_beside_what_others_read(task):
    text = said(report.what_writes_and_what_costs, task)
    assert text.startswith("Block 4 writes most towards the right token, 4.0")
    assert "most is lost without block 0, 5.05 [5.0" in text
    assert "1 of 5 blocks does more through later blocks, which read what is written, than directly" in text
    (claim,) = report.what_writes_and_what_costs([task])
    assert [effect.layer for _, effect in claim.rows] == [0, 4]


def test_repair_is_by_later_blocks_or_not_shown_to_be_or_not_shown(task):
    assert said(report.what_is_repaired, task).startswith("With block 2 switched off, later blocks make up for 51 % [")
    made = items()
    for row, item in enumerate(made):
        item.frozen["2"] = item.direct["2"] + 0.01 * (-1) ** row
    norm = summarised(STUDY, "m", "t", made, EDITS, None, reference="mean")
    assert said(report.what_is_repaired, norm).startswith("Switching off blocks 1, 2 and 4 costs less than was written")
    for row, item in enumerate(made):
        item.total.update({place: value + 1.0 + 0.1 * (row % 3) for place, value in item.direct.items()})
    none = summarised(STUDY, "m", "t", made, EDITS, None, reference="mean")
    assert said(report.what_is_repaired, none) == (
        "No repair is shown: of 5 blocks, none is shown to cost less than it writes."
    )
    (claim,) = report.what_is_repaired([none])
    assert claim.rows == ()


def test_heads_that_write_towards_the_token_and_against_it_are_named_apart():
    made = items()
    for item in made:
        for name in ("direct", "total", "frozen", "loss"):
            values = getattr(item, name)
            values |= {f"{block}.attention.head.0": values[str(block)] * (-1) ** block for block in range(BLOCKS)}
    edits = [ScaleHead(block, 0) for block in range(BLOCKS)]
    study = EffectsStudy.make(models=["m"], tasks=["primer:arithmetic"], unit=["head"])
    task = summarised(study, "m", "t", made, edits, None, reference="mean")
    text = said(report.which_heads_write, task)
    assert text.startswith("Most towards the right token write heads 4.0 (")
    assert "most the other way write heads 1.0 (−2" in text
    assert "and 3.0 (−0.98" in text


def test_the_lens_says_where_half_of_the_tokens_are_reached(task):
    assert (
        "50 % [29, 71] of the gold tokens are the most probable token; half of that is reached after block 4."
        in said(report.when_it_is_readable, task)
    )


@pytest.mark.parametrize(
    ("p", "begin"),
    [
        (0.01, "Over 5 blocks, the loss of log-probability ranks most like the drops of accuracy."),
        (0.2, "No cheap measure is shown to rank 5 blocks as the drops of accuracy do."),
    ],
)
def test_a_screen_foretells_only_where_its_test_says_so(task, p, begin):
    rows = [
        ScreenAgreement(screen=screen, unit="block", places=5, items=9, tied=0, rho=Estimate(value=rho, p=p))
        for screen, rho in (("direct", 0.1), ("loss", 0.9))
    ]
    text = said(report.what_foretells_the_drops, task.model_copy(update={"agreements": tuple(rows)}))
    assert text.startswith(begin)
    assert "loss of log-probability ρ 0.90" in text
    assert report.what_foretells_the_drops([task]) == ()


def said(rule, task) -> str:
    (claim,) = rule([task])
    return claim.text.replace("\N{NO-BREAK SPACE}", " ")
