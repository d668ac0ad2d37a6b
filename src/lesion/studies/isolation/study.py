"""The isolation study: which weights a skill needs and its controls do not, and what cutting them does, as TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field
from typing_extensions import override

from lesion.core.fields import (
    ANYWAY,
    ONE_MODEL,
    SAMPLES,
    Also,
    Count,
    Listed,
    Number,
    OneOrSeveral,
    Several,
    TaskName,
    Text,
    Whole,
)
from lesion.core.layers import refuse_no_edit
from lesion.core.method import Method
from lesion.core.options import EXTENDABLE, NOT_IN_IDENTITY, STATISTICS, flat, free_option, kind_key, option
from lesion.core.study_file import ModelChoice, OneModel, OneTask, Questions, Table
from lesion.edits.edit import MatchedIn
from lesion.errors import UsageError

SelectionMethod = Literal["mathneuro", "wanda", "wanda-rows", "lape", "magnitude"]
METHODS: tuple[SelectionMethod, ...] = get_args(SelectionMethod)

Share = Annotated[Number, Field(gt=0, le=1)]
EditText = Annotated[
    Text, Also("pathlib:Path"), Also("lesion.edits.files.artefact:EditFile"), Also("lesion.edits.edit:Edit")
]


class Choose(Table):
    """Choosing among the edits on some of the items, and reporting the chosen one on the others."""

    validation: Annotated[Number, Field(gt=0, lt=1)] = option(
        0.5, help="Choose the best edit on this share of the items and report it on the others.", panel=STATISTICS
    )


class EditsStudy(Questions):
    """What every study has that evaluates edits beside random controls."""

    model: OneModel = ONE_MODEL
    random_controls: Annotated[Whole, Field(ge=0)] = free_option(
        3, help="Number of matched random controls per edit.", panel=STATISTICS
    )
    matched_in: Several[MatchedIn] = free_option(
        ("count",),
        help="What random controls share with the weights of an edit: count (in every matrix), magnitude (and |W|),"
        " importance (and |W| times the inputs of the controls' texts).",
        many="comma",
        panel=STATISTICS,
    )


class IsolationStudy(EditsStudy):
    """Isolate the weights of a skill by several methods, and evaluate every edit made of them.

    Without tasks nothing is evaluated: the selections are made, counted and compared.

    Example:
        >>> IsolationStudy.make(model="bundled:llama-base", skill="primer:arithmetic", controls=["primer:atlas"]).share
        (0.05,)
    """

    IDENTITY_PREFIX: ClassVar[str] = "lesion isolation"

    kind: Literal["isolation"] = kind_key("isolation")
    weights: Text | None = free_option(
        None,
        help="Full-precision model of a quantised MODEL: weights are selected, cut and evaluated there, by the"
        " activations of MODEL.",
        must="a model: bundled:NAME, a folder, or a hub id",
    )
    skill: TaskName = free_option(
        help="Task whose weights are sought: gsm8k, primer:arithmetic, FILE.jsonl.", must="the name of a task"
    )
    controls: Several[TaskName] = free_option(
        help="Task whose weights are excluded.", must="the names of at least one task", name="control", many="repeat"
    )
    methods: Several[SelectionMethod] = free_option(
        ("mathneuro",), help=f"Selection method: {', '.join(METHODS)}.", name="method", many="repeat"
    )
    share: Several[Share] = free_option(
        (0.05,),
        help="Share of each matrix's weights that is selected for each task, in (0, 1]; not the share that remains.",
        must="a share above 0 and at most 1, or a list of them",
        many="comma",
        alias="keep",  # in summary.json
    )
    samples: Several[Count] = free_option(
        (SAMPLES,),
        help="Number of calibration texts per task; several numbers show how many are needed.",
        must="a whole number from 1, or a list of them",
        many="comma",
    )
    repeats: Count = free_option(
        1, help="Number of draws of texts; more than one measures how far selections agree.", panel=STATISTICS
    )
    replacement: bool = free_option(False, help="Draw texts with replacement.", panel=STATISTICS)
    factor: Several[Number] = free_option((0.0,), help="Scale factor of the selected weights, 0 prunes.", many="comma")
    exclude_super_weights: Annotated[Whole, Field(ge=0, le=1000)] = free_option(
        0,
        help="Exclude so many weights with the largest activation spikes from every selection and random control;"
        " they are evaluated by themselves.",
    )
    anyway: bool = ANYWAY
    choose: Choose | None = flat(None, "a table [choose]", identity=NOT_IN_IDENTITY)
    tasks: Listed[OneTask] = option(
        (),
        help="Task on which every edit is evaluated; without one the weights are selected only.",
        must="a list of tasks: strings, or tables with a name",
        name="task",
        many="repeat",
        identity=EXTENDABLE,
        unordered=True,
    )

    def model_post_init(self, context: object) -> None:
        """Refuse what no value alone shows."""
        from lesion.tasks.catalogue import canonical  # help and wrong options need not wait for it

        if canonical(self.skill) in map(canonical, self.controls):
            raise UsageError(f"{self.skill} is the skill and cannot be its own control; give another task.")
        if self.choose is not None and self.skill not in {task.name for task in self.tasks}:
            raise UsageError(f"An edit is chosen by the skill, so {self.skill} must be one of the tasks.")

    @override
    def styles_of(self, model: ModelChoice) -> dict[str, str | None]:
        calibration = dict.fromkeys((self.skill, *self.controls), self.styled(model.prompt_style))
        return {**calibration, **super().styles_of(model)}


class EvaluationStudy(EditsStudy):
    """Edits evaluated on one model. Which edits is no part of its identity: more can follow."""

    IDENTITY_PREFIX: ClassVar[str] = "lesion evaluation"

    kind: Literal["evaluation"] = kind_key("evaluation")
    edits: Annotated[tuple[EditText, ...], OneOrSeveral()] = free_option(
        (),
        help="An edit: 3x0, 0-3x0, '3.mlp.up top 0.1', …, or an .edit file; without one, the baseline alone.",
        must="a list of edits: texts such as 3x0, or .edit files",
        name="edit",
        many="repeat",
        first=True,
    )
    factor: Listed[Number] = free_option((), help="Scale factor, 0 prunes; default: each edit's own.", many="comma")
    anyway: bool = ANYWAY
    validation: Annotated[Number, Field(gt=0, lt=1)] | None = free_option(
        None, help="Choose the best edit on this share of the items and report it on the others.", panel=STATISTICS
    )
    skill: TaskName | None = free_option(
        None,
        help="Task whose loss is sought, the others being controls; default: that of an .edit file's calibration.",
        must="the name of one of the tasks",
    )
    force: bool = free_option(False, help="Accept edits made for another model of the same shapes.")

    @override
    def look_ahead(self, blocks: Mapping[str, int]) -> None:
        refuse_no_edit(self.edits, blocks)


METHOD = Method(
    IsolationStudy,
    "lesion.studies.isolation.run:run_isolation",
    "lesion.studies.isolation.report:IsolationResult",
    "isolate",
    "Find the weights that a skill needs and its controls do not, with forward passes only; write them as edits.",
    examples=("lesion isolate MODEL --skill sums.jsonl --control facts.jsonl --out weights",),
    kept="What was observed and answered so far is kept in {folder}; the same command goes on.",
    python="""
