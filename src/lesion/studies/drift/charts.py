"""The charts of a drift study as inline SVG: a measure by layer, a line per model, hinges, steps, critical blocks.

Colours come from the page's style sheet by class; every text in a chart is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from markupsafe import Markup

from lesion.report import charts, wording
from lesion.report.scales import Scale, axes
from lesion.studies.drift.evidence import null_reach
from lesion.studies.drift.values import Curve, Departure, Family, Followed, Shape, Value

LEFT, RIGHT, TOP, BOTTOM, ROW = 64.0, 12.0, 10.0, 40.0, 14.0
SIZES = ((400, 290), (560, 350))
"""Width and height in SVG units, on a phone and with room; the rows above the plot are added to the height."""
SMALL = (400, 240)
AXIS = "layer (l: the output of block l − 1)"
AXIS_ZERO = "layer (0: embeddings; l: the output of block l − 1)"

NO_MARK = Markup("")
MARKS = {"hinge": 2, "step": 1}
"""The mark of a hinge and of a step, by its number among `charts.mark`."""

Chosen = Callable[[Followed], Curve | None]


def drawn(model: Followed) -> Curve:
    """The curve under the number of clusters that is drawn large."""
    return model.curve


def under(clusters: int) -> Chosen:
    """What gives a model's curve under another number of clusters, or None."""

    def chosen(model: Followed) -> Curve | None:
        return next((curve for curve in (model.curve, *model.others) if curve.clusters == clusters), None)

    return chosen


def chart(
    family: Family, measure: str, name: str, size: tuple[int, int], chosen: Chosen = drawn, *,
    null: bool = False, rows: bool = False,
) -> Markup:  # fmt: skip
    """One measure by layer, a line per model with a band of ± one standard deviation.

    Args:
        family: whose models are drawn.
        measure: `nmi`, `cosine`, `cka` or a labelling.
        name: of the upright axis.
        size: in SVG units, without the rows.
        chosen: which curve of a model.
        null: whether the band of the null is drawn: the mutual information that shuffled tokens give.
        rows: whether a row per model stands above the plot, with its hinge or step and critical blocks.
    """
    of_models = [(index, model, curve) for index, model in enumerate(family.models) if (curve := chosen(model))]
    above = ROW * len(of_models) + 8 if rows else 0.0
    width, height = size[0], size[1] + round(above)
    values = [value.mean for _, _, curve in of_models for _, value in curve.along(measure)]
    x = Scale(-0.35, family.blocks + 0.35, LEFT, width - RIGHT, tuple((n, str(n)) for n in range(family.blocks + 1)))
    y = _upright(values, height - BOTTOM, TOP + above)
    starts = {place for _, _, curve in of_models for place, _ in curve.along(measure)}
    parts = axes(x, y, (AXIS_ZERO if 0 in starts else AXIS, name), height)
    if null:
        parts.append(_null([curve for _, _, curve in of_models], x, y))
    for index, _, curve in of_models:
        parts.append(_line(index, curve, measure, x, y, family.blocks, place=rows))
    for place, (index, model, curve) in enumerate(of_models if rows else ()):
        label = family.labels[index]
        parts.append(_row(index, label, model, curve.shape, x, TOP + ROW * (place + 0.5)))
    of_labels = [(family.labels[index], curve) for index, _, curve in of_models]
    parts += [_column(layer, of_labels, measure, x, y, null=null) for layer in range(family.blocks + 1)]
    told = f"{name} by layer, {family.name}; the numbers stand in the table of all layers."
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        width, height, told, Markup("").join(parts)
    )


def legend(family: Family) -> list[tuple[Markup, str]]:
    """A picture and a name per model, in the colours and marks of the charts."""
    return [
        (_swatch(index, '<path class="stroke" d="M1 7H33"/>', charts.mark(17.0, 7.0, 3.6, index)), name)
        for index, name in enumerate(family.labels)
    ]


def keys(family: Family) -> list[tuple[Markup, str]]:
    """What else is drawn: the null, and where there are any, hinges, steps and critical blocks."""
    grey = '<svg class="swatch t6" viewBox="0 0 34 14" aria-hidden="true">{}</svg>'

    def key(inside: str, mark: Markup = NO_MARK) -> Markup:
        return Markup(grey).format(Markup(inside) + mark)

    kinds = {model.curve.departure.kind for model in family.models if model.curve.departure}
    found = [(key('<rect class="baseband" x="1" y="2" width="32" height="10"/><path class="guess" d="M1 7H33"/>'),
              "null: tokens shuffled")]  # fmt: skip
    for kind in sorted(kinds):
        picture = key('<path class="reach" d="M3 7H31"/>', charts.mark(17.0, 7.0, 4.0, MARKS[kind], critical=True))
        found.append((picture, f"{kind}, its interval"))
    if any(model.critical_blocks for model in family.models):
        found.append((key('<rect class="place" x="6" y="2" width="22" height="10"/>'), "critical block"))
    return found


