"""Observations: the sums of an isolation, made once and kept in `statistics.safetensors`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from lesion.activations.calibration import Calibration, Draw, calibration
from lesion.activations.observation import observe
from lesion.atomic import keep
from lesion.edits.selections.inputs import Inputs
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.report import wording
from lesion.studies.isolation.study import IsolationStudy
from lesion.tasks.catalogue import calibration_items, find
from lesion.tasks.task import Task

FILE = "statistics.safetensors"
FORMAT = "lesion statistics"
ByDraw = Mapping[tuple[int, int], Inputs]
"""Inputs by (samples, repeat)."""


def draw_texts(study: IsolationStudy, model: Model) -> dict[str, Calibration]:
    """The calibration texts of the skill and of every control, all drawn before the first is read."""
    style = study.styled(study.model.prompt_style)
    tasks = {data: find(data) for data in (study.skill, *study.controls)}
    _refuse_short(study, tasks)
    return {
        data: calibration(
            model, task, study.samples,
            repeats=study.repeats, seed=study.seed, replacement=study.replacement, style=style,
        )
        for data, task in tasks.items()
    }  # fmt: skip


def _refuse_short(study: IsolationStudy, tasks: Mapping[str, Task]) -> None:
    """Refuse at once every data set that has fewer texts than a draw takes."""
    most = max(study.samples)
    there = {} if study.replacement else {data: len(calibration_items(task)) for data, task in tasks.items()}
    short = {data: count for data, count in there.items() if 0 < count < most}
    if short:
        each = wording.listed([f"{data} has {count:,}" for data, count in short.items()])
        raise UsageError(
            f"{most:,} calibration texts are asked for of the skill and of each control, and {each}: give --samples"
            f" {min(short.values())}, data with more texts, or --replacement."
        )


def identity(
    study: IsolationStudy, model: Model, texts: Mapping[str, Calibration], selected: Model | None = None
) -> str:
    """SHA-256 of what the selections of a folder have in common: the model, the data sets, and the very texts; where
    the weights are selected on another model than the observed one, that too, and how many super weights are excluded.
    """
    digests = {data: [_digest(drawn, draw) for draw in drawn.draws] for data, drawn in sorted(texts.items())}
    parts = [model.fingerprint, study.skill, digests, study.samples, study.repeats]
    parts += [] if selected is None or selected is model else [selected.fingerprint]
    parts += [f"without {study.exclude_super_weights}"] if study.exclude_super_weights else []
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def observe_all(
    model: Model, texts: Mapping[str, Calibration], folder: Path, watcher: Watcher
) -> dict[str, dict[tuple[int, int], Inputs]]:
    """Inputs by data set and (samples, repeat); what the folder has is not observed again."""
    path = folder / FILE
    stored = read(path) if path.exists() else {}
    observed: dict[str, dict[tuple[int, int], Inputs]] = {}
    for number, (data, drawn) in enumerate(texts.items()):
        keys = [_key(model, drawn, draw) for draw in drawn.draws]
        if not stored.keys() >= set(keys):
            inputs = observe(model, drawn, watcher=watcher, progress=folder / f"observing-{number}.safetensors")
            others = {key: old for key, old in stored.items() if old.provenance[0].data != data}
            stored = others | dict(zip(keys, inputs, strict=True))
            write(path, stored)
        observed[data] = {(draw.samples, draw.repeat): stored[key] for draw, key in zip(drawn.draws, keys, strict=True)}
    return observed


def _key(model: Model, drawn: Calibration, draw: Draw) -> str:
    """SHA-256 of all that the sums of a draw depend on, the very token ids of its texts among it."""
    ids = [drawn.ids[place] for place in draw.places]
    how = [drawn.data, drawn.style, drawn.seed, drawn.replacement, draw.samples, draw.repeat]
    return hashlib.sha256(json.dumps([model.fingerprint, how, ids, _digest(drawn, draw)]).encode()).hexdigest()


def _digest(drawn: Calibration, draw: Draw) -> str:
    texts = [drawn.texts[place] for place in draw.places]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def write(path: Path, observed: Mapping[str, Inputs]) -> None:
    """Write inputs by their key into a file, whole or not at all."""
    entries = {key: {**inputs.header(), "seal": _seal(key, inputs)} for key, inputs in observed.items()}
    tensors = {f"{key}/{name}": v for key, inputs in observed.items() for name, v in inputs.tensors().items()}
    header = json.dumps({"format": FORMAT, "version": 1, "entries": entries})
    keep(path, save(tensors, metadata={"lesion": header}))


def read(path: Path) -> dict[str, Inputs]:
    """The inputs that a file holds, by their key."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["lesion"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header["format"] != FORMAT or header["version"] != 1:
            raise KeyError("format")
        return {key: _entry(key, entry, tensors) for key, entry in header["entries"].items()}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError, LesionError) as error:
        raise LesionError(
            f"{path} does not hold what was observed of a model, or is damaged ({error}); remove it, and it is made"
            f" again."
        ) from error


def _entry(key: str, entry: Mapping[str, object], tensors: Mapping[str, Tensor]) -> Inputs:
    vectors = {name.partition("/")[2]: vector for name, vector in tensors.items() if name.startswith(f"{key}/")}
    inputs = Inputs.from_parts(entry, vectors)
    if len(inputs.provenance) != 1 or entry["seal"] != _seal(key, inputs):
        raise ValueError("its numbers are not those that were written")
    return inputs


def _seal(key: str, inputs: Inputs) -> str:
    """A digest of everything that an entry says."""
    return hashlib.sha256(json.dumps([key, inputs.header(), inputs.digest], sort_keys=True).encode()).hexdigest()
