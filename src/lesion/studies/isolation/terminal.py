"""The terminal's tables of an isolation and its evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from lesion.plain import plain
from lesion.report import wording
from lesion.report.table import Wide, terminal_table
from lesion.report.values import Estimate
from lesion.report.wording import WORTH_SAYING
from lesion.studies.isolation import tables
from lesion.studies.isolation.evaluation import EditedModel, EvaluatedTask, Evaluation
from lesion.studies.isolation.result import IsolationSummary


def text_tables(summary: IsolationSummary) -> RenderableType:
    """How much was selected, and what each edit did to each task beside its random controls."""
    parts: list[RenderableType] = []
    if summary.isolation is not None and summary.isolation.selections:
        columns = ("name", "selected", "total", "share", "overlap")
        parts.append(tables.selections(summary.isolation).terminal(columns))
    evaluation = summary.evaluation
    if evaluation is not None:
        parts += [Wide(_effects(evaluation)), Text(_caption(summary, evaluation), style="dim")]
    return Group(*parts) if parts else Text("Nothing has been selected or evaluated yet.")


class _Heading:
    """A task's name over its column, shortened in its middle to the column's width, and its items and role."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield Text(wording.short(self.name, options.max_width), no_wrap=True)
        yield Text(self.about)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        least = max(map(len, self.about.split()))
        return Measurement(least, max(least, len(self.name), len(self.about))).with_maximum(options.max_width)


def _caption(summary: IsolationSummary, evaluation: Evaluation) -> str:
    perplexity = (
        " Running text: perplexity (less is better) with its interval, × the unedited model's, the random controls'."
    )
    rates = [effect.rates for task in evaluation.tasks for effect in task.effects.values()]
    unclosed = " answers that never closed their thinking (unclosed);" if any(rate.unclosed for rate in rates) else ""
    return (
        f"Accuracy in % with its {100 * summary.study.level:g} % interval, then the drop from the unedited model, then"
        " the matched random controls' accuracies from lowest to highest."
        f"{perplexity if any(task.scored for task in evaluation.tasks) else ''} Last lines (from"
        f" {100 * WORTH_SAYING:g} % on): answers truncated at the token limit;{unclosed} unparsed answers."
        f"{f' Approximate: {summary.approximate}' if summary.approximate else ''}"
    )


def _effects(evaluation: Evaluation) -> Table:
    table = terminal_table(f"{evaluation.model} · edited", [("edit", False)])
    for task in evaluation.tasks:
        about = wording.counted(task.items, "item") + (f", {task.role}" if task.role else "")
        table.add_column(_Heading(plain(task.name), about), justify="right", overflow="fold")
    baselines = (_result(task, task.baseline.result) for task in evaluation.tasks)
    table.add_row("unedited", *baselines, end_section=True)
    for edit in (edit for edit in evaluation.edits if edit.random_of is None):
        # Short lines, so that the columns of tasks have room.
        name = plain(evaluation.name_of(edit.edit)).replace(", ", "\n", 1)
        shown = Text(f"{name}\n{wording.counted(edit.selected, 'weight')}")
        table.add_row(shown, *(_cell(task, edit) for task in evaluation.tasks))
    return table


def _result(task: EvaluatedTask, result: Estimate) -> Text:
    if task.scored:
        cell = Text(f"{wording.perplexity(result.value)} ")
        return cell.append(wording.plain_interval(result.low, result.high, 3), style="dim")
    return Text(f"{wording.points(result.value)} ").append(wording.interval(result.low, result.high, 0), style="dim")


def _cell(task: EvaluatedTask, edit: EditedModel) -> Text:
    effect = task.effects.get(edit.edit)
    if effect is None:
        return Text("not finite" if edit.edit in task.broken else "not yet", style="dim")
    cell, change, random, rates = _result(task, effect.result), effect.change, effect.random, effect.rates
    if change.value is not None and task.scored:
        interval = wording.plain_interval(change.low, change.high, 3)
        cell.append(f"\n×{wording.figures(change.value, 3)} {interval}")
    elif change.value is not None:
        cell.append(f"\ndrop {wording.points(change.value)} {wording.interval(change.low, change.high, 0)}")
    if random is not None and random.lowest is not None and random.highest is not None:
        span = (random.lowest, random.highest)
        ends = dict.fromkeys(wording.figures(end, 3) if task.scored else wording.points(end, 0) for end in span)
        cell.append(f"\nrandom {wording.DASH.join(ends)}", style="dim")
    shares = rates.model_dump(exclude={"nonfinite"})
    faults = [f"{wording.percent(share, 0)} {name}" for name, share in shares.items() if (share or 0) >= WORTH_SAYING]
    return cell.append("".join(f"\n{fault}" for fault in faults), style="dim")
