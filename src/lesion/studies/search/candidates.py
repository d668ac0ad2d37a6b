"""Candidates: an order of a model's blocks, and an edit of the network in that order.

A dropped run is an exact zero ablation, so all drops are edits of the model itself. Repeats that end at one block are
edits of one network: it repeats the longest run that ends there, and blocks of the copies that stand before a shorter
run's begin are zeroed. So lengths and dampings share a batch, and in it all that stands before the first copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lesion.edits.edit import BASELINE, SCALES, Edit, ScaleAttention, ScaleBlock, ScaleMlp, Single, composed, number
from lesion.errors import UsageError
from lesion.models.anatomy import Anatomy
from lesion.models.order import Order
from lesion.report.wording import counted
from lesion.studies.search.study import Family, SearchStudy
from lesion.studies.truncation.search import grid

BETTER = "better"
"""The contest of all candidates that are to make a model better; each length of dropped runs is one of its own."""


@dataclass(frozen=True)
class Candidate:
    """One change of the layout.

    Attributes:
        name: in words, unique in a search: `blocks 3–5 twice (×0.5)`.
        contest: `better`, or `drop 3`: among which it is chosen.
        first: block that it changes, and how many with it (`length`).
        how: what is done, whatever the blocks: `3 blocks twice (×0.5)`; those that are done alike are its rivals.
        order, edit: the network in which it is evaluated, and the edit of that network.
        written, damped: the same as a checkpoint: its blocks, and the edit of the model that has these.
        kept: for candidates of equal score: less changed comes first.
    """

    family: Family
    name: str
    contest: str
    first: int
    length: int
    how: str
    order: Order
    edit: Edit
    written: Order
    damped: Edit
    kept: float = 0.0


def candidates(study: SearchStudy, anatomy: Anatomy, layers: Sequence[int]) -> list[Candidate]:
    """All candidates of a study, family by family."""
    found: list[Candidate] = []
    for family in study.family:
        own = list(_FAMILIES[family](study, anatomy, layers))
        if not own:
            raise UsageError(
                f"There is nothing to {family} in {anatomy.name}, which has {counted(len(anatomy.blocks), 'block')},"
                f" with --lengths {','.join(map(str, study.lengths))} and --layers {study.layers}; give others."
            )
        found += own
    return found


def _runs(lengths: Sequence[int], layers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First block and length of every run within the layers."""
    there = set(layers)
    for length in sorted(lengths):
        for first in layers:
            if there.issuperset(range(first, first + length)):
                yield first, length


def _repeat(study: SearchStudy, anatomy: Anatomy, layers: Sequence[int]) -> Iterator[Candidate]:
    runs, blocks = list(_runs(study.lengths, layers)), len(anatomy.blocks)
    lacking = [at for at in layers if None in (anatomy.block(at).attention, anatomy.block(at).mlp)]
    if lacking and {*study.damping} != {1.0}:
        raise UsageError(
            f"Damping scales attention and MLP, and block {lacking[0]} of {anatomy.name} has not both; leave --damping"
            " out, or give other --layers."
        )
    longest: dict[int, int] = {}
    for first, length in runs:
        longest[first + length - 1] = length
    for times in study.times:
        for first, length in runs:
            last = first + length - 1
            most, rest = longest[last], range(last + 1, blocks)
            order = (*range(last + 1), *[*range(last + 1 - most, last + 1)] * (times - 1), *rest)
            written = (*range(last + 1), *[*range(first, last + 1)] * (times - 1), *rest)
            for damping in study.damping:
                zeroed: list[Single] = []
                own: list[Single] = []
                damped: list[Single] = []
                for copy in range(times - 1):
                    start = last + 1 + copy * most
                    zeroed += [ScaleBlock(place, 0.0) for place in range(start, start + most - length)]
                    own += _damped(range(start + most - length, start + most), damping)
                    start = last + 1 + copy * length
                    damped += _damped(range(start, start + length), damping)
                parts = [*zeroed, *own]
                how = f"{_TIMES.get(times, f'{times} times')}{f' (×{number(damping)})' * (damping != 1)}"
                yield Candidate(
                    "repeat", f"{_named(first, length)} {how}", BETTER, first, length,
                    f"{counted(length, 'block')} {how}", order, composed(parts) if parts else BASELINE, written,
                    composed(damped) if damped else BASELINE, -length * (times - 1.0),
                )  # fmt: skip


