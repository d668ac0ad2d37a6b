"""The effect guard: before a sweep counts, an edit must be shown to change answers, and to leave nothing behind.

Engines that keep running between edits can fool in three ways: the edit does nothing, it is still there afterwards, or
keys and values from before it are served after it. Each looks like a finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from lesion.engines.engine import Request
from lesion.errors import LesionError

# Prompts, their length and what is generated after them. Stale keys and values do not show in prompts under 128 tokens.
PROMPTS, LENGTH, NEW = 4, 256, 16
SHORTEST = 200

TokenAnswers = tuple[tuple[int, ...], ...]


@runtime_checkable
class Trial(Protocol):
    """A control edit on an engine, and what the engine says to prompts with it and without."""

    def edited(self) -> AbstractContextManager[None]:
        """The control edit is made as edits of a study are, and taken back at the end of the `with`."""
        ...

    def answers(self, prompts: Sequence[tuple[int, ...]], *, edited: bool, fresh: bool) -> TokenAnswers:
        """Greedy answers to the prompts, under the control edit or not.

        With `fresh` nothing may be used that was computed for an earlier prompt, and the engine must vouch for that.
        """
        ...


def probes(requests: Sequence[Request], context: int) -> tuple[tuple[int, ...], ...]:
    """Prompts to try an engine with, of the requests' tokens: as long as stale keys and values need to show."""
    length = max(1, min(LENGTH, context - NEW))
    wanted = PROMPTS * length
    tokens: list[int] = []
    for request in requests:
        tokens += request.prompt
        if len(tokens) >= wanted:
            break
    while 0 < len(tokens) < wanted:
        tokens += tokens
    return tuple(tuple(tokens[start : start + length]) for start in range(0, wanted, length)) if tokens else ()


def prove(trials: Sequence[Trial], prompts: Sequence[tuple[int, ...]], what: str, same: float = 1.0) -> None:
    """Show that edits take hold on an engine, that nothing stale is served, and that the baseline comes back.

    Args:
        trials: control edits, each stronger than the one before; one that changes an answer suffices.
        prompts: from `probes`.
        what: the engine and the kind of edit, for messages: `edits of blocks on vllm 0.32.0`.
        same: share of the answers that must be the same token for token, where they ought to be; less than 1 only where
            two computations of one thing round differently.
    """
    if not prompts:
        return
    for trial in trials:
        before = trial.answers(prompts, edited=False, fresh=False)
        with trial.edited():
            under = trial.answers(prompts, edited=True, fresh=False)
            anew = trial.answers(prompts, edited=True, fresh=True)
        after = trial.answers(prompts, edited=False, fresh=False)
        if _agreement(under, anew) < same:
            raise LesionError(
                f"The effect guard stops this study, {what}: {_differing(under, anew)} of {len(prompts)} answers under"
                f" a control edit are not those of a fresh computation of the same. Keys and values from before the"
                f" edit are in use; switch prefix caching off."
            )
        if _agreement(before, after) < same:
            raise LesionError(
                f"The effect guard stops this study, {what}: after a control edit was taken back,"
                f" {_differing(before, after)} of {len(prompts)} answers are not those of the unedited model any more."
                f" Start again with --engine transformers."
            )
        if before != under:
            return
    raise LesionError(
        f"The effect guard stops this study, {what}: not one of {len(prompts)} answers changed under a control edit"
        f" that silences whole parts of the model. Edits do not take hold; use --engine transformers."
    )


def _differing(first: TokenAnswers, second: TokenAnswers) -> int:
    return sum(answer != other for answer, other in zip(first, second, strict=True))


def _agreement(first: TokenAnswers, second: TokenAnswers) -> float:
    return 1 - _differing(first, second) / len(first)
