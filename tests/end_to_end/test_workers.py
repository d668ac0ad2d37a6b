"""A study on two workers ends with the table of one process, though the driver and a worker are killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from commandline import lesion
from raying import alive, descendants, linux, needs_ray, ray, wait_until, workers_of
from sweeping import CELLS, SOME, alone, assert_interrupted, assert_same_table, command, place, started, stored

__all__ = ["alone", "place", "ray"]

pytestmark = [pytest.mark.slow, needs_ray, linux]

HELPERS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")


@contextmanager
def while_going_on(out: Path, act) -> Iterator[None]:
    """Do something once some more of the study is stored."""
    failed: list[BaseException] = []
    before = stored(out)

    def watch() -> None:
        try:
            wait_until(lambda: stored(out) >= before + SOME, "another tenth of the study")
            assert stored(out) < CELLS, "the study ended before anything could be done"
            act()
        except BaseException as error:
            failed.append(error)

    watching = threading.Thread(target=watch)
    watching.start()
    yield
    watching.join()
    assert not failed, failed


@contextmanager
def at_work(place: Path, out: Path) -> Iterator[tuple[subprocess.Popen[str], dict[int, str]]]:
    """A driver in the middle of the study, and the processes it has."""
    driver = started(place, out, "--workers", "2")
    try:
        wait_until(lambda: stored(out) >= SOME or driver.poll() is not None, "a tenth of the study")
        assert driver.poll() is None, driver.communicate()
        family = descendants(driver.pid)
        assert stored(out) < CELLS
        yield driver, family
    finally:
        driver.kill()
        driver.communicate()


def test_a_driver_killed_in_mid_study_takes_its_workers_along_and_the_same_command_goes_on_though_a_worker_is_killed(
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
    assert SOME <= kept < CELLS - 2 * SOME

    def kill() -> None:
        os.kill(workers_of(os.getpid())[0], signal.SIGKILL)

    with while_going_on(out, kill):
        again = lesion(capsys, *command(place, out), "--workers", 2)
    assert again.code == 0, again.err
    assert again.err.count("was lost: its process was killed or crashed") == 1
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
    assert driver.returncode == 130
    assert said == ""
    assert_interrupted(complaint, out)
    assert "was lost" not in complaint
    assert took < 20
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
    assert SOME <= stored(out) < CELLS
