"""The truncation study: which parts of which matrices are removed in search of a better model, as validated TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from typing_extensions import override

from lesion.core.fields import ANYWAY, ONE_MODEL, Listed, Number, Several, Text, Whole
from lesion.core.layers import LAYERS, Layers, parse_layers
from lesion.core.method import Method
from lesion.core.options import NOT_IN_IDENTITY, STATISTICS, free_option, kind_key, option
from lesion.core.study_file import OneModel, Questions, Table
from lesion.errors import UsageError

Objective = Literal["accuracy", "gold"]
Sides = Literal["top", "bottom", "both"]
# From nearly all to a four-hundredth of the rank, the range that Sharma et al. search (their section 5).
KEEP = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.025, 0.01, 0.005, 0.0025)
Share = Annotated[Number, Field(ge=0, le=1)]
MATRICES = free_option(
    ("mlp",),
    help="Matrices to truncate: mlp.up, attention.o, …, a branch (mlp, attention), or all.",
    must="names of matrices such as mlp.up, a branch (mlp, attention), or all",
    many="comma",
)
KEPT = free_option(
    KEEP,
    help="Fraction of a truncated matrix's rank that is kept; the rest of its spectrum is removed.",
    must="a fraction of the rank from 0 to 1, or a list of them",
    many="comma",
    shown="14 from 0.9 to 0.0025",
)
SIDE = free_option("top", help="Side of the spectrum that is kept: top, bottom or both.")


class Screen(Table):
    """A look at every cell by the log-probability of the gold answers alone, before the best are asked in full."""

    items: Annotated[Whole, Field(ge=1)] | Literal["all"] = option(
        "all",
        help="Number of validation items per task for the screen, or all.",
        must="how many validation items of each task, a whole number from 1, or all",
        panel=STATISTICS,
        name="screen_items",
        shown="all",
    )
    best: Annotated[Whole, Field(ge=1)] = Field(
        default=16, description="how many of the best cells are asked in full, a whole number from 1"
    )
    random: Annotated[Whole, Field(ge=0)] = Field(
        default=8, description="how many others, drawn by the seed, are asked too, a whole number from 0"
    )


def _screen(value: object) -> object:
    """A number of cells as the table that says it."""
    return {"best": value} if type(value) is int else value


class EditSearch(Questions):
    """What every search for edits has: a model, and blocks in which something is changed."""

    model: OneModel = ONE_MODEL
    layers: Layers = LAYERS(identity=NOT_IN_IDENTITY)
    anyway: bool = ANYWAY

    @override
    def look_ahead(self, blocks: Mapping[str, int]) -> None:
        for name, count in blocks.items():
            parse_layers(self.layers, count, name)


class TruncationStudy(EditSearch):
    """Search for a part of one matrix whose removal makes a model better: chosen on some items, told on the others.

    Example:
        >>> TruncationStudy.make(model="bundled:llama-base", tasks=["primer:atlas"], keep=[0.1]).matrices
        ('mlp',)
    """

    IDENTITY_PREFIX: ClassVar[str] = "lesion truncation"

    kind: Literal["truncation"] = kind_key("truncation")
    matrices: Several[Text] = MATRICES
    keep: Several[Share] = KEPT
    side: Sides = SIDE
    objective: Objective = free_option(
        "accuracy",
        help="Selection criterion: accuracy, or gold (log-probability of the gold answers).",
        panel=STATISTICS,
    )
    validation: Annotated[Number, Field(gt=0, lt=1)] = free_option(
        0.2, help="Share of items for choosing an edit; the others test it.", panel=STATISTICS
    )
    compose: bool = free_option(False, help="Add further matrices greedily while that helps.")
    screen: Annotated[
        Screen | Literal["auto", "none"],
        BeforeValidator(_screen, json_schema_input_type=Screen | Literal["auto", "none"] | int),
    ] = free_option(
        "auto",
        help="auto, none, or how many of the best cells are evaluated in full after a look at all by log-probability"
        " alone; 8 more are drawn at random to judge the screen.",
        must="auto, none or a table [screen]",
        panel=STATISTICS,
    )
    eliminate: Annotated[Number, Field(gt=0, lt=1)] | None = free_option(
        None,
        help="Discard hopeless cells early, with this probability of any error, such as 0.05.",
        must="the chance of giving up a cell wrongly, between 0 and 1, for example 0.05",
        panel=STATISTICS,
    )
    revisions: Listed[Text] = free_option(
        (),
        help="Training checkpoints on which the chosen edit is evaluated too.",
        must="a list of branches, tags or checkpoints",
        many="comma",
    )

    @classmethod
    @override
    def from_options(
        cls, screen: Any = "auto", screen_items: int | str | None = None, **options: Any
    ) -> TruncationStudy:
        """A study from options by their flat names; `screen` may be a number of cells."""
        if isinstance(screen, str) and screen.strip().isdecimal():
            screen = int(screen)
        if screen == "none" and screen_items not in (None, "all"):
            raise UsageError(
                "--screen-items says how much a screen looks at, and --screen none has none; leave one out."
            )
        screen = _screen(screen)
        if screen not in ("auto", "none") and not isinstance(screen, dict):
            raise UsageError(f"--screen is auto, none or a number of cells, not '{screen}'.")
        if screen_items not in (None, "all"):
            screen = {**(screen if isinstance(screen, dict) else {}), "items": screen_items}
        return super().from_options(**options, screen=screen)


METHOD = Method(
    TruncationStudy,
    "lesion.studies.truncation.run:run_truncation",
    "lesion.studies.truncation.report:TruncationResult",
    "truncate",
    "Search for a part of a matrix whose removal improves a model, chosen on some items and tested on the others.",
    examples=("lesion truncate MODEL --task facts.jsonl --matrices mlp.up --out truncation",),
    python="""
Example:
    >>> search = lesion.truncate("bundled:llama-base", "primer:atlas?form=contrast", matrices="mlp.up", keep=0.1)
    >>> search.summary.chosen, search.edit

Raises:
    UsageError: a task, matrix or layer does not exist, or a value is wrong.
    LesionError: the model cannot be loaded or its weights are not finite, or the folder belongs to other questions.
""",
)
