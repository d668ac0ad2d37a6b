"""Control edits by which the effect guard tries a vLLM: blocks that are silenced, and weights that are zeroed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from lesion.edits.edit import Compose, ScaleBlock
from lesion.engines.guard import NEW, Said
from lesion.engines.vllm.jobs import Job, Jobs
from lesion.engines.vllm.weights import Place, Workers, handed, place_of
from lesion.errors import LesionError
from lesion.models.load import Model


class Tried(Workers, Protocol):
    """What a trial needs of an engine on vLLM."""

    model: Model
    jobs: Jobs

    def column(self, places: Compose) -> int:
        """The number by which the workers know an edit of places."""
        ...

    def forget(self) -> None:
        """Throw away the keys and values of earlier prompts."""
        ...

    def forgetting(self) -> AbstractContextManager[None]:
        """At the end of the `with`, throw away the keys and values of earlier prompts."""
        ...


class PlaceTrial:
    """Blocks silenced by gates."""

    def __init__(self, engine: Tried, layers: Sequence[int]) -> None:
        self.engine = engine
        self.edit = Compose(tuple(ScaleBlock(layer, 0.0) for layer in layers))

    def edited(self) -> AbstractContextManager[None]:
        """Nothing is to be done: the edit comes with each prompt."""
        return nullcontext()

    def said(self, prompts: Sequence[tuple[int, ...]], *, edited: bool, fresh: bool) -> Said:
        """Greedy answers."""
        return said(self.engine, prompts, self.engine.column(self.edit) if edited else 0, fresh)


class WeightTrial:
    """Matrices that write to the stream, zeroed."""

    def __init__(self, engine: Tried, places: Sequence[Place]) -> None:
        self.engine = engine
        self.places = places

    @contextmanager
    def edited(self) -> Iterator[None]:
        """Zeros are handed to the workers as edited weights are."""
        with self.engine.forgetting(), handed(self.engine, self.engine.model, self.places, zero=True):
            self.engine.forget()
            yield

    def said(self, prompts: Sequence[tuple[int, ...]], *, edited: bool, fresh: bool) -> Said:
        """Greedy answers."""
        return said(self.engine, prompts, 0, fresh)


def trials_of_places(engine: Tried) -> list[PlaceTrial]:
    """The block in the middle, and all of them."""
    blocks = len(engine.model.anatomy.blocks)
    return [PlaceTrial(engine, [blocks // 2]), PlaceTrial(engine, range(blocks))]


def trials_of_weights(engine: Tried) -> list[WeightTrial]:
    """What the branches of the first block write to the stream, and those of all blocks."""
    model = engine.model
    last = [
        [place_of(model, matrix) for branch in block.branches for matrix in list(branch.matrices.values())[-1:]]
        for block in model.anatomy.blocks
        if not any(
            matrix.storage.expert is not None for branch in block.branches for matrix in branch.matrices.values()
        )
    ]
    if not last:
        raise LesionError(
            f"{engine.model.name} has no block by which it could be shown that edits of weights take hold."
        )
    return [WeightTrial(engine, last[0]), WeightTrial(engine, [place for places in last for place in places])]


def said(engine: Tried, prompts: Sequence[tuple[int, ...]], column: int, fresh: bool) -> Said:
    """Greedy answers to prompts.

    Raises:
        LesionError: vLLM took what it had computed before for an answer that was to be fresh.
    """
    jobs = [Job(prompt, NEW, column, fresh=fresh) for prompt in prompts]
    for job in engine.jobs.run(jobs):
        if fresh and job.cached:
            raise LesionError("The effect guard cannot vouch for this vLLM: it does not leave out what it has kept.")
    return tuple(tuple(job.said) for job in jobs)
