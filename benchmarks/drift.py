"""k-means of drift against scikit-learn's, and the memory of a spool of hidden states.

    python benchmarks/drift.py --threads 1 --out benchmarks/results/drift.json
    python benchmarks/drift.py --threads 2 --seeds 3

6,000 tokens × 1,024 dimensions × 50 clusters, 10 starts, on layers of a real model and on pure noise. No bundled model
is 1,024 wide: its layers are turned into 1,024 dimensions, where the missing ones get noise that carries their spectrum
on as the power law that it follows. Both are timed in one process, by turns, on the same float32 numbers and cores, in
seconds of the clock and of the processor: where others use the machine, the latter are to be believed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TOKENS, WIDTH, CLUSTERS, STARTS = 6000, 1024, 50, 10
# Bare passes, passes with every layer spooled to disk, and passes that keep all layers, as is usual.
WAYS, PROCESSES = ("alone", "spooled", "kept"), 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="of both contestants; 1 by default")
    parser.add_argument("--seeds", type=int, default=2, help="each is run once for each of so many seeds; 2 by default")
    parser.add_argument(
        "--model", default="bundled:llama-base", help="whose hidden states; bundled:llama-base by default"
    )
    parser.add_argument("--layers", default="1,4,8", help="of the model; 1,4,8 by default")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers, one entry a number of threads")
    parser.add_argument("--memory", choices=WAYS, help="only this measurement of memory, in this process")
    options = parser.parse_args()
    for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[key] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    if options.memory:
        print(json.dumps(measure(options.memory, options.model)))
        return
    spool, layers = spooled(options.model, [int(layer) for layer in options.layers.split(",")])
    found = {
        "machine": f"{platform.machine()} CPU, {options.threads} threads",
        "torch": torch.__version__,
        "tokens": TOKENS,
        "width": WIDTH,
        "clusters": CLUSTERS,
        "starts": STARTS,
        "spool": spool,
        "data": [race(name, points, options.seeds) for name, points in data(options.model, layers)],
    }
    print(f"\nhidden states: {json.dumps(spool)}")
    if options.out:
        # One entry a number of threads, so that both stand in one file.
        kept = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
        kept[f"{options.threads} threads"] = found
        options.out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def spooled(name: str, layers: list[int]) -> tuple[dict[str, Any], dict[int, Any]]:
    """Some layers of a model over its own task, and what passes of a wide model over its texts take, each way."""
    from lesion.activations.hidden_states import hidden_states

    model, texts = calibration(name)
    with hidden_states(model, texts) as states:
        found = {layer: states.layer(layer)[:TOKENS] for layer in layers}
    tokens, config = sum(map(len, texts)), wide(model.tokenizer)
    told: dict[str, Any] = {
        "model": f"random Llama, {config.num_hidden_layers} blocks, width {WIDTH}",
        "tokens": tokens,
        "mib_of_one_layer": mib(tokens * WIDTH * 4),
        "mib_of_all_layers": mib((config.num_hidden_layers + 1) * tokens * WIDTH * 4),
    }
    for way in WAYS:
        # Memory that an earlier measurement gave back and the process kept would hide what a later one needs.
        alone = [sys.executable, __file__, "--memory", way, "--model", name, "--threads", os.environ["OMP_NUM_THREADS"]]
        runs = [json.loads(subprocess.check_output(alone, text=True)) for _ in range(PROCESSES)]
        told[way] = {key: [run[key] for run in runs] for key in runs[0]}
    return told, found


def calibration(name: str) -> tuple[Any, list[tuple[int, ...]]]:
    """A model and its own task's texts, as many as have the tokens."""
    from lesion.models.load import load
    from lesion.tasks.catalogue import draw, find
    from lesion.tasks.continuations import encode_solved
    from lesion.tasks.prompts import resolve

    model, task = load(name), find("primer:arithmetic")
    style = resolve(model, task, None)
    texts: list[tuple[int, ...]] = []
    for item in draw(task, 200, 0):
        texts.append(tuple(encode_solved(model, task, item, style)))
        if sum(map(len, texts)) >= TOKENS:
            break
    return model, texts


def wide(tokenizer: Any) -> Any:
    """The configuration of a Llama as wide as the benchmark."""
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=WIDTH, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4,
        vocab_size=len(tokenizer),
    )  # fmt: skip


