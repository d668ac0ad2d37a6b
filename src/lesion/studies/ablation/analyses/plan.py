"""The plan of a layer study: what was expected before any answer was there, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lesion.core.values import alike
from lesion.report import wording
from lesion.report.blocks import Folded
from lesion.report.claims import Claim, rule
from lesion.report.parts import Part
from lesion.report.rows import Rows
from lesion.report.table import Table
from lesion.report.values import POINTS, WHOLE_SHARE
from lesion.statistics.critical import POWER
from lesion.studies.ablation.plan import RULE
from lesion.studies.ablation.result import Material, Outcome, Planned, Prospect


@rule
def planned(plan: Planned) -> Iterable[Claim]:
    """How many expectations are confirmed, the clearest of them, and what the test of one that is not could find.

    Says: Confirmed: N of M expectations written down before any answer (K not measured yet). | Confirmed: N of M
    expectations; they were written down after K answers, so that they are no plan. | Not confirmed: block L is critical
    for A; a loss of S % or more would have been called critical.
    Needs: critical: an exact paired test rejects a loss of 50 % of the baseline's accuracy or less (where answers are
    chosen: of what it has above chance); spared: one rejects a loss of 25 % or more; p Holm-corrected over the plan's
    tests, at most 0.05
    """
    known = [outcome for outcome in plan.outcomes if outcome.confirmed is not None]
    confirmed = [outcome for outcome in known if outcome.confirmed]
    pending = len(plan.outcomes) - len(known)
    expected = wording.counted(len(plan.outcomes), "expectation")
    when = " written down before any answer"
    if plan.answers:
        when = f"; written down after {wording.counted(plan.answers, 'answer')} came, so that this is no plan"
    so_far = f" ({pending} not measured yet)" * bool(pending)
    sentences = [f"Confirmed: {len(confirmed)} of {expected}{when}{so_far}."]
    if confirmed:
        clearest = min(confirmed, key=lambda outcome: outcome.p or 0.0)
        sentences.append(f"{wording.capital(_named(clearest, plan.outcomes))}: {_drop(clearest)}.")
    failed = [outcome for outcome in known if not outcome.confirmed]
    if failed:
        sentences.append(
            f"Not confirmed: {_named(failed[0], plan.outcomes)} ({_drop(failed[0])}); {_could(failed[0])}."
        )
    yield Claim(tuple(sentences), tuple(plan.outcomes))


def _named(outcome: Outcome, outcomes: Sequence[Outcome]) -> str:
    model = wording.among(outcome.model, [other.model for other in outcomes])
    return f"in {model}, " * bool(model) + outcome.expected


def _drop(outcome: Outcome) -> str:
    return f"drop {POINTS.text(outcome.drop)}, corrected p{wording.SPACE}{wording.p_value(outcome.p_corrected)}"


def _could(outcome: Outcome) -> str:
    """What the test could have found with so many right answers before."""
    right = wording.counted(outcome.right or 0, "right answer")
    if outcome.detectable is None:
        return f"with {right} nothing can be called {outcome.expect}"
    more = "more" if outcome.expect == "critical" else "less"
    return f"with {right}, a loss of {WHOLE_SHARE.text(outcome.detectable)} or {more} is called {outcome.expect}"


def prospects(of: Sequence[Prospect]) -> Rows:
    """What the tests can find before any answer: `power.csv`."""
    return Rows(
        "power", of, (Prospect,), "Power",
        "Losses as shares of the baseline's accuracy (where answers are chosen, of what it has above chance). Exact"
        " power of an edit that repairs no item, at the first step of Holm over the tests of the plan.",
    )  # fmt: skip


def powers(of: Sequence[Prospect], names: Mapping[str, str]) -> list[str]:
    """The power of the planned tests of each kind on each task, a line each, for a terminal; tasks by these names."""
    lines = []
    for own in alike(of, "task", "expect"):
        chances = ", ".join(f"{WHOLE_SHARE.text(e.power)} at {WHOLE_SHARE.text(e.baseline)}" for e in own)
        first = own[0]
        lines.append(f"{first.expect} for {names[first.task]} ({wording.counted(first.items, 'item')}): {chances}")
    return lines


def part(material: Material) -> Part | None:
    """Every hypothesis with its test; None without a plan."""
    plan = material.summary.planned
    if plan is None:
        return None
    outcomes = Rows(
        "plan", plan.outcomes, (Outcome,), "Hypotheses",
        f"{RULE.capitalize()}. Detectable: the smallest loss called critical, or the largest called spared, with"
        f" {WHOLE_SHARE.text(POWER)} power, given what the unedited model has right.",
        marked="confirmed", only_marked="confirmed",
    )  # fmt: skip
    about = (
        f"Written down on {plan.made[:10]} in hypotheses.json (SHA-256 {plan.digest}…). Everything else on this page"
        " was looked at afterwards."
    )
    table = Table.of(prospects(plan.prospects))
    power = (Folded(table.title, (table,)),) if plan.prospects else ()
    return Part("What was planned?", outcomes, claims=planned(plan), about=about, short="Plan", own=power)
