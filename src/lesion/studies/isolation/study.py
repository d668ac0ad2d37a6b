"""The isolation study: which weights a skill needs and its controls do not, and what cutting them does, as TOML."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from lesion.core.study_file import (
    ModelChoice,
    Number,
    Questions,
    Table,
    TaskChoice,
    Text,
    Whole,
    different,
    listed,
    table_of,
)
from lesion.errors import UsageError

Method = Literal["mathneuro", "wanda", "wanda-rows", "lape", "magnitude"]
METHODS: tuple[Method, ...] = ("mathneuro", "wanda", "wanda-rows", "lape", "magnitude")

Share = Annotated[Number, Field(gt=0, le=1)]


SAMPLES = 100
"""Calibration texts of each task by default. The paper takes 500, and finds that sets from 100 texts already overlap by
95 %; they take a fifth of the time."""


class Choose(Table):
    """Choosing among the edits on some of the items, and reporting the chosen one on the others."""

    validation: Annotated[Number, Field(gt=0, lt=1)] = Field(
        default=0.5, description="the share of the items on which the edit is chosen, between 0 and 1"
    )


class IsolationStudy(Questions):
    """Isolate the weights of a skill by several methods, and evaluate every edit made of them.

    Without tasks nothing is evaluated: the selections are made, counted and compared.

    Example:
        >>> IsolationStudy.make(model="bundled:llama-base", skill="primer:arithmetic", controls=["primer:atlas"]).keep
        (0.05,)
    """

    FORM: ClassVar[str] = "lesion isolation"
    # What is edited does not count: the edit is part of every answer's key, and a folder can take more of them.
    SILENT: ClassVar[tuple[str, ...]] = (
        *Questions.SILENT,
        *("kind", "skill", "controls", "methods", "keep", "samples", "repeats", "replacement"),
        *("factor", "random_controls", "choose"),
    )

    kind: Literal["isolation"] = Field(default="isolation", description="isolation")
    model: Annotated[ModelChoice, table_of("source")] = Field(description="a model: text, or a table with a source")
    skill: Text = Field(description="the name of a task")
    controls: Annotated[tuple[Text, ...], BeforeValidator(listed), Field(min_length=1), AfterValidator(different)] = (
        Field(description="the names of at least one task")
    )
    methods: Annotated[tuple[Method, ...], BeforeValidator(listed), Field(min_length=1), AfterValidator(different)] = (
        Field(default=("mathneuro",), description=f"a list of {', '.join(METHODS)}")
    )
    keep: Annotated[tuple[Share, ...], BeforeValidator(listed), Field(min_length=1), AfterValidator(different)] = Field(
        default=(0.05,), description="a share above 0 and at most 1, or a list of them"
    )
    samples: Annotated[
        tuple[Annotated[Whole, Field(ge=1)], ...],
        BeforeValidator(listed),
        Field(min_length=1),
        AfterValidator(different),
    ] = Field(default=(SAMPLES,), description="a whole number from 1, or a list of them")
    repeats: Annotated[Whole, Field(ge=1)] = Field(default=1, description="a whole number from 1")
    replacement: bool = Field(default=False, description="true or false")
    factor: Annotated[tuple[Number, ...], BeforeValidator(listed), Field(min_length=1), AfterValidator(different)] = (
        Field(default=(0.0,), description="a finite number or a list of them")
    )
    random_controls: Annotated[Whole, Field(ge=0)] = Field(default=3, description="a whole number from 0")
    choose: Choose | None = Field(default=None, description="a table [choose]")
    tasks: Annotated[
        tuple[Annotated[TaskChoice, table_of("name")], ...],
        BeforeValidator(listed),
        AfterValidator(different),
    ] = Field(default=(), description="a list of tasks: strings, or tables with a name")

    def model_post_init(self, context: object) -> None:
        """Refuse what no value alone shows.

        Raises:
            UsageError: the skill is one of its own controls, or an edit is to be chosen and the skill is not asked.
        """
        from lesion.tasks.catalogue import canonical  # help and wrong options need not wait for it

        if canonical(self.skill) in map(canonical, self.controls):
            raise UsageError(f"{self.skill} is the skill and cannot be its own control; give another task.")
        if self.choose is not None and self.skill not in {task.name for task in self.tasks}:
            raise UsageError(f"An edit is chosen by the skill, so {self.skill} must be one of the tasks.")


class EvaluationStudy(Questions):
    """The questions that an evaluation of edits asks one model. Which edits is no part of it: more can follow."""

    FORM: ClassVar[str] = "lesion evaluation"
    SILENT: ClassVar[tuple[str, ...]] = (*Questions.SILENT, "kind")

    kind: Literal["evaluation"] = Field(default="evaluation", description="evaluation")
    model: Annotated[ModelChoice, table_of("source")] = Field(description="a model: text, or a table with a source")
