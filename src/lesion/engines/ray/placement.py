"""Where workers find room: how many of them, with how many GPUs and processor cores each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from lesion.engines.config import EngineChoice
from lesion.errors import UsageError


@dataclass(frozen=True)
class Node:
    """A machine of the cluster: its name, its processor cores and its GPUs."""

    host: str
    cores: int
    gpus: int


@dataclass(frozen=True)
class Placement:
    """How many workers, what each has (GPUs, reserved cores, threads), and how many share a machine at most."""

    workers: int
    gpus: int
    cores: int
    threads: int
    sharers: int


def cores_here() -> int:
    """The processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def refuse_crowd(choice: EngineChoice, cores: int, place: str) -> None:
    """Refuse more workers than there are processor cores."""
    if choice.workers is not None and choice.workers > cores:
        raise UsageError(
            f"{choice.workers} workers are asked for, and {place} has {cores} processor core{'s' * (cores != 1)}: at"
            f" most --workers {cores}."
        )


def planned(choice: EngineChoice, nodes: Sequence[Node], device: str, place: str) -> Placement:
    """Workers as chosen, on these machines.

    Args:
        device: of the model, as typed: `auto` takes GPUs where there are any, `cpu` none.
        place: the machines in words, for messages.
    """
    refuse_crowd(choice, sum(node.cores for node in nodes), place)
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"Workers find their GPUs by themselves: give --device auto, cpu or cuda, not {device}.")
    gpus = sum(node.gpus for node in nodes)
    if device == "cuda" and not gpus:
        raise UsageError(f"{place[0].upper()}{place[1:]} has no GPU; leave --device out.")
    return _on_gpus(choice, nodes, place) if gpus and device != "cpu" else _on_cores(choice, nodes, place)


def _on_gpus(choice: EngineChoice, nodes: Sequence[Node], place: str) -> Placement:
    each = choice.gpus_per_worker
    there = sum(node.gpus for node in nodes)
    slots = sum(node.gpus // each for node in nodes)
    workers = choice.workers or slots
    if workers > slots or not slots:
        wanted = f"{workers} worker{'s' * (workers != 1)}" if choice.workers else "A worker"
        how = f" with {each} GPUs each" if each > 1 else ""
        machines = "" if len(nodes) == 1 else f" on {len(nodes)} machines"
        split = "; the GPUs of a worker are those of one machine" if workers * each <= there else ""
        advice = f"--workers {slots}" if slots else f"--gpus-per-worker {max(node.gpus for node in nodes)}"
        raise UsageError(
            f"{wanted}{how} need{'s' * (workers == 1 or not choice.workers)} {max(1, workers) * each} GPUs, and {place}"
            f" has {there}{machines}{split}: at most {advice}, or --device cpu."
        )
    holding = [(node, node.gpus // each) for node in nodes if node.gpus >= each]
    sharers = max(min(held, workers) for _, held in holding)
    threads = min(max(1, node.cores // min(held, workers)) for node, held in holding)
    return Placement(workers, each, 1, _at_most(threads), sharers)


def _on_cores(choice: EngineChoice, nodes: Sequence[Node], place: str) -> Placement:
    if choice.gpus_per_worker > 1:
        raise UsageError(
            f"A model cannot be spread over {choice.gpus_per_worker} GPUs: workers of {place} compute on the processor."
            f" Leave --gpus-per-worker out."
        )
    if choice.workers is None:
        cores = sum(node.cores for node in nodes)
        raise UsageError(
            f"There is one worker for every GPU, and {place} offers none: say how many workers are to share its"
            f" {cores} processor cores, as --workers N."
        )
    # The largest share of which all machines together have enough.
    share = max(
        cores
        for cores in range(1, max(node.cores for node in nodes) + 1)
        if cores == 1 or sum(node.cores // cores for node in nodes) >= choice.workers
    )
    sharers = max(min(choice.workers, node.cores // share) for node in nodes)
    return Placement(choice.workers, 0, share, _at_most(share), sharers)


def _at_most(threads: int) -> int:
    stated = os.environ.get("OMP_NUM_THREADS", "")
    return min(threads, int(stated)) if stated.isdecimal() and int(stated) > 0 else threads
