"""The result of an interaction study: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd
from typing_extensions import override

from lesion.core.result import StudyResult
from lesion.report import checks, wording
from lesion.report.blocks import Check
from lesion.report.endings import Endings
from lesion.report.forms import SHARE
from lesion.report.marks import Bars, Curves, Map
from lesion.report.parts import Part
from lesion.report.rows import Row, Rows, parts_of
from lesion.report.table import Table
from lesion.studies.interaction import claims
from lesion.studies.interaction.claims import done, named, noun
from lesion.studies.interaction.result import Interaction, InteractionSummary, Removal, ShapleyValue, Step, TaskScale

Line = Interaction | Removal | ShapleyValue | Step
READING = (
    "A set's interaction is its drop minus the sum of the drops of its places alone, on the same items. The test is"
    " corrected by Holm's method over all sets of one design and task.",
    "Redundant: more than the sum. While one place is there it does, in part, what the other does. More than the sum"
    " can also be damage that grows: later blocks meet states that they never saw.",
    "One path: less than the sum. The places are needed for the same items, so an answer that one removal has spoilt"
    " cannot be spoilt again. (Game theory calls them complements.)",
    "Cannot tell: the drops alone add up to all that there is to lose until the model guesses, so that a smaller drop"
    " of both is arithmetic.",
    "Shapley value: what removing a place costs in addition to those removed before it, averaged over orders of"
    " removal; the values add up to the drop of all. Its interval is for other items and other orders.",
    "An order by importance is chosen on the items that it is shown on. If places acted independently, both would cost"
    " less than the sum: the column `independent` of interactions.csv (Bliss 1939).",
)


@dataclass(frozen=True)
class InteractionResult(StudyResult[InteractionSummary]):
    """Several places removed together. `table` has one row per set and task, as `interactions.csv`; of a study without
    pairs and windows it is `steps.csv` or `shapley.csv`.
    """

    SUMMARY = InteractionSummary
    EYEBROW = "interaction of places"
    READING = READING

    @property
    def removals(self) -> pd.DataFrame:
        """One row per set removed and task, as `removals.csv`."""
        return Table.of(self._removals()).frame

    @property
    def steps(self) -> pd.DataFrame:
        """One row per task, order and removal, as `steps.csv`."""
        return Table.of(self._steps()).frame

    @property
    def shapley(self) -> pd.DataFrame:
        """One row per task and place, as `shapley.csv`."""
        return Table.of(self._shapley()).frame

    def _rows(
        self,
        name: str,
        of: type[Row],
        lines: Sequence[Line],
        title: str,
        about: str,
        marked: str = "",
        order: str = "",
    ) -> Rows:
        scales = {task.name: self.summary.scale(task.name) for task in self.summary.tasks}
        records = [(scales[line.task], line) for line in lines]
        return Rows(name, records, (TaskScale, of), title, about, marked=marked, order=order)

    def _interactions(self) -> Rows:
        return self._rows(
            "interactions", Interaction, self.summary.interactions, "Sets against the sum of their places",
            "Beyond the sum: the drop together minus the sum of the drops alone. Bold: shown to differ from it.",
            marked="is_shown", order="rank",
        )  # fmt: skip

    def _steps(self) -> Rows:
        return self._rows(
            "steps", Step, self.summary.steps, "One after another",
            "Score: accuracy, or mean log-probability of the gold answers, after so many removals.",
        )  # fmt: skip

    def _shapley(self) -> Rows:
        exact = f" All {self.summary.orders} orders: exact." if self.summary.every_order else ""
        return self._rows(
            "shapley", ShapleyValue, self.summary.shares, "Shapley values",
            f"Means over orders of removal.{exact} First of all: the drop of the place alone.",
        )  # fmt: skip

    def _removals(self) -> Rows:
        rows = self._rows("removals", Removal, self.summary.removals, "Every set", "Score as in the other tables.")
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
        own_claims = claims.which_interact(self.summary, "pairs")
        title = f"Do {places} of {self.summary.model} do each other's work?"
        return Part(title, self._interactions(), (drawn,), own_claims, short="Pairs")

    def _windows(self) -> Part:
        study = self.summary.study
        drawn = Bars(
            "together", "set_of", runs="total", panel="task", only={"design": "windows"},
            also=("sum", "beyond", "verdict"), name="windows",
            caption=f"What {study.window} consecutive blocks cost, with {study.level:.0%} intervals. Small: the sum of"
            " each alone, where it is less than there is to lose.",
        )  # fmt: skip
        own_claims = claims.which_window_costs_least(self.summary)
        if "pairs" not in study.design or study.window > 2:  # else they are among the pairs
            own_claims += claims.which_interact(self.summary, "windows")
        title = f"Which {study.window} consecutive blocks of {self.summary.model} cost least?"
        return Part(title, self._interactions(), (drawn,), own_claims, short="Windows")

    def _cumulative(self) -> Part:
        study, places = self.summary.study, f"{noun(self.summary.study)}s"
        random = any(step.order for step in self.summary.steps)
        drawn = Curves(
            ("value", "in_random_orders") if random else "value", "removed", panel="task", only={"order": 0},
            lines={"unedited": "unedited", "guessing": "guessing"}, name="cumulative",
            axis="score, nats" if study.measure == "gold" else "accuracy, %",
            caption=f"{wording.capital(places)} {done(study)} one after another: {', '.join(self.summary.order)}. Band:"
            f" {study.level:.0%} interval.",
        )  # fmt: skip
        title = f"How many {places} of {self.summary.model} can go, one after another?"
        return Part(title, self._steps(), (drawn,), claims.how_many_can_go(self.summary), short="One after another")

    def _each(self) -> Part:
        study, orders = self.summary.study, self.summary.orders
        mean = f"all {orders} orders" if self.summary.every_order else f"{orders} random orders"
        drawn = Bars(
            "value", "place", runs="first_of_all", panel="task", also=("alone", "last"), name="shapley",
            caption=f"Shapley values: means over {mean} of removal, with {study.level:.0%} intervals. Small: the drop"
            " alone.",
        )  # fmt: skip
        title = f"What does each {noun(study)} of {self.summary.model} contribute?"
        return Part(title, self._shapley(), (drawn,), claims.who_matters(self.summary), short="Shapley values")

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
        summary = self.summary
        study = summary.study
        measured = [
            (task.name, summary.removal(task.name).value.value, task.guessing, task.items) for task in summary.tasks
        ]
        if study.measure == "gold":
            measured = [(name, None, guessing, items) for name, _, guessing, items in measured]
        grounds = [*checks.baselines(measured)]
        ends = [each for each in summary.removals if each.endings is not None and each.places]
        if ends:
            worst = max(ends, key=_unreadable)
            grounds += checks.readable(_unreadable(worst), named(study, worst.places))
        if study.factor == 0:
            tasks = [task.name for task in study.tasks]
            weaker = checks.untried("Weaker edits", "interact", [study.model.name], tasks, "--factor 0.5")
            grounds.append(replace(weaker, options=shlex.join(["--factor", "0.5", "--out", f"{self.folder}-0.5"])))
        return grounds


def _unreadable(removal: Removal) -> float:
    return max(removal.endings.truncated, removal.endings.unparsed) if removal.endings else 0.0
