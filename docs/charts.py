"""The charts of the results pages, drawn from the tables beside them: `python docs/charts.py` writes docs/images."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lesion.report import drawing, plots, theme
from lesion.report.values import WHOLE_POINTS as POINTS

DOCS = Path(__file__).parent
KINDS = {"0.0": "zero", "mean": "mean", "position": "position", "resample": "resample"}
"""Of the column `factor` what a row of the chart is called; other draws of resample are left out."""


def blocks() -> pd.DataFrame:
    """Every task of the sweep over all blocks of SmolLM2."""
    table = pd.read_csv(DOCS / "results" / "layer-importance-smollm2.csv")
    return table.assign(row=table["task"])


def kinds() -> pd.DataFrame:
    """Two tasks under every kind of ablation."""
    table = pd.read_csv(DOCS / "results" / "kinds-smollm2.csv", dtype={"factor": str})
    table = table[table["factor"].isin(KINDS)]
    tasks = table["task"].map(lambda name: "IOI" if name.startswith("ioi") else "sums")
    return table.assign(row=tasks + ", " + table["factor"].map(KINDS))


def attention() -> pd.DataFrame:
    """Sums and facts without each block of Qwen2.5-Coder, and without its attention alone."""
    parts = {"sums-qwen2.5-coder": "block", "attention-qwen2.5-coder": "attention"}
    tables = [pd.read_csv(DOCS / "results" / f"{name}.csv").assign(part=part) for name, part in parts.items()]
    table = pd.concat(tables)
    tasks = table["task"].map({"arithmetic:add?digits=3": "sums", "facts": "facts"})
    table = table.assign(row=tasks + ", " + table["part"])[tasks.notna()]
    return table.sort_values("row", ascending=False, kind="stable")


CHARTS = {"smollm2-blocks": blocks, "cuts-kinds": kinds, "qwen-attention": attention}


def drops(table: pd.DataFrame) -> str:
    """A map of drops in points, a row for every `row` of the table; boxed: critical."""
    cells = [
        {"x": layer, "y": row, "value": 100 * drop, "text": POINTS(drop), "tip": "", "marked": bool(critical)}
        for layer, row, drop, critical in table[["layer", "row", "drop", "critical"]].itertuples(index=False)
    ]
    chart = plots.heat(
        pd.DataFrame(cells), "block ablated", "", full=80, columns=sorted(table["layer"].unique()),
        colours=(theme.LOSS, theme.GAIN), height=22,
    ).properties(width=900)  # fmt: skip
    return drawing.svg_file(drawing.svg(drawing.specification(chart)))


def main() -> None:
    """Write every chart."""
    for name, table in CHARTS.items():
        (DOCS / "images" / f"{name}.svg").write_text(drops(table()), encoding="utf-8")


if __name__ == "__main__":
    main()
