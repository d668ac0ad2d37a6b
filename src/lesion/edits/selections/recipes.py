"""Recipes: selections read back from their JSON form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.neurons import LAPE
from lesion.edits.selections.random_control import Random
from lesion.edits.selections.selection import Both, Either, Selection, Without
from lesion.edits.selections.topk import Magnitude, MathNeuro, Wanda
from lesion.errors import LesionError

ALGEBRA: dict[str, type[Either | Both | Without]] = {"or": Either, "and": Both, "minus": Without}


def from_recipe(recipe: Any, inputs: Mapping[str, Inputs]) -> Selection:
    """The selection whose `recipe` this is: the inverse of `selection.recipe(lambda inputs: inputs.digest)`.

    Args:
        recipe: plain JSON values.
        inputs: by digest, those that it may name.

    Raises:
        UsageError: a number in it is not one that the selection takes.
        LesionError: it is no recipe, or names inputs that are not given.
    """

    def named(digest: Any) -> Inputs:
        if not isinstance(digest, str) or digest not in inputs:
            raise LesionError(f"A recipe names the inputs {str(digest)[:40]!r}, which are not there.")
        return inputs[digest]

    def several(digests: Any) -> tuple[Inputs, ...]:
        if not isinstance(digests, list):
            raise TypeError
        return tuple(named(digest) for digest in digests)

    try:
        kind, make = next((kind, make) for kind, make in _MAKERS.items() if kind in recipe)
        made = make(dict(recipe), named, several, lambda part: from_recipe(part, inputs))
        if made.recipe(lambda given: given.digest) != recipe:
            raise LesionError(f"A recipe of the kind '{kind}' holds more or less than belongs there.")
    except (StopIteration, TypeError, ValueError, KeyError, AttributeError) as error:
        raise LesionError(f"This is no recipe of a selection: {str(recipe)[:80]}.") from error
    return made


_Named = Callable[[Any], Inputs]
_Several = Callable[[Any], tuple[Inputs, ...]]
_Part = Callable[[Any], Selection]


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _wanda(recipe: dict[str, Any], named: _Named, _: _Several, __: _Part) -> Selection:
    return Wanda(named(recipe["wanda"]), _number(recipe["keep"]), recipe["per"])


def _mathneuro(recipe: dict[str, Any], named: _Named, several: _Several, __: _Part) -> Selection:
    return MathNeuro(named(recipe["mathneuro"]), several(recipe["controls"]), _number(recipe["keep"]))


def _lape(recipe: dict[str, Any], named: _Named, several: _Several, __: _Part) -> Selection:
    return LAPE(named(recipe["lape"]), several(recipe["controls"]), _number(recipe["keep"]), bar=_number(recipe["bar"]))


def _magnitude(recipe: dict[str, Any], _: _Named, __: _Several, ___: _Part) -> Selection:
    addresses = recipe["addresses"]
    if addresses is not None and not (isinstance(addresses, list) and all(isinstance(a, str) for a in addresses)):
        raise TypeError
    return Magnitude(_number(recipe["magnitude"]), None if addresses is None else tuple(addresses))


def _random(recipe: dict[str, Any], _: _Named, __: _Several, part: _Part) -> Selection:
    return Random(part(recipe["random"]), _whole(recipe["seed"]))


def _pair(word: str) -> Callable[[dict[str, Any], _Named, _Several, _Part], Selection]:
    def make(recipe: dict[str, Any], _: _Named, __: _Several, part: _Part) -> Selection:
        first, second = recipe[word]
        return ALGEBRA[word](part(first), part(second))

    return make


_MAKERS: dict[str, Callable[[dict[str, Any], _Named, _Several, _Part], Selection]] = {
    "wanda": _wanda,
    "mathneuro": _mathneuro,
    "lape": _lape,
    "magnitude": _magnitude,
    "random": _random,
    **{word: _pair(word) for word in ALGEBRA},
}
