"""What `engines.py` prints and writes: seconds, ratios, agreement with the plain loop, token steps."""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engines_job import Job, Outcome


@dataclass(frozen=True)
class Entry:
    """A contestant's line: what it found, or why it did not run."""

    title: str
    name: str
    outcome: Outcome | None = None
    skipped: str = ""


def wall(outcome: Outcome, job: Job) -> float:
    """Seconds of the whole sweep, the fastest repeat, scaled up where fewer edits were asked."""
    return min(outcome.wall) * len(job.edits) / len(outcome.edits)


def cpu(outcome: Outcome, job: Job) -> float:
    """The same of processor time."""
    return min(outcome.cpu) * len(job.edits) / len(outcome.edits)


def agreement(one: Outcome, other: Outcome) -> tuple[float, float]:
    """The shares of answers that are equal and of tokens before the first difference, over the edits of both."""
    theirs = dict(zip(other.edits, other.answers, strict=True))
    equal = answers = shared = tokens = 0
    for layer, said in zip(one.edits, one.answers, strict=True):
        for mine, yours in zip(said, theirs.get(layer, []), strict=False):
            answers += 1
            equal += mine == yours
            longest = max(len(mine), len(yours))
            different = next((at for at in range(longest) if mine[at : at + 1] != yours[at : at + 1]), longest)
            shared, tokens = shared + different, tokens + longest
    return equal / max(1, answers), shared / max(1, tokens)


def distinct(outcome: Outcome) -> float:
    """Distinct answers as a share of all: how much an agreement of answers can show."""
    every = [tuple(answer) for said in outcome.answers for answer in said]
    return len(set(every)) / len(every)


def rows(entries: list[Entry], job: Job) -> list[dict[str, Any]]:
    """One per contestant, for the table and for the JSON."""
    loops = [entry.outcome for entry in entries if entry.name == "loop" and entry.outcome]
    reference = min(loops, key=lambda outcome: wall(outcome, job)) if loops else None
    cheapest = min((cpu(outcome, job) for outcome in loops), default=None)
    found: list[dict[str, Any]] = []
    for entry in entries:
        outcome = entry.outcome
        if outcome is None:
            found.append({"who": entry.title, "skipped": entry.skipped})
            continue
        equal, shared = agreement(outcome, reference) if reference else (None, None)
        found.append(
            {
                "who": entry.title,
                "seconds": round(wall(outcome, job), 2),
                "seconds_each": [round(seconds, 2) for seconds in outcome.wall],
                "cpu_seconds": round(cpu(outcome, job), 2),
                "of_loop": round(wall(outcome, job) / wall(reference, job), 3) if reference else None,
                "cpu_of_loop": round(cpu(outcome, job) / cheapest, 3) if cheapest else None,
                "same_answers": None if equal is None else round(equal, 5),
                "same_tokens": None if shared is None else round(shared, 5),
                "distinct_answers": round(distinct(outcome), 4),
                "edits": len(outcome.edits),
                "batch": outcome.size or "auto",
                "startup": round(outcome.startup, 1),
                "steps": outcome.steps,
                "versions": outcome.versions,
            }
        )
    return found


def show(entries: list[Entry], job: Job) -> None:
    """Print the table."""
    print(
        f"\n{'':24}{'seconds':>9}{'× loop':>8}{'CPU s':>9}{'× loop':>8}{'same':>9}{'start-up':>10}{'batch':>7}"
        f"{'steps':>10}"
    )
    for row in rows(entries, job):
        if "skipped" in row:
            print(f"{row['who']:24} skipped: {row['skipped']}")
            continue
        scaled = row["edits"] < len(job.edits)
        of_loop = "–" if row["of_loop"] is None else f"{row['of_loop']:.2f}"
        cpu_of_loop = "–" if row["cpu_of_loop"] is None else f"{row['cpu_of_loop']:.2f}"
        same = "–" if row["same_answers"] is None else f"{100 * row['same_answers']:.2f} %"
        print(
            f"{row['who']:24}{row['seconds']:>9.1f}{of_loop:>8}{row['cpu_seconds']:>9.1f}{cpu_of_loop:>8}{same:>9}"
            f"{row['startup']:>10.1f}{row['batch']:>7}{row['steps'].get('steps', '–'):>10}"
            + (f"  scaled up from {row['edits']} of {len(job.edits)} edits" if scaled else "")
        )
    first = next((entry.outcome for entry in entries if entry.outcome), None)
    if first:
        print(f"same: answers equal to the plain loop's; {100 * distinct(first):.0f} % of its answers are distinct")


def write(entries: list[Entry], job: Job, options: argparse.Namespace, load: float) -> None:
    """The numbers as JSON; `load` is the load average of the machine before."""
    facts = {
        "model": f"random {options.shape}, gain {options.gain:g}" if options.shape else options.model,
        "machine": machine(options.device),
        "threads": options.threads,
        "load_average_before": load,
        "dtype": options.dtype,
        "edits": len(job.edits),
        "items": len(job.questions),
        "prefix": options.prefix,
        "new_tokens": options.new_tokens or "as the tasks say",
        "repeats": options.repeats,
        "rows": rows(entries, job),
    }
    options.out.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def machine(device: str) -> str:
    """The machine in words."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(names) or '?'} cores"
