"""The result of a plan: what its tests could find, and what came of each hypothesis."""

from __future__ import annotations

from lesion.report.values import Estimate, Number, Value
from lesion.studies.ablation.sweep import Factor


class Prospect(Value):
    """What the planned tests of one kind on one task can find, before any answer, if the baseline is this accurate.

    Attributes:
        baseline: the accuracy assumed of the unedited model.
        loss: the share of it that the edit is assumed to take.
        power: the chance that a place is called as expected then (`statistics.power`).
        detectable: the smallest loss called critical, or the largest called spared, with 80 % power; None: none.
        needed: about how many items give 80 % power at that loss; None: too many.
    """

    task: str
    expect: str
    items: int
    tests: int
    baseline: float
    loss: float
    power: float
    detectable: Number = None
    needed: int | None = None


class Outcome(Value):
    """One hypothesis of a plan on one model.

    Attributes:
        p: of its own exact test; p_corrected: by Holm over the tests of the plan; None where it is not measured yet.
        confirmed: whether the test passes; None where it is not measured.
        right: items that the baseline has right.
        detectable: with these, the smallest loss that is called critical with 80 % power, or the largest called spared,
            as a share of the baseline's accuracy; None where none is.
    """

    model: str
    task: str
    place: str
    expect: str
    factor: Factor
    drop: Estimate | None = None
    p: Number = None
    p_corrected: Number = None
    confirmed: bool | None = None
    right: int | None = None
    detectable: Number = None


class Planned(Value):
    """What was written down before any answer was there, and what came of it.

    Attributes:
        made: when, as an ISO date and time.
        digest: the first 12 hexadecimal digits of the plan's SHA-256.
        answers: how many answers to the planned tasks were there already; 0 of a plan that deserves the name.
        prospects: what the tests could find, as it was written down with them.
    """

    made: str
    digest: str
    answers: int
    outcomes: tuple[Outcome, ...]
    prospects: tuple[Prospect, ...] = ()
