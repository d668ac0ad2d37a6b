"""A model and its checkpoints over training as the models of one study: `--revisions all` or names by commas."""

from __future__ import annotations

import filecmp
from collections.abc import Mapping, Sequence
from pathlib import Path

from lesion import files
from lesion.errors import UsageError, nearest
from lesion.models.source import BUNDLED, CHECKPOINTS, find, revisions

ALL = "all"


def over_time(models: Sequence[str], wanted: str | Sequence[str]) -> tuple[list[str | dict[str, str]], list[str]]:
    """Each model behind its checkpoints, `all` or those named, as entries of a study; and notes on those left out.

    A folder without checkpoints and a bundled model stay as they are, as long as one of the models has some. A
    checkpoint that holds the very weights of its model is left out: the end of the training is there already.
    """
    names = [name.strip() for name in wanted.split(",")] if isinstance(wanted, str) else list(wanted)
    if not names or not all(names):
        raise UsageError("--revisions takes all, or names of checkpoints by commas: step23,step256.")
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise UsageError(f"--revisions names {twice} twice; name it once.")
    entries: list[str | dict[str, str]] = []
    notes: list[str] = []
    for model in models:
        folder = files.named(model, "model")
        known = revisions(folder) if folder.is_dir() else {}
        for revision in _chosen(model, None if names == [ALL] else names, known):
            if known and _same_weights(known[revision], Path(find(model).place)):
                notes.append(
                    f"{model}@{revision} has the very weights of {model}: it is shown as the end of the training."
                )
            else:
                entries.append({"source": model, "revision": revision})
        entries.append(model)
    if len(entries) + len(notes) == len(models):
        raise UsageError(
            f"--revisions follows a training, and there are no checkpoints of {' or '.join(models)}: those of a folder "
            f"are the models in {CHECKPOINTS}/REVISION below or beside it; `lesion lab lineage --out DIR` keeps them."
        )
    return entries, notes


def _chosen(model: str, named: list[str] | None, known: Mapping[str, Path]) -> list[str]:
    """The checkpoints of a model that are asked for; `named` is None for all."""
    folder = files.named(model, "model").is_dir()
    if not folder and "@" in model:
        raise UsageError(f"{model} names a revision already: give {model.partition('@')[0]} and --revisions.")
    if folder or model.startswith(BUNDLED):
        missing = [name for name in named or () if name not in known]
        if known and missing:
            raise UsageError(
                f"{model} has no revision '{missing[0]}'{nearest(missing[0], known)}. There are: {', '.join(known)}."
            )
        return [name for name in known if named is None or name in named]
    if named is None:
        raise UsageError(f"Which revisions {model} has is not known here: name them, --revisions step1000,step2000.")
    return named


def _same_weights(checkpoint: Path, model: Path) -> bool:
    """Whether two folders hold the same files of weights, byte for byte."""
    files = sorted(file.name for file in checkpoint.glob("*.safetensors"))
    if not files or files != sorted(file.name for file in model.glob("*.safetensors")):
        return False
    return not any(filecmp.cmpfiles(checkpoint, model, files, shallow=False)[1:])
