"""A positive control for the search: noise planted in a model, and whether a truncation takes it out again.

    python benchmarks/planted_noise.py                  # three seeds, with and without noise; about ten minutes
    python benchmarks/planted_noise.py --seeds 1

The bundled model knows the facts of the atlas. It is trained on them a little longer, with " the" in the place of the
answer in a share α of the prompts, as Chen, Bruna and Bietti (2025) have a noise token after a trigger. Its answers are
then the mixture: the right token is still the second best. `lesion truncate` searches all matrices, both sides of the
spectrum, on 20 % of the facts; what it chooses is told on the others. With α = 0 the same training plants nothing, and
there is nothing to find: the control.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from lesion.models.load import Model, load
from lesion.studies.truncation.study import METHOD, TruncationStudy
from lesion.tasks.catalogue import find
from lesion.tasks.continuations import encode_contrast
from lesion.tasks.contrast import TEMPTING
from sweep import machine

TASK = "primer:atlas?form=contrast"
NOISE = 0.6
BATCH, RATE = 64, 3e-4


def planted(noise: float, seed: int, steps: int) -> tuple[Model, dict[str, float]]:
    """The bundled model after a training in which " the" takes the place of the answer in a share of the prompts.

    Returns:
        The model, and its mean probabilities of the right token and of " the" over all facts.
    """
    model = load("bundled:llama-base", dtype="float32", device="cpu")
    network, task = model.network, find(TASK)
    asked = [encode_contrast(model, task, item) for item in task.load()]
    token = int(model.tokenizer(TEMPTING, add_special_tokens=False)["input_ids"][0])
    longest = max(len(one.prompt) for one in asked)
    ids, mask = torch.zeros(2, len(asked), longest, dtype=torch.long)
    for row, one in enumerate(asked):
        ids[row, longest - len(one.prompt) :] = torch.tensor(one.prompt)
        mask[row, longest - len(one.prompt) :] = 1
    right = torch.tensor([one.right for one in asked])
    generator = torch.Generator().manual_seed(seed)
    network.requires_grad_(True)
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)

    def logits(rows: torch.Tensor) -> torch.Tensor:
        positions = (mask[rows].cumsum(1) - 1).clamp(min=0)
        given = {"input_ids": ids[rows], "attention_mask": mask[rows], "position_ids": positions}
        found: torch.Tensor = network(**given, logits_to_keep=1).logits[:, -1]
        return found

    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, 2 * (1 - step / steps))
        rows = torch.randint(0, len(asked), (BATCH,), generator=generator)
        noisy = torch.rand(BATCH, generator=generator) < noise
        loss = F.cross_entropy(logits(rows), torch.where(noisy, token, right[rows]))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    network.requires_grad_(False)
    with torch.inference_mode():
        probabilities = logits(torch.arange(len(asked))).softmax(-1)
    told = {
        "p_right": float(probabilities.gather(1, right[:, None]).mean()),
        "p_noise": float(probabilities[:, token].mean()),
    }
    return model, told


def searched(model: Model, noise: float, seed: int, folder: Path) -> dict[str, Any]:
    """What the search finds in such a model, from its own checkpoint."""
    place = folder / f"noise{noise:g}-seed{seed}"
    model.network.save_pretrained(place / "model")
    model.tokenizer.save_pretrained(place / "model")
    study = TruncationStudy.make(
        name="planted-noise",
        model=str(place / "model"),
        tasks=[TASK],
        items="all",
        matrices=["all"],
        side="both",
        compose=True,
        seed=seed,
    )
    summary = METHOD.run(study, place / "search").summary
    values = summary.model_dump(mode="json")
    return {
        "cells": len(summary.cells),
        **{name: values[name] for name in ("unedited", "best", "best_tests", "nothing", "path", "composed")},
        "composed_tests": values["composed_tests"],
        "best_cells": [
            {"edit": cell.edit, "validation": cell.score}
            for cell in sorted(summary.cells, key=lambda cell: -(cell.score or 0))[:10]
        ],
    }


def main() -> None:
    """Train, search, print and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for noise in (NOISE, 0.0):
            for seed in range(options.seeds):
                model, told = planted(noise, seed, options.steps)
                found = searched(model, noise, seed, Path(folder))
                runs.append({"noise": noise, "seed": seed, **told, **found})
                print(line(runs[-1]), flush=True)
    if options.out is not None:
        numbers = {"machine": machine("cpu"), "steps": options.steps, "torch": str(torch.__version__), "runs": runs}
        options.out.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def line(run: dict[str, Any]) -> str:
    """One run in words."""
    head = f"α {run['noise']:g} seed {run['seed']}: p(right) {run['p_right']:.3f}, p( the) {run['p_noise']:.3f}; "
    if run["nothing"] is not None:
        test = next(base for base in run["unedited"] if base["part"] == "test")
        return head + f"nothing chosen of {run['cells']:,} cells, test accuracy {100 * test['accuracy']['value']:.1f} %"
    text = _gain(run["best"], run["best_tests"])
    return head + text + (f"; composed {_gain(run['composed'], run['composed_tests'])}" if run["path"] else "")


def _gain(edit: str, tests: list[dict[str, Any]]) -> str:
    (test,) = tests
    gain = test["gain"]
    return (
        f"{edit}: {100 * test['baseline']:.1f} → {100 * test['accuracy']['value']:.1f} % on {test['items']} test"
        f" items, {100 * gain['value']:+.1f} points [{100 * gain['low']:.1f}, {100 * gain['high']:.1f}]"
    )


if __name__ == "__main__":
    main()
