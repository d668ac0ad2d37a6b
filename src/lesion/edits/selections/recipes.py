"""Recipes: selections read back from their JSON form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lesion.edits.selections.controls import Matched, Random
from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.listed import Columns, Listed
from lesion.edits.selections.neurons import LAPE
from lesion.edits.selections.selection import Both, Either, Selection, Without
from lesion.edits.selections.topk import Magnitude, MathNeuro, Wanda
from lesion.errors import LesionError

ALGEBRA: dict[str, type[Either | Both | Without]] = {"or": Either, "and": Both, "minus": Without}
KINDS: dict[str, type[Selection]] = {
    **{kind.kind: kind for kind in (Wanda, MathNeuro, LAPE, Magnitude, Random, Matched, Listed, Columns)},
    **ALGEBRA,
}


def from_recipe(recipe: Any, inputs: Mapping[str, Inputs]) -> Selection:
    """The selection whose `recipe` this is: the inverse of `selection.recipe(lambda inputs: inputs.digest)`."""

    def named(digest: Any) -> Inputs:
        if not isinstance(digest, str) or digest not in inputs:
            raise LesionError(f"A recipe names the inputs {str(digest)[:40]!r}, which are not there.")
        return inputs[digest]

    def part(value: Any) -> Selection:
        return from_recipe(value, inputs)

    def pair(values: Any) -> tuple[Selection, Selection]:
        first, second = values
        return part(first), part(second)

    # What is no name of inputs and no selection is checked by the selection's own arguments.
    readers: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("wanda", "mathneuro", "lape"), named),
        **dict.fromkeys(ALGEBRA, pair),
        **dict.fromkeys(("controls", "texts"), lambda digests: tuple(map(named, digests))),
        **dict.fromkeys(("random", "matched"), part),
    }
    try:
        kind = next(kind for kind in KINDS if kind in recipe)
        make = KINDS[kind]
        values = {name: readers.get(key, lambda value: value)(recipe[key]) for key, name in make.RECIPE.items()}
        made = ALGEBRA[kind](*values["parts"]) if kind in ALGEBRA else make(**values)
        if made.recipe(lambda given: given.digest) != recipe:
            raise LesionError(f"A recipe of the kind '{kind}' holds more or less than belongs there.")
    except (StopIteration, TypeError, ValueError, KeyError, AttributeError) as error:
        raise LesionError(f"This is no recipe of a selection: {str(recipe)[:80]}.") from error
    return made
