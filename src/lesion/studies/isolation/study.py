"""The isolation study: which weights a skill needs and its controls do not, and what cutting them does, as TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field
from typing_extensions import override

from lesion.core.fields import COUNT, ONE_MODEL, SAMPLES, Count, Listed, Number, OneOrSeveral, Several, Text, Whole
from lesion.core.layers import refuse_no_edit
from lesion.core.method import Method
from lesion.core.options import STATISTICS, Option, option
from lesion.core.study_file import ModelChoice, OneModel, OneTask, Questions, Table
from lesion.edits.edit import MatchedIn
from lesion.errors import UsageError

SelectionMethod = Literal["mathneuro", "wanda", "wanda-rows", "lape", "magnitude"]
METHODS: tuple[SelectionMethod, ...] = get_args(SelectionMethod)

Share = Annotated[Number, Field(gt=0, le=1)]
RANDOM_CONTROLS = option(
    3, help="Number of matched random controls per edit.", must="a whole number from 0", panel=STATISTICS
)

MATCHED_IN: tuple[MatchedIn, ...] = option(
    ("count",),
    help="What random controls share with the weights of an edit: count (in every matrix), magnitude (and |W|),"
    " importance (and |W| times the inputs of the controls' texts).",
    must="count, magnitude, importance, or a list of these",
    many="comma",
    panel=STATISTICS,
)


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
        *("kind", "weights", "skill", "controls", "methods", "keep", "samples", "repeats", "replacement"),
        *("factor", "random_controls", "matched_in", "choose", "exclude_super_weights"),
    )

    kind: Literal["isolation"] = Field(default="isolation", description="isolation")
    model: OneModel = ONE_MODEL
    weights: Text | None = option(
        None,
        help="Full-precision model of a quantised MODEL: weights are selected, cut and evaluated there, by the"
        " activations of MODEL.",
        must="a model: bundled:NAME, a folder, or a hub id",
    )
    skill: Text = option(
        help="Task whose weights are sought: gsm8k, primer:arithmetic, FILE.jsonl.", must="the name of a task"
    )
    controls: Several[Text] = option(
        help="Task whose weights are excluded.",
        must="the names of at least one task",
        name="control",
        many="repeat",
    )
    methods: Several[SelectionMethod] = option(
        ("mathneuro",),
        help=f"Selection method: {', '.join(METHODS)}.",
        must=f"a list of {', '.join(METHODS)}",
        name="method",
        many="repeat",
    )
    keep: Several[Share] = option(
        (0.05,),
        help="Share of each matrix's weights that is selected for each task, in (0, 1]; not the share that remains.",
        must="a share above 0 and at most 1, or a list of them",
        many="comma",
    )
    samples: Several[Count] = option(
        (SAMPLES,),
        help="Number of calibration texts per task; several numbers show how many are needed.",
        must="a whole number from 1, or a list of them",
        many="comma",
    )
    repeats: Count = option(
        1,
        help="Number of draws of texts; more than one measures how far selections agree.",
        must=COUNT,
        panel=STATISTICS,
    )
    replacement: bool = option(False, help="Draw texts with replacement.", must="true or false", panel=STATISTICS)
    factor: Several[Number] = option(
        (0.0,),
        help="Scale factor of the selected weights, 0 prunes.",
        must="a finite number or a list of them",
        many="comma",
    )
    exclude_super_weights: Annotated[Whole, Field(ge=0, le=1000)] = option(
        0,
        help="Exclude so many weights with the largest activation spikes from every selection and random control;"
        " they are evaluated by themselves.",
        must="a whole number from 0 to 1000",
    )
    random_controls: Annotated[Whole, Field(ge=0)] = RANDOM_CONTROLS
    matched_in: Several[MatchedIn] = MATCHED_IN
    choose: Choose | None = Field(default=None, description="a table [choose]")
    tasks: Listed[OneTask] = option(
        (),
        help="Task on which every edit is evaluated; without one the weights are selected only.",
        must="a list of tasks: strings, or tables with a name",
        name="task",
        many="repeat",
    )

    EXTRA_OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option(
            "validation", (), "Choose the best edit on this share of the items and report it on the others.",
            STATISTICS, frozenset({float}),
        ),
    )  # fmt: skip

    @classmethod
    @override
    def from_options(cls, validation: float | None = None, **options: Any) -> IsolationStudy:
        """A study from options by their flat names.

        Raises:
            UsageError: a value is wrong; all that are wrong are named.
        """
        chosen = {} if validation is None else {"choose": {"validation": validation}}
        return super().from_options(**options, **chosen)

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

    @override
    def styles_of(self, model: ModelChoice) -> dict[str, str | None]:
        calibration = dict.fromkeys((self.skill, *self.controls), self.styled(model.prompt_style))
        return {**calibration, **super().styles_of(model)}


class EvaluationStudy(Questions):
    """Edits evaluated on one model. Which edits is no part of its identity: more can follow."""

    FORM: ClassVar[str] = "lesion evaluation"
    SILENT: ClassVar[tuple[str, ...]] = (
        *Questions.SILENT,
        *("kind", "edits", "factor", "random_controls", "matched_in", "validation", "force", "skill"),
    )

    kind: Literal["evaluation"] = Field(default="evaluation", description="evaluation")
    model: OneModel = ONE_MODEL
    edits: Annotated[tuple[Text, ...], OneOrSeveral()] = option(
        (),
        help="An edit: 3x0, 0-3x0, '3.mlp.up top 0.1', …, or an .edit file; without one, the baseline alone.",
        must="a list of edits: texts such as 3x0, or .edit files",
        name="edit",
        many="repeat",
    )
    factor: Listed[Number] = option(
        (),
        help="Scale factor, 0 prunes; default: each edit's own.",
        must="a finite number or a list of them",
        many="comma",
    )
    random_controls: Annotated[Whole, Field(ge=0)] = RANDOM_CONTROLS
    matched_in: Several[MatchedIn] = MATCHED_IN
    validation: Annotated[Number, Field(gt=0, lt=1)] | None = option(
        None,
        help="Choose the best edit on this share of the items and report it on the others.",
        must="a share of the items between 0 and 1",
        panel=STATISTICS,
    )
    skill: Text | None = option(
        None,
        help="Task whose loss is sought, the others being controls; default: that of an .edit file's calibration.",
        must="the name of one of the tasks",
    )
    force: bool = option(False, help="Accept edits made for another model of the same shapes.", must="true or false")

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
)
