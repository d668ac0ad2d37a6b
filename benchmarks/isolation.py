"""Isolating a skill's parameters: what it costs, against the published way of computing it and against bare passes.

    python benchmarks/isolation.py                       # the bundled model, and one of Qwen2.5-0.5B's shape
    python benchmarks/isolation.py --models bundled:llama-base --parts statistics,grid
    python benchmarks/isolation.py --quick               # a smoke test
    python benchmarks/isolation.py --device cuda --dtype bfloat16

Five measurements (`--parts`):

    statistics  the statistics pass ÷ bare forward passes over the same batches, in turns
    grid        the published grid, 8 shares × 5 repeats × 2 control sets: lesion's one pass and 80 selections with
                their masks, against the published way (`isolation_published.py`), run for some of the 80 cells.
                Texts are fewer than the published 500 a draw; both are also scaled to 500 by counts.
    masks       masks for eight shares, against a full sort of every matrix on both data sets
    memory      the high-water mark above the loaded model, in a fresh process (`isolation_alone.py`)
    checkpoint  an edit applied to a random 1 GB checkpoint, in one shard and in 100 MB shards, against loading, editing
                and saving with transformers from masks made before

Seconds are medians; the load of the machine is printed, and the CPU time stands beside the wall time where other
programs may disturb it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics as numbers
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isolation_alone import alone, bare, masks_of
from isolation_models import REPEATS, SAMPLES, SHARES, VOCABULARY, calibrations, chosen
from isolation_published import cell, clock
from lesion.activations.observation import TOKENS_ON_ACCELERATOR, TOKENS_ON_CPU, observe
from lesion.activations.readers import probe
from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.selection import fixed_together
from lesion.edits.selections.thresholds import top_count
from lesion.edits.selections.topk import MathNeuro
from lesion.models.load import Model
from sweep import machine

PARTS = ("statistics", "grid", "masks", "memory", "checkpoint")
# Texts of the statistics pass, rounds, texts of a draw of the grid, and cells of the grid run in the published way.
SIZES = {"bundled:llama-base": (200, 7, 20, 8), "qwen2.5-0.5b": (12, 3, 2, 2)}
QUICK = (6, 2, 2, 1)


def timed(run: Callable[[], Any], model: Model) -> tuple[float, float]:
    """Seconds by the wall and by the processor."""
    began, cpu = clock(model), time.process_time()
    run()
    return clock(model) - began, time.process_time() - cpu


def in_turns(ways: dict[str, Callable[[], Any]], rounds: int, model: Model) -> dict[str, dict[str, Any]]:
    """Every way once a round, in changing order, after one round of warm-up; medians, and all rounds."""
    for run in ways.values():
        run()
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways)[:: 1 if number % 2 == 0 else -1]:
            seconds[name].append(timed(ways[name], model))
    return {
        name: {
            "seconds": numbers.median(wall for wall, _ in found),
            "cpu_seconds": numbers.median(cpu for _, cpu in found),
            "rounds": [round(wall, 4) for wall, _ in found],
            "cpu_rounds": [round(cpu, 4) for _, cpu in found],
        }
        for name, found in seconds.items()
    }


def statistics(model: Model, samples: int, rounds: int) -> dict[str, Any]:
    """The statistics pass against bare forward passes over the same batches."""
    skill = calibrations(model, samples, 1)[0]
    budget = TOKENS_ON_CPU if model.device.type == "cpu" else TOKENS_ON_ACCELERATOR
    found = in_turns(
        {
            "bare": lambda: bare(model, skill.texts, budget),
            "observe": lambda: observe(model, skill, batch_tokens=budget),
            "probe": lambda: probe(model),  # a part of `observe` that costs the same for any number of texts
        },
        rounds,
        model,
    )
    ratios = {key: found["observe"][key] / found["bare"][key] for key in ("seconds", "cpu_seconds")}
    pairs = [o / b for o, b in zip(found["observe"]["rounds"], found["bare"]["rounds"], strict=True)]
    tokens = sum(map(len, skill.texts))
    lean = (found["observe"]["cpu_seconds"] - found["probe"]["cpu_seconds"]) / found["bare"]["cpu_seconds"]
    mine, theirs = found["observe"]["seconds"], found["bare"]["seconds"]
    say(f"statistics pass over {samples} texts, {tokens:,} tokens: {mine:.2f} s; bare passes {theirs:.2f} s")
    say(f"  {ratios['seconds']:.3f} × (rounds {min(pairs):.3f} to {max(pairs):.3f})")
    say(f"  CPU time {ratios['cpu_seconds']:.3f} ×, and {lean:.3f} × without the probe before the first text")
    return {
        "texts": samples, "tokens": tokens, **found, "ratio": ratios["seconds"], "cpu_ratio": ratios["cpu_seconds"],
        "cpu_ratio_without_probe": lean, "ratios": [round(pair, 4) for pair in pairs],
    }  # fmt: skip


def grid(model: Model, samples: int, cells: int) -> dict[str, Any]:
    """The published grid by lesion, against some of its cells in the published way."""
    texts = calibrations(model, samples, REPEATS)
    # Cells that are spread over the grid: every share once before any twice, repeats and controls in turn.
    spread = [5, 0, 7, 2, 4, 1, 6, 3]
    picked = [(SHARES[spread[n % 8]], n % REPEATS, 1 + n % 2) for n in range(cells)]
    published = []
    for keep, repeat, control in picked:
        drawn = [[each.texts[place] for place in each.draws[repeat].places] for each in (texts[0], texts[control])]
        published.append(cell(model, drawn[0], drawn[1], keep))
        say(f"  published way, cell {(keep, repeat, control)}: {published[-1].observing:.2f} s of passes, "
            f"{published[-1].selecting:.2f} s of top shares")  # fmt: skip

    began = clock(model)
    skill, *controls = [observe(model, each) for each in texts]
    observed = clock(model)
    selections = {
        (keep, repeat, number): MathNeuro(skill[repeat], (control[repeat],), keep)
        for keep in SHARES
        for repeat in range(REPEATS)
        for number, control in enumerate(controls, 1)
    }
    masks_of(model, list(selections.values()))
    selected = clock(model)
    agreement = [overlap(model, selections[place], there.masks) for place, there in zip(picked, published, strict=True)]

    ours = {"observing": observed - began, "selecting": selected - observed}
    theirs = {
        "observing": numbers.median(each.observing for each in published) * len(selections),
        "selecting": numbers.fmean(each.selecting for each in published) * len(selections),
    }
    mine, there = sum(ours.values()), sum(theirs.values())
    mine_full, there_full = (way["observing"] * SAMPLES / samples + way["selecting"] for way in (ours, theirs))
    once, one_by_one = 3 * REPEATS * samples, 2 * samples * len(selections)
    say(f"grid of {len(selections)} cells at {samples} texts a draw:")
    say(f"  lesion {mine:.1f} s: {once} texts once {ours['observing']:.1f} s, selections {ours['selecting']:.1f} s")
    say(f"  published way {there:.1f} s, {one_by_one} texts one by one, by {cells} cells: {there / mine:.1f} ×")
    say(f"  scaled to {SAMPLES} texts a draw: {mine_full:.0f} s and {there_full:.0f} s: {there_full / mine_full:.1f} ×")
    say(f"  the same sets: IoU {min(agreement):.6f} to {max(agreement):.6f}")
    return {
        "samples": samples, "repeats": REPEATS, "cells": len(selections), "cells_run": [list(each) for each in picked],
        "lesion": ours, "published": theirs, "published_texts": one_by_one, "lesion_texts": once,
        "ratio": there / mine, "seconds_at_500": mine_full, "published_seconds_at_500": there_full,
        "ratio_at_500": there_full / mine_full, "iou": agreement,
    }  # fmt: skip


def overlap(model: Model, selection: MathNeuro, masks: dict[str, Any]) -> float:
    """Intersection over union of a selection's masks and those of the published way, over all matrices."""
    both = either = 0
    for address, matrix in model.anatomy.scored.items():
        mine = selection.mask(address, matrix.read())
        both += int((mine & masks[address]).sum())
        either += int((mine | masks[address]).sum())
    return both / either


