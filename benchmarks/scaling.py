"""Workers against one process on this machine, and the paper's whole study on 1, 8 and 64 GPUs, simulated.

    python benchmarks/scaling.py                      # three tasks, all blocks: one process, and two workers
    python benchmarks/scaling.py --items 100 --rounds 2
    python benchmarks/scaling.py --tokens-per-second 9000 --rows 512 --load-seconds 90 --no-measuring RESULTS.json

Every contestant answers the same requests with greedy decoding; start-up (processes, imports, reading the model) is
timed apart; of several rounds the fastest counts. Beside the seconds stand two things that others on the machine hardly
change: the processor time of each process, and the share of the time in which each worker had something to answer.
Their product over that of one process is what as many undisturbed cores would make of it:
workers · (processor time of one process / that of all workers) · (share of time with something to answer).

The simulation takes the spread of units, the overhead of a unit, the start of workers and how much of their limit
answers use from what was measured here; the rate of a GPU, its batch and the reading of a large model are assumptions,
and marked as such in the results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import torch

from lesion.edits.edit import BASELINE, Edit, ScaleBlock
from lesion.engines.config import EngineChoice, opened
from lesion.engines.engine import Decoding, Engine, Request, Response
from lesion.engines.ray.cluster import Worker
from lesion.engines.ray.placement import cores_here
from lesion.engines.ray.units import cut
from lesion.engines.transformers.engine import TransformersEngine
from lesion.models.load import Model, load
from lesion.tasks.catalogue import draw, find
from lesion.tasks.prompts import encode
from scaling_simulated import Assumed, Measured, table

TASKS = ("primer:arithmetic", "primer:atlas", "primer:reading")
ROWS = 64
WORKERS = 2
# Answers whose length the simulation draws from.
KEPT = 2000


def questions(model: Model, items: int) -> list[Request]:
    """Items of every task, or as many as it has, unedited and with every block switched off."""
    edits: list[Edit] = [BASELINE, *(ScaleBlock(block) for block in range(len(model.anatomy.blocks)))]
    requests = []
    for name in TASKS:
        task = find(name)
        decoding = Decoding(task.max_new_tokens, task.stop)
        for item in draw(task, min(items, len(task.load())), 0):
            prompt = encode(model, task, item, "plain")
            requests += [Request(f"{name} {item.id} {edit}", prompt, edit, decoding) for edit in edits]
    return requests


@dataclass(frozen=True)
class Timed:
    """What answering took.

    Attributes:
        seconds: by the clock.
        processor: seconds on a processor, of each process that answered.
        answering: share of the time in which each had something to answer.
        answers: that each gave.
    """

    seconds: float
    processor: tuple[float, ...]
    answering: tuple[float, ...] = (1.0,)
    answers: tuple[int, ...] = ()

    def told(self) -> dict[str, Any]:
        """For the results."""
        return {
            "seconds": self.seconds,
            "processor seconds": list(self.processor),
            "share of the time with something to answer": list(self.answering),
            "answers": list(self.answers),
        }


def timed(engine: Engine, requests: Sequence[Request]) -> tuple[Timed, dict[str, Response]]:
    """What it took this process to answer, and the responses by key."""
    began, processor = time.perf_counter(), time.process_time()
    found = {response.key: response for response in engine.answer(requests)}
    taken = Timed(time.perf_counter() - began, (time.process_time() - processor,), answers=(len(found),))
    return taken, found


def over_workers(
    engine: Engine, workers: Sequence[Worker], requests: Sequence[Request]
) -> tuple[Timed, dict[str, Response]]:
    """What it took workers to answer, and the responses by key."""
    before = [(processor_seconds(worker.process), worker.seconds, worker.answers) for worker in workers]
    began = time.perf_counter()
    found = {response.key: response for response in engine.answer(requests)}
    seconds = time.perf_counter() - began
    taken = Timed(
        seconds,
        tuple(processor_seconds(worker.process) - was for worker, (was, _, _) in zip(workers, before, strict=True)),
        tuple((worker.seconds - was) / seconds for worker, (_, was, _) in zip(workers, before, strict=True)),
        tuple(worker.answers - was for worker, (_, _, was) in zip(workers, before, strict=True)),
    )
    return taken, found


def processor_seconds(process: int) -> float:
    """Seconds that another process has spent on processors so far; not a number where the system does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def contest(
    model: Model, requests: Sequence[Request], rounds: int, several: Sequence[int]
) -> tuple[dict[str, Any], dict[str, Response]]:
    """One process with 1 thread and with several, and workers with 1 thread each; and what was answered."""
    told: dict[str, Any] = {}
    expected: dict[str, Response] = {}
    alone: Timed | None = None
    for threads in sorted({1, *several}):
        torch.set_num_threads(threads)
        engine = TransformersEngine(model, ROWS)
        taken, expected = fastest(timed(engine, requests) for _ in range(rounds))
        alone = alone or taken
        told[f"one process, {threads} thread{'s' * (threads > 1)}"] = taken.told()
        print(f"one process, {threads} thread{'s' * (threads > 1)}{spoken(taken, alone)}", flush=True)
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # what a worker may use at most
    assert alone is not None
    began = time.perf_counter()
    count = min(WORKERS, cores_here())
    with opened(EngineChoice(workers=count)) as make_engine:
        over = make_engine(model, ROWS)
        assert make_engine.cluster is not None
        workers = make_engine.cluster.workers
        while not all(worker.rows for worker in workers):
            list(over.answer(requests[: 2 * count]))
        start = time.perf_counter() - began
        taken, found = fastest(over_workers(over, workers, requests) for _ in range(rounds))
    undisturbed = count * sum(alone.processor) / sum(taken.processor) * mean(taken.answering)
    print(f"{count} workers, 1 thread each{spoken(taken, alone)}; start-up {start:.0f} s", flush=True)
    print(f"on undisturbed cores {undisturbed:.2f} × one process with 1 thread")
    differ = sum(found[key].token_ids != expected[key].token_ids for key in expected)
    told[f"{count} workers, 1 thread each"] = taken.told()
    told |= {"start-up seconds": start, "on undisturbed cores": undisturbed, "answers that differ": differ}
    assert len(found) == len(expected) == len(requests), "a request has no answer, or two requests have one key"
    print(f"{differ} of {len(expected)} answers differ between one process and workers")
    return told, expected


