"""The result of a memory: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from typing_extensions import override

from lesion.core.result import StudyResult
from lesion.report import wording
from lesion.report.blocks import Check
from lesion.report.marks import Bars, Curves, Map
from lesion.report.parts import Part
from lesion.report.rows import Rows
from lesion_labs.memory import claims
from lesion_labs.memory.result import KeptPart, MemorySummary, Moment, Power, Size

READING = (
    "Logits of input i are W_U W W_E e_i with frozen codes; W is trained from zero by full-batch gradient descent on"
    " the expected cross-entropy. The target is f*(i) with probability 1 − α and one common class with probability α.",
    "With α below one half the full memory's best guess is right already: truncation then changes probability and loss."
    " Equal logits are chosen among at random.",
    "A truncation shows something about the spectrum only where it does better than a random projection of the same"
    " rank and than keeping nothing.",
    "The first step is that of noisy in-context recall at zero weights and uniform attention: the gradient of the"
    " feed-forward from the trigger q to the noise token τ, and of the attention-value matrix from a token to itself"
    " (recall) and to τ; each over its mean towards the other tokens. All recall associations together are a larger"
    " gradient than one of them.",
)
TRIGGERS = (
    "Trigger: as frequent at any V (constant), first of π ∝ 1/rank (zipf), as rare as any token (uniform). Last two:"
    " exact, between the two largest vocabularies."
)
HALF = 0.5


class MemoryResult(StudyResult[MemorySummary]):
    """An associative memory with noise: its truncations, its training, other sizes, and the first step of recall."""

    SUMMARY = MemorySummary
    EYEBROW = "associative memory"
    READING = READING

    @property
    def kept(self) -> list[KeptPart]:
        """Every part of the spectrum and every control; everything and nothing, the same from both sides, once."""
        rank, best = self.summary.rank, self.summary.best
        return [
            KeptPart.of_row(row, row is best)
            for row in self.summary.truncated
            if row.control or (row.rank and (row.rank < rank or row.side == "top"))
        ]

    @override
    def parts(self) -> tuple[Part, ...]:
        summary, kept, step = self.summary, self.kept, self.summary.first_step
        truncations = Rows(
            "truncations", kept, (KeptPart,), "Truncations of W", "Means over draws [lowest, highest].", marked="best",
            brief=("kind", "rank", "p_noise", "clean_accuracy", "clean_loss"),
        )  # fmt: skip
        sides = {"kind": ("largest", "smallest", "random")}
        training = Rows("training", summary.training, (Moment,), "Over training")
        sizes = Rows(
            "sizes", summary.sizes, (Size,), "Other sizes",
            "Ratio: σ of the noise over the largest other σ, mean over draws of codes. Losses: after the last step.",
        )  # fmt: skip
        singular = ("noise_value", "largest_other", "smallest_other")
        return (
            Part(
                "Does truncation remove the noise?", truncations,
                (
                    Curves("p_noise", "rank", "kind", low=0.0, high=100.0, only=sides),
                    Curves("clean_accuracy", "rank", "kind", low=0.0, high=100.0, only=sides),
                    Curves("clean_loss", "rank", "kind", only=sides),
                ),
                claims.what_truncation_does(summary.full, kept),
            ),
            Part(
                "Where in the spectrum does the noise lie?", training,
                (
                    Curves(singular, "step", log=True, axis="singular value"),
                    Curves(("p_noise", "p_correct"), "step", log=True, axis="mean probability, %"),
                ),
                claims.where_the_noise_lies(summary), short="Spectrum",
            ),
            Part(
                "Which side holds the noise at other sizes?", sizes,
                tuple(
                    Map(
                        f"{when}_strength", "noise", "name", hue="share", shown=f"{when}_ratio", panel="codes",
                        caption=f"σ of the noise over the largest other σ after the {when} step; above 1 the noise is"
                        " on top. m classes, one input each unless said.",
                    )
                    for when in ("last", "first")
                ),
                (*claims.what_the_side_depends_on(summary.sizes), *claims.which_cut_cleans(summary.sizes)),
                short="Sizes",
            ),
            Part(
                "What does the first gradient step learn?",
                Rows("powers", step.powers, (Power,), "Powers of the vocabulary V", TRIGGERS),
                (Bars("batches", "signal", caption=f"With α {step.noise:g}; bootstrap intervals over batches."),),
                claims.what_is_learned_first(step), short="First step",
            ),
        )  # fmt: skip

    @property
    @override
    def basis(self) -> str:
        study = self.summary.study
        return (
            f"{study.classes} classes,"
            f" {wording.counted(study.inputs, 'input')}, noise α {study.noise:g};"
            f" {wording.counted(study.draws, 'draw')} of each random control."
        )

    @override
    def checks(self) -> list[Check]:
        checks, noise, best = [], self.summary.study.noise, self.summary.best
        rows = [row for row in self.summary.truncated if best and (row.control, row.rank) == ("random", best.rank)]
        if best and rows:
            if best.clean_loss.mean < rows[0].clean_loss.low:
                checks.append(Check("good", "Better than every random projection of that rank."))
            else:
                checks.append(Check("bad", "Not better than every random projection of that rank."))
        if noise == 0:
            checks.append(Check("bad", "Without noise nothing has to be forgotten."))
        if noise == HALF:
            checks.append(Check("bad", "At α .5 the full memory ties: judge by probability and loss."))
        return checks
