"""Control edits by which the effect guard tries a vLLM: blocks that are silenced, and weights that are zeroed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lesion.edits.edit import BASELINE, Compose, ScaleBlock
from lesion.engines.guard import NEW, TokenAnswers
from lesion.engines.vllm.jobs import Job
from lesion.engines.vllm.weights import Place, handed, place_of
from lesion.errors import LesionError

if TYPE_CHECKING:
    from lesion.engines.vllm.engine import VllmEngine


@dataclass(frozen=True, eq=False)
class ControlEdit:
    """Blocks silenced by gates, or matrices that write to the stream zeroed (a `lesion.engines.guard.Trial`)."""

    engine: VllmEngine
    silenced: Compose = BASELINE
    zeroed: Sequence[Place] = ()

    @contextmanager
    def edited(self) -> Iterator[None]:
        """Hand zeros to the workers as edited weights are; silenced blocks come with each prompt."""
        if not self.zeroed:
            yield
            return
        with handed(self.engine, self.zeroed, zero=True):
            yield

    def answers(self, prompts: Sequence[tuple[int, ...]], *, edited: bool) -> TokenAnswers:
        """Greedy answers."""
        jobs = [Job(prompt, NEW, self.engine.column(self.silenced) if edited else 0) for prompt in prompts]
        for _ in self.engine.jobs.run(jobs):
            pass
        return tuple(tuple(job.generated) for job in jobs)


def trials_of_places(engine: VllmEngine) -> list[ControlEdit]:
    """The block in the middle, and all of them."""
    blocks = range(len(engine.model.anatomy.blocks))
    return [
        ControlEdit(engine, Compose(tuple(ScaleBlock(layer, 0.0) for layer in layers)))
        for layers in ([len(blocks) // 2], blocks)
    ]


def trials_of_weights(engine: VllmEngine) -> list[ControlEdit]:
    """What the branches of the first block write to the stream, and those of all blocks; blocks of experts left out."""
    last = [
        [place_of(engine.model, list(branch.matrices.values())[-1]) for branch in block.branches if branch.matrices]
        for block in engine.model.anatomy.blocks
        if all(matrix.storage.expert is None for branch in block.branches for matrix in branch.matrices.values())
    ]
    if not last:
        raise LesionError(
            f"{engine.model.name} has no block by which it could be shown that edits of weights take hold."
        )
    return [ControlEdit(engine, zeroed=places) for places in (last[0], [place for places in last for place in places])]
