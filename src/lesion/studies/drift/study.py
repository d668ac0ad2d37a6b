"""The drift study: whose hidden states are clustered, layer by layer, on which texts and how, as validated TOML."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from lesion.core.study_file import (
    Dtype,
    EngineName,
    ModelChoice,
    Number,
    Questions,
    StopLoops,
    StudyFile,
    TaskChoice,
    Text,
    Whole,
    different,
    listed,
    table_of,
)

Part = Literal["prompt", "solution", "both"]
Solution = Literal["own", "gold", "none"]
LayerZero = Literal["embedding", "block"]
Normalise = Literal["none", "unit", "standardise"]
Information = Literal["arithmetic", "geometric", "min", "max"]
ElbowLayers = Literal["later", "all"]


def _one_of(kind: Any) -> str:
    *most, last = get_args(kind)
    return f"{', '.join(most)} or {last}"


class DriftStudy(StudyFile):
    """How far the tokens' clusters at each layer are from those at layer 0 (Nepal et al. 2025), over runs.

    The paper leaves open what the defaults here settle: the texts are prompt and own greedy solution; layer 0 is the
    output of the embedding; vectors are clustered as they are; the normalisation of the mutual information is the
    arithmetic mean of the entropies; k-means++ begins ten times; line, hinge and step are fitted to the layers
    after layer 0, whose own value is 1 by definition.

    A task that names a file, and `study`, are relative to the folder that the command runs in.

    Example:
        >>> DriftStudy.make(models=["bundled:llama-base"], task="primer:arithmetic").drawn
        50
    """

    FORM: ClassVar[str] = "lesion drift"
    # What is clustered how decides no answer, and every number on disk is kept under all that decides it.
    SILENT: ClassVar[tuple[str, ...]] = (
        *("name", "title", "level", "batch_size", "device", "models", "items", "runs", "clusters", "layer_zero"),
        *("normalise", "nmi", "starts", "part", "solution", "elbow", "between", "study", "kind", "seed"),
    )
    SETS: ClassVar[tuple[tuple[str, ...], ...]] = ()

    kind: Literal["drift"] = Field(default="drift", description="drift")
    models: Annotated[
        tuple[Annotated[ModelChoice, table_of("source")], ...],
        BeforeValidator(listed),
        Field(min_length=1),
        AfterValidator(different),
    ] = Field(description="a list of at least one model: strings, or tables with a source")
    task: Annotated[TaskChoice, table_of("name")] = Field(description="a task: text, or a table with a name")
    items: Annotated[Whole, Field(ge=1)] = Field(default=20, description="a whole number from 1")
    runs: Annotated[Whole, Field(ge=1)] = Field(default=5, description="a whole number from 1")
    clusters: Annotated[
        tuple[Annotated[Whole, Field(ge=2)], ...],
        BeforeValidator(listed),
        Field(min_length=1),
        AfterValidator(different),
    ] = Field(default=(50,), description="a whole number from 2, or a list of them")
    layer_zero: LayerZero = Field(default="embedding", description=_one_of(LayerZero))
    normalise: Normalise = Field(default="none", description=_one_of(Normalise))
    nmi: Information = Field(default="arithmetic", description=_one_of(Information))
    starts: Annotated[Whole, Field(ge=1)] = Field(default=10, description="a whole number from 1")
    part: Part = Field(default="both", description=_one_of(Part))
    solution: Solution = Field(default="own", description=_one_of(Solution))
    elbow: ElbowLayers = Field(default="later", description=_one_of(ElbowLayers))
    between: (
        Annotated[
            tuple[Annotated[Whole, Field(ge=0)], ...],
            BeforeValidator(listed),
            Field(min_length=2, max_length=2),
            AfterValidator(different),
        ]
        | None
    ) = Field(default=None, description="a list of two different layers, whole numbers from 0")
    study: Text | None = Field(default=None, description="the folder of a layer study")
    seed: Annotated[Whole, Field(ge=0)] = Field(default=0, description="a whole number from 0")
    prompt_style: Text | None = Field(default=None, description="the name of a prompt style")
    max_new_tokens: Annotated[Whole, Field(ge=1)] | None = Field(default=None, description="a whole number from 1")
    stop_loops: StopLoops = None
    level: Annotated[Number, Field(gt=0, lt=1)] = Field(
        default=0.95, description="a number between 0 and 1, for example 0.95"
    )
    batch_size: Annotated[Whole, Field(ge=1)] | Literal["auto"] = Field(
        default="auto", description="a whole number from 1, or auto"
    )
    dtype: Dtype = Field(default="auto", description="auto, float32, bfloat16 or float16")
    device: Text = Field(default="auto", description="auto, cpu, cuda or cuda:N")
    engine: EngineName = Field(default=None, description="transformers or vllm")

    @model_validator(mode="after")
    def _has_texts(self) -> DriftStudy:
        if self.part == "solution" and self.solution == "none":
            raise ValueError("part is solution and solution is none, so there would be no tokens; change one of them.")
        if self.task.items is not None:
            raise ValueError("items stands in the table of the task; give it at the top of the study, items a run.")
        return self

    @property
    def drawn(self) -> int:
        """The number of clusters that is drawn: the paper's 50 where it is among them, else the first."""
        return 50 if 50 in self.clusters else self.clusters[0]

    def questions(self) -> Questions:
        """The same as a study that asks the task for answers, greedily: how own solutions come about."""
        return Questions(
            tasks=(self.task,),
            items=self.items,
            seed=self.seed,
            prompt_style=self.prompt_style,
            batch_size=self.batch_size,
            dtype=self.dtype,
            device=self.device,
            engine=self.engine,
            decoding={"max_new_tokens": self.max_new_tokens, "stop_loops": self.stop_loops},
        )
