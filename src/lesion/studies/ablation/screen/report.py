"""The screen of a layer study in words: what gold solutions lose under each edit, how well that foretells, its cost."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from lesion.plain import plain
from lesion.report import wording
from lesion.report.forms import decimals
from lesion.report.table import terminal_table
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.ablation.screen.result import Agreement, Loss, Screen
from lesion.studies.ablation.sweep import is_inner

FEW = 10
"""So many inner units of a task are in the terminal's table; the page has all."""
Seconds = Mapping[str, Mapping[str, Mapping[str, int | float]]]
"""How many answers took how many seconds, by model and part (`screen`, `study`): of `cost.json`."""


def screens(summary: AblationSummary) -> dict[str, dict[str, Screen]]:
    """Every screen of a summary, by model and task; none where the study has no screen."""
    by_model: dict[str, dict[str, Screen]] = {}
    for model, result in summary.results:
        if result.screen is not None:
            by_model.setdefault(model, {})[result.task] = result.screen
    return by_model


def sentences(summary: AblationSummary, seconds: Seconds) -> list[str]:
    """How well each screen foretells, and what the screens of each model cost beside what was generated."""
    by_model = screens(summary)
    lines = []
    for model, of_tasks in by_model.items():
        for task, screen in of_tasks.items():
            several = len(screen.agreement) > 1
            orders = [
                _agreement_text(agreement)
                + (f" ({wording.edit_name(agreement.unit, agreement.factor)})" if several else "")
                for agreement in screen.agreement
            ]
            lines.append(
                f"{model} on {task}: the log-probability that gold solutions lose per token"
                f" ({wording.counted(screen.items, 'item')}) and the drop of generated accuracy agree in their order"
                f" with {'; '.join(orders)}."
            )
    for model, of_tasks in by_model.items():
        own = of_tasks.values()
        cost = (
            f"{model}: the screen scored {sum(screen.scored.answers for screen in own):,} solutions of"
            f" {sum(screen.scored.tokens for screen in own):,} tokens, each in one pass; the table looks at"
            f" {sum(screen.generated.answers for screen in own):,} answers of the same tasks, for which"
            f" {sum(screen.generated.tokens for screen in own):,} tokens were generated one by one."
        )
        spent = [
            f"{part['answers']:,} {what} took {part['seconds']:,.1f} seconds"
            for name, what in (("screen", "solutions of the screen"), ("study", "answers"))
            if (part := (seconds.get(model) or {}).get(name))
        ]
        lines.append(f"{cost} As measured by the runs, {' and '.join(spent)}." if spent else cost)
    return lines


def loss_text(loss: Loss) -> str:
    """`0.412 [0.380, 0.446]`, or that there is no number."""
    if loss.lost.value is None:
        return f"no number on {wording.counted(loss.nonfinite, 'item')}"
    return f"{decimals(3)(loss.lost.value)} {_interval(loss.lost.low, loss.lost.high, 3)}"


def _agreement_text(agreement: Agreement) -> str:
    """`ρ = 0.93 [0.81, 0.98] over 8 blocks, 2 of them with equal drops`, or why there is none."""
    noun = wording.UNIT_NAMES[agreement.unit] if is_inner(agreement.unit) else "block"
    rho, over = agreement.rho, f"over {wording.counted(agreement.layers, noun)}"
    if rho.value is None:
        return f"no rank correlation {over}, since one side ranks nothing"
    tied = f", {agreement.tied} of them with equal drops" if agreement.tied else ""
    return f"ρ = {decimals(2)(rho.value)} {_interval(rho.low, rho.high, 2)} {over}{tied}"


def _interval(low: float | None, high: float | None, digits: int) -> str:
    """`[0.38, 0.45]`; empty when unknown."""
    written = decimals(digits)
    return "" if low is None or high is None else f"[{written(low)},{wording.SPACE}{written(high)}]"


def terminal(model: str, of_tasks: Mapping[str, Screen]) -> Table:
    """The terminal's table of one model's screens: a row per edit, a column per task; of inner units the first."""
    shown = terminal_table(f"{plain(model)} · screen: nats that gold solutions lose per token (rank)", [("edit", True)])
    for task, screen in of_tasks.items():
        heading = f"{plain(task)}\n{wording.counted(screen.items, 'item')}"
        shown.add_column(Text(heading), justify="right", overflow="fold")
    shown_of = [
        [loss for loss in screen.losses if loss.part is None or loss.rank <= FEW] for screen in of_tasks.values()
    ]
    texts = [{loss.edit: f"{loss_text(loss)} ({loss.rank})" for loss in screen.losses} for screen in of_tasks.values()]
    for edit in dict.fromkeys(loss.edit for losses in shown_of for loss in losses):
        shown.add_row(edit, *(Text(own.get(edit, "not yet")) for own in texts))
    return shown