def fastest(runs: Iterable[tuple[Timed, dict[str, Response]]]) -> tuple[Timed, dict[str, Response]]:
    """The run that took the least time."""
    return min(runs, key=lambda run: run[0].seconds)


def spoken(taken: Timed, alone: Timed) -> str:
    """What a contestant took, in words."""
    text = f": {taken.seconds:.1f} s, {alone.seconds / taken.seconds:.2f} ×; processor {sum(taken.processor):.1f} s"
    if len(taken.processor) == 1:
        return text
    each = zip(taken.answering, taken.processor, taken.answers, strict=True)
    shares = (
        f"{answers} answers, at work {answering:.1%} and on a processor {processor / taken.seconds:.1%} of the time"
        for answering, processor, answers in each
    )
    return f"{text}; " + "; ".join(f"worker {number}: {share}" for number, share in enumerate(shares, 1))


def units(model: Model, requests: Sequence[Request]) -> list[float]:
    """Processor seconds of every unit over what its tokens say, on one thread."""
    torch.set_num_threads(1)
    engine = TransformersEngine(model, ROWS)
    rates = []
    for unit in cut(requests, 4, ROWS // 4):
        taken, found = timed(engine, list(unit.requests.values()))
        rates.append(sum(taken.processor) / sum(len(response.token_ids) for response in found.values()))
    return [rate / mean(rates) for rate in rates]


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything that is measured on this machine."""
    model = load("bundled:llama-base", dtype="float32", device="cpu")
    requests = questions(model, arguments.items)
    print(f"{len(requests)} requests of {model.name} and {', '.join(TASKS)}", flush=True)
    load_before = os.getloadavg()
    told, answers = contest(model, requests, arguments.rounds, arguments.threads)
    ratios = units(model, questions(model, max(1, arguments.items // 8)))
    limits = {request.key: request.decoding.max_new_tokens for request in requests}
    edits = {request.key: request.edit for request in requests}
    used: dict[bool, list[float]] = {True: [], False: []}
    for key, response in list(answers.items())[:: max(1, len(answers) // KEPT)]:
        used[edits[key] == BASELINE].append(len(response.token_ids) / limits[key])
    workers = min(WORKERS, cores_here())
    count = len(cut(requests, workers, ROWS))
    beyond = sum(told[f"{workers} workers, 1 thread each"]["processor seconds"])
    beyond -= sum(told["one process, 1 thread"]["processor seconds"])
    return {
        "contestants": told,
        "requests": len(requests),
        "rows": ROWS,
        "units": count,
        "overhead of a unit, processor seconds": max(0.0, beyond / count),
        "spread of units": pstdev(ratios),
        "used of the limit": {"unedited": used[True], "edited": used[False]},
        "load averages before and after": [load_before, os.getloadavg()],
    }


def main() -> None:
    """Measure, simulate, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=700, help="of each task, or all it has")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, nargs="+", default=[cores_here()], help="of one process, besides 1")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--tokens-per-second", type=float, default=5000.0, help="of one GPU: assumed, not measured")
    parser.add_argument("--rows", type=int, default=256, help="of a GPU's batch: assumed")
    parser.add_argument("--fixed", type=float, default=0.6, help="share of a step that one row takes as well: assumed")
    parser.add_argument("--load-seconds", type=float, default=60.0, help="to read a model on a GPU: assumed")
    parser.add_argument("--seeds", type=int, default=2, help="draws of the simulation")
    parser.add_argument("--no-measuring", type=Path, metavar="RESULTS.json", help="take what was measured from a file")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/scaling_cpu_2026-11-22.json"))
    arguments = parser.parse_args()
    here = {"cores": cores_here(), "processor": platform.machine(), "python": platform.python_version()}
    if arguments.no_measuring:
        stored = json.loads(arguments.no_measuring.read_text(encoding="utf-8"))
        here, found = stored["machine"], stored["measured"]
    else:
        found = measured(arguments)
    results: dict[str, Any] = {"machine": here, "measured": found}
    save(arguments.out, results)
    assumed = Assumed(arguments.tokens_per_second, arguments.rows, arguments.fixed, arguments.load_seconds)
    used = found["used of the limit"]
    told = Measured(
        found["overhead of a unit, processor seconds"],
        found["spread of units"],
        found["contestants"]["start-up seconds"],
        (tuple(used["unedited"]), tuple(used["edited"])),
    )
    results["simulated"] = table(assumed, told, arguments.gpus, arguments.seeds)
    save(arguments.out, results)
    print(f"wrote {arguments.out}")


def save(file: Path, results: dict[str, Any]) -> None:
    """Write the results as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
