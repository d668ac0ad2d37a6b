"""One contestant of `engines.py` in a process of its own: start, trial, timed sweeps; writes what it found as JSON.

    python benchmarks/engines_child.py loop JOB.json OUTCOME.json

Ends with status 3 and one line on stderr when the contestant's library is not installed.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import sys
import time
from pathlib import Path
from typing import Any, cast

from engines_job import Answers, Contestant, Job, Layer, Outcome, Sweep

MISSING = 3
psutil: Any = importlib.import_module("psutil")


def main() -> None:
    """Run the contestant."""
    name, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    job = Job.read(source)
    contestant = cast(Contestant, importlib.import_module(f"engines_{name}"))
    versions = dict(map(installed, contestant.LIBRARIES))
    sweep = contestant.start(job)
    startup = time.time() - psutil.Process().create_time()

    middle = job.layers[len(job.layers) // 2]
    trial: tuple[Layer, ...] = (None, middle)
    sweep((None,), job.sizes[0] if contestant.SIZED else 0)  # warm-up
    tried = {}
    for size in job.sizes if contestant.SIZED else (0,):
        seconds, _, _ = timed(sweep, trial, size)
        tried[size] = seconds
        print(f"  trial, batch {size or 'auto'}: {seconds:.2f} s for 2 edits", file=sys.stderr, flush=True)
        if seconds > job.patience:
            break
    size = min(tried, key=tried.__getitem__)
    edits = affordable(job, tried[size] / len(trial))
    runs = [timed(sweep, edits, size) for _ in range(job.repeats)]
    answers = runs[-1][2]
    Outcome(
        name=name,
        startup=startup,
        wall=[wall for wall, _, _ in runs],
        cpu=[cpu for _, cpu, _ in runs],
        edits=list(edits),
        answers=[[answers.tokens[layer, index] for index in range(len(job.questions))] for layer in edits],
        steps=answers.steps,
        size=size,
        tried={str(size): seconds for size, seconds in tried.items()},
        versions=versions,
    ).write(target)


def installed(library: str) -> tuple[str, str]:
    """The first distribution of `ONE|OTHER` that is installed, and its version; status 3 when none is."""
    for name in library.split("|"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return name, importlib.metadata.version(name)
    print(f"{library.replace('|', ' or ')} is not installed in this environment", file=sys.stderr)
    raise SystemExit(MISSING)


def affordable(job: Job, seconds: float) -> tuple[Layer, ...]:
    """All edits; where one takes so many seconds that patience would end, the baseline and evenly spaced blocks."""
    blocks = len(job.layers)
    if seconds * (blocks + 1) <= job.patience:
        return job.edits
    count = min(blocks, max(2, int(job.patience / seconds) - 1))
    return (None, *(job.layers[round(index * (blocks - 1) / max(1, count - 1))] for index in range(count)))


def timed(sweep: Sweep, edits: tuple[Layer, ...], size: int) -> tuple[float, float, Answers]:
    """Seconds on the clock and of processor time, and the answers."""
    began, used = time.perf_counter(), processor_seconds()
    answers = sweep(edits, size)
    return time.perf_counter() - began, processor_seconds() - used, answers


def processor_seconds() -> float:
    """Processor time of this process and of its children so far, those that have ended included."""
    here = psutil.Process()
    total = sum(here.cpu_times()[:4])
    for child in here.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            total += times.user + times.system
    return float(total)


if __name__ == "__main__":
    main()
