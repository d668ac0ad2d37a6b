"""A finding: what a study shows of one subject, in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lesion.report.wording import counted

LIMITS = "What limits this"
FEW = 10
"""Fewer items than these are said to be few."""


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


def limits(measured: Iterable[tuple[str, str, float | None, int]]) -> list[Finding]:
    """What limits every finding of a study: unedited accuracies at an end of the scale, and few items.

    Args:
        measured: of every task its name, what its items are called (`validation item`), the accuracy of the unedited
            model in 0…1 (None where it has none), and how many items there are.
    """
    sentences = []
    for task, item, accuracy, items in measured:
        if accuracy in (0, 1):
            which = "every" if accuracy else "no"
            sentences.append(
                f"{task}: the unedited model has {which} {item} right, so that no edit can be"
                f" {'better' if accuracy else 'worse'} there."
            )
        if 0 < items < FEW:
            sentences.append(
                f"{task}: {counted(items, item)} {'is' if items == 1 else 'are'} few; chance decides much."
            )
    return [Finding(LIMITS, (), tuple(sentences))] if sentences else []
