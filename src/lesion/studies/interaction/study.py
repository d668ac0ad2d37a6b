"""The interaction study: which places are removed together, as validated TOML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from typing_extensions import override

from lesion.core.fields import COUNT, ONE_MODEL, Count, Number, Several, Whole, one_of
from lesion.core.layers import LAYERS, Layers, parse_layers
from lesion.core.method import Method
from lesion.core.options import STATISTICS, option
from lesion.core.study_file import OneModel, Questions
from lesion.edits.edit import BlockUnit
from lesion.errors import UsageError
from lesion.plain import short

Design = Literal["pairs", "windows", "cumulative", "shapley"]
Measure = Literal["accuracy", "gold"]
NAMED_ORDERS = ("least", "most")


def _order(value: object) -> object:
    """A list of blocks as text, without spaces."""
    if isinstance(value, list | tuple) and all(type(layer) is int for layer in value):
        return ",".join(map(str, value))
    return value.replace(" ", "") if isinstance(value, str) else value


def _checked_order(value: str) -> str:
    if value not in NAMED_ORDERS and not all(piece.isascii() and piece.isdecimal() for piece in value.split(",")):
        raise ValueError(f"'{short(value)}' is no order; write least, most, or the blocks by commas, as 13,10,14.")
    return value


Order = Annotated[
    str, BeforeValidator(_order, json_schema_input_type=str | list[int]), AfterValidator(_checked_order)
]  # fmt: skip


class InteractionStudy(Questions):
    """Several places of a model removed together, and what that costs beside what each costs alone.

    Example:
        >>> InteractionStudy.make(model="bundled:llama-base", tasks=["primer:arithmetic"], layers=[2, 5]).design
        ('pairs',)
    """

    FORM: ClassVar[str] = "lesion interaction"
    # What is removed, and what is computed from it, changes no answer.
    SILENT: ClassVar[tuple[str, ...]] = (
        *Questions.SILENT,
        *("kind", "design", "unit", "layers", "factor", "measure", "window", "order", "random_orders", "permutations"),
    )

    kind: Literal["interaction"] = Field(default="interaction", description="interaction")
    model: OneModel = ONE_MODEL
    design: Several[Design] = option(
        ("pairs",),
        help=f"What is removed together: {one_of(Design)}.",
        must=f"{one_of(Design)}, or a list of these",
        many="comma",
    )
    unit: BlockUnit = option(
        "block", help="Part of each block to scale: block, attention or mlp.", must="block, attention or mlp"
    )
    layers: Layers = LAYERS
    factor: Number = option(0.0, help="Scale factor: 0 ablates, 1 changes nothing.", must="a finite number")
    measure: Measure = option(
        "accuracy",
        help="What is lost: accuracy, or gold (log-probability of the gold answers, which can fall further).",
        must="accuracy or gold",
        panel=STATISTICS,
    )
    window: Annotated[Whole, Field(ge=2)] = option(
        2, help="With windows: how many consecutive blocks are removed together.", must="a whole number from 2"
    )
    order: Order = option(
        "least",
        help="With cumulative: least (important first), most, or every block once, as 13,10,14.",
        must="least, most, or every block once, as 13,10,14",
    )
    random_orders: Annotated[Whole, Field(ge=0)] = option(
        5,
        help="With cumulative: number of random orders that the order is compared with.",
        must="a whole number from 0",
        panel=STATISTICS,
    )
    permutations: Count = option(
        20, help="With shapley: number of orders that are drawn.", must=COUNT, panel=STATISTICS
    )

    @override
    def look_ahead(self, blocks: Mapping[str, int]) -> None:
        for name, count in blocks.items():
            places_of(self, parse_layers(self.layers, count, name), name)


def places_of(study: InteractionStudy, layers: Sequence[int], model: str) -> list[int]:
    """The blocks that are removed, at least two, which the study's order and windows fit.

    Raises:
        UsageError: there is one block only, none of the windows lies within the blocks, or the order is not of them.
    """
    if len(layers) < 2:
        raise UsageError(
            f"An interaction needs at least two blocks, and --layers {study.layers} is one of {model}; name more, or"
            " remove it alone with `lesion ablate`."
        )
    if "windows" in study.design and not windows(layers, study.window):
        raise UsageError(
            f"--window {study.window} removes {study.window} consecutive blocks, and --layers {study.layers} of {model}"
            " has no such run; name more blocks, or give a smaller window."
        )
    if "cumulative" in study.design and study.order not in NAMED_ORDERS:
        given = [int(layer) for layer in study.order.split(",")]
        if sorted(given) != list(layers):
            raise UsageError(
                f"--order {study.order} must name each of the blocks {', '.join(map(str, layers))} once; --layers says"
                " which these are."
            )
    return list(layers)


def windows(layers: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Every run of `size` consecutive blocks among them."""
    known = set(layers)
    runs = [tuple(range(first, first + size)) for first in layers]
    return [run for run in runs if known.issuperset(run)]


METHOD = Method(
    InteractionStudy,
    "lesion.studies.interaction.run:run_interaction",
    "lesion.studies.interaction.report:InteractionResult",
    "interact",
    "Remove several blocks together: pairs, windows, one after another, Shapley values.",
    examples=(
        "lesion interact model/ --task sums.jsonl --layers 1-4 --out pairs/",
        "lesion interact model/ --task sums.jsonl --design shapley --out sets/",
    ),
)
