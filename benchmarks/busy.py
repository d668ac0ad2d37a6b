"""How much slower is a command on a busy machine than it need be? Settings of OpenMP, at several loads.

    python benchmarks/busy.py                        # loads 0, 2 and 5, about half an hour on two cores
    python benchmarks/busy.py --loads 5 --repeats 1

The command is `lesion ablate bundled:llama-base --task primer:arithmetic --items 20 --layers 0-3`, each time in a
process and a folder of its own. A load of N is N programs that count. Printed is the median of the seconds under each
setting over those under the fastest setting at that load; the settings take turns, so that what else the machine does
falls on all of them:

    lesion     nothing set: what the command chooses by itself
    spinning   GNU OpenMP's own default, which the command had before (GOMP_SPINCOUNT=300000)
    passive    OMP_WAIT_POLICY=PASSIVE
    one        OMP_NUM_THREADS=1
    both       OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1

The bar: `lesion` is at most 1.5 at every load, and not above `spinning` at load 0.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMAND = "ablate bundled:llama-base --task primer:arithmetic --items 20 --layers 0-3 --out"
SETTINGS: dict[str, dict[str, str]] = {
    "lesion": {},
    "spinning": {"GOMP_SPINCOUNT": "300000"},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    "one": {"OMP_NUM_THREADS": "1"},
    "both": {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1"},
}
RESULTS = Path(__file__).parent / "results" / "busy_cpu_2026-11.json"


@contextmanager
def busy(load: int) -> Iterator[None]:
    """So many programs that count, until the `with` ends."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def duration(setting: dict[str, str]) -> float:
    """How long the command takes under a setting; no other of OpenMP's variables is set."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "lesion", *COMMAND.split(), f"{folder}/out"],
            env={**plain, **setting},
            capture_output=True,
            check=True,
        )
        return time.monotonic() - begun


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--loads", type=lambda text: [int(load) for load in text.split(",")], default=[0, 2, 5])
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--results", type=Path, default=RESULTS)
    chosen = options.parse_args()
    seconds_by_load: dict[int, dict[str, list[float]]] = {}
    print("load  " + "".join(f"{name:>10}" for name in SETTINGS))
    for load in chosen.loads:
        times: dict[str, list[float]] = {name: [] for name in SETTINGS}
        with busy(load):
            for _ in range(chosen.repeats):
                for name, setting in SETTINGS.items():
                    times[name].append(duration(setting))
        medians = {name: statistics.median(taken) for name, taken in times.items()}
        fastest = min(medians.values())
        print(f"{load:4}  " + "".join(f"{median / fastest:10.2f}" for median in medians.values()), flush=True)
        seconds_by_load[load] = {name: [round(second, 2) for second in taken] for name, taken in times.items()}
    machine = platform.processor() or platform.machine()
    report = {"machine": machine, "processors": os.cpu_count(), "seconds_by_load": seconds_by_load}
    chosen.results.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
