"""The charts of an overlay: one profile each, all over the same axis of blocks, and a matrix of their correlations."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import altair as alt
import pandas as pd

from lesion.report import plots, theme, wording
from lesion.report.blocks import Series
from lesion.report.plots import Axis
from lesion.statistics.paired import ALPHA
from lesion.studies.overlay.result import Correlation, Kind, ModelProfiles, Profile

HEIGHT = 84
"""Of a profile's chart, in pixels."""
KINDS: Mapping[Kind, tuple[int, str]] = {
    "layers": (0, "layer ablation"),
    "drift": (2, "drift"),
    "isolation": (3, "isolated weights"),
    "truncation": (1, "truncation"),
}
"""Number of the colour, and name, of each kind of study."""
UNITS = {"points": "points", "nmi": "NMI", "share": "% of the weights", "nats": "nats"}
LINE = 46
"""Characters of a line of a chart's title, so that it fits on a phone."""
COLUMN = 0.36
"""Half the width of a column, in blocks."""


def profile_chart(model: ModelProfiles, profile: Profile, *, last: bool = True) -> alt.LayerChart:
    """One profile: a column per block from 0 up or down, with its interval; one that is not ranked is a line.

    Blocks that a layer study calls critical are shaded, darker for every further task.

    Args:
        model: whose profile it is.
        profile: the numbers.
        last: whether it stands at the bottom of its panel, where the axis of blocks has a title.
    """
    frame = _rows(profile)
    blocks = model.blocks
    across = Axis("block" if last else "", blocks[0] - 0.6, blocks[-1] + 0.6, whole=True)
    upright = Axis("", *_range(profile))
    colour = theme.tone(KINDS[profile.kind][0])
    base = alt.Chart(frame).encode(x=plots.x(across), y=plots.y(upright))
    layers = [_shade(model, across)]
    if profile.ranked:
        column = alt.Chart(frame).encode(
            x=plots.x(across, "left"), x2=alt.X2(field="right"), y=plots.y(upright, "zero"), y2=alt.Y2(field="y")
        )
        strength = alt.condition("datum.critical", alt.value(1.0), alt.value(0.6))
        layers += [
            alt.Chart(pd.DataFrame({"y": [0.0]})).mark_rule(strokeWidth=1).encode(y=plots.y(upright)),
            column.mark_rect(color=colour).encode(opacity=strength),
        ]
    else:
        layers += [base.mark_line(color=colour), base.mark_point(color=colour)]
    whiskers = frame.dropna(subset=["low", "high"])
    if len(whiskers):
        reach = alt.Chart(whiskers).mark_rule(color=theme.INK, opacity=0.75)
        layers.append(reach.encode(x=plots.x(across), y=plots.y(upright, "low"), y2=alt.Y2(field="high")))
    missing = [block for block in blocks if block not in profile.blocks]
    if missing:
        absent = alt.Chart(pd.DataFrame({"x": missing})).mark_text(text=wording.DASH, color=theme.SOFT)
        layers.append(absent.encode(x=plots.x(across), y=alt.value(HEIGHT / 2)))
    pointed = alt.Chart(frame).mark_rect(opacity=0)
    tip = alt.Tooltip(field="tip", type="nominal", title=" ")
    layers.append(pointed.encode(x=plots.x(across, "from"), x2=alt.X2(field="to"), tooltip=tip))
    lines = textwrap.wrap(wording.printable(f"{_name(model, profile)} ({UNITS[profile.unit]})"), LINE)
    title = alt.TitleParams(lines, fontSize=12, offset=6, frame="bounds")
    return alt.layer(*layers).properties(height=HEIGHT, title=title)


def _name(model: ModelProfiles, profile: Profile) -> str:
    """The label of a profile, after the number that it has in the matrix of correlations."""
    labels = [ranked.label for ranked in model.ranked]
    return f"{labels.index(profile.label) + 1} {profile.label}" if profile.label in labels else profile.label


def _rows(profile: Profile) -> pd.DataFrame:
    """A row per block; shares of 1 in percent."""
    unit = _per_unit(profile)

    def scaled(number: float | None) -> float | None:
        return None if number is None else unit * number

    rows = [
        {"x": block, "left": block - COLUMN, "right": block + COLUMN, "from": block - 0.5, "to": block + 0.5}
        | {"y": unit * value, "zero": 0.0, "low": scaled(low), "high": scaled(high)}
        | {"critical": block in profile.critical, "tip": tip(profile, block)}
        for block, value, low, high in zip(profile.blocks, profile.values, profile.low, profile.high, strict=True)
    ]
    return pd.DataFrame(rows).astype({"low": float, "high": float})