def masks(model: Model, rounds: int) -> dict[str, Any]:
    """Masks of MathNeuro for eight shares, against sorting all scores of every matrix on both data sets."""
    skill, control, _ = [observe(model, each)[0] for each in calibrations(model, 3, 1)]
    found = in_turns(
        {
            "lesion": lambda: masks_of(model, [MathNeuro(skill, (control,), keep) for keep in SHARES]),
            "thresholds": lambda: fixed_together([MathNeuro(skill, (control,), keep) for keep in SHARES], model),
            "sorts": lambda: sorts(model, [skill, control]),
        },
        rounds,
        model,
    )
    weights = sum(matrix.shape[0] * matrix.shape[1] for matrix in model.anatomy.scored.values())
    ratio = found["sorts"]["seconds"] / found["lesion"]["seconds"]
    mine, bars, theirs = (found[way]["seconds"] for way in found)
    say(f"masks for {len(SHARES)} shares of {weights / 1e6:.1f} M weights: {mine:.2f} s (thresholds {bars:.2f} s)")
    say(f"  by full sorts {theirs:.2f} s: {ratio:.2f} ×")
    return {"weights": weights, **found, "ratio": ratio}


def sorts(model: Model, observed: Sequence[Inputs]) -> int:
    """The same masks by a full sort in float32 of every matrix on every data set."""
    held = 0
    for address, matrix in model.anatomy.scored.items():
        weight = matrix.read().abs().float()
        scores, ordered = [], []
        for inputs in observed:
            sums = inputs.of(address)
            assert sums is not None
            scores.append(weight * sums.norms.to(weight.device))
            ordered.append(np.sort(scores[-1].flatten().cpu().numpy()))
        for keep in SHARES:
            k = top_count(keep, weight.numel())
            skill, *controls = [s >= float(o[-k]) for s, o in zip(scores, ordered, strict=True)]
            for mask in controls:
                skill &= ~mask
            held += int(skill.sum())
    return held


