"""Shipping: a trained member becomes a folder with weights, tokenizer, card and facts; and on which machine."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lesion import atomic as whole
from lesion.errors import LesionError, UsageError
from lesion.labs.lineage.card import card
from lesion.labs.lineage.checkpoints import write
from lesion.models.load import Model, load

FACTS = "training.json"
"""The file of a member's folder in which everything stands that the card is made of. It is written last but one."""


def ship(
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    out: Path,
    facts: Mapping[str, Any],
    measure: Callable[[Model], Mapping[str, Any]],
) -> dict[str, Any]:
    """Write a member to `out/model`, examine what was written, and write its card.

    Args:
        network: stays as it is; in the folder the weights are float16.
        tokenizer: with its chat template.
        out: of the training.
        facts: on the training.
        measure: what is measured of the model as it was written, computed in float32 where the network lies; it is
            added to the facts.

    Returns:
        All facts, as they stand in `training.json`.

    Raises:
        LesionError: the folder cannot be written.
    """
    folder = out / "model"
    write(folder, network, tokenizer)
    told = {**facts, **measure(load(folder, dtype="float32", device=network.device))}
    with writing(out):
        parameters = sum(p.numel() for p in network.parameters())
        whole.replace(folder / "README.md", card(told, parameters))
        whole.replace(folder / FACTS, json.dumps(told, indent=1) + "\n")
    return told


def facts(folder: Path) -> dict[str, Any] | None:
    """What `training.json` says of the member in a folder; None where there is no finished one."""
    try:
        found = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Tell in words why a folder could not be written."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise LesionError(
            f"The model could not be written to {out}: {error}. Free some space, or make the folder writable, and give"
            " the same command again: nothing has to be trained twice."
        ) from error


def device_of(device: str) -> str:
    """The device to train on: a GPU for `auto`, where there is one.

    Raises:
        UsageError: there is no such device; the message names those there are.
    """
    there = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    usable = [*there, "cuda"] if len(there) > 1 else there
    if device != "auto" and device not in usable:
        raise UsageError(f"There is no device '{device}' to train on here; there are: {', '.join(there)}.")
    return usable[-1] if device == "auto" else device


def machine(device: str) -> str:
    """What a device is, in words."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    return f"{platform.machine()}, {torch.get_num_threads()} CPU thread(s), Python {sys.version.split()[0]}"
