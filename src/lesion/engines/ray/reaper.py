"""Runs beside a Ray that a driver has started, and ends what is left of it once the driver is gone, killed or not.

Ray's own agents outlive a killed driver by minutes. Started as a script, without this package; standard input is a pipe
whose other end the driver holds, and the argument is the folder that is Ray's alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

# Seconds for which processes are looked for: some are only being started when the driver ends.
PATIENCE = 5.0


def users(folder: str) -> list[int]:
    """The processes that have a file in the folder open; none where there is no /proc."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(os.readlink(entry).startswith(f"{folder}/") for entry in (process / "fd").iterdir()):
                found.append(int(process.name))
    return found


def main(folder: str) -> None:
    """Wait for the driver's end; then end what uses its folder, and remove that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a group that is ended is no reason to leave before the driver
    sys.stdin.buffer.read()
    until = time.monotonic() + PATIENCE
    while os.path.isdir(folder) and time.monotonic() < until:
        for process in users(folder):
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.2)
        if not users(folder):
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