def measure(way: str, name: str) -> dict[str, Any]:
    """Seconds, and MiB above the model at the high-water mark, of one pass of a wide random model over the texts."""
    import torch
    from transformers import LlamaForCausalLM

    from isolation_alone import bare, measured
    from lesion.activations.hidden_states import TOKENS_ON_CPU, hidden_states
    from lesion.models.load import wrap

    source, texts = calibration(name)
    torch.manual_seed(0)
    model = wrap(LlamaForCausalLM(wide(source.tokenizer)), source.tokenizer, "random Llama")
    bare(model, (texts[0],), TOKENS_ON_CPU)  # warm-up, on one text: what a whole batch needs is measured

    def kept() -> None:
        with torch.inference_mode():
            states = [model.network(torch.tensor([text]), output_hidden_states=True).hidden_states for text in texts]
        assert len(states) == len(texts)

    run: dict[str, Callable[[], object]] = {
        "alone": lambda: bare(model, tuple(texts), TOKENS_ON_CPU),
        "spooled": lambda: hidden_states(model, texts).close(),
        "kept": kept,
    }
    found = measured(run[way])
    return {"seconds": found["seconds"], "mib_above_the_model": mib(found["bytes"])}


def mib(count: float) -> float:
    return round(count / 2**20, 1)


def data(model: str, layers: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    """What is clustered, by name."""
    import numpy as np

    for layer, states in layers.items():
        rng = np.random.default_rng(layer)
        centred = states.astype(np.float64) - states.mean(axis=0, dtype=np.float64)
        spectrum = np.linalg.eigvalsh(centred.T @ centred / len(states))[::-1]
        own = len(spectrum)
        # Neither the first directions, which are the clusters', nor the very last, which are the final norm's.
        fitted = np.arange(own // 6, own * 6 // 7)
        law = np.polyfit(np.log(fitted + 1), np.log(spectrum[fitted]), 1)
        tail = np.exp(np.polyval(law, np.log(np.arange(own + 1, WIDTH + 1))))
        turned, _ = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))
        wide = np.concatenate([states, rng.normal(size=(len(states), WIDTH - own)) * np.sqrt(tail)], axis=1) @ turned.T
        yield f"layer {layer} of {model}, widened", wide.astype(np.float32)
    yield "noise", np.random.default_rng(0).normal(size=(TOKENS, WIDTH)).astype(np.float32)


def race(name: str, points: Any, seeds: int) -> dict[str, Any]:
    """Both on the same points, by turns; the median of the seconds, all inertias."""
    import numpy as np
    import torch
    from sklearn.cluster import KMeans

    from lesion.statistics.kmeans import kmeans

    def ours(seed: int) -> float:
        return kmeans(torch.from_numpy(points), CLUSTERS, starts=STARTS, seed=seed).inertia

    def theirs(seed: int) -> float:
        return float(KMeans(CLUSTERS, n_init=STARTS, random_state=seed, tol=1e-4).fit(points).inertia_)

    ours(0)  # warm-up
    runs: dict[str, list[tuple[float, float, float]]] = {"lesion": [], "scikit-learn": []}
    for seed in range(seeds):
        for who, run in (("lesion", ours), ("scikit-learn", theirs)):
            runs[who].append(timed(run, seed))
    found: dict[str, Any] = {"data": name, "tokens": len(points)}
    for who, done in runs.items():
        found[who] = {
            "seconds": round(statistics.median(run[0] for run in done), 3),
            "processor_seconds": round(statistics.median(run[1] for run in done), 3),
            "inertia": [run[2] for run in done],
        }
    mine, other = found["lesion"], found["scikit-learn"]
    found["times_faster"] = round(other["seconds"] / mine["seconds"], 2)
    found["times_less_processor"] = round(other["processor_seconds"] / mine["processor_seconds"], 2)
    found["inertia_ratio"] = round(float(np.mean(mine["inertia"]) / np.mean(other["inertia"])), 5)
    found["worst_inertia_ratio"] = round(max(mine["inertia"]) / min(other["inertia"]), 5)
    print(
        f"{name:44} {mine['seconds']:7.2f} s ({mine['processor_seconds']:.2f})  scikit-learn {other['seconds']:7.2f} s"
        f" ({other['processor_seconds']:.2f})  × {found['times_faster']:.1f} ({found['times_less_processor']:.1f})"
        f"  inertia {found['inertia_ratio']:.4f}, worst {found['worst_inertia_ratio']:.4f}",
        flush=True,
    )
    return found


def timed(run: Callable[[int], float], seed: int) -> tuple[float, float, float]:
    """Seconds of the clock, of the processor, and what came out."""
    clock, processor = time.perf_counter(), time.process_time()
    inertia = run(seed)
    return time.perf_counter() - clock, time.process_time() - processor, inertia


if __name__ == "__main__":
    main()
