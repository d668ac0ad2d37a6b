"""The result of an overlay: profiles of one model's blocks from several studies, and how their ranks agree."""

from __future__ import annotations

from typing import Literal

from lesion.core.values import Summary
from lesion.report import wording
from lesion.report.rows import Row, column
from lesion.report.values import POINTS, SHARE, ByUnit, Estimate, Form, Number, Value
from lesion.statistics.paired import ALPHA

Kind = Literal["layers", "drift", "isolation", "truncation"]
Unit = Literal["points", "nmi", "share", "nats"]
KINDS: dict[Kind, str] = {
    "layers": "layer ablation",
    "drift": "drift",
    "isolation": "isolated weights",
    "truncation": "truncation",
}
"""What each kind of study is called, in the order in which they are shown."""
VALUE = ByUnit({
    "points": POINTS,
    "nmi": Form(3, unit="NMI", significant=True),
    "share": SHARE,
    "nats": Form(3, unit="nats", significant=True),
})  # fmt: skip


class ProfileBlock(Row):
    """A block of a profile.

    Attributes:
        critical: whether the study calls it critical; of layer studies only.
        critical_for_a_task: whether a layer study of the model does.
        heading: the profile's number, where it is ranked, its label and its unit.
    """

    block: int = column("Block", label=True)
    value: Estimate = column("Value", VALUE, ends=("low", "high"))
    critical: bool = column("Critical")
    critical_for_a_task: bool
    heading: str


class Profile(Row):
    """One number per block.

    Attributes:
        label: unique within the model; tasks: those that it names.
        values: one per block: points lost (0…1), NMI, share of weights selected (0…1) or nats.
        low, high: intervals or spreads, None where none is known.
        critical: blocks that the study calls critical; of layer studies only.
        ranked: whether it takes part in the rank correlations.
    """

    model: str = column("Model", label=True)
    kind: Kind = column("Study", lambda kind: KINDS[kind], label=True)
    label: str = column("Profile", label=True)
    tasks: tuple[str, ...] = ()
    source: str = column(default="")
    unit: Unit = column(default="points")
    blocks: tuple[int, ...]
    values: tuple[float, ...]
    low: tuple[Number, ...]
    high: tuple[Number, ...]
    critical: tuple[int, ...] = ()
    ranked: bool = True


class Correlation(Row):
    """How the ranks of two profiles, labelled a and b, agree over the blocks that both have.

    Attributes:
        rho: Spearman's, −1…1; None where a profile is constant or there are fewer than four blocks.
        p: two-sided permutation p: the share of orders of one profile whose |ρ| is at least as large. None within one
            kind of study, whose tasks share answers, and of pairs other than those fixed beforehand.
        p_corrected: by Holm over all pairs of all models that have a p.
        beyond_depth: the partial rank correlation given the block's number.
    """

    a: str = column("Profile", label=True)
    b: str = column("With", label=True)
    blocks: int = column("Blocks")
    rho: Number = column("ρ", wording.rho)
    p: Number = column("p", wording.p_value, default=None)
    p_corrected: Number = column("Corrected p", wording.p_value, default=None)
    beyond_depth: Number = column("Beyond depth", wording.rho, default=None)

    @property
    def agrees(self) -> bool:
        """Whether it is beyond chance, corrected over all pairs."""
        return self.p_corrected is not None and self.p_corrected <= ALPHA

    @property
    def doubt(self) -> tuple[float, float, float]:
        """By which pairs are sorted, the surest first. Not by |ρ| alone: over fewer blocks a larger ρ may say less."""
        p, corrected = (1.0 if known is None else known for known in (self.p, self.p_corrected))
        return corrected, p, -abs(self.rho or 0.0)


class PairNumbers(Row):
    """The numbers of two profiles, as charts name them."""

    profile: int
    with_profile: int


class Needed(Value):
    """The least |ρ| over so many blocks that stays significant as the strongest of so many pairs; None: no ρ does."""

    blocks: int
    pairs: int
    rho: Number


class ModelProfiles(Row):
    """One model: its profiles in the order of the kinds of study, and their correlations.

    Attributes:
        needed: over the most blocks of its tested pairs; None where none is tested.
    """

    model: str = column("Model", label=True)
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
        """The pairs of different kinds of study, the surest first: by corrected p, then p, then |ρ|."""
        return sorted((pair for pair in self.correlations if pair.p is not None), key=lambda pair: pair.doubt)

    @property
    def numbers(self) -> dict[str, int]:
        """The ranked profiles by label, numbered from 1."""
        return {profile.label: number for number, profile in enumerate(self.ranked, 1)}

    @property
    def pairs(self) -> list[tuple[ModelProfiles, Correlation, PairNumbers]]:
        """Every correlation with the numbers of its profiles."""
        numbers = self.numbers
        return [
            (self, pair, PairNumbers(profile=numbers[pair.a], with_profile=numbers[pair.b]))
            for pair in self.correlations
        ]

    @property
    def lines(self) -> list[tuple[Profile, ProfileBlock]]:
        """Every profile with each of its blocks."""
        critical = {block for profile in self.profiles for block in profile.critical}
        return [
            (
                profile,
                ProfileBlock(
                    block=block,
                    value=Estimate(value=value, low=low, high=high),
                    critical=block in profile.critical,
                    critical_for_a_task=block in critical,
                    heading=f"{number}{profile.label} ({VALUE.forms[profile.unit].unit})",
                ),
            )
            for profile in self.profiles
            for number in [f"{self.numbers[profile.label]} " if profile.ranked else ""]
            for block, value, low, high in zip(profile.blocks, profile.values, profile.low, profile.high, strict=True)
        ]


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
