"""The result of an isolation: selections of weights, how far repeats agree, and what was scored."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from lesion.core.values import Summary
from lesion.report import wording
from lesion.report.values import Estimate, Number, Value
from lesion.studies.isolation.evaluation import METHOD_NAMES, Evaluation
from lesion.studies.isolation.study import EvaluationStudy, IsolationStudy


class MatrixCount(Value):
    """Selected weights of one matrix; `block` is None for the output head."""

    block: int | None
    matrix: str
    selected: int
    total: int

    @property
    def share(self) -> float | None:
        """Selected of all, in 0…1."""
        return self.selected / self.total if self.total else None

    @property
    def kind(self) -> str:
        """The matrix without its block; all experts of a block are one kind: `mlp.experts.up`."""
        return _kind(self.matrix)


class SuperWeight(Value):
    """One weight of a down projection that makes a spike of its output (`super_weights.py`).

    Attributes:
        value: of the weight.
        product: |value| times `largest_input`: the most that it adds to an output.
        largest_input, largest_output: the largest magnitudes of its input and its output channel over all tokens.
        spike: whether both are the largest channels of its matrix: the super weight of Yu et al. (2024).
    """

    block: int
    matrix: str
    row: int
    column: int
    value: float
    product: float
    largest_input: float
    largest_output: float
    spike: bool

    @property
    def address(self) -> str:
        """Of its matrix: `11.mlp.down`."""
        return f"{self.block}.{self.matrix}"

    @property
    def name(self) -> str:
        """`11.mlp.down[507,1229]`, row first."""
        return f"{self.address}[{self.row},{self.column}]"


class Excluded(Value):
    """The super weights that were excluded from every selection.

    Attributes:
        weights: largest product first.
        label, digest, file: of the edit that cuts these alone.
        unsearched: blocks without a down projection that could be followed, as where experts are routed.
    """

    weights: tuple[SuperWeight, ...]
    label: str
    digest: str
    file: str
    unsearched: tuple[int, ...] = ()


class Selected(Value):
    """One selection of weights.

    Attributes:
        method: one of `study.METHODS`.
        keep: the share taken of every matrix of each task, in (0, 1].
        samples, repeat: the draw of calibration texts.
        file: name of its `.edit` file.
        super_weights: which of the isolation's excluded weights its method had selected, by their place in that list.
    """

    method: str
    keep: float
    samples: int
    repeat: int
    file: str | None
    label: str
    digest: str
    matrices: tuple[MatrixCount, ...]
    super_weights: tuple[int, ...] = ()

    @cached_property
    def selected(self) -> int:
        """Weights selected."""
        return sum(matrix.selected for matrix in self.matrices)

    @cached_property
    def total(self) -> int:
        """Weights scored."""
        return sum(matrix.total for matrix in self.matrices)

    @property
    def share(self) -> float | None:
        """Selected of all scored weights, in 0…1."""
        return self.selected / self.total if self.total else None

    @cached_property
    def density(self) -> dict[int, float]:
        """Selected of all weights of every block, in 0…1; the output head is of no block."""
        counts: dict[int, tuple[int, int]] = {}
        for matrix in self.matrices:
            if matrix.block is not None:
                selected, total = counts.get(matrix.block, (0, 0))
                counts[matrix.block] = selected + matrix.selected, total + matrix.total
        return {block: selected / total for block, (selected, total) in counts.items() if total}

    @property
    def name(self) -> str:
        """`MathNeuro, share 5 %`."""
        return selection_name(self.method, self.keep)


class Overlap(Value):
    """How far the selections from repeated draws of texts agree, as intersection over union (IoU) in 0…1.

    Attributes:
        iou: of every pair of repeats, over all matrices together; None for two empty selections.
        mean: over pairs, with its jackknife interval over repeats.
        chance: expected for random sets of the same sizes.
    """

    method: str
    keep: float
    samples: int
    repeats: int
    iou: tuple[Number, ...]
    mean: Estimate
    chance: float

    @property
    def label(self) -> str:
        """`MathNeuro, share 5 %`."""
        return selection_name(self.method, self.keep)

    @property
    def spread(self) -> tuple[float, float] | None:
        """The pairs that agree least and most; None for a single pair, which has no spread."""
        known = [pair for pair in self.iou if pair is not None]
        return (min(known), max(known)) if len(known) > 1 else None


class CalibrationTexts(Value):
    """What was read of one data set: distinct texts, tokens, and how many texts were cut to the context."""

    data: str
    role: str
    samples: int
    repeat: int
    texts: int
    tokens: int
    cut: int
    style: str | None


class Coverage(Value):
    """Whether a parameter or matrix was scored, and if not, why."""

    name: str
    scored: bool
    reason: str
    weights: int

    @property
    def kind(self) -> str:
        """Of a matrix its kind, `mlp.up`; of another parameter its name."""
        block, _, rest = self.name.partition(".")
        return _kind(rest) if block.isdecimal() and rest else self.name


class Isolation(Value):
    """Which weights were selected.

    Attributes:
        identity: SHA-256 of the model, the data sets and the very texts (`activation_cache.identity`).
        study: what was asked for.
        disjoint: whether repeats have no text in common.
        excluded: the super weights that no selection has; None where none were sought.
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

    @cached_property
    def names(self) -> list[str]:
        """Names of the selections, with texts and repeat where these differ: `MathNeuro, share 5 %, repeat 1`."""
        several_samples = len({selection.samples for selection in self.selections}) > 1
        several_repeats = len({selection.repeat for selection in self.selections}) > 1
        return [
            selection.name
            + (f", {wording.counted(selection.samples, 'text')}" if several_samples else "")
            + (f", repeat{wording.SPACE}{selection.repeat}" if several_repeats else "")
            for selection in self.selections
        ]


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


def _kind(matrix: str) -> str:
    return re.sub(r"\bexpert\d+\b", "experts", matrix)
