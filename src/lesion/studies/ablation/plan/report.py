"""What came of a study's plan: a finding, which stands first, and a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lesion.report import wording
from lesion.report.blocks import Prose, Section
from lesion.report.finding import Finding
from lesion.report.table import Column, Table
from lesion.statistics.critical import POWER
from lesion.studies.ablation.plan.result import Outcome, Planned


def findings(planned: Planned | None) -> list[Finding]:
    """How many hypotheses are confirmed, and each with its numbers."""
    if planned is None:
        return []
    known = [outcome for outcome in planned.outcomes if outcome.confirmed is not None]
    confirmed = sum(bool(outcome.confirmed) for outcome in known)
    when = (
        "before any answer in this folder" if planned.answers == 0 else f"after {planned.answers:,} answers, so no plan"
    )
    open_ = len(planned.outcomes) - len(known)
    lead = (
        f"Written down on {planned.made[:10]}, {when} (plan {planned.digest}): {confirmed} of"
        f" {len(planned.outcomes)} hypothes{'is' if len(planned.outcomes) == 1 else 'es'} confirmed"
        f"{f', {open_} not measured yet' if open_ else ''}. All else on this page was looked at afterwards."
    )
    return [Finding("Planned", (lead,), tuple(_sentence(outcome) for outcome in planned.outcomes))]


def _sentence(outcome: Outcome) -> str:
    layer, *parts = outcome.place.split(".")
    head = int(parts[-1]) if len(parts) == 3 else None
    unit = "block" if not parts else parts[0] if head is None else parts[1]
    place = wording.capital(wording.place(unit, int(layer), head))
    how = "" if outcome.factor == 0 else f" {wording.changed(outcome.factor)}"
    verb = "is critical for" if outcome.expect == "critical" else "spares"
    claim = f"{outcome.model}: {place}{how} {verb} {outcome.task}"
    if outcome.confirmed is None or outcome.drop is None:
        return f"{claim}: not measured yet."
    drop = outcome.drop
    return (
        f"{claim}: {'confirmed' if outcome.confirmed else 'not confirmed'}, drop {wording.points(drop.value)} points"
        f" {wording.interval(drop.low, drop.high)}, p {wording.p_value(outcome.p_corrected)}.{_could(outcome)}"
    )


def _could(outcome: Outcome) -> str:
    """Of a hypothesis that is not confirmed, what its test could have found with so many right items."""
    if outcome.confirmed or outcome.right is None:
        return ""
    right = f" With {wording.counted(outcome.right, 'right answer')}"
    if outcome.detectable is None:
        return f"{right} nothing can be called {outcome.expect} here."
    loss = f"a loss of {wording.percent(outcome.detectable, 0)} of the accuracy or"
    more = "more" if outcome.expect == "critical" else "less"
    return f"{right}, {loss} {more} is called {outcome.expect} with {wording.percent(POWER, 0)} power."


def section(planned: Planned | None) -> Section | None:
    """Every hypothesis with its test; None without a plan."""
    if planned is None:
        return None
    rows = [
        {"model": each.model, "task": each.task, "place": each.place, "factor": each.factor, "expect": each.expect}
        | {"drop": each.drop.value if each.drop else None, "drop_low": each.drop.low if each.drop else None}
        | {"drop_high": each.drop.high if each.drop else None, "p": each.p, "p_corrected": each.p_corrected}
        | {"confirmed": each.confirmed, "right": each.right, "detectable": each.detectable}
        for each in planned.outcomes
    ]
    table = Table(
        "plan",
        pd.DataFrame(rows),
        (
            Column("model", "Model", number=False),
            Column("task", "Task", number=False),
            Column("place", "Place", number=False),
            Column("factor", "Factor", wording.factor_name),
            Column("expect", "Expected", number=False),
            Column("drop", "Drop", row=_drop),
            Column("p", "p", wording.p_value),
            Column("p_corrected", "p corrected", wording.p_value),
            Column("detectable", "Detectable loss", _share),
            Column("confirmed", "Confirmed", lambda held: "" if held is None else "●" if held else "○", number=False),
        ),
        title="The plan and what came of it",
        caption="p: of the exact test of *critical* or *spared*, corrected by Holm over the tests of the plan alone."
        " Detectable: the smallest loss called critical, or the largest called spared, with"
        f" {wording.percent(POWER, 0)} power, given the unedited model's right answers.",
        mark=lambda row: bool(row["confirmed"]),
        marked="confirmed",
    )
    note = (
        f"Written down on {planned.made}, SHA-256 {planned.digest}…, with {planned.answers:,} answers to these tasks in"
        " the folder at that time. The file hypotheses.json holds it."
    )
    power = () if not planned.prospects else (_power(planned),)
    return Section("Plan", "What was planned", (Prose((note,)), table, *power))


def _power(planned: Planned) -> Table:
    """What the tests could find before any answer: `power.csv`."""
    return Table(
        "power",
        pd.DataFrame([each.model_dump() for each in planned.prospects]),
        (
            Column("task", "Task", number=False),
            Column("expect", "Expected", number=False),
            Column("items", "Items"),
            Column("tests", "Tests"),
            Column("baseline", "If the baseline is", lambda share: wording.percent(share, 0)),
            Column("loss", "and the loss", lambda share: wording.percent(share, 0)),
            Column("power", "Power", lambda share: wording.percent(share, 0)),
            Column("detectable", "Detectable loss", _share),
            Column("needed", "Items for 80 %", lambda count: wording.DASH if pd.isna(count) else f"{int(count):,}"),
        ),
        title="What the planned tests could find, as written down before",
        caption="Losses as shares of the baseline's accuracy. Exact binomial power of an edit that repairs no item, at"
        " the first step of Holm over the tests of the plan. Items: about.",
    )


def _share(loss: float | None) -> str:
    return wording.DASH if loss is None or pd.isna(loss) else wording.percent(loss, 0)


def _drop(row: Mapping[str, Any]) -> str:
    if pd.isna(row["drop"]):
        return wording.DASH
    return f"{wording.points(row['drop'])} {wording.interval(row['drop_low'], row['drop_high'])}"
