"""The paper's whole study on 1, 8 and 64 GPUs, simulated: real requests, lesion's own units, modelled seconds.

The paper's study (Nepal et al., 2025): 8 models, of 32 or 28 blocks, each asked 3 tasks × 1,000 problems unedited and
with every block switched off. One model is asked after another, on all workers. What a unit takes follows from a model
of batched decoding: rows enter as others leave, and a step takes step · (fixed + (1 − fixed) · rows / batch) seconds,
since reading the weights costs the same for few rows as for many.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from statistics import mean
from typing import Any

from lesion.edits.edit import BASELINE, Edit, ScaleBlock
from lesion.engines.engine import Decoding, Request
from lesion.engines.ray.units import PROMPT_TOKEN, Unit, cut

MODELS = (32, 32, 32, 32, 28, 28, 28, 28)
PROBLEMS = 1000
# Tokens of a prompt and of an answer at most, as lesion asks the three tasks.
TASKS = {"gsm8k": (120, 512), "math500": (120, 1024), "triviaqa": (60, 32)}


@dataclass(frozen=True)
class Assumed:
    """What was not measured on a GPU. Every number of the simulation rests on these.

    Attributes:
        tokens_per_second: that one GPU generates with a full batch.
        rows: of a batch.
        fixed: share of a full step that a step with one row takes as well.
        load_seconds: until a worker has read a model's weights.
    """

    tokens_per_second: float
    rows: int
    fixed: float
    load_seconds: float


@dataclass(frozen=True)
class Measured:
    """What was measured on workers of the machine at hand.

    Attributes:
        overhead_seconds: that a unit takes beyond its answers.
        spread: standard deviation of the seconds of a unit about what its tokens say, as a share.
        start_seconds: until a worker's process is up.
        used: shares of the token limit that answers took, unedited and edited.
    """

    overhead_seconds: float
    spread: float
    start_seconds: float
    used: tuple[tuple[float, ...], tuple[float, ...]]


def sweep(blocks: int) -> list[Request]:
    """Every problem of the three tasks, unedited and with every block switched off."""
    edits: list[Edit] = [BASELINE, *(ScaleBlock(block) for block in range(blocks))]
    rng = random.Random(blocks)
    requests = []
    for task, (length, limit) in TASKS.items():
        for problem in range(PROBLEMS):
            prompt = (len(task), problem, *[0] * max(1, round(rng.gauss(length, length / 4)) - 2))
            requests += [Request(f"{task} {problem} {edit}", prompt, edit, Decoding(limit)) for edit in edits]
    return requests


@cache
def swept(blocks: int) -> list[Request]:
    """The requests of a model, made once."""
    return sweep(blocks)


@cache
def made_of(blocks: int, workers: int, rows: int) -> list[Unit]:
    """The units of a model, cut once."""
    return cut(swept(blocks), workers, rows)


def lengths(requests: Sequence[Request], measured: Measured, rng: random.Random) -> dict[str, int]:
    """How many tokens every answer takes: shares of the limit drawn from those that were measured."""
    plain, edited = measured.used
    return {
        request.key: max(
            1, round(request.decoding.max_new_tokens * rng.choice(plain if request.edit == BASELINE else edited))
        )
        for request in requests
    }


def seconds_of(unit: Unit, tokens: dict[str, int], assumed: Assumed) -> float:
    """What a unit takes a worker: rows enter a batch as others leave it."""
    step = assumed.rows / assumed.tokens_per_second
    ends = [0] * min(assumed.rows, len(unit.requests))
    total = prompts = 0
    seen: set[tuple[int, ...]] = set()
    for key, request in unit.requests.items():
        heapq.heapreplace(ends, ends[0] + tokens[key])
        total += tokens[key]
        prompts += len(request.prompt) if request.prompt not in seen else len(request.prompt) // 2
        seen.add(request.prompt)
    decoding = step * (assumed.fixed * max(ends) + (1 - assumed.fixed) * total / assumed.rows)
    return decoding + PROMPT_TOKEN * prompts / assumed.tokens_per_second


def dealt(seconds: Sequence[float], workers: int, overhead: float) -> tuple[float, float]:
    """When the last worker ends that is given units in this order, and the share of all time that workers wait then."""
    ends = [0.0] * workers
    for unit in seconds:
        heapq.heapreplace(ends, ends[0] + unit + overhead)
    return max(ends), sum(max(ends) - end for end in ends) / (workers * max(ends))


def simulated(workers: int, assumed: Assumed, measured: Measured, seeds: int = 3) -> dict[str, Any]:
    """The whole study on so many workers: hours, and waiting at the end of each model, in several orders of units."""
    hours: dict[str, list[float]] = {"longest first": [], "arbitrary order": [], "one share each": []}
    tails: dict[str, list[float]] = {name: [] for name in hours}
    busy: list[float] = []
    units = 0
    for seed in range(seeds):
        rng = random.Random(seed)
        for name in hours:
            hours[name].append(measured.start_seconds / 3600)
        work = 0.0
        for blocks in MODELS:
            requests = swept(blocks)
            tokens = lengths(requests, measured, rng)
            made = made_of(blocks, workers, assumed.rows)
            units = len(made)
            noise = [max(0.2, rng.gauss(1, measured.spread)) for _ in made]
            times = [seconds_of(unit, tokens, assumed) * factor for unit, factor in zip(made, noise, strict=True)]
            mixed = list(times)
            rng.shuffle(mixed)
            work += sum(times)
            shares = [
                seconds * max(0.2, rng.gauss(1, measured.spread))
                for seconds in shared(requests, workers, tokens, assumed)
            ]
            for name, order in (("longest first", times), ("arbitrary order", mixed), ("one share each", shares)):
                end, tail = dealt(order, workers, measured.overhead_seconds)
                hours[name][-1] += (end + assumed.load_seconds) / 3600
                tails[name].append(tail)
        busy.append(work / 3600)
    return {
        "workers": workers,
        "units of a model": units,
        "hours": {name: mean(values) for name, values in hours.items()},
        "waiting at the end": {name: mean(values) for name, values in tails.items()},
        "busy GPU hours": mean(busy),
        "hours of reading models": len(MODELS) * assumed.load_seconds / 3600,
    }


def shared(requests: Sequence[Request], workers: int, tokens: dict[str, int], assumed: Assumed) -> list[float]:
    """Seconds of every worker when each gets one share of the prompts at the start, as separate jobs would."""
    prompts = {prompt: index for index, prompt in enumerate(dict.fromkeys(request.prompt for request in requests))}
    parts: list[dict[str, Request]] = [{} for _ in range(workers)]
    for request in requests:
        parts[prompts[request.prompt] % workers][request.key] = request
    return [seconds_of(Unit(0, part, 0.0), tokens, assumed) for part in parts]


def table(assumed: Assumed, measured: Measured, counts: Sequence[int], seeds: int = 2) -> dict[str, Any]:
    """The simulation for each number of workers, with the speed-up over one."""
    rows = [simulated(count, assumed, measured, seeds) for count in counts]
    one = rows[0]["hours"]["longest first"]
    for row in rows:
        row["efficiency"] = one / (row["workers"] * row["hours"]["longest first"] / rows[0]["workers"])
        print(f"{row['workers']:4} GPUs, efficiency {row['efficiency']:.1%}:", end="")
        for name, hours in row["hours"].items():
            print(f"  {name} {hours:.2f} h, waiting {row['waiting at the end'][name]:.1%}", end=";")
        print(flush=True)
    told = {"overhead_seconds": measured.overhead_seconds, "spread": measured.spread}
    told["start_seconds"] = measured.start_seconds
    return {"assumed, not measured": asdict(assumed), "measured": told, "rows": rows}
