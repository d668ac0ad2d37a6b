"""The result of an interaction study: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from typing_extensions import override

from lesion.core.layers import canonical_layers
from lesion.core.options import asking
from lesion.core.result import StudyResult
from lesion.report import checks, wording
from lesion.report.blocks import Check
from lesion.report.claims import Claim, rule
from lesion.report.marks import Bars, Curves, Map
from lesion.report.parts import Part
from lesion.report.rows import Endings, Row, Rows, p_text, parts_of, subject
from lesion.report.values import SHARE, Estimate, Form
from lesion.studies.interaction.result import (
    DROP,
    Interaction,
    InteractionSummary,
    InteractionTask,
    Removal,
    ShapleyValue,
    Step,
    TaskScale,
    place_name,
)
from lesion.studies.interaction.study import NAMED_ORDERS, Design, InteractionStudy


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


def _about_tasks(summary: InteractionSummary) -> Iterator[tuple[InteractionTask, str]]:
    for task in summary.tasks:
        yield task, subject(task, summary.tasks)


@rule
def which_interact(summary: InteractionSummary, design: Design) -> Iterable[Claim]:
    """Per task, the set furthest from the sum of its places, and how many cannot tell.

    Says: Blocks 2 and 5 cost more together than the sum of each alone; so do N more of M pairs. | Blocks 2 and 7 cost
    less together than the sum of each alone: the same answers need them. | No pair is shown to cost more or less
    together than its blocks alone add up to; N of M cannot be told. | Whether the blocks of a pair do each other's work
    cannot be told.
    Needs: an exact paired test of the drop of the set against the sum of the drops of its places, corrected by Holm's
    method over the sets of one design and task, at .05; less than the sum is said only where the places alone do not
    already cost all that guessing leaves
    """
    study, kind = summary.study, design.removesuffix("s")
    leaves = "alone they already cost all that guessing leaves"
    for task, about in _about_tasks(summary):
        sets = summary.of(task.name, design)
        known, shown = [each for each in sets if not each.is_untold], [each for each in sets if each.is_shown]
        if not known:
            gold = ", or measure log-probabilities (--measure gold)" * (study.measure == "accuracy")
            untold = f"Whether {noun(study)}s do each other's work cannot be told: {leaves}."
            yield Claim((untold, f"Scale them less (--factor {(1 + study.factor) / 2:g}){gold}."), tuple(sets), about)
            continue
        most = _furthest(shown or known)
        more = _value(most.beyond) > 0
        few = f"; {len(sets) - len(known)} of {len(sets)} cannot be told" * (len(sets) > len(known))
        first = f"No {kind} is shown to cost more or less together than its {noun(study)}s alone add up to{few}."
        opposite = [each for each in shown if (_value(each.beyond) > 0) != more]
        if shown:
            alike = len(shown) - len(opposite) - 1
            rest = f"; so do {alike} more of {wording.counted(len(sets), kind)}" * (alike > 0)
            need = "" if more else ": the same answers need them"
            sides = f"{_side(most)} together than the sum of each alone{need}"
            first = f"{wording.capital(named(study, most.places))} cost {sides}{rest}."
        sentences = [first, _strongest(summary, most, shown=bool(shown))]
        if opposite:
            other = _furthest(opposite)
            names = f"{named(study, other.places)} cost {_side(other)} than the sum"
            sentences.append(f"The other way round, {names}: {_size(summary, other)}.")
        elif few:
            sentences.append(f"Where it cannot be told, {leaves}.")
        yield Claim(tuple(sentences), (most, *opposite[:1]), about)


def _value(estimate: Estimate) -> float:
    return estimate.value or 0.0


def _furthest(sets: Sequence[Interaction]) -> Interaction:
    return max(sets, key=lambda each: abs(_value(each.beyond)))


def _side(interaction: Interaction) -> str:
    return "more" if _value(interaction.beyond) >= 0 else "less"


def _strongest(summary: InteractionSummary, most: Interaction, *, shown: bool) -> str:
    form, they = drop_form(summary), "They"
    alone, together = " + ".join(map(form, most.alone)), form.text(most.together, interval=False)
    if not shown:
        they = f"{wording.capital(named(summary.study, most.places))} differ most from that: they"
    return f"{they} take {together} together and {alone} alone: {_size(summary, most)}."


def _size(summary: InteractionSummary, interaction: Interaction) -> str:
    beyond = interaction.beyond
    return f"{drop_form(summary).text(beyond.size)} {_side(interaction)} ({p_text(beyond)})"


def drop_form(summary: InteractionSummary) -> Form:
    """How drops are written: points of accuracy, or nats."""
    return DROP.forms[{"gold": "nats", "accuracy": "points"}[summary.study.measure]]


@rule
def which_window_costs_least(summary: InteractionSummary) -> Iterable[Claim]:
    """Per task, the window of consecutive blocks that costs least.

    Says: The W consecutive blocks that cost least are blocks 3 and 4: D points.
    Needs: nothing but the drops of all windows; which of them is least is not tested
    """
    study = summary.study
    for task, about in _about_tasks(summary):
        least = min(summary.of(task.name, "windows"), key=lambda each: _value(each.together))
        names, cost = named(study, least.places), drop_form(summary).text(least.together)
        yield Claim((f"The {study.window} consecutive blocks that cost least are {names}: {cost}.",), (least,), about)


@rule
def how_many_can_go(summary: InteractionSummary) -> Iterable[Claim]:
    """Per task, after how many removals half of what is above guessing is gone, against random orders.

    Says: K of N blocks can be removed, the least important first, with half of the accuracy above guessing left. | All
    N blocks removed cost D nats.
    Needs: the accuracy after each removal, in the study's order and in random ones; half is counted from guessing to
    the unedited accuracy, and is not tested; of log-probabilities the drop of all places together
    """
    study = summary.study
    order = "in that order"
    if study.order in NAMED_ORDERS:
        order = f"the {study.order} important first"
    many = f"{len(summary.places)} {noun(study)}s"
    for task, about in _about_tasks(summary):
        steps = [step for step in summary.steps if step.task == task.name]
        in_order = [step for step in steps if step.order == 0]
        if study.measure == "gold":
            total = drop_form(summary).text(summary.removal(task.name, *summary.places).drop)
            yield Claim((f"All {many} {done(study)} cost {total}.",), (in_order[-1],), about)
            continue
        half = ((summary.scale(task.name).unedited or 0.0) + task.guessing) / 2
        kept, *random = (_removals_above(half, steps, number) for number in sorted({step.order for step in steps}))
        above = " above guessing" * bool(task.guessing)
        sentences = [f"{kept} of {many} can be {done(study)}, {order}, with half of the accuracy{above} left."]
        if random:
            orders = wording.counted(len(random), "random order")
            sentences.append(f"In {orders} it is {wording.span(min(random), max(random))}.")
        yield Claim(tuple(sentences), tuple(in_order[: kept + 1]), about)


def _removals_above(half: float, steps: Sequence[Step], order: int) -> int:
    """How many removals in an order leave so much, until the first that does not."""
    own = sorted((step for step in steps if step.order == order), key=lambda step: step.removed)
    return next((step.removed - 1 for step in own if _value(step.value) < half), len(own))


@rule
def who_matters(summary: InteractionSummary) -> Iterable[Claim]:
    """Per task, the place that costs most, averaged over orders of removal.

    Says: Block L has the largest Shapley value: D points of the T that all N cost together. | No Shapley value of N
    blocks is shown to be above 0; together they cost T points.
    Needs: an interval of a Shapley value, for other items and other orders, that lies above 0
    """
    study, form = summary.study, drop_form(summary)
    for task, about in _about_tasks(summary):
        shares = [share for share in summary.shares if share.task == task.name]
        top = max(shares, key=lambda share: _value(share.value))
        total = form.text(summary.removal(task.name, *summary.places).drop, interval=False)
        text = (
            f"{wording.capital(named(study, [top.place]))} has the largest Shapley value: {form.text(top.value)} of the"
            f" {total} that all {len(shares)} cost together."
        )
        if not any((share.value.low or 0.0) > 0 for share in shares):
            many = f"{len(shares)} {noun(study)}s"
            text = f"No Shapley value of {many} is shown to be above 0; together they cost {total}."
        yield Claim((text,), (top,), about)


Line = Interaction | Removal | ShapleyValue | Step
READING = (
    "Redundant: together more than the sum. While one place is there it does, in part, what the other does. More than"
    " the sum can also be damage that grows: later blocks meet states that they never saw.",
    "One path: less than the sum. The places are needed for the same items, so an answer that one removal has spoilt"
    " cannot be spoilt again. (Game theory calls them complements.)",
    "Shapley value: what removing a place costs in addition to those removed before it, averaged over orders of"
    " removal; the values add up to the drop of all. Its interval is for other items and other orders.",
)


@dataclass(frozen=True)
class InteractionResult(StudyResult[InteractionSummary]):
    """Several places removed together. `table` has one row per set and task, as `interactions.csv`; of a study without
    pairs and windows it is `steps.csv` or `shapley.csv`.
    """

    SUMMARY = InteractionSummary
    TEXTLESS = True
    EYEBROW = "interaction of places"
    READING = READING
    TESTED = (
        "The drop of a set is tested against the sum of the drops of its places by an exact paired test, with p"
        " corrected by Holm's method over the sets of one design and task. Brackets, bars and bands: {level} intervals."
    )

    def _rows(self, name: str, of: type[Row], lines: Sequence[Line], title: str, about: str = "") -> Rows:
        scales = {task.name: self.summary.scale(task.name) for task in self.summary.tasks}
        return Rows(name, [(scales[line.task], line) for line in lines], (TaskScale, of), title, about)

    def _interactions(self) -> Rows:
        about = "Beyond the sum: drop together minus the drops alone. Bold: shown to differ from it."
        rows = self._rows("interactions", Interaction, self.summary.interactions, "Sets", about)
        return replace(rows, marked="is_shown", order="rank")

    def _removals(self) -> Rows:
        rows = self._rows("removals", Removal, self.summary.removals, "Every set")
        if self.summary.study.measure == "gold":
            return rows
        scales = [scale for scale, *_ in map(parts_of, rows.records)]
        records = [(scale, each, each.endings) for scale, each in zip(scales, self.summary.removals, strict=True)]
        return replace(rows, records=records, of=(*rows.of, Endings))

    @override
    def parts(self) -> list[Part]:
        made = {"pairs": self._pairs, "windows": self._windows, "cumulative": self._cumulative, "shapley": self._each}
        parts = [make() for design, make in made.items() if design in self.summary.study.design]
        if {"pairs", "windows"} <= set(self.summary.study.design):
            parts[1] = replace(parts[1], table=False)  # they are one table
        return [*parts, Part("Every set", self._removals())]

    def _pairs(self) -> Part:
        places = f"{noun(self.summary.study)}s"
        drawn = Map(
            "beyond", "place", "with_place", boxed="is_shown", blank="is_untold", panel="task", name="pairs",
            only={"design": "pairs"}, also=("together", "sum", "verdict"),
            caption=f"What a pair costs beyond the sum of its {places} alone. Boxed: shown to differ from it. Outlined:"
            " cannot be told, since the sum is all that guessing leaves.",
        )  # fmt: skip
        own_claims = which_interact(self.summary, "pairs")
        title = f"Do {places} of {self.summary.model} do each other's work?"
        return Part(title, self._interactions(), (drawn,), own_claims, short="Pairs")

    def _windows(self) -> Part:
        study = self.summary.study
        drawn = Bars(
            "together", "set_of", runs="total", panel="task", only={"design": "windows"},
            also=("sum", "beyond", "verdict"), name="windows",
            caption="Small: the sum of each alone, where it is less than there is to lose.",
        )  # fmt: skip
        own_claims = which_window_costs_least(self.summary)
        if "pairs" not in study.design or study.window > 2:  # else they are among the pairs
            own_claims += which_interact(self.summary, "windows")
        title = f"Which {study.window} consecutive blocks of {self.summary.model} cost least?"
        return Part(title, self._interactions(), (drawn,), own_claims, short="Windows")

    def _cumulative(self) -> Part:
        study, places = self.summary.study, f"{noun(self.summary.study)}s"
        random = any(step.order for step in self.summary.steps)
        drawn = Curves(
            ("value", "in_random_orders") if random else "value", "removed", panel="task", only={"order": 0},
            lines={"unedited": "unedited", "guessing": "guessing"}, name="cumulative",
            axis={"gold": "score, nats", "accuracy": "accuracy, %"}[study.measure],
            caption=f"{wording.capital(places)} {done(study)} one after another: {', '.join(self.summary.order)}.",
        )  # fmt: skip
        title = f"How many {places} of {self.summary.model} can go, one after another?"
        rows = self._rows("steps", Step, self.summary.steps, "One after another")
        return Part(title, rows, (drawn,), how_many_can_go(self.summary), short="One after another")

    def _each(self) -> Part:
        study, orders = self.summary.study, self.summary.orders
        mean = f"all {orders} orders" if self.summary.every_order else f"{orders} random orders"
        drawn = Bars(
            "value", "place", runs="first_of_all", panel="task", also=("alone", "last"), name="shapley",
            caption=f"Shapley values: means over {mean} of removal. Small: the drop alone.",
        )  # fmt: skip
        title = f"What does each {noun(study)} of {self.summary.model} contribute?"
        rows = self._rows("shapley", ShapleyValue, self.summary.shares, "Shapley values")
        return Part(title, rows, (drawn,), who_matters(self.summary), short="Shapley values")

    @property
    @override
    def basis(self) -> str:
        summary = self.summary
        texts = []
        for task in summary.tasks:
            text = f"{task.name}: {wording.counted(task.items, 'item')}"
            if summary.study.measure == "accuracy":
                guessing = f", guessing {SHARE.text(task.guessing)}" if task.guessing else ""
                text += f", unedited {SHARE.text(summary.removal(task.name).value)}{guessing}"
            texts.append(text)
        return "; ".join(texts) + "."

    @override
    def checks(self) -> list[Check]:
        summary, study = self.summary, self.summary.study
        gold = study.measure == "gold"
        grounds = [
            *checks.baselines(
                (task.name, None if gold else summary.removal(task.name).value.value, task.guessing, task.items)
                for task in summary.tasks
            )
        ]
        ends = [each for each in summary.removals if each.endings is not None and each.places]
        if ends:
            worst = max(ends, key=_unreadable)
            grounds += checks.readable(_unreadable(worst), named(study, worst.places))
        if least := summary.cheapest_range:
            kept = canonical_layers([block for block in range(len(summary.places)) if block not in least])
            order = shlex.join(["--order", kept, "--out", f"{self.folder}-without-{canonical_layers(least)}"])
            what = f"A smaller model, without {wording.numbered('block', least)}"
            grounds.append(checks.untried(what, "apply", [study.model.name], (), order))
        if study.factor == 0:
            tasks = [task.name for task in study.tasks]
            model = [study.model.name]
            weaker = checks.untried("Weaker edits", "interact", model, tasks, "--factor 0.5", asking(study))
            grounds.append(replace(weaker, options=shlex.join(["--factor", "0.5", "--out", f"{self.folder}-0.5"])))
        return grounds


def _unreadable(removal: Removal) -> float:
    return max(removal.endings.truncated, removal.endings.unparsed) if removal.endings else 0.0
