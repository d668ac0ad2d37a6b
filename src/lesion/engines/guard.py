"""The effect guard: before a sweep counts, an edit must be shown to change answers, and to leave nothing behind.

Engines that keep running between edits can fool in two ways: the edit does nothing, or it is still there afterwards.
Each looks like a finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from lesion.engines.engine import Request
from lesion.errors import LesionError

# Prompts, their length and what is generated after them.
PROMPTS, LENGTH, NEW = 4, 256, 16

TokenAnswers = tuple[tuple[int, ...], ...]


@runtime_checkable
class Trial(Protocol):
    """A control edit on an engine, and what the engine says to prompts with it and without."""

    def edited(self) -> AbstractContextManager[None]:
        """The control edit is made as edits of a study are, and taken back at the end of the `with`."""
        ...

    def answers(self, prompts: Sequence[tuple[int, ...]], *, edited: bool) -> TokenAnswers:
        """Greedy answers to the prompts, under the control edit or not."""
        ...


def probes(requests: Sequence[Request], context: int) -> tuple[tuple[int, ...], ...]:
    """Prompts to try an engine with, of the requests' tokens."""
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


def prove(trials: Sequence[Trial], prompts: Sequence[tuple[int, ...]], what: str) -> None:
    """Show that edits take hold on an engine, and that the baseline comes back."""
    if not prompts:
        return
    for trial in trials:
        before = trial.answers(prompts, edited=False)
        with trial.edited():
            under = trial.answers(prompts, edited=True)
        after = trial.answers(prompts, edited=False)
        if before != after:
            differing = sum(answer != other for answer, other in zip(before, after, strict=True))
            raise LesionError(
                f"The effect guard stops this study, {what}: after a control edit was taken back,"
                f" {differing} of {len(prompts)} answers are not those of the unedited model any more."
                f" Start again with --engine transformers."
            )
        if before != under:
            return
    raise LesionError(
        f"The effect guard stops this study, {what}: not one of {len(prompts)} answers changed under a control edit"
        f" that silences whole parts of the model. Edits do not take hold; use --engine transformers."
    )
