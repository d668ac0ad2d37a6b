"""Estimates: a few items with all their edits go first, and what they took, times what is left, is said once."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from oracle import Listener

from commandline import lesion as command
from lesion.core import estimate
from lesion.core.estimate import FULLER, LATER, PAGE, TOKEN, DryRun, Estimate, Estimating, first_items, of_answers
from lesion.plain import duration

MODEL = "bundled:llama-instruct"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"), (89.0, "89 s"), (90.0, "1 min 30 s"), (178.0, "3 min"), (594.0, "9 min 50 s"),
        (596.0, "10 min"), (3599.0, "1 h 0 min"), (12e3, "3 h 20 min"),
    ],
)  # fmt: skip
def test_a_time_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_range_is_the_factor_to_either_side() -> None:
    text = Estimate("answers", 1200, 34_000, 600.0, 1.5, 2 << 20).text
    assert text.startswith(
        "1,200 answers to come, 34,000 tokens with their prompts: about 10 min (6 min 40 s to 15 min); memory so far"
    )
    assert text.endswith("disk 2.0 MiB")


@pytest.mark.parametrize("by_file", [False, True])
def test_a_dry_run_answers_a_few_items_says_the_cost_and_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], by_file: bool
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(f'models = ["{MODEL}"]\ntasks = ["primer:atlas"]\nitems = 24\n', encoding="utf-8")
    options = ("run", file) if by_file else ("ablate", MODEL, "--task", "primer:atlas", "--items", "24")
    words = (*options, "--out", tmp_path / "out")
    done = command(capsys, *words, "--dry-run")
    assert done.code == 0, done.err
    (count,) = map(int, re.findall(r"note: (\d+) answers to come", done.err))
    done = command(capsys, *words)
    assert f"evaluated {count} of 216 answers; {216 - count} were stored already" in done.out


def test_a_loop_says_what_it_costs_once_a_few_of_it_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    told = Listener()
    watcher = Estimating(told)
    watcher.begin("m", 100, 0, "texts")
    for _ in range(100):
        watcher.answered(1)
    assert len(told.notes) == 1
    assert told.notes[0].startswith(
        "95 texts to come: about 4 min (2 min 40 s to 6 min)"
    )  # 10 s for four after the first
    with pytest.raises(DryRun):
        dry(Estimating(told, dry=True))


def test_batches_that_hold_many_at_once_are_estimated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    told = Listener()
    watcher = Estimating(told)
    watcher.begin("m", 200, 0, "texts")
    for _ in range(4):
        watcher.answered(50)
    assert [note.split(" (")[0] for note in told.notes] == []
    watcher.begin("m", 400, 0, "texts")
    for _ in range(8):
        watcher.answered(50)
    assert [note.split(" (")[0] for note in told.notes] == ["300 texts to come: about 60 s"]


@pytest.mark.parametrize(
    ("soon", "edits", "answers"),
    [
        (30.0, ("--share", "0.01,0.05"), 216),
        (-1.0, ("--share", "0.01,0.05"), 216),
        (30.0, ("--share", "0.05", "--factor", "1.1"), 264),  # a block and its MLP, by three factors, stand beside it
    ],
)
def test_a_dry_isolation_counts_the_answers_under_edits_that_are_not_made_yet(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    soon: float,
    edits: tuple[str, ...],
    answers: int,
) -> None:
    monkeypatch.setattr(estimate, "SOON", soon)  # below 0: what is observed counts as long, and the dry run ends there
    tasks = ("--skill", "primer:arithmetic", "--control", "primer:atlas", "--task", "primer:atlas")
    words = ("isolate", MODEL, *tasks, "--items", "24", "--samples", "20", *edits, "--out", tmp_path)
    done = command(capsys, *words, "--dry-run")
    assert done.code == 0, done.err
    (count,) = map(int, re.findall(r"note: (\d+) answers to come", done.err))
    assert ("matrices to order to come" in done.err) == (soon < 0)
    done = command(capsys, *words)
    assert f"evaluated {count} of {answers} answers; {answers - count} were stored already" in done.out


def test_a_dry_run_of_few_items_says_that_more_comes_after_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("drift", MODEL, "--task", "primer:atlas", "--items", "3", "--runs", "1", "--out", tmp_path / "out")
    done = command(capsys, *words, "--dry-run")
    assert (done.code, "of too few items for an estimate" in done.err) == (0, True)
    assert done.err.endswith("What comes after these is not counted.\n")


def dry(watcher: Estimating) -> None:
    watcher.begin("m", 100, 0, "texts")
    for _ in range(5):
        watcher.answered(1)


def cells(task: str, items: int, edits: int = 4, shared: int = 0) -> dict[str, Any]:
    """Pending answers to items of a task under edits, as far as an estimate reads them; prompts begin with so many
    tokens that are the same.
    """
    return {
        f"{task} {item} {edit}": SimpleNamespace(
            choice=SimpleNamespace(name=task),
            item=SimpleNamespace(id=str(item)),
            prompt=(*range(shared), *(1000 + item,) * 10),
            edit=edit,
        )
        for item in range(items)
        for edit in range(edits)
    }


def rows(part: dict[str, Any], said: int = 5) -> list[Any]:
    """The answers to pending ones, of so many tokens each."""
    return [SimpleNamespace(task=c.choice.name, item=c.item.id, tokens=said, text="five") for c in part.values()]


def estimated(seconds: Callable[[int], float], later: int = 0, shared: int = 0, said: int = 5) -> Estimate:
    """The estimate where so many answers at once take so many seconds."""
    work = cells("sums", 100, shared=shared)
    first = first_items(work, 64)
    ahead = {key for part in first for key in part}
    left = {key: cell for key, cell in work.items() if key not in ahead}
    went = [(part, rows(part, said), seconds(len(part))) for part in first]
    return of_answers(went, left, "answers", {"sums": later})


def test_a_batch_that_takes_time_to_fill_and_empty_is_not_taken_for_slow_answers() -> None:
    estimate = estimated(lambda answers: 6 + 0.5 * answers)
    assert estimate.seconds == pytest.approx(6 + FULLER * 0.5 * estimate.count + PAGE)
    assert 350 > estimate.count > 300


def test_what_prompts_begin_with_alike_is_read_once_for_each_edit() -> None:
    def work(items: int) -> float:  # of four edits: 500 tokens that all share, then ten of the prompt and five said
        return 4 * (500 + items * (10 + TOKEN * 5))

    estimate = estimated(lambda answers: work(answers // 4) / 100, shared=500)
    items = estimate.count // 4
    assert estimate.seconds == pytest.approx(FULLER * work(items) / 100 + PAGE)
    assert estimate.seconds < 0.3 * work(1) * items / 100  # as if no prompt were shared


def test_a_slow_start_makes_no_answer_free() -> None:
    estimate = estimated(lambda answers: 10.0)
    assert estimate.seconds > 0.3 * 10 / 48 * estimate.count


def test_what_follows_counts_in_the_estimate_and_not_in_the_bar() -> None:
    alone, both = estimated(float), estimated(float, later=1000)
    assert both.count == alone.count + 1000
    assert both.seconds == pytest.approx(alone.seconds + FULLER * LATER * 1000)
    read = estimated(float, later=1000, said=0)  # texts, of which nothing is written
    assert read.seconds == pytest.approx(alone.seconds + FULLER * 1000)
    assert both.now == pytest.approx(alone.now) == pytest.approx(alone.seconds - PAGE)
