"""The result of a study of effects: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from typing_extensions import override

from lesion.core.result import StudyResult, progress_line
from lesion.report import wording
from lesion.report.blocks import Check, Folded
from lesion.report.checks import FEW, untried
from lesion.report.forms import WHOLE_SHARE
from lesion.report.marks import Bars, Curves, Map
from lesion.report.parts import Part
from lesion.report.rows import Rows
from lesion.report.table import Table
from lesion.studies.effects import claims
from lesion.studies.effects.result import (
    LOGITS,
    ClassLine,
    Effect,
    EffectsSummary,
    LensLayer,
    ModelAndTask,
    ScreenAgreement,
    TaskEffects,
    UnitEffects,
)
from lesion.tasks.gold_classes import UNKNOWN

READING = (
    "Every number is teacher-forced: the model reads the prompt and the gold solution, and each gold token is judged at"
    " the position before it. Means over the tokens of an item, then over items; intervals by bootstrap over items.",
    "Direct effect: what a place adds to the right token's logit through the final norm and the head, with the norm's"
    " scale of the whole model; embedding, blocks and biases add up to that logit, taken before any softcap. Total"
    " effect: by how much it is lower when the place is switched off. A head is its columns of the attention's output"
    " matrix, a norm behind them frozen.",
    "Repaired: direct minus total (McGrath et al. 2023). The final norm scales up what is left (Rushing and Nanda"
    " 2024); the rest is later blocks, tested by a t-test over items, corrected by Holm over the places of a unit. The"
    " repaired share is measured on items that did not choose the places. Below 0, later blocks read what is written"
    " and write more of their own.",
    "Logit lens (nostalgebraist 2020): layer 0 is what enters block 0, layer l what block l − 1 gives. Early streams"
    " are not in the basis of the head, so a low number there does not show that nothing is known. Block influence (Men"
    " et al. 2024): 1 − cosine of what enters and leaves a block; it needs no gold answers.",
    "Classes of gold tokens: the parts that a task names in its right answers, else the first token and the rest. Tests"
    " flip the signs of whole items. A share of 0 or 100 % has Wilson's interval, each item counted as one.",
)
DRAWN_GROUPS = 6
"""Of more groups of items, the numbers stand in the table alone."""
BRANCHES = ("block", "attention", "mlp")


@dataclass(frozen=True)
class EffectsResult(StudyResult[EffectsSummary]):
    """A study of effects. `table` has one row per model, task and place, as `effects.csv`."""

    SUMMARY = EffectsSummary
    EYEBROW = "effects of blocks"
    READING = READING

    @property
    def lens(self) -> pd.DataFrame:
        """One row per model, task and layer, as `lens.csv`."""
        return self._frame("lens")

    @property
    def screens(self) -> pd.DataFrame:
        """One row per model, task, unit and screen, as `screens.csv`; no rows without a layer study."""
        return self._frame("screens")

    @property
    def classes(self) -> pd.DataFrame:
        """One row per model, task, group, place and class of gold token, as `classes.csv`."""
        return self._frame("classes")

    def _frame(self, name: str) -> pd.DataFrame:
        return next(Table.of(part.rows).frame for part in self.parts() if part.rows and part.rows.name == name)

    @override
    def done(self) -> list[str]:
        return [progress_line("measured", self.evaluated, self.planned, " items")] if self.planned else []

    @property
    @override
    def basis(self) -> str:
        first = self.summary.tasks[0]
        against = "the tempting token" if first.reference == "tempting" else "the mean over the vocabulary"
        return (
            f"{wording.counted(first.items, 'item')} with {wording.counted(first.tokens, 'gold token')}; the right"
            f" token stands {LOGITS.text(first.logit)} above {against}."
        )

    @override
    def checks(self) -> list[Check]:
        checks = []
        for task in self.summary.tasks:
            known = task.lens[-1].top.value or 0.0
            few = "; with so few items chance decides much" if task.items < FEW else ""
            mood: Literal["good", "bad"] = "good" if known > 0.5 and not few else "bad"
            share = WHOLE_SHARE.text(known)
            checks.append(Check(mood, f"On {task.task} the model gives {share} of gold tokens most probability{few}."))
            strange = [each for each in (task.classes.present if task.classes else ()) if each.name == UNKNOWN]
            checks += [
                Check("open", f"The gold text of {wording.counted(each.items, 'item')} of {task.task} is not as the"
                      " tokenizer gives it back; their tokens are of no class.")
                for each in strange
            ]  # fmt: skip
        if self.summary.study.study is None:
            study = self.summary.study
            models, tasks = ([choice.name for choice in choices] for choices in (study.models, study.tasks))
            what = "A comparison with lost answers, by --study layers, after"
            checks.append(untried(what, "ablate", models, tasks, "--out layers"))
        return checks

    @override
    def parts(self) -> tuple[Part, ...]:
        tasks = self.summary.tasks
        names = wording.listed(list(dict.fromkeys(task.task for task in tasks)))
        return (
            self._effects(f"What do blocks write towards the answer to {names}, and what is lost without them?"),
            Part(
                "After which block can the answer be read off?",
                Rows("lens", [(task, layer) for task in tasks for layer in task.lens], (ModelAndTask, LensLayer),
                     "Logit lens"),
                (
                    Curves("top", "layer", ("model", "task"), low=0.0, high=100.0,
                           caption="The gold tokens read off the stream through the final norm and the head."),
                    Curves("log_probability", "layer", ("model", "task")),
                ),
                claims.when_it_is_readable(tasks),
                short="Logit lens",
            ),
            self._classes(),
            Part(
                "Which cheap measure foretells the drops of accuracy?",
                Rows("screens", [(task, each) for task in tasks for each in task.agreements],
                     (ModelAndTask, ScreenAgreement), "Screens",
                     "Spearman's ρ over places, interval by bootstrap over the items of both studies; p one-sided, by"
                     " permutation of the places."),
                (Bars("rho", "screen", panel=("model", "task", "unit")),),
                claims.what_foretells_the_drops(tasks),
                short="Screens",
            ),
        )  # fmt: skip

    def _effects(self, title: str) -> Part:
        tasks = self.summary.tasks
        rows = Rows(
            "effects", [(task, effect) for task in tasks for effect in task.effects], (ModelAndTask, Effect), "Effects",
            "What each place writes (direct), what its removal takes (total) and what is repaired of their difference,"
            " in logits of the gold tokens; loss of their log-probability. Marked: repaired by later blocks beyond"
            " chance.",
            "is_repaired_by_blocks", "only what later blocks repair", most="size",
        )  # fmt: skip
        shares = Rows("units", [(task, unit) for task in tasks for unit in task.units], (ModelAndTask, UnitEffects))
        caption = "What each place writes towards the right token (direct) and what its removal takes (total)."
        panel, full = ("model", "task", "unit"), max(effect.size for task in tasks for effect in task.effects) or 1.0
        heads: dict[str, Any] = {"only": {"unit": "head"}, "panel": panel, "wide": True, "hue": "gain", "full": full}
        return Part(
            title,
            rows,
            (
                Curves(("direct", "total"), "layer", axis="logits", panel=panel, caption=caption,
                       only={"unit": BRANCHES}),
                Map("direct", "layer", "head", "is_repaired_by_blocks", name="effects-heads",
                    caption=f"{caption} Boxed: repaired by later blocks beyond chance.", **heads),
                Map("total", "layer", "head", name="effects-heads-total", caption="What each head's removal takes.",
                    **heads),
                Curves("influence", "layer", ("model", "task"), name="influence", only={"unit": "block"}),
            ),
            (
                *claims.what_writes_and_what_costs(tasks),
                *claims.what_is_repaired(tasks),
                *claims.which_heads_write(tasks),
            ),
            own=(Folded("Slope and repaired share of every unit", (Table.of(shares),)),),
        )  # fmt: skip

    def _classes(self) -> Part:
        tasks = self.summary.tasks
        several = [task for task in tasks if task.classes and len(task.classes.present) > 1]
        groups = tuple(table.group for task in several if len(task.groups) <= DRAWN_GROUPS for table in task.groups)
        units = tuple(unit for unit in self.summary.study.unit if unit in BRANCHES)
        names = tuple(task.task for task in several)
        rows = Rows(
            "classes",
            [line for task in tasks for line in _lines(task)],
            (ClassLine,),
            "Classes of gold tokens",
            "Share of the gold tokens of a class that are the most probable one, unedited and without a place. Marked:"
            " the class that loses most, where every other class loses less beyond chance.",
            "loses_most",
            "only classes that lose most",
        )

        def cells(group: tuple[str, ...], unit: tuple[str, ...], caption: str = "", name: str = "") -> Map:
            only = {"task": names, "group": group, "unit": unit}
            return Map(
                "drop",
                "layer",
                "gold_tokens",
                "is_lost",
                1.0,
                shown="accuracy",
                only=only,
                caption=caption,
                panel=("model", "task", "unit", "group"),
                name=name,
            )

        return Part(
            "Which tokens of the answer are lost?",
            rows,
            (
                cells(("",), units[:1], "Cells: the share that is still the most probable token, in percent. Boxed:"
                      " fewer than unedited, beyond chance."),
                cells(("",), units[1:], "The same for branches."),
                cells(groups, units[:1], "The same by group of items.", "classes-groups"),
            ),
            claims.which_tokens_are_lost(tasks),
            short="Tokens",
        )  # fmt: skip


def _lines(task: TaskEffects) -> list[ClassLine]:
    tables = (*((task.classes,) if task.classes else ()), *task.groups)
    return [line for table in tables for line in table.lines(task.model, task.task)]
