"""The tuned model as an ordinary checkpoint: weights, tokenizer, chat template, and a card that says what was done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from lesion.atomic import replace
from lesion.edits.files.card import cell, code, front_and_rest
from lesion.errors import LesionError
from lesion.files import UNFIT, stored_object
from lesion.models.load import Model, quiet
from lesion.models.source import find
from lesion.studies.tuning.study import TuningStudy

FOLDER, NOTE, CARD = "model", "tuned.json", "README.md"


def is_written(folder: Path, fingerprint: str) -> bool:
    """Whether the tuned model with these weights lies in a study's folder already."""
    try:
        noted = stored_object(folder / FOLDER / NOTE, "") or {}
        return bool(noted["fingerprint"] == fingerprint)
    except (*UNFIT, LesionError):
        return False


def write_model(folder: Path, model: Model) -> None:
    """Write a model into `model` of a study's folder, in float32: its weights are those that are examined.

    The folder is there whole or not at all; one that is there already is replaced.

    Raises:
        LesionError: it cannot be written.
    """
    place = folder / FOLDER
    unfinished = place.with_name(f".{place.name}.unfinished")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        with quiet():
            model.network.save_pretrained(unfinished)
            model.tokenizer.save_pretrained(unfinished)
        (unfinished / NOTE).write_text(json.dumps({"fingerprint": model.fingerprint}) + "\n", encoding="utf-8")
        for file in unfinished.iterdir():
            if file.is_file():
                file.chmod(0o644)  # safetensors writes files that only their owner can read
        shutil.rmtree(place, ignore_errors=True)
        unfinished.replace(place)
    except (OSError, SafetensorError) as error:
        raise LesionError(
            f"The model could not be written to {place}: {error}. Free some space, or make the folder writable, and"
            " give the same command again: nothing has to be trained twice."
        ) from error


def write_card(folder: Path, summary: Mapping[str, Any], study: TuningStudy) -> None:
    """Write the card and the numbers behind it beside the weights.

    Raises:
        LesionError: they cannot be written.
    """
    place = folder / FOLDER
    try:
        note = json.loads((place / NOTE).read_text(encoding="utf-8"))
        replace(place / NOTE, json.dumps({**note, **summary}, indent=1) + "\n")
        replace(place / CARD, card(summary, _original(study)))
    except (OSError, ValueError) as error:
        raise LesionError(f"The model's card could not be written to {place}: {error}.") from error


def _original(study: TuningStudy) -> str | None:
    """The card of the model that was tuned, where it lies in a folder."""
    try:
        source = find(study.model.source, study.model.revision)
        return (Path(source.place) / CARD).read_text(encoding="utf-8", errors="replace") if source.local else None
    except (OSError, LesionError):  # a model that was made in memory has no place
        return None


def card(summary: Mapping[str, Any], original: str | None) -> str:
    """The card in Markdown: what was tuned, on what, and what it did, with intervals.

    Args:
        summary: of a study with one arm and one seed.
        original: the card of the model that was tuned.
    """
    front, rest = front_and_rest(original or "")
    study, model, arm = summary["study"], summary["model"], summary["arms"][0]
    blocks = ", ".join(map(str, arm["blocks"][0]))
    which = "all blocks" if len(arm["blocks"][0]) == model["blocks"] else f"block {blocks}"
    which = f"blocks {blocks}" if which != "all blocks" and len(arm["blocks"][0]) > 1 else which
    how = "in full" if arm["rank"] is None else f"by adapters of rank {arm['rank']}, merged into the weights"
    percent = f"{100 * study['level']:g} %"
    lines = [
        f"# {code(model['name'])}, tuned on {code(summary['task'])}",
        "",
        f"{which[:1].upper()}{which[1:]} of {code(model['name'])} (fingerprint {code(model['fingerprint'])}) trained"
        f" {how}: {arm['parameters']:,} of {model['parameters']:,} numbers. All other weights are those of the model"
        f" that was tuned, bit for bit. Made by `lesion tune` (lesion {study['version']}).",
        "",
        f"- **Which blocks**: {_chosen(summary, arm)}",
        f"- **Data**: {study['examples']:,} items of the training split of {code(summary['task'])}, drawn by seed"
        f" {study['seed']}; none of those that are asked below is among them.",
        f"- **Training**: {study['steps']:,} steps of {study['rows']} rows, AdamW, learning rate {arm['rate']:g} that"
        f" rises and falls linearly, seed {study['seeds'][0]}, loss on answers alone.{_rates(arm)}",
        "- **Weights**: float32, those that were examined.",
        "",
        "## Before and after",
        "",
        f"The same test items before and after, greedy decoding, {percent} intervals (Wilson's of accuracies, Tango's"
        " of the paired change, in points).",
        "",
        "| task | items | before | after | change |",
        "|---|---:|---:|---:|---:|",
    ]
    for before, after in zip(summary["baseline"], arm["tasks"], strict=True):
        change = after["change"]
        lines.append(
            f"| {cell(before['task'])} | {before['items']:,} | {_accuracy(before)} | {_accuracy(after['seeds'][0])} "
            f"| {100 * change['mean']:+.1f} ({100 * change['low']:+.1f} to {100 * change['high']:+.1f}) |"
        )
    lines += [
        "",
        "To load it:",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'model = AutoModelForCausalLM.from_pretrained("THIS FOLDER")',
        'tokenizer = AutoTokenizer.from_pretrained("THIS FOLDER")',
        "```",
    ]
    if original is not None:
        lines += ["", "---", "", "# The card of the model that was tuned", "", rest.strip()]
    return front + "\n".join(lines) + "\n"


def _accuracy(one: Mapping[str, Any]) -> str:
    return f"{100 * one['accuracy']:.1f} % ({100 * one['low']:.1f} to {100 * one['high']:.1f})"


def _rates(arm: Mapping[str, Any]) -> str:
    if not arm["rates"]:
        return ""
    tried = ", ".join(f"{one['rate']:g}: {100 * one['validation']:.1f} %" for one in arm["rates"])
    return f" It was chosen by the accuracy on held-out training items ({tried})."


def _chosen(summary: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    layers = summary["layers"]
    if arm["arm"] in ("critical", "least") and layers is not None:
        where = "a layer study" if layers["from"] else "an ablation"
        how = "most" if arm["arm"] == "critical" else "least"
        drops = [f"block {block} {100 * layers['drops'][block]:.1f}" for block in arm["blocks"][0]]
        return (
            f"those without which the task loses {how}, by {where} on {layers['items']:,} items: {', '.join(drops)}"
            " points."
        )
    return {
        "random": f"drawn by seed {summary['study']['seeds'][0]}.",
        "all-full": "all of them.",
        "all-adapter": "all of them.",
    }.get(arm["arm"], "as they were named.")
