"""The patching study: which models are patched on which tasks at which blocks, as validated TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator
from typing_extensions import override

from lesion.core.fields import DTYPES, ENGINES, ITEMS, MODELS, SEEDS, TASKS, Dtype, EngineName, Items, Seed, Several
from lesion.core.layers import LAYERS, Layers, parse_layers
from lesion.core.method import Method
from lesion.core.options import EXTENDABLE, kind_key, one_of, option
from lesion.core.study_file import ModelStudy, OneModel, OneTask

Kind = Literal["block", "attention", "mlp", "head"]
KINDS: tuple[Kind, ...] = ("block", "attention", "mlp", "head")
Position = Literal["earlier different", "last different", "next", "between", "last", "all"]
POSITIONS: dict[str, str] = {
    "earlier different": "the earlier differing tokens",
    "last different": "the last differing token",
    "next": "the token behind the last differing one",
    "between": "the other tokens behind the first difference",
    "last": "the last token",
    "all": "all tokens from the first difference on",
}
"""Classes of positions that any pair has; all but `all` part the tokens from the first difference on."""


class PatchingStudy(ModelStudy):
    """Values of one run put into another, place by place and position by position (Zhang and Nanda 2024).

    Every item has a clean and a corrupted prompt of the same number of tokens, whose right answers differ.

    Example:
        >>> PatchingStudy.make(models=["bundled:llama-base"], tasks=["ioi"]).layers
        'all'
    """

    IDENTITY_PREFIX: ClassVar[str] = "lesion patching"

    kind: Literal["patching"] = kind_key("patching")
    models: Several[OneModel] = MODELS(identity=EXTENDABLE, unordered=True)
    tasks: Several[OneTask] = TASKS(
        help="Task whose items have a right and a tempting token: ioi, ioi:PATH, facts, induction, agreement, or a file"
        " of items with 'tempting'."
    )
    items: Items = ITEMS(50)
    unit: Several[Kind] = option(
        ("block", "attention", "mlp"),
        help="Places to patch: block (residual stream), attention, mlp, or head (query heads one by one).",
        many="repeat",
        identity=EXTENDABLE,
        unordered=True,
    )
    layers: Layers = LAYERS(identity=EXTENDABLE)
    position: Several[Position] = option(
        tuple(POSITIONS),
        help=f"Tokens to patch: {one_of(Position)}; by default each of these.",
        many="repeat",
        identity=EXTENDABLE,
        unordered=True,
    )
    seed: Seed = SEEDS(help="Random seed of the draw of items.")
    dtype: Dtype = DTYPES
    engine: EngineName = ENGINES

    @model_validator(mode="after")
    def _transformers(self) -> PatchingStudy:
        if self.engine is not None:
            raise ValueError(
                f"engine is {self.engine}; activations are patched on transformers only, so leave engine out."
            )
        return self

    @model_validator(mode="after")
    def _tells(self) -> PatchingStudy:
        if set(self.unit) == {"block"} and set(self.position) == {"all"}:
            raise ValueError(
                "the whole residual stream at all positions restores everything by construction; add another unit or"
                " position."
            )
        return self

    @override
    def look_ahead(self, blocks: Mapping[str, int]) -> None:
        for name, count in blocks.items():
            parse_layers(self.layers, count, name)


METHOD = Method(
    PatchingStudy,
    "lesion.studies.patching.run:run_patching",
    "lesion.studies.patching.report:PatchingResult",
    "patch",
    "Put activations of one prompt into the run on another, and find where the answer is carried.",
    kept="Every item so far is kept in {folder}; the same command goes on from there.",
    examples=(
        "lesion patch bundled:llama-base --task ioi --items 20 --out patching",
        "lesion patch ./my-model --task ioi:ioi.json --unit head --out heads",
    ),
    python="""
Example:
    >>> result = lesion.patch("bundled:llama-base", "ioi", items=4)
    >>> result.table[["direction", "place", "layer", "position", "effect"]]

Raises:
    UsageError: a task, model or layer does not exist, or no item of a task has a corrupted prompt of its length.
    LesionError: a model cannot be loaded, or the folder cannot be written.
""",
)
