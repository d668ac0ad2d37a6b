"""The results of the recall laboratory: their rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from typing_extensions import override

from lesion.core.result import StudyResult
from lesion.core.values import Summary
from lesion.plain import quoted, visible
from lesion.report import wording
from lesion.report.blocks import Check, entries
from lesion.report.forms import SHARE
from lesion.report.marks import Bars, Curves, Mark
from lesion.report.parts import Part
from lesion.report.rows import Rows
from lesion_labs.recall import claims
from lesion_labs.recall.recipe import Recipe
from lesion_labs.recall.result import (
    Attention,
    CutSpreads,
    Difference,
    Group,
    LanguageFacts,
    MatrixName,
    Point,
    RecallStudySummary,
    RecallSummary,
    Spectrum,
    Spreads,
)
from lesion_labs.recall.seeds import differences, groups

R = TypeVar("R", bound="RecallResult")

READING = (
    "In each sequence the trigger q is followed by an answer ȳ of its own, or with probability α by the noise token τ"
    " (Chen, Bruna and Bietti 2025). Trained with noise, tested without it: p(τ) should be 0 there.",
    "Truncation keeps the best approximation of a lower rank. A random projection of the same rank shows what less of"
    " the matrix does, whichever part is left; deletion is what both tend to.",
    "± is one standard deviation between seeds; random projections are first averaged over the draws of a seed. The"
    " noisy loss is the loss on sequences with noise: what a truncation costs there.",
)
LABELS = ("noise", "feed_forward", "optimiser", "steps", "vocabulary", "width")
"""What tells groups of seeds apart."""
HALF = 0.5


class RecallResult(StudyResult[Any]):
    """The trainings of a study, gathered over seeds. `table` has one row per group of seeds and replaced matrix."""

    SUMMARY: ClassVar[type[Summary]] = RecallStudySummary
    EYEBROW = "recall laboratory"
    READING = READING

    @classmethod
    @override
    def recall(cls: type[R], folder: Path) -> R | None:
        """The result of a folder: of a study or of a single training (`TrainingResult`)."""
        result: Any = super().recall(folder)
        if result is None and cls is RecallResult:
            result = TrainingResult.recall(folder)
        return result

    @property
    def groups(self) -> tuple[Group, ...]:
        """The trainings that differ in their seed alone, together."""
        summary: RecallStudySummary = self.summary
        return summary.groups

    @override
    def parts(self) -> tuple[Part, ...]:
        every = self.groups
        compared = [(group, differences(group)) for group in every]
        cuts = Rows(
            "recall", [(group.recipe, group, row) for group in every for row in _central_first(group)],
            (Recipe, Group, CutSpreads),
            "Truncations", "On clean sequences except for the noisy loss.",
            brief=("noise", "matrix", "kind", "keep", "p_noise", "clean_accuracy"),
        )  # fmt: skip
        beyond = Rows(
            "beyond-random", [(group.recipe, row) for group, rows in compared for row in rows], (Recipe, Difference),
            "Beyond random projections",
            "p(τ) with the largest components kept less that behind random projections of the same rank of the same"
            " model. Interval and p: Student's, over seeds; p corrected by Holm's method over the group.",
        )  # fmt: skip
        full = Rows("full-model", [(group.recipe, group.full) for group in every], (Recipe, Spreads), "The full model")
        writers = list(dict.fromkeys(group.central[-1] for group in every))
        readers = [matrix for group in every for matrix in group.central[:-1]]
        kept = (*_kept(writers), *_kept(readers))
        return (
            Part(
                f"Does cutting {wording.listed(writers)} remove the noise?", cuts, kept,
                claims.what_cutting_does(every),
            ),
            Part(
                "Does the top hold more of the noise than a random part?", beyond,
                (Bars("difference", ("keep",), panel=(*LABELS, "matrix")),), claims.beyond_random(compared),
                short="Beyond random",
            ),
            Part(
                "Does the full model follow the noise?", full,
                (Curves("p_noise", "noise", LABELS[1:]),) if len({group.recipe.noise for group in every}) > 1 else (),
                claims.full_model(every), short="Full model",
            ),
            Part("What is learned first?", claims=claims.what_comes_first(every), short="Phases"),
        )  # fmt: skip

    @property
    @override
    def basis(self) -> str:
        seeds = [len(group.seeds) for group in self.groups]
        trainings = wording.counted(sum(seeds), "training")
        return f"{trainings}, {wording.span(min(seeds), max(seeds))} for each recipe; sequences without noise."

    @override
    def checks(self) -> list[Check]:
        every, checks = self.groups, []
        if any(not group.recipe.steps for group in every):
            checks.append(Check("bad", "Nothing was trained: the numbers are those of random weights."))
        if any(len(group.seeds) == 1 for group in every):
            checks.append(Check("open", "One seed cannot tell chance from effect. Try lesion lab recall --seed 0,1,2."))
        if any(abs(group.recipe.noise - HALF) < claims.APART for group in every):
            checks.append(Check("bad", "With α near .5 both answers tie: judge by p(τ) and loss, not by accuracy."))
        if any(group.recipe.own_answers for group in every):
            checks.append(Check("open", "The right answer may be τ itself in these sequences."))
        return checks


class TrainingResult(RecallResult):
    """A single training and its truncations; `summary` is a `RecallSummary`."""

    SUMMARY = RecallSummary

    @property
    @override
    def groups(self) -> tuple[Group, ...]:
        return tuple(groups([self.summary]))

    @override
    def parts(self) -> tuple[Part, ...]:
        summary: RecallSummary = self.summary
        *others, first = super().parts()
        points = [(point, point.attention) for point in summary.training if point.step > 0]
        training = Rows("training", points, (Point, Attention), "Over training")
        spectra = Rows(
            "spectra", [(MatrixName(matrix=name), spectrum) for name, spectrum in summary.spectra.items()],
            (MatrixName, Spectrum), "Spectra",
            "The cosine is between the first left singular vector and the logit direction of τ (its row of W_U less the"
            f" mean row); of random vectors it would be about {summary.recipe.width**-0.5:.2f}.",
        )  # fmt: skip
        return (
            *others,
            Part(first.title, training, _over_training(), first.claims, short=first.short),
            Part("What training did to each spectrum", spectra, short="Spectra"),
        )

    @property
    @override
    def basis(self) -> str:
        questions = self.summary.questions
        return (
            f"One training of {wording.counted(self.summary.recipe.steps, 'step')};"
            f" {questions.clean:,} questions without noise and {questions.noisy:,} with it."
        )

    @property
    @override
    def facts(self) -> tuple[tuple[str, str], ...]:
        summary: RecallSummary = self.summary
        unused = {"momentum", "weight_decay"} if summary.recipe.optimiser == "adam" else set()
        machine, shares = summary.machine, summary.own_answers
        own = "never" if shares is None else f"q {SHARE.text(shares.clean.trigger)}, τ {SHARE.text(shares.clean.noise)}"
        return (
            *entries(summary.recipe.model_dump(mode="json", exclude=unused)),
            ("tables", _language(summary.language)),
            ("least noisy loss", f"{summary.floor:.3f} nats"),
            ("questions whose answer is q or τ", own),
            ("machine", visible(f"{machine.device} ({machine.name}), torch {machine.torch}, {machine.seconds} s")),
        )


def _central_first(group: Group) -> list[CutSpreads]:
    """The rows of a group, those of the matrix that writes first."""
    order = list(reversed(group.central))
    return sorted(group.truncated, key=lambda row: order.index(row.matrix) if row.matrix in order else len(order))


def _kept(matrices: Sequence[str]) -> tuple[Mark, ...]:
    """Measures against the share of the rank of some matrices that is kept."""
    caption = (
        "Against the share of the rank that is kept (logarithmic). Where largest kept and random projections coincide,"
        " less of the matrix is what helps, not which part."
    )
    return tuple(
        Curves(
            measure, "keep", "kind", log=True, panel=(*LABELS, "matrix"), caption=caption,
            lines={"nothing cut": f"full_{measure}"}, only={"is_share": True, "matrix": matrices},
        )
        for measure in ("p_noise", "clean_accuracy", "noisy_loss")
    )  # fmt: skip


def _over_training() -> tuple[Mark, ...]:
    return (
        Curves(("p_noise", "p_correct", "clean_accuracy"), "step", log=True, axis="clean sequences, %"),
        Curves(("first_margin", "second_margin", "both_margin"), "step", log=True, axis="logit of τ over the next best",
               caption="Margins are of W_U F(W_E q), for a trigger without position."),
        Curves(("answer", "noisy_answer", "noisy_noise", "previous"), "step", log=True, axis="mean attention mass, %"),
        Curves(("clean_loss", "noisy_loss"), "step", log=True, axis="loss, nats"),
    )  # fmt: skip


def _language(language: LanguageFacts) -> str:
    """Where the tables come from, and which tokens q and τ are; characters stand in quotes, a space is seen then."""
    trigger, noise = (
        quoted(token) if isinstance(token, str) else str(token) for token in (language.trigger, language.noise_token)
    )
    share = SHARE.text(language.trigger_share)
    return f"{language.source}; q is {trigger} ({share} of all tokens), τ is {noise}"