Example:
    >>> result = lesion.isolate("bundled:llama-base", "primer:arithmetic", ["primer:atlas", "primer:reading"])
    >>> edit = lesion.read_edit(result.edits["mathneuro-0.05"])

Raises:
    UsageError: a task does not exist or has too few items, or a value is wrong.
    LesionError: the model cannot be loaded, or every selection is empty or everything.
""",
)
EVALUATION = Method(
    EvaluationStudy,
    "lesion.studies.isolation.run:run_evaluation",
    "lesion.studies.isolation.report:EvaluationResult",
    "evaluate",
    "Evaluate baseline and edits on the same items, each edit with its matched random controls.",
    examples=(
        "lesion evaluate MODEL --edit 3x0 --edit 0-1x0.5 --task a.jsonl --out edits",
        "lesion evaluate MODEL --edit a.edit --factor 0,0.5 --task a.jsonl --out edits",
    ),
    folder="isolation",
    python="""
An edit is a value, its text form, or an `.edit` file. Its controls are the same change at other places
(`lesion.edits.selections.controls`).

Example:
    >>> result = lesion.evaluate(model, ["3×0", "0-3.mlp×0.5", "cut.edit"], ["primer:arithmetic", "primer:atlas"])
    >>> result.table_full[["edit", "task", "accuracy", "drop_low", "drop_high", "random_lowest", "random_highest"]]

Raises:
    UsageError: a task does not exist, or a value is wrong.
    LesionError: an edit does not fit the model, or moves too little in its dtype.
""",
)
