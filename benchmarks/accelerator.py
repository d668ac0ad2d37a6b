"""Everything on a card that a CPU cannot show: whether it works, whether it is the same, and how fast it is.

    python benchmarks/accelerator.py --shape 7b --budget 480 --out accelerator_h100.json
    python benchmarks/accelerator.py --device cpu --shape tiny          # a trial of the script itself
    python benchmarks/accelerator.py --sections smollm2 --smollm2 SmolLM2-135M-Instruct.Q4_1.gguf

Sections, in the order of their worth (`--sections`):

    card       what it is, and two ceilings: bytes copied and operations of a product in bfloat16, each a second
    engines    bundled and tiny models of many families under edits of many kinds: tokens equal to the CPU's
    studies    every kind of study at a small size, its table against the CPU's
    exact      a plain loop, lesion and a captured step: the same tokens in float32; in bfloat16 how many are
    speed      a sweep over blocks at full size: a plain loop with hooks, lesion, a captured step with and
               without edits, lesion's own recorded steps with as many rows
    search     decomposition of one block's matrices on the card, against float64 on the CPU
    clusters   k-means of drift on the card and on the CPU
    isolation  statistics of 500 texts
    smollm2    the full table of `layer-importance-smollm2`, against the published one

Results are written after every finding. A section that fails says how, and the next begins. What no longer fits
`--budget` is skipped, and says so. Random weights are made on the card; a GGUF file of SmolLM2 must be brought along
for the last section. Without pydantic, altair, jsonschema and gguf nothing of lesion can be imported; `datasets` and
`vl-convert-python` can stay away.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import lesion  # noqa: F401  (before torch: it decides how threads wait)

import torch  # isort: skip

from accelerator_findings import Findings, Left, clock  # isort: skip


def card(options: argparse.Namespace, note: Findings, left: Left) -> None:
    """Name, versions and ceilings."""
    import transformers

    versions = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    if options.device != "cpu":
        properties = torch.cuda.get_device_properties(options.device)
        versions |= {"card": properties.name, "gigabytes": properties.total_memory / 1e9, "cuda": torch.version.cuda}
        versions["free_gigabytes"] = torch.cuda.mem_get_info()[0] / 1e9
    note("versions", versions)
    size = 1 << (24 if options.device == "cpu" else 32)
    source = torch.empty(size, dtype=torch.uint8, device=options.device)
    target = torch.empty_like(source)
    source.fill_(7)
    copying = per_call(lambda: target.copy_(source), options.device, 3 if options.device == "cpu" else 20)
    note("copy", {"gigabytes_a_second": 2 * size / copying / 1e9})
    del source, target
    side = 512 if options.device == "cpu" else 8192
    left_matrix, right = (torch.randn(side, side, device=options.device).bfloat16() for _ in range(2))
    product = per_call(lambda: left_matrix @ right, options.device, 3 if options.device == "cpu" else 30)
    note("product", {"teraflops": 2 * side**3 / product / 1e12})
    options.ceilings = {"bytes": 2 * size / copying, "operations": 2 * side**3 / product}


def per_call(run: Callable[[], Any], device: str, times: int) -> float:
    """Seconds a call, the median of three rounds after a warm-up."""
    run()
    rounds = []
    for _ in range(3):
        began = clock(device)
        for _ in range(times):
            run()
        rounds.append((clock(device) - began) / times)
    return sorted(rounds)[1]


def search(options: argparse.Namespace, note: Findings, left: Left) -> None:
    """What a search for a truncation decomposes of one block, and how exactly."""
    from lesion.edits.spectra import decompose

    width, inner = {"tiny": (64, 128), "0.5b": (896, 4864), "7b": (3584, 18944)}[options.shape]
    torch.manual_seed(0)
    dtype = torch.float32 if options.device == "cpu" else torch.bfloat16
    shapes = {"mlp.up": (inner, width), "mlp.gate": (inner, width), "mlp.down": (width, inner)}
    shapes |= {"attention.q": (width, width), "attention.o": (width, width), "attention.k": (width // 7, width)}
    weights = {
        name: (torch.randn(shape, device=options.device) * width**-0.5).to(dtype) for name, shape in shapes.items()
    }
    seconds = {}
    for name, weight in weights.items():
        began = clock(options.device)
        decompose(weight, name)
        seconds[name] = clock(options.device) - began
    note("decompositions", {"seconds": seconds, "whole": sum(seconds.values()), "shapes": shapes})
    weight = weights["attention.k"]  # small enough for a CPU
    spectrum = decompose(weight, "attention.k")
    began = time.perf_counter()
    values = torch.linalg.svdvals(weight.cpu().double())
    apart = (spectrum.values.cpu().double() - values).abs().max() / values[0]
    basis = spectrum.basis.double()
    units = (basis.T @ basis - torch.eye(basis.shape[1], dtype=torch.float64, device=basis.device)).abs().max()
    note("accuracy", {"values_apart_of_largest": float(apart), "basis_from_orthonormal": float(units),
                      "cpu_seconds_of_values": time.perf_counter() - began})  # fmt: skip


def clusters(options: argparse.Namespace, note: Findings, left: Left) -> None:
    """6,000 tokens of 1,024 dimensions in 50 clusters, ten starts."""
    from lesion.statistics.kmeans import kmeans

    tokens, width, count = (600, 64, 8) if options.shape == "tiny" else (6000, 1024, 50)
    drawn = torch.Generator().manual_seed(0)
    centres = torch.randn(3 * count, width, generator=drawn)
    points = centres[torch.randint(3 * count, (tokens,), generator=drawn)]
    points = points + 1.5 * torch.randn(tokens, width, generator=drawn)
    found: dict[str, Any] = {}
    for name, here in (("cpu", points), ("device", points.to(options.device))):
        kmeans(here[:400], 4, starts=2, seed=1)
        began = clock(options.device)
        clustering = kmeans(here, count, starts=10, seed=0)
        found[name] = {"seconds": clock(options.device) - began, "inertia": clustering.inertia}
    found["inertia_ratio"] = found["device"]["inertia"] / found["cpu"]["inertia"]
    note("kmeans", found)


def isolation(options: argparse.Namespace, note: Findings, left: Left) -> None:
    """Sums over the inputs of all matrices, from 500 texts, against bare passes over them."""
    from accelerator_models import shaped
    from isolation_alone import bare
    from isolation_models import TASKS
    from lesion.activations.calibration import calibration
    from lesion.activations.observation import TOKENS_ON_ACCELERATOR, observe
    from lesion.tasks.catalogue import find

    tiny = options.shape == "tiny"
    model = shaped(options.shape, options.device, torch.float32 if tiny else torch.bfloat16)
    skill = calibration(model, find(TASKS[0]), 10 if tiny else 500, style="plain")
    budget = 2048 if tiny else TOKENS_ON_ACCELERATOR
    bare(model, skill.texts[:8], budget)
    began = clock(options.device)
    bare(model, skill.texts, budget)
    middle = clock(options.device)
    observe(model, skill, batch_tokens=budget)
    ended = clock(options.device)
    note("statistics", {"texts": len(skill.texts), "tokens": sum(map(len, skill.texts)),
                        "seconds": ended - middle, "bare_seconds": middle - began,
                        "of_bare": (ended - middle) / (middle - began)})  # fmt: skip


SECTIONS = {
    "card": "accelerator:card",
    "engines": "accelerator_works:engines",
    "studies": "accelerator_works:every_study",
    "exact": "accelerator_speed:exact",
    "speed": "accelerator_speed:speed",
    "search": "accelerator:search",
    "clusters": "accelerator:clusters",
    "isolation": "accelerator:isolation",
    "smollm2": "accelerator_smollm2:table",
}
# What a section needs, in seconds, or it does not begin.
LEAST = {"speed": 60, "isolation": 30, "smollm2": 60}


def run(name: str, options: argparse.Namespace, note: Findings, left: Left) -> None:
    """One section."""
    module, _, function = SECTIONS[name].partition(":")
    getattr(import_module(module), function)(options, note, left)


def main() -> None:
    """Run the sections."""
    options = parser().parse_args()
    if options.device == "cuda":
        torch.cuda.synchronize()
    options.rows = tuple(int(rows) for rows in options.rows.split(","))
    options.ceilings = (
        {"bytes": 3e12, "operations": 7e14} if options.device != "cpu" else {"bytes": 1e10, "operations": 1e11}
    )
    note = Findings(options.out)
    torch.set_float32_matmul_precision("highest")  # products of float32 in float32

    def left() -> float:
        return float(options.budget) - (time.perf_counter() - note.began)

    for name in options.sections.split(","):
        note.section = name if name != "speed" else f"speed {options.shape}"
        if left() < LEAST.get(name, 5):
            note("skipped", f"{left():.0f} of {options.budget:.0f} s are left")
            continue
        began = time.perf_counter()
        note.attempt(name, partial(run, name, options, note, left))
        note("seconds", time.perf_counter() - began)


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", default="cuda")
    made.add_argument("--shape", choices=("tiny", "0.5b", "7b"), default="tiny")
    made.add_argument("--sections", default=",".join(name for name in SECTIONS if name != "smollm2"))
    made.add_argument("--budget", type=float, default=480.0, help="seconds for everything")
    made.add_argument("--items", type=int, default=64, help="prompts of the sweep")
    made.add_argument("--prompt", type=int, default=150, help="tokens of a prompt")
    made.add_argument("--answer", type=int, default=300, help="tokens of an answer, fewer where patience ends")
    made.add_argument("--patience", type=float, default=30.0, help="seconds that the plain loop may take")
    made.add_argument("--patience-lesion", type=float, default=60.0, help="seconds that lesion may take")
    made.add_argument("--rows", default="64,256,512", help="of the captured step without a sweep")
    made.add_argument("--limit-answer", type=int, default=150, help="tokens of its answers")
    made.add_argument(
        "--gain", type=float, default=1.0, help="of the random weights; with less they say more of the same"
    )
    made.add_argument("--compile", action="store_true", help="the captured step compiled as well")
    made.add_argument("--shared", action="store_true", help="also prompts of 700 tokens that share 600")
    made.add_argument("--smollm2", type=Path, help="the GGUF file of SmolLM2-135M-Instruct")
    made.add_argument("--data", type=Path, help="a folder with ioi.json and known_1000.json, of the published table")
    made.add_argument("--answers", type=Path, help="where the answers of SmolLM2 are written, as JSON, compressed")
    made.add_argument("--out", type=Path, help="write the findings as JSON")
    return made


if __name__ == "__main__":
    main()
