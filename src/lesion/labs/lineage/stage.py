"""The base model of a lineage from start to finish: train, save, examine, and write its card."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console

from lesion.labs.lineage.base import recipe_of, train
from lesion.labs.lineage.card import Facts
from lesion.labs.lineage.checkpoints import DOZEN, place, schedule
from lesion.labs.lineage.data import GROUP
from lesion.labs.lineage.examination import answers, results
from lesion.labs.lineage.shipping import device_of, machine, ship
from lesion.models.load import Model
from lesion.report.wording import counted
from lesion.training.resume import Point


def train_base(
    out: Path,
    *,
    family: str = "llama",
    seed: int = 0,
    groups: int | None = None,
    device: str = "auto",
    checkpoints: int = DOZEN,
) -> Path:
    """Train the base model into `out`, write it to `out/model`, and return that folder.

    Args:
        out: resumable state, curve and model; an interrupted training goes on from its last group of documents.
        family: one of `base.FAMILIES`.
        seed: of the weights and of the documents.
        groups: groups of `data.GROUP` documents; the recipe's own number by default.
        device: `auto`, `cpu` or `cuda`.
        checkpoints: how many states are kept in `out/checkpoints`; `load(out / "model", revision="stepN")` loads one.

    Raises:
        UsageError: there is no such family or device, or the folder holds another training.
        LesionError: the folder cannot be written.
    """
    recipe = recipe_of(family, seed=seed, groups=groups)
    chosen = device_of(device)
    console = Console(stderr=True, highlight=False)
    began = time.monotonic()
    first: list[float] = []

    def report(point: Point) -> None:
        # The rate of this process alone: a resumed training began elsewhere.
        first.append(point["progress"])
        per = (time.monotonic() - began) / max(point["progress"] - first[0] + 1 / recipe.length, 1e-9)
        left = per * (1 - point["progress"])
        console.print(
            f"{100 * point['progress']:5.1f} %  step {point['step']:,}  loss {point['loss']:.3f}"
            f"  answers {point['answer_loss']:.3f}  {point['tokens'] / 1e6:.1f}M tokens"
            f"  {int(left // 60)} min {int(left % 60):02} s left"
        )

    network, tokenizer, curve = train(out, recipe, report, chosen, checkpoints)
    _note_missing(out, schedule(recipe.length, checkpoints), curve, console)

    def measure(shipped: Model) -> Facts:
        console.print("Examining it on unseen items …")
        return {"results": results(answers(shipped)), "curve": curve}

    facts: Facts = {
        "family": family,
        "stage": "base",
        "recipe": {**asdict(recipe), "documents": recipe.length * GROUP},
        "vocabulary": len(tokenizer),
        "steps": curve[-1]["step"],
        "tokens": curve[-1]["tokens"],
        "seconds": curve[-1]["seconds"],
        "machine": machine(chosen),
        "torch": torch.__version__,
    }
    for entry in ship(network, tokenizer, out, facts, measure)["results"]:
        console.print(
            f"{entry['task']:20} {entry['group'] or 'all':12} {100 * entry['accuracy']:5.1f} %"
            f"  ({100 * entry['low']:.1f} to {100 * entry['high']:.1f}, n = {entry['items']})"
        )
    return out / "model"


def _note_missing(out: Path, kept: Sequence[int], curve: Sequence[Point], console: Console) -> None:
    """Name the checkpoints that an earlier part of this training did not keep."""
    missing = [step for group in kept if not place(out, step := int(curve[group - 1]["step"])).is_dir()]
    if missing:
        console.print(
            f"note: the training has passed {len(missing)} of {counted(len(kept), 'checkpoint')} without keeping"
            f" {'it' if len(missing) == 1 else 'them'} (step {', '.join(map(str, missing))}); a training into another"
            " --out keeps all."
        )
