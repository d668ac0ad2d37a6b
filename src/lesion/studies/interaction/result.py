"""The result of an interaction study: drops of places alone and together, orders of removal, Shapley values.

Accuracies and drops are in 0…1, or with the measure `gold` log-probabilities in nats.
"""

from __future__ import annotations

from typing import Literal

from lesion.core.layers import ALL
from lesion.core.values import Summary
from lesion.edits.units import part_of, scale_at
from lesion.report import wording
from lesion.report.rows import Endings, Row, column, derived
from lesion.report.values import POINTS, SHARE, ByUnit, Estimate, Number, decimals
from lesion.studies.interaction.study import Design, InteractionStudy, place_key

Verdict = Literal["redundant", "one path", "no sign", "cannot tell"]
NATS = decimals(2, "nats")
LEVEL = ByUnit({"points": SHARE, "nats": NATS})
DROP = ByUnit({"points": POINTS, "nats": NATS})


def place_name(address: str) -> str:
    """A head as `head 23.4` and other inner units alike; a block or branch by its address."""
    edit = scale_at(address, 0.0)
    return wording.place(edit.unit, edit.layer, part_of(edit)) if edit else address


def _names(places: str) -> str:
    return ", ".join(map(place_name, filter(None, places.split(",")))) or "none"


class Places(Row):
    """A set of places on one task."""

    task: str = column("Task", label=True)
    places: tuple[str, ...]

    @derived.column("Places", _names, label=True, key="places")
    def set_of(self) -> str:
        """The places by commas."""
        return ",".join(self.places)


class TaskScale(Row):
    """In which unit the numbers of a task are, and between which two they lie.

    Attributes:
        unit: `points` of accuracy, or `nats`.
        unedited: the score without any removal.
        guessing: the accuracy of guessing; None of log-probabilities.
    """

    unit: Literal["points", "nats"] = column()
    unedited: Number = column()
    guessing: Number = column()


class Removal(Places):
    """A set of places removed, on one task; none removed: the unedited model.

    Attributes:
        value: accuracy, or mean log-probability of the gold answers.
        drop: what the set costs on the same items; None of the unedited model.
        endings: how answers ended; None of log-probabilities.
    """

    items: int = column("Items")
    value: Estimate = column("Score", LEVEL)
    drop: Estimate | None = column("Drop", DROP, default=None)
    endings: Endings | None = None


class Interaction(Places):
    """A set of places against its members alone, on one task.

    Attributes:
        alone: the drop of each alone, in the order of `places`.
        beyond: `together` minus the sum of `alone`, with p corrected over the sets of its design and task (Holm).
        together: the drop of all.
        independent: of accuracies, the drop of all if each kept its own share of the right answers whatever else is
            removed, b · (1 − Π a_i / b) (independent action: Bliss 1939).
        verdict: `redundant`: more than the sum; `one path`: less; `cannot tell`: the sum is all that there is to lose
            until the model guesses (`InteractionTask.loss`), and together they cost no more.
    """

    design: Design = column("Design", label=True)
    alone: tuple[float, ...]
    verdict: Verdict = column("Verdict")
    beyond: Estimate = column("Beyond the sum", DROP, p="beyond_p")
    together: Estimate = column("Together", DROP)
    independent: Number = column(default=None)

    @derived.column(key="alone")
    def each_alone(self) -> str:
        """The drop of each place alone, by commas."""
        return ",".join(map(repr, self.alone))

    @derived.column("Sum of each alone", DROP)
    def sum(self) -> float:
        """The drops of the places alone, added."""
        return sum(self.alone)

    @property
    def place(self) -> str:
        """The first place."""
        return place_name(self.places[0])

    @property
    def with_place(self) -> str:
        """The last place: the other one of a pair."""
        return place_name(self.places[-1])

    @derived.column()
    def is_shown(self) -> bool:
        """Whether it is shown to cost more or less than the sum."""
        return self.verdict in ("redundant", "one path")

    @property
    def is_untold(self) -> bool:
        """Whether what it costs beyond the sum cannot tell anything."""
        return self.verdict == "cannot tell"

    @property
    def total(self) -> tuple[float, ...]:
        """The sum, to be drawn beneath what they cost together; none where it is more than there is to lose."""
        return () if self.is_untold else (self.sum,)

    @property
    def rank(self) -> tuple[str, bool, float]:
        """By which people see sets sorted: pairs by how sure their interaction is, windows by how little they cost."""
        pair = self.design == "pairs"
        least = self.beyond.p if pair else self.together.value
        return self.design, pair and self.is_untold, 1.0 if least is None else least


