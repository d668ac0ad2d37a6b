"""What an interaction study claims: sets that cost more or less than their places alone, what can go, who matters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import ByUnit, Form
from lesion.report.rows import p_text, subject
from lesion.report.values import Estimate
from lesion.studies.interaction.result import (
    DROP,
    Interaction,
    InteractionSummary,
    InteractionTask,
    Step,
    TaskScale,
    place_name,
)
from lesion.studies.interaction.study import Design, InteractionStudy

TEST = (
    "an exact paired test of the drop of the set against the sum of the drops of its places, corrected by Holm's method"
    " over the sets of one design and task, at .05"
)


def noun(study: InteractionStudy) -> str:
    """What one of several places is called."""
    return "place" if study.places or study.unit != "block" else "block"


def done(study: InteractionStudy) -> str:
    """What is done to places: `removed`, or `multiplied by 0.5`."""
    return "removed" if study.factor == 0 else f"multiplied by {study.factor:g}"


def named(study: InteractionStudy, addresses: Sequence[str]) -> str:
    """`blocks 3 and 5`, `attention of blocks 3 and 5`; of places that were named one by one, `3.mlp and 5`."""
    if study.places:
        return wording.listed([place_name(place) for place in addresses])
    blocks = wording.numbered("block", [int(place.partition(".")[0]) for place in addresses])
    return blocks if study.unit == "block" else f"{wording.UNIT_NAMES[study.unit]} of {blocks}"


def _sets(design: Design, count: int) -> str:
    return wording.counted(count, "pair") if design == "pairs" else wording.counted(count, "window")


@rule(
    "Blocks 2 and 5 cost more together than the sum of each alone; so do N more of M pairs.",
    "Blocks 2 and 7 cost less together than the sum of each alone: the same answers need them.",
    "No pair is shown to cost more or less together than its blocks alone add up to; N of M cannot be told.",
    "Whether the blocks of a pair do each other's work cannot be told.",
    needs=f"{TEST}; less than the sum is said only where the places alone do not already cost all that guessing leaves",
)
def which_interact(summary: InteractionSummary, design: Design) -> Iterable[Claim]:
    """Per task, the set furthest from the sum of its places, and how many cannot tell."""
    study = summary.study
    for task in summary.tasks:
        sets = summary.of(task.name, design)
        untold = [each for each in sets if each.is_untold]
        shown = [each for each in sets if each.is_shown]
        about = subject(task, summary.tasks)
        if len(untold) == len(sets):
            gold = ", or measure log-probabilities (--measure gold)" if study.measure == "accuracy" else ""
            scale = "Scale them in part (--factor 0.5)" if study.factor == 0 else "Scale them less"
            what = f"{noun(study)}s do each other's work cannot be told"
            why = "alone they already cost all that guessing leaves"
            yield Claim((f"Whether {what}: {why}.", f"{scale}{gold}."), tuple(sets), about)
            continue
        most = max(shown or [each for each in sets if not each.is_untold], key=lambda each: abs(_value(each.beyond)))
        more = _value(most.beyond) > 0
        if shown:
            alike = sum((_value(each.beyond) > 0) == more for each in shown) - 1
            first = f"{wording.capital(named(study, most.places))} cost {'more' if more else 'less'} together than"
            rest = f"; so do {alike} more of {_sets(design, len(sets))}" if alike else ""
            first += f" the sum of each alone{'' if more else ': the same answers need them'}{rest}."
        else:
            one = "pair" if design == "pairs" else "window"
            few = f"; {len(untold)} of {len(sets)} cannot be told" if untold else ""
            apart = f"its {noun(study)}s alone add up to"
            first = f"No {one} is shown to cost more or less together than {apart}{few}."
        sentences = [first, _strongest(summary, most, shown=bool(shown))]
        opposite = [each for each in shown if (_value(each.beyond) > 0) != more]
        if opposite:
            other = max(opposite, key=lambda each: abs(_value(each.beyond)))
            sentences.append(
                f"The other way round, {named(study, other.places)} cost {'less' if more else 'more'} than the sum:"
                f" {_told(summary, other)}."
            )
        elif untold:
            many = f" ({_sets(design, len(untold))})" if shown else ""
            leaves = f"their {noun(study)}s alone already cost all that guessing leaves"
            sentences.append(f"Where it cannot be told{many}, {leaves}.")
        yield Claim(tuple(sentences), (most, *opposite[:1]), about)


def _value(estimate: Estimate) -> float:
    return estimate.value or 0.0


def _strongest(summary: InteractionSummary, most: Interaction, *, shown: bool) -> str:
    form = _form(summary, DROP)
    alone = " + ".join(map(form, most.alone))
    together = form.text(most.together, interval=False)
    if shown:
        return f"They take {together} together and {alone} alone: {_told(summary, most)}."
    places = wording.capital(named(summary.study, most.places))
    return f"{places} differ most from that: they take {together} together and {alone} alone, {_told(summary, most)}."


def _told(summary: InteractionSummary, interaction: Interaction) -> str:
    more = _value(interaction.beyond) >= 0
    beyond = interaction.beyond if more else interaction.beyond.negative
    side = "more" if more else "less"
    return f"{_form(summary, DROP).text(beyond)} {side} ({p_text(interaction.beyond)})"


def _form(summary: InteractionSummary, forms: ByUnit) -> Form:
    return forms.forms["nats" if summary.study.measure == "gold" else "points"]


@rule(
    "The W consecutive blocks that cost least are blocks 3 and 4: D points.",
    needs="nothing but the drops of all windows; which of them is least is not tested",
)
def which_window_costs_least(summary: InteractionSummary) -> Iterable[Claim]:
    """Per task, the window of consecutive blocks that costs least."""
    study = summary.study
    for task in summary.tasks:
        least = min(summary.of(task.name, "windows"), key=lambda each: _value(each.together))
        text = _form(summary, DROP).text(least.together)
        cost = f"The {study.window} consecutive blocks that cost least are {named(study, least.places)}: {text}."
        yield Claim((cost,), (least,), subject(task, summary.tasks))


@rule(
    "K of N blocks can be removed, the least important first, with half of the accuracy above guessing left.",
    "All N blocks removed cost D nats.",
    needs="the accuracy after each removal, in the study's order and in random ones; half is counted from guessing to"
    " the unedited accuracy, and is not tested; of log-probabilities the drop of all places together",
)
def how_many_can_go(summary: InteractionSummary) -> Iterable[Claim]:
    """Per task, after how many removals half of what is above guessing is gone, against random orders."""
    study = summary.study
    order = {"least": "the least important first", "most": "the most important first"}.get(study.order, "in that order")
    for task in summary.tasks:
        steps = [step for step in summary.steps if step.task == task.name]
        own = [step for step in steps if step.order == 0]
        about = subject(task, summary.tasks)
        many = f"{len(summary.places)} {noun(study)}s"
        if study.measure == "gold":
            total = _form(summary, DROP).text(summary.removal(task.name, *summary.places).drop)
            yield Claim((f"All {many} {done(study)} cost {total}.",), (own[-1],), about)
            continue
        survived = [_survived(steps, number, task, summary.scale(task.name)) for number in _orders(steps)]
        above = " above guessing" if task.guessing else ""
        first = f"{survived[0]} of {many} can be {done(study)}, {order}, with half of the accuracy{above} left."
        sentences = [first]
        if survived[1:]:
            orders = wording.counted(len(survived) - 1, "random order")
            sentences.append(f"In {orders} it is {wording.span(min(survived[1:]), max(survived[1:]))}.")
        yield Claim(tuple(sentences), tuple(own[: survived[0] + 1]), about)


def _orders(steps: Sequence[Step]) -> list[int]:
    return sorted({step.order for step in steps})


def _survived(steps: Sequence[Step], order: int, task: InteractionTask, scale: TaskScale) -> int:
    """How many removals leave half of the accuracy above guessing, until the first that does not."""
    half = ((scale.unedited or 0.0) + task.guessing) / 2
    own = sorted((step for step in steps if step.order == order), key=lambda step: step.removed)
    failing = (step.removed - 1 for step in own if _value(step.value) < half)
    return next(failing, len(own))


@rule(
    "Block L has the largest Shapley value: D points of the T that all N cost together.",
    "No Shapley value of N blocks is shown to be above 0; together they cost T points.",
    needs="an interval of a Shapley value, for other items and other orders, that lies above 0",
)
def who_matters(summary: InteractionSummary) -> Iterable[Claim]:
    """Per task, the place that costs most, averaged over orders of removal."""
    study, form = summary.study, _form(summary, DROP)
    for task in summary.tasks:
        shares = [share for share in summary.shares if share.task == task.name]
        top = max(shares, key=lambda share: _value(share.value))
        total = form.text(summary.removal(task.name, *summary.places).drop, interval=False)
        if any((share.value.low or 0.0) > 0 for share in shares):
            largest = f"{wording.capital(named(study, [top.place]))} has the largest Shapley value"
            text = f"{largest}: {form.text(top.value)} of the {total} that all {len(shares)} cost together."
        else:
            none = f"No Shapley value of {len(shares)} {noun(study)}s is shown to be above 0"
            text = f"{none}; together they cost {total}."
        yield Claim((text,), (top,), subject(task, summary.tasks))
