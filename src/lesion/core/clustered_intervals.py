"""Items that share a template, a relation or a subject: intervals over these clusters, as values and in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from lesion.report import wording
from lesion.report.rows import Row, column
from lesion.report.values import POINTS, Estimate, Value
from lesion.tasks.item_clusters import COPIED, OWN

if TYPE_CHECKING:  # needs numpy, as whoever has differences does
    import numpy as np

    from lesion.statistics.paired import Contrast
    from lesion.tasks.item_clusters import Shared

MATERIAL = 1.1
"""Half of the intervals have to be so many times as wide over clusters as over items to be worth a sentence."""
FEWEST = 5
"""With fewer clusters an interval over them says hardly anything: Student's quantile is 3.2 and more."""
COLUMNS = ("drop_low_clustered", "drop_high_clustered", "design_effect", "clusters")
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


def columns(of: OverClusters | None) -> dict[str, float | str | None]:
    """The `COLUMNS` of one drop; empty where it has no interval over clusters."""
    return {} if of is None else dict(zip(COLUMNS, (of.low, of.high, of.design, of.clusters), strict=True))


def widened(task: str, items: int, shared: Sharing | None, known: Mapping[str, OverClusters]) -> str | None:
    """How much wider the intervals of a task are over its clusters, or why that cannot be computed.

    Returns:
        A sentence; None where clusters widen nothing by as much as `MATERIAL`.
    """
    if shared is None:
        return None
    several = wording.counted(shared.clusters, shared.what)
    if shared.copied:
        if items < MATERIAL * shared.clusters:
            return None
        return (
            f"The {items:,} items of {task} ask only {several}, and every copy counts as an item: verdicts and"
            " intervals are surer than they should be. Leave the copies out."
        )
    if shared.what == OWN and shared.clusters < FEWEST:
        return None  # labels rather than clusters, as far as anybody can tell
    if shared.clusters == 1:
        return f"All items of {task} share one {shared.what}, so that no interval over {shared.what}s can be computed."
    if shared.clusters == items:
        return f"Every item of {task} has a {shared.what} of its own: intervals over them are those over items."
    if shared.clusters < FEWEST:
        return f"Items of {task} come from {several} only, too few to say how others would change the result."
    if not known or median(of.widening for of in known.values()) < MATERIAL:
        return None
    name, widest = max(known.items(), key=lambda pair: pair[1].widening)
    middle = median(of.design for of in known.values())
    return (
        f"The {items:,} items of {task} share {several}; over these, intervals of drops are up to {widest.widening:.1f}"
        f" times as wide as over items ({name}; design effect {widest.design:.1f}, median {middle:.1f})."
    )


def verdicts(what: str, doubtful: Sequence[tuple[str, OverClusters, float, str]]) -> str:
    """Which verdicts an interval over clusters would not carry: name, interval, and the bound that it does not exclude.

    `doubtful` is empty where all stand.
    """
    if not doubtful:
        return "No verdict would change."
    parts = [
        f"{name} ({POINTS.interval(of.low, of.high)} holds {bound}, {POINTS(value)})"
        for name, of, value, bound in doubtful
    ]
    return f"Over {what}s the verdict would not stand for {wording.listed(parts)}."


def changes(
    task: str, items: int, shared: Sharing | None, measured: Sequence[tuple[str, Estimate, OverClusters]]
) -> str | None:
    """As `widened`, with the changes that differ from 0 over items and not over clusters: name, change, interval."""
    text = widened(task, items, shared, {name: of for name, _, of in measured})
    if text is None or shared is None or not measured or shared.clusters < FEWEST or shared.copied:
        return text
    doubtful = [
        (f"{name} as a change", of, 0.0, "no change")
        for name, change, of in measured
        if change.side and of.low <= 0 <= of.high
    ]
    return f"{text} {verdicts(shared.what, doubtful)}"
