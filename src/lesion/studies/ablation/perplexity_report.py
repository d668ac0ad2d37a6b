"""Running text of a layer study on its page and in the terminal: how many times its perplexity every edit makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd
from rich.table import Table as TerminalTable
from rich.text import Text

from lesion.edits.place import Part, Unit
from lesion.plain import plain
from lesion.report import axes, plots, theme, wording
from lesion.report.axes import Axis
from lesion.report.blocks import Figure, Panel, Prose, Section, Series
from lesion.report.finding import Finding
from lesion.report.table import Column, Table, terminal_table
from lesion.report.values import Estimate
from lesion.studies.ablation import parts, parts_report
from lesion.studies.ablation.result import AblationSummary, ModelResult, TextResult, TextUnderEdit
from lesion.studies.ablation.sweep import Factor, is_inner

COLUMNS = (
    *("model", "task", "unit", "factor", "layer", "texts", "tokens", "perplexity", "low", "high"),
    *("ratio", "ratio_low", "ratio_high", "p", "p_corrected", "baseline_perplexity", "baseline_low", "baseline_high"),
)
MOST = 3
"""So many places are named that raise a perplexity most."""
METHOD = (
    "Running text is scored, not answered: perplexity is the exponential of the mean negative log-probability of a"
    " token, over all texts together. × says how many times that of the unedited model it is under a cut, on the same"
    " texts; no block is called critical by it."
)


def findings(summary: AblationSummary) -> list[Finding]:
    """What the cuts do to running text, a finding per model."""
    several = len(summary.models) > 1
    found = []
    for model in summary.models:
        if any(text.cells for text in model.texts):
            first, *others = (_sentence(*entry) for entry in _kinds(model.texts))
            found.append(Finding(model.model if several else "", (first,), tuple(others)))
    return found


def _kinds(texts: Sequence[TextResult]) -> Iterator[tuple[TextResult, Unit, Factor]]:
    """Every text with every unit and factor under which it has cells."""
    for text in texts:
        for unit, factor in dict.fromkeys((cell.unit, cell.factor) for cell in text.cells):
            yield text, unit, factor


def _sentence(text: TextResult, unit: Unit, factor: Factor) -> str:
    cells = text.of(unit, factor)
    known = sorted((cell for cell in cells if cell.ratio.value is not None), key=lambda cell: -(cell.ratio.value or 0))

    def under(place: str) -> str:
        return f"without {place}" if factor == 0 else f"with {place} {wording.changed(factor)}"

    said = [f"{text.task}: perplexity {_perplexity(text.baseline)}"]
    if known:
        most = [f"{ratio(cell.ratio)} {under(wording.place(unit, cell.layer, cell.part))}" for cell in known[:MOST]]
        said.append(wording.listed(most))
    if len(known) > MOST:
        last = known[-1]
        said.append(f"least, {ratio(last.ratio)}, {under(wording.place(unit, last.layer, last.part))}")
    lost = [cell for cell in cells if cell.ratio.value is None]
    if lost:
        several = wording.numbered("block", [cell.layer for cell in lost])
        if is_inner(unit):
            several = wording.listed([wording.place(unit, cell.layer, cell.part) for cell in lost], "or")
        said.append(f"not a finite number {under(several)}")
    so_far = f" ({len(text.cells)} of {text.planned} cuts so far)" if len(text.cells) < text.planned else ""
    return f"{'; '.join(said)}{so_far}."


def ratio(estimate: Estimate) -> str:
    """`×1.55 [1.50, 1.60]`, or that there is no number."""
    if estimate.value is None:
        return "not finite"
    return f"×{wording.figures(estimate.value, 3)} {wording.plain_interval(estimate.low, estimate.high, 3)}".rstrip()


def _perplexity(estimate: Estimate) -> str:
    if estimate.value is None:
        return "not finite"
    return f"{wording.perplexity(estimate.value)} {wording.plain_interval(estimate.low, estimate.high)}".rstrip()


def frame(summary: AblationSummary) -> pd.DataFrame:
    """One row per model, text task, unit, factor and layer, with the baseline beside it: what `perplexity.csv` holds.

    `ratio` is the perplexity over the baseline's; NaN where a number is not finite. `part`: of inner units.
    """
    rows = [
        {"model": model.model, "task": text.task, "unit": cell.unit, "factor": cell.factor, "layer": cell.layer}
        | {"part": cell.part, "texts": text.texts, "tokens": text.tokens}
        | _ends("perplexity", cell.perplexity, "")
        | _ends("ratio", cell.ratio, "ratio_")
        | {"p": cell.ratio.p, "p_corrected": cell.ratio.p_corrected}
        | _ends("baseline_perplexity", text.baseline, "baseline_")
        for model in summary.models
        for text in model.texts
        for cell in text.cells
    ]
    numbers = COLUMNS[COLUMNS.index("perplexity") :]
    with_parts = any(row["part"] is not None for row in rows)
    columns = [*COLUMNS[:5], *(["part"] if with_parts else []), *COLUMNS[5:]]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(numbers, float))


def _ends(name: str, estimate: Estimate, prefix: str) -> dict[str, float | str | None]:
    return {name: estimate.value, f"{prefix}low": estimate.low, f"{prefix}high": estimate.high}


def table(summary: AblationSummary) -> Table:
    """Every text under every edit."""
    rows = frame(summary)
    models, edits = rows["model"].nunique() > 1, len(rows[["unit", "factor"]].drop_duplicates()) > 1
    level = f"{100 * summary.study.level:g}{wording.SPACE}%"
    return Table(
        "perplexity",
        rows,
        (
            *([Column("model", "Model", number=False)] if models else []),
            Column("task", "Text", number=False),
            *([Column("unit", "Unit", lambda unit: wording.UNIT_NAMES[unit], number=False)] if edits else []),
            *([Column("factor", "Factor", wording.factor_name)] if edits else []),
            Column("layer", "Block"),
            *([Column("part", "Part", lambda part: "" if part is None else str(part))] if "part" in rows else []),
            Column("perplexity", "Perplexity", row=lambda row: _perplexity(_estimate(row, "perplexity", ""))),
            Column("ratio", "× unedited", row=lambda row: ratio(_estimate(row, "ratio", "ratio_"))),
            Column("p_corrected", "p corrected", wording.p_value),
        ),
        title="Running text under every cut",
        caption=f"Perplexity and its ratio to that of the unedited model, with {level} intervals from the spread"
        " between texts. p: the ratio is 1 (Student's test on the same texts), Holm-corrected over the blocks of one"
        " model, text, unit and factor.",
    )


def _estimate(row: dict[str, Any], name: str, prefix: str) -> Estimate:
    return Estimate(value=row[name], low=row[f"{prefix}low"], high=row[f"{prefix}high"])


def section(summary: AblationSummary) -> Section | None:
    """A curve per text over the blocks, a figure per model, unit and factor, and the table; None without text."""
    drawn = [figure for model in summary.models for figure in _figures(summary, model)]
    if not drawn:
        return None
    numbers = [""] if len(drawn) == 1 else [f"-{number}" for number in range(1, len(drawn) + 1)]
    figures = [replace(figure, name=f"perplexity{number}") for figure, number in zip(drawn, numbers, strict=True)]
    return Section("Text", "Running text", (Prose((METHOD,)), *figures, table(summary)))


def _figures(summary: AblationSummary, model: ModelResult) -> Iterator[Figure]:
    texts = model.texts
    kinds = dict.fromkeys((unit, factor) for _, unit, factor in _kinds(texts))
    for unit, factor in kinds:
        shown = [text for text in texts if text.of(unit, factor)]
        if is_inner(unit):
            shown = [text for text in shown if parts.drawable(text.of(unit, factor))]
            if not shown:
                continue
        place = "one block" if unit == "block" else f"the {wording.UNIT_NAMES[unit]} of one block"
        how = wording.changed(factor)
        tokens = ", ".join(f"{text.task} {_perplexity(text.baseline)} on {text.tokens:,} tokens" for text in shown)
        yield Figure(
            "",
            tuple(Panel((parts_report.ratios(text, unit, factor),), text.task) for text in shown)
            if is_inner(unit)
            else (Panel((_curves(shown, unit, factor),)),),
            f"{model.model}: perplexity with {place} {how} at a time, as many times that of the unedited model (dashed:"
            f" 1). Unedited: {tokens}.",
            _legend([text.task for text in shown], summary.study.level),
        )


def _legend(names: Sequence[str], level: float) -> tuple[Series, ...]:
    several = len(names) > 1
    colour = theme.SOFT if several else theme.tone(0)
    series = [Series(name, index) for index, name in enumerate(names)] if several else []
    interval = Series(f"{100 * level:g}{wording.SPACE}% interval", colour=colour, area=True)
    return (*series, Series("unedited", colour=theme.SOFT, dashed=True), interval)


@plots.unvalidated
def _curves(texts: Sequence[TextResult], unit: Unit, factor: Factor) -> alt.LayerChart:
    cells = [(text.task, cell) for text in texts for cell in text.of(unit, factor)]
    data = plots.data((task, cell.layer, *_numbers(cell)) for task, cell in cells if cell.ratio.value is not None)
    layers = [cell.layer for _, cell in cells]
    across = Axis(wording.axis_name(unit, factor), min(layers) - 0.5, max(layers) + 0.5, whole=True)
    upright = axes.ratio_axis("perplexity, × unedited", [1.0, *data["y"], *data["low"], *data["high"]])
    guide = plots.readings(data, lambda layer: wording.place(unit, int(layer)))
    drawn = plots.curves(data, across, upright, [text.task for text in texts], guide=guide)
    return alt.layer(plots.level(1.0, upright, dash=(6.0, 4.0)), drawn)


def _numbers(cell: TextUnderEdit) -> tuple[float, float | None, float | None]:
    return cell.ratio.value or 0.0, cell.ratio.low, cell.ratio.high


def terminal(summary: AblationSummary) -> list[TerminalTable]:
    """The terminal's tables: a row per block, a column per text, of each model, unit and factor."""
    tables = []
    for model in summary.models:
        for unit, factor in dict.fromkeys((unit, factor) for _, unit, factor in _kinds(model.texts)):
            title = f"{plain(model.model)} · {wording.edit_name(unit, factor)} · perplexity, × unedited"
            shown = terminal_table(title, [("block", True)])
            cells = {text.task: {_row(cell): cell for cell in text.of(unit, factor)} for text in model.texts}
            for text in model.texts:
                heading = Text(f"{plain(text.task)}\n{wording.counted(text.texts, 'text')}")
                shown.add_column(heading, justify="right", overflow="fold")
            shown.add_row("baseline", *(_perplexity(text.baseline) for text in model.texts), end_section=True)
            for place in sorted(set().union(*cells.values())):
                written = [ratio(each[place].ratio) if place in each else "not yet" for each in cells.values()]
                shown.add_row(".".join(map(str, place)), *written)
            tables.append(shown)
    return tables


def _row(cell: TextUnderEdit) -> tuple[Part, ...]:
    """Block, and number or name of an inner unit."""
    return (cell.layer,) if cell.part is None else (cell.layer, cell.part)
