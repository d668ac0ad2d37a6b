"""The screen of a layer study in words: what gold solutions lose under each edit, how well that foretells, its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from lesion.plain import plain
from lesion.report import wording
from lesion.report.table import terminal_table
from lesion.studies.ablation.result import AblationSummary, Agreement, Loss, Screen

Seconds = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""How many answers took how many seconds, by model and part (`screen`, `study`): of `cost.json`."""


class OfModel(NamedTuple):
    """The screen of one model on one task."""

    model: str
    task: str
    screen: Screen


def screens(summary: AblationSummary) -> list[OfModel]:
    """Every screen of a summary; none where the study has no screen."""
    return [
        OfModel(model.model, result.task, result.screen)
        for model in summary.models
        for result in model.tasks
        if result.screen is not None
    ]


def loss_text(loss: Loss) -> str:
    """`0.412 [0.380, 0.446]`, or that there is no number."""
    if loss.lost.value is None:
        return f"no number on {wording.counted(loss.nonfinite, 'item')}"
    return f"{number(loss.lost.value)} {interval(loss.lost.low, loss.lost.high)}"


def agreement_text(agreement: Agreement) -> str:
    """`ρ = 0.93 [0.81, 0.98] over 8 blocks, 2 of them with equal drops`, or why there is none."""
    over = f"over {wording.counted(agreement.layers, 'block')}"
    if agreement.rho.value is None:
        return f"no rank correlation {over}, since one side ranks nothing"
    tied = f", {agreement.tied} of them with equal drops" if agreement.tied else ""
    limits = interval(agreement.rho.low, agreement.rho.high, 2)
    return f"ρ = {number(agreement.rho.value, 2)} {limits} {over}{tied}"


def sentences(summary: AblationSummary, seconds: Seconds) -> list[str]:
    """How well each screen foretells, and what the screens of each model cost beside what was generated."""
    every = screens(summary)
    lines = []
    for model, task, screen in every:
        orders = [
            f"{agreement_text(agreement)}{_of_edit(agreement) if len(screen.agreement) > 1 else ''}"
            for agreement in screen.agreement
        ]
        lines.append(
            f"{model} on {task}: the log-probability that gold solutions lose per token"
            f" ({wording.counted(screen.items, 'item')}) and the drop of generated accuracy agree in the order of"
            f" blocks with {'; '.join(orders)}."
        )
    for model in dict.fromkeys(each.model for each in every):
        own = [each.screen for each in every if each.model == model]
        lines.append(_cost(model, own, seconds.get(model) or {}))
    return lines


def _of_edit(agreement: Agreement) -> str:
    return f" ({wording.UNIT_NAMES[agreement.unit]} × {agreement.factor:g})"


def _cost(model: str, own: Sequence[Screen], seconds: Mapping[str, Mapping[str, Any]]) -> str:
    cost = (
        f"{model}: the screen scored {sum(screen.scored.answers for screen in own):,} solutions of"
        f" {sum(screen.scored.tokens for screen in own):,} tokens, each in one pass; the table looks at"
        f" {sum(screen.generated.answers for screen in own):,} answers of the same tasks, for which"
        f" {sum(screen.generated.tokens for screen in own):,} tokens were generated one by one."
    )
    spent = [
        f"{part['answers']:,} {what} took {part['seconds']:,.1f} seconds"
        for name, what in (("screen", "solutions of the screen"), ("study", "answers"))
        if (part := seconds.get(name))
    ]
    return f"{cost} As measured by the runs, {' and '.join(spent)}." if spent else cost


def table(every: Sequence[OfModel]) -> Table:
    """The terminal's table of one model's screens: a row per edit, a column per task."""
    shown = terminal_table(
        f"{plain(every[0].model)} · screen: nats that gold solutions lose per token (rank)",
        [("edit", True)],
    )
    for each in every:
        heading = f"{plain(each.task)}\n{wording.counted(each.screen.items, 'item')}"
        shown.add_column(Text(heading), justify="right", overflow="fold")
    for edit in dict.fromkeys(loss.edit for each in every for loss in each.screen.losses):
        cells = [next((loss for loss in each.screen.losses if loss.edit == edit), None) for each in every]
        shown.add_row(
            edit, *(Text("not yet") if loss is None else Text(f"{loss_text(loss)} ({loss.rank})") for loss in cells)
        )
    return shown


def number(value: float, digits: int = 3) -> str:
    """A number with so many digits after the point and a true minus."""
    text = f"{abs(value):.{digits}f}"
    return f"{wording.MINUS}{text}" if value < 0 and float(text) != 0 else text


def interval(low: float | None, high: float | None, digits: int = 3) -> str:
    """`[0.38, 0.45]`; empty when unknown."""
    return "" if low is None or high is None else f"[{number(low, digits)},{wording.SPACE}{number(high, digits)}]"
