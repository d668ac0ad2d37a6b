"""Preflight: what is wrong before weights are loaded: in names and files alone, without torch, and in tokenizers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lesion.core.study_file import ModelChoice, Questions, StudyFile, TaskChoice
from lesion.errors import LesionError
from lesion.files import read_object
from lesion.models.gguf import read_header
from lesion.models.gguf_checkpoint import pending
from lesion.models.names import refuse_device
from lesion.models.source import find as find_source
from lesion.tasks.catalogue import find
from lesion.tasks.conversation import Named
from lesion.tasks.prompts import resolve
from lesion.tasks.query import HEAD
from lesion.tasks.style import Style
from lesion.tasks.task import Task

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
    if place.file is not None:
        return read_header(Path(place.place) / place.file).blocks
    if not place.local:
        return None
    config: Any = read_object(Path(place.place) / "config.json")
    config = text if isinstance(text := config.get("text_config"), dict) else config
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


def refuse_unfit_styles(
    study: Questions,
    chosen: ModelChoice,
    tasks: Mapping[TaskChoice, Task] | None = None,
    *,
    trust_remote_code: bool = False,
) -> None:
    """Refuse a chat, or settings of one, for which a model has no chat template or one that does not heed them.

    A GGUF file that is not converted yet is not looked at: its tokenizer comes with the conversion.
    """
    styles = {task: Style.parse(style or "") for task, style in study.styles_of(chosen).items()}
    chats = {task: style for task, style in styles.items() if style.set or style.name == "chat"}
    if not chats or pending(find_source(str(chosen.source), chosen.revision)):
        return
    from lesion.models.load import tokenizer_of

    tokenizer = tokenizer_of(chosen.source, revision=chosen.revision, trust_remote_code=trust_remote_code)
    known = {choice.name: task for choice, task in (tasks or {}).items()}
    reader = Named(str(chosen.source), tokenizer)
    for task, style in chats.items():
        resolve(reader, known.get(task) or find(task), str(style))


def refuse_unshared(chosen: ModelChoice, study: str, *, trust_remote_code: bool = False) -> None:
    """Refuse a model whose prompts cannot be shared between edits for a study that needs it.

    A GGUF file that is not converted yet is not looked at.
    """
    if not pending(find_source(str(chosen.source), chosen.revision)):
        from lesion.engines.transformers.engine import refuse_unloaded
        from lesion.models.load import configuration

        config = configuration(chosen.source, revision=chosen.revision, trust_remote_code=trust_remote_code)
        refuse_unloaded(config, chosen.name, study)


def refuse_no_folder(folder: str | Path) -> None:
    """Refuse to read a study where there is no folder."""
    if not Path(folder).is_dir():
        what = "a file" if Path(folder).exists() else "not there"
        raise LesionError(f"There is no study in {folder}: it is {what}. Give the folder that a study was run into.")