def _swatch(index: int, stroke: str, mark: Markup) -> Markup:
    picture = '<svg class="swatch t{}" viewBox="0 0 34 14" aria-hidden="true">{}{}</svg>'
    return Markup(picture).format(index % charts.SERIES, Markup(stroke), mark)


def _upright(values: Sequence[float], start: float, end: float) -> Scale:
    """From 0 to 1; measures below 0, as a cosine can be, get the room that they need."""
    low = min([0.0, *values])
    ticks = [(i / 4, f"{i / 4:.2g}".replace("-", wording.MINUS)) for i in range(-4, 5) if i / 4 >= low - 0.12]
    return Scale(low - (0.05 if low < 0 else 0.0), 1.03, start, end, tuple(ticks))


def stretches(places: Sequence[tuple[int, Value]]) -> Iterator[list[tuple[int, Value]]]:
    """The places in runs of neighbouring layers: no line is drawn over a layer that is not known."""
    run: list[tuple[int, Value]] = []
    for place in places:
        if run and place[0] != run[-1][0] + 1:
            yield run
            run = []
        run.append(place)
    if run:
        yield run


def _line(index: int, curve: Curve, measure: str, x: Scale, y: Scale, blocks: int, *, place: bool) -> Markup:
    found = Markup("")
    places = curve.along(measure)
    for run in stretches(places):
        spread = [(x.at(layer), value.mean, value.std) for layer, value in run if value.std is not None]
        if len(spread) > 1:
            outline = [f"{at:.1f} {y.at(mean + (std or 0.0)):.1f}" for at, mean, std in spread]
            outline += [f"{at:.1f} {y.at(mean - (std or 0.0)):.1f}" for at, mean, std in reversed(spread)]
            found += Markup('<path class="band" d="M{}Z"/>').format("L".join(outline))
        if len(run) > 1:
            line = "L".join(f"{x.at(layer):.1f} {y.at(value.mean):.1f}" for layer, value in run)
            found += Markup('<path class="stroke" d="M{}"/>').format(line)
    radius = 2.9 if blocks <= 16 else 1.8
    found += Markup("").join(charts.mark(x.at(layer), y.at(value.mean), radius, index) for layer, value in places)
    at = curve.departure if place else None
    if at and (height := height_at(places, at.layer)) is not None:
        found += charts.mark(x.at(at.layer), y.at(height), 5.2, MARKS[at.kind], critical=True)
    return Markup('<g class="t{}">{}</g>').format(index % charts.SERIES, found)


def height_at(places: Sequence[tuple[int, Value]], layer: float) -> float | None:
    """The height of a curve between two of its layers; None beyond its ends and where one of the two is missing."""
    for run in stretches(places):
        for (a, former), (b, later) in pairwise(run):
            if a <= layer <= b:
                return former.mean + (layer - a) / (b - a) * (later.mean - former.mean)
    return None


def null_band(curves: Sequence[Curve]) -> list[tuple[int, float, float, float]]:
    """(layer, low, mean, high) of the null over all curves.

    From a standard deviation between runs below the least to the highest 97.5 % quantile over shuffles, which one run
    has as well.
    """
    found: dict[int, list[tuple[Value, float]]] = {}
    for curve in curves:
        high = null_reach(curve)
        for layer, value in curve.along("null"):
            found.setdefault(layer, []).append((value, high[layer]))
    return [
        (
            layer,
            min(value.mean - (value.std or 0.0) for value, _ in values),
            sum(value.mean for value, _ in values) / len(values),
            max(high for _, high in values),
        )
        for layer, values in sorted(found.items())
    ]


def _null(curves: Sequence[Curve], x: Scale, y: Scale) -> Markup:
    band = null_band(curves)
    if len(band) < 2:
        return Markup("")
    outline = [f"{x.at(layer):.1f} {y.at(high):.1f}" for layer, _, _, high in band]
    outline += [f"{x.at(layer):.1f} {y.at(low):.1f}" for layer, low, _, _ in reversed(band)]
    middle = "L".join(f"{x.at(layer):.1f} {y.at(mean):.1f}" for layer, _, mean, _ in band)
    return Markup('<path class="baseband" d="M{}Z"/><path class="guess" d="M{}"/>').format("L".join(outline), middle)


