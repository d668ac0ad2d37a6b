"""Workers against one process on this machine, and the paper's whole study on 1, 8 and 64 GPUs, simulated.

    python benchmarks/scaling.py                      # bundled model, all blocks, one process, one and two workers
    python benchmarks/scaling.py --items 24 --rounds 3
    python benchmarks/scaling.py --tokens-per-second 9000 --rows 512 --load-seconds 90 --no-measuring RESULTS.json

Every contestant answers the same requests with greedy decoding; start-up (processes, imports, reading the model) is
timed apart; of several rounds the fastest counts. The simulation takes the spread of units, the overhead of a unit, the
start of a process and how much of their limit answers use from what was measured here; the rate of a GPU, its batch and
the reading of a large model are assumptions, and marked as such in the results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import torch

from lesion.edits.edit import BASELINE, Edit, ScaleBlock
from lesion.engines.choice import EngineChoice
from lesion.engines.cluster_rooms import cores_here
from lesion.engines.cluster_units import cut
from lesion.engines.engine import Decoding, Engine, Request, Response
from lesion.engines.transformers import TransformersEngine
from lesion.models.load import Model, load
from lesion.tasks.catalogue import draw, find
from lesion.tasks.prompts import encode
from scaling_simulated import Assumed, Measured, table

TASK = "primer:arithmetic"
ROWS = 64


def questions(model: Model, items: int) -> list[Request]:
    """Items of a task, unedited and with every block switched off."""
    task = find(TASK)
    edits: list[Edit] = [BASELINE, *(ScaleBlock(block) for block in range(len(model.anatomy.blocks)))]
    decoding = Decoding(task.max_new_tokens, task.stop)
    return [
        Request(f"{item.id} {edit}", encode(model, task, item, "plain"), edit, decoding)
        for item in draw(task, items, 0)
        for edit in edits
    ]


def timed(engine: Engine, requests: Sequence[Request]) -> tuple[float, dict[str, Response]]:
    """Seconds, and the responses by key."""
    began = time.perf_counter()
    found = {response.key: response for response in engine.answer(requests)}
    return time.perf_counter() - began, found


def contest(model: Model, requests: Sequence[Request], rounds: int) -> tuple[dict[str, Any], dict[str, Response]]:
    """Seconds of one process with 1 thread and with all, of one worker and of two; the answers are the same."""
    cores = cores_here()
    names = {f"one process, {threads} thread{'s' * (threads > 1)}": threads for threads in sorted({1, cores})}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    starts: dict[str, float] = {}
    expected: dict[str, Response] = {}
    engine = TransformersEngine(model, ROWS)
    for _ in range(rounds):
        for name, threads in names.items():
            torch.set_num_threads(threads)
            taken, expected = timed(engine, requests)
            seconds[name].append(taken)
    for workers, threads in sorted({(1, 1), (1, cores), (min(2, cores), 1)}):
        name = f"{workers} worker{'s' * (workers > 1)}, {threads} thread{'s' * (threads > 1)} each"
        os.environ["OMP_NUM_THREADS"] = str(threads)  # what a worker may use at most
        began = time.perf_counter()
        with EngineChoice(workers=workers).opened() as opened:
            over = opened(model, ROWS)
            list(over.answer(requests[: 2 * workers]))
            while not all(worker.rows for worker in opened.cluster.workers):  # type: ignore[union-attr]
                list(over.answer(requests[: 2 * workers]))
            starts[name] = time.perf_counter() - began
            seconds[name] = []
            for _ in range(rounds):
                taken, found = timed(over, requests)
                seconds[name].append(taken)
                same = sum(found[key].token_ids == expected[key].token_ids for key in expected)
                assert same == len(expected) == len(found), f"{len(expected) - same} answers of {name} differ"
    best = {name: min(values) for name, values in seconds.items()}
    for name, taken in best.items():
        ratio, start = best["one process, 1 thread"] / taken, starts.get(name, 0.0)
        print(f"{name:26} {taken:8.1f} s {ratio:6.2f} ×  start-up {start:.0f} s", flush=True)
    return {"seconds": seconds, "fastest": best, "start-up seconds": starts}, expected


def units(model: Model, requests: Sequence[Request]) -> tuple[list[float], int]:
    """Seconds of every unit over what its tokens say, on one thread; and how many units one worker gets."""
    torch.set_num_threads(1)
    engine = TransformersEngine(model, ROWS)
    rates = []
    for unit in cut(requests, 4, ROWS // 4):
        taken, found = timed(engine, list(unit.requests.values()))
        rates.append(taken / sum(len(response.token_ids) for response in found.values()))
    return [rate / mean(rates) for rate in rates], len(cut(requests, 1, ROWS))


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything that is measured on this machine."""
    model = load("bundled:llama-base", dtype="float32", device="cpu")
    requests = questions(model, arguments.items)
    print(f"{len(requests)} requests of {model.name} and {TASK}")
    load_before = os.getloadavg()
    told, answers = contest(model, requests, arguments.rounds)
    ratios, count = units(model, requests)
    limit = requests[0].decoding.max_new_tokens
    edits = {request.key: request.edit for request in requests}
    used: dict[bool, list[float]] = {True: [], False: []}
    for key, response in answers.items():
        used[edits[key] == BASELINE].append(len(response.token_ids) / limit)
    fastest = told["fastest"]
    beyond = fastest["1 worker, 1 thread each"] - fastest["one process, 1 thread"]
    return {
        **told,
        "requests": len(requests),
        "rows": ROWS,
        "units of one worker": count,
        "overhead of a unit, seconds": max(0.0, beyond / count),
        "spread of units": pstdev(ratios),
        "used of the limit": {"unedited": used[True], "edited": used[False]},
        "load averages before and after": [load_before, os.getloadavg()],
    }


def main() -> None:
    """Measure, simulate, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=2)
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
        found["overhead of a unit, seconds"],
        found["spread of units"],
        found["start-up seconds"]["1 worker, 1 thread each"],
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
