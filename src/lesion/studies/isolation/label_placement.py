"""The names of marks in a figure: beside their marks, where they cover no other name and no mark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes

from lesion.studies.isolation.tradeoff import Labels

Place = tuple[float, float]
Box = tuple[float, float, float, float]
SIZE = 5.5  # of the letters, in points
BESIDE = ((5.0, 4.0), (5.0, -4.0), (-5.0, 4.0), (-5.0, -4.0), (0.0, 6.5), (0.0, -6.5), (6.0, 0.0), (-6.0, 0.0))
"""Where a name is tried, in points across and up from its mark, and after that once more `FARTHER` times as far."""
FARTHER = 1.8


@dataclass
class Marked:
    """The marks of a plane, and what is to be written beside them; places are in the values of its axes.

    Attributes:
        marks: no name covers these.
        crosses: of the random controls; covered only where there is no other room.
        labels: text, place of its mark, colour.
    """

    marks: list[Place] = field(default_factory=list)
    crosses: list[Place] = field(default_factory=list)
    labels: list[tuple[str, Place, str]] = field(default_factory=list)

    def name(self, axis: Axes) -> None:
        """Write the names, once the figure is laid out; one that has no room is left out."""
        figure = axis.get_figure(root=True)
        assert figure is not None
        dots = figure.dpi / 72
        at = {place: _pixels(axis, place) for place in (*self.marks, *self.crosses)}
        taken = Labels([_around(at[place], 2.2 * dots) for place in self.marks])
        crosses = Labels([_around(at[place], 2 * dots) for place in self.crosses])
        extent = axis.get_window_extent()
        for text, place, colour in self.labels:
            mark = at.get(place) or _pixels(axis, place)
            boxes = [
                box
                for box in _boxes(mark, 0.62 * SIZE * dots * len(text), dots)
                if box[0] >= extent.x0
                and box[2] <= extent.x1 + 4 * dots
                and extent.y0 <= box[1]
                and box[3] <= extent.y1
            ]
            boxes.sort(key=lambda box: not crosses.free(box))  # stable: the nearest of equals comes first
            found = next((box for box in boxes if taken.take(box)), None)
            if found is not None:
                beside = ((found[0] - mark[0]) / dots, (found[1] - mark[1]) / dots)
                axis.annotate(
                    text, place, xytext=beside, textcoords="offset points", fontsize=SIZE, color=colour, va="bottom",
                    ha="left", in_layout=False,
                )  # fmt: skip


def _boxes(mark: Place, wide: float, dots: float) -> Sequence[Box]:
    """The boxes (left, foot, right, top) in which a name may stand, in pixels, the best first."""
    high = SIZE * dots
    found = []
    for away in (dots, FARTHER * dots):
        for across, up in BESIDE:
            left = mark[0] + across * away - (wide if across < 0 else wide / 2 if across == 0 else 0)
            foot = mark[1] + up * away - high / 2
            found.append((left, foot, left + wide, foot + high))
    return found


def _pixels(axis: Axes, place: Place) -> Place:
    x, y = axis.transData.transform(place)
    return float(x), float(y)


def _around(place: Place, half: float) -> Box:
    return place[0] - half, place[1] - half, place[0] + half, place[1] + half
