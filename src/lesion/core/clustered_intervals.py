"""Items that share a template, a relation or a subject: intervals over these clusters, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.rows import Row, column
from lesion.report.values import Value
from lesion.tasks.item_clusters import COPIED, OWN

if TYPE_CHECKING:  # needs numpy, as whoever has differences does
    import numpy as np

    from lesion.statistics.paired import Contrast
    from lesion.tasks.item_clusters import Shared

MATERIAL = 1.1
"""Half of the intervals have to be so many times as wide over clusters as over items to be worth a sentence."""
FEWEST = 5
"""With fewer clusters an interval over them says hardly anything: Student's quantile is 3.2 and more."""
C = TypeVar("C", bound="OverClusters")


class OverClusters(Row):
    """The interval of an estimate over clusters of items, beside that over items (`statistics.clusters`).

    Attributes:
        clusters: how many templates, relations or subjects the items have.
        low, high: the ends of the interval.
        design: the design effect, the variance over clusters ÷ that over items.
        widening: the width of the interval ÷ that of the interval over items.
    """

    clusters: int = column(key="clusters")
    low: float = column(key="drop_low_clustered")
    high: float = column(key="drop_high_clustered")
    design: float = column(key="design_effect")
    widening: float

    @classmethod
    def of(
        cls: type[C], differences: np.ndarray, shared: Shared | None, over_items: Contrast, level: float
    ) -> C | None:
        """Of the [items] differences of an estimate, by what its items share; None where it has none."""
        from lesion.statistics.clusters import clustered

        interval = None if shared is None else clustered(differences, shared.clusters, over_items, level)
        return None if interval is None else cls(**{name: getattr(interval, name) for name in cls.model_fields})


class Sharing(Value):
    """What items of a task share: the word for it, and how many clusters they make."""

    what: str
    clusters: int

    @property
    def copied(self) -> bool:
        """Whether what some items share is their question."""
        return self.what == COPIED

    @classmethod
    def of(cls, shared: Shared | None) -> Sharing | None:
        """What items share, as results keep it."""
        return None if shared is None else cls(what=shared.what, clusters=shared.count)


ClusteredTask: TypeAlias = tuple[str, int, Sharing | None, Sequence[OverClusters | None]]
"""A task, how many items it has, what they share, and its intervals over clusters."""


@rule
def copied_questions(tasks: Iterable[ClusteredTask]) -> Iterable[Claim]:
    """That items of a task are copies of each other.

    Says: The items of A ask only n questions, and every copy counts as an item.
    Needs: 1.1 times as many items as questions
    """
    for task, items, shared, _ in tasks:
        if shared is not None and shared.copied and items >= MATERIAL * shared.clusters:
            only = f"The {items:,} items of {task} ask only {wording.counted(shared.clusters, shared.what)}"
            every = "every copy counts as an item: verdicts and intervals are surer than they should be"
            yield Claim((f"{only}, and {every}. Leave the copies out.",))


def note(tasks: Iterable[ClusteredTask]) -> str:
    """What a table notes of the clusters of its tasks: how much wider intervals are, or that there are too few.

    Empty where they widen nothing by as much as `MATERIAL`.
    """
    return " ".join(filter(None, (_note(*task) for task in tasks)))


def _note(task: str, items: int, shared: Sharing | None, intervals: Sequence[OverClusters | None]) -> str:
    if shared is None or shared.copied:
        return ""
    several = wording.counted(shared.clusters, shared.what)
    if shared.clusters < FEWEST:  # `OWN` are labels rather than clusters, as far as anybody can tell
        few = f"Items of {task} come from {several} only, too few to say how others would change the result."
        return few * (shared.what != OWN)
    widenings = [of.widening for of in intervals if of is not None]
    if not widenings or median(widenings) < MATERIAL:
        return ""
    return (
        f"The {items:,} items of {task} share {several}; over these, intervals are up to {max(widenings):.1f} times as"
        " wide."
    )
