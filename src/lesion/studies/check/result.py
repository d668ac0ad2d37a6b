"""What a check finds: of each task how it was asked, how it went and what is odd, and the prompts as they were sent."""

from __future__ import annotations

from typing import Literal

from lesion.core.readiness import CheckedTask
from lesion.core.values import Summary
from lesion.studies.check.study import CheckStudy


class CheckSummary(Summary):
    """All that a check found.

    Attributes:
        chat: whether the model has a chat template.
    """

    kind: Literal["check"] = "check"
    study: CheckStudy
    chat: bool
    tasks: tuple[CheckedTask, ...]
