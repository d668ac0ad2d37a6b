"""The result of a study of effects: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import override

from lesion.core.options import asking
from lesion.core.result import StudyResult
from lesion.core.values import ModelAndTask
from lesion.report import wording
from lesion.report.blocks import Check, Folded
from lesion.report.checks import FEW, untried
from lesion.report.claims import Claim, rule
from lesion.report.marks import Bars, Curves, Map
from lesion.report.parts import Part
from lesion.report.rows import Rows, p_text, subject
from lesion.report.table import Table
from lesion.report.values import WHOLE_SHARE, decimals
from lesion.statistics.paired import ALPHA
from lesion.studies.effects.result import (
    LOGITS,
    SCREENS,
    ClassLine,
    Effect,
    EffectsSummary,
    LensLayer,
    ScreenAgreement,
    TaskEffects,
    UnitEffects,
)

NAMED = 3
"""So many heads, places or classes are named in a sentence."""
PLURALS = {"block": "blocks", "attention": "attention branches", "mlp": "MLPs", "head": "heads"}


@rule
def what_writes_and_what_costs(tasks: Sequence[TaskEffects]) -> Iterable[Claim]:
    """The place of the first unit that writes most, the one that costs most, and those that others read.

    Says: Block L writes most towards the right token, D; most is lost without block M, T. | N of M blocks do more
    through later blocks, which read what is written, than directly.
    Needs: the largest estimates; more through later blocks: a t-test over items, corrected by Holm over the places, at
    .05
    """
    for task in tasks:
        unit = task.units[0].unit
        places = task.of(unit)
        writer = max(places, key=lambda place: place.direct.value or 0.0)
        costly = max(places, key=lambda place: place.total.value or 0.0)
        other = f"that of {wording.place('block', costly.layer)}" if unit in ("attention", "mlp") else costly.place
        lost, total = "it too" if costly is writer else other, decimals(2).text(costly.total)
        writes = f"{wording.capital(_the(writer))} writes most towards {task.aim}, {LOGITS.text(writer.direct)}"
        sentences = [f"{writes}; most is lost without {lost}, {total}."]
        if read := [place for place in places if place.is_read]:
            count = f"{len(read)} of {len(places)} {PLURALS[unit]} {'does' if len(read) == 1 else 'do'}"
            own = f"; {_the(costly)} itself writes {LOGITS.text(costly.direct)}" * (costly in read)
            sentences.append(f"{count} more through later blocks, which read what is written, than directly{own}.")
        rows = tuple((task, place) for place in places if place in (writer, costly, *read))
        yield Claim(tuple(sentences), rows, subject(task, tasks))


@rule
def what_is_repaired(tasks: Sequence[TaskEffects]) -> Iterable[Claim]:
    """Of every unit, whose loss is smaller than what it wrote, and who makes up for it.

    Says: With blocks L switched off, later blocks make up for S of what was written there. | Switching off blocks L
    costs less than was written there; no later block is shown to make up for it. | No repair is shown: of N blocks,
    none is shown to cost less than it writes.
    Needs: a direct effect above 0 by its interval; a t-test over items, corrected by Holm over the places of a unit, at
    .05; the share is measured on items that did not choose the places
    """
    for task in tasks:
        for unit in task.units:
            places = task.of(unit.unit)
            repaired = [place for place in places if place.is_repaired]
            many = f"{len(places)} {PLURALS[unit.unit]}"
            text = f"No repair is shown: of {many}, none is shown to cost less than it writes"
            if by_blocks := [place for place in places if place.is_repaired_by_blocks]:
                share = WHOLE_SHARE.text(unit.by_blocks) if unit.by_blocks else "a part"
                off = f"With {_named(by_blocks)} switched off"
                text = f"{off}, later blocks make up for {share} of what was written there"
            elif repaired:
                cost = f"Switching off {_named(repaired)} costs less than was written there"
                text = f"{cost}; no later block is shown to make up for it"
            yield Claim((f"{text}.",), tuple((task, place) for place in repaired), subject(task, tasks))


def _the(place: Effect) -> str:
    """`block 3`, `the MLP of block 3`, `head 3.5`."""
    return f"the {place.place}" if place.unit in ("attention", "mlp") else place.place


def _named(places: Sequence[Effect]) -> str:
    """`blocks 1, 2 and 5`, `the MLPs of blocks 3 and 4`, `heads 7.3 and 5.1`."""
    unit = places[0].unit
    if len(places) == 1:
        return _the(places[0])
    if unit == "head":
        names = [f"{place.layer}.{place.head}" for place in places[:NAMED]]
        more = [f"{len(places) - NAMED} more"] * (len(places) > NAMED)
        return f"heads{wording.SPACE}{wording.listed([*names, *more])}"
    blocks = wording.numbered("block", [place.layer for place in places])
    return blocks if unit == "block" else f"the {PLURALS[unit]} of {blocks}"


@rule
def which_heads_write(tasks: Sequence[TaskEffects]) -> Iterable[Claim]:
    """The heads that write most towards the right token and against it.

    Says: Most towards the right token write heads H; most the other way heads G.
    Needs: an interval of the direct effect that lies on that side of 0
    """
    for task in tasks:
        parts, rows = [], []
        for side, what in ((1, f"towards {task.aim}"), (-1, "the other way")):
            on_side = [head for head in task.of("head") if head.direct.side == side]
            most = sorted(on_side, key=lambda head: -abs(head.direct.value or 0.0))[:NAMED]
            names = [f"{head.layer}.{head.head} ({LOGITS.text(head.direct)})" for head in most]
            if most:
                parts.append(f"most {what} {'write heads' if len(most) > 1 else 'writes head'} {wording.listed(names)}")
                rows += [(task, head) for head in most]
        if parts:
            yield Claim((f"{wording.capital('; '.join(parts))}.",), tuple(rows), subject(task, tasks))


@rule
def when_it_is_readable(tasks: Sequence[TaskEffects]) -> Iterable[Claim]:
    """After which block the stream, read through the head, has the gold tokens.

    Says: At the end S of the gold tokens are the most probable token; half of that is reached after block L.
    Needs: the estimates of the lens; intervals over items
    """
    for task in tasks:
        shares = [layer.top.value or 0.0 for layer in task.lens]
        last = task.lens[-1]
        reached = next(place for place in range(len(shares)) if min(shares[place:]) >= shares[-1] / 2)
        where = f"after block{wording.SPACE}{reached - 1}" if reached else "before block 0"
        half = f"; half of that is reached {where}" * bool(shares[-1])
        yield Claim(
            (f"At the end {WHOLE_SHARE.text(last.top)} of the gold tokens are the most probable token{half}.",),
            ((task, task.lens[reached]), (task, last)),
            subject(task, tasks),
        )


@rule
def which_tokens_are_lost(tasks: Sequence[TaskEffects]) -> Iterable[Claim]:
    """Per place of the first unit the class of gold tokens that loses most.

    Says: Most is lost of 'C': A falls to B without block L and to D without block M. | Which class of gold tokens loses
    most cannot be told of any of N blocks.
    Needs: signs of whole items flipped, corrected by Holm over places and classes (most: over places, and every other
    class loses less), at .05
    """
    for task in tasks:
        table = task.classes
        if table is None or len(table.present) < 2:
            continue
        unedited = {each.name: WHOLE_SHARE.text(each.accuracy and each.accuracy.value) for each in table.present}
        known = [(place, place.shown) for place in table.of(task.units[0].unit)]
        losses = [(place, shown) for place, shown in known if shown]
        losses.sort(key=lambda each: -(each[1].drop.value or 0.0))
        drops: dict[str, list[str]] = {}
        for place, shown in losses[:NAMED]:
            where = wording.place(place.unit, place.layer, place.head)
            drops.setdefault(shown.name, []).append(f"to {WHOLE_SHARE.text(shown.accuracy)} without {where}")
        texts = [f"most is lost of '{name}': {unedited[name]} falls {wording.listed(to)}" for name, to in drops.items()]
        more = f"; {len(losses) - NAMED} more in the table" * (len(losses) > NAMED)
        many = f"{len(known)} {PLURALS[task.units[0].unit]}"
        none = f"Which class of gold tokens loses most cannot be told of any of {many}."
        rows = tuple(line for line in table.lines(task.model, task.task) if line.loses_most)
        yield Claim((f"{wording.capital('; '.join(texts))}{more}." if texts else none,), rows, subject(task, tasks))


@rule
def what_foretells_the_drops(tasks: Sequence[TaskEffects]) -> Iterable[Claim]:
    """Which cheap measure of the first unit ranks places as the drops of accuracy of a layer study do.

    Says: Over N blocks, the M ranks most like the drops of accuracy. | No cheap measure is shown to rank N blocks as
    the drops of accuracy do.
    Needs: a layer study of the same model and task; a one-sided permutation test of Spearman's ρ at .05
    """
    for task in tasks:
        unit = task.units[0].unit
        own = [each for each in task.agreements if each.unit == unit and each.rho.value is not None]
        if not own:
            continue
        best = max(own, key=lambda each: each.rho.value or 0.0)
        places = f"{best.places} {PLURALS[unit]}"
        text = f"No cheap measure is shown to rank {places} as the drops of accuracy do."
        if any(each.rho.p is not None and each.rho.p <= ALPHA for each in own):
            text = f"Over {places}, the {SCREENS[best.screen]} ranks most like the drops of accuracy."
        names = [f"{SCREENS[each.screen]} ρ{wording.SPACE}{LOGITS(each.rho.value)}, {p_text(each.rho)}" for each in own]
        rows = tuple((task, each) for each in own)
        yield Claim((text, f"{wording.capital('; '.join(names))}."), rows, subject(task, tasks))


READING = (
    "Every number is teacher-forced: the model reads the prompt and the gold solution, and each gold token is judged at"
    " the position before it. Means over the tokens of an item, then over items; intervals by bootstrap over items.",
    "Direct effect: what a place adds to the right token's logit through the final norm and the head, with the norm's"
    " scale of the whole model. Total effect: by how much that logit is lower when the place is switched off. Repaired:"
    " direct minus total (McGrath et al. 2023), by later blocks or because the final norm scales up what is left"
    " (Rushing and Nanda 2024). Below 0, later blocks read what is written and write more of their own.",
    "Logit lens (nostalgebraist 2020): early streams are not in the basis of the head, so a low number there does not"
    " show that nothing is known.",
)
REPAIRED = "repaired by later blocks beyond chance"
DRAWN_GROUPS = 6
"""Of more groups of items, the numbers stand in the table alone."""
BRANCHES = ("block", "attention", "mlp")


@dataclass(frozen=True)
class EffectsResult(StudyResult[EffectsSummary]):
    """A study of effects. `table` has one row per model, task and place, as `effects.csv`."""

    SUMMARY = EffectsSummary
    TEXTLESS = True
    FIRST = ("model", "task", "unit", "layer", "direct", "total")
    EYEBROW = "effects of blocks"
    COUNTED = ("measured", "items")
    READING = READING
    TESTED = (
        "Repair is tested by a t-test over items, with p corrected by Holm's method over the places of a unit."
        " Brackets: {level} bootstrap intervals over items."
    )

    @property
    @override
    def basis(self) -> str:
        first = self.summary.tasks[0]
        against = {"tempting": "that of the tempting token", "mean": "the mean of all tokens"}[first.reference]
        counts = f"{wording.counted(first.items, 'item')} with {wording.counted(first.tokens, 'gold token')}"
        return f"{counts}; the right token's score (logit) is {decimals(2).text(first.logit)} above {against}."

    @override
    def checks(self) -> list[Check]:
        checks, study = [], self.summary.study
        for task in self.summary.tasks:
            known, few = task.lens[-1].top.value or 0.0, task.items < FEW
            text = f"{WHOLE_SHARE.text(known)} of the gold tokens of {task.task} are the unedited model's first choice"
            text += "; with so few items chance decides much" * few
            moods: dict[bool, Literal["good", "bad"]] = {True: "good", False: "bad"}
            checks.append(Check(moods[known > 0.5 and not few], f"{text}."))
        if study.study is None:
            models, tasks = ([choice.name for choice in choices] for choices in (study.models, study.tasks))
            what = "A comparison with lost answers, by --study layers, after"
            checks.append(untried(what, "ablate", models, tasks, "--out layers", asking(study)))
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
                    Curves("top", "layer", ("model", "task"), low=0.0, high=100.0),
                    Curves("log_probability", "layer", ("model", "task")),
                ),
                when_it_is_readable(tasks),
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
                what_foretells_the_drops(tasks),
                short="Screens",
            ),
        )  # fmt: skip

    def _effects(self, title: str) -> Part:
        tasks = self.summary.tasks
        rows = Rows(
            "effects", [(task, effect) for task in tasks for effect in task.effects], (ModelAndTask, Effect), "Effects",
            f"Marked: {REPAIRED}.", "is_repaired_by_blocks", "repaired only", most="size",
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
                    caption=f"{caption} Boxed: {REPAIRED}.", **heads),
                Map("total", "layer", "head", name="effects-heads-total", **heads),
                Curves("influence", "layer", ("model", "task"), name="influence", only={"unit": "block"}),
            ),
            (*what_writes_and_what_costs(tasks), *what_is_repaired(tasks), *which_heads_write(tasks)),
            own=(Folded("Every unit", (Table.of(shares),)),),
        )  # fmt: skip

    def _classes(self) -> Part:
        tasks = self.summary.tasks
        several = [task for task in tasks if task.classes and len(task.classes.present) > 1]
        groups = tuple(table.group for task in several if len(task.groups) <= DRAWN_GROUPS for table in task.groups)
        units = tuple(unit for unit in self.summary.study.unit if unit in BRANCHES)
        names = tuple(task.task for task in several)
        rows = Rows(
            "classes", [line for task in tasks for line in _lines(task)], (ClassLine,), "Gold tokens",
            "Classes: the parts that a task names in its right answers, else the first token and the rest. Share of the"
            " gold tokens of a class that are the most probable one. Marked: the class that loses most,"
            " where every other class loses less beyond chance.", "loses_most", "losing most only",
        )  # fmt: skip

        lost = Map(
            "drop", "layer", "gold_tokens", "is_lost", 1.0, shown="accuracy", panel=("model", "task", "unit", "group"),
            only={"task": names, "group": ("", *groups), "unit": units},
            caption="Cells: the share that is still the most probable token, in percent. Boxed: fewer than unedited,"
            " beyond chance.",
        )  # fmt: skip
        return Part("Which tokens of the answer are lost?", rows, (lost,), which_tokens_are_lost(tasks), short="Tokens")


def _lines(task: TaskEffects) -> list[ClassLine]:
    tables = (*((task.classes,) if task.classes else ()), *task.groups)
    return [line for table in tables for line in table.lines(task.model, task.task)]
