"""Could the test that children keep their base's critical blocks have failed? Distances of weights, and random noise.

    python benchmarks/origins.py --work origins/                     # about fifteen minutes on a core
    python benchmarks/origins.py --work origins/ --other seed1/base/model   # and a base trained from another seed

Children that hardly move from their base cannot have other critical blocks. So this script measures how far they move,
‖child − base‖ ÷ ‖base‖, and what happens to a base that is moved as far, or further, in a random
direction: Gaussian noise on every parameter tensor, of the norm of that tensor's difference between the most distant
child and the base, or a multiple of it. Each noisy model is ablated on the same items; its drops are compared with the
base's. Where noise keeps the critical blocks, so would any training of that size, and agreement of children with their
base says nothing of where training puts a skill. `--other` is a control of another kind: a base of the same
architecture, trained alike from another seed, which shares with the first all but the accidents of its training.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata, spearmanr
from torch import Tensor

import lesion
from lesion.models.load import Model, load, wrap
from lesion.statistics.agreement import overlap, permutation_p
from sweep import machine

CHILDREN = ("instruct", "rlvr", "distill")


def distances(base: Mapping[str, Tensor], child: Mapping[str, Tensor]) -> tuple[float, float, dict[str, float]]:
    """‖child − base‖ ÷ ‖base‖ of all parameters and of the blocks' matrices, and ‖child − base‖ of each parameter."""
    moved = {name: float((child[name].double() - value.double()).norm()) for name, value in base.items()}
    size = {name: float(value.double().norm()) for name, value in base.items()}
    matrices = [name for name, value in base.items() if ".layers." in name and value.ndim == 2]

    def share(names: Sequence[str]) -> float:
        over, under = (sum(norm[name] ** 2 for name in names) for norm in (moved, size))
        return float((over / under) ** 0.5)

    return share(list(base)), share(matrices), moved


def noisy(source: str, norms: Mapping[str, float], times: float, seed: int) -> Model:
    """The base with Gaussian noise on every parameter, of so many times the norm given for it."""
    model = load(source, dtype="float32", device="cpu")
    generator = torch.Generator().manual_seed(seed)
    with torch.inference_mode():
        for name, parameter in model.network.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter += times * norms[name] * noise / noise.norm()
    return wrap(model.network, model.tokenizer, f"noise ×{times:g}, seed {seed}")


def ablated(model: str | Model, items: int, folder: Path) -> dict[str, Any]:
    """Accuracy, drops and critical blocks of a model on arithmetic."""
    summary = lesion.ablate(
        model, "primer:arithmetic", items=items, dtype="float32", device="cpu", anyway=True, out=folder
    ).summary
    (task,) = summary.models[0].tasks
    return {
        "accuracy": task.baseline.accuracy.value,
        "drops": [cell.drop.value for cell in task.cells],
        "critical": [cell.layer for cell in task.cells if cell.critical],
    }


def compared(base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Spearman's ρ of the drops with its one-sided exact p, and the overlap of the critical sets against chance."""
    shared = overlap(len(base["drops"]), base["critical"], other["critical"])
    ranks = [rankdata(one["drops"]) for one in (base, other)]
    return {
        "rho": float(spearmanr(base["drops"], other["drops"]).statistic),
        "rho_p": permutation_p(*ranks),
        "shared": list(shared.shared),
        "expected": shared.expected,
        "overlap_p": shared.p,
    }


def main() -> None:
    """Measure, print and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="llama", choices=["llama", "qwen2"])
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--times", type=float, nargs="+", default=[1.0, 2.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--other", help="a base of another seed, as a folder")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--work", type=Path, required=True, help="folder of the answers; asked once")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    source = f"bundled:{options.family}-base"
    weights = dict(load(source, dtype="float32", device="cpu").network.named_parameters())
    moved = {}
    for child in CHILDREN:
        other = load(f"bundled:{options.family}-{child}", dtype="float32", device="cpu")
        moved[child] = distances(weights, dict(other.network.named_parameters()))
        everything, matrices, _ = moved[child]
        print(f"{child}: moved {100 * everything:.1f} % of the base's norm, matrices of blocks {100 * matrices:.1f} %")
    farthest = max(moved, key=lambda child: moved[child][0])
    base = ablated(source, options.items, options.work / "base")
    print(f"{source}: {_told(base)}", flush=True)
    rows = []
    for times in options.times:
        for seed in range(options.seeds):
            model = noisy(source, moved[farthest][2], times, seed)
            found = ablated(model, options.items, options.work / f"noise{times:g}-seed{seed}")
            rows.append({"times": times, "seed": seed, **found, **compared(base, found)})
            print(f"{model.name}: {_told(rows[-1])}", flush=True)
    another = None
    if options.other:
        found = ablated(options.other, options.items, options.work / "other")
        another = {**found, **compared(base, found)}
        print(f"{options.other}: {_told(another)}", flush=True)
    if options.out is not None:
        numbers = {
            "machine": machine("cpu"),
            "torch": str(torch.__version__),
            "items": options.items,
            "family": options.family,
            "moved": {child: {"all": value[0], "matrices": value[1]} for child, value in moved.items()},
            "noise_like": farthest,
            "base": base,
            "noise": rows,
            "other": another,
        }
        options.out.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def _told(found: Mapping[str, Any]) -> str:
    drops = " ".join(f"{100 * drop:.0f}" for drop in np.array(found["drops"]))
    text = f"{100 * found['accuracy']:.1f} %, drops {drops}, critical {found['critical']}"
    if "rho" not in found:
        return text
    return (
        f"{text}; ρ with the base {found['rho']:.2f} (p {found['rho_p']:.4f}), shared {len(found['shared'])}, by chance"
        f" {found['expected']:.2f} (p {found['overlap_p']:.3f})"
    )


if __name__ == "__main__":
    main()
