"""The tables of a memory, for the page and the terminal: truncations, sizes, powers and levels of the first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table as TerminalTable
from rich.text import Text

from lesion.labs.memory.charts import SIGNALS, TRIGGERS
from lesion.labs.memory.findings import batches_text, findings, number
from lesion.labs.memory.result import LEVELS, MEASURES, Cuts, Levels, MemorySummary, Size, SizePlace, Truncated
from lesion.report import wording
from lesion.report.table import Column, Table

MARKS = {"top": "▲", "bottom": "▼", "between": "◆", "tied": "=", "absent": wording.DASH, None: "?"}
MARKS_KEY = (
    f"{MARKS['top']} the noise is on top (dropping the largest removes it), {MARKS['bottom']} at the bottom (dropping"
    f" the smallest does), {MARKS['between']} between, {MARKS['tied']} tied, {MARKS['absent']} not in W, {MARKS[None]}"
    " draws of codes disagree"
)
HEADINGS = {
    "clean_accuracy": "Clean accuracy",
    "p_correct": "p of f*",
    "p_noise": "p of the common class",
    "clean_loss": "Clean loss, nats",
}
CUTS = {
    "full": "Whole",
    "without_largest": "Without the largest",
    "without_smallest": "Without the smallest",
    "largest_alone": "The largest alone",
    "random": "A random direction less",
}
LEVEL_NAMES = {
    "feed_forward": "Feed-forward, q → τ",
    "feed_forward_other": "q → others, mean",
    "feed_forward_width": "q → others, std",
    "value": "Attention-value, recall",
    "value_spread": "Recall, std over tokens",
    "value_noise": "v → τ",
    "value_other": "v → others, mean",
    "value_width": "v → others, std",
}
MOST_ROWS = 4
"""At most so many ranks from each end of the spectrum are printed; summary.json has them all."""
ROUNDING = 1e-15
"""A gradient below this is 0 up to rounding."""

Write = Callable[[Size], str]


def truncations(summary: MemorySummary) -> Table:
    """A row per part of the spectrum and per control; everything and nothing, the same from both sides, once."""
    rank, best = summary.rank, summary.best
    rows = [_truncation(row, rank) | {"best": row is best} for row in told_once(summary.truncated, rank)]
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("kept", f"Kept, of {rank}", number=False),
            Column("draws", "Draws"),
            *(Column(name, HEADINGS[name], row=_spread(name)) for name in MEASURES),
        ),
        title=f"Truncations of W: components kept, of {rank}",
        caption="Means over draws [lowest, highest].",
        mark=lambda row: bool(row["best"]),
    )


def told_once(rows: tuple[Truncated, ...], rank: int) -> list[Truncated]:
    """Every truncation once: the control stands for nothing kept, the top for everything kept."""
    return [row for row in rows if row.control or (row.rank and not (row.rank == rank and row.side == "bottom"))]


def _truncation(row: Truncated, rank: int) -> dict[str, Any]:
    values = {"kept": kept(row, rank), "rank": row.rank, "draws": row.draws}
    for name in MEASURES:
        spread = row.of(name)
        values |= {name: spread.mean, f"{name}_low": spread.low, f"{name}_high": spread.high}
    return values


def kept(row: Truncated, rank: int) -> str:
    """`19 smallest`, `19 random`, `all` or `none`."""
    if row.rank in (0, rank):
        return "all" if row.rank else "none"
    names = {"top": "largest", "bottom": "smallest", None: "random"}
    return f"{row.rank} {names[row.side]}"


def _spread(name: str) -> Callable[[Any], str]:
    def written(row: Any) -> str:
        ends = f" [{row[f'{name}_low']:.3f},{wording.SPACE}{row[f'{name}_high']:.3f}]" if row["draws"] > 1 else ""
        return f"{row[name]:.3f}{ends}"

    return written


def places(summary: MemorySummary, write: Write) -> Table:
    """Where the noise lies: a row per kind of codes and size, a column per noise."""
    sizes = {(size.codes, *size.key): size for size in summary.sizes}
    lines = sorted({(size.codes, size.classes, size.inputs) for size in summary.sizes}, key=lambda line: line[1:])
    lines.sort(key=lambda line: line[0], reverse=True)  # orthonormal codes first
    rows = []
    for codes, classes, inputs in lines:
        row: dict[str, Any] = {"codes": codes, "classes": classes, "inputs": inputs}
        for noise in summary.noises:
            size = sizes[codes, classes, inputs, noise]
            row |= {f"ratio {noise:g}": size.last.ratio.mean, f"text {noise:g}": write(size)}
        rows.append(row)
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("codes", "Codes", number=False),
            Column("classes", "m"),
            Column("inputs", "n"),
            *(Column(f"ratio {a:g}", f"α = {a:g}", row=_column(f"text {a:g}")) for a in summary.noises),
        ),
        title="Where the noise lies",
        caption=(
            "σ of the noise over the largest other σ, after the first step → after the last; for gaussian codes the"
            f" mean over draws. {MARKS_KEY}. m classes, n inputs."
        ),
    )


def _column(key: str) -> Callable[[Any], str]:
    return lambda row: str(row[key])


def first_and_last(size: Size) -> str:
    """`▼ 0.32 → ▲ 1.20`: where the noise lies after the first and after the last step, with its ratio."""
    return f"{_place(size.first)} → {_place(size.last)}"


def _place(place: SizePlace) -> str:
    return f"{MARKS[place.side]}{wording.SPACE}{place.ratio.mean:.2f}"


def _flips(size: Size) -> str:
    return ", ".join(f"{flip.after:,}{wording.DASH}{flip.before:,}" for flip in size.flips)


def cuts(summary: MemorySummary) -> Table:
    """At every size, when the noise changed sides, and what dropping a component does: clean loss and p of c."""
    rows = []
    for size in sorted(summary.sizes, key=lambda size: (size.codes == "gaussian", *size.key)):
        row: dict[str, Any] = {"codes": size.codes, "classes": size.classes, "inputs": size.inputs, "noise": size.noise}
        row["flips"] = _flips(size)
        for name in Cuts.model_fields:
            row |= {name: size.cuts.of(name).clean_loss, f"p {name}": size.cuts.of(name).p_noise}
        rows.append(row)
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("codes", "Codes", number=False),
            Column("classes", "m"),
            Column("inputs", "n"),
            Column("noise", "α", lambda noise: f"{noise:g}"),
            Column("flips", "Changed sides", number=False),
            *(Column(name, title, row=_loss_and_p(name)) for name, title in CUTS.items()),
        ),
        title="Cuts at every size",
        caption=(
            "Changed sides: between which steps. Then clean loss in nats after the last step, and p, the mean"
            " probability of the common class; means over draws of codes, of random directions, and of what is kept"
            " among equal singular values."
        ),
    )


def _loss_and_p(name: str) -> Callable[[Any], str]:
    return lambda row: f"{row[name]:.3f} (p{wording.SPACE}{row[f'p {name}']:.3f})"


def powers(summary: MemorySummary) -> Table:
    """How every signal of the first step scales with the vocabulary."""
    step = summary.first_step
    rows: list[dict[str, Any]] = [
        {"signal": SIGNALS[power.signal], "trigger": power.trigger, "exact": power.exact, "late": power.late}
        | {"batches": power.batches and power.batches.value, "text": batches_text(power)}
        for power in step.powers
    ]
    triggers = "; ".join(f"{name}: {meaning}" for name, meaning in TRIGGERS.items())
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("signal", "Signal", number=False),
            Column("trigger", "Trigger", number=False),
            Column("batches", f"Batches, {100 * step.level:g} %", row=_column("text")),
            Column("exact", "Exact", number),
            Column("late", "Last two", number),
        ),
        title=f"First gradient step: powers of the vocabulary, α = {step.noise:g}",
        caption=(
            "Powers of the vocabulary V: least squares of the logarithms; exact, and on batches with a bootstrap"
            f" interval over batches. Last two: exact, between the two largest vocabularies. Trigger: {triggers}."
        ),
    )


def levels(summary: MemorySummary) -> Table:
    """The signals and what stands around them, by vocabulary."""
    rows = []
    for point in summary.first_step.points:
        measured: list[tuple[str, Levels]] = [("exact", point)]
        if point.sampled:
            measured.append(("batches, mean", point.sampled))
        rows += [
            {"trigger": point.trigger, "measured": how, "vocabulary": point.vocabulary}
            | {name: each.of(name) for name in LEVELS}
            for how, each in measured
        ]
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("trigger", "Trigger", number=False),
            Column("measured", "Measured", number=False),
            Column("vocabulary", "V"),
            *(Column(name, title, _level) for name, title in LEVEL_NAMES.items()),
        ),
        title="Signals by vocabulary",
    )


def _level(value: float) -> str:
    """A gradient in two digits; what is only rounding is 0."""
    return wording.figures(value, 2).replace("-", wording.MINUS) if abs(value) > ROUNDING else "0"


def text(summary: MemorySummary) -> RenderableType:
    """The findings and tables for a terminal."""
    headlines = Text()
    for finding in findings(summary):
        headlines.append(f"{finding.subject}: ", style="bold").append(f"{' '.join(finding.headline)}\n")
    key = f"{MARKS_KEY}; σ of the noise over the largest other σ, after the last step. m classes, n inputs."
    triggers = "; ".join(f"{name}: {meaning}" for name, meaning in TRIGGERS.items())
    return Group(
        headlines,
        _terminal_truncations(summary),
        _terminal_places(summary),
        Text(f"{key}\n", style="dim"),
        powers(summary).terminal(),
        Text(f"{triggers}.", style="dim"),
    )


def _terminal_truncations(summary: MemorySummary) -> TerminalTable:
    """The ranks next to both ends of the spectrum, means only."""
    table = truncations(summary)
    rank = table.frame["rank"]
    return replace(
        table,
        frame=table.frame[(rank < MOST_ROWS) | (summary.rank - rank < MOST_ROWS)],
        columns=(
            Column("kept", "kept", number=False),
            Column("draws", "draws", lambda draws: f"{draws}" if draws > 1 else ""),
            Column("clean_accuracy", "accuracy", lambda share: wording.percent(share, 0)),
            Column("p_correct", "p f*", number),
            Column("p_noise", "p common", number),
            Column("clean_loss", "clean loss", number),
        ),
    ).terminal()


def _terminal_places(summary: MemorySummary) -> RenderableType:
    if not summary.sizes:
        return Text("No size of the sweep fits into this width.")

    def sides_and_ratio(size: Size) -> str:
        return f"{MARKS[size.first.side]}→{MARKS[size.last.side]} {size.last.ratio.mean:.2f}"

    table = places(summary, sides_and_ratio).terminal()
    # Of many noises the numbers stand below the marks, so that 80 columns hold the names of the codes.
    for column in table.columns[:3]:
        column.no_wrap = True
    return table
