"""A sweep that is killed with kill -9 and started again ends with the table of one that was left in peace."""

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from commandline import lesion
from sweeping import CELLS, SOME, alone, assert_interrupted, assert_same_table, command, place, started, stored

__all__ = ["alone", "place"]

unix = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system cannot stop or kill -9 a process")


@contextmanager
def sweeping(place: Path, out: Path) -> Iterator[subprocess.Popen[str]]:
    """A process at work on the sweep, held still in the middle of it."""
    process = started(place, out)
    try:
        began = time.monotonic()
        while stored(out) < SOME:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() - began < 120
            time.sleep(0.05)
        process.send_signal(signal.SIGSTOP)
        assert stored(out) < CELLS, "the sweep ended before it could be held"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@unix
def test_killed_in_mid_sweep_and_run_again_the_table_is_the_same_and_only_the_rest_is_asked(
    place, alone, tmp_path, capsys
):
    out = tmp_path / "killed"
    with sweeping(place, out) as process:
        # While it works, nobody else may write there; a reader may look.
        second = lesion(capsys, *command(place, out))
        assert second.code == 1
        assert f"Another process (pid {process.pid}) is writing in {out}" in second.complaint
        assert lesion(capsys, "report", out).code == 0
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    kept = stored(out)
    assert SOME <= kept < CELLS
    again = lesion(capsys, *command(place, out))
    assert again.code == 0
    assert f"evaluated {CELLS - kept:,} of {CELLS:,} answers; {kept:,} were stored already" in again.out
    assert_same_table(out, alone)


@pytest.mark.slow
@unix
def test_a_scheduler_that_ends_the_sweep_is_answered_as_ctrl_c_is(place, tmp_path):
    out = tmp_path / "terminated"
    with sweeping(place, out) as process:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        said, complaint = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert said == ""
    assert "the same command goes on from there" in complaint
    assert_interrupted(complaint, out)  # of Ctrl-C itself `test_workers.py` states the same
