"""Partial sums: what an observation has added up so far, in memory and, so that it can go on, in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from lesion.activations.readers import Input
from lesion.activations.token_sums import TextSums
from lesion.atomic import replace
from lesion.errors import LesionError


class Partial:
    """Sums per input and draw, float64; those of a batch are gathered by `take` and added by `commit`.

    Attributes:
        texts: how many texts, in the order of the observation, are in the sums.
        unseen: keys of inputs that some batch did not show once, as the probe did; their sums mean nothing.
    """

    WORDS: ClassVar[tuple[str, ...]] = ("norms", "squares", "tokens", "active")

    def __init__(self, inputs: Sequence[Input], draws: int) -> None:
        self.texts = 0
        self.unseen: set[str] = set()
        self.sums: dict[str, Tensor] = {}
        self._pending: set[str] = set()
        self._times: dict[torch.device, Tensor] = {}
        for place in inputs:
            for word in self.WORDS if place.counted else self.WORDS[:3]:
                size = () if word == "tokens" else (place.size,)
                self.sums[f"{place.key}/{word}"] = torch.zeros(draws, *size, dtype=torch.float64, device=place.device)
        # Sums of the running batch lie in memory of their own from the start: small pieces that are taken between large
        # activations keep the allocator from using these again, which took many times the memory of a matrix.
        self._space = {name: torch.empty_like(values) for name, values in self.sums.items()}

    def begin(self, times: Float[Tensor, "draws rows"]) -> None:
        """A batch starts: how many times every draw uses its texts."""
        self._pending.clear()
        self._times = {times.device: times}

    def take(self, key: str, sums: TextSums) -> None:
        """Sums of the texts of the batch for one input."""
        parts: dict[str, Tensor | None] = {"squares": sums.squares, "tokens": sums.tokens, "active": sums.active}
        if sums.squares is not None:
            parts["norms"] = sums.squares.sqrt()
        for word, values in parts.items():
            if values is not None:
                name = f"{key}/{word}"
                if name in self._pending:  # twice in one pass: not what the probe saw
                    self.unseen.add(key)
                self._pending.add(name)
                if values.device not in self._times:
                    self._times[values.device] = next(iter(self._times.values())).to(values.device)
                torch.matmul(self._times[values.device], values, out=self._space[name])

    def commit(self, texts: int) -> None:
        """Add the batch of so many texts; inputs that it did not show as the probe did are `unseen` from now on."""
        for name in self._pending:
            self.sums[name] += self._space[name]
        self.texts += texts
        self.unseen |= {name.rpartition("/")[0] for name in self.sums.keys() - self._pending}

    def save(self, path: Path, identity: str) -> None:
        """Write the sums to a file, wholly or not at all."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            tensors = {name: values.cpu() for name, values in self.sums.items()}
            header = {"identity": identity, "texts": str(self.texts), "unseen": json.dumps(sorted(self.unseen))}
            replace(path, save(tensors, metadata=header))
        except (OSError, SafetensorError) as error:
            raise LesionError(
                f"What was observed so far cannot be kept in {path}: {error}. Name a place that can be written."
            ) from error

    def resume(self, path: Path, identity: str) -> None:
        """Go on from a file that `save` wrote for the same observation; any other file changes nothing."""
        try:
            with safe_open(path, "pt") as file:
                header: Mapping[str, str] = file.metadata() or {}
                if header.get("identity") != identity or set(file.keys()) != set(self.sums):
                    return
                texts, unseen = int(header["texts"]), set(json.loads(header["unseen"]))
                stored = {name: file.get_tensor(name) for name in self.sums}
        except (OSError, SafetensorError, KeyError, ValueError):
            return
        if all(stored[name].shape == own.shape and stored[name].dtype == own.dtype for name, own in self.sums.items()):
            self.texts, self.unseen = texts, unseen
            self.sums = {name: values.to(self.sums[name].device) for name, values in stored.items()}
