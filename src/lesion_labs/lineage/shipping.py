"""Shipping: a trained member becomes a folder with weights, tokenizer, card and facts; and on which machine."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lesion.atomic import replace
from lesion.models.load import Model, load
from lesion_labs.lineage.card import Facts, card
from lesion_labs.lineage.checkpoints import write, writing

FACTS = "training.json"
"""The file of a member's folder that holds everything the card is made of."""


def ship(
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    out: Path,
    facts: Facts,
    measure: Callable[[Model], Facts],
) -> Facts:
    """Write a member to `out/model` in float16, examine what was written, and write its card; the network stays as it
    is.

    `measure` is given the model as it was written, computed in float32; what it returns is added to the facts.

    Returns:
        All facts, as they stand in `training.json`.
    """
    folder = out / "model"
    write(folder, network, tokenizer)
    measured: Facts = {**facts, **measure(load(folder, dtype="float32", device=network.device))}
    with writing(out):
        replace(folder / "README.md", card(measured, sum(p.numel() for p in network.parameters())))
        replace(folder / FACTS, json.dumps(measured, indent=1) + "\n")
    return measured


def facts(folder: Path) -> Facts | None:
    """What `training.json` says of the member in a folder; None where there is no finished one."""
    try:
        content = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return cast(Facts, content) if isinstance(content, dict) else None


def machine(device: str) -> str:
    """What a device is, in words."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    return f"{platform.machine()}, {torch.get_num_threads()} CPU thread(s), Python {sys.version.split()[0]}"
