"""The tuned model as an ordinary checkpoint: weights, tokenizer, chat template, and a card that says what was done."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from lesion.atomic import keep
from lesion.edits.files.card import LOADING, cell, code, front_and_rest
from lesion.errors import LesionError
from lesion.files import SUMMARY_BYTES, read_text
from lesion.models.gguf_checkpoint import as_folder
from lesion.models.load import Model
from lesion.models.source import find
from lesion.report.values import CHANGE, SHARE, Value
from lesion.report.wording import counted
from lesion.studies.tuning.result import ArmResult, TuningSummary
from lesion.studies.tuning.study import ALL_ADAPTER, ALL_FULL, CRITICAL, LEAST, RANDOM, TuningStudy
from lesion.training.checkpoint import write

FOLDER, NOTE, CARD = "model", "tuned.json", "README.md"


class Note(Value):
    """What lies beside the weights: their fingerprint, and once the study is finished the numbers behind the card."""

    fingerprint: str
    tuning: TuningSummary | None = None


def is_written(folder: Path, fingerprint: str) -> bool:
    """Whether the tuned model with these weights lies in a study's folder already."""
    try:
        return _note(folder).fingerprint == fingerprint
    except LesionError:
        return False


def _note(folder: Path) -> Note:
    file = folder / FOLDER / NOTE
    try:
        return Note.model_validate_json(read_text(file, limit=SUMMARY_BYTES))
    except ValidationError as error:
        raise LesionError(f"{file} is damaged: {error.errors()[0]['msg']}.") from None


def write_model(folder: Path, model: Model) -> None:
    """Write a model, in float32, into `model` of a study's folder, whole or not at all, in place of one there."""
    note = Note(fingerprint=model.fingerprint).model_dump_json() + "\n"
    write(folder / FOLDER, model.network, model.tokenizer, {NOTE: note})


def write_card(folder: Path, summary: TuningSummary) -> None:
    """Write the card and the numbers behind it beside the weights."""
    place = folder / FOLDER
    note = _note(folder).model_copy(update={"tuning": summary})
    keep(place / NOTE, note.model_dump_json(indent=1) + "\n")
    keep(place / CARD, card(summary, _original(summary.study)))


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
    blocks = arm.blocks[0]
    which = f"Block{'s' if len(blocks) > 1 else ''} {', '.join(map(str, blocks))}"
    if len(blocks) == model.blocks:
        which = "All blocks"
    how = "in full" if arm.rank is None else f"by adapters of rank {arm.rank}, merged into the weights"
    tried = ", ".join(f"{tried.rate:g}: {SHARE.text(tried.validation)}" for tried in arm.rates)
    chosen = f" It was chosen by accuracy on held-out training items ({tried})." if tried else ""
    schedule, objective = "rises and falls linearly", "loss on answers alone"
    if study.reinforced:
        schedule, objective = "rises and stays", "the reward is 1 where the task's judge finds an answer right, else 0"
    lines = [
        f"# {code(model.name)}, tuned on {code(study.task)}",
        "",
        f"{which} of {code(model.name)} (fingerprint {code(model.fingerprint)}) trained"
        f" {how}: {arm.parameters:,} of {model.parameters:,} parameters. All other weights are those of the original"
        f" model, bit for bit. Made by `lesion tune` (lesion {summary.version}).",
        "",
        f"- **Which blocks**: {_chosen(summary, arm)}",
        f"- **Data**: {summary.examples:,} of the training items of {code(study.task)}, drawn by seed"
        f" {study.seed}; no item of the tests below is among them.",
        f"- **Training**: {study.recipe}; AdamW, learning rate {arm.rate:g} that {schedule}, seed"
        f" {study.seeds[0]}; {objective}.{chosen}",
        "- **Weights**: float32, those that were evaluated.",
        "",
        "## Before and after",
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
    layers = summary.layers
    if arm.name in (CRITICAL, LEAST) and layers is not None:
        where = "an ablation" if layers.source is None else "a layer study"
        how = "most" if arm.name == CRITICAL else "least"
        drops = ", ".join(f"block {block} {100 * layers.drops[block]:.1f}" for block in arm.blocks[0])
        items = counted(layers.items, "item")
        return f"those without which the task loses {how}, by {where} on {items}: {drops} points."
    named = {RANDOM: f"drawn by seed {summary.study.seeds[0]}.", ALL_FULL: "all of them.", ALL_ADAPTER: "all of them."}
    return named.get(arm.name, "as they were named.")
