"""The small charts of an overlay as inline SVG: one profile each, all over the same axis of blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from lesion.report import charts, scales, wording
from lesion.report.scales import Scale
from lesion.studies.overlay.profiles import Profile
from lesion.studies.overlay.summary import Of

SIZES = ((400, 112), (820, 118))  # width and height in SVG units, on a phone and with room
LEFT, RIGHT, TOP, BOTTOM = 52.0, 6.0, 8.0, 20.0
KINDS: Mapping[str, tuple[int, str]] = {
    "layers": (0, "layer ablation"),
    "drift": (2, "drift"),
    "isolation": (3, "isolated weights"),
    "truncation": (1, "truncation"),
}
"""Colour and name of each kind of study."""
UNITS = {"points": "points", "nmi": "NMI", "share": "% of the weights", "nats": "nats"}


def chart(of: Of, profile: Profile, size: tuple[int, int]) -> Markup:
    """One profile: a column per block from 0 up or down, with its interval; a level over blocks is a line.

    Blocks that a layer study calls critical are shaded, darker for every further task.
    """
    width, height = size
    blocks = of.blocks
    x = Scale(blocks[0] - 0.5, blocks[-1] + 0.5, LEFT, width - RIGHT)
    y = _upwards(profile, height)
    step = x.at(1.0) - x.at(0.0) if len(blocks) > 1 else width - LEFT - RIGHT
    parts = [_shade(of, x, step, height), *_axes(x, y, blocks, step, profile, height)]
    found, hits = Markup(""), Markup("")
    at = [(x.at(float(block)), y.at(value)) for block, value in zip(profile.blocks, profile.values, strict=True)]
    half = min(17.0, 0.36 * step)
    if profile.ranked:
        for (across, up), block in zip(at, profile.blocks, strict=True):
            name = "mark critical" if block in profile.critical else "repeat"
            found += Markup('<path class="{}" d="M{:.1f} {:.1f}H{:.1f}V{:.1f}H{:.1f}Z"/>').format(
                name, across - half, y.at(0.0), across + half, up, across - half
            )
    else:
        drawn = "L".join(f"{a:.1f} {b:.1f}" for a, b in at)
        found += Markup('<path class="stroke" d="M{}"/>').format(drawn) if len(at) > 1 else Markup("")
        for across, up in at:
            found += charts.mark(across, up, 3.0, 0)
    for (across, _), block, low, high in zip(at, profile.blocks, profile.low, profile.high, strict=True):
        if math.isfinite(low) and math.isfinite(high):
            found += Markup('<path class="guide shown" d="M{:.1f} {:.1f}V{:.1f}"/>').format(
                across, y.at(low), y.at(high)
            )
        column = '<g class="hit" data-tip="{}"><rect x="{:.1f}" y="{}" width="{:.1f}" height="{:.1f}"/></g>'
        hits += Markup(column).format(told(profile, block), across - step / 2, TOP, step, height - TOP - BOTTOM)
    parts.append(Markup('<g class="t{}">{}</g>').format(KINDS[profile.kind][0], found))
    name = f"{profile.label}, {UNITS[profile.unit]}, by block; the numbers stand in overlay.csv."
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg>').format(
        width, height, name, Markup("").join(parts), hits
    )


def value(profile: Profile, number: float) -> str:
    """A value of a profile as text, without its unit."""
    if not math.isfinite(number):
        return wording.DASH
    if profile.unit == "points":
        return wording.points(number)
    shown = 100 * number if profile.unit == "share" else number
    return f"{shown:.3g}".replace("-", wording.MINUS)


def told(profile: Profile, block: int) -> str:
    """What pointing at a block tells."""
    found = profile.at(block)
    assert found is not None
    number, low, high = found
    text = f"block{wording.SPACE}{block}\n{profile.label}: {value(profile, number)} {UNITS[profile.unit]}"
    if math.isfinite(low) and math.isfinite(high):
        text += f" [{value(profile, low)},{wording.SPACE}{value(profile, high)}]"
    return f"{text}, critical" if block in profile.critical else text


def legend(of: Of) -> list[tuple[Markup, str]]:
    """A picture and a name per kind of study that the model has."""
    kinds = [kind for kind in KINDS if any(profile.kind == kind for profile in of.profiles)]
    picture = Markup(
        '<svg class="swatch t{}" viewBox="0 0 34 14" aria-hidden="true"><path class="repeat" d="M9 1H25V13H9Z"/></svg>'
    )
    found = [(picture.format(KINDS[kind][0]), KINDS[kind][1]) for kind in kinds]
    if any(profile.critical for profile in of.profiles):
        column = Markup(
            '<svg class="swatch t0" viewBox="0 0 34 14" aria-hidden="true"><path class="baseband" d="M0 0H34V14H0Z"/>'
            '<path class="mark critical" d="M9 1H25V13H9Z"/></svg>'
        )
        found.append((column, "critical for a task (shaded in every row)"))
    return found


def _upwards(profile: Profile, height: int) -> Scale:
    known = [v for v in (*profile.values, *profile.low, *profile.high) if math.isfinite(v)]
    low, high = (min([0.0, *known]), max([0.0, *known])) if profile.ranked else (min(known), max(known))
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    unit = 100.0 if profile.unit in ("points", "share") else 1.0
    steps = (digit * 10.0**power / unit for power in range(-6, 5) for digit in (1, 2, 5))
    step = next(step for step in steps if (high - low) / step <= 4.5)
    room = 0.06 * (high - low)
    ticks = tuple(
        (i * step, f"{i * step * unit:.6g}".replace("-", wording.MINUS))
        for i in range(math.ceil((low - room) / step), math.floor((high + room) / step) + 1)
    )
    return Scale(low - room, high + room, height - BOTTOM, TOP, ticks)


def _axes(
    x: Scale, y: Scale, blocks: Sequence[int], step: float, profile: Profile, height: int
) -> list[Markup]:  # fmt: skip
    found = [
        Markup('<path class="grid{}" d="M{:.1f} {:.1f}H{:.1f}"/>'
               '<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>').format(
            " zero" if place == 0 else "", x.start, y.at(place), x.end, x.start - 6, y.at(place) + 4, text
        )
        for place, text in scales.spaced(y, 14.0)
    ]  # fmt: skip
    stride = next((s for s in (1, 2, 4, 5, 10, 20) if s * step >= 20), 50)
    known = set(profile.blocks)
    for block in blocks:
        if block not in known:
            found.append(
                Markup('<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">–</text>').format(
                    x.at(float(block)), (y.start + y.end) / 2
                )
            )
        if block % stride == 0:
            found.append(
                Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
                    x.at(float(block)), height - 5, block
                )
            )
    return found


def _shade(of: Of, x: Scale, step: float, height: int) -> Markup:
    """A rectangle per block and layer profile that calls it critical."""
    return Markup("").join(
        Markup('<rect class="baseband" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(
            x.at(float(block)) - step / 2, TOP, step, height - TOP - BOTTOM
        )
        for profile in of.profiles
        for block in profile.critical
    )
