"""The result of a patching study: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from typing_extensions import override

from lesion.core.result import StudyResult, progress_line
from lesion.plain import visible
from lesion.report import wording
from lesion.report.blocks import Check, Prose
from lesion.report.checks import FEW
from lesion.report.forms import WHOLE_SHARE, decimals
from lesion.report.marks import Map, Mark
from lesion.report.parts import Part
from lesion.report.rows import Rows
from lesion.report.table import Table
from lesion.studies.patching import claims
from lesion.studies.patching.result import Direction, Patched, PatchedCell, PatchedTask, PatchingSummary
from lesion.studies.patching.study import POSITIONS

METHOD = (
    "Every item has a clean and a corrupted prompt of as many tokens, whose right answers differ. Denoising puts values"
    " of the clean run into the corrupted run: what restores the clean answer is sufficient for it there. Noising puts"
    " corrupted values into the clean run: what breaks the answer is necessary for it."
)
READING = (
    "Effect: how far a patch moves the mean logit difference (the clean prompt's answer minus the corrupted prompt's)"
    " from one run to the other: 0 % nothing, 100 % all. The mean change is divided by the mean difference of the two"
    " runs, never item by item, where the difference may be near 0. Below 0 % it moves away, above 100 % beyond.",
    "A head is patched at the input of the attention's output matrix: the other heads and the bias stay as they are in"
    " the run. Heads are named block.head, as 9.6.",
    "The interval is that of a ratio of means over pairs (linearised, Student's quantile). p is Student's test that the"
    " logit difference does not move, corrected by Holm's method over all cells of the model and task.",
    "Before the first differing token both runs are the same, so nothing is patched there. The whole residual stream at"
    " all tokens from there on restores everything by construction and is not measured; so does the last token after"
    " the last block, of which nothing is claimed.",
    "Denoising and noising need not agree: several places may each suffice and none be necessary (an OR), or all be"
    " needed and none suffice (an AND). See Heimersheim and Nanda (2024).",
    "After Meng et al. (2022) and Wang et al. (2023), with the symmetric replacement of tokens and the logit difference"
    " that Zhang and Nanda (2024) recommend. Pairs that share a corrupted item are taken for independent.",
)
CAPTIONS: dict[Direction, str] = {
    "denoise": "Denoising: the share of the mean logit difference that a clean value restores in the corrupted run.",
    "noise": "Noising: the share of the mean logit difference that a corrupted value breaks in the clean run.",
}
FILES: dict[Direction, str] = {"denoise": "denoising", "noise": "noising"}


@dataclass(frozen=True)
class PatchingResult(StudyResult[PatchingSummary]):
    """A patching study. `table` has one row per model, task and patch, as `patching.csv`.

    Attributes:
        evaluated: runs of this call, patched ones and those of both prompts, without those stored before.
        planned: runs that the study consists of; 0 where it was not run now.
    """

    SUMMARY = PatchingSummary
    EYEBROW = "activation patching"
    READING = (METHOD, *READING)

    @property
    def pairs(self) -> pd.DataFrame:
        """One row per model and task, as `pairs.csv`."""
        return Table.of(self._pairs()).frame

    def _pairs(self) -> Rows:
        return Rows(
            "pairs", self.summary.tasks, (PatchedTask,), "Pairs",
            "Clean, corrupted: mean logit difference, the clean prompt's answer minus the corrupted prompt's. Right:"
            " the run prefers the answer to its own prompt. Left out: no corrupted prompt of as many tokens.",
        )  # fmt: skip

    @override
    def parts(self) -> tuple[Part, ...]:
        tasks = self.summary.tasks
        own_claims = (*claims.where_it_is_carried(tasks), *claims.what_writes_it(tasks), *claims.which_heads(tasks))
        names = wording.listed(list(dict.fromkeys(task.task for task in tasks)))
        records = [(task, cell) for task in tasks for cell in task.cells]
        patches = Rows(
            "patching", records, (Patched, PatchedCell), "Patches",
            "Effect: share of the mean logit difference that the patch restores (denoise) or breaks (noise). p:"
            " Student's test over pairs, corrected by Holm's method over all cells of a model and task.", most="size",
        )  # fmt: skip
        return (
            Part(f"Where is the answer to {names} carried?", patches, _maps("denoise"), own_claims, wide=True),
            Part("What breaks the answer?", patches, _maps("noise"), short="Noising", wide=True, table=False),
            Part("The pairs of prompts", self._pairs(), short="Pairs", own=(_examples(tasks),)),
        )

    @property
    @override
    def basis(self) -> str:
        first = self.summary.tasks[0]
        number = decimals(2)
        agree = [WHOLE_SHARE.text(share) for share in (first.clean_right, first.corrupted_right)]
        return (
            f"{wording.counted(first.pairs, 'pair')} of prompts. The model prefers the right answer after"
            f" {agree[0]} of the clean and {agree[1]} of the corrupted prompts (guessing: 50{wording.SPACE}%). The"
            f" clean answer's logit minus the other's is {number.text(first.clean)} after clean prompts and"
            f" {number.text(first.corrupted)} after corrupted ones."
        )

    @override
    def checks(self) -> list[Check]:
        few = [task for task in self.summary.tasks if task.pairs < FEW]
        out = [task for task in self.summary.tasks if task.left_out]
        checks = [
            Check("bad", f"Only {wording.counted(task.pairs, 'pair')} of {task.task}, so chance decides much.")
            for task in few
        ]
        return checks + [
            Check(
                "open",
                f"{wording.counted(len(task.left_out), 'item')} of {task.task} left out: no other prompt has as many"
                " tokens and another answer.",
            )
            for task in out
        ]

    @override
    def done(self) -> list[str]:
        return [progress_line("evaluated", self.evaluated, self.planned, " patched runs")] if self.planned else []


def _maps(direction: Direction) -> tuple[Mark, ...]:
    """The maps of a direction: blocks and branches by class of positions, and heads."""
    what = wording.capital("; ".join(f"{name}: {text}" for name, text in POSITIONS.items()))
    positions = f" {what}." * (direction == "denoise")  # said once
    file = FILES[direction]
    return (
        Map(
            "effect", "layer", "position", "carries", 1.0, hue="share", panel=("model", "task", "kind"), wide=True,
            only={"direction": direction, "place": ("block", "attention", "mlp")}, name=file,
            caption=f"{CAPTIONS[direction]} Boxed: at least half, and beyond chance.{positions}",
        ),
        Map(
            "effect", "layer", "head", "carries", hue="share", panel=("model", "task", "position"), wide=True,
            only={"direction": direction, "place": "head"}, name=f"{file}-heads",
            caption=f"{CAPTIONS[direction]} Boxed: beyond chance.",
        ),
    )  # fmt: skip


def _examples(tasks: tuple[PatchedTask, ...]) -> Prose:
    texts = (
        f"{task.task}: “{visible(task.example.clean)}” ({visible(task.example.answers[0])}) and"
        f" “{visible(task.example.corrupted)}” ({visible(task.example.answers[1])})."
        for task in tasks
    )
    return Prose(items=tuple(texts), quiet=False)
