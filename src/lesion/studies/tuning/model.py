"""The tuned model as an ordinary checkpoint: weights, tokenizer, chat template, and a card that says what was done."""

from __future__ import annotations

from pathlib import Path

from lesion.atomic import keep
from lesion.core.layers import canonical_layers
from lesion.edits.files.card import LOADING, cell, code, front_and_rest
from lesion.errors import LesionError
from lesion.files import SUMMARY_BYTES, read_text
from lesion.models.gguf_checkpoint import as_folder
from lesion.models.load import Model
from lesion.models.source import find
from lesion.report import wording
from lesion.report.values import CHANGE, SHARE
from lesion.report.wording import counted
from lesion.studies.tuning.report import ArmResult, TuningSummary
from lesion.studies.tuning.study import CRITICAL, LEAST, RANDOM, TuningStudy, form, label
from lesion.training.checkpoint import write

FOLDER, NOTE, CARD = "model", "fingerprint.txt", "README.md"
"""The note beside the weights says which they are."""


def is_written(folder: Path, fingerprint: str) -> bool:
    """Whether the tuned model with these weights lies in a study's folder already."""
    note = folder / FOLDER / NOTE
    return note.is_file() and read_text(note, limit=SUMMARY_BYTES).strip() == fingerprint


def write_model(folder: Path, model: Model) -> None:
    """Write a model, in float32, into `model` of a study's folder, whole or not at all, in place of one there."""
    write(folder / FOLDER, model.network, model.tokenizer, {NOTE: f"{model.fingerprint}\n"})


def write_card(folder: Path, summary: TuningSummary) -> None:
    """Write the card beside the weights."""
    keep(folder / FOLDER / CARD, card(summary, _original(summary.study)))


def _original(study: TuningStudy) -> str | None:
    """The card of the model that was tuned, where it lies in a folder."""
    try:
        source = as_folder(find(study.model.source, study.model.revision))
        return (Path(source.place) / CARD).read_text(encoding="utf-8", errors="replace") if source.local else None
    except (OSError, LesionError):  # a model that was made in memory has no place
        return None


def card(summary: TuningSummary, original: str | None) -> str:
    """The card of a study with one arm and one seed in Markdown, over the card of the model that was tuned."""
    front, rest = front_and_rest(original or "")
    study, model, arm = summary.study, summary.model, summary.arms[0]
    tried = ", ".join(f"{tried.rate:g}: {SHARE.text(tried.validation)}" for tried in arm.rates)
    chosen = f" It was chosen by accuracy on held-out training items ({tried})." * bool(tried)
    schedule, objective = "rises and falls linearly", "loss on answers alone"
    if study.reinforced:
        schedule, objective = "rises and stays", "the reward is 1 where the task's judge finds an answer right, else 0"
    lines = [
        f"# {code(model.name)}, tuned on {code(study.task)}",
        "",
        f"{wording.capital(label(canonical_layers(arm.blocks[0])))} of {code(model.name)} (fingerprint"
        f" {code(model.fingerprint)}) trained {form(arm.rank)}: {arm.parameters:,} of {model.parameters:,} parameters."
        f" All other weights are those of the original model, bit for bit. Made by `lesion tune` (lesion"
        f" {summary.version}).",
        "",
        f"- **Which blocks**: {_chosen(summary, arm)}",
        f"- **Data**: {summary.examples:,} of the training items of {code(study.task)}, drawn by seed"
        f" {study.seed}; no item of the tests below is among them.",
        f"- **Training**: {study.recipe}; AdamW, learning rate {arm.rate:g} that {schedule}, seed"
        f" {study.seeds[0]}; {objective}.{chosen}",
        "",
        f"The same test items before and after, greedy decoding, {100 * study.level:g} % intervals (accuracy: Wilson;"
        " paired change, in points: Tango).",
        "",
        "| task | items | before | after | change |",
        "|---|---:|---:|---:|---:|",
    ]
    for before, after in zip(summary.baseline, arm.tasks, strict=True):
        numbers = (SHARE.text(before.accuracy), SHARE.text(after.seeds[0]), CHANGE.text(after.change))
        lines.append(f"| {cell(before.task)} | {before.items:,} | {' | '.join(numbers)} |")
    lines.append(LOADING)
    if original is not None:
        lines += ["", "---", "", "# The card of the original model", "", rest.strip()]
    return front + "\n".join(lines) + "\n"


def _chosen(summary: TuningSummary, arm: ArmResult) -> str:
    layers, least = summary.layers, {CRITICAL: "most", LEAST: "least"}.get(arm.name)
    if least is None or layers is None:
        return {RANDOM: f"drawn by seed {summary.study.seeds[0]}."}.get(arm.name, "as they were named.")
    drops = ", ".join(f"block {block} {100 * layers.drops[block]:.1f}" for block in arm.blocks[0])
    items = counted(layers.items, "item")
    return f"those without which the task loses {least}, by their ablation on {items}: {drops} points."
