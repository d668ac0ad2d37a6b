"""The result of a patching study: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from typing_extensions import override

from lesion.core.options import asking
from lesion.core.result import StudyResult
from lesion.core.values import ModelAndTask
from lesion.plain import visible
from lesion.report import wording
from lesion.report.blocks import Check, Prose
from lesion.report.checks import FEW, untried
from lesion.report.claims import Claim, rule
from lesion.report.marks import Map, Mark
from lesion.report.parts import Part
from lesion.report.rows import Rows, subject
from lesion.report.values import WHOLE_SHARE, decimals
from lesion.studies.patching.result import HALF, Direction, PatchedCell, PatchedTask, PatchingSummary
from lesion.studies.patching.study import POSITIONS, Kind

NAMED = 3
"""So many heads are named in a sentence."""


@rule
def where_it_is_carried(tasks: Sequence[PatchedTask]) -> Iterable[Claim]:
    """Over which blocks the residual stream of which token carries the answer.

    Says: At least half of the answer is restored at the last token (blocks L). | No kind of position is shown to
    restore half of the answer. | Where the answer is carried cannot be told: why. | Most is restored at the last token
    after block L: E.
    Needs: an effect whose interval is at 50 % or above, and which is beyond chance (Student's test over pairs,
    corrected by Holm's method over all cells of the model and task, at .05); a logit difference above 0 by its
    interval, and more than half of the clean runs that prefer the right token. The last token after the last block
    restores all by construction and does not count
    """
    for task in tasks:
        about = subject(task, tasks)
        if not task.told:
            why = "the corruption is not shown to change the logit difference"
            if task.clean_right <= HALF:
                why = f"only {WHOLE_SHARE.text(task.clean_right)} of the clean runs prefer the right token"
            yield Claim((f"Where the answer is carried cannot be told: {why}.",), (task,), about)
            continue
        end = (task.blocks - 1, "last")  # from there the answer itself is read
        stream = [cell for cell in task.of("denoise", "block") if (cell.layer, cell.position) != end]
        carrying = [cell for cell in stream if cell.carries]
        layers: dict[str, list[int]] = {}
        for cell in carrying:
            layers.setdefault(cell.position, []).append(cell.layer)
        order = sorted(layers, key=lambda position: sorted(layers[position]))
        places = [f"{POSITIONS[name]} ({wording.numbered('block', layers[name])})" for name in order]
        first = "No kind of position is shown to restore half of the answer."
        if places:
            first = f"At least half of the answer is restored at {wording.listed(places)}."
        if best := _largest(carrying or stream):
            rows = tuple((task, cell) for cell in carrying or [best])
            most = f"Most is restored at {POSITIONS[best.position]} after block{wording.SPACE}{best.layer}"
            yield Claim((first, f"{most}: {_effect(best, task)}."), rows, about)


def _largest(cells: Sequence[PatchedCell]) -> PatchedCell | None:
    return max(cells, key=lambda cell: cell.effect.value or 0.0, default=None)


def _effect(cell: PatchedCell, task: PatchedTask) -> str:
    """The effect; of one that is not beyond chance that it is not."""
    text = WHOLE_SHARE.text(cell.effect)
    if cell.is_shown:
        return text
    p = wording.p_value(1.0 if cell.effect.p_corrected is None else cell.effect.p_corrected)
    pairs, patches = wording.counted(task.pairs, "pair"), f"{len(task.cells):,} patches"
    return f"{text}, which {pairs} do not show to be beyond chance (p {p}, corrected for {patches})"


@rule
def what_writes_it(tasks: Sequence[PatchedTask]) -> Iterable[Claim]:
    """The attention and the MLP that restore most at one class of positions.

    Says: Of what a single attention (MLP) adds, that of block L at the last token restores most: E.
    Needs: the largest effect; whether it is beyond chance: Student's test over pairs, corrected by Holm's method over
    all cells of the model and task, at .05
    """
    branches: tuple[Kind, ...] = ("attention", "mlp")
    for task, kind in ((task, kind) for task in tasks if task.told for kind in branches):
        if best := _largest([cell for cell in task.of("denoise", kind) if cell.position != "all"]):
            text = (
                f"Of what a single {wording.UNIT_NAMES[kind]} adds, that of block{wording.SPACE}{best.layer} at"
                f" {POSITIONS[best.position]} restores most: {_effect(best, task)}."
            )
            yield Claim((text,), ((task, best),), subject(task, tasks))


@rule
def which_heads(tasks: Sequence[PatchedTask]) -> Iterable[Claim]:
    """The heads that restore and that take away most, each at its strongest class of positions but `all`.

    Says: N of M single heads restore a share (take a share away) beyond chance, most H. | No single head of M is shown
    to move the difference.
    Needs: Student's test over pairs, corrected by Holm's method over all cells of the model and task, at .05
    """
    for task in (task for task in tasks if task.told):
        every = task.of("denoise", "head")
        cells = [cell for cell in every if cell.position != "all"] or list(every)
        heads = len({(cell.layer, cell.head) for cell in cells})
        sentences, rows = [], []
        for sign, verb in ((1, "restore a share"), (-1, "take a share away")):
            own = [cell for cell in cells if cell.is_shown and sign * (cell.effect.value or 0.0) > 0]
            largest = sorted(own, key=lambda cell: -cell.size)[:NAMED]
            if largest:
                moved, named = len({(cell.layer, cell.head) for cell in own}), wording.listed(list(map(_head, largest)))
                sentences.append(f"{moved} of {heads} single heads {verb} beyond chance, most {named}.")
                rows += [(task, cell) for cell in largest]
        if cells:
            none = f"No single head of {heads} is shown to move the difference."
            yield Claim(tuple(sentences or [none]), tuple(rows) or (task,), subject(task, tasks))


def _head(cell: PatchedCell) -> str:
    return f"{cell.layer}.{cell.head} at {POSITIONS[cell.position]} ({WHOLE_SHARE.text(cell.effect)})"


READING = (
    "Every item has a clean and a corrupted prompt of as many tokens, whose right answers differ. Denoising puts values"
    " of the clean run into the corrupted run: what restores the clean answer is sufficient for it there. Noising puts"
    " corrupted values into the clean run: what breaks the answer is necessary for it. The two need not agree"
    " (Heimersheim and Nanda 2024).",
    "Effect: how far a patch moves the mean logit difference (the clean prompt's answer minus the corrupted prompt's)"
    " from one run to the other: 0 % nothing, 100 % all; below 0 % it moves away, above 100 % beyond.",
    "The whole residual stream at all tokens from the first differing one on restores everything by construction and is"
    " not measured; so does the last token after the last block, of which nothing is claimed.",
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
    FIRST = ("direction", "place", "layer", "position", "effect", "p_corrected")
    EYEBROW = "activation patching"
    COUNTED = ("evaluated", "patched runs")
    READING = READING
    TESTED = (
        "Effects are tested by Student's test over pairs, with p corrected by Holm's method over all cells of a model"
        " and task. Brackets: {level} intervals."
    )

    @override
    def parts(self) -> tuple[Part, ...]:
        tasks = self.summary.tasks
        own_claims = (*where_it_is_carried(tasks), *what_writes_it(tasks), *which_heads(tasks))
        names = wording.listed(list(dict.fromkeys(task.task for task in tasks)))
        records = [(task, cell) for task in tasks for cell in task.cells]
        patches = Rows("patching", records, (ModelAndTask, PatchedCell), "Patches", most="size")
        pairs = Rows(
            "pairs", tasks, (PatchedTask,), "Pairs",
            "Clean, corrupted: mean logit difference, the clean prompt's answer minus the corrupted prompt's. Right:"
            " the run prefers the answer to its own prompt. Left out: no corrupted prompt of as many tokens.",
        )  # fmt: skip
        maps = (*_maps("denoise"), *_maps("noise"))
        return (
            Part(f"Where is the answer to {names} carried?", patches, maps, own_claims, wide=True),
            Part("The pairs of prompts", pairs, short="Pairs", own=(_examples(tasks),)),
        )

    @property
    @override
    def basis(self) -> str:
        first, number = self.summary.tasks[0], decimals(2)
        right = [WHOLE_SHARE.text(share) for share in (first.clean_right, first.corrupted_right)]
        return (
            f"{wording.counted(first.pairs, 'pair')} of prompts; the right answer is preferred after {right[0]} of the"
            f" clean and {right[1]} of the corrupted ones (guessing: 50{wording.SPACE}%). Mean logit difference:"
            f" {number.text(first.clean)} clean, {number.text(first.corrupted)} corrupted."
        )

    @override
    def checks(self) -> list[Check]:
        checks, study = [], self.summary.study
        for task in self.summary.tasks:
            if task.told:
                text = f"Clean and corrupted prompts of {task.task} get different answers, so there is one to restore."
                checks.append(Check("good", text))
            if task.pairs < FEW:
                text = f"Only {wording.counted(task.pairs, 'pair')} of {task.task}, so chance decides much."
                checks.append(Check("bad", text))
            if task.left_out:
                items = f"{wording.counted(len(task.left_out), 'item')} of {task.task}"
                text = f"{items} left out: no other prompt has as many tokens and another answer."
                checks.append(Check("open", text))
        if "head" not in study.unit:
            models, tasks = ([choice.name for choice in choices] for choices in (study.models, study.tasks))
            checks.append(untried("Heads one by one", "patch", models, tasks, "--unit head --out heads", asking(study)))
        return checks


def _maps(direction: Direction) -> tuple[Mark, ...]:
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
