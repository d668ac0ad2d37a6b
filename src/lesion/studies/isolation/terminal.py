"""The terminal's tables of an isolation and its evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from lesion.core.values import Estimate
from lesion.plain import plain
from lesion.report import wording
from lesion.report.table import terminal_table
from lesion.report.wording import WORTH_SAYING
from lesion.studies.isolation import findings
from lesion.studies.isolation.evaluation import EditedModel, EvaluatedTask, Evaluation
from lesion.studies.isolation.result import Isolation, IsolationSummary


def text_tables(summary: IsolationSummary) -> RenderableType:
    """How much was selected, and what each edit did to each task beside its random controls."""
    parts: list[RenderableType] = []
    if summary.isolation is not None and summary.isolation.selections:
        parts.append(_selections(summary.isolation))
    evaluation = summary.evaluation
    if evaluation is not None:
        perplexity = any(task.scored for task in evaluation.tasks)
        label = f" Approximate: {summary.approximate}" if summary.approximate else ""
        caption = _caption(summary.study.level, perplexity=perplexity) + label
        parts += [_effects(evaluation), Text(caption, style="dim")]
        if evaluation.choice:
            sentence = plain(findings.chosen(evaluation.choice, evaluation))
            parts += [Text("\nThe chosen edit on test items", style="bold"), Text(sentence)]
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


def _caption(level: float, *, perplexity: bool) -> str:
    of_text = (
        " Of running text: its perplexity (less is better) with its interval, then × the unedited model's, then the "
        "random controls' perplexities."
        if perplexity
        else ""
    )
    return (
        f"Accuracy in % with its {100 * level:g} % interval, then the drop from the unedited model, then the matched "
        f"random controls' accuracies from lowest to highest.{of_text} Last line (from {100 * WORTH_SAYING:g} % on): "
        "answers truncated at the token limit; unparsed answers."
    )


def _selections(isolation: Isolation) -> Table:
    headings = (("selection", False), *((name, True) for name in ("weights", "of", "share", "overlap of repeats")))
    table = terminal_table(f"{isolation.model} · selected for {isolation.study.skill}", headings)
    agreements = {(one.method, one.keep, one.samples): one.mean.value for one in isolation.agreements}
    for name, one in zip(isolation.names, isolation.selections, strict=True):
        agreement = agreements.get((one.method, one.keep, one.samples))
        table.add_row(
            Text(plain(name)),
            f"{one.selected:,}",
            f"{one.total:,}",
            wording.percent(one.share, 2),
            "" if agreement is None else f"{agreement:.2f}",
        )
    return table


def _effects(evaluation: Evaluation) -> Table:
    table = terminal_table(f"{evaluation.model} · edited", [("edit", False)])
    for task in evaluation.tasks:
        role = f", {task.role}" if task.role else ""
        heading = _Heading(plain(task.name), f"{wording.counted(task.items, 'item')}{role}")
        table.add_column(heading, justify="right", overflow="fold")
    baselines = (_result(task, task.baseline.result) for task in evaluation.tasks)
    table.add_row("unedited", *baselines, end_section=True)
    for edit in evaluation.tried:
        table.add_row(Text(_lines(edit)), *(_cell(task, edit) for task in evaluation.tasks))
    return table


def _lines(edit: EditedModel) -> str:
    """The edit in short lines, so that the columns of tasks have room."""
    name = plain(edit.name).replace(", ", "\n", 1)
    return f"{name}\n{wording.counted(edit.selected, 'weight')}"


def _result(task: EvaluatedTask, result: Estimate) -> Text:
    if task.scored:
        cell = Text(f"{wording.perplexity(result.value)} ")
        return cell.append(wording.plain_interval(result.low, result.high, 3), style="dim")
    return Text(f"{wording.points(result.value)} ").append(wording.interval(result.low, result.high, 0), style="dim")


def _cell(task: EvaluatedTask, edit: EditedModel) -> Text:
    effect = task.effects.get(edit.edit)
    if effect is None:
        return Text("not finite" if edit.edit in task.broken else "not yet", style="dim")
    cell, change = _result(task, effect.result), effect.change
    if change.value is not None and task.scored:
        interval = wording.plain_interval(change.low, change.high, 3)
        cell.append(f"\n×{wording.figures(change.value, 3)} {interval}")
    elif change.value is not None:
        cell.append(f"\ndrop {wording.points(change.value)} {wording.interval(change.low, change.high, 0)}")
    random = effect.random
    if random is not None and random.lowest is not None and random.highest is not None:
        ends = dict.fromkeys(
            wording.figures(end, 3) if task.scored else wording.points(end, 0)
            for end in (random.lowest, random.highest)
        )
        cell.append(f"\nrandom {wording.DASH.join(ends)}", style="dim")
    rates = (
        (effect.rates.truncated, "truncated"),
        (effect.rates.looped, "looped"),
        (effect.rates.unparsed, "unparsed"),
    )
    faults = [f"{wording.percent(rate, 0)} {name}" for rate, name in rates if rate is not None and rate >= WORTH_SAYING]
    if faults:
        cell.append("\n" + ", ".join(faults), style="dim")
    return cell
