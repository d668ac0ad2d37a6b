"""The cells of a tuning study: one training each, resumable, its network lent and given back bit for bit."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pydantic import ValidationError

from lesion.atomic import replace as write_whole
from lesion.core.layers import canonical_layers
from lesion.core.values import Number, Value
from lesion.errors import LesionError
from lesion.files import SUMMARY_BYTES, read_text
from lesion.models.fingerprint import fingerprint
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.studies.tuning.arms import Arm
from lesion.training.examples import Example
from lesion.training.supervised import Tuning, supervise

CELLS, CELL, STATE = "cells", "cell.json", "resume.safetensors"


@dataclass(frozen=True)
class Cell:
    """One training.

    Attributes:
        arm: what trains.
        rate: the learning rate.
        seed: of the order of the rows and of `random`.
        digest: of everything that decides what it ends in.
    """

    arm: Arm
    rate: float
    seed: int
    digest: str

    @property
    def folder(self) -> str:
        """Its folder in `cells`. Two arms that tune the same blocks share one."""
        blocks = canonical_layers(self.arm.blocks).replace(",", "+")
        short = blocks if len(blocks) <= 40 else f"{len(self.arm.blocks)}-blocks"
        adapter = "" if self.arm.rank is None else f"-rank{self.arm.rank}"
        return f"blocks{short}{adapter}-rate{self.rate:g}-seed{self.seed}-{self.digest[:8]}"


class TrainingPoint(Value):
    """A point of a training's curve.

    Attributes:
        loss: mean over the stretch since the last point, in nats per answer token.
        rate: the learning rate at its end.
        tokens: of answers so far; seconds: likewise.
    """

    step: int
    loss: Number
    rate: Number = None
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Trained:
    """What a finished training left: the fingerprint of its weights, its curve, and how long it took in seconds."""

    fingerprint: str
    curve: tuple[TrainingPoint, ...]
    seconds: float


class StoredCell(Value):
    """A finished cell as its file has it."""

    digest: str
    arm: str
    blocks: tuple[int, ...]
    rank: int | None
    parameters: int
    rate: float
    seed: int
    fingerprint: str
    seconds: float
    curve: tuple[TrainingPoint, ...]


def cell_of(arm: Arm, rate: float, seed: int, model: Model, examples: Sequence[Example], steps: int, rows: int) -> Cell:
    """The cell of an arm under a rate and a seed, for this model and these examples."""
    parts = [
        model.fingerprint,
        list(arm.blocks),
        arm.rank,
        rate,
        seed,
        steps,
        rows,
        [[list(example.prompt), list(example.completion)] for example in examples],
    ]
    return Cell(arm, rate, seed, hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest())


def trained(folder: Path, cell: Cell) -> Trained | None:
    """What is known of a cell in a study's folder; None: it is not trained yet, or its note is damaged."""
    path = folder / CELLS / cell.folder / CELL
    if not path.is_file():
        return None
    try:
        stored = StoredCell.model_validate_json(read_text(path, limit=SUMMARY_BYTES))
    except (LesionError, ValidationError):
        return None
    return Trained(stored.fingerprint, stored.curve, stored.seconds) if stored.digest == cell.digest else None


@contextmanager
def tuned(
    model: Model,
    cell: Cell,
    examples: Sequence[Example],
    steps: int,
    rows: int,
    folder: Path,
    watcher: Watcher,
    name: str,
) -> Iterator[tuple[Model, Trained]]:
    """The model with the weights of a cell, trained here or taken from where the training left them.

    Afterwards, whatever happened, the network has its own weights again, bit for bit.

    Args:
        model: in float32; nothing else may use its network meanwhile.
        cell: what to train.
        examples: what on.
        steps: how long.
        rows: of a step.
        folder: the study's.
        watcher: is told of the steps.
        name: of this training, for the watcher.

    Raises:
        LesionError: the training fails, or the folder cannot be written.
    """
    place = folder / CELLS / cell.folder
    inside = [p for block in cell.arm.blocks for p in model.anatomy.blocks[block].module.parameters()]
    before = [p.detach().clone() for p in inside]
    try:
        points = supervise(
            model,
            examples,
            Tuning(steps=steps, rows=rows, learning_rate=cell.rate, seed=cell.seed),
            place,
            watcher=_Named(watcher, name),
            blocks=cell.arm.blocks,
            rank=cell.arm.rank,
        )
        curve = tuple(TrainingPoint.model_validate(point) for point in points)
        changed = replace(model, fingerprint=fingerprint(model.network), origin=None)
        finished = Trained(changed.fingerprint, curve, curve[-1].seconds if curve else 0.0)
        _note(place, cell, finished)
        yield changed, finished
    finally:
        with torch.no_grad():
            for parameter, value in zip(inside, before, strict=True):
                parameter.copy_(value)


def forget(folder: Path, cell: Cell) -> None:
    """Remove the weights of a cell that has answered everything; its curve stays, and it can be trained again."""
    (folder / CELLS / cell.folder / STATE).unlink(missing_ok=True)


def begin_anew(folder: Path, cell: Cell) -> None:
    """Remove a cell altogether."""
    shutil.rmtree(folder / CELLS / cell.folder, ignore_errors=True)


def _note(place: Path, cell: Cell, finished: Trained) -> None:
    stored = StoredCell(
        digest=cell.digest,
        arm=cell.arm.name,
        blocks=cell.arm.blocks,
        rank=cell.arm.rank,
        parameters=cell.arm.parameters,
        rate=cell.rate,
        seed=cell.seed,
        fingerprint=finished.fingerprint,
        seconds=finished.seconds,
        curve=finished.curve,
    )
    try:
        place.mkdir(parents=True, exist_ok=True)
        write_whole(place / CELL, stored.model_dump_json(indent=1))
    except OSError as error:
        raise LesionError(f"{place} cannot be written: {error.strerror or error}; give another --out.") from error


class _Named:
    """A watcher to whom a training has the name of its cell, not that of the model, which all cells share."""

    def __init__(self, watcher: Watcher, name: str) -> None:
        self.watcher = watcher
        self.name = name

    def begin(self, model: str, asked: int, stored: int, what: str = "answers") -> None:
        self.watcher.begin(self.name, asked, stored, what)

    def answered(self, count: int) -> None:
        self.watcher.answered(count)

    def note(self, text: str) -> None:
        self.watcher.note(text)
