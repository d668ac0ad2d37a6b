"""The cells of a tuning study: one training each, resumable, its network lent and given back bit for bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pydantic import ValidationError

from lesion.atomic import keep
from lesion.core.layers import canonical_layers
from lesion.errors import LesionError
from lesion.files import SUMMARY_BYTES, read_text
from lesion.models.fingerprint import fingerprint
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.report.values import Number, Value
from lesion.studies.tuning.arms import Arm
from lesion.studies.tuning.result import CurvePoint
from lesion.studies.tuning.training import Training

CELLS, CELL, STATE = "cells", "cell.json", "resume.safetensors"


@dataclass(frozen=True)
class Cell:
    """One training: of an arm, under a learning rate and a seed.

    Attributes:
        seed: of the order of the rows and of `random`.
        digest: of everything that decides the trained weights.
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


class Trained(Value):
    """What a finished training left.

    Attributes:
        digest: of the cell; fingerprint: of its weights.
        seconds: how long it took.
        curve: what was measured on the way, as `supervise` and `reinforce` give it.
    """

    digest: str
    fingerprint: str
    seconds: float
    curve: tuple[dict[str, Number], ...]

    @property
    def points(self) -> list[CurvePoint]:
        """The curve with what is drawn of it."""
        return [CurvePoint.model_validate({name: point.get(name) for name in CurvePoint.model_fields})
                for point in self.curve]  # fmt: skip


def cell_of(arm: Arm, rate: float, seed: int, model: Model, training: Training) -> Cell:
    """The cell of an arm under a rate and a seed, for this model and this training."""
    parts = [model.fingerprint, list(arm.blocks), arm.rank, rate, seed, *training.identity]
    return Cell(arm, rate, seed, hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest())


def trained(folder: Path, cell: Cell) -> Trained | None:
    """What is known of a cell in a study's folder; None: it is not trained yet, or its note is damaged."""
    try:
        text = read_text(folder / CELLS / cell.folder / CELL, limit=SUMMARY_BYTES)
        stored = Trained.model_validate_json(text)
    except (LesionError, ValidationError):
        return None
    return stored if stored.digest == cell.digest else None


@contextmanager
def tuned(
    model: Model, cell: Cell, training: Training, folder: Path, watcher: Watcher, name: str
) -> Iterator[tuple[Model, Trained]]:
    """The model with the weights of a cell, trained here or taken from where the training left them.

    Afterwards, whatever happened, the network has its own weights again, bit for bit.

    The model is in float32, and nothing else may use its network meanwhile. The watcher is told of the steps of the
    training, under this name.
    """
    arm, place = cell.arm, folder / CELLS / cell.folder
    inside = [p for block in arm.blocks for p in model.anatomy.blocks[block].module.parameters()]
    before = [p.detach().clone() for p in inside]
    try:
        # All cells share the model, whose name would not tell one training from another.
        named = replace(model, name=name)
        points = training.train(named, arm, cell.rate, cell.seed, place, watcher)
        changed = replace(model, fingerprint=fingerprint(model.network), origin=None)
        finished = Trained(
            digest=cell.digest,
            fingerprint=changed.fingerprint,
            seconds=points[-1]["seconds"] if points else 0.0,
            curve=points,
        )
        keep(place / CELL, finished.model_dump_json(indent=1))
        yield changed, finished
    finally:
        with torch.no_grad():
            for parameter, value in zip(inside, before, strict=True):
                parameter.copy_(value)


def forget(folder: Path, cell: Cell) -> None:
    """Remove the weights of a cell that has answered everything; its curve stays, and it can be trained again."""
    (folder / CELLS / cell.folder / STATE).unlink(missing_ok=True)
