"""What an interaction study shows, in sentences written from its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.edits.units import part_of, scale_at
from lesion.report import wording
from lesion.report.finding import Finding, limits
from lesion.studies.interaction.result import Interaction, InteractionSummary, Share, Step
from lesion.studies.interaction.study import InteractionStudy

NAMED = 3
"""So many sets of each verdict are named in sentences; the table has them all."""
WORDS = {
    "redundant": "cost more together than the sum of each alone (redundancy)",
    "one path": "cost less together than the sum: what one takes, the other would take too (one path)",
}


def amount(study: InteractionStudy, value: float | None) -> str:
    """A drop without its unit: in points of accuracy, or nats."""
    if study.measure == "accuracy" or value is None:
        return wording.points(value)
    return f"{value:.2f}".replace("-", wording.MINUS)


def within(study: InteractionStudy, low: float | None, high: float | None) -> str:
    """The interval of a drop."""
    if low is None or high is None:
        return ""
    return f"[{amount(study, low)},{wording.SPACE}{amount(study, high)}]"


def unit(study: InteractionStudy) -> str:
    """What drops are counted in."""
    return "points" if study.measure == "accuracy" else "nats"


def places(study: InteractionStudy, addresses: Sequence[str]) -> str:
    """`blocks 3 and 5`, `attention of blocks 3 and 5`; of places that were named one by one, `3.mlp and 5`."""
    if study.places:
        return wording.listed([short(place) for place in addresses])
    what = wording.numbered("block", [int(place.partition(".")[0]) for place in addresses])
    return what if study.unit == "block" else f"{wording.UNIT_NAMES[study.unit]} of {what}"


def short(address: str) -> str:
    """A head as `head 23.4` and other inner units alike; a block or branch by its address."""
    edit = scale_at(address, 0.0)
    return wording.place(edit.unit, edit.layer, part_of(edit)) if edit else address


def noun(study: InteractionStudy) -> str:
    """What one of several places is called."""
    return "place" if study.places or study.unit != "block" else "block"


def done(study: InteractionStudy) -> str:
    """What is done to places: `removed`, or `multiplied by 0.5`."""
    return "removed" if study.factor == 0 else f"multiplied by {study.factor:g}"


def findings(summary: InteractionSummary) -> list[Finding]:
    """Per task, what the designs show; then what limits it."""
    every = []
    for task in summary.tasks:
        headline: list[str] = []
        sentences: list[str] = []
        for design in ("pairs", "windows"):
            if sets := summary.of(task.name, design):
                headline.append(_counts(summary.study, sets))
                sentences += _strongest(summary.study, sets)
        if windows := summary.of(task.name, "windows"):
            headline.append(_window(summary.study, windows))
        steps = [step for step in summary.steps if step.task == task.name]
        headline += [_cumulative(summary, task.name, steps)] if steps else []
        shares = [share for share in summary.shares if share.task == task.name]
        headline += [_shapley(summary, task.name, shares)] if shares else []
        every.append(Finding(task.name, tuple(headline), tuple(sentences)))
    if summary.study.measure == "gold":
        return every
    measured = ((task.name, "item", summary.removal(task.name).value.value, task.items) for task in summary.tasks)
    return [*every, *limits(measured)]


def _counts(study: InteractionStudy, sets: Sequence[Interaction]) -> str:
    """How many sets have which verdict."""
    what = {"pairs": "pair", "windows": f"window of {study.window} blocks"}[sets[0].design]
    counts = {verdict: [each for each in sets if each.verdict == verdict] for verdict in (*WORDS, "cannot tell")}
    parts = [f"{len(counts[verdict])} {WORDS[verdict]}" for verdict in WORDS if counts[verdict]]
    other = ", or use --measure gold, which can fall further" if study.measure == "accuracy" else ""
    partly = "Scale them in part (--factor 0.5)" if study.factor == 0 else "Scale them less"
    if (untold := len(counts["cannot tell"])) == len(sets):
        return (
            f"Whether places back each other up cannot be told for any {what}: alone they already cost, added, all that"
            f" guessing leaves. {partly}{other}."
        )
    of = f"{wording.counted(len(sets), what)}" if what == "pair" else f"{len(sets)} windows of {study.window} blocks"
    rest = f"; {untold} cannot be told, since alone they already cost all that guessing leaves" if untold else ""
    if parts:
        return f"Of {of} {', and '.join(parts)}{rest}."
    which = f"none of the other {len(sets) - untold}" if untold else "none"
    return (
        f"Of {of} {which} is shown to cost more or less than the sum of its {noun(study)}s alone (corrected p ≤"
        f" {wording.ALPHA:g})"
        f"{rest}."
    )


def _strongest(study: InteractionStudy, sets: Sequence[Interaction]) -> list[str]:
    texts = []
    for verdict in WORDS:
        of_verdict = [each for each in sets if each.verdict == verdict]
        for each in sorted(of_verdict, key=lambda one: -abs(one.beyond.value or 0.0))[:NAMED]:
            side = "more" if (each.beyond.value or 0.0) > 0 else "less"
            beyond = each.beyond if side == "more" else each.beyond.negative
            texts.append(
                f"{wording.capital(places(study, each.places))}: {amount(study, each.together.value)} {unit(study)}"
                f" together, {' + '.join(amount(study, alone) for alone in each.alone)} alone;"
                f" {amount(study, beyond.value)} {within(study, beyond.low, beyond.high)} {side} than the sum"
                f" (corrected p{wording.SPACE}{wording.p_value(each.beyond.p_corrected)})."
            )
    return texts


def _window(study: InteractionStudy, sets: Sequence[Interaction]) -> str:
    if len(sets) == 1:
        only = sets[0].together
        return (
            f"The only window, {places(study, sets[0].places)}, costs {amount(study, only.value)}"
            f" {within(study, only.low, only.high)} {unit(study)}."
        )
    least = min(sets, key=lambda each: each.together.value or 0.0)
    return (
        f"The window that costs least is {places(study, least.places)}: {amount(study, least.together.value)}"
        f" {within(study, least.together.low, least.together.high)} {unit(study)}."
    )


def _cumulative(summary: InteractionSummary, task: str, steps: Sequence[Step]) -> str:
    """After how many removals half of what is above guessing is gone, in the study's order and in random ones."""
    study = summary.study
    named = {"least": "the least important first", "most": "the most important first"}.get(study.order, "in order")
    if study.measure == "gold":
        last = [step for step in steps if step.order == 0][-1]
        total = summary.removal(task, *last.places).drop
        assert total is not None
        return f"All {len(last.places)} {done(study)} cost {amount(study, total.value)} nats."
    guessing = next(each.guessing for each in summary.tasks if each.name == task)
    half = ((summary.removal(task).value.value or 0.0) + guessing) / 2
    survived = [_survived([step for step in steps if step.order == number], half) for number in _orders(steps)]
    own, random = survived[0], sorted(survived[1:])
    text = (
        f"{wording.capital(done(study))} one after another, {named}, {own} of {len(summary.places)} {noun(study)}s can"
        f" be {done(study)} with at least half of the unedited accuracy{' above guessing' if guessing else ''} left"
    )
    if not random:
        return f"{text}."
    return f"{text}; in {wording.counted(len(random), 'random order')} {wording.span(random[0], random[-1])}."


def _orders(steps: Sequence[Step]) -> list[int]:
    return sorted({step.order for step in steps})


def _survived(steps: Sequence[Step], half: float) -> int:
    """How many removals leave at least so much accuracy, until the first that does not."""
    count = 0
    for step in sorted(steps, key=lambda one: len(one.places)):
        if (step.value.value or 0.0) < half:
            break
        count = len(step.places)
    return count


def _shapley(summary: InteractionSummary, task: str, shares: Sequence[Share]) -> str:
    study = summary.study
    top = max(shares, key=lambda share: share.value.value or 0.0)
    total = summary.removal(task, *summary.places).drop
    assert total is not None
    if not any((share.value.low or 0.0) > 0 for share in shares):
        return (
            f"No Shapley value of {len(shares)} {noun(study)}s is shown to be above 0; together they cost"
            f" {amount(study, total.value)} {unit(study)}."
        )
    return (
        f"The largest Shapley value is that of {places(study, [top.place])}: {amount(study, top.value.value)}"
        f" {within(study, top.value.low, top.value.high)} of the {amount(study, total.value)} {unit(study)} that all"
        f" {len(shares)} cost together{f' (exact, all {summary.orders} orders)' if summary.every_order else ''}."
    )
