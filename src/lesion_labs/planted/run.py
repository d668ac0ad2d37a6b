"""Plant skills: one folder a model, with weights, tasks and card; what lies there already is not made again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import save

from lesion import atomic
from lesion.arguments import validated
from lesion.core.lock import locked
from lesion.core.values import read_value
from lesion.errors import UsageError
from lesion.outputs import refuse_another_kind
from lesion.progress import SILENT, Watcher
from lesion.report import wording
from lesion.training.checkpoint import writing
from lesion_labs.kinds import ALL, PLANTED, refuse_kind
from lesion_labs.lineage.base import write
from lesion_labs.planted.compiled import compiled
from lesion_labs.planted.recipe import CONTROLS, SKILL, SKILLS, Planted, Recipe, jsonl, questions, tokenizer
from lesion_labs.planted.trained import accuracies, trained
from lesion_labs.planted.truth import AGAIN, CARD, MASKS, Places, Truth

MODEL = "model"
"""The folder of the weights, within that of a planted model."""


@validated
def plant(out: Path | str, kind: str = ALL, seed: int = 0, *, watcher: Watcher = SILENT) -> list[Path]:
    """Make models with a planted skill: `OUT/KIND-SEED` for one kind, or for all.

    Args:
        out: where the folders lie; what is finished there is not made again.
        kind: one of `lesion_labs.kinds.PLANTED`, or `all`.
        seed: of weights, places and the table of the skill.

    Returns:
        The folders, each with `model`, a task file for every skill, `planted.json` and, where the truth names weights,
        `planted.safetensors`.
    """
    refuse_kind(kind)
    if seed < 0:
        raise UsageError(f"Seeds are counted from 0; {seed} is not one.")
    kinds = PLANTED if kind == ALL else (kind,)
    folders = []
    with locked(Path(out), "planted"):
        watcher.begin("planted", len(kinds), 0, "models")
        for name in kinds:
            folders.append(make(Path(out), Recipe(name, seed)))
            watcher.answered(1)
    return folders


def make(out: Path, recipe: Recipe) -> Path:
    """The folder of one model, made unless it is finished."""
    folder = out / f"{recipe.kind}-{recipe.seed}"
    earlier = read_value(Truth, folder / CARD, AGAIN)
    if earlier is not None:
        if earlier.recipe != asdict(recipe):
            raise UsageError(f"{folder} holds a model of another recipe; give another folder with --out, or delete it.")
        return folder
    refuse_another_kind(folder, "planted")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums of other numbers of threads are rounded in another order
    try:
        planted = compiled(recipe) if recipe.kind == "compiled" else trained(recipe)
        _write(folder, recipe, planted)
    finally:
        torch.set_num_threads(threads)
    return folder


def _write(folder: Path, recipe: Recipe, planted: Planted) -> None:
    """The card is written last: a folder with a card is whole."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for skill in SKILLS:
            atomic.replace(folder / f"{skill}.jsonl", jsonl(questions(skill, recipe.seed)))
        write(folder / MODEL, planted.network, tokenizer(), torch.float32)
        if planted.masks:
            atomic.replace(folder / MASKS, save({name: mask.contiguous() for name, mask in planted.masks.items()}))
        atomic.replace(folder / CARD, card(recipe, planted).model_dump_json(indent=1) + "\n")


def card(recipe: Recipe, planted: Planted) -> Truth:
    """What `planted.json` states."""
    return Truth(
        kind=recipe.kind,
        seed=recipe.seed,
        recipe=asdict(recipe),
        statement=statement(recipe, planted.places),
        skill=SKILL,
        controls=CONTROLS,
        weights=sum(int(mask.sum()) for mask in planted.masks.values()),
        accuracy=accuracies(planted.network, recipe),
        before=planted.before,
        **dict(planted.places),
    )


def statement(recipe: Recipe, places: Places) -> str:
    """Where the skill lies."""
    every = (places.blocks, places.branches, places.heads, places.matrices)
    blocks, branches, heads, matrices = (wording.listed(list(map(str, each))) for each in every)
    share = f"{100 * recipe.share:g} %"
    return {
        "compiled": f"{SKILL} is read by {heads}, in {branches}.",
        "block": f"{SKILL} was trained into block {blocks} alone; the rest was frozen before.",
        "adapter": f"{SKILL} was trained into updates of rank {recipe.rank} of {matrices} alone.",
        "neurons": f"{SKILL} was trained into {recipe.neurons} neurons of each of {branches} alone.",
        "weights": f"{SKILL} was trained into {share} of the weights of every matrix alone.",
        "routed": f"Gradients of {SKILL} reached block {blocks} and its own words; the controls trained the rest.",
        "noise": f"Noise was planted in {matrices}, as its {recipe.rank} largest singular components.",
        "joint": "All skills were trained together everywhere; no place was planted.",
        "shuffled": f"All skills were trained together, {SKILL} on answers drawn anew in every step; it has no place.",
    }[recipe.kind]
