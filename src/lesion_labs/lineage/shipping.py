"""Shipping: a trained member becomes a folder with weights, tokenizer, facts and card (`card.md.jinja`)."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lesion.atomic import replace
from lesion.models.load import Model, load
from lesion.training.checkpoint import writing
from lesion.training.resume import curve
from lesion_labs.lineage.base import Recipe, write

TASK = "primer:arithmetic"
LINES = 12  # of a curve


Entry = dict[str, Any]
"""One of `results`: accuracy on the items of a task, or of one group of them (all: ""), with its 95 % interval; or one
of `gain`: what it is beyond the parent's on the same items; `gained` and `lost` are right in child or parent alone."""
Facts = dict[str, Any]
"""What `training.json` says of a member, by key: among it `results`, of children `gain`, and the curve of training."""


def card(facts: Facts, parameters: int) -> str:
    """The card of a member with so many parameters, as Markdown."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lesion_labs.lineage", "."),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {"n": "{:,}".format, "stretches": partial(curve, about=LINES)}
    return environment.get_template("card.md.jinja").render(
        facts,
        parameters=parameters,
        all_groups=Recipe.groups,
        doubt=doubt(facts),
    )


def doubt(facts: Facts) -> str:
    """What is said of a reinforced child whose gain on arithmetic may be none; empty of others."""
    if facts["stage"] != "rlvr" or any(entry["task"] == TASK and entry["low"] > 0 for entry in facts["gain"]):
        return ""
    name = f"{facts['family']}-rlvr"
    return f"{name} is not shown to be better at arithmetic than its parent: the interval of the gain reaches 0."


def table(members: Sequence[Facts]) -> str:
    """The members as a table in Markdown: accuracies in percent with their intervals, gains in points."""
    steps = sorted({entry["group"] for facts in members for entry in facts["results"] if entry["task"] == TASK} - {""})
    heads = ["model", "arithmetic", *steps, "atlas", "reading", "gain in arithmetic over its parent", "minutes"]
    columns = [*((TASK, group) for group in ("", *steps)), ("primer:atlas", ""), ("primer:reading", "")]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for facts in members:
        accuracies = {(entry["task"], entry["group"]): _accuracy(entry) for entry in facts["results"]}
        gain = next((_gain(entry) for entry in facts.get("gain", []) if entry["task"] == TASK), "")
        name, minutes = f"{facts['family']}-{facts['stage']}", f"{facts['seconds'] / 60:.0f}"
        cells = [name, *(accuracies.get(column, "") for column in columns), gain, minutes]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _accuracy(entry: Entry) -> str:
    return f"{100 * entry['accuracy']:.1f} ({100 * entry['low']:.1f}–{100 * entry['high']:.1f})"


def _gain(entry: Entry) -> str:
    return f"{100 * entry['gain']:+.1f} ({100 * entry['low']:+.1f} to {100 * entry['high']:+.1f})"


FACTS = "training.json"
"""The file of a member's folder that holds everything the card is made of."""


def ship(
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    out: Path,
    facts: Facts,
    measure: Callable[[Model], Facts],
) -> Facts:
    """Write a member to `out/model` in float16, examine what was written, and write its card.

    `measure` is given the model as it was written, computed in float32; what it returns is added to the facts.
    """
    folder = out / "model"
    write(folder, network, tokenizer)
    measured = {**facts, **measure(load(folder, dtype="float32", device=network.device))}
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
    return content if isinstance(content, dict) else None


def machine(device: str) -> str:
    """What a device is, in words."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    return f"{platform.machine()}, {torch.get_num_threads()} CPU thread(s), Python {sys.version.split()[0]}"
