"""The screen: gold solutions scored under every edit, kept as `gold:TASK`, and told beside what was generated."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from oracle import Listener, Oracle
from scipy.stats import spearmanr

from commandline import write
from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.errors import LesionError, UsageError
from lesion.report.values import Estimate
from lesion.studies.ablation import screening
from lesion.studies.ablation.recall import recall
from lesion.studies.ablation.result import Amount, Screen, TaskResult
from lesion.studies.ablation.study import Study
from runs import run_ablation as run
from tiny import model, tokenizer

ITEMS = 12
EDITS = ["baseline", "0×0", "1×0", "2×0"]


@pytest.fixture
def sums(tmp_path) -> Path:
    rows = ({"id": f"i{n}", "prompt": f"{n} + 1 =", "answer": f"{n + 1} eggs"} for n in range(ITEMS))
    return write(tmp_path / "sums.jsonl", rows)


@pytest.fixture
def animals(tmp_path) -> Path:
    rows = ({"id": f"{n}", "prompt": f"{n} is a", "answer": "dog", "choices": ["dog", "cat"]} for n in range(6))
    return write(tmp_path / "choose.jsonl", rows)


@pytest.fixture(scope="module")
def tinies() -> dict:
    return {"tiny:llama": model("llama")}


def study(*tasks: Path, **values) -> Study:
    settings = {"models": ["tiny:llama"], "items": "all", "decoding": {"max_new_tokens": 4}, "screen": True, **values}
    return Study.make(tasks=[str(task) for task in tasks], **settings)


def test_solutions_are_scored_as_a_plain_forward_pass_scores_them_and_the_loss_is_per_token(sums, tinies, tmp_path):
    outcome = run(study(sums), tmp_path / "out", models=tinies)
    _, _, answers, _ = recall(tmp_path / "out")
    golds = answers[answers["task"] == f"gold:{sums}"]
    assert len(golds) == 4 * ITEMS
    assert outcome.evaluated == outcome.planned == 2 * 4 * ITEMS
    llama, spell = tinies["tiny:llama"], tokenizer()
    naive: dict[str, dict[str, float]] = {edit: {} for edit in EDITS}
    tokens = 0
    for layer, edit in enumerate(EDITS, start=-1):
        for row in golds[golds["edit"] == edit].to_dict("records"):
            head = spell(row["question"]).input_ids
            tail = spell(f" {row['gold']}", add_special_tokens=False).input_ids
            with applied(llama, BASELINE if layer < 0 else ScaleBlock(layer)):
                logits = llama.network(_ids([head + tail])).logits[0].double().log_softmax(-1)
            score = sum(float(logits[len(head) - 1 + at, token]) for at, token in enumerate(tail))
            assert row["scores"] == pytest.approx((score,), abs=1e-4)
            assert row["tokens"] == len(tail)
            naive[edit][row["item"]] = score
            tokens += len(tail)
    (task,) = outcome.summary.models[0].tasks
    scores = task.screen
    assert (scores.items, scores.scored) == (ITEMS, Amount(answers=4 * ITEMS, tokens=tokens))
    losses = [sum(naive["baseline"].values()) - sum(naive[edit].values()) for edit in EDITS[1:]]
    pairs = [(loss.lost.value, loss.lost_per_answer) for loss in scores.losses]
    for (per_token, per_answer), naive_loss in zip(pairs, losses, strict=True):
        assert per_token == pytest.approx(4 * naive_loss / tokens, abs=1e-5)
        assert per_answer == pytest.approx(naive_loss / ITEMS, abs=1e-4)
    order = np.argsort([-naive_loss for naive_loss in losses])
    assert [scores.losses[place].rank for place in order] == [1, 2, 3]
    assert scores.baseline == pytest.approx(4 * sum(naive["baseline"].values()) / tokens, abs=1e-5)
    generated = answers[answers["task"] == str(sums)]
    assert scores.generated == Amount(answers=4 * ITEMS, tokens=int(generated["tokens"].sum()))


def _ids(rows):
    import torch

    return torch.tensor(rows)


def test_a_screen_is_asked_behind_the_baseline_and_before_any_edit_is_generated_under_and_only_once(
    sums, tinies, tmp_path
):
    oracle, listener = Oracle(), Listener()
    run(study(sums), tmp_path / "out", watcher=listener, models=tinies, make_engine=oracle)
    assert [bool(request.choices) for request in oracle.asked] == [
        *[False] * ITEMS, *[True] * 4 * ITEMS, *[False] * 3 * ITEMS
    ]  # fmt: skip
    assert listener.count == 8 * ITEMS
    again = Oracle()
    second = run(study(sums), tmp_path / "out", models=tinies, make_engine=again)
    assert (again.asked, second.evaluated, second.planned) == ([], 0, 8 * ITEMS)


def test_a_study_run_without_a_screen_may_have_one_later_and_is_the_same_study(sums, tinies, tmp_path):
    plain = run(study(sums, screen=None), tmp_path / "out", models=tinies, make_engine=Oracle())
    later = run(study(sums), tmp_path / "out", models=tinies, make_engine=Oracle())
    assert later.evaluated == 4 * ITEMS
    first = run(study(sums), tmp_path / "first", models=tinies, make_engine=Oracle())
    assert later.summary == first.summary
    # And one that was screened is told without it as if it never had been.
    assert (
        run(study(sums, screen=None), tmp_path / "first", models=tinies, make_engine=Oracle()).summary == plain.summary
    )
    assert len(recall(tmp_path / "first")[3]) == ITEMS


def test_the_first_items_of_the_draw_are_screened_and_no_more_than_the_cap(sums, tinies, tmp_path, monkeypatch):
    for place in ("screening", "run"):
        monkeypatch.setattr(f"lesion.studies.ablation.{place}.ITEMS", 5)
    outcome = run(study(sums), tmp_path / "out", models=tinies, make_engine=Oracle())
    assert outcome.summary.models[0].tasks[0].screen.items == 5
    _, _, answers, items = recall(tmp_path / "out")
    scored = answers[(answers["task"] == f"gold:{sums}") & (answers["edit"] == "baseline")]
    assert list(scored["item"]) == list(items["item"])[:5]


def test_a_task_whose_answers_are_scored_anyway_has_no_screen_and_that_is_said(sums, animals, tinies, tmp_path):
    listener = Listener()
    summary = run(study(sums, animals), tmp_path / "out", watcher=listener, models=tinies).summary
    of_sums, of_animals = summary.models[0].tasks
    assert of_sums.screen is not None
    assert of_animals.screen is None
    sentence = screening.no_screen(str(animals))
    assert sentence in listener.notes
    assert summary.notes.count(sentence) == 1


def test_a_screen_that_the_study_asks_as_a_task_is_refused(sums, tinies, tmp_path):
    asked = Study.make(models=["tiny:llama"], tasks=[str(sums), f"gold:{sums}"], items="all", screen=True)
    with pytest.raises(UsageError, match="leave out one or the other"):
        run(asked, tmp_path / "out", models=tinies, make_engine=Oracle())
    assert not (tmp_path / "out").exists()


def test_a_killed_screen_goes_on_and_ends_the_same(sums, tinies, tmp_path):
    whole = run(study(sums), tmp_path / "whole", models=tinies, make_engine=Oracle())
    for lives in (3, 4 * ITEMS + 5):
        with pytest.raises(LesionError, match="power"):
            run(study(sums), tmp_path / "out", models=tinies, make_engine=Oracle(lives, LesionError("no power")))
    rest = run(study(sums), tmp_path / "out", models=tinies, make_engine=Oracle())
    assert rest.summary == whole.summary


def test_with_stopping_the_screen_changes_no_decision(sums, tinies, tmp_path):
    stop = {"effect": 0.1, "level": 0.05}
    plain = run(study(sums, screen=None, stop=stop), tmp_path / "plain", models=tinies, make_engine=Oracle()).summary
    both = run(study(sums, stop=stop), tmp_path / "both", models=tinies, make_engine=Oracle()).summary
    (a,), (b,) = (summary.models[0].tasks for summary in (plain, both))
    assert b.screen is not None
    assert a == b.model_copy(update={"screen": None})


# The numbers alone, on made-up answers.

IDS = [f"i{n}" for n in range(40)]
BLOCKS = [ScaleBlock(layer) for layer in range(5)]


def result(drops: list[float], counts: list[int] | None = None) -> TaskResult:
    """What a task lost under each layer, on so many items each (40)."""
    rates = {"accuracy": {"value": 0.5}, "truncated": 0, "looped": 0, "unparsed": 0, "nonfinite": 0}
    cells = [
        {"layer": layer, "unit": "block", "factor": 0.0, "items": n, **rates, "drop": {"value": drop}}
        for layer, (drop, n) in enumerate(zip(drops, counts or [40] * 5, strict=True))
    ]
    return TaskResult.model_validate({"task": "t", "items": 40, "baseline": {"items": 40, **rates}, "cells": cells})


def made(seed: int = 0, broken: int | None = None) -> tuple[pd.DataFrame, TaskResult]:
    rng = np.random.default_rng(seed)
    rows, shares = [], {"baseline": 0.9, **{f"{layer}×0": 0.9 - 0.2 * layer for layer in range(5)}}
    for place, item in enumerate(IDS):
        for number, (edit, share) in enumerate(shares.items()):
            length = 3 + place % 4
            score = math.nan if number == broken else -length * (0.2 + 0.3 * number + 0.4 * rng.random())
            rows.append(("t", edit, item, bool(rng.random() < share), 7, ()))
            rows.append(("gold:t", edit, item, True, length, (score,)))
    frame = pd.DataFrame(rows, columns=["task", "edit", "item", "correct", "tokens", "scores"])
    right = {edit: frame[(frame["task"] == "t") & (frame["edit"] == edit)]["correct"].mean() for edit in shares}
    drops = [float(right["baseline"] - right[f"{layer}×0"]) for layer in range(5)]
    return frame.sample(frac=1, random_state=seed), result(drops)


def table(frame: pd.DataFrame, task: str, column: str) -> pd.DataFrame:
    of_task = frame[frame["task"] == task]
    values = of_task[column].map(lambda value: value[0] if isinstance(value, tuple) else value).astype(float)
    return of_task.assign(value=values).pivot(index="item", columns="edit", values="value").loc[IDS]


def test_the_rank_correlation_is_spearmans_and_its_interval_that_of_a_plain_bootstrap():
    frame, entry = made()
    scores = screening.screened(frame, IDS, entry, BLOCKS, level=0.9, seed=1)
    golds, tokens, right = (
        table(frame, *what) for what in (("gold:t", "scores"), ("gold:t", "tokens"), ("t", "correct"))
    )
    edits = [f"{layer}×0" for layer in range(5)]

    def both(places) -> tuple[np.ndarray, np.ndarray]:
        drawn, count, ok = golds.iloc[places], tokens["baseline"].iloc[places], right.iloc[places]
        lost = np.array([(drawn["baseline"] - drawn[edit]).sum() / count.sum() for edit in edits])
        return lost, np.array([(ok["baseline"] - ok[edit]).mean() for edit in edits])

    lost, drops = both(np.arange(40))
    (agreement,) = scores.agreement
    assert agreement.rho.value == pytest.approx(spearmanr(lost, drops).statistic)
    assert [loss.lost.value for loss in scores.losses] == pytest.approx(lost)
    rng = np.random.default_rng(5)
    draws = [both(rng.integers(0, 40, 40)) for _ in range(400)]
    rhos = [spearmanr(*draw).statistic for draw in draws]
    assert (agreement.rho.low, agreement.rho.high) == pytest.approx(tuple(np.percentile(rhos, [5, 95])), abs=0.11)
    for place, loss in enumerate(scores.losses):
        low, high = np.percentile([draw[0][place] for draw in draws], [5, 95])
        assert (loss.lost.low, loss.lost.high) == pytest.approx((low, high), abs=0.2 * (high - low))


def test_an_edit_without_a_number_ranks_first_and_has_no_loss():
    frame, entry = made(broken=2)
    scores = screening.screened(frame, IDS, entry, BLOCKS, level=0.9, seed=1)
    lost = {loss.layer: loss for loss in scores.losses}
    assert (lost[1].lost, lost[1].rank) == (Estimate(value=None), 1)
    assert (lost[1].nonfinite, lost[4].rank, lost[0].nonfinite) == (40, 2, 0)
    assert Screen.model_validate_json(scores.model_dump_json()) == scores


def test_where_the_baseline_has_no_number_on_an_item_it_counts_nowhere():
    frame, entry = made()
    hole = (frame["task"] == "gold:t") & (frame["edit"] == "baseline") & (frame["item"] == "i3")
    frame.loc[hole, "scores"] = pd.Series([(math.nan,)] * int(hole.sum()), index=frame.index[hole], dtype=object)
    scores = screening.screened(frame, IDS, entry, BLOCKS, level=0.9, seed=1)
    golds, tokens = (table(frame, "gold:t", column).drop(index="i3") for column in ("scores", "tokens"))
    expected = (golds["baseline"] - golds["4×0"]).sum() / tokens["baseline"].sum()
    assert scores.losses[4].lost.value == pytest.approx(expected)


def test_drops_that_are_all_equal_rank_nothing_and_equal_ones_are_counted():
    frame, _ = made()
    (agreement,) = screening.screened(frame, IDS, result([0.1] * 5), BLOCKS, level=0.9, seed=1).agreement
    assert (agreement.rho, agreement.tied, agreement.layers) == (Estimate(value=None), 5, 5)


def test_few_layers_whose_order_no_resample_changes_have_no_interval():
    frame, _ = made()
    (agreement,) = screening.screened(frame, IDS, result([0.9, 0.0], [40] * 2), BLOCKS, level=0.9, seed=1).agreement
    assert abs(agreement.rho.value) == pytest.approx(1)
    assert (agreement.rho.low, agreement.rho.high) == (None, None)


def test_layers_that_stopped_early_count_with_the_items_that_they_were_asked():
    frame, _ = made()
    right = table(frame, "t", "correct")
    counts = [8, 40, 16, 40, 8]
    drops = [float((right["baseline"] - right[f"{layer}×0"]).iloc[:n].mean()) for layer, n in enumerate(counts)]
    scores = screening.screened(frame, IDS, result(drops, counts), BLOCKS, level=0.9, seed=1)
    assert scores.generated == Amount(answers=40 + sum(counts), tokens=7 * (40 + sum(counts)))
    lost = [loss.lost.value for loss in scores.losses]
    assert scores.agreement[0].rho.value == pytest.approx(spearmanr(lost, drops).statistic)


def test_generation_is_limited_to_the_edits_that_take_most_from_any_task(sums, animals, tinies, tmp_path):
    more = write(tmp_path / "more.jsonl", ({"id": f"m{n}", "prompt": f"{n} - 1 =", "answer": "no"} for n in range(6)))
    limited = study(sums, more, animals, screen=None, screen_top=1, edits={"unit": "head", "layers": "0-1"})
    oracle = Oracle()
    outcome = run(limited, tmp_path / "out", models=tinies, make_engine=oracle)
    tasks = {task.task: task for task in outcome.summary.models[0].tasks}
    kept = set()
    for name in (str(sums), str(more)):
        losses = {loss.edit: loss.lost.value for loss in tasks[name].screen.losses}
        assert len(losses) == 8
        kept |= {edit for edit, loss in losses.items() if loss == max(losses.values())}
    assert 1 <= len(kept) <= 2
    for name in (str(sums), str(more)):
        assert {cell.edit for cell in tasks[name].cells} == kept
        assert tasks[name].screen.top == 1
        # The correction counts those left out.
        assert {reach.tests for reach in tasks[name].sensitivity} == {8}
    # Choices cost one pass each: they are scored under every edit.
    assert len(tasks[str(animals)].cells) == 8
    (note,) = [text for text in outcome.summary.notes if "--screen-top 1" in text]
    assert f"under {len(kept)} of 8 edits" in note
    assert "count all 8" in note
    assert recall(tmp_path / "out")[1] == outcome.summary
    again = run(limited, tmp_path / "out", models=tinies, make_engine=Oracle())
    assert again.evaluated == 0
    whole = run(study(sums, more, animals, edits={"unit": "head", "layers": "0-1"}), tmp_path / "out", models=tinies,
                make_engine=Oracle())  # fmt: skip
    assert whole.evaluated == (8 - len(kept)) * (ITEMS + 6)


def test_edits_that_tie_with_the_last_are_generated_too():
    frame, _ = made()
    gold = frame["task"] == "gold:t"
    same = gold & frame["edit"].isin(["3×0", "4×0"])
    frame.loc[same, "scores"] = pd.Series([(-9.0,)] * int(same.sum()), index=frame.index[same], dtype=object)
    assert screening.chosen_edits(frame, {"t": IDS}, BLOCKS, 1) == [ScaleBlock(3), ScaleBlock(4)]
    assert screening.chosen_edits(frame, {"t": IDS}, BLOCKS, 99) == BLOCKS


def test_a_limited_screen_and_stopping_do_not_go_together(sums, tinies, tmp_path):
    both = study(sums, screen_top=2, stop={"when": "decided"})
    with pytest.raises(UsageError, match="--screen-top and --stop-when do not go together"):
        run(both, tmp_path / "out", models=tinies, make_engine=Oracle())
