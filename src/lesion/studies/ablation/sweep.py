"""The edits of a layer study (Nepal et al. 2025; their driver never ran block 0), and the answers to each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lesion.edits.edit import Scale
from lesion.edits.place import UNITS, Part, Unit, address
from lesion.edits.replace import place_of
from lesion.edits.text import parse
from lesion.edits.units import NUMBERED_EDITS, how_many, part_of, scaling
from lesion.errors import UsageError
from lesion.report.wording import capital, numbered

if TYPE_CHECKING:  # what reads a study need not wait for torch
    from lesion.models.anatomy import Anatomy

Factor = float | str
"""What a place is multiplied by, or what replaces what it adds: a kind, as `mean`, of `resample` with the draw."""

CONTRIBUTIONS = "contributions"
ALIGNED = "aligned"
OF_HEADS = "of heads"


def kind_of(factor: Factor) -> str:
    """The kind of ablation: `zero`, or that of a replacement; empty for a factor that leaves something."""
    if isinstance(factor, str):
        return factor.partition(" ")[0]
    return "zero" if factor == 0 else ""


Digests = Mapping[str, Mapping[str, str]]
"""The digests of the references of each task, by source (`Replacement.source`)."""


@dataclass(frozen=True)
class Replacement:
    """A place whose contribution a study replaces, under each task by that of the task's own reference.

    Attributes:
        part: the number of the head; None of a block or branch.
        factor: the kind, and behind it the draw where that is not 0: `mean`, `resample`, `resample 1`.
        references: the digest of each task's reference that has the kind, as pairs of task and digest.
    """

    layer: int
    unit: Unit
    part: Part | None
    factor: str
    references: tuple[tuple[str, str], ...] = ()

    @property
    def address(self) -> str:
        """`23`, `23.attention`, `23.mlp` or `23.attention.head.4`."""
        return address(self.layer, self.unit, self.part)

    @property
    def kind(self) -> str:
        """The kind of replacement."""
        return self.factor.partition(" ")[0]

    @property
    def draw(self) -> int:
        """The draw of `resample`."""
        return int(self.factor.partition(" ")[2] or 0)

    @property
    def source(self) -> str:
        """Which reference of a task has it: means at positions and draws share those of aligned texts, heads have
        theirs apart from blocks and branches, and every fitted place has its own.
        """
        if self.kind == "optimal":
            return f"optimal {self.address}"
        return source_of(self.unit, CONTRIBUTIONS if self.kind == "mean" else ALIGNED)

    def __str__(self) -> str:
        return f"{self.address}→{self.factor}"


def source_of(unit: Unit, source: str) -> str:
    """The name of a reference of heads, or of blocks and branches."""
    return f"{source} {OF_HEADS}" if unit == "head" else source


PlaceEdit = Scale | Replacement
"""One edit of a layer study: it has a `layer`, a `unit` and a `factor`."""


def text_of(edit: PlaceEdit, task: str) -> str:
    """The text form under which the answers to a task are stored; without its reference where none is known."""
    digest = place_of_edit(edit, task)["reference"]
    return f"{edit}@{digest}".removesuffix("@")


def place_of_edit(edit: PlaceEdit, task: str) -> dict[str, Any]:
    """The fields of `cell.Place`: what an edit changes, and of a replacement the task's own reference."""
    about = {"layer": edit.layer, "unit": edit.unit, "factor": edit.factor}
    if isinstance(edit, Replacement):
        return about | {"reference": dict(edit.references).get(task, ""), "part": edit.part}
    return about | {"reference": "", "part": part_of(edit)}


def referring(edit: PlaceEdit, digests: Digests) -> PlaceEdit:
    """An edit of a study with the digests of the references that it needs."""
    if isinstance(edit, Scale):
        return edit
    return replace(edit, references=tuple((task, of[edit.source]) for task, of in digests.items()))


def read(text: str, digests: Digests) -> PlaceEdit:
    """The edit of a study from its text form without a reference."""
    place, arrow, factor = text.partition("→")
    if arrow:
        return referring(Replacement(*place_of(place), factor), digests)
    edit = parse(text)
    if not isinstance(edit, Scale):
        raise UsageError(f"'{text}' is no edit of a layer study.")
    return edit


MOST_NEURONS = 1000
"""A sweep of more neurons has to be screened (`--screen-top`)."""


def is_inner(unit: Unit) -> bool:
    """Whether a unit is one of which a block has several."""
    return unit not in UNITS


def _inner(anatomy: Anatomy, unit: Unit, layer: int) -> Sequence[Part | None]:
    if unit in NUMBERED_EDITS:
        return range(how_many(unit, layer, anatomy))
    if unit == "matrix":
        return list(anatomy.block(layer).matrices)
    return [None]


def refuse_many_neurons(anatomy: Anatomy, units: Sequence[Unit], layers: Sequence[int], top: int | None) -> None:
    """Refuse to generate under more neurons than anybody waits for; a screen chooses among them."""
    if "neuron" not in units or top is not None:
        return
    counts = {layer: anatomy.neurons(layer).count for layer in layers}
    if (count := sum(counts.values())) > MOST_NEURONS:
        fewer = [f"--layers {layer} ({own:,} neurons)" for layer, own in counts.items() if own <= MOST_NEURONS][:1]
        raise UsageError(
            f"{capital(numbered('block', layers))} of {anatomy.name} {'has' if len(layers) == 1 else 'have'} {count:,}"
            f" neurons, and every item would be answered under each of them; at most {MOST_NEURONS:,} are swept so. Add"
            " --screen-top 20, which scores the gold solutions under each and generates under the 20 that take most"
            f"{', or give ' + fewer[0] if fewer else ''}."
        )


def sweep(
    anatomy: Anatomy, units: Sequence[Unit], layers: Sequence[int], factors: Sequence[float], kinds: Sequence[str] = ()
) -> list[PlaceEdit]:
    """One edit per unit, factor and layer, in that order, of inner units one each; then the kinds of replacement."""
    for layer in layers:
        anatomy.block(layer)
        for unit in units:
            if kinds and unit in UNITS[1:]:
                anatomy.refuse_sum(layer, unit)
            if unit in UNITS[1:]:
                anatomy.branch(layer, unit)
    every: tuple[Factor, ...] = (*factors, *kinds)
    return [
        Replacement(layer, unit, part, how) if isinstance(how, str) else scaling(unit, layer, how, part)
        for unit in units
        for how in every
        for layer in layers
        for part in _inner(anatomy, unit, layer)
    ]