def _per_unit(profile: Profile) -> float:
    return 100.0 if profile.unit in ("points", "share") else 1.0


def _range(profile: Profile) -> tuple[float, float]:
    """The ends of the upright axis: all values and intervals with some room, and 0 where columns stand on it."""
    known = [number for number in (*profile.values, *profile.low, *profile.high) if number is not None]
    known += [0.0] if profile.ranked else []
    low, high = min(known), max(known)
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    room = 0.06 * (high - low)
    unit = _per_unit(profile)
    return unit * (low - room), unit * (high + room)


def _shade(model: ModelProfiles, across: Axis) -> alt.Chart:
    """A rectangle per block and layer profile that calls it critical."""
    rows = [{"from": block - 0.5, "to": block + 0.5} for profile in model.profiles for block in profile.critical]
    shade = alt.Chart(pd.DataFrame(rows, columns=["from", "to"])).mark_rect(color=theme.SOFT, opacity=0.12)
    return shade.encode(x=plots.x(across, "from"), x2=alt.X2(field="to"))


def number(profile: Profile, value: float | None) -> str:
    """A value of a profile as text, without its unit."""
    if value is None:
        return wording.DASH
    if profile.unit == "points":
        return wording.points(value)
    return f"{_per_unit(profile) * value:.3g}".replace("-", wording.MINUS)


def tip(profile: Profile, block: int) -> str:
    """What pointing at a block shows."""
    held = profile.at(block)
    assert held is not None
    value, low, high = held
    text = f"block{wording.SPACE}{block}\n{profile.label}: {number(profile, value)} {UNITS[profile.unit]}"
    if low is not None and high is not None:
        text += f" [{number(profile, low)},{wording.SPACE}{number(profile, high)}]"
    return f"{text}, critical" if block in profile.critical else text


def legend(model: ModelProfiles) -> tuple[Series, ...]:
    """The kinds of study that the model has, and the shade of critical blocks."""
    kinds = [kind for kind in KINDS if any(profile.kind == kind for profile in model.profiles)]
    series = [Series(KINDS[kind][1], colour=theme.tone(KINDS[kind][0]), area=True) for kind in kinds]
    if any(profile.critical for profile in model.profiles):
        series.append(Series("critical for a task (shaded in every row)", colour=theme.SOFT, area=True))
    return tuple(series)


def matrix_chart(model: ModelProfiles) -> alt.LayerChart:
    """Spearman's ρ between every two ranked profiles, below it the corrected p; boxed: at most `ALPHA`."""
    ranked = model.ranked
    names = {profile.label: _name(model, profile) for profile in ranked}
    rows = [
        {"x": str(place), "y": names[b.label], "value": pair.rho, "text": wording.rho(pair.rho), "tip": _pair_tip(pair)}
        | {"marked": pair.p_corrected is not None and pair.p_corrected <= ALPHA}
        | {"p": "" if pair.p_corrected is None else f"p {wording.p_value(pair.p_corrected)}"}
        for place, a in enumerate(ranked, start=1)
        for b in ranked[place:]
        if (pair := model.pair(a.label, b.label)) is not None
    ]
    columns, upright = [str(place) for place in range(1, len(ranked))], list(names.values())
    frame = pd.DataFrame(rows)
    cells = plots.heat(
        frame, "number of the other profile", "", full=1.25, columns=columns, rows=upright,
        colours=(theme.SHARE, theme.GAIN), height=44,
    )  # fmt: skip
    small = (
        alt.Chart(frame)
        .mark_text(fontSize=9, dy=13)
        .encode(
            x=alt.X(field="x", type="ordinal", sort=columns),
            y=alt.Y(field="y", type="ordinal", sort=upright),
            text=alt.Text(field="p", type="nominal"),
        )
    )
    return alt.layer(cells, small).properties(width=min(theme.WIDTH, 90 * len(columns)), height=44 * len(upright))


def _pair_tip(pair: Correlation) -> str:
    tested = ""
    if pair.p is not None:
        tested = f", p {wording.p_value(pair.p)}, corrected {wording.p_value(pair.p_corrected)}"
    over = wording.counted(pair.blocks, "block")
    alike = f"ρ {wording.rho(pair.rho)} over {over}{tested}; beyond depth {wording.rho(pair.beyond_depth)}"
    return f"{pair.b}\nwith {pair.a}\n{alike}"
