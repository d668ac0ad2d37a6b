"""The charts of what was selected: where it lies in the model, and how far repeated draws of texts agree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

import altair as alt
import pandas as pd

from lesion.report import axes, heatmap, plots, theme, wording
from lesion.report.axes import Axis
from lesion.report.blocks import Series
from lesion.studies.isolation.charts import beside
from lesion.studies.isolation.result import Isolation, Overlap, Selected

HEAD, EVERY, WHOLE = "output head", "all of the block", "all"
MOST_NUMBERED = 16
"""With more blocks the cells of a distribution have no number in them."""


def counts(selection: Selected) -> pd.DataFrame:
    """Where a selection lies: the columns selected, total, matrices and share, by kind of matrix and block.

    Rows of the kind `EVERY` and the block `WHOLE` are sums, experts of a block are summed up, and the head is a kind
    of its own.
    """
    matrices = pd.DataFrame(
        [(m.kind, str(m.block), m.selected, m.total, 1) for m in selection.matrices],
        columns=["kind", "block", "selected", "total", "matrices"],
    )
    head = matrices["block"] == str(None)
    parts = [
        matrices[~head],
        matrices[~head].assign(block=WHOLE),
        matrices[~head].assign(kind=EVERY),
        matrices.assign(kind=EVERY, block=WHOLE),
        matrices[head].assign(kind=HEAD, block=WHOLE),
    ]
    sums = pd.concat(parts).groupby(["kind", "block"], sort=False).sum()
    return sums.assign(share=sums["selected"] / sums["total"])


def distribution(selection: Selected) -> alt.LayerChart:
    """Share selected per kind of matrix (rows) and block (columns), with sums over each; the head in its own row."""
    sums = counts(selection)
    kinds = list(dict.fromkeys(sums.index.get_level_values("kind")))
    columns = [*map(str, sorted(selection.density)), WHOLE]
    cells = [*product([kind for kind in kinds if kind != HEAD], columns), *[(HEAD, WHOLE)] * (HEAD in kinds)]
    rows = []
    for (kind, block), (selected, total, matrices, part) in zip(
        cells, sums.reindex(pd.MultiIndex.from_tuples(cells)).itertuples(index=False), strict=True
    ):
        tip = {(EVERY, WHOLE): "everything scored", (HEAD, WHOLE): HEAD}.get(
            (kind, block), f"{kind}, {'all blocks' if block == WHOLE else f'block {block}'}"
        )
        known = bool(total > 0)
        tip += f"\n{selected:,.0f} of {total:,.0f} weights, {wording.percent(part, 3)}" if known else "\nnot scored"
        tip += f"\n{matrices:.0f} matrices" if known and matrices > 1 else ""
        text = share(part if known else None) if len(columns) <= MOST_NUMBERED + 1 or block == WHOLE else ""
        rows.append({"x": block, "y": kind, "value": part, "tip": tip, "text": text, "marked": False})
    heat = heatmap.heat(
        pd.DataFrame(rows), "block", "", full=full(sums), columns=columns, rows=kinds,
        colours=(theme.SHARE, theme.SHARE), height=26,
    )  # fmt: skip
    return heat.properties(width=max(theme.WIDTH, 22 * len(columns)))


def full(sums: pd.DataFrame) -> float:
    """The share at which the colour of `counts` is full: the largest."""
    return float(sums["share"].max()) or 1.0


def share(value: float | None) -> str:
    """A share in percent with two significant digits, for a small cell: `3.2`, `0.01`; `0` for nothing."""
    if value is None:
        return wording.DASH
    if 0 < value < 1e-6:
        return "<.0001"
    return f"{100 * value:.0f}" if value >= 0.1 else f"{100 * value:.2g}"


def slugs(isolation: Isolation) -> list[str]:
    """Names of the selections for files, all different: letters, digits, `.`, `-` and `_`."""
    several = [key for key in ("samples", "repeat") if len({getattr(each, key) for each in isolation.selections}) > 1]
    names: list[str] = []
    for selection in isolation.selections:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", selection.label)[:80].lstrip(".")
        name += "".join(f"-{key}-{getattr(selection, key)}" for key in several)
        while name in names:
            name += "-again"
        names.append(name)
    return names


def first(selections: Sequence[Selected], most: int) -> list[int]:
    """Places of at most so many of them: the first repeats, and those from the most texts, before others."""
    ranked = sorted(range(len(selections)), key=lambda i: (selections[i].repeat, -selections[i].samples, i))
    return sorted(ranked[:most])


def consistency(overlaps: Sequence[Overlap]) -> alt.LayerChart:
    """Mean IoU between repeats against the number of samples, a line per method and keep; dashed: by chance."""
    labels = list(dict.fromkeys(overlap.label for overlap in overlaps))
    across = axes.ratio_axis("texts of each data set", [overlap.samples for overlap in overlaps], own=True)
    upright = Axis("overlap of sets (IoU)", 0.0, 1.02, form=".2~f", ticks=(0.0, 0.25, 0.5, 0.75, 1.0))
    frame = pd.DataFrame(
        [
            {"series": overlap.label, "x": float(overlap.samples), "y": overlap.mean.value}
            | dict(zip(("low", "high"), overlap.spread or (None, None), strict=True))
            | {"chance": overlap.chance, "tip": overlap_text(overlap)}
            for overlap in sorted(overlaps, key=lambda overlap: overlap.samples)
        ]
    )
    own = [frame[frame["series"] == label] for label in labels]
    # Chance crosses the whole chart, also where there is one number of texts alone.
    ends = [part.iloc[[place]].assign(x=end) for part in own for place, end in ((0, across.low), (-1, across.high))]
    chance = pd.concat([frame, *ends]).sort_values("x", kind="stable")[["series", "x", "chance"]]
    steps = frame["series"].map(labels.index) - (len(labels) - 1) / 2
    return alt.layer(
        plots.dashed(chance.rename(columns={"chance": "y"}), across, upright, labels),
        plots.curves(frame.assign(x=beside(frame["x"], steps, across)), across, upright, labels, spread="bars"),
    )


def overlap_legend(overlaps: Sequence[Overlap]) -> tuple[Series, ...]:
    """A key for each line of the consistency chart, and for chance."""
    labels = dict.fromkeys(overlap.label for overlap in overlaps)
    lines = [Series(label, number) for number, label in enumerate(labels)]
    return (*lines, Series("random sets of that size", colour=theme.SOFT, dashed=True))


def overlap_text(overlap: Overlap) -> str:
    """`MathNeuro, share 5 %, 100 texts: IoU 0.950 (pairs 0.940 to 0.960), by chance 0.026`."""
    pairs = " (one pair, no interval)" if overlap.repeats == 2 else ""
    if overlap.spread is not None:
        pairs = f" (pairs {overlap.spread[0]:.3f} to {overlap.spread[1]:.3f})"
    texts = wording.counted(overlap.samples, "text")
    return f"{overlap.label}, {texts}: IoU {overlap.mean.value:.3f}{pairs}, by chance {overlap.chance:.3f}"
