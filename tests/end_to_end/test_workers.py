"""A study on two workers ends with the table of one process, also when a worker or the driver is killed on the way."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from raying import alive, descendants, linux, needs_ray, ray, wait_until, workers_of

from commandline import lesion, questions, save
from lesion.errors import LesionError
from lesion.studies.store import Store

__all__ = ["ray"]

pytestmark = [pytest.mark.slow, needs_ray, linux]

ITEMS = 60
CELLS = 4 * ITEMS
HELPERS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a model, a file of questions, and the study of one process."""
    folder = tmp_path_factory.mktemp("study")
    save(folder / "llama")
    questions(folder / "sums.jsonl", ITEMS)
    return folder


@pytest.fixture(scope="module")
def alone(place) -> Path:
    """The study as one process answers it."""
    out = place / "alone"
    subprocess.run(
        [sys.executable, "-m", "lesion", *command(place, out)],
        check=True,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return out


def command(place: Path, out: Path) -> list[str]:
    return [
        *("ablate", str(place / "llama"), "--task", str(place / "sums.jsonl"), "--items", "all"),
        *("--max-new-tokens", "60", "--batch-size", "2", "--out", str(out)),
    ]


def stored(out: Path) -> int:
    try:
        with Store.read(out) as store:
            return len(store)
    except LesionError:  # not made yet
        return 0


def assert_same_table(one: Path, other: Path) -> None:
    """The same summary, byte for byte, and the same answers, each once."""
    for name in ("layers.csv", "summary.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    with Store.read(one) as mine, Store.read(other) as yours:
        rows = [store.answers().to_dict("records") for store in (mine, yours)]
    assert len(rows[0]) == len(rows[1]) == CELLS
    cells = {(row["edit"], row["item"]) for row in rows[0]}
    assert len(cells) == CELLS

    def by_cell(found):
        return sorted(found, key=lambda row: (row["edit"], row["item"]))

    assert by_cell(rows[0]) == by_cell(rows[1])


@contextmanager
def while_half_done(out: Path, act) -> Iterator[None]:
    """Do something once a part of the study is stored."""
    failed: list[BaseException] = []

    def watch() -> None:
        try:
            wait_until(lambda: stored(out) >= CELLS // 10, "a tenth of the study")
            assert stored(out) < CELLS, "the study ended before anything could be done"
            act()
        except BaseException as error:
            failed.append(error)

    watching = threading.Thread(target=watch)
    watching.start()
    yield
    watching.join()
    assert not failed, failed


def test_two_workers_end_with_the_table_of_one_process(place, alone, ray, tmp_path, capsys):
    out = tmp_path / "two"
    said = lesion(capsys, *command(place, out), "--workers", 2)
    assert said.code == 0, said.err
    assert_same_table(out, alone)
    rates = re.findall(r"note: worker ([12]) on \S+: ([\d,]+) answers, ([\d.,]+)/s", said.err)
    assert [worker for worker, _, _ in rates] == ["1", "2"]
    assert sum(int(count) for _, count, _ in rates) == CELLS


def test_a_worker_killed_in_mid_study_costs_nothing(place, alone, ray, tmp_path, capsys):
    out = tmp_path / "killed"

    def kill() -> None:
        os.kill(workers_of(os.getpid())[0], signal.SIGKILL)

    with while_half_done(out, kill):
        said = lesion(capsys, *command(place, out), "--workers", 2)
    assert said.code == 0, said.err
    assert said.err.count("was lost: its process was killed or crashed") == 1
    assert_same_table(out, alone)


def started(place: Path, out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lesion", *command(place, out), "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        # Whoever runs the tests in the background has Ctrl-C ignored, and every child of theirs inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@contextmanager
def at_work(place: Path, out: Path) -> Iterator[tuple[subprocess.Popen[str], dict[int, str]]]:
    """A driver in the middle of the study, and the processes it has."""
    driver = started(place, out)
    try:
        wait_until(lambda: stored(out) >= CELLS // 10 or driver.poll() is not None, "a tenth of the study")
        assert driver.poll() is None, driver.communicate()
        family = descendants(driver.pid)
        assert stored(out) < CELLS
        yield driver, family
    finally:
        driver.kill()
        driver.communicate()


def test_a_driver_killed_in_mid_study_takes_its_workers_along_and_the_same_command_goes_on(
    place, alone, ray, tmp_path, capsys
):
    out = tmp_path / "orphaned"
    with at_work(place, out) as (driver, family):
        assert sum(title.startswith("ray::Answerer") for title in family.values()) == 2
        driver.send_signal(signal.SIGKILL)
        assert driver.wait() == -signal.SIGKILL
        # Two small helpers of Ray's look after themselves, and take a minute to notice.
        ending = [process for process, title in family.items() if not title.startswith(HELPERS)]
        wait_until(lambda: not any(map(alive, ending)), "what a killed driver has started ends", 30)
    kept = stored(out)
    assert CELLS // 10 <= kept < CELLS
    again = lesion(capsys, *command(place, out), "--workers", 2)
    assert again.code == 0, again.err
    assert f"asked {CELLS - kept:,} of {CELLS:,} answers; {kept:,} were stored already" in again.out
    assert_same_table(out, alone)


def test_ctrl_c_ends_everything_soon_and_leaves_nothing_but_the_answers(place, tmp_path):
    out = tmp_path / "interrupted"
    with at_work(place, out) as (driver, family):
        began = time.monotonic()
        os.killpg(driver.pid, signal.SIGINT)  # as a terminal does: to the driver and all its processes
        said, complaint = driver.communicate(timeout=60)
        took = time.monotonic() - began
        wait_until(lambda: not any(map(alive, family)), "all processes end", 10)
    assert driver.returncode == 1
    assert said == ""
    assert "Traceback" not in complaint
    assert f"Every answer so far is kept in {out}" in complaint
    assert complaint.endswith("lesion: interrupted.\n")
    assert "was lost" not in complaint
    assert took < 20
    assert CELLS // 10 <= stored(out) < CELLS
    assert not list(Path("/tmp").glob(f"lesion-ray-{driver.pid}-*"))


def test_when_rays_own_process_is_killed_the_driver_says_so_and_what_is_kept(place, tmp_path):
    out = tmp_path / "without-ray"
    with at_work(place, out) as (driver, family):
        (raylet,) = (process for process, title in family.items() if Path(title.split(" ")[0]).name == "raylet")
        os.kill(raylet, signal.SIGKILL)
        said, complaint = driver.communicate(timeout=60)
    assert driver.returncode == 1
    assert said == ""
    assert "Traceback" not in complaint
    assert complaint.endswith(
        "lesion: Ray's own process on this machine (the raylet) was killed or has crashed; the system may have ended it"
        " for want of memory. Every answer so far is kept. Run the same command again: the study goes on.\n"
    )
    assert CELLS // 10 <= stored(out) < CELLS
