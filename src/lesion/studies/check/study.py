"""The study behind `lesion check`: which model answers a few questions of which tasks."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from lesion.core.fields import ONE_MODEL, Whole
from lesion.core.method import Method
from lesion.core.options import STATISTICS, kind_key, option
from lesion.core.study_file import OneModel, Questions


class CheckStudy(Questions):
    """A model as it is, and a few questions of each task, in the prompt style of a study and in the other one.

    Example:
        >>> CheckStudy.make(model="bundled:llama-base", tasks=["primer:arithmetic"]).items
        10
    """

    IDENTITY_PREFIX: ClassVar[str] = "lesion check"

    kind: Literal["check"] = kind_key("check")
    model: OneModel = ONE_MODEL
    items: Annotated[Whole, Field(ge=1)] | Literal["all"] = option(
        10,
        help="Number of questions per task, drawn with the seed.",
        must="a whole number from 1, or all",
        panel=STATISTICS,
    )


METHOD = Method(
    CheckStudy,
    "lesion.studies.check.report:run_check",
    "lesion.studies.check.report:CheckResult",
    "check",
    "Show how a model is asked and what it answers, before a study: ten questions a task, unedited.",
    needs_out=False,
    kept="Nothing is kept; the same command begins anew.",
    examples=(
        "lesion check bundled:llama-instruct --task primer:arithmetic",
        "lesion check model/ --task questions.jsonl --prompt-style chat",
    ),
    python="""
Example:
    >>> result = lesion.check("bundled:llama-instruct", "primer:arithmetic")
    >>> result.verdict, result.table[["task", "style", "accuracy"]]

Raises:
    UsageError: a task or prompt style does not exist, or the model has no chat template for it.
    LesionError: the model cannot be loaded, or a prompt does not fit.
""",
)