def _row(index: int, label: str, model: Followed, shape: Shape | None, x: Scale, at: float) -> Markup:
    """One model's row above the plot: its critical blocks between their layers, and its hinge or step on them."""
    found = Markup('<text class="label small" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
        LEFT - 6, at + 3.5, wording.short(label, 9)
    )
    found += Markup('<path class="grid" d="M{:.1f} {:.1f}H{:.1f}"/>').format(x.start, at, x.end)
    for block in model.critical_blocks:
        left, right = x.at(block), x.at(block + 1)
        found += Markup('<rect class="place" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="10"/>').format(
            left + 0.5, at - 5, right - left - 1
        )
    told = [label]
    if model.critical_blocks:
        runs = wording.layer_runs(model.critical_blocks)
        told.append(f"critical: {'blocks' if len(model.critical_blocks) > 1 else 'block'} {runs}")
    if shape:
        told.append(shape_text(shape))
    if shape and (departure := shape.departure):
        if departure.low is not None and departure.high is not None:
            found += Markup('<path class="reach" d="M{:.1f} {:.1f}H{:.1f}"/>').format(
                x.at(departure.low), at, x.at(departure.high)
            )
        found += charts.mark(x.at(departure.layer), at, 3.6, MARKS[departure.kind], critical=True)
    hit = Markup('<rect class="point" data-tip="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}"/>').format(
        "\n".join(told), x.start, at - ROW / 2, x.end - x.start, ROW
    )
    return Markup('<g class="t{}">{}{}</g>').format(index % charts.SERIES, found, hit)


def shape_text(shape: Shape) -> str:
    """`step over block 2 [2, 2], p .0003`, or why there is none."""
    p = "" if shape.p is None else f", p{wording.SPACE}{wording.p_value(shape.p)}"
    if shape.departure:
        own = "" if shape.departure.p is None else f", p{wording.SPACE}{wording.p_value(shape.departure.p)}"
        return f"{place_text(shape.departure)}{own}; straight line{p.removeprefix(',')}"
    return {
        "line": f"a straight line is not rejected{p}",
        "neither": f"no straight line{p}, but neither a hinge nor a step",
    }.get(shape.chosen, "shape not tested: one run")


def place_text(departure: Departure) -> str:
    """`hinge at layer 3.4 [3.1, 3.7]`, `step over block 2 [2, 4]`."""
    known = departure.low is not None and departure.high is not None
    if departure.kind == "step":
        ends = f" [{int(departure.low or 0)},{wording.SPACE}{int(departure.high or 0)}]" if known else ""
        return f"step over block {departure.block}{ends}"
    ends = f" [{departure.low:.1f},{wording.SPACE}{departure.high:.1f}]" if known else ""
    return f"hinge at layer {departure.layer:.1f}{ends}"


def layer_name(layer: int) -> str:
    """`layer 3, the output of block 2`."""
    return "layer 0, what enters block 0" if layer == 0 else f"layer {layer}, the output of block {layer - 1}"


def plain(value: Value | None, digits: int = 3) -> str:
    """`0.512 ± 0.010`; a dash where it is not known."""
    if value is None:
        return wording.DASH
    text = f"{value.mean:.{digits}f}".replace("-", wording.MINUS)
    return text if value.std is None else f"{text} ± {value.std:.{digits}f}"


def _column(layer: int, curves: Sequence[tuple[str, Curve]], measure: str, x: Scale, y: Scale, *, null: bool) -> Markup:
    """An invisible column over a layer: pointing at it shows the numbers of all models."""
    told = [layer_name(layer)]
    for label, curve in curves:
        at = next((one for one in curve.layers if one.layer == layer), None)
        value = at.of(measure) if at else None
        floor = at.of("null") if at and null else None
        told.append(f"{label}: {plain(value)}" + (f", null {plain(floor)}" if floor else ""))
    step = x.at(1) - x.at(0)
    left, right = max(x.start, x.at(layer) - step / 2), min(x.end, x.at(layer) + step / 2)
    return Markup(
        '<g class="hit" data-tip="{}"><path class="guide" d="M{:.1f} {:.1f}V{:.1f}"/>'
        '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/></g>'
    ).format("\n".join(told), x.at(layer), y.end, y.start, left, y.end, right - left, y.start - y.end)