def memory(options: argparse.Namespace, name: str, samples: int) -> dict[str, Any]:
    """High-water marks above the loaded model, each way in a fresh process."""
    budget = TOKENS_ON_CPU if options.device == "cpu" else TOKENS_ON_ACCELERATOR
    settings = {"model": name, "dtype": options.dtype, "device": options.device, "samples": samples,
                "threads": options.threads, "batch_tokens": budget}  # fmt: skip
    found = {way: alone(f"memory:{way}", **settings) for way in ("bare", "observe", "select", "published")}
    size, matrix = (found["bare"][key] for key in ("model_bytes", "matrix_bytes"))
    for each in found.values():
        each["of_model"], each["matrices"] = each["bytes"] / size, each["bytes"] / matrix
    say(f"memory above the model of {size / 1e6:.0f} MB, whose largest matrix has {matrix / 1e6:.1f} MB:")
    for way, each in found.items():
        of_model, of_matrix = each["of_model"], each["matrices"]
        say(f"  {way:10} {each['bytes'] / 1e6:7.0f} MB, {of_model:.2f} × the model, {of_matrix:.1f} matrices")
    return found


def checkpoint(options: argparse.Namespace, rounds: int) -> dict[str, Any]:
    """An edit written into a checkpoint of 1 GB, against loading, editing and saving with transformers."""
    folder = Path(tempfile.mkdtemp(prefix="lesion-benchmark-"))
    settings = {"folder": str(folder), "threads": options.threads}
    try:
        made = alone("prepare", blocks=1 if options.quick else 10, **settings)
        say(f"checkpoint of {made['bytes'] / 1e9:.2f} GB, edit of {made['edit_bytes'] / 1e3:.0f} kB "
            f"(its masks {made['mask_bytes'] / 1e6:.0f} MB)")  # fmt: skip
        rows: dict[str, Any] = {}
        for source in ("whole", "sharded"):
            runs: dict[str, list[dict[str, Any]]] = {"lesion": [], "transformers": []}
            for number in range(rounds):
                for who in list(runs)[:: 1 if number % 2 == 0 else -1]:
                    os.sync()  # nobody pays for what another has written
                    runs[who].append(alone(f"apply:{who}", source=source, **settings))
                    shutil.rmtree(folder / f"out-{who}")
            rows[source] = {
                who: {key: numbers.median(run[key] for run in found) for key in found[0]} for who, found in runs.items()
            }
            mine, theirs = rows[source]["lesion"], rows[source]["transformers"]
            rows[source]["ratio"] = theirs["seconds"] / mine["seconds"]
            rows[source]["memory_ratio"] = theirs["bytes"] / mine["bytes"]
            say(f"  {made['shards'][source]} shard(s):")
            for who, each in (("lesion", mine), ("transformers", theirs)):
                say(
                    f"    {who:12} {each['seconds']:5.1f} s, and {each['then_synced']:.1f} s until it is on the disk "
                    f"(CPU {each['cpu_seconds']:.1f} s); {each['bytes'] / 1e6:.0f} MB above the start"
                )
            say(f"    {rows[source]['ratio']:.2f} × the time, {rows[source]['memory_ratio']:.1f} × the memory")
        return {**made, **rows}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def say(text: str) -> None:
    """Print now."""
    print(text, flush=True)


def main() -> None:
    """Run the measurements that were asked for, and write them where it was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="bundled:llama-base,qwen2.5-0.5b")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="a smoke test: few texts, the bundled model only")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    parts = options.parts.split(",")
    torch.set_num_threads(options.threads)
    names = ["bundled:llama-base"] if options.quick else options.models.split(",")
    say(f"{machine(options.device)}, torch {torch.__version__}, {options.dtype}, load {os.getloadavg()[0]:.2f}")
    facts: dict[str, Any] = {
        "machine": machine(options.device), "cores": os.cpu_count(), "threads": options.threads,
        "torch": torch.__version__, "dtype": options.dtype, "load_before": os.getloadavg()[0], "models": {},
        "vocabulary_of_random_model": VOCABULARY,
    }  # fmt: skip
    for name in names:
        samples, rounds, drawn, cells = QUICK if options.quick else SIZES.get(name, SIZES["qwen2.5-0.5b"])
        model = chosen(name, options.dtype, options.device)
        say(f"\n{model.name}, load {os.getloadavg()[0]:.2f}")
        found = facts["models"].setdefault(model.name, {})
        if "statistics" in parts:
            found["statistics"] = statistics(model, samples, rounds)
        if "grid" in parts:
            found["grid"] = grid(model, drawn, cells)
        if "masks" in parts:
            found["masks"] = masks(model, min(rounds, 3))
        del model
        if "memory" in parts:
            found["memory"] = memory(options, name, samples)
        write(facts, options.out)
    if "checkpoint" in parts:
        say("")
        facts["checkpoint"] = checkpoint(options, 1 if options.quick else 3)
    say(f"\nload {os.getloadavg()[0]:.2f}")
    write(facts, options.out)


def write(facts: dict[str, Any], out: Path | None) -> None:
    """Write what is known so far: a long run that is stopped is not lost."""
    if out is not None:
        out.write_text(json.dumps({**facts, "load_after": os.getloadavg()[0]}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
