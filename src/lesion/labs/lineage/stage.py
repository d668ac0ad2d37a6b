"""One stage of the lineage from start to finish: train, save, examine, and write the model's card."""

from __future__ import annotations

import json
import math
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from safetensors import SafetensorError

from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers import TransformersEngine
from lesion.errors import LesionError, UsageError
from lesion.labs.lineage.base import recipe_of, train
from lesion.labs.lineage.card import card
from lesion.labs.lineage.checkpoints import DOZEN, place, schedule, write
from lesion.labs.lineage.data import GROUP
from lesion.models.load import Model, load
from lesion.studies.statistics import wilson
from lesion.tasks.catalogue import find
from lesion.tasks.primer import NAMES
from lesion.tasks.prompts import encode


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
        family: of the architecture, one of `base.FAMILIES`.
        seed: of the weights and of the documents.
        groups: groups of `data.GROUP` documents; the recipe's own number by default.
        device: `auto`, `cpu` or `cuda`.
        checkpoints: how many states on the way are kept, early ones closer together, as `out/checkpoints/stepN`;
            `load(out / "model", revision="stepN")` loads one.

    Raises:
        UsageError: there is no such family or device, or less than no checkpoints are to be kept.
        LesionError: the folder holds a training with another recipe, or cannot be written.
    """
    recipe = recipe_of(family, seed=seed, groups=groups)
    chosen = _device(device)
    console = Console(stderr=True, highlight=False)
    began = time.monotonic()
    first: list[float] = []

    def report(point: dict[str, Any]) -> None:
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
    folder = out / "model"
    write(folder, network, tokenizer)
    _tell_missing(out, schedule(recipe.length, checkpoints), curve, console)
    console.print("Examining it on unseen items …")
    # What is examined is what ships: the weights as they were rounded to half precision.
    results = examine(load(folder, dtype="float32", device=chosen))
    facts = {
        "recipe": {**asdict(recipe), "documents": recipe.length * GROUP},
        "vocabulary": len(tokenizer),
        "steps": curve[-1]["step"],
        "tokens": curve[-1]["tokens"],
        "seconds": curve[-1]["seconds"],
        "machine": _machine(chosen),
        "torch": torch.__version__,
        "results": results,
        "curve": curve,
    }
    parameters = sum(p.numel() for p in network.parameters())
    with _writing(out):
        (folder / "training.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        (folder / "README.md").write_text(card(facts, parameters), encoding="utf-8")
    for entry in results:
        console.print(
            f"{entry['task']:20} {entry['group'] or 'all':12} {100 * entry['accuracy']:5.1f} %"
            f"  ({100 * entry['low']:.1f} to {100 * entry['high']:.1f}, n = {entry['items']})"
        )
    return folder


def _tell_missing(out: Path, kept: Sequence[int], curve: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Say which checkpoints there are not: those that an earlier part of this training was not asked to keep."""
    missing = [step for group in kept if not place(out, step := curve[group - 1]["step"]).is_dir()]
    if missing:
        console.print(
            f"note: of {len(kept)} checkpoints {len(missing)} were passed before they were asked for (steps"
            f" {', '.join(map(str, missing))}); a training into another --out keeps them all."
        )


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise LesionError(
            f"The model could not be written to {out}: {error}. Free some space, or make the folder writable, and give"
            " the same command again: nothing has to be trained twice."
        ) from error


def examine(model: Model) -> list[dict[str, Any]]:
    """Accuracy with its 95 % Wilson interval on the whole test split of every primer task, overall and by group."""
    return [entry for name in NAMES for entry in _examine(model, f"primer:{name}")]


def _examine(model: Model, name: str) -> Iterator[dict[str, Any]]:
    task = find(name)
    items = {item.id: item for item in task.load()}
    decoding = Decoding(task.max_new_tokens, task.stop)
    requests = [Request(key, encode(model, task, item), decoding=decoding) for key, item in items.items()]
    groups: dict[str, list[bool]] = {"": []}
    for response in TransformersEngine(model).answer(requests):
        item = items[response.key]
        right = task.judge(item, response.answer).correct
        groups[""].append(right)
        groups.setdefault(item.group, []).append(right)
    for group in sorted(groups):
        right_ones, asked = sum(groups[group]), len(groups[group])
        low, high = wilson(right_ones, asked)
        accuracy = right_ones / asked if asked else math.nan
        yield {"task": name, "group": group, "items": asked, "accuracy": accuracy, "low": low, "high": high}


def _device(device: str) -> str:
    there = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    usable = [*there, "cuda"] if len(there) > 1 else there
    if device != "auto" and device not in usable:
        raise UsageError(f"There is no device '{device}' to train on here; there are: {', '.join(there)}.")
    return usable[-1] if device == "auto" else device


def _machine(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    return f"{platform.machine()}, {torch.get_num_threads()} CPU thread(s), Python {sys.version.split()[0]}"