class Step(Row):
    """One more place removed, on one task.

    Attributes:
        order: 0 is the order of the study, from 1 on the random ones.
        places: those removed until here, in the order of removal.
        beyond_random: how much lower the value is than after as many places of the random orders; of order 0.
    """

    task: str = column("Task", label=True)
    order: int = column("Order", lambda order: f"random {order}" if order else "this", label=True)
    places: tuple[str, ...]
    value: Estimate = column("Score", LEVEL)
    beyond_random: Estimate | None = column("Lower than in random orders", DROP, default=None)

    @derived.column("Removed", label=True)
    def removed(self) -> int:
        """How many places are removed."""
        return len(self.places)

    @derived.column("Last of them", _names, label=True)
    def place(self) -> str:
        """The place removed last."""
        return self.places[-1]

    @derived.column("Random orders, mean", LEVEL, key="random_orders")
    def in_random_orders(self) -> float | None:
        """The mean after as many places of the random orders."""
        beyond = self.beyond_random
        if beyond is None or beyond.value is None or self.value.value is None:
            return None
        return self.value.value + beyond.value


class ShapleyValue(Row):
    """The Shapley value of a place, on one task.

    Attributes:
        value: its mean marginal drop over orders, with an interval for other items and other orders.
        sampling: the same with an interval for other orders on the same items alone; without width where every order
            is there.
        alone: its drop when nothing else is removed; last: when all others are.
    """

    task: str = column("Task", label=True)
    place: str = column("Place", _names, label=True)
    value: Estimate = column("Shapley value", DROP)
    sampling: Estimate = column("Other orders, same items", DROP)
    alone: float = column("First of all", DROP)
    last: Number = column("Last of all", DROP, default=None)

    @property
    def first_of_all(self) -> tuple[float, ...]:
        """The drop alone, to be drawn beneath the value."""
        return (self.alone,)


class InteractionTask(Row):
    """A task.

    Attributes:
        guessing: the accuracy of guessing, 0…1; 0 where answers are not chosen.
        loss: what there is to lose until the model guesses: accuracy above guessing; or nats above a guesser that knows
            how often each gold answer occurs among the items, and not to which question it belongs.
    """

    name: str = column("Task", label=True)
    items: int
    guessing: float
    loss: Number


class InteractionSummary(Summary):
    """All numbers of an interaction study: what `summary.json` holds.

    Attributes:
        order: in which places are removed with `cumulative`.
        orders: how many orders the Shapley values are a mean of; every_order: whether these are all that there are.
    """

    kind: Literal["interaction"] = "interaction"
    study: InteractionStudy
    model: str
    fingerprint: str
    places: tuple[str, ...]
    tasks: tuple[InteractionTask, ...]
    removals: tuple[Removal, ...]
    interactions: tuple[Interaction, ...] = ()
    order: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    shares: tuple[ShapleyValue, ...] = ()
    orders: int = 0
    every_order: bool = False
    approximate: str | None = None

    def removal(self, task: str, *places: str) -> Removal:
        """The removal of a set of places, in any order; of none: the unedited model."""
        wanted = tuple(sorted(places, key=place_key))
        return next(each for each in self.removals if each.task == task and each.places == wanted)

    def of(self, task: str, design: Design) -> list[Interaction]:
        """The sets of a design on a task."""
        return [each for each in self.interactions if each.task == task and each.design == design]

    @property
    def cheapest_range(self) -> list[int]:
        """The consecutive blocks that can best be left out of the model: of all windows the one that costs least on the
        task that it costs most, where half of every accuracy above guessing is left without it; else none.
        """
        study = self.study
        whole = study.layers == ALL and study.unit == "block" and not study.places and study.factor == 0
        if not whole or "windows" not in study.design or study.measure != "accuracy":
            return []
        shares: dict[tuple[str, ...], float] = {}
        for each in self.interactions:
            if each.design == "windows":
                scale = self.scale(each.task)
                above = (scale.unedited or 0.0) - (scale.guessing or 0.0)
                share = (each.together.value or 0.0) / above if above > 0 else 1.0
                shares[each.places] = max(share, shares.get(each.places, share))
        least = min(shares, key=shares.__getitem__)
        return [int(place) for place in least] if shares[least] <= 0.5 else []

    def scale(self, task: str) -> TaskScale:
        """The unit of a task's numbers, and between which two they lie."""
        unedited = self.removal(task).value.value
        if self.study.measure == "gold":
            return TaskScale(unit="nats", unedited=unedited, guessing=None)
        (guessing,) = (each.guessing for each in self.tasks if each.name == task)
        return TaskScale(unit="points", unedited=unedited, guessing=guessing)
