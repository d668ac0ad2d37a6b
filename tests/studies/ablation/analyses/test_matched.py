"""Matched in difficulty: a dissociation is looked at again on items that are equally hard for the unedited model."""

import math

import numpy as np
import pandas as pd
import pytest

from lesion.edits.edit import ScaleBlock
from lesion.report import wording
from lesion.report.table import Table
from lesion.statistics.critical import Pairs, p_critical
from lesion.statistics.paired import holm, paired_drop
from lesion.statistics.spared import p_spared
from lesion.studies.ablation.analyses import matched
from lesion.studies.ablation.result import Material
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.summary import summarise

EDITS = [ScaleBlock(layer) for layer in range(3)]
ITEMS = 60


def study_of(sums: dict, words: dict, *, contrast: bool = False):
    """Two tasks: of each the log-odds of its items' right answers, and under each edit which items are wrong."""
    rows = []
    for task, of in {"sums": sums, "words": words}.items():
        about = {"model_name": "m", "finish": "stop", "parsed": "1", "text": "1", "tokens": 1, "engine": "e"}
        logs = [-math.log1p(math.exp(-odds)) for odds in of["odds"]]
        for edit, wrong in [("baseline", of.get("wrong", set())), *zip(map(str, EDITS), of["lost"], strict=True)]:
            for item, log in enumerate(logs):
                scores, ranks = ((log, -9.0), (1, 2)) if contrast else ((), ())
                answer = {"task": task, "edit": edit, "item": f"i{item}", "correct": item not in wrong}
                rows.append(about | answer | {"scores": scores, "ranks": ranks})
                if edit == "baseline" and not contrast:
                    rows.append(about | answer | {"task": f"gold:{task}", "scores": (log,), "ranks": ()})
    answers = pd.DataFrame(rows)
    items = pd.DataFrame(
        [{"task": task, "item": f"i{item}", "gold": "1"} for task in ("sums", "words") for item in range(ITEMS)]
    )
    study = Study.make(models=["m"], tasks=["sums", "words"], items=ITEMS)
    return summarise(study, {"m": EDITS}, answers, items.assign(gold="1")), answers


def compared(summary, answers) -> list:
    return matched.compared(summary.curves, answers, 0.95)


# Words are far easier but for their first twenty items, which are as hard as sums; block 1 breaks exactly these.
HARD = set(range(20))
SUMS = {"odds": [1.0] * ITEMS, "lost": [set(range(ITEMS)), set(range(ITEMS)), set()]}
WORDS = {"odds": [1.1] * 20 + [9.0] * 40, "lost": [set(), HARD, set()]}


@pytest.mark.parametrize("contrast", [False, True])
def test_a_block_that_breaks_the_hard_items_of_both_tasks_does_not_stand(contrast):
    ((tasks, places),) = compared(*study_of(SUMS, WORDS, contrast=contrast))
    assert (tasks.skill, tasks.other, tasks.pairs) == ("sums", "words", 20)
    assert (tasks.nats, tasks.other_nats) == pytest.approx((1.0, 1.1))
    assert [(place.layer, place.stands) for place in places] == [(0, True), (1, False)]
    assert [place.lost.value for place in places] == [1.0, 1.0]
    assert [place.other_lost.value for place in places] == [0.0, 1.0]


def test_both_tests_are_the_exact_ones_on_the_pairs_corrected_over_the_blocks_compared():
    sums = {"odds": [1.0] * ITEMS, "lost": [set(range(44)), set(range(58)), set()]}
    words = {"odds": [1.0] * ITEMS, "lost": [set(range(3)), set(range(9)), set()]}
    ((tasks, places),) = compared(*study_of(sums, words))
    assert tasks.pairs == ITEMS
    harmed = holm([p_critical(Pairs(44, 16, 0)), p_critical(Pairs(58, 2, 0))])
    kept = holm([p_spared(Pairs(3, 57, 0)), p_spared(Pairs(9, 51, 0))])
    assert [place.stands for place in places] == [a <= 0.05 and b <= 0.05 for a, b in zip(harmed, kept, strict=True)]
    right = np.ones(ITEMS, dtype=bool)
    drop = paired_drop(right, np.arange(ITEMS) >= 44, 0.95)
    assert (places[0].lost.low, places[0].lost.high) == pytest.approx((drop.low, drop.high))
    assert places[0].difference.value == pytest.approx(44 / 60 - 3 / 60)


def test_items_that_are_wrong_without_an_edit_take_no_part():
    """Of the sums only twenty are right, all as hard as some word; of the words all."""
    ((tasks, _),) = compared(*study_of(SUMS | {"wrong": set(range(40))}, {**WORDS, "odds": [1.0] * ITEMS}))
    assert tasks.pairs == 20


def test_where_no_items_are_equally_hard_nothing_is_tested_and_that_is_said():
    ((tasks, places),) = every = compared(*study_of(SUMS, WORDS | {"odds": [9.0] * ITEMS}))
    assert (tasks.pairs, places) == (0, [])
    (claim,) = matched.at_equal_difficulty(every)
    assert claim.text == "sums and words: no comparison, since only 0 pairs of items are alike."


def test_the_sentence_says_for_which_blocks_it_stands_with_an_interval():
    part = matched.part(Material(*study_of(SUMS, WORDS)))
    (claim,) = part.claims
    first, second = (sentence.replace(wording.SPACE, " ") for sentence in claim.sentences)
    assert first == "At equal difficulty (20 pairs of items) block 0 is critical for sums and spares words."
    assert second.startswith("Block 0 takes 100.0 points of sums and 0.0 points of words, difference 100.0 points [")
    table = Table.of(part.rows)
    assert table.frame[["layer", "stands"]].to_numpy().tolist() == [[0, True], [1, False]]


def test_where_the_tests_do_not_pass_no_more_is_said_than_that():
    few = [place.model_copy(update={"spared": False}) for place in compared(*study_of(SUMS, WORDS))[0][1]]
    ((tasks, _),) = compared(*study_of(SUMS, WORDS))
    (claim,) = matched.at_equal_difficulty([(tasks, few)])
    assert claim.sentences[0].replace(wording.SPACE, " ") == (
        "At equal difficulty (20 pairs of items) it is not shown that blocks 0 and 1 are critical for sums and spare"
        " words."
    )


def test_without_probabilities_or_without_blocks_apart_there_is_no_part():
    summary, answers = study_of(SUMS, WORDS)
    assert compared(summary, answers[~answers["task"].str.startswith("gold:")]) == []
    assert matched.part(Material(summary)) is None
    both = {"odds": [1.0] * ITEMS, "lost": SUMS["lost"]}
    assert compared(*study_of(SUMS, both)) == []