_TIMES = {2: "twice", 3: "three times", 4: "four times"}


def _damped(places: Sequence[int], damping: float) -> list[Single]:
    """Attention and MLP multiplied each, as their last matrices can be, and as a block's whole contribution cannot."""
    if damping == 1:
        return []
    return [unit(place, damping) for place in places for unit in (ScaleAttention, ScaleMlp)]


def _drop(study: SearchStudy, anatomy: Anatomy, layers: Sequence[int]) -> Iterator[Candidate]:
    blocks = len(anatomy.blocks)
    for first, length in _runs(study.lengths, layers):
        if length < blocks:
            edit = composed([ScaleBlock(block, 0.0) for block in range(first, first + length)])
            written = tuple(block for block in range(blocks) if not first <= block < first + length)
            name, contest = f"{_named(first, length)} left out", f"drop {length}"
            how = f"{counted(length, 'block')} left out"
            yield Candidate(
                "drop", name, contest, first, length, how, tuple(range(blocks)), edit, written, BASELINE
            )  # fmt: skip


def _swap(study: SearchStudy, anatomy: Anatomy, layers: Sequence[int]) -> Iterator[Candidate]:
    there, blocks = set(layers), len(anatomy.blocks)
    for first, length in _runs(study.lengths, layers):
        middle, end = first + length, first + 2 * length
        if there.issuperset(range(middle, end)):
            order = (*range(first), *range(middle, end), *range(first, middle), *range(end, blocks))
            name = f"{_named(first, length)} behind {_named(middle, length)}"
            how = f"{counted(length, 'block')} swapped with the next"
            yield Candidate(
                "swap", name, BETTER, first, length, how, order, BASELINE, order, BASELINE, -2.0 * length
            )  # fmt: skip


def _scale(study: SearchStudy, anatomy: Anatomy, layers: Sequence[int]) -> Iterator[Candidate]:
    for layer in layers:
        for unit in study.unit:
            if unit != "block" and getattr(anatomy.block(layer), unit) is None:
                continue
            for factor in study.factor:
                edit = SCALES[unit](layer, factor)
                how = f"{unit} ×{number(factor)}"
                yield _edited("scale", f"{edit}", layer, how, edit, anatomy, -abs(factor - 1))


def _truncate(study: SearchStudy, anatomy: Anatomy, layers: Sequence[int]) -> Iterator[Candidate]:
    for cell in grid(anatomy, layers, study.matrices, study.keep, study.side).cells:
        row = cell.row
        how = f"{row.matrix} {row.side} {number(row.keep)}"
        yield _edited("truncate", row.name, row.layer, how, cell.edit, anatomy, row.rank / row.of - 1)


def _edited(family: Family, name: str, layer: int, how: str, edit: Edit, anatomy: Anatomy, kept: float) -> Candidate:
    order = tuple(range(len(anatomy.blocks)))
    return Candidate(family, name, BETTER, layer, 1, how, order, edit, order, edit, kept)


def _named(first: int, length: int) -> str:
    return f"block {first}" if length == 1 else f"blocks {first}–{first + length - 1}"


_FAMILIES: Mapping[Family, Callable[[SearchStudy, Anatomy, Sequence[int]], Iterator[Candidate]]] = {
    "repeat": _repeat,
    "drop": _drop,
    "swap": _swap,
    "scale": _scale,
    "truncate": _truncate,
}
