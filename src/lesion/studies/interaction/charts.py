"""The charts of an interaction study: a map of pairs, windows, accuracy along removals, Shapley values."""

from __future__ import annotations

import altair as alt
import pandas as pd

from lesion.report import heatmap, plots, theme, wording
from lesion.report.axes import Axis, shares
from lesion.report.blocks import Series
from lesion.studies.interaction import findings as prose
from lesion.studies.interaction.findings import amount, places, unit, within
from lesion.studies.interaction.result import Interaction, InteractionSummary, Share


def pairs_chart(summary: InteractionSummary, task: str) -> alt.LayerChart:
    """A cell for every pair: how much more it costs than the sum; boxed where the test passes; `?` at the floor."""
    sets = summary.of(task, "pairs")
    rows = [
        {
            "x": prose.short(each.places[0]),
            "y": prose.short(each.places[1]),
            "value": None if each.verdict == "cannot tell" else each.beyond.value,
            "text": "?" if each.verdict == "cannot tell" else amount(summary.study, each.beyond.value),
            "tip": tip(summary, each),
            "marked": each.verdict in ("redundant", "one path"),
        }
        for each in sets
    ]
    names = [prose.short(place) for place in summary.places]
    known = [abs(row["value"]) for row in rows if row["value"] is not None]  # type: ignore[arg-type]
    full = max([*known, 0.1])
    noun = prose.noun(summary.study)
    return heatmap.heat(
        pd.DataFrame(rows), noun, f"with {noun}", full=full, columns=names[:-1], rows=names[1:],
        colours=(theme.LOSS, theme.GAIN),
    ).properties(width=min(theme.WIDTH, 70 * max(2, len(names) - 1)))  # fmt: skip


def tip(summary: InteractionSummary, each: Interaction) -> str:
    """What pointing at a set shows."""
    study = summary.study
    lines = [
        wording.capital(places(study, each.places)),
        f"alone {' + '.join(amount(study, drop) for drop in each.alone)} = {amount(study, each.sum)} {unit(study)}",
        f"together {amount(study, each.together.value)} {within(study, each.together.low, each.together.high)}",
        f"beyond the sum {amount(study, each.beyond.value)} {within(study, each.beyond.low, each.beyond.high)},"
        f" corrected p {wording.p_value(each.beyond.p_corrected)}",
        each.verdict,
    ]
    return "\n".join(lines)


def windows_chart(summary: InteractionSummary, task: str) -> alt.LayerChart:
    """The drop of every window with its interval, and the sum of its blocks alone."""
    rows: list[plots.Row] = []
    scale = _scale(summary)
    for each in summary.of(task, "windows"):
        low, high = each.together.low, each.together.high
        value = scale * (each.together.value or 0.0)
        limits = (None, None) if low is None or high is None else (scale * low, scale * high)
        first = int(each.places[0].partition(".")[0])
        rows += [("together", first, value, *limits)]
        rows += [("sum of each alone", first, scale * each.sum, None, None)]
    frame = plots.data(rows)
    firsts = tuple(sorted(set(frame["x"])))
    across = Axis(
        f"first of {summary.study.window} blocks", firsts[0] - 0.5, firsts[-1] + 0.5, whole=True, ticks=firsts
    )
    bottom = min(0.0, float(frame[["y", "low"]].min().min()))
    upright = Axis(f"drop ({unit(summary.study)})", bottom, 1.05 * float(frame[["y", "high"]].max().max()))
    return plots.points(frame, across, upright, ["together", "sum of each alone"])


def cumulative_chart(summary: InteractionSummary, task: str) -> alt.LayerChart:
    """Accuracy after each removal, in the study's order with its interval, and in random orders."""
    scale = _scale(summary)
    before = summary.removal(task).value
    rows: list[plots.Row] = []
    for step in (step for step in summary.steps if step.task == task):
        name = _order_name(step.order)
        if len(step.places) == 1:
            rows.append((name, 0, scale * (before.value or 0.0), *_limits(scale, before.low, before.high, step.order)))
        limits = _limits(scale, step.value.low, step.value.high, step.order)
        rows.append((name, len(step.places), scale * (step.value.value or 0.0), *limits))
    frame = plots.data(rows)
    names = list(dict.fromkeys(frame["series"]))
    across = Axis(
        f"{prose.noun(summary.study)}s {prose.done(summary.study)}", 0.0, float(len(summary.places)), whole=True
    )
    upright = shares("accuracy (%)") if summary.study.measure == "accuracy" else Axis("log-probability (nats)")
    removed = [f"after {', '.join(summary.order[:count]) or 'none'}" for count in range(len(summary.order) + 1)]
    guide = plots.readings(frame, lambda place: removed[int(place)])
    numbers = [0, *[1] * (len(names) - 1)]
    return plots.curves(frame, across, upright, names, numbers=numbers, marks=False, guide=guide)


def cumulative_legend(summary: InteractionSummary) -> tuple[Series, ...]:
    """The order of the study, and the random ones."""
    first = Series(_order_name(0), colour=theme.tone(0), area=True)
    random = any(step.order for step in summary.steps)
    return (first, Series("random orders", colour=theme.tone(1), area=True)) if random else (first,)


def shapley_chart(summary: InteractionSummary, task: str) -> alt.LayerChart:
    """Every place's Shapley value with its interval, and its drop alone as a small mark."""
    scale = _scale(summary)
    every: list[Share] = sorted(
        (share for share in summary.shares if share.task == task), key=lambda share: -(share.value.value or 0.0)
    )
    frame = pd.DataFrame(
        {
            "y": _name(summary, share),
            "x": scale * (share.value.value or 0.0),
            "low": None if share.value.low is None else scale * share.value.low,
            "high": None if share.value.high is None else scale * share.value.high,
            "colour": theme.tone(0),
            "tip": f"{_name(summary, share)}: {amount(summary.study, share.value.value)}"
            f" {within(summary.study, share.value.low, share.value.high)} {unit(summary.study)}\n"
            f"alone {amount(summary.study, share.alone)}",
        }
        for share in every
    )
    alone = pd.DataFrame(
        {"y": _name(summary, share), "x": scale * share.alone, "colour": theme.tone(1)} for share in every
    )
    across = Axis(f"{unit(summary.study)} (circle: Shapley value; small: alone)")
    return plots.forest(frame.astype({"low": float, "high": float}), across, repeats=alone)


def _name(summary: InteractionSummary, share: Share) -> str:
    return f"block {share.place}" if prose.noun(summary.study) == "block" else prose.short(share.place)


def _scale(summary: InteractionSummary) -> float:
    return 100.0 if summary.study.measure == "accuracy" else 1.0


def _order_name(order: int) -> str:
    return f"random order {order}" if order else "this order"


def _limits(scale: float, low: float | None, high: float | None, order: int) -> tuple[float | None, float | None]:
    if order or low is None or high is None:
        return None, None
    return scale * low, scale * high
