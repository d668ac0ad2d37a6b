"""The result of an isolation: selections of weights, how far repeats agree, and what was scored."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from lesion.core.values import Summary
from lesion.report import wording
from lesion.report.rows import Row, column, derived
from lesion.report.values import Estimate, Form, Number, Value, decimals
from lesion.studies.isolation.evaluation import METHOD_NAMES, Evaluation
from lesion.studies.isolation.study import EvaluationStudy, IsolationStudy

FINE_SHARE = Form(3, 100.0, "%")
"""A share of 1 in percent, to the thousandth."""


class MatrixCount(Row):
    """Selected weights of a matrix, or of all matrices of a kind in a block; `block` is None for the output head."""

    block: int | None = column("Block")
    matrix: str = column("Matrix")
    selected: int = column("Selected")
    total: int = column("Of")

    @derived.column("Share", FINE_SHARE)
    def share(self) -> float | None:
        """Selected of all, in 0…1."""
        return self.selected / self.total if self.total else None

    @property
    def kind(self) -> str:
        """The matrix without its block; all experts of a block are one kind: `mlp.experts.up`."""
        return re.sub(r"\bexpert\d+\b", "experts", self.matrix)

    @property
    def written(self) -> str:
        """The share in percent with two significant digits, for a small cell: `3.2`, `0.01`; `0` for nothing."""
        share = self.share or 0.0
        return "<.0001" if 0 < share < 1e-6 else f"{100 * share:.0f}" if share >= 0.1 else f"{100 * share:.2g}"


class SuperWeight(Row):
    """One weight of a down projection that makes a spike of its output (`selections.py`).

    Attributes:
        value: of the weight.
        product: |value| times `largest_input`: the most that it adds to an output.
        largest_input, largest_output: the largest magnitudes of its input and its output channel over all tokens.
        spike: whether both are the largest channels of its matrix: the super weight of Yu et al. (2024).
    """

    block: int = column()
    matrix: str = column()
    row: int = column()
    value: float = column("Value", decimals(3))
    product: float = column("Product", decimals(1))
    largest_input: float = column("Largest input", decimals(1))
    largest_output: float = column("Largest output", decimals(1))
    spike: bool = column("Spike")
    column: int = column()  # last, since its name hides that of the function

    @property
    def address(self) -> str:
        """Of its matrix: `11.mlp.down`."""
        return f"{self.block}.{self.matrix}"

    @derived.column("Weight", label=True, key="weight")
    def name(self) -> str:
        """`11.mlp.down[507,1229]`, row first."""
        return f"{self.address}[{self.row},{self.column}]"


class Excluded(Value):
    """The super weights that were excluded from every selection.

    Attributes:
        weights: largest product first.
        file: of the edit that cuts these alone.
        unsearched: blocks without a down projection that could be followed, as where experts are routed.
    """

    weights: tuple[SuperWeight, ...]
    label: str
    digest: str
    file: str
    unsearched: tuple[int, ...] = ()


class HeldBy(Row):
    """The selections that held a super weight before it was excluded."""

    selected_by: str = column("Selected before by")


class Selection(Row):
    """What tells a selection of weights from the others.

    Attributes:
        method: one of `study.METHODS`.
        keep: the share taken of every matrix of each task, in (0, 1].
        samples, repeat: the draw of calibration texts.
        file: name of its `.edit` file.
    """

    method: str = column()
    keep: float = column()
    samples: int = column("Texts", label=True)
    repeat: int = column("Repeat", label=True)
    file: str | None = column("File", key="edit")
    label: str = column()
    digest: str = column()

    @derived.column("Selection", label=True)
    def name(self) -> str:
        """`MathNeuro, share 5 %`."""
        return selection_name(self.method, self.keep)


class Selected(Selection):
    """One selection; `super_weights`: which excluded weights its method had selected, by their place among them."""

    matrices: tuple[MatrixCount, ...]
    super_weights: tuple[int, ...] = ()

    @property
    def stem(self) -> str:
        """`mathneuro-0.05`: its name among the edits."""
        return (self.file or "").removesuffix(".edit")

    @derived.column("Selected")
    def selected(self) -> int:
        """Weights selected."""
        return sum(matrix.selected for matrix in self.matrices)

    @property
    def total(self) -> int:
        """Weights scored."""
        return sum(matrix.total for matrix in self.matrices)

    @derived.column("Share", FINE_SHARE)
    def share(self) -> float | None:
        """Selected of all scored weights, in 0…1."""
        return self.selected / self.total if self.total else None

    @cached_property
    def by_kind(self) -> list[MatrixCount]:
        """Its counts per block and kind of matrix, the experts of a block summed up; the output head is of no block."""
        return [each for each in self._summed(lambda matrix: (matrix.block, matrix.kind)) if each.block is not None]

    @cached_property
    def density(self) -> dict[int, float]:
        """Selected of all weights of every block, in 0…1; the output head is of no block."""
        blocks = self._summed(lambda matrix: (matrix.block, ""))
        return {each.block: each.share for each in blocks if each.block is not None and each.share is not None}

    def _summed(self, key: Callable[[MatrixCount], tuple[int | None, str]]) -> list[MatrixCount]:
        """Its counts summed up by block and a name."""
        selected, total = Counter[tuple[int | None, str]](), Counter[tuple[int | None, str]]()
        for matrix in self.matrices:
            selected[key(matrix)] += matrix.selected
            total[key(matrix)] += matrix.total
        return [MatrixCount(block=at[0], matrix=at[1], selected=selected[at], total=total[at]) for at in total]


class Overlap(Row):
    """How far the selections from repeated draws of texts agree, as intersection over union (IoU) in 0…1.

    Attributes:
        iou: of every pair of repeats, over all matrices together; None for two empty selections.
        mean: over pairs, with its jackknife interval over repeats.
        chance: expected for random sets of the same sizes.
    """

    method: str = column()
    keep: float = column()
    samples: int = column("Texts")
    repeats: int = column("Repeats")
    iou: tuple[Number, ...]
    mean: Estimate = column("Mean IoU", decimals(3), ends=("low", "high"))
    chance: float = column("By chance", decimals(3))

    @derived.column(key="iou")
    def pairs(self) -> str:
        """The IoU of every pair, with spaces between."""
        return " ".join("nan" if pair is None else f"{pair:.6g}" for pair in self.iou)

    @derived.column("Selection", label=True)
    def label(self) -> str:
        """`MathNeuro, share 5 %`."""
        return selection_name(self.method, self.keep)


class CalibrationTexts(Row):
    """What was read of one data set: distinct texts, tokens, and how many texts were cut to the context."""

    data: str = column("Data")
    role: str = column("Role")
    samples: int = column("Texts drawn", label=True)
    repeat: int = column("Repeat", label=True)
    texts: int = column("Distinct texts")
    tokens: int = column("Tokens")
    cut: int = column("Cut to the context")
    style: str | None = column("Style")


class Coverage(Row):
    """Whether a parameter or matrix was scored, and if not, why."""

    name: str = column("Parameter")
    scored: bool
    reason: str = column("Why it was not scored")
    weights: int = column("Weights")


class Isolation(Value):
    """Which weights were selected.

    Attributes:
        identity: of the model, the data sets and the very texts (`selections.identity`).
        disjoint: whether repeats have no text in common.
    """

    identity: str
    study: IsolationStudy
    model: str
    fingerprint: str
    dtype: str
    family: str
    blocks: int
    disjoint: bool
    texts: tuple[CalibrationTexts, ...]
    selections: tuple[Selected, ...]
    overlaps: tuple[Overlap, ...]
    coverage: tuple[Coverage, ...]
    excluded: Excluded | None = None
    notes: tuple[str, ...] = ()

    @property
    def agreements(self) -> list[Overlap]:
        """The overlaps whose mean is known."""
        return [overlap for overlap in self.overlaps if overlap.mean.value is not None]


class IsolationSummary(Summary):
    """All numbers of an isolation, of an evaluation of edits, or of both in one folder: what `summary.json` holds."""

    kind: Literal["isolation"] = "isolation"
    approximate: str | None = None
    study: Annotated[IsolationStudy | EvaluationStudy, Field(discriminator="kind")]
    isolation: Isolation | None = None
    evaluation: Evaluation | None = None


def selection_name(method: str, keep: float) -> str:
    """`MathNeuro, share 5 %`."""
    return f"{METHOD_NAMES.get(method, method)}, share{wording.SPACE}{wording.keep(keep)}"
