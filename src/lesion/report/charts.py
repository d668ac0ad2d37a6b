"""The line charts of the page as inline SVG: accuracy against ablated layer, one panel per task.

After Nepal et al. (2025, Figures 1 and 2). Colours, light and dark, come from the page's style
sheet by class; every text in a chart is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lesion.report import wording
from lesion.report.views import Line, Point, View, runs

LOWEST, HIGHEST = -0.13, 1.03  # below 0 there is room for the labels of critical layers
MARKERS = ("circle", "square", "diamond", "triangle", "pentagon", "cross")
SERIES = 8


@dataclass(frozen=True)
class Frame:
    """The place of a chart's plot in SVG units, and what maps layers and accuracies into it."""

    layers: tuple[int, ...]
    width: int = 400
    height: int = 250
    left: int = 42
    right: int = 8
    top: int = 8
    bottom: int = 34

    @property
    def step(self) -> float:
        """Distance between two neighbouring layers."""
        span = self.layers[-1] - self.layers[0] + 1 if self.layers else 1
        return (self.width - self.left - self.right) / span

    def x(self, layer: int) -> float:
        """The middle of a layer's column."""
        return self.left + (layer - self.layers[0] + 0.5) * self.step

    def y(self, accuracy: float) -> float:
        """The height of an accuracy in 0…1."""
        plot = self.height - self.top - self.bottom
        return self.top + (HIGHEST - accuracy) / (HIGHEST - LOWEST) * plot

    @property
    def ticks(self) -> list[int]:
        """Layers that get a number: as many as have room, counted in ones, twos, fours, fives or tens."""
        stride = next((s for s in (1, 2, 4, 5, 10, 20) if s * self.step >= 20), 50)
        present = set(self.layers)
        return [layer for layer in self.layers if layer % stride == 0 and layer in present] or list(self.layers[:1])


def panel(view: View, task: str, frame: Frame, level: float) -> Markup:
    """One panel: every line of the view on a task, with baselines, bands, marks, labels and hover columns."""
    of_task = view.panels[task]
    parts = [*_axes(frame, wording.axis_name(view.unit, view.factor))]
    for line in of_task:
        parts.append(_baseline(line, frame, alone=len(of_task) == 1, tone=tone(view, line)))
    for line in of_task:
        parts.append(_band(line, view, frame))
    for line in of_task:
        parts.append(_strokes(line, view, frame))
    parts.extend(_labels(of_task, frame))
    parts.extend(_column(of_task, layer, frame, view, level) for layer in frame.layers)
    name = f"Accuracy on {task} against the layer switched off; the numbers stand in the table of all cells."
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        frame.width, frame.height, name, Markup("").join(parts)
    )


def tone(view: View, line: Line) -> int:
    """The number of a line's colour; the same line has the same one in every panel."""
    return view.labels.index(line.label) % SERIES


def swatch(view: View, label: str) -> Markup:
    """The legend's picture of a line: a stroke with its mark."""
    index = view.labels.index(label)
    return Markup(
        '<svg class="swatch t{}" viewBox="0 0 34 14" aria-hidden="true"><path class="stroke" d="M1 7H33"/>{}</svg>'
    ).format(index % SERIES, mark(17.0, 7.0, 4.2, index, critical=False))


def critical_swatch() -> Markup:
    """The legend's picture of a critical layer: a filled mark."""
    return Markup('<svg class="swatch t0" viewBox="0 0 34 14" aria-hidden="true">{}{}</svg>').format(
        mark(10.0, 7.0, 4.2, 0, critical=False), mark(25.0, 7.0, 4.8, 0, critical=True)
    )


def undecided_swatch() -> Markup:
    """The legend's picture of a layer that is not decided: a crossed mark."""
    return Markup('<svg class="swatch t0" viewBox="0 0 34 14" aria-hidden="true">{}</svg>').format(
        mark(17.0, 7.0, 4.8, 0, undecided=True)
    )


