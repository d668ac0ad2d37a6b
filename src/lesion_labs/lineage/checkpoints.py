"""Checkpoints over training: which groups of documents are kept, and how a network is written as a folder to load."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lesion.errors import LesionError, UsageError
from lesion.models.source import CHECKPOINTS
from lesion.outputs import own, refuse_another_kind
from lesion.training import checkpoint

DOZEN = 12
LATE = 6


def schedule(groups: int, count: int = DOZEN, late: int = LATE) -> tuple[int, ...]:
    """After how many groups of documents a checkpoint is kept: at equal ratios from the first group to the last.

    Most is learned early, and so most checkpoints are; but the last ratio spans a third of the training, in which a
    chain of thought comes to be.

    Args:
        groups: of the whole training.
        count: checkpoints at equal ratios, or one a group where there are fewer groups; 0 keeps none at all.
        late: how many more lie between the last two, at equal distances.
    """
    if count < 0:
        raise UsageError(f"A training keeps 0 checkpoints or more, not {count}.")
    kept: list[int] = []
    for left in range(min(count, groups), 0, -1):
        if left == 1:
            kept.append(groups)
        elif not kept:
            kept.append(1)
        else:
            # Where a ratio comes to less than one group, one group; from there on, equal ratios over what is left.
            kept.append(max(kept[-1] + 1, round(kept[-1] * (groups / kept[-1]) ** (1 / left))))
    if len(kept) > 1:
        before, end = kept[-2:]
        between = {before + round((end - before) * place / (late + 1)) for place in range(1, late + 1)}
        kept = sorted({*kept, *between})
    return tuple(kept)


def write(
    folder: Path, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, dtype: torch.dtype = torch.float16
) -> None:
    """Write a network, in half precision by default, with its tokenizer; it stays as it is."""
    checkpoint.write(folder, copy.deepcopy(network).to("cpu", dtype), tokenizer)


def claim(out: Path, kind: str) -> None:
    """Make the folder of a family of models and note what it is, before anything is written into it."""
    refuse_another_kind(out, kind)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LesionError(f"{out} cannot be written: {error.strerror or error}; give another --out.") from error
    own(out, kind)


def place(out: Path, step: int) -> Path:
    """Where the checkpoint of a training into `out` after so many steps lies: `lesion` loads it as revision `stepN`."""
    return out / CHECKPOINTS / f"step{step}"
