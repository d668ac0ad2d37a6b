"""A finding: what a study shows of one subject, in sentences."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What is told of one model under one unit and factor, or of all models together (`subject` empty).

    Attributes:
        subject: the model, and the edit where it is not the plain block switched off.
        headline: the sentences to be read first.
        sentences: one per task.
        badge: a verdict in a word beside the subject, and its mood: `yes`, `no` or neither.
    """

    subject: str
    headline: tuple[str, ...]
    sentences: tuple[str, ...] = ()
    badge: tuple[str, str] | None = None
