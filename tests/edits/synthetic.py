"""Inputs as observing a model would give them, without observing: seeded vectors for every matrix."""

import torch

from lesion.edits.selections.inputs import Inputs, InputSums, Provenance
from lesion.edits.selections.topk import MathNeuro, Wanda


def inputs(model, seed: int, data: str = "sums.jsonl") -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    sums, readers = {}, {}
    for address, matrix in model.anatomy.scored.items():
        norms = torch.rand(matrix.shape[1], generator=generator) * 3
        active = None
        if address.endswith(("down", ".out")):
            active = torch.randint(0, 50, (matrix.shape[1],), generator=generator)
        sums[address] = InputSums(norms, norms**2 / 5, 50, active)
        readers[address] = address
    ids = ("one", "two", "naïve “three”")
    provenance = (Provenance(model.name, model.fingerprint, data, 0, seed, False, ids, 1, "raw"),)
    return Inputs(sums, readers, 3, 50, provenance)


def mathneuro(model, keep: float = 0.1, seed: int = 0) -> MathNeuro:
    return MathNeuro(inputs(model, seed), (inputs(model, seed + 1, "atlas"), inputs(model, seed + 2, "reading")), keep)


def wanda_rows(model, keep: float = 0.1, seed: int = 5) -> Wanda:
    return Wanda(inputs(model, seed), keep, "row")
