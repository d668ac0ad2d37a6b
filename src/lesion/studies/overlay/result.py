"""The result of an overlay: profiles of one model's blocks from several studies, and how their ranks agree."""

from __future__ import annotations

from typing import Literal

from lesion.core.values import Summary
from lesion.report.values import Number, Value

Kind = Literal["layers", "drift", "isolation", "truncation"]
Unit = Literal["points", "nmi", "share", "nats"]


class Profile(Value):
    """One number per block.

    Attributes:
        label: unique within the model.
        blocks: the blocks that have a number, ascending.
        values: one per block: points lost (0…1), NMI, share of weights selected (0…1) or nats.
        low, high: intervals or spreads, None where none is known.
        critical: blocks that the study calls critical; of layer studies only.
        ranked: whether it takes part in the rank correlations.
        source: the folder's name.
    """

    model: str
    kind: Kind
    label: str
    blocks: tuple[int, ...]
    values: tuple[float, ...]
    low: tuple[Number, ...]
    high: tuple[Number, ...]
    unit: Unit = "points"
    critical: tuple[int, ...] = ()
    ranked: bool = True
    source: str = ""

    def at(self, block: int) -> tuple[float, float | None, float | None] | None:
        """The value of a block with its limits; None where there is none."""
        if block not in self.blocks:
            return None
        index = self.blocks.index(block)
        return self.values[index], self.low[index], self.high[index]


class Correlation(Value):
    """How the ranks of two profiles, labelled a and b, agree over the blocks that both have.

    Attributes:
        rho: Spearman's, −1…1; None where a profile is constant or there are fewer than four blocks.
        p: two-sided permutation p: the share of orders of one profile whose |ρ| is at least as large. None within one
            kind of study, whose tasks share answers, and of pairs other than those fixed beforehand.
        p_corrected: by Holm over all pairs of all models that have a p.
        beyond_depth: the partial rank correlation given the block's number.
    """

    a: str
    b: str
    blocks: int
    rho: Number
    p: Number = None
    p_corrected: Number = None
    beyond_depth: Number = None


class Needed(Value):
    """The least |ρ| over so many blocks that stays significant as the strongest of so many pairs; None: no ρ does."""

    blocks: int
    pairs: int
    rho: Number


class ModelProfiles(Value):
    """One model: its profiles in the order of the kinds of study, and their correlations.

    Attributes:
        needed: over the most blocks of its tested pairs; None where none is tested.
    """

    model: str
    fingerprint: str | None
    profiles: tuple[Profile, ...]
    correlations: tuple[Correlation, ...]
    needed: Needed | None = None

    @property
    def blocks(self) -> tuple[int, ...]:
        """All blocks of all profiles, ascending."""
        return tuple(sorted({block for profile in self.profiles for block in profile.blocks}))

    @property
    def ranked(self) -> list[Profile]:
        """The profiles that take part in the rank correlations."""
        return [profile for profile in self.profiles if profile.ranked]

    @property
    def tested(self) -> list[Correlation]:
        """The pairs of different kinds of study, the surest first: by corrected p, then p, then |ρ|.

        Not by |ρ| alone: over fewer blocks a larger ρ may say less.
        """

        def doubt(pair: Correlation) -> tuple[float, float, float]:
            p = 1.0 if pair.p is None else pair.p
            return (1.0 if pair.p_corrected is None else pair.p_corrected, p, -abs(pair.rho or 0.0))

        return sorted((pair for pair in self.correlations if pair.p is not None), key=doubt)

    def pair(self, a: str, b: str) -> Correlation | None:
        """The correlation of two profiles by their labels, in either order."""
        return next((pair for pair in self.correlations if {pair.a, pair.b} == {a, b}), None)


class OverlaySummary(Summary):
    """All numbers of an overlay: what `summary.json` holds.

    Attributes:
        folders: of the studies, as given.
        seed: of the orders that are drawn for p, where there are too many to go through.
        pairs: the pairs that were fixed beforehand, as given; the others are not tested. None given: all are.
        models: those with at least two profiles.
    """

    kind: Literal["overlay"] = "overlay"
    folders: tuple[str, ...]
    seed: int = 0
    pairs: tuple[str, ...] = ()
    models: tuple[ModelProfiles, ...]
