"""A study on workers ends with the table of one process, though the driver and Ray are killed on the way."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from commandline import lesion
from raying import alive, descendants, linux, needs_ray, wait_until
from sweeping import CELLS, SOME, alone, assert_interrupted, assert_same_table, command, place, started, stored

__all__ = ["alone", "place"]

pytestmark = [pytest.mark.slow, needs_ray, linux]

HELPERS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")


@contextmanager
def at_work(place: Path, out: Path, workers: int) -> Iterator[tuple[subprocess.Popen[str], dict[int, str]]]:
    """A driver in the middle of the study, and the processes it has; its workers stand still until `go_on`.

    However fast the processor is, the study cannot end before a test has done what it does to it; however slow it is,
    all workers have started.
    """
    before = stored(out)
    driver = started(place, out, "--workers", f"{workers}")
    family: dict[int, str] = {}
    try:
        wait_until(lambda: stored(out) >= before + SOME or driver.poll() is not None, "another tenth of the study")
        assert driver.poll() is None, driver.communicate()

        def stopped() -> bool:
            family.update(descendants(driver.pid))
            signalled(family, signal.SIGSTOP)
            return len(workers_of(family)) == workers

        wait_until(stopped, "every worker has started and is held")
        assert stored(out) < CELLS, "the study ended before anything could be done"
        yield driver, family
    finally:
        driver.kill()
        driver.communicate()
        go_on(family)


def workers_of(family: dict[int, str]) -> list[int]:
    """The processes that answer."""
    return [process for process, title in family.items() if title.startswith("ray::Answerer")]


def signalled(family: dict[int, str], number: signal.Signals) -> None:
    """Send a signal to every worker that still runs."""
    for process in filter(alive, workers_of(family)):
        os.kill(process, number)


def go_on(family: dict[int, str]) -> None:
    """Let the workers run again."""
    signalled(family, signal.SIGCONT)


def test_after_kill_9_of_the_driver_and_then_of_rays_own_process_the_table_is_that_of_one_process(
    place, alone, tmp_path, capsys
):
    out = tmp_path / "killed"
    with at_work(place, out, 2) as (driver, family):
        assert len(workers_of(family)) == 2
        driver.send_signal(signal.SIGKILL)
        assert driver.wait() == -signal.SIGKILL
        go_on(family)
        # Two small helpers of Ray's look after themselves, and take a minute to notice.
        ending = [process for process, title in family.items() if not title.startswith(HELPERS)]
        wait_until(lambda: not any(map(alive, ending)), "what a killed driver has started ends", 30)
    assert SOME <= stored(out) < CELLS - 2 * SOME

    with at_work(place, out, 1) as (driver, family):
        (raylet,) = (process for process, title in family.items() if Path(title.split(" ")[0]).name == "raylet")
        os.kill(raylet, signal.SIGKILL)
        said, complaint = driver.communicate(timeout=60)
    assert driver.returncode == 1
    assert said == ""
    assert "Traceback" not in complaint
    # Ray's own code at times ends the driver before lesion can say why: then nothing is said, and the next run goes on.
    raylet_died = (
        "lesion: Ray's own process on this machine (the raylet) was killed or has crashed; the system may have ended it"
        " for want of memory. Every answer so far is kept. Run the same command again: the study goes on.\n"
    )
    assert complaint.endswith(raylet_died) or "lesion:" not in complaint, complaint[-2000:]

    kept = stored(out)
    assert 2 * SOME <= kept < CELLS
    rest = lesion(capsys, *command(place, out))
    assert rest.code == 0, rest.err
    assert f"evaluated {CELLS - kept:,} of {CELLS:,} answers; {kept:,} were stored already" in rest.out
    assert_same_table(out, alone)


def test_ctrl_c_ends_everything_soon_and_leaves_nothing_but_the_answers(place, tmp_path):
    out = tmp_path / "interrupted"
    with at_work(place, out, 1) as (driver, family):
        began = time.monotonic()
        os.killpg(driver.pid, signal.SIGINT)  # as a terminal does: to the driver and all its processes
        go_on(family)
        said, complaint = driver.communicate(timeout=60)
        took = time.monotonic() - began
        wait_until(lambda: not any(map(alive, family)), "all processes end", 10)
    assert driver.returncode == 130
    assert said == ""
    assert_interrupted(complaint, out)
    assert "was lost" not in complaint
    assert took < 20
    assert not list(Path("/tmp").glob(f"lesion-ray-{driver.pid}-*"))