def _axes(frame: Frame, name: str) -> list[Markup]:
    right = frame.width - frame.right
    floor = frame.height - frame.bottom
    found = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = round(frame.y(share), 1)
        found.append(
            Markup('<path class="grid{}" d="M{} {}H{}"/>').format(" zero" if share == 0 else "", frame.left, y, right)
        )
        found.append(
            Markup('<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>').format(
                frame.left - 6,
                round(y + 4, 1),
                f"{100 * share:.0f} %" if share == 1 else f"{100 * share:.0f}",
            )
        )
    for layer in frame.ticks:
        found.append(
            Markup('<text class="tick" x="{}" y="{}" text-anchor="middle">{}</text>').format(
                round(frame.x(layer), 1), floor + 13, layer
            )
        )
    found.append(
        Markup('<text class="axis" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            (frame.left + right) / 2, frame.height - 4, name
        )
    )
    return found


def _baseline(line: Line, frame: Frame, *, alone: bool, tone: int) -> Markup:
    found = line.baseline
    if line.stopped:
        return _baseline_of_cells(line, frame, tone)
    if found.accuracy is None:
        return Markup("")
    right = frame.width - frame.right
    band = Markup("")
    if alone and found.low is not None and found.high is not None:
        top, foot = frame.y(found.high), frame.y(found.low)
        band = Markup('<rect class="baseband" x="{}" y="{}" width="{}" height="{}"/>').format(
            frame.left, round(top, 1), right - frame.left, round(foot - top, 1)
        )
    return Markup('<g class="t{}">{}<path class="baseline" d="M{} {}H{}"/></g>').format(
        tone, band, frame.left, round(frame.y(found.accuracy), 1), right
    )


def _baseline_of_cells(line: Line, frame: Frame, tone: int) -> Markup:
    """Where asking stopped, a piece of baseline over every block: the unedited model on the items of that cell."""
    half = 0.42 * frame.step
    pieces = [
        Markup('<path class="baseline" d="M{} {}H{}"/>').format(
            round(frame.x(point.layer) - half, 1),
            round(frame.y(point.baseline.accuracy), 1),
            round(frame.x(point.layer) + half, 1),
        )
        for point in line.points
        if point.baseline.accuracy is not None
    ]
    return Markup('<g class="t{}">{}</g>').format(tone, Markup("").join(pieces))


def _band(line: Line, view: View, frame: Frame) -> Markup:
    found = Markup("")
    for run in runs(line, frame.layers):
        known = [
            (frame.x(p.layer), frame.y(p.low), frame.y(p.high)) for p in run if p.low is not None and p.high is not None
        ]
        if len(known) == 1:
            x, low, high = known[0]
            half = min(5.0, frame.step / 3)
            known = [(x - half, low, high), (x + half, low, high)]
        upper = [f"{x:.1f} {high:.1f}" for x, _, high in known]
        lower = [f"{x:.1f} {low:.1f}" for x, low, _ in reversed(known)]
        if known:
            found += Markup('<path class="band{} t{}" d="M{}Z"/>').format(
                " thin" if len(view.labels) > 2 else "", tone(view, line), "L".join(upper + lower)
            )
    return found


def _strokes(line: Line, view: View, frame: Frame) -> Markup:
    index = view.labels.index(line.label)
    radius = min(4.2, max(1.8, frame.step * 0.24))
    joined = [
        Markup('<path class="stroke" d="M{}"/>').format(
            "L".join(f"{frame.x(p.layer):.1f} {frame.y(p.accuracy):.1f}" for p in run)
        )
        for run in runs(line, frame.layers)
        if len(run) > 1
    ]
    marks = [
        mark(
            frame.x(p.layer),
            frame.y(p.accuracy),
            radius * (1.25 if p.called else 1),
            index,
            critical=p.called,
            undecided=p.decided == "open",
        )
        for p in line.points
    ]
    return Markup('<g class="t{}">{}</g>').format(index % SERIES, Markup("").join(joined + marks))


