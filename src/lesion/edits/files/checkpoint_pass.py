"""One edit on its way through the shards of a checkpoint, and what it has done when they are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lesion.edits.edit import Compose, ScaleParameters, of_weights
from lesion.edits.files.card import AppliedEdit
from lesion.edits.files.edit_file import EditFile, anew
from lesion.edits.files.truncated import Truncated
from lesion.edits.selections.selection import Count, check_extent
from lesion.edits.weights import Effect, check_effects, scaled
from lesion.errors import LesionError
from lesion.models.fingerprint import values_digest


@dataclass
class EditOnCheckpoint:
    """One edit on its way: what it changes in every matrix, and what it did.

    Attributes:
        force: take other weights than those it was made for.
        fixed, loose: its parts that multiply weights, with the thresholds of the model it was made for and without.
        counts, effects, union: what they did, by matrix: weights selected, by part, by all parts together.
        afresh: some weights were other ones.
    """

    file: EditFile
    force: bool
    fixed: tuple[ScaleParameters, ...]
    loose: tuple[ScaleParameters, ...]
    counts: dict[str, Count] = field(default_factory=dict)
    effects: list[list[Effect]] = field(default_factory=list)
    union: list[Effect] = field(default_factory=list)
    afresh: bool = False

    @classmethod
    def of(cls, file: EditFile, force: bool) -> EditOnCheckpoint:
        """The edit of a file, before the first shard."""
        fixed, loose = of_weights(file.fixed()), of_weights(file.edit)
        return cls(file, force, fixed, loose, effects=[[] for _ in fixed])

    def made_for(self, address: str, weight: Float[Tensor, "out in"], base: str) -> bool:
        """Whether the edit was made for these values of a matrix; without `force` it must have been."""
        if values_digest(weight) == self.file.model.matrices[address].values:
            return True
        if not self.force:
            made = self.file.model
            raise LesionError(
                f"The edit {self.file.label} was made for {made.name} (fingerprint {made.fingerprint}, in "
                f"{made.dtype}), and {base} has other weights in {address}. Give that model, or "
                f"{anew(self.file.edit)} with --force."
            )
        self.afresh = True
        return False

    def changes(
        self, address: str, weight: Float[Tensor, "out in"], base: str
    ) -> list[tuple[Bool[Tensor, "out in"], float]]:
        """Masks on one matrix with their factors."""
        if address not in self.file.model.matrices:
            return []
        parts = self.fixed if self.made_for(address, weight, base) else self.loose
        # Scores are exact for at most 24 significant bits.
        narrow = weight.float() if weight.dtype == torch.float64 else weight
        return [(part.selection.mask(address, narrow), float(part.factor)) for part in parts]

    def note(self, address: str, weight: Tensor, own: Sequence[tuple[Tensor, float]], whole: Effect | None) -> None:
        """What this edit by itself does to a matrix; `whole` where that is known, since no other edit touches it."""
        union = whole or scaled(weight, own, address)[1]
        for effects, change in zip(self.effects, own, strict=True):
            effects.append(union if len(own) == 1 else scaled(weight, [change], address)[1])
        self.union.append(union)
        self.counts[address] = Count.at(address, union.selected, weight.numel())

    def check(self, total: int, name: str) -> float | None:
        """The factor that its multiplications have achieved, with their sign; None where it only truncates."""
        if not self.fixed:
            return None
        for part, effects in zip(self.fixed, self.effects, strict=True):
            check_extent(part.selection, sum(effect.selected for effect in effects), total, name)
            check_effects(part, effects, name)
        size = check_effects(Compose(self.fixed), self.union, name)
        return math.copysign(size, math.prod(self.file.factors))


def applied_edits(
    passes: Sequence[EditOnCheckpoint], done: Mapping[str, Truncated], total: int, name: str
) -> tuple[AppliedEdit, ...]:
    """What each edit did by itself, all shards written; `done` are the truncated matrices, `total` as in
    `check_effects`.
    """
    edits = []
    taken: set[str] = set()
    for edit_pass in passes:
        file = edit_pass.file
        achieved = edit_pass.check(total, name)
        cuts = file.cuts
        if not edit_pass.fixed and not any(done[cut.address].moved for cut in cuts if not cut.whole):
            raise LesionError(
                f"{file.label} changes no weight of {name}: what it keeps of {', '.join(cut.address for cut in cuts)} "
                "is all that is not 0. Keep less."
            )
        kept_as = f"{file.label}.edit"
        for number in range(2, len(passes) + 2):
            if kept_as in taken:
                kept_as = f"{file.label}-{number}.edit"
        taken.add(kept_as)
        factors = " and ".join(f"{factor:g}" for factor in file.factors)
        edits.append(
            AppliedEdit(file, kept_as, factors, tuple(edit_pass.counts.values()), edit_pass.afresh, achieved, cuts)
        )
    return tuple(edits)
