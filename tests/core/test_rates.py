"""Loops are stopped where a study says so: how answers ended beside every accuracy, and what is said of it."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commandline import questions
from lesion.core.rates import approximate, rates
from lesion.engines.endings import LEAST
from lesion.studies.ablation.recall import recall
from lesion.studies.ablation.study import Study
from lesion.studies.drift.study import DriftStudy
from lesion.studies.isolation.study import EvaluationStudy
from lesion.studies.truncation.study import TruncationStudy
from lesion.studies.tuning.study import TuningStudy
from lesion.tasks.task import Finish
from runs import run_ablation as run
from tiny import model

ENDINGS: tuple[Finish, ...] = ("stop", "length", "loop", "nonfinite")
MAKES = {
    "ablate": lambda **decoding: Study.make(models=["a"], tasks=["t"], decoding=decoding),
    "evaluate": lambda **decoding: EvaluationStudy.make(model="a", tasks=["t"], decoding=decoding),
    "truncate": lambda **decoding: TruncationStudy.make(model="a", tasks=["t"], decoding=decoding),
    "drift": lambda **decoding: DriftStudy.make(models=["a"], task="t", **decoding),
    "tune": lambda **decoding: TuningStudy.make(model="a", task="t", **decoding),
}


TEXTS = ("7", "<think>\nhm", "<think>\nhm</think>\n\n7")


@given(st.lists(st.tuples(st.sampled_from(ENDINGS), st.sampled_from([None, "7"]), st.sampled_from(TEXTS)), min_size=1))
def test_rates_are_counted_looped_answers_among_the_truncated_and_unclosed_ones_not_among_the_unparsed(found):
    frame = pd.DataFrame(found, columns=["finish", "parsed", "text"], dtype=object)
    endings, share = [ending for ending, *_ in found], 1 / len(found)
    told = rates(frame)
    assert told["looped"] == pytest.approx(endings.count("loop") * share)
    assert told["truncated"] == pytest.approx((endings.count("length") + endings.count("loop")) * share)
    assert told["nonfinite"] == pytest.approx(endings.count("nonfinite") * share)
    assert told["unclosed"] == pytest.approx(sum(text == TEXTS[1] for *_, text in found) * share)
    unparsed = sum(parsed is None and text != TEXTS[1] for _, parsed, text in found)
    assert told["unparsed"] == pytest.approx(unparsed * share)


def test_what_is_said_names_both_numbers_and_nothing_is_said_without_the_option():
    assert approximate(None) is None
    assert f"7 times in a row, over {LEAST} tokens or more" in approximate(7)


@pytest.mark.parametrize("command", MAKES)
def test_a_study_that_stops_loops_is_another_one_and_one_that_does_not_is_what_it_was(command):
    make = MAKES[command]
    plain = make()
    assert make(stop_loops=0) == make(stop_loops=None) == plain
    assert make(stop_loops=0).identity() == plain.identity()
    assert "stop_loops" not in make(stop_loops=0).to_toml()
    stopping = make(stop_loops=4)
    assert len({plain.identity(), stopping.identity(), make(stop_loops=5).identity()}) == 3
    assert type(plain).parse(stopping.to_toml()) == stopping
    asked = stopping.questions() if command in ("drift", "tune") else stopping
    assert asked.decoding.stop_loops == 4


LIMIT = 56


@pytest.fixture
def sums(tmp_path) -> str:
    return str(questions(tmp_path / "sums.jsonl", 6))


def study(sums: str, **decoding) -> Study:
    settings = {"models": ["tiny:llama"], "items": 6, "batch_size": 5, "dtype": "float32"}
    return Study.make(tasks=[sums], decoding={"max_new_tokens": LIMIT, **decoding}, **settings)


def test_a_run_stores_each_answer_cut_at_its_loop_and_tells_the_share_and_that_it_is_approximate(sums, tmp_path):
    tinies = {"tiny:llama": model("llama")}
    full = run(study(sums), tmp_path / "full", models=tinies)
    cut = run(study(sums, stop_loops=2), tmp_path / "cut", models=tinies)
    assert cut.planned == full.planned == cut.evaluated
    _, _, whole, _ = recall(tmp_path / "full")
    _, summary, short, _ = recall(tmp_path / "cut")
    assert summary == cut.summary
    both = whole.merge(short, on=["edit", "item"], suffixes=("_whole", "_short"))
    assert len(both) == len(whole) == len(short)
    # Never the same key: answers of the two could not be mixed even in one folder.
    assert not set(whole["key"]) & set(short["key"])
    for row in both.itertuples():
        assert row.finish_short == "loop" or row.text_short == row.text_whole
        assert row.text_whole.startswith(row.text_short)
    looped = short["finish"] == "loop"
    assert 0 < looped.mean() < 1
    assert short["tokens"].sum() < whole["tokens"].sum()
    (task,) = summary.models[0].tasks
    for edit, entry in [("baseline", task.baseline), *((cell.edit, cell) for cell in task.cells)]:
        own = short[short["edit"] == edit]["finish"]
        assert entry.looped == (own == "loop").mean()
        assert entry.truncated == own.isin(["loop", "length"]).mean()
    assert summary.study.decoding.stop_loops == 2
    assert summary.approximate
    assert full.summary.approximate is None


def test_a_study_stopped_when_decided_tells_the_share_of_looped_answers_too(sums, tmp_path):
    stopping = Study.make(
        **{**study(sums, stop_loops=2).model_dump(exclude_none=True), "stop": {"when": "decided", "effect": 0.3}}
    )
    outcome = run(stopping, tmp_path / "out", models={"tiny:llama": model("llama")})
    (task,) = outcome.summary.models[0].tasks
    assert task.stopping
    assert any(entry.looped for entry in [task.baseline, *task.cells])
    assert all(cell.baseline is not None for cell in task.cells)
    assert outcome.summary.approximate
