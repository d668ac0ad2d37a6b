"""What the tests of workers share: Ray on this machine, started once for a process of tests."""

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lesion.engines.ray.joining import connected

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'lesion[ray]'"
)
PROC = Path("/proc")
linux = pytest.mark.skipif(not PROC.is_dir(), reason="processes are found in /proc, which this system does not have")


@pytest.fixture(scope="session")
def ray() -> Iterator[None]:
    """Ray on this machine; what joins it in this process leaves it running."""
    loaded = sys.modules.get("ray")
    if loaded is not None and loaded.is_initialized():  # by the same fixture, imported into another file
        yield
        return
    with connected(None):
        yield


def descendants(process: int) -> dict[int, str]:
    """The processes that a process has started, and those that they have: number → command line, or title."""
    parents, commands = {}, {}
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            try:
                status = (entry / "stat").read_text()
                commands[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # it has just ended
                continue
            fields = status.rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found: dict[int, str] = {}
    waiting = [process]
    while waiting:
        parent = waiting.pop()
        children = [child for child, of in parents.items() if of == parent]
        found.update((child, commands[child]) for child in children)
        waiting += children
    return found


def wait_until(true: Callable[[], object], what: str, seconds: float = 120.0) -> None:
    """Wait until something is so."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.05)


def alive(process: int) -> bool:
    """Whether a process runs, zombies not counted."""
    try:
        os.kill(process, 0)
        return (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