def mark(x: float, y: float, radius: float, index: int, *, critical: bool = False, undecided: bool = False) -> Markup:
    """The mark of line number `index` at a place; filled when critical, crossed when asking left it undecided."""
    name = MARKERS[index % len(MARKERS)]
    r = radius
    paths = {
        "circle": f"M{x - r:.1f} {y:.1f}a{r:.1f} {r:.1f} 0 1 0 {2 * r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {-2 * r:.1f} 0Z",
        "square": f"M{x - r:.1f} {y - r:.1f}h{2 * r:.1f}v{2 * r:.1f}h{-2 * r:.1f}Z",
        "diamond": f"M{x:.1f} {y - 1.35 * r:.1f}l{1.25 * r:.1f} {1.35 * r:.1f}l{-1.25 * r:.1f} {1.35 * r:.1f}"
        f"l{-1.25 * r:.1f} {-1.35 * r:.1f}Z",
        "triangle": f"M{x:.1f} {y - 1.3 * r:.1f}l{1.3 * r:.1f} {2.2 * r:.1f}h{-2.6 * r:.1f}Z",
        "pentagon": f"M{x:.1f} {y + 1.3 * r:.1f}l{1.3 * r:.1f} {-2.2 * r:.1f}h{-2.6 * r:.1f}Z",
        "cross": f"M{x - r:.1f} {y - r / 2:.1f}h{2 * r:.1f}v{r:.1f}h{-2 * r:.1f}Z",
    }
    drawn = Markup('<path class="mark{}" d="{}"/>').format(" critical" if critical else "", paths[name])
    if undecided:
        a = 1.7 * r
        drawn += Markup('<path class="crossed" d="M{:.1f} {:.1f}l{:.1f} {:.1f}m0 {:.1f}l{:.1f} {:.1f}"/>').format(
            x - a, y - a, 2 * a, 2 * a, -2 * a, -2 * a, 2 * a
        )
    return drawn


def _labels(of_task: Sequence[Line], frame: Frame) -> list[Markup]:
    """The numbers of marked layers, each under the lowest mark; neighbours without room share one label."""
    lowest: dict[int, Point] = {}
    for line in of_task:
        for point in line.points:
            if point.called and (point.layer not in lowest or point.accuracy < lowest[point.layer].accuracy):
                lowest[point.layer] = point
    groups: list[list[Point]] = []
    for layer in sorted(lowest):
        near = bool(groups) and (layer - groups[-1][-1].layer) * frame.step < 17 and layer == groups[-1][-1].layer + 1
        if near:
            groups[-1].append(lowest[layer])
        else:
            groups.append([lowest[layer]])
    return [
        Markup('<text class="label" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            round(sum(frame.x(p.layer) for p in group) / len(group), 1),
            round(max(frame.y(p.accuracy) for p in group) + 17, 1),
            wording.layer_runs(p.layer for p in group).replace(", ", wording.DASH),
        )
        for group in groups
    ]


def _column(of_task: Sequence[Line], layer: int, frame: Frame, view: View, level: float) -> Markup:
    """An invisible column over a layer: pointing at it shows the numbers, a click opens the answers."""
    told = [f"{wording.place(view.unit, layer)} switched off" if view.factor == 0 else wording.place(view.unit, layer)]
    for line in of_task:
        point = line.at(layer)
        told.append(f"{line.label}: {numbers(point)}" if point else f"{line.label}: not measured yet")
    first = next((line for line in of_task if line.at(layer)), None)
    opened = Markup("")
    if first:
        point = first.at(layer)
        assert point is not None
        opened = Markup(' data-model="{}" data-task="{}" data-edit="{}"').format(first.model, first.task, point.edit)
    x = frame.x(layer)
    return Markup(
        '<g class="hit" data-tip="{}"{}><path class="guide" d="M{} {}V{}"/>'
        '<rect x="{}" y="{}" width="{}" height="{}"/></g>'
    ).format(
        Markup("&#10;").join(told),
        opened,
        round(x, 1),
        frame.top,
        frame.height - frame.bottom,
        round(x - frame.step / 2, 2),
        frame.top,
        round(frame.step, 2),
        frame.height - frame.top - frame.bottom,
    )


def numbers(point: Point) -> str:
    """A point in words: accuracy and drop with intervals, corrected p, items if stopped, whether it is marked."""
    told = f"{wording.percent(point.accuracy)} {wording.interval(point.low, point.high)}"
    if point.drop is not None:
        told += f", drop {wording.points(point.drop)} {wording.interval(point.drop_low, point.drop_high)}"
    if point.p_corrected is not None:
        told += f", p {wording.p_value(point.p_corrected)}"
    if point.p_critical_corrected is not None:
        told += f", p critical {wording.p_value(point.p_critical_corrected)}"
    if point.decided is not None:
        told += f", {wording.asked(point.items, point.decided, point.drawn)}"
    return f"{told}, {wording.call(point.decided is not None)}" if point.called else told
