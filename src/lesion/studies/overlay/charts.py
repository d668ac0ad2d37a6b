"""The charts of an overlay: one profile each, all over the same axis of blocks, and a matrix of their correlations."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import altair as alt
import pandas as pd

from lesion.report import heatmap, plots, theme, wording
from lesion.report.axes import Axis
from lesion.report.blocks import Series
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
LABEL = 24
"""Characters of a line of a row's name in the matrix."""
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
    frame, blocks = _rows(profile), model.blocks
    across = Axis("block" if last else "", blocks[0] - 0.6, blocks[-1] + 0.6, whole=True)
    upright = Axis("", *_range(frame, profile))
    colour = theme.tone(KINDS[profile.kind][0])
    # A rectangle per block and profile that calls it critical.
    critical = pd.Series([block for each in model.profiles for block in each.critical], dtype=float)
    shade = alt.Chart(pd.DataFrame({"from": critical - 0.5, "to": critical + 0.5}))
    layers = [
        shade.mark_rect(color=theme.SOFT, opacity=0.12).encode(x=plots.x(across, "from"), x2=alt.X2(field="to")),
    ]
    base = alt.Chart(frame).encode(x=plots.x(across), y=plots.y(upright))
    if profile.ranked:
        column = alt.Chart(frame).mark_rect(color=colour).encode(
            x=plots.x(across, "left"), x2=alt.X2(field="right"), y=plots.y(upright, "zero"), y2=alt.Y2(field="y"),
            opacity=plots.either(alt.OpacityValue, "datum.critical", 1.0, 0.6),
        )  # fmt: skip
        layers += [alt.Chart(pd.DataFrame({"y": [0.0]})).mark_rule(strokeWidth=1).encode(y=plots.y(upright)), column]
    else:
        layers += [base.mark_line(color=colour), base.mark_point(color=colour)]
    reach = alt.Chart(frame.dropna(subset=["low", "high"])).mark_rule(color=theme.INK, opacity=0.75)
    missing = pd.DataFrame({"x": [block for block in blocks if block not in profile.blocks]})
    absent = alt.Chart(missing).mark_text(text=wording.DASH, color=theme.SOFT)
    layers += [
        reach.encode(x=plots.x(across), y=plots.y(upright, "low"), y2=alt.Y2(field="high")),
        absent.encode(x=plots.x(across), y=alt.YValue(HEIGHT / 2)),
        alt.Chart(frame).mark_rect(opacity=0).encode(
            x=plots.x(across, "from"), x2=alt.X2(field="to"),
            tooltip=alt.Tooltip(field="tip", type="nominal", title=" "),
        ),
    ]  # fmt: skip
    lines = textwrap.wrap(wording.printable(f"{_name(model, profile)} ({UNITS[profile.unit]})"), LINE)
    title = alt.TitleParams(lines, fontSize=12, offset=6, frame="bounds")
    return alt.layer(*layers).properties(height=HEIGHT, title=title)


def _name(model: ModelProfiles, profile: Profile) -> str:
    """The label of a profile, after the number that it has in the matrix of correlations."""
    labels = [ranked.label for ranked in model.ranked]
    return f"{labels.index(profile.label) + 1} {profile.label}" if profile.label in labels else profile.label


def _rows(profile: Profile) -> pd.DataFrame:
    """A row per block; shares of 1 in percent."""
    frame = pd.DataFrame({"x": profile.blocks, "y": profile.values, "low": profile.low, "high": profile.high})
    numbers = frame[["y", "low", "high"]].astype(float) * _per_unit(profile)
    ends = {"left": frame["x"] - COLUMN, "right": frame["x"] + COLUMN, "from": frame["x"] - 0.5, "to": frame["x"] + 0.5}
    tips = [tip(profile, block) for block in profile.blocks]
    critical = [block in profile.critical for block in profile.blocks]
    return frame.assign(**ends, **numbers, zero=0.0, critical=critical, tip=tips)


def _per_unit(profile: Profile) -> float:
    return 100.0 if profile.unit in ("points", "share") else 1.0


def _range(frame: pd.DataFrame, profile: Profile) -> tuple[float, float]:
    """The ends of the upright axis: all values and intervals with some room, and 0 where columns stand on it."""
    known = frame[["y", "low", "high", "zero"] if profile.ranked else ["y", "low", "high"]]
    low, high = float(known.min().min()), float(known.max().max())
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    room = 0.06 * (high - low)
    return low - room, high + room


def number(profile: Profile, value: float | None) -> str:
    """A value of a profile as text, without its unit."""
    if value is None:
        return wording.DASH
    if profile.unit == "points":
        return wording.points(value)
    return f"{_per_unit(profile) * value:.3g}".replace("-", wording.MINUS)


def tip(profile: Profile, block: int) -> str:
    """What pointing at a block shows."""
    limits = profile.at(block)
    assert limits is not None
    value, low, high = limits
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
    names = {profile.label: "\n".join(textwrap.wrap(_name(model, profile), LABEL)) for profile in ranked}
    rows = [
        {"x": str(place), "y": names[b.label], "value": pair.rho, "text": _pair_text(pair), "tip": _pair_tip(pair)}
        | {"marked": pair.p_corrected is not None and pair.p_corrected <= ALPHA}
        for place, a in enumerate(ranked, start=1)
        for b in ranked[place:]
        if (pair := model.pair(a.label, b.label)) is not None
    ]
    columns, upright = [str(place) for place in range(1, len(ranked))], list(names.values())
    return heatmap.heat(
        pd.DataFrame(rows), "number of the other profile", "", full=1.25, columns=columns, rows=upright,
        colours=(theme.SHARE, theme.GAIN), height=46,
    ).properties(width=min(theme.WIDTH, 90 * len(columns)))  # fmt: skip


def _pair_text(pair: Correlation) -> str:
    p = "" if pair.p_corrected is None else f"\np {wording.p_value(pair.p_corrected)}"
    return f"{wording.rho(pair.rho)}{p}"


def _pair_tip(pair: Correlation) -> str:
    p = f", p {wording.p_value(pair.p)}, corrected {wording.p_value(pair.p_corrected)}" if pair.p is not None else ""
    over = wording.counted(pair.blocks, "block")
    beyond = wording.rho(pair.beyond_depth)
    return f"{pair.b}\nwith {pair.a}\nρ {wording.rho(pair.rho)} over {over}{p}; beyond depth {beyond}"
