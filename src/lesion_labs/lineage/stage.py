"""The base model of a lineage from start to finish: train, save, examine, and write its card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from lesion.models.load import Model
from lesion.models.names import device_of
from lesion.progress import Silent, Watcher
from lesion.report.wording import counted
from lesion.training.resume import Point
from lesion_labs.lineage.base import Recipe, train
from lesion_labs.lineage.card import Facts
from lesion_labs.lineage.checkpoints import DOZEN, place, schedule
from lesion_labs.lineage.data import GROUP
from lesion_labs.lineage.examination import answers, results
from lesion_labs.lineage.shipping import machine, ship


def train_base(
    out: Path,
    recipe: Recipe,
    *,
    device: str = "auto",
    checkpoints: int = DOZEN,
    watcher: Watcher | None = None,
) -> Path:
    """Train the base model into `out`, write it to `out/model`, and return that folder.

    Args:
        out: resumable state, curve and model; an interrupted training goes on from its last group of documents.
        recipe: what determines it (`base.recipe_of`).
        device: `auto`, `cpu` or `cuda`.
        checkpoints: how many states are kept in `out/checkpoints`; `load(out / "model", revision="stepN")` loads one.
        watcher: told of every group of documents, and what was measured.
    """
    watcher = watcher or Silent()
    chosen = str(device_of(device))
    network, tokenizer, curve = train(out, recipe, chosen, checkpoints, watcher)
    _note_missing(out, schedule(recipe.length, checkpoints), curve, watcher)

    def measure(shipped: Model) -> Facts:
        return {"results": results(answers(shipped, watcher=watcher)), "curve": curve}

    facts: Facts = {
        "family": recipe.family,
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
        watcher.note(
            f"{entry['task']:20} {entry['group'] or 'all':12} {100 * entry['accuracy']:5.1f} %"
            f"  ({100 * entry['low']:.1f} to {100 * entry['high']:.1f}, n = {entry['items']})"
        )
    return out / "model"


def _note_missing(out: Path, kept: Sequence[int], curve: Sequence[Point], watcher: Watcher) -> None:
    """Name the checkpoints that an earlier part of this training did not keep."""
    missing = [step for group in kept if not place(out, step := int(curve[group - 1]["step"])).is_dir()]
    if missing:
        watcher.note(
            f"the training has passed {len(missing)} of {counted(len(kept), 'checkpoint')} without keeping"
            f" {'it' if len(missing) == 1 else 'them'} (step {', '.join(map(str, missing))}); a training into another"
            " --out keeps all."
        )
