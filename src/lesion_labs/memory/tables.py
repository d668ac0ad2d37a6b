"""The tables of a memory, for the page and the terminal: truncations, sizes, powers and levels of the first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table as TerminalTable
from rich.text import Text

from lesion.report import wording
from lesion.report.table import Column, Table
from lesion_labs.memory.charts import SIGNALS, TRIGGERS
from lesion_labs.memory.findings import batches_text, findings, number
from lesion_labs.memory.result import LEVELS, MEASURES, Cuts, MemorySummary, Size, Truncated

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
SIZE = (Column("codes", "Codes", number=False), Column("classes", "m"), Column("inputs", "n"))
TRIGGER_NAMES = "; ".join(f"{name}: {meaning}" for name, meaning in TRIGGERS.items())


def truncations(summary: MemorySummary) -> Table:
    """A row per part of the spectrum and per control; everything and nothing, the same from both sides, once."""
    rank, best = summary.rank, summary.best
    rows = []
    for row in summary.truncated:
        if row.control or (row.rank and (row.rank < rank or row.side == "top")):
            values: dict[str, object] = {"kept": kept(row, rank), "rank": row.rank, "draws": row.draws}
            for name in MEASURES:
                spread = row.of(name)
                values |= {name: spread.mean, f"{name}_low": spread.low, f"{name}_high": spread.high}
            rows.append(values | {"best": row is best})

    def with_spread(name: str) -> Column:
        def written(row: dict[str, float]) -> str:
            ends = f" [{row[f'{name}_low']:.3f},{wording.SPACE}{row[f'{name}_high']:.3f}]" if row["draws"] > 1 else ""
            return f"{row[name]:.3f}{ends}"

        return Column(name, HEADINGS[name], row=written)

    return Table(
        "",
        pd.DataFrame(rows),
        (Column("kept", f"Kept, of {rank}", number=False), Column("draws", "Draws"), *map(with_spread, MEASURES)),
        title=f"Truncations of W: components kept, of {rank}",
        caption="Means over draws [lowest, highest].",
        mark=lambda row: bool(row["best"]),
    )


def kept(row: Truncated, rank: int) -> str:
    """`19 smallest`, `19 random`, `all` or `none`."""
    if row.rank in (0, rank):
        return "all" if row.rank else "none"
    names = {"top": "largest", "bottom": "smallest", None: "random"}
    return f"{row.rank} {names[row.side]}"


def places(summary: MemorySummary, write: Callable[[Size], str]) -> Table:
    """Where the noise lies, as `write` says it: a row per kind of codes and size, a column per noise."""
    rows: dict[tuple[str, int, int], dict[str, object]] = {}
    for size in _ordered(summary):
        key = size.codes, size.classes, size.inputs
        row = rows.setdefault(key, {"codes": size.codes, "classes": size.classes, "inputs": size.inputs})
        row |= {f"ratio {size.noise:g}": size.last.ratio.mean, f"text {size.noise:g}": write(size)}
    return Table(
        "",
        pd.DataFrame(list(rows.values())),
        (*SIZE, *(_text_column(f"ratio {a:g}", f"α = {a:g}", f"text {a:g}") for a in summary.noises)),
        title="Where the noise lies",
        caption=(
            "σ of the noise over the largest other σ, after the first step → after the last; for gaussian codes the"
            f" mean over draws. {MARKS_KEY}. m classes, n inputs."
        ),
    )


def _ordered(summary: MemorySummary) -> list[Size]:
    """The sizes by classes, inputs and noise, those with orthonormal codes first."""
    return sorted(summary.sizes, key=lambda size: (size.codes == "gaussian", *size.key))


def _text_column(key: str, title: str, text: str) -> Column:
    """A column that is sorted by a number and shows the text of another."""
    return Column(key, title, row=lambda row: str(row[text]))


def first_and_last(size: Size) -> str:
    """`▼ 0.32 → ▲ 1.20`: where the noise lies after the first and after the last step, with its ratio."""
    ends = size.places[0], size.last
    return " → ".join(f"{MARKS[place.side]}{wording.SPACE}{place.ratio.mean:.2f}" for place in ends)


def cuts(summary: MemorySummary) -> Table:
    """At every size, when the noise changed sides, and what dropping a component does: clean loss and p of c."""
    rows = []
    for size in _ordered(summary):
        flips = ", ".join(f"{flip.after:,}{wording.DASH}{flip.before:,}" for flip in size.flips)
        row: dict[str, object] = {"codes": size.codes, "classes": size.classes, "inputs": size.inputs}
        row |= {"noise": size.noise, "flips": flips}
        for name in Cuts.model_fields:
            cut = size.cuts.of(name)
            text = f"{cut.clean_loss:.3f} (p{wording.SPACE}{cut.p_noise:.3f})"
            row |= {name: cut.clean_loss, f"p {name}": cut.p_noise, f"text {name}": text}
        rows.append(row)
    return Table(
        "",
        pd.DataFrame(rows),
        (
            *SIZE,
            Column("noise", "α", lambda noise: f"{noise:g}"),
            Column("flips", "Changed sides", number=False),
            *(_text_column(name, title, f"text {name}") for name, title in CUTS.items()),
        ),
        title="Cuts at every size",
        caption=(
            "Changed sides: between which steps. Then clean loss in nats after the last step, and p, the mean"
            " probability of the common class; means over draws of codes, of random directions, and of what is kept"
            " among equal singular values."
        ),
    )


def powers(summary: MemorySummary) -> Table:
    """How every signal of the first step scales with the vocabulary."""
    step = summary.first_step
    rows = [
        {
            "signal": SIGNALS[power.signal],
            "trigger": power.trigger,
            "exact": power.exact,
            "late": power.late,
            "batches": power.batches and power.batches.value,
            "text": batches_text(power),
        }
        for power in step.powers
    ]
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("signal", "Signal", number=False),
            Column("trigger", "Trigger", number=False),
            _text_column("batches", f"Batches, {100 * step.level:g} %", "text"),
            Column("exact", "Exact", number),
            Column("late", "Last two", number),
        ),
        title=f"First gradient step: powers of the vocabulary, α = {step.noise:g}",
        caption=(
            "Powers of the vocabulary V: least squares of the logarithms; exact, and on batches with a bootstrap"
            f" interval over batches. Last two: exact, between the two largest vocabularies. Trigger: {TRIGGER_NAMES}."
        ),
    )


def levels(summary: MemorySummary) -> Table:
    """The signals and what stands around them, by vocabulary."""
    rows = [
        {"trigger": point.trigger, "measured": how, "vocabulary": point.vocabulary}
        | {name: each.of(name) for name in LEVELS}
        for point in summary.first_step.points
        for how, each in (("exact", point), ("batches, mean", point.sampled))
        if each
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
    return Group(
        headlines,
        _terminal_truncations(summary),
        _terminal_places(summary),
        Text(f"{key}\n", style="dim"),
        powers(summary).terminal(),
        Text(f"{TRIGGER_NAMES}.", style="dim"),
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
        return f"{MARKS[size.places[0].side]}→{MARKS[size.last.side]} {size.last.ratio.mean:.2f}"

    table = places(summary, sides_and_ratio).terminal()
    # With many noises the ratio wraps below the marks, so that the names of the codes fit into 80 columns.
    for column in table.columns[:3]:
        column.no_wrap = True
    return table
