"""The layer study: which models are asked which tasks with which places switched off, as validated TOML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import override

from lesion.core.fields import ANYWAY, MODELS, Count, Listed, Number, Several, Text, Whole
from lesion.core.layers import LAYERS, Layers, Place, parse_layers, removal
from lesion.core.method import Method
from lesion.core.options import EXTENDABLE, NOT_IN_IDENTITY, STATISTICS, WHAT, Option, flat, key, nested, option
from lesion.core.study_file import OneModel, Questions, Table
from lesion.edits.place import Unit
from lesion.edits.replace import REPLACED_UNITS
from lesion.errors import UsageError

Kind = Literal["mean", "position", "resample", "optimal"]
"""What replaces what a place adds (`lesion.edits.replace`)."""


class EditPlan(Table):
    """The edits of the study, one at a time: every unit × layer × factor, and × kind of replacement."""

    unit: Several[Unit] = option(
        ("block",),
        help="Part of each block to edit: block, attention or mlp; or each head, group (key-value group), matrix,"
        " expert or neuron alone.",
        many="repeat",
        unordered=True,
    )
    layers: Layers = LAYERS()
    factor: Several[Number] = option(
        (0.0,), help="Scale factor: 0 ablates, 1 changes nothing.", many="comma", unordered=True
    )
    replace: Listed[Kind] = option(
        (),
        help="Beside the factors, replace what each block, attention, MLP or head adds: by its mean over texts of the"
        " task (mean), by its mean at the same position (position), by what it added in another text (resample), or by"
        " the constant that hurts least (optimal; fitted, slow).",
        many="comma",
        unordered=True,
    )
    draws: Count = option(1, help="How many draws of resample, each another text.")

    @model_validator(mode="after")
    def _evaluated(self) -> EditPlan:
        if set(self.factor) == {1.0} and not self.replace:
            raise ValueError("factor=1 changes nothing, so that there is nothing to evaluate; give another, such as 0.")
        others = [unit for unit in self.unit if unit not in REPLACED_UNITS]
        if self.replace and others:
            raise ValueError(
                f"replace is of blocks, attention, MLP and heads, not of the unit {others[0]}; leave out replace, or"
                f" give {others[0]} in a study of its own."
            )
        if self.draws > 1 and "resample" not in self.replace:
            raise ValueError("draws is of resample; give replace = 'resample' with it, or leave it out.")
        return self

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of replacement, a draw of `resample` behind its name where it is not the first."""
        draws = [f"resample {draw}" for draw in range(1, self.draws)]
        return tuple(label for kind in self.replace for label in (kind, *(draws if kind == "resample" else [])))


class Hypothesis(Table):
    """What is expected of one place, written down before any answer is there (`lesion plan`)."""

    task: Text = Field(description="the name of a task of the study")
    place: Place = Field(
        description="a block, branch or part of one, for example '13', '13.mlp' or '13.attention.head.4'"
    )

    @property
    def unit(self) -> Unit:
        """What the place is, as a sweep's unit is named."""
        return removal(self.place).unit

    expect: Literal["critical", "spared"] = Field(description="critical or spared")
    factor: Number | Kind = Field(default=0.0, description="a number or a kind of replacement")


class StopPlan(Table):
    """When to stop asking a cell, an edit on a task: once it is decided (`lesion.statistics.sequential_families`)."""

    when: Literal["decided"] = option(
        "decided",
        help="Stop evaluating a layer once it is decided whether its drop exceeds the effect: decided.",
        must="decided",
        panel=STATISTICS,
        name="stop_when",
    )
    rule: Literal["closed e-BH", "e-Holm"] = option(
        "closed e-BH",
        help="What the level limits once evaluation stops: closed e-BH the false discovery rate, e-Holm the chance of"
        " any wrong call.",
        must="closed e-BH (false discovery rate) or e-Holm (family-wise error)",
        panel=STATISTICS,
        name="stop_rule",
        shown="closed e-BH",
    )
    effect: Annotated[Number, Field(gt=0, lt=1)] = option(
        0.1,
        help="Smallest drop in accuracy that counts, where evaluation stops once decided.",
        panel=STATISTICS,
        shown="0.1",
    )
    level: Annotated[Number, Field(gt=0, lt=1)] = Field(
        default=0.05, description="the false discovery rate or family-wise error allowed, a number between 0 and 1"
    )


