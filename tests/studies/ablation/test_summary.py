"""The numbers of a study are what a plain recomputation from its answers gives."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from lesion.edits.edit import BASELINE, SCALES, Scale
from lesion.statistics.critical import rule
from lesion.statistics.paired import paired_drop
from lesion.studies.ablation.cell import Scores
from lesion.studies.ablation.result import AblationSummary, TaskResult
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.summary import summarise

TASKS = {"easy": 40, "hard": 25}
EDITS = [SCALES[unit](layer, factor) for unit in ("block", "mlp") for factor in (0.0, 0.5) for layer in (0, 2, 3)]
STUDY = Study.make(models=["one", "two"], tasks=list(TASKS), level=0.9, seed=3, name="n", title="t")


def answers(seed: int = 0) -> pd.DataFrame:
    """Made-up answers of two models, in an order that has nothing to do with that of the items."""
    rng = np.random.default_rng(seed)
    rows = []
    for model in ("one", "two"):
        for task, count in TASKS.items():
            for edit in [BASELINE, *EDITS]:
                share = 0.8 if edit is BASELINE else (0.05, 0.75, 0.5)[(0, 2, 3).index(edit.layer)]
                for item in range(count):
                    rows.append(
                        {
                            "model_name": model,
                            "task": task,
                            "edit": str(edit),
                            "item": f"i{item}",
                            "correct": bool(rng.random() < share),
                            "finish": str(rng.choice(["stop", "length", "nonfinite"], p=[0.7, 0.2, 0.1])),
                            "text": "",
                            "parsed": None if rng.random() < 0.3 else "42",
                            "scores": (),
                            "ranks": (),
                            "engine": "e",
                        }
                    )
    frame = pd.DataFrame(rows, dtype=object).astype({"correct": bool})  # as the store hands them out
    return frame.sample(frac=1, random_state=seed).reset_index(drop=True)


def items() -> pd.DataFrame:
    return pd.DataFrame(
        [{"task": task, "item": f"i{n}", "gold": "42"} for task, count in TASKS.items() for n in range(count)]
    )


def summary(frame: pd.DataFrame, plan: dict[str, list[Scale]] | None = None) -> AblationSummary:
    return summarise(STUDY, plan or {"one": EDITS, "two": EDITS}, frame, items())


def tasks(result: AblationSummary) -> list[tuple[str, TaskResult]]:
    return [(model.model, task) for model in result.models for task in model.tasks]


def cell(frame: pd.DataFrame, model: str, task: str, edit: object) -> dict[str, dict[str, Any]]:
    """The rows of a cell by item, found with a loop."""
    return {
        row["item"]: row
        for row in frame.to_dict("records")
        if (row["model_name"], row["task"], row["edit"]) == (model, task, str(edit))
    }


def check_accuracy(of: Scores, rows: list[dict[str, Any]]) -> None:
    right = sum(row["correct"] for row in rows)
    interval = binomtest(right, len(rows)).proportion_ci(confidence_level=0.9, method="wilson")
    assert of.accuracy.value == pytest.approx(right / len(rows))
    assert (of.accuracy.low, of.accuracy.high) == pytest.approx((interval.low, interval.high))
    for name, count in {
        "truncated": sum(row["finish"] == "length" for row in rows),
        "nonfinite": sum(row["finish"] == "nonfinite" for row in rows),
        "unparsed": sum(row["parsed"] is None for row in rows),
    }.items():
        assert getattr(of, name) == pytest.approx(count / len(rows)), name


@pytest.mark.parametrize("seed", range(2))
def test_every_number_is_that_of_a_plain_recomputation(seed):
    frame = answers(seed)
    result = tasks(summary(frame))
    assert [(model, task.task) for model, task in result] == [
        ("one", "easy"),
        ("one", "hard"),
        ("two", "easy"),
        ("two", "hard"),
    ]
    for model, task in result:
        baseline = cell(frame, model, task.task, BASELINE)
        names = [f"i{n}" for n in range(TASKS[task.task])]
        assert task.items == task.baseline.items == len(names)
        assert {(entry.items, entry.decided) for entry in task.cells} == {(len(names), None)}
        check_accuracy(task.baseline, [baseline[name] for name in names])
        assert [(e.unit, e.factor, e.layer) for e in task.cells] == [
            (edit.unit, edit.factor, edit.layer) for edit in EDITS
        ]
        for edit, entry in zip(EDITS, task.cells, strict=True):
            edited = cell(frame, model, task.task, edit)
            check_accuracy(entry, [edited[name] for name in names])
            pairs = [(baseline[name]["correct"], edited[name]["correct"]) for name in names]
            lost, won = pairs.count((True, False)), pairs.count((False, True))
            assert entry.drop.value == pytest.approx((lost - won) / len(names))
            assert entry.drop.p == pytest.approx(binomtest(lost, lost + won).pvalue if lost + won else 1.0)
            interval = paired_drop(np.array([a for a, _ in pairs]), np.array([b for _, b in pairs]), 0.9)
            assert (entry.drop.low, entry.drop.high) == pytest.approx((interval.low, interval.high))


def test_p_is_corrected_over_the_layers_of_one_model_task_unit_and_factor():
    for _, task in tasks(summary(answers())):
        for unit in ("block", "mlp"):
            for factor in (0.0, 0.5):
                family = task.of(unit, factor)
                assert len(family) == 3
                least = 0.0
                for rank, entry in enumerate(sorted(family, key=lambda e: e.drop.p)):  # Holm's steps, by hand
                    least = max(least, min(1.0, (3 - rank) * entry.drop.p))
                    assert entry.drop.p_corrected == pytest.approx(least)
                least = 0.0
                for rank, entry in enumerate(sorted(family, key=lambda e: e.p_critical)):
                    least = max(least, min(1.0, (3 - rank) * entry.p_critical))
                    assert entry.p_critical_corrected == pytest.approx(least)


def test_critical_is_what_the_rule_in_the_summary_says():
    assert "at most 0.05" in rule()
    assert "more than 50 %" in rule()
    result = summary(answers())
    flags = set()
    for _, task in tasks(result):
        for entry in task.cells:
            expected = entry.p_critical_corrected <= 0.05
            assert entry.critical is expected
            flags.add((entry.layer, expected))
    assert {(0, True), (2, False)} <= flags


def test_a_loss_of_answers_that_state_the_gold_answer_and_are_cut_off_is_not_shown_to_be_critical():
    frame = answers()
    frame.loc[frame["edit"] == "baseline", "finish"] = "stop"
    lost = (frame["edit"] == "0×0") & ~frame["correct"]
    before = [task.of("block", 0.0)[0] for _, task in tasks(summary(frame))]
    frame.loc[lost, ["finish", "text"]] = "length", "So it is 42, since 41 + 1 = 42, or 43 or"
    after = [task.of("block", 0.0)[0] for _, task in tasks(summary(frame))]
    for entry, cut in zip(before, after, strict=True):
        assert (entry.critical, entry.stated) == (True, None)
        assert (cut.critical, cut.stated) == (False, cut.lost)
        assert cut.p_critical == 1.0  # the hypothesis of no loss at all
        assert cut.drop == entry.drop  # accuracy is what it was
    uncut = frame.assign(finish=frame["finish"].where(frame["edit"] != "baseline", "length"))
    assert [task.of("block", 0.0)[0].stated for _, task in tasks(summary(uncut))] == [None] * len(before)
    frame.loc[lost, "text"] = "So it is 142, or 43 or"  # the gold answer is a part of a word
    again = [task.of("block", 0.0)[0] for _, task in tasks(summary(frame))]
    assert [(cell.critical, cell.stated) for cell in again] == [(True, None)] * len(before)


def test_an_edit_that_misses_one_answer_is_left_out_and_still_counts_in_the_correction():
    frame = answers()
    hole = (frame["model_name"] == "one") & (frame["task"] == "easy") & (frame["edit"] == "0×0")
    without = frame.drop(frame[hole].index[:1])
    (_, task), *others = tasks(summary(without))
    assert [(e.unit, e.factor, e.layer) for e in task.cells] == [
        (edit.unit, edit.factor, edit.layer) for edit in EDITS if str(edit) != "0×0"
    ]
    assert task.planned == (0, 2, 3)
    family = [e.drop for e in task.of("block", 0.0)]
    assert min(e.p_corrected for e in family) == pytest.approx(min(1.0, 3 * min(e.p for e in family)))
    assert others == tasks(summary(frame))[1:]


def test_a_task_whose_baseline_is_not_complete_is_left_out_and_named():
    frame = answers()
    hole = (frame["model_name"] == "two") & (frame["task"] == "hard") & (frame["edit"] == "baseline")
    result = summary(frame.drop(frame[hole].index[3]))
    assert [(model, task.task) for model, task in tasks(result)][-1] == ("two", "easy")
    assert "two has not answered all items of hard without an edit yet." in result.notes


def test_answers_outside_the_plan_count_for_nothing():
    frame = answers()
    stray = frame[frame["edit"] == "0×0"].assign(edit="9×0")
    other = frame.assign(model_name="three")
    assert summary(pd.concat([frame, stray, other])) == summary(frame)


def test_answers_that_were_broken_off_are_noted_once_per_edit_with_their_number():
    frame = answers()
    frame["finish"] = "stop"
    broken = (frame["model_name"] == "one") & (frame["task"] == "easy") & (frame["edit"] == "2.mlp×0.5")
    frame.loc[frame[broken].index[:4], "finish"] = "nonfinite"
    (note,) = summary(frame).notes
    assert note.startswith("one, easy, edit 2.mlp×0.5: 4 answers broken off")
