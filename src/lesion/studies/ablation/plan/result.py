"""The result of a plan: what its tests could find, and what came of each hypothesis."""

from __future__ import annotations

from lesion.core.layers import removal
from lesion.edits.units import part_of
from lesion.report import wording
from lesion.report.forms import POINTS, WHOLE_SHARE, decimals
from lesion.report.rows import Row, column
from lesion.report.values import Estimate, Number, Value
from lesion.studies.ablation.sweep import Factor


class Prospect(Row):
    """What the planned tests of one kind on one task can find, before any answer, if the baseline is this accurate.

    Attributes:
        baseline: the accuracy assumed of the unedited model.
        loss: the share of it that the edit is assumed to take.
        power: the chance that a place is called as expected then (`statistics.power`).
        detectable: the smallest loss called critical, or the largest called spared, with 80 % power; None: none.
        needed: about how many items give 80 % power at that loss; None: too many.
    """

    task: str = column("Task", label=True)
    expect: str = column("Expected")
    items: int = column("Items")
    tests: int = column("Tests")
    baseline: float = column("If the baseline is", WHOLE_SHARE)
    loss: float = column("and the loss", WHOLE_SHARE)
    power: float = column("Power", WHOLE_SHARE)
    detectable: Number = column("Detectable loss", WHOLE_SHARE, default=None)
    needed: int | None = column("Items for 80 % power", decimals(0), default=None)


class Outcome(Row):
    """One hypothesis of a plan on one model.

    Attributes:
        p: of its own exact test; p_corrected: by Holm over the tests of the plan; None where it is not measured yet.
        confirmed: whether the test passes; None where it is not measured.
        right: items that the baseline has right.
        detectable: with these, the smallest loss that is called critical with 80 % power, or the largest called spared,
            as a share of the baseline's accuracy; None where none is.
    """

    model: str = column("Model", label=True)
    task: str = column("Task", label=True)
    place: str = column("Place")
    expect: str = column("Expected")
    factor: Factor = column("Factor", wording.factor_name, label=True)
    drop: Estimate | None = column("Drop", POINTS, default=None)
    p: Number = column("p", wording.p_value, default=None)
    p_corrected: Number = column("Corrected p", wording.p_value, default=None)
    confirmed: bool | None = column("Confirmed", default=None)
    right: int | None = column("Right before", decimals(0), default=None)
    detectable: Number = column("Detectable loss", WHOLE_SHARE, default=None)

    @property
    def expected(self) -> str:
        """`block 3 is critical for sums`, `head 9.6 replaced by its mean spares facts`."""
        edit = removal(self.place)
        how = "" if self.factor == 0 else f" {wording.changed(self.factor)}"
        verb = "is critical for" if self.expect == "critical" else "spares"
        return f"{wording.place(edit.unit, edit.layer, part_of(edit))}{how} {verb} {self.task}"


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
