"""A study that stops asking: fewer answers, the same decisions whatever happens, and the full table any time later."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from oracle import Listener, Oracle

from commandline import lesion, write
from lesion.core.store import Store
from lesion.edits.edit import BASELINE
from lesion.engines.engine import Response
from lesion.errors import LesionError
from lesion.statistics.bets import confidence_sequence
from lesion.studies.ablation.recall import recall
from lesion.studies.ablation.result import AblationSummary, Stopped
from lesion.studies.ablation.study import StopPlan, Study
from lesion.tasks.task import Answer
from runs import run_ablation as run
from tiny import model

ITEMS = 90
LOSSES = {"baseline": 10, "0×0": 100, "1×0": 40, "2×0": 10}
"""In percent, how many answers are wrong; layer 2 errs where the baseline does."""


class World(Oracle):
    """An engine under which the edits cost what `LOSSES` says; it notes every call as well."""

    def __init__(self, lives: int | None = None, death: BaseException | None = None) -> None:
        super().__init__(lives, death)
        self.calls: list[set[str]] = []

    def answer(self, requests):
        requests = list(requests)
        self.calls.append({str(request.edit) for request in requests})
        return super().answer(requests)

    def say(self, request) -> Answer:
        number = sum(place * token for place, token in enumerate(request.prompt, start=1)) * 7919 % 100
        return Answer("right" if number >= LOSSES[str(request.edit)] else "wrong", 3, "stop")


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch):
    """Rounds as short as those of a study with many cells."""
    monkeypatch.setattr("lesion.studies.ablation.stopping.BUDGET", 16)


@pytest.fixture
def sums(tmp_path) -> Path:
    rows = ({"id": f"i{n}", "prompt": f"{n * n} + 1 =", "answer": "right"} for n in range(ITEMS))
    return write(tmp_path / "sums.jsonl", rows)


@pytest.fixture
def more(tmp_path) -> Path:
    rows = ({"id": f"j{n}", "prompt": f"{n} minus {n * n} =", "answer": "right"} for n in range(50))
    return write(tmp_path / "more.jsonl", rows)


@pytest.fixture(scope="module")
def tinies() -> dict:
    return {"tiny:llama": model("llama")}


def study(*tasks: Path, stop: dict | None = None, **values) -> Study:
    settings = {"models": ["tiny:llama"], "items": "all", "decoding": {"max_new_tokens": 4}, **values}
    return Study.make(tasks=[str(task) for task in tasks], **settings, **({} if stop is None else {"stop": stop}))


STOP = {"effect": 0.1, "level": 0.05}


def rows(folder: Path) -> dict[str, tuple]:
    with Store.read(folder) as store:
        frame = store.answers().set_index("key")
    return {key: tuple(row) for key, row in zip(frame.index, frame.to_numpy().tolist(), strict=True)}


def told(summary: AblationSummary) -> dict[tuple[str, int], tuple[str, int]]:
    """What was decided of every cell, and after how many items."""
    return {
        (task.task, cell.layer): (cell.decided, cell.items) for task in summary.models[0].tasks for cell in task.cells
    }


def test_cells_are_asked_until_they_are_decided_and_the_sure_ones_least(sums, tinies, tmp_path):
    world, listener = World(), Listener()
    outcome = run(study(sums, stop=STOP), tmp_path / "out", watcher=listener, models=tinies, make_engine=world)
    decisions = {layer: cell for (_, layer), cell in told(outcome.summary).items()}
    assert [decisions[layer][0] for layer in range(3)] == ["exceeds", "exceeds", "not"]
    assert decisions[0][1] < decisions[1][1] < ITEMS
    (task,) = outcome.summary.models[0].tasks
    asked = task.items + sum(cell.items for cell in task.cells)
    assert outcome.evaluated == outcome.planned == len(world.asked) == listener.count == asked < 4 * ITEMS
    assert task.items == task.baseline.items == max(cell.items for cell in task.cells)
    assert listener.begun == [("tiny:llama", 4 * ITEMS, 0)]
    assert f"decided after {asked} of {4 * ITEMS} answers: {asked / ITEMS:.1f} evaluations" in listener.notes[-1]
    assert task.stopping == Stopped(effect=0.1, level=0.05, items=ITEMS, finished=True)
    assert (task.answers, *map(task.decided, ("exceeds", "not", "open"))) == (asked, 2, 1, 0)


def test_every_number_is_over_the_first_items_of_the_draw_and_its_limits_hold_at_any_time(sums, tinies, tmp_path):
    summary = run(study(sums, stop=STOP, level=0.9), tmp_path / "out", models=tinies, make_engine=World()).summary
    _, _, answers, items = recall(tmp_path / "out")
    right = {(row["edit"], row["item"]): row["correct"] for row in answers.to_dict("records")}
    (task,) = summary.models[0].tasks
    for entry in task.cells:
        ids = list(items["item"])[: entry.items]
        assert {item for edit, item in right if edit == f"{entry.layer}×0"} == set(ids), "the first of the draw"
        unedited, edited = (np.array([right[edit, i] for i in ids]) for edit in (str(BASELINE), f"{entry.layer}×0"))
        assert entry.accuracy.value == pytest.approx(edited.mean())
        assert entry.drop.value == pytest.approx(unedited.mean() - edited.mean())
        baseline, accuracy = entry.baseline.accuracy, entry.accuracy
        assert (entry.baseline.items, baseline.value) == (len(ids), pytest.approx(unedited.mean()))
        assert 0 <= baseline.low <= baseline.value <= baseline.high <= 1
        sequence = confidence_sequence(unedited, edited, 0.1)
        assert (entry.drop.low, entry.drop.high) == pytest.approx((sequence.low, sequence.high))
        assert (entry.drop.p, entry.drop.p_corrected) == (None, None)
        assert entry.critical is None, "only a full table says what is critical"
        assert 0 <= accuracy.low <= accuracy.value <= accuracy.high <= 1
        # Bets on a coin: no share p outside of the limits has p^k (1 − p)^(n − k) near what the best share has.
        outside = [p for p in np.linspace(0.005, 0.995, 199) if not accuracy.low <= p <= accuracy.high]
        n, k = len(ids), int(edited.sum())
        best = max(_likelihood(p, k, n) for p in np.linspace(0.001, 0.999, 999))
        assert all(best - _likelihood(p, k, n) > 1 for p in outside)
    assert summary.study.level == 0.9
    assert summary.study.stop == StopPlan(when="decided", **STOP, rule="closed e-BH")


def _likelihood(p: float, right: int, items: int) -> float:
    return right * math.log(p) + (items - right) * math.log(1 - p)


def test_all_tasks_and_open_cells_of_a_round_are_asked_in_one_call(sums, more, tinies, tmp_path):
    world = World()
    summary = run(study(sums, more, stop=STOP), tmp_path / "out", models=tinies, make_engine=world).summary
    last = max(items for _, items in told(summary).values())
    assert 2 < len(world.calls) < last / 4
    assert world.calls[0] == {"baseline", "0×0", "1×0", "2×0"}
    sizes = [len(call) for call in world.calls]
    assert sizes[-1] < sizes[0]


@pytest.mark.parametrize(
    ("lives", "death"), [(1, RuntimeError("no more")), (140, KeyboardInterrupt()), (-1, LesionError("no memory"))]
)
def test_when_the_engine_dies_the_next_run_ends_with_the_same_table(lives, death, sums, more, tinies, tmp_path):
    whole = run(study(sums, more, stop=STOP), tmp_path / "whole", models=tinies, make_engine=World())
    lives, out = lives % whole.evaluated, tmp_path / "out"
    with pytest.raises(type(death)):
        run(study(sums, more, stop=STOP), out, models=tinies, make_engine=World(lives, death))
    half = recall(out)[1]
    assert all(cell in ("open", told(whole.summary)[key][0]) for key, (cell, _) in told(half).items())
    rest = run(study(sums, more, stop=STOP), out, models=tinies, make_engine=World())
    assert rest.evaluated == whole.evaluated - lives
    assert rest.summary == whole.summary == recall(out)[1]
    assert rows(out) == rows(tmp_path / "whole")


def test_the_order_in_which_answers_come_changes_nothing(sums, more, tinies, tmp_path):
    class Reversed(World):
        def answer(self, requests):
            yield from reversed([Response(request.key, self.say(request)) for request in requests])

    first, second = (
        run(study(sums, more, stop=STOP), tmp_path / name, models=tinies, make_engine=engine)
        for name, engine in (("a", World()), ("b", Reversed()))
    )
    assert first.summary == second.summary
    assert rows(tmp_path / "a") == rows(tmp_path / "b")


def test_run_again_without_stopping_the_rest_is_asked_and_the_table_is_the_full_one(sums, more, tinies, tmp_path):
    fresh = run(study(sums, more), tmp_path / "fresh", models=tinies, make_engine=World())
    stopped = run(study(sums, more, stop=STOP), tmp_path / "out", models=tinies, make_engine=World())
    full = run(study(sums, more), tmp_path / "out", models=tinies, make_engine=World())
    assert full.evaluated == fresh.evaluated - stopped.evaluated > 0
    assert full.summary == fresh.summary == recall(tmp_path / "out")[1]
    assert rows(tmp_path / "out") == rows(tmp_path / "fresh")
    assert {cell for cell, _ in told(full.summary).values()} == {None}


def test_stopping_in_a_folder_with_a_full_table_asks_nothing_and_tells_what_a_stopped_study_would_have(
    sums, more, tinies, tmp_path
):
    stopped = run(study(sums, more, stop=STOP), tmp_path / "stopped", models=tinies, make_engine=World())
    run(study(sums, more), tmp_path / "out", models=tinies, make_engine=World())
    world = World()
    after = run(study(sums, more, stop=STOP), tmp_path / "out", models=tinies, make_engine=world)
    assert world.asked == []
    assert after.summary == stopped.summary


def test_another_effect_is_decided_anew_on_what_is_there(sums, tinies, tmp_path):
    first = run(study(sums, stop=STOP), tmp_path / "out", models=tinies, make_engine=World())
    other = {"effect": 0.6, "level": 0.05}
    fresh = run(study(sums, stop=other), tmp_path / "fresh", models=tinies, make_engine=World())
    again = run(study(sums, stop=other), tmp_path / "out", models=tinies, make_engine=World())
    assert again.summary == fresh.summary != first.summary
    assert again.evaluated < fresh.evaluated
    assert {layer: cell for (_, layer), (cell, _) in told(again.summary).items()} == {0: "exceeds", 1: "not", 2: "not"}


def test_models_of_one_family_are_not_compared_on_stopped_tables_and_that_is_said(sums, tinies, tmp_path):
    models = [{"source": name, "family": "f", "variant": variant} for name, variant in (("a", "base"), ("b", "rlvr"))]
    loaded = {"a": model("llama"), "b": model("qwen2")}
    outcome = run(study(sums, stop=STOP, models=models), tmp_path / "out", models=loaded, make_engine=World())
    assert outcome.summary.invariance is None
    assert any("compared on full tables only" in note for note in outcome.summary.notes)


def test_the_command_stops_and_its_table_page_and_files_say_so(capsys, tmp_path):
    from commandline import questions, save

    save(tmp_path / "llama")
    questions(tmp_path / "sums.jsonl", 40)
    out = tmp_path / "out"
    command = ("ablate", tmp_path / "llama", "--task", tmp_path / "sums.jsonl", "--items", "all", "--out", out)
    done = lesion(capsys, *command, "--max-new-tokens", 4, "--stop-when", "decided", "--effect", 0.3, "--level", 0.05)
    assert done.code == 0, done.err
    # The tiny model is never right: no drop is possible, and that is soon decided.
    assert ", stopped)" in " ".join(done.out.split())
    assert "decided after" in " ".join(done.err.split())
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert {entry["decided"] for entry in summary["models"][0]["tasks"][0]["cells"]} == {"not"}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "answers were evaluated" in page
    assert "exceed the effect of 30.0" in page
    full = lesion(capsys, *command, "--max-new-tokens", 4)
    assert full.code == 0, full.err
    assert "stopped" not in full.out.replace("were stored", "")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--stop-when", "decided", "--effect", "1.5"), "a number between 0 and 1, not 1.5"),
        (("--stop-when", "decided", "--effect", "0"), "a number between 0 and 1, not 0"),
        (("--stop-when", "later"), 'stop.when must be decided, not "later"'),
        (
            ("--stop-when", "decided", "--level", "5"),
            "--level 0.95 or 0.05 means a false discovery rate of 5 %; 5 is no such level",
        ),
        (("--level", "0.05"), "say --level 0.95, or give --stop-when decided"),
        (("--task", "primer:text", "--stop-when", "decided"), "primer:text is scored, not judged"),
        (("--effect", "0.2"), "--effect says when to stop evaluating; give --stop-when decided with it"),
    ],
)
def test_an_effect_that_is_none_is_told_before_anything_is_asked(options, complaint, capsys, tmp_path):
    done = lesion(capsys, "ablate", "bundled:llama-base", "--task", "primer:atlas", *options, "--out", tmp_path / "out")
    assert done.code == 2
    assert complaint in " ".join(done.complaint.split())
    assert not (tmp_path / "out").exists()


def test_looking_again_at_another_effect_is_told_for_what_it_is(capsys, tmp_path):
    command = ("ablate", "bundled:llama-base", "--task", "primer:reading", "--layers", "1", "--items", 16)
    stopped = (*command, "--out", tmp_path / "out", "--stop-when", "decided")
    told = "The answers there were looked at before with effect 0.2, level 0.05 and closed e-BH."
    assert told not in " ".join(lesion(capsys, *stopped, "--effect", 0.2).err.split())
    assert told not in " ".join(lesion(capsys, *stopped, "--effect", 0.2).err.split())
    assert told in " ".join(lesion(capsys, *stopped, "--effect", 0.3).err.split())
