"""The result of an interaction study: drops of places alone and together, orders of removal, Shapley values.

Accuracies and drops are in 0…1, or with the measure `gold` log-probabilities in nats.
"""

from __future__ import annotations

from typing import Literal

from lesion.core.values import Summary
from lesion.report.endings import Endings
from lesion.report.values import Estimate, Number, Value
from lesion.studies.interaction.study import Design, InteractionStudy, place_key

Verdict = Literal["redundant", "one path", "no sign", "cannot tell"]


class Removal(Value):
    """A set of places removed, on one task; none removed: the unedited model.

    Attributes:
        value: accuracy, or mean log-probability of the gold answers.
        drop: what the set costs on the same items; None of the unedited model.
        endings: how answers ended; None of log-probabilities.
    """

    task: str
    places: tuple[str, ...]
    items: int
    value: Estimate
    drop: Estimate | None = None
    endings: Endings | None = None


class Interaction(Value):
    """A set of places against its members alone, on one task.

    Attributes:
        alone: the drop of each alone, in the order of `places`.
        together: the drop of all.
        beyond: `together` minus the sum of `alone`, with p corrected over the sets of its design and task (Holm).
        independent: of accuracies, the drop of all if each kept its own share of the right answers whatever else is
            removed, b · (1 − Π a_i / b) (independent action: Bliss 1939).
        verdict: `redundant`: more than the sum; `one path`: less; `cannot tell`: the sum is all that there is to lose
            until the model guesses (`Task.loss`), and together they cost no more.
    """

    design: Design
    task: str
    places: tuple[str, ...]
    alone: tuple[float, ...]
    together: Estimate
    beyond: Estimate
    independent: Number = None
    verdict: Verdict

    @property
    def sum(self) -> float:
        """The drops of the places alone, added."""
        return sum(self.alone)


class Step(Value):
    """One more place removed, on one task.

    Attributes:
        order: 0 is the order of the study, from 1 on the random ones.
        places: those removed until here, in the order of removal.
        beyond_random: how much lower the value is than after as many places of the random orders; of order 0.
    """

    task: str
    order: int
    places: tuple[str, ...]
    value: Estimate
    beyond_random: Estimate | None = None


class Share(Value):
    """The Shapley value of a place, on one task.

    Attributes:
        value: its mean marginal drop over orders, with an interval for other items and other orders.
        sampling: the same with an interval for other orders on the same items alone; without width where every order
            is there.
        alone: its drop when nothing else is removed; last: when all others are.
    """

    task: str
    place: str
    value: Estimate
    sampling: Estimate
    alone: float
    last: Number = None


class Task(Value):
    """A task.

    Attributes:
        guessing: the accuracy of guessing, 0…1; 0 where answers are not chosen.
        loss: what there is to lose until the model guesses: accuracy above guessing; or nats above a guesser that knows
            how often each gold answer occurs among the items, and not to which question it belongs.
    """

    name: str
    items: int
    guessing: float
    loss: Number


class InteractionSummary(Summary):
    """All numbers of an interaction study: what `summary.json` holds.

    Attributes:
        places: addresses of what is removed.
        order: in which they are removed with `cumulative`.
        orders: how many orders the Shapley values are a mean of; every_order: whether these are all that there are.
        approximate: what makes the answers approximate.
    """

    kind: Literal["interaction"] = "interaction"
    study: InteractionStudy
    model: str
    fingerprint: str
    places: tuple[str, ...]
    tasks: tuple[Task, ...]
    removals: tuple[Removal, ...]
    interactions: tuple[Interaction, ...] = ()
    order: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    shares: tuple[Share, ...] = ()
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
