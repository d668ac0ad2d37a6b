"""The drift study: whose hidden states are clustered, layer by layer, on which texts and how, as validated TOML."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from lesion.core.fields import DTYPES, ENGINES, MODELS, Count, Dtype, EngineName, FolderName, Seed, Several, Whole
from lesion.core.method import Method
from lesion.core.options import NOT_IN_IDENTITY, STATISTICS, free_option, kind_key, option
from lesion.core.study_file import GreedyStudy, OneModel, OneTask, Questions

Part = Literal["prompt", "solution", "both"]
USUAL = 50
"""The number of clusters of Nepal et al. (2025)."""
Solution = Literal["own", "gold", "none"]
LayerZero = Literal["embedding", "block"]
Normalise = Literal["none", "unit", "standardise"]
Information = Literal["arithmetic", "geometric", "min", "max"]
ElbowLayers = Literal["later", "all"]


def rising(layers: tuple[int, ...]) -> tuple[int, ...]:
    """The layers, each later than the one before."""
    if any(second <= first for first, second in pairwise(layers)):
        raise ValueError(f"{', '.join(map(str, layers))} does not go from an earlier layer to a later one.")
    return layers


class DriftStudy(GreedyStudy):
    """How far the tokens' clusters at each layer are from those at layer 0 (Nepal et al. 2025), over runs.

    The defaults settle what the paper leaves open. Line, hinge and step are fitted to the layers after layer 0, whose
    own value is 1 by definition.

    A task that names a file, and `study`, are relative to the folder that the command runs in.

    Example:
        >>> DriftStudy.make(models=["bundled:llama-base"], task="primer:arithmetic").drawn
        50
    """

    IDENTITY_PREFIX: ClassVar[str] = "lesion drift"

    kind: Literal["drift"] = kind_key("drift")
    models: Several[OneModel] = MODELS(identity=NOT_IN_IDENTITY)
    task: OneTask = option(
        help="Task: primer:arithmetic, gsm8k, math500, FILE.jsonl, …", must="a task: text, or a table with a name"
    )
    items: Count = free_option(20, help="Number of items per run.", panel=STATISTICS)
    runs: Count = free_option(5, help="Number of draws of items; curves are means over them.", panel=STATISTICS)
    clusters: Several[Annotated[Whole, Field(ge=2)]] | None = free_option(
        None,
        help="Number of clusters of k-means; of several, 50, or the first, is plotted.",
        many="comma",
        shown=f"{USUAL}, or half of a run's different tokens where these are fewer",
    )
    layer_zero: LayerZero = free_option(
        "embedding", help="Reference of the comparison: embedding, or block (the output of block 0)."
    )
    normalise: Normalise = free_option(
        "none", help="Normalisation of the vectors: none, unit (length 1) or standardise (per dimension)."
    )
    nmi: Information = free_option(
        "arithmetic",
        help="Normalisation of the mutual information by the entropies: arithmetic, geometric, min or max.",
    )
    starts: Count = free_option(
        10, help="Number of k-means++ initialisations; the lowest inertia is kept.", panel=STATISTICS
    )
    part: Part = free_option("both", help="Tokens that are clustered: prompt, solution or both.")
    solution: Solution = free_option("own", help="Solution after the prompt: own (greedy), gold or none.")
    elbow: ElbowLayers = free_option(
        "later", help="Layers tested for a hinge (elbow) or step: later (all but layer 0), or all.", panel=STATISTICS
    )
    between: (
        Annotated[tuple[Annotated[Whole, Field(ge=0)], ...], Field(min_length=2, max_length=2), AfterValidator(rising)]
        | None
    ) = free_option(
        None,
        help="Two layers between which tokens are followed; default: at the hinge or step.",
        must="a list of two layers, whole numbers from 0, the earlier one first",
        many="comma",
    )
    study: FolderName | None = free_option(
        None,
        help="Output folder of a layer study; its critical blocks are compared with the hinge or step.",
        must="the folder of a layer study",
    )
    seed: Seed = free_option(0, help="Random seed of the item draws and of k-means.", panel=STATISTICS)
    dtype: Dtype = DTYPES
    engine: EngineName = ENGINES

    @model_validator(mode="after")
    def _has_texts(self) -> DriftStudy:
        if self.part == "solution" and self.solution == "none":
            raise ValueError("part is solution and solution is none, so there would be no tokens; change one of them.")
        if self.task.items is not None:
            raise ValueError("items stands in the table of the task; give it at the top of the study, items a run.")
        return self

    @property
    def reference(self) -> int:
        """The layer that all others are compared with: 0 for what enters block 0, 1 for what leaves it."""
        return int(self.layer_zero == "block")

    @property
    def drawn(self) -> int:
        """The number of clusters that is drawn: the paper's where it is among them or none is said, else the first."""
        return USUAL if self.clusters is None or USUAL in self.clusters else self.clusters[0]

    def questions(self) -> Questions:
        """The same as a study that asks the task for answers, greedily: how own solutions come about."""
        return Questions(tasks=(self.task,), items=self.items, dtype=self.dtype, engine=self.engine, **self.answering)


METHOD = Method(
    DriftStudy,
    "lesion.studies.drift.run:run_drift",
    "lesion.studies.drift.report:DriftResult",
    "drift",
    "Cluster the hidden states of every layer and measure how far tokens leave their first clusters.",
    kept="Every solution and clustering so far is kept in {folder}; the same command goes on.",
    examples=("lesion drift bundled:llama-base --task primer:arithmetic --out drift",),
    python="""
Example:
    >>> result = lesion.drift("bundled:llama-base", "primer:arithmetic", clusters=[50, 10])
    >>> result.table[["layer", "nmi", "null"]], result.summary.models[0].curve.shape

Raises:
    UsageError: a task, model or layer does not exist, or a run has fewer tokens than clusters.
    LesionError: a model cannot be loaded or its states are not finite, or the folder belongs to other questions.
""",
)
