"""The results of the recall laboratory: their rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from lesion.core.result import StudyResult
from lesion.core.values import Summary
from lesion.plain import quoted
from lesion.report import wording
from lesion.report.blocks import Check, entries
from lesion.report.claims import Claim, rule
from lesion.report.marks import Bars, Curves, Mark
from lesion.report.parts import Part
from lesion.report.rows import Rows, p_text, subject
from lesion.report.values import CHANGE, SHARE, decimals
from lesion_labs.recall import result
from lesion_labs.recall.model import Recipe
from lesion_labs.recall.result import KEPT, LOSS, Difference, Group

MOVED = ("p_noise", "clean_accuracy")
STEP = decimals(0)
APART = 0.05
"""Probabilities closer than this are called equal: learning rates above zero move p(τ) by as much."""


@rule
def what_cutting_does(groups: Sequence[Group]) -> Iterable[Claim]:
    """What deleting the matrix that writes does, and dropping its largest component alone.

    Says: Without M, the noise token's probability on clean sequences goes from A to B.
    Needs: the full model and the model with the matrix deleted, on the same sequences; ± is between seeds
    """
    for group in groups:
        matrix = group.central[-1]  # the other half of an MLP deleted leaves the same model
        full, deleted, without = group.full, group.cut(matrix, "deletion"), group.cut(matrix, "drop-top")
        noise, accuracy = ([SHARE.text(each.of(name)) for each in (full, deleted, without)] for name in MOVED)
        losses = f"{LOSS.text(full.noisy_loss)} to {LOSS.text(deleted.noisy_loss)}"
        sentences = (
            f"Without {matrix}, the noise token's probability on clean sequences goes from {noise[0]} to {noise[1]}.",
            f"Accuracy goes from {accuracy[0]} to {accuracy[1]}, loss on noisy sequences from {losses}.",
            f"Without its largest component alone, the probability is {noise[2]} and accuracy {accuracy[2]}.",
        )
        yield Claim(sentences, ((group.recipe, deleted), (group.recipe, without)), _subject(group, groups))


@rule
def beyond_random(groups: Sequence[tuple[Group, Sequence[Difference]]]) -> Iterable[Claim]:
    """Whether keeping the top of a matrix leaves another p(τ) than a random projection of the same rank.

    Says: Keeping the top S of M leaves clearly less (more) of the noise than random projections of the same rank. |
    Keeping the top of M is not shown to differ from random projections of the same rank. | One training cannot tell
    whether the top of M differs from random projections.
    Needs: Student's test over seeds, corrected by Holm's method over all comparisons of the group, at .05, and a
    difference of at least 5 points
    """
    alone = [group for group, _ in groups]
    for group, compared in groups:
        for matrix in group.central:
            of_matrix = [each for each in compared if each.matrix == matrix]
            if not of_matrix:
                continue
            largest = max(of_matrix, key=lambda each: abs(each.difference.value or 0.0))
            clear = [
                each for each in of_matrix if each.difference.is_shown and abs(each.difference.value or 0.0) >= APART
            ]
            sentences = [f"Keeping the top of {matrix} leaves {_clearly(clear)}."]
            if not clear:
                none = f"Keeping the top of {matrix} is not shown to differ from random projections of the same rank."
                single = f"One training cannot tell whether the top of {matrix} differs from random projections."
                sentences = [single if len(group.seeds) == 1 else none, f"The largest difference is {_text(largest)}."]
            rows = tuple((group.recipe, each) for each in clear or [largest])
            yield Claim(tuple(sentences), rows, _subject(group, alone))


def _clearly(clear: Sequence[Difference]) -> str:
    """`clearly less of the noise than random projections at 10 % (−20.0 points …)`."""
    parts = []
    for word, sign in (("less", -1), ("more", 1)):
        on_side = [each for each in clear if sign * (each.difference.value or 0.0) > 0]
        if on_side:
            strongest = max(on_side, key=lambda each: abs(each.difference.value or 0.0))
            shares = wording.listed([KEPT.text(each.keep) for each in on_side])
            parts.append(f"clearly {word} of the noise than random projections at {shares} (most {_text(strongest)})")
    return wording.listed(parts)


def _text(each: Difference) -> str:
    estimate = each.difference
    tested = f", {p_text(estimate)}" if estimate.p is not None else ""
    return f"{CHANGE.text(estimate)} at {KEPT.text(each.keep)}{tested}"


@rule
def full_model(groups: Sequence[Group]) -> Iterable[Claim]:
    """What the model with nothing cut predicts on clean sequences.

    Says: The full model gives the noise token P (trained with α) and the right answer Q.
    Needs: the trained model on sequences without noise
    """
    for group in groups:
        noise, trained = SHARE.text(group.full.p_noise), SHARE.text(group.recipe.noise)
        right = f"the right answer {SHARE.text(group.full.p_correct)}"
        text = f"The full model gives the noise token {noise} (trained with {trained}) and {right}."
        yield Claim((text,), (group.recipe,), _subject(group, groups))


@rule
def what_comes_first(groups: Sequence[Group]) -> Iterable[Claim]:
    """From which step on a feed-forward prefers the noise, and attention recalls.

    Says: M prefers τ after q from step S on. | No feed-forward comes to prefer τ after q by itself in every seed. |
    Attention recalls from step S on. | Attention recalls in N of M seeds.
    Needs: a measured step from which on the feed-forward's logit of τ is the largest, or the second head has more than
    half of its mass on ȳ, up to the last step; margins that were positive before training do not count
    """
    for group in groups:
        yield Claim(tuple(_phases(group)), (group.recipe,), _subject(group, groups))


def _phases(group: Group) -> Iterable[str]:
    margins, attention = group.phases.margins, group.phases.attention
    always = {name: phase.steps.mean for name, phase in margins.items() if phase.steps and phase.came == phase.of}
    first = min(always, key=lambda name: always[name], default="")
    none = "No feed-forward comes to prefer τ after q by itself in every seed."
    yield f"{first} prefers τ after q from step {STEP.text(margins[first].steps)} on." if first else none
    seeds = f"in {attention.came} of {wording.counted(attention.of, 'seed')}"
    if attention.came == attention.of:
        seeds = f"from step {STEP.text(attention.steps)} on"
    yield f"Attention recalls {seeds}."


def _subject(group: Group, groups: Sequence[Group]) -> str:
    return subject(group.recipe, [each.recipe for each in groups])


READING = (
    "In each sequence the trigger q is followed by an answer ȳ of its own, or with probability α by the noise token τ"
    " (Chen, Bruna and Bietti 2025). Trained with noise, tested without it: p(τ) should be 0 there.",
    "A random projection of the same rank shows what less of the matrix does, whichever part is left; deletion is what"
    " both tend to. ± is one standard deviation between seeds.",
)
LABELS = ("noise", "feed_forward", "optimiser", "steps", "vocabulary", "width")
"""What tells groups of seeds apart."""


class RecallResult(StudyResult[Any]):
    """The trainings of a study, gathered over seeds. `table` has one row per group of seeds and replaced matrix."""

    SUMMARY: ClassVar[type[Summary]] = result.RecallStudySummary
    EYEBROW = "recall laboratory"
    TEXTLESS = True
    READING = READING

    @classmethod
    @override
    def recall(cls, folder: Path) -> RecallResult | None:
        """The result of a folder: of a study or of a single training (`TrainingResult`)."""
        recalled: Any = super().recall(folder)
        if recalled is None and cls is RecallResult:
            recalled = TrainingResult.recall(folder)
        return recalled

    @property
    def groups(self) -> tuple[Group, ...]:
        """The trainings that differ in their seed alone, together."""
        return self.summary.groups

    @override
    def parts(self) -> tuple[Part, ...]:
        every = self.groups
        compared = [(group, result.differences(group)) for group in every]
        cuts = Rows(
            "recall", [(group.recipe, group, row) for group in every for row in _central_first(group)],
            (Recipe, Group, result.CutSpreads),
            "Truncations", "On clean sequences except for the noisy loss.",
            brief=("noise", "matrix", "kind", "keep", "p_noise", "clean_accuracy"),
        )  # fmt: skip
        beyond = Rows(
            "beyond-random", [(group.recipe, row) for group, rows in compared for row in rows], (Recipe, Difference),
            "Beyond random projections",
            "p(τ) with the largest components kept less that behind random projections of the same rank of the same"
            " model. Interval and p: Student's, over seeds; p corrected by Holm's method over the group.",
        )  # fmt: skip
        full = Rows(
            "full-model", [(group.recipe, group.full) for group in every], (Recipe, result.Spreads), "The full model"
        )
        writers = list(dict.fromkeys(group.central[-1] for group in every))
        readers = [matrix for group in every for matrix in group.central[:-1]]
        kept = (*_kept(writers), *_kept(readers))
        return (
            Part(
                f"Does cutting {wording.listed(writers)} remove the noise?", cuts, kept,
                what_cutting_does(every),
            ),
            Part(
                "Does the top hold more of the noise than a random part?", beyond,
                (Bars("difference", ("keep",), panel=(*LABELS, "matrix")),), beyond_random(compared),
                short="Beyond random",
            ),
            Part(
                "Does the full model follow the noise?", full,
                (Curves("p_noise", "noise", LABELS[1:]),) if len({group.recipe.noise for group in every}) > 1 else (),
                full_model(every), short="Full model",
            ),
            Part("What is learned first?", claims=what_comes_first(every), short="Phases"),
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
        if any(abs(group.recipe.noise - 0.5) < APART for group in every):
            checks.append(Check("bad", "With α near .5 both answers tie: judge by p(τ) and loss, not by accuracy."))
        if any(group.recipe.own_answers for group in every):
            checks.append(Check("open", "The right answer may be τ itself in these sequences."))
        return checks


class TrainingResult(RecallResult):
    """A single training and its truncations; `summary` is a `RecallSummary`."""

    SUMMARY = result.RecallSummary

    @property
    @override
    def groups(self) -> tuple[Group, ...]:
        return tuple(result.groups([self.summary]))

    @override
    def parts(self) -> tuple[Part, ...]:
        summary: result.RecallSummary = self.summary
        *others, first = super().parts()
        points = [(point, point.attention) for point in summary.training if point.step > 0]
        training = Rows("training", points, (result.Point, result.Attention), "Over training")
        spectra = Rows(
            "spectra", [(result.MatrixName(matrix=name), spectrum) for name, spectrum in summary.spectra.items()],
            (result.MatrixName, result.Spectrum), "Spectra",
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
        summary: result.RecallSummary = self.summary
        tables, floor = _language(summary.language), f"{summary.floor:.3f} nats"
        recipe = entries(summary.recipe.model_dump(mode="json"))
        return (*recipe, ("tables", tables), ("least noisy loss", floor))


def _central_first(group: Group) -> list[result.CutSpreads]:
    """The rows of a group, those of the matrix that writes first."""
    order = list(reversed(group.central))
    return sorted(group.truncated, key=lambda row: order.index(row.matrix) if row.matrix in order else len(order))


def _kept(matrices: Sequence[str]) -> tuple[Mark, ...]:
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


def _language(language: result.LanguageFacts) -> str:
    """Where the tables come from, and which tokens q and τ are; characters stand in quotes, a space is seen then."""
    trigger, noise = (
        quoted(token) if isinstance(token, str) else str(token) for token in (language.trigger, language.noise_token)
    )
    share = SHARE.text(language.trigger_share)
    return f"{language.source}; q is {trigger} ({share} of all tokens), τ is {noise}"
