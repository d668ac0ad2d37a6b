"""The interaction study: which places are removed together, as validated TOML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import override

from lesion.core.fields import ANYWAY, ONE_MODEL, Count, Listed, Number, Several, Whole
from lesion.core.layers import ALL, LAYERS, Layers, Place, parse_layers
from lesion.core.method import Method
from lesion.core.options import NOT_IN_IDENTITY, STATISTICS, free_option, kind_key, one_of
from lesion.core.study_file import OneModel, Questions
from lesion.edits.place import BlockUnit, address, within
from lesion.errors import UsageError
from lesion.plain import short

Design = Literal["pairs", "windows", "cumulative", "shapley"]
Measure = Literal["accuracy", "gold"]
NAMED_ORDERS = ("least", "most")
_ADDRESS = re.compile(r"[0-9]{1,9}(?:\.[a-z0-9]+)*")


def _order(value: object) -> object:
    """Its name, or its places as text, without spaces."""
    if isinstance(value, list | tuple) and all(type(place) in (int, str) for place in value):
        value = ",".join(map(str, value))
    if not isinstance(value, str):
        return value
    value = value.replace(" ", "")
    if value not in NAMED_ORDERS and not all(_ADDRESS.fullmatch(piece) for piece in value.split(",")):
        raise ValueError(f"'{short(value)}' is no order; write least, most, or the places by commas, as 13,10,14.")
    return value


Order = Annotated[str, BeforeValidator(_order, json_schema_input_type=str | list[int | str])]


class InteractionStudy(Questions):
    """Several places of a model removed together, and what that costs beside what each costs alone.

    Example:
        >>> InteractionStudy.make(model="bundled:llama-base", tasks=["primer:arithmetic"], layers=[2, 5]).design
        ('pairs',)
    """

    IDENTITY_PREFIX: ClassVar[str] = "lesion interaction"

    kind: Literal["interaction"] = kind_key("interaction")
    model: OneModel = ONE_MODEL
    design: Several[Design] = free_option(("pairs",), help=f"What is removed together: {one_of(Design)}.", many="comma")
    unit: BlockUnit = free_option("block", help="Part of each block to scale: block, attention or mlp.")
    layers: Layers = LAYERS(identity=NOT_IN_IDENTITY)
    places: Listed[Place] = free_option(
        (),
        help="Places of any unit in the stead of layers and unit, such as 23.attention.head.4,22.mlp,13.",
        must="places such as 23.attention.head.4, or a list of them",
        many="comma",
    )
    factor: Number = free_option(0.0, help="Scale factor: 0 ablates, 1 changes nothing.")
    anyway: bool = ANYWAY
    measure: Measure = free_option(
        "accuracy",
        help="What is lost: accuracy, or gold (log-probability of the gold answers, which can fall further).",
        panel=STATISTICS,
    )
    window: Annotated[Whole, Field(ge=2)] = free_option(
        2, help="With windows: how many consecutive blocks are removed together."
    )
    order: Order = free_option(
        "least",
        help="With cumulative: least (important first), most, or every block once, as 13,10,14.",
        must="least, most, or every block once, as 13,10,14",
    )
    random_orders: Annotated[Whole, Field(ge=0)] = free_option(
        5, help="With cumulative: number of random orders that the order is compared with.", panel=STATISTICS
    )
    permutations: Count = free_option(20, help="With shapley: number of orders that are drawn.", panel=STATISTICS)

    @model_validator(mode="after")
    def _edits(self) -> InteractionStudy:
        if self.factor == 1:
            raise ValueError("factor is 1, which edits nothing; give another, such as 0 or 0.5.")
        if self.places:
            if self.layers != ALL or self.unit != "block":
                raise ValueError("places name all that is edited; leave out layers and unit.")
            if "windows" in self.design:
                raise ValueError("windows are runs of consecutive blocks; leave out places, or give another design.")
        return self

    @override
    def look_ahead(self, blocks: Mapping[str, int]) -> None:
        for name, count in blocks.items():
            places_of(self, count, name)


def place_key(address: str) -> tuple[tuple[int, str], ...]:
    """By which places are sorted: in the order of the model, and of their numbers."""
    return tuple((int(part), "") if part.isdecimal() else (0, part) for part in address.split("."))


def places_of(study: InteractionStudy, blocks: int, model: str) -> list[str]:
    """The addresses of the places that are edited, at least two, which the study's order and windows fit."""
    if study.places:
        parse_layers(sorted({int(place.partition(".")[0]) for place in study.places}), blocks, model)
        places = sorted(study.places, key=place_key)
        named = f"places {','.join(study.places)}"
    else:
        layers = parse_layers(study.layers, blocks, model)
        places = [address(layer, study.unit) for layer in layers]
        named = f"layers {study.layers}"
    if len(places) < 2:
        raise UsageError(
            f"An interaction needs at least two places, and {named} is one of {model}; name more, or remove it alone"
            " with `lesion ablate`."
        )
    if nested := next(((inner, outer) for outer in places for inner in places if within(inner, outer)), None):
        raise UsageError(
            f"{nested[0]} lies within {nested[1]}, so that the two cannot be edited apart; name places of which none is"
            " a part of another."
        )
    if "windows" in study.design and not windows(places, study.window):
        raise UsageError(
            f"A window of {study.window} is as many consecutive blocks, and {named} of {model} has no such run; name"
            " more blocks, or give a smaller window."
        )
    own_order = "cumulative" in study.design and study.order not in NAMED_ORDERS
    if own_order and sorted(ordered(study), key=place_key) != places:
        raise UsageError(f"The order {study.order} must name each of {', '.join(places)} once.")
    return places


def ordered(study: InteractionStudy) -> list[str]:
    """The places in the study's own order; blocks may be named by their numbers, whatever the unit."""
    pieces = study.order.split(",")
    return [f"{piece}.{study.unit}" if piece.isdecimal() and study.unit != "block" else piece for piece in pieces]


def windows(places: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Every run of `size` consecutive blocks among places of one unit."""
    by_layer = {int(place.partition(".")[0]): place for place in places}
    runs = [range(first, first + size) for first in by_layer]
    return [tuple(by_layer[layer] for layer in run) for run in runs if by_layer.keys() >= set(run)]


METHOD = Method(
    InteractionStudy,
    "lesion.studies.interaction.run:run_interaction",
    "lesion.studies.interaction.report:InteractionResult",
    "interact",
    "Remove several blocks together: pairs, windows, one after another, Shapley values.",
    examples=(
        "lesion interact model/ --task sums.jsonl --layers 1-4 --out pairs/",
        "lesion interact model/ --task q.jsonl --places 3.attention,2.mlp --out places/",
    ),
    python="""
Example:
    >>> pairs = lesion.interact("bundled:llama-base", "primer:arithmetic", layers=[1, 3, 4], items=50)
    >>> pairs.table[["places", "sum", "together", "beyond", "verdict"]]

Raises:
    UsageError: a task or a block does not exist, there is one place only, or an argument cannot be what it is.
    LesionError: the model cannot be loaded or its weights are not finite, or the folder belongs to other questions.
""",
)
