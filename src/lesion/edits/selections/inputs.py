"""Inputs: what flows into every matrix of a model on one data set, summed up in a vector per input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int
from pydantic import AfterValidator, StringConstraints
from torch import Tensor

from lesion.errors import LesionError, UsageError
from lesion.reprs import described


def _printable(text: str) -> str:
    # A name is shown on terminals and pages; what moves the cursor or turns the writing round does not belong there.
    if not text.isprintable():
        raise ValueError("it holds control characters")
    return text


Text = Annotated[str, StringConstraints(max_length=1000), AfterValidator(_printable)]
"""A name, which is checked where it is read from a file (`lesion.edits.files.reading`)."""


@dataclass(frozen=True, eq=False)
class InputSums:
    """Sums over the texts of a data set for one matrix input X, X_i [tokens, in] being what text i sends into it.

    Attributes:
        norms: a_j = Σ_i ‖X_i[:, j]‖₂, float32 (Christ et al. 2024, section 3).
        squares: Σ_i ‖X_i[:, j]‖₂², float32; its root is the norm of Wanda (Sun et al. 2023, eq. 1). None where not
            needed.
        tokens: that came; of an expert, those that were routed to it.
        active: of the last matrix of a feed-forward branch, tokens on which the activation of neuron j was above 0
            (Tang et al. 2024, eq. 3), int64; else None.
    """

    norms: Float[Tensor, " in"]
    squares: Float[Tensor, " in"] | None
    tokens: int
    active: Int[Tensor, " in"] | None = None

    def __repr__(self) -> str:
        return described(self, f"{len(self.norms):,} inputs", f"{self.tokens:,} tokens")

    def __add__(self, other: InputSums) -> InputSums:
        mine, yours = ((sums.norms.shape, sums.squares is None, sums.active is None) for sums in (self, other))
        if mine != yours:
            raise LesionError("Sums of two matrix inputs of different size or kind cannot be added.")
        return InputSums(
            _added(self.norms, other.norms),
            None if self.squares is None or other.squares is None else _added(self.squares, other.squares),
            self.tokens + other.tokens,
            None if self.active is None or other.active is None else self.active + other.active,
        )


def _added(sums: Float[Tensor, " in"], other: Float[Tensor, " in"]) -> Float[Tensor, " in"]:
    return (sums.double() + other.double()).float()


@dataclass(frozen=True)
class Provenance:
    """Where sums come from.

    Attributes:
        model, data: names as typed.
        fingerprint: of the model's weights as they were loaded.
        seed, repeat: which draw of texts this is; seed 0, repeat 0 is the first.
        replacement: whether texts were drawn with replacement.
        ids: of the drawn items, in order; one drawn twice stands twice.
        cut: how many texts were longer than the context and were cut at its end.
        style: the prompt style in which the texts were written.
    """

    model: Text
    fingerprint: Text
    data: Text
    seed: int
    repeat: int
    replacement: bool
    ids: tuple[str, ...]
    cut: int
    style: Text


@dataclass(frozen=True, eq=False)
class Inputs:
    """What flows into every matrix of a model on one data set.

    Attributes:
        sums: by the address of the first matrix that reads an input (`3.attention.q` for q, k and v).
        readers: matrix address → the key of `sums` that it reads. A matrix that is not here was not observed.
        texts: number of texts summed up, one drawn twice counting twice.
        tokens: of these texts.
        provenance: one per draw; more than one after a merge.
    """

    sums: Mapping[str, InputSums]
    readers: Mapping[str, str]
    texts: int
    tokens: int
    provenance: tuple[Provenance, ...] = field(default=())

    def __repr__(self) -> str:
        data = " + ".join(dict.fromkeys(origin.data for origin in self.provenance)) or "unnamed data"
        return described(self, repr(data), f"{self.texts:,} texts", f"{self.tokens:,} tokens")

    def of(self, address: str) -> InputSums | None:
        """The sums of the input that a matrix reads; None where it was not observed."""
        reader = self.readers.get(address)
        return None if reader is None else self.sums[reader]

    def __add__(self, other: Inputs) -> Inputs:
        """The sums over both data sets, or over two shards of one; refuses those of different models."""
        mine, yours = ({p.fingerprint for p in inputs.provenance} for inputs in (self, other))
        if dict(self.readers) != dict(other.readers) or (mine and yours and mine != yours):
            raise UsageError("Sums over two different models cannot be added; observe both data sets on the same one.")
        sums = {name: self.sums[name] + other.sums[name] for name in self.sums}
        provenance = (*self.provenance, *other.provenance)
        return replace(
            self, sums=sums, texts=self.texts + other.texts, tokens=self.tokens + other.tokens, provenance=provenance
        )

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of everything that a selection reads: the vectors and who reads which."""
        sha = hashlib.sha256(json.dumps(sorted(self.readers.items())).encode())
        for name in sorted(self.sums):
            entry = self.sums[name]
            sha.update(f"{name} {entry.tokens}".encode())
            for vector in (entry.norms, entry.squares, entry.active):
                sha.update(b"-" if vector is None else vector.cpu().contiguous().numpy().tobytes())
        return sha.hexdigest()[:16]

    def only(self, *, squares: bool = False, active: bool = False) -> Inputs:
        """The same without the vectors that a selection does not need."""
        sums = {
            name: replace(sums, squares=sums.squares if squares else None, active=sums.active if active else None)
            for name, sums in self.sums.items()
        }
        return replace(self, sums=sums)

    def tensors(self) -> dict[str, Tensor]:
        """The vectors by name, `ADDRESS/norms`, `ADDRESS/squares`, `ADDRESS/active`, for a safetensors file."""
        vectors: dict[str, Tensor] = {}
        for name, entry in self.sums.items():
            vectors[f"{name}/norms"] = entry.norms
            if entry.squares is not None:
                vectors[f"{name}/squares"] = entry.squares
            if entry.active is not None:
                vectors[f"{name}/active"] = entry.active
        return {name: vector.cpu().contiguous() for name, vector in vectors.items()}

    def header(self) -> dict[str, object]:
        """Everything but the vectors, as plain JSON values; with `tensors`, what `from_parts` reads."""
        return {
            "texts": self.texts,
            "tokens": self.tokens,
            "inputs": {name: entry.tokens for name, entry in self.sums.items()},
            "readers": dict(self.readers),
            "provenance": [{**p.__dict__, "ids": list(p.ids)} for p in self.provenance],
        }

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Inputs:
        """The inputs that `header` and `tensors` were taken from; refuses those that do not fit each other."""
        try:
            sums = {
                str(name): InputSums(
                    tensors[f"{name}/norms"], tensors.get(f"{name}/squares"), int(tokens), tensors.get(f"{name}/active")
                )
                for name, tokens in header["inputs"].items()
            }
            readers = {str(address): str(name) for address, name in header["readers"].items()}
            provenance = tuple(Provenance(**{**entry, "ids": tuple(entry["ids"])}) for entry in header["provenance"])
            inputs = cls(sums, readers, int(header["texts"]), int(header["tokens"]), provenance)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LesionError(f"These are not the sums of matrix inputs: {error} does not fit.") from error
        if not set(readers.values()) <= set(sums) or any(
            entry.norms.dim() != 1
            or entry.norms.dtype != torch.float32
            or (entry.squares is not None and entry.norms.shape != entry.squares.shape)
            for entry in sums.values()
        ):
            raise LesionError("These are not the sums of matrix inputs: vectors are missing or have another shape.")
        return inputs
