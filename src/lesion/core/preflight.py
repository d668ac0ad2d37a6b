"""Preflight: what names, files and configurations alone show to be wrong, before a large library is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lesion.core.study_file import ModelChoice, StudyFile, TaskChoice
from lesion.errors import LesionError
from lesion.files import read_object
from lesion.models.gguf import read_header
from lesion.models.names import refuse_device
from lesion.models.quantised import refuse_unreadable
from lesion.models.source import find as find_source
from lesion.tasks.catalogue import find
from lesion.tasks.harness.name import HEAD

_BLOCKS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def look_ahead(study: StudyFile) -> None:
    """Refuse a study whose models, tasks, blocks or edits are not there, as far as a look tells."""
    refuse_device(getattr(study, "device", "auto"))
    for name in _tasks(study):
        if HEAD not in name.split(":")[:-1]:  # the library of lm-evaluation-harness takes seconds to load
            find(name)
    blocks = {chosen.name: blocks_of(chosen.source, chosen.revision) for chosen in _models(study)}
    study.look_ahead({name: count for name, count in blocks.items() if count is not None})


def blocks_of(source: str | Path, revision: str | None = None) -> int | None:
    """The number of blocks by a local config.json or GGUF file; None of a hub id, or where it says none."""
    place = find_source(str(source), revision)
    if not place.local:
        return None
    if place.file is not None:
        return read_header(Path(place.place) / place.file).blocks
    config: Any = read_object(Path(place.place) / "config.json")
    refuse_unreadable(config, str(source))
    config = config["text_config"] if isinstance(config.get("text_config"), dict) else config
    stated = [config[key] for key in _BLOCKS if type(config.get(key)) is int]
    return stated[0] if len(set(stated)) == 1 else None


def _models(study: StudyFile) -> Iterator[ModelChoice]:
    for value in (getattr(study, "model", None), *getattr(study, "models", ())):
        if isinstance(value, ModelChoice):
            yield value
    if weights := getattr(study, "weights", None):
        yield ModelChoice(source=weights)


def _tasks(study: StudyFile) -> Iterator[str]:
    single = (getattr(study, "task", None), getattr(study, "skill", None))
    for value in (*getattr(study, "tasks", ()), *single, *getattr(study, "controls", ())):
        if isinstance(value, TaskChoice | str):
            yield value.name if isinstance(value, TaskChoice) else value


def refuse_no_folder(folder: str | Path) -> None:
    """Refuse to read a study where there is no folder."""
    if not Path(folder).is_dir():
        what = "a file" if Path(folder).exists() else "not there"
        raise LesionError(f"There is no study in {folder}: it is {what}. Give the folder that a study was run into.")
