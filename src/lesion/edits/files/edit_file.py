"""An edit file as a value: the edit, what it was made for, and whether it fits another model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from lesion.arguments import validated
from lesion.edits.cuts import Cut, cuts
from lesion.edits.edit import Compose, Edit, ScaleParameters, Truncate, of_spectra, of_weights, parts, with_factor
from lesion.edits.selections.inputs import Inputs, Text
from lesion.edits.selections.selection import LONGEST_LABEL, Count, Selection, Thresholds
from lesion.errors import LesionError
from lesion.models.fingerprint import values_digest
from lesion.models.load import Model
from lesion.plain import short
from lesion.reprs import described

# What may stand in a file, checked where one is read (`reading.py`).
Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")]
Address = Annotated[str, StringConstraints(pattern=r"^(head|[0-9]{1,9}\.(attention|mlp)(\.[A-Za-z0-9_-]+)+)$")]
Size = Annotated[int, Field(gt=0, lt=2**31)]


@dataclass(frozen=True)
class MatrixValues:
    """One matrix of the model that an edit was made for: its shape (out, in), and the digest of its values."""

    shape: tuple[Size, Size]
    values: Digest


@dataclass(frozen=True)
class MadeFor:
    """The model that an edit was made for: its typed name, family, dtype (`float32`) and the fingerprint of its
    weights.

    `matrices` are those that the edit touches, by address.
    """

    name: Text
    fingerprint: Digest
    family: Text
    dtype: Text
    matrices: Mapping[Address, MatrixValues]


@dataclass(frozen=True, eq=False)
class EditFile:
    """An edit as it was read from a file.

    Attributes:
        edit: its selections as recipes: right for any model, slower than fixed ones.
        label: a short name, safe in file names.
        selected: how much of every matrix is selected on the model it was made for; empty where it only truncates.
        made: the day, `2026-11-20`.
        lesion: the version of the package that wrote it.
        content: SHA-256 of the file with these digits as zeros.
        thresholds: on that model, by the digest of a top share.
        data: the bytes of the file.
        biases: by the address of a matrix, the factor of the bias added to what it gives. Only an edit of blocks and
            branches that was given as text or value for a checkpoint has some; a file holds none.
    """

    edit: Edit
    label: str
    model: MadeFor
    selected: tuple[Count, ...]
    made: str
    lesion: str
    content: str
    path: Path
    thresholds: Mapping[str, Thresholds] = field(repr=False)
    data: bytes = field(repr=False)
    biases: Mapping[str, float] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return described(self, repr(str(self.path)), short(str(self.edit), 120), f"made for {self.model.name}")

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that tell this file from another."""
        return self.content[:16]

    @property
    def selections(self) -> dict[str, Selection]:
        """The selections of the edit by digest, each once."""
        return {part.selection.digest: part.selection for part in of_weights(self.edit)}

    @property
    def inputs(self) -> tuple[Inputs, ...]:
        """Everything observed that the edit was made from, each once."""
        return inputs_of(self.edit)

    @property
    def factors(self) -> tuple[float, ...]:
        """The factor of every part that multiplies weights."""
        return tuple(float(part.factor) for part in of_weights(self.edit))

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """What is left of every matrix that the edit truncates."""
        return cuts(of_spectra(self.edit), {address: matrix.shape for address, matrix in self.model.matrices.items()})

    def fixed(self) -> Edit:
        """The edit with the thresholds of the model that it was made for: for those very weights only."""
        return mapped(self.edit, lambda selection: selection.with_thresholds(self.thresholds))

    @validated
    def with_factor(self, factor: float) -> EditFile:
        """The same selections under another factor."""
        return replace(self, edit=with_factor(self.edit, factor), biases=dict.fromkeys(self.biases, factor))

    @validated
    def fit(self, model: Model, force: bool = False) -> Edit:
        """The edit for a model: with its thresholds where the weights are those that it was made for.

        Args:
            force: take other weights of the same shapes too; the selection is then made anew on them, and it is they
                that are truncated.
        """
        if model.fingerprint == self.model.fingerprint:
            return self.fixed()
        mine = {address: matrix.shape for address, matrix in model.anatomy.scored.items()}
        self.refuse_misfits(mine, model.name)
        if all(
            values_digest(model.anatomy.scored[address].read()) == matrix.values
            for address, matrix in self.model.matrices.items()
        ):
            return self.fixed()
        if not force:
            dtype = model.dtype_name
            by_force = "with --force (in Python, lesion.read_edit(FILE).fit(model, force=True))"
            rounded = f" It was made in {self.model.dtype}, and this one is in {dtype}." * (dtype != self.model.dtype)
            raise LesionError(
                f"The edit {self.label} was made for {self.model.name} (fingerprint {self.model.fingerprint}), and "
                f"{model.name} (fingerprint {model.fingerprint}) has other weights. Give that model, or "
                f"{anew(self.edit)} {by_force}.{rounded}"
            )
        return self.edit

    def afresh(self, model: Model, edit: Edit) -> bool:
        """Whether what `fit` gave for a model selects anew, on other weights than those the edit was made for."""
        return model.fingerprint != self.model.fingerprint and edit is self.edit

    def refuse_misfits(self, shapes: Mapping[str, tuple[int, int]], name: str) -> None:
        """Refuse a model whose matrices do not have the shapes of those that the edit touches."""
        for address, matrix in self.model.matrices.items():
            have = shapes.get(address)
            if have != matrix.shape:
                there = "has no such matrix" if have is None else f"has one of {have[0]:,} × {have[1]:,}"
                raise LesionError(
                    f"The edit {self.label} does not fit {name}: it changes {address} ({matrix.shape[0]:,} × "
                    f"{matrix.shape[1]:,}, out × in), and {name} {there}. It was made for {self.model.name} "
                    f"(fingerprint {self.model.fingerprint})."
                )


def mapped(edit: Edit, change: Callable[[Selection], Selection]) -> Edit:
    """An edit of weights with every selection changed; truncations as they are."""
    # Copies of truncations too: `EditFile.afresh` recognises what was fixed by the identity of the object.
    changed = tuple(
        replace(part, selection=change(part.selection)) if isinstance(part, ScaleParameters) else replace(part)
        for part in parts(edit)
    )
    return changed[0] if len(changed) == 1 else Compose(changed)


def inputs_of(edit: Edit) -> tuple[Inputs, ...]:
    """Everything observed that an edit of weights was made from, each once."""
    by_digest = {inputs.digest: inputs for part in of_weights(edit) for inputs in part.selection.inputs}
    return tuple(by_digest.values())


def label_of(edit: Edit) -> str:
    """The label of an edit of weights: that of its selection, `3.mlp.up-top-0.01`, or several joined by `_with_`."""
    labels = [
        str(part).replace(" ", "-") if isinstance(part, Truncate) else part.selection.label
        for part in parts(edit)
        if isinstance(part, Truncate | ScaleParameters)
    ]
    return "_with_".join(labels)[:LONGEST_LABEL]


def anew(edit: Edit) -> str:
    """What `--force` has done to other weights than those that an edit was made for, as an imperative."""
    return "have the selection made anew on these weights" if of_weights(edit) else "truncate these weights"