class Study(Questions):
    """A question, asked in full: models × edits × tasks × items, and how they are decoded.

    Example:
        >>> Study.make(models=["bundled:llama-base"], tasks=["primer:arithmetic"], items=50).edits.layers
        'all'
    """

    IDENTITY_PREFIX: ClassVar[str] = "lesion study"

    models: Several[OneModel] = MODELS(identity=EXTENDABLE, unordered=True)
    edits: EditPlan = flat(EditPlan(), "a table [edits]", identity=EXTENDABLE)
    stop: StopPlan | None = flat(None, "a table [stop]", identity=NOT_IN_IDENTITY)
    screen: Annotated[
        Literal[True] | None,
        BeforeValidator(lambda value: None if value is False else value, json_schema_input_type=bool | None),
    ] = option(
        None,
        help="First score gold solutions under every edit (cheap): ranks layers; compares tasks at equal difficulty.",
        must="true or false",
        panel=STATISTICS,
        identity=NOT_IN_IDENTITY,
    )

    anyway: bool = ANYWAY
    hypotheses: tuple[Hypothesis, ...] = key((), "tables [[hypotheses]]", identity=NOT_IN_IDENTITY)

    @model_validator(mode="after")
    def _evaluated(self) -> Study:
        if self.engine is not None and self.edits.replace:
            raise ValueError(
                f"engine is {self.engine}; contributions are replaced on transformers only, so leave engine or replace"
                " out."
            )
        if self.hypotheses and self.stop is not None:
            raise ValueError("hypotheses are tested on the full table; leave out stop.")
        about = [(each.task, each.place, each.factor) for each in self.hypotheses]
        if (twice := next((each for each in about if about.count(each) > 1), None)) is not None:
            raise ValueError(f"two hypotheses are about {twice[1]} and {twice[0]}; write down one of them.")
        names = [choice.name for choice in self.tasks]
        known = (*self.edits.factor, *self.edits.kinds)
        for each in self.hypotheses:
            if each.task not in names:
                raise ValueError(f"a hypothesis is about {each.task}, which is not among the tasks; add it there.")
            if each.unit not in self.edits.unit or each.factor not in known:
                raise ValueError(
                    f"a hypothesis is about {each.place} under {each.factor}, which the study does not evaluate; add"
                    " its unit to edits.unit, and its factor to edits.factor or its kind to edits.replace."
                )
        return self

    screen_top: Count | None = option(
        None,
        help="Screen, then generate only under so many edits of each unit and factor, kind or draw: those that take"
        " most log-probability.",
        panel=STATISTICS,
        identity=NOT_IN_IDENTITY,
        exclude_if=lambda top: top is None,
    )

    early_answers: Listed[Annotated[Whole, Field(ge=0)]] = option(
        (),
        help="Also cut every chain of thought off after so many tokens and ask for its answer: 0,64,128.",
        many="comma",
        panel=STATISTICS,
        identity=NOT_IN_IDENTITY,
        exclude_if=lambda limits: not limits,
    )

    @property
    def screens(self) -> bool:
        """Whether gold solutions are scored first."""
        return bool(self.screen) or self.screen_top is not None

    @override
    def look_ahead(self, blocks: Mapping[str, int]) -> None:
        for name, count in blocks.items():
            parse_layers(self.edits.layers, count, name)

    @classmethod
    @override
    def from_options(
        cls,
        stop_when: str | None = None,
        stop_rule: str | None = None,
        effect: float | None = None,
        level: float | None = None,
        **options: Any,
    ) -> Study:
        """A study from options by their flat names.

        With `stop_when`, `level` may be said as that of the intervals or as the false discovery rate allowed: 0.95 and
        0.05 mean the same.
        """
        if stop_when is None:
            if effect is not None:
                raise UsageError(
                    "--effect says when to stop evaluating; give --stop-when decided with it, or leave it out."
                )
            if stop_rule is not None:
                raise UsageError(
                    "--stop-rule says how evaluation stops; give --stop-when decided with it, or leave it out."
                )
            if level is not None and 0 < level < 0.5:
                raise UsageError(
                    f"Intervals at a level of {level:g} would mostly miss the truth; say --level {1 - level:g}, or give"
                    f" --stop-when decided, with which --level {level:g} limits the false discovery rate."
                )
            return super().from_options(**options, **({} if level is None else {"level": level}))
        chosen = 0.95 if level is None else level
        if not 0 < chosen < 1:
            raise UsageError(
                f"With --stop-when, --level 0.95 or 0.05 means a false discovery rate of 5 %; {chosen:g} is no such"
                " level."
            )
        wrong = min(chosen, 1 - chosen)
        stopping = {"effect": effect, "rule": stop_rule}
        stop = {"when": stop_when, "level": wrong} | {key: each for key, each in stopping.items() if each is not None}
        # Not by its flat name, which is that of the texts that end an answer.
        return cls.make(**nested(cls, {**options, "level": 1 - wrong}), stop=stop)


def _expanded(options: dict[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """Models at several revisions in the place of one, and notes on revisions that were left out."""
    from lesion.studies.ablation.invariance.families import over_time

    wanted = options.pop("revisions", None)
    if not wanted:
        return options
    named = options["models"]
    models, notes = over_time([named] if isinstance(named, str) else named, wanted)
    for text in notes:
        note(text)
    return {**options, "models": models}


METHOD = Method(
    Study,
    "lesion.studies.ablation.run:run_ablation",
    "lesion.studies.ablation.report:AblationResult",
    "ablate",
    "Ablate one block at a time and measure, with intervals, what each task loses.",
    shorthands=(
        Option(
            "revisions",
            (),
            "Training checkpoints to study as well, or all.",
            WHAT,
            Listed[Text],
            many="comma",
            default=(),
        ),
    ),
    default_name="ablation",
    needs_out=False,
    kept="Every answer so far is kept in {folder}; the same command goes on from there, and `lesion report {folder}`"
    " shows what there is.",
    expanded=_expanded,
    examples=(
        "lesion ablate bundled:llama-base --task primer:arithmetic",
        "lesion ablate ./my-model --task questions.jsonl --layers 0-7 --out study",
    ),
    python="""
Example:
    >>> result = lesion.ablate("bundled:llama-base", tasks=["primer:arithmetic"], items=100)
    >>> result.table[["layer", "accuracy", "critical"]]

Raises:
    UsageError: a task or layer does not exist, or an argument cannot be what it is to be.
    LesionError: a model cannot be loaded, or the folder belongs to another study.
""",
)
