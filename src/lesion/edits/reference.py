"""Reference: what every block and branch of a model added to the residual stream on some texts, and what its query
heads gave, for edits that put another contribution in the place of a block's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float32, Int64
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from lesion.arguments import validated
from lesion.edits.files.container import write_bytes
from lesion.edits.replace import KINDS
from lesion.errors import LesionError
from lesion.files import read_bytes, reason
from lesion.reprs import described

FORMAT = "lesion reference"


class Fit(NamedTuple):
    """How a constant was fitted (`lesion.optimal_reference`), by what the ablation changes on held-out texts.

    Attributes:
        mean, optimal: KL from the unedited model in nats per token, under the mean and under the constant.
        steps: after how many steps it was found; 0 where it is the mean.
    """

    mean: float
    optimal: float
    steps: int


@dataclass(frozen=True, eq=False)
class Reference:
    """Contributions by kind of replacement and by place. Two references of the same content are equal.

    Attributes:
        model: name of the model as typed.
        fingerprint: of the weights with which the contributions were computed; edits of other models refuse them.
        label: which texts they come from, in words.
        tokens: of these texts, all of which the means are over.
        vectors: by kind and by address, on the CPU: what a place added to the residual stream (`23`, `23.attention`,
            `23.mlp`), or what a query head gave at the input of the attention's output matrix (`23.attention.head.4`),
            which is as wide as a head. One for each of the first positions of a prompt, the last of them for all later
            positions too: of `mean` and `optimal` one for the first token and one for all others, of `position` one
            for each position. `resample`: those of every token of some texts, one text after another.
        fits: of the `optimal` vectors, by address.
        texts: how many tokens each text of `resample` has; a draw is one of these texts.
    """

    model: str
    fingerprint: str
    label: str
    tokens: int
    vectors: Mapping[str, Mapping[str, Float32[Tensor, "vectors width"]]]
    fits: Mapping[str, Fit] = field(default_factory=dict)
    texts: tuple[int, ...] = ()

    def __repr__(self) -> str:
        places = len({address for of_kind in self.vectors.values() for address in of_kind})
        kinds = ", ".join(f"{kind} ({len(next(iter(of.values())))})" for kind, of in self.vectors.items() if of)
        return described(self, repr(self.label), f"{self.tokens:,} tokens", f"{places} places", kinds)

    def tokens_of(self, draw: int) -> Int64[Tensor, " positions"]:
        """Which vector of `resample` stands at each position under a draw; the last stands at all later positions too.

        It is that of the same position in text number `draw`, or, where that text has ended, in the next one that
        reaches the position.
        """
        starts = [0, *accumulate(self.texts)]
        order = [*range(draw, len(self.texts)), *range(draw)]
        reaching = (next(text for text in order if self.texts[text] > at) for at in range(max(self.texts)))
        return torch.tensor([starts[text] + at for at, text in enumerate(reaching)])

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of the model's fingerprint and all vectors, by which edits name the reference."""
        sha = hashlib.sha256(f"{self.fingerprint}|{self.texts}".encode())
        for name, vectors in sorted(self._tensors().items()):
            sha.update(f"|{name} {tuple(vectors.shape)}".encode())
            sha.update(vectors.numpy().tobytes())
        return sha.hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @validated
    def save(self, path: Path | str) -> Path:
        """Write the reference as a safetensors file, whole or not at all; `read_reference` reads it."""
        header = {
            "format": FORMAT,
            "model": self.model,
            "fingerprint": self.fingerprint,
            "label": self.label,
            "tokens": self.tokens,
            "digest": self.digest,
            "fits": self.fits,
            "texts": self.texts,
        }
        return write_bytes(Path(path), to_bytes(self._tensors(), metadata={"lesion": json.dumps(header)}))

    def _tensors(self) -> dict[str, Tensor]:
        return {
            f"{kind}/{address}": vectors.cpu().contiguous()
            for kind, of_kind in self.vectors.items()
            for address, vectors in of_kind.items()
        }


@validated
def read_reference(path: Path | str) -> Reference:
    """Read what `Reference.save` wrote; what does not have the content that it states is refused.

    Raises:
        UsageError: there is no such file.
        LesionError: it cannot be read, is no reference, or was cut short or changed.
    """
    data = read_bytes(Path(path))
    try:
        header = _header(data)
        vectors: dict[str, dict[str, Tensor]] = {}
        for name, tensor in from_bytes(data).items():
            kind, _, address = name.partition("/")
            if kind not in KINDS or not address or tensor.dtype != torch.float32 or tensor.dim() != 2:
                raise ValueError(f"'{name[:40]}' is not of a place")
            vectors.setdefault(kind, {})[address] = tensor
        model, fingerprint, label = (str(header[key]) for key in ("model", "fingerprint", "label"))
        fits = {address: Fit(float(fit[0]), float(fit[1]), int(fit[2])) for address, fit in header["fits"].items()}
        lengths = tuple(int(length) for length in header["texts"])
        reference = Reference(model, fingerprint, label, int(header["tokens"]), vectors, fits, lengths)
        stated = header["digest"]
    except (
        SafetensorError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
        OverflowError,
        AttributeError,
    ) as error:
        raise LesionError(f"{path} cannot be read as a reference of contributions: {reason(error)}.") from error
    if reference.digest != stated:
        raise LesionError(f"{path} was changed or damaged after it was written; make the reference anew.")
    return reference


def _header(data: bytes) -> dict[str, Any]:
    size = int.from_bytes(data[:8], "little")
    outer = json.loads(data[8 : 8 + size])
    header: dict[str, Any] = json.loads(outer["__metadata__"]["lesion"])
    if header["format"] != FORMAT:
        raise ValueError("its header says that it is something else")
    return header
