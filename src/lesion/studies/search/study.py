"""The search study: which changes of a model's layout are candidates, and how one is chosen and tested, as TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from lesion.core.fields import ITEMS, Count, Items, Listed, Number, Several, Text, Whole
from lesion.core.method import Method
from lesion.core.options import EXTENDABLE, STATISTICS, free_option, kind_key, one_of, option
from lesion.core.study_file import ModelChoice, OneTask
from lesion.edits.place import BlockUnit
from lesion.studies.truncation.study import KEPT, MATRICES, SIDE, EditSearch, Share, Sides

Family = Literal["repeat", "drop", "swap", "scale", "truncate"]
OF: Mapping[str, tuple[Family, ...]] = {
    "lengths": ("repeat", "drop", "swap"),
    **dict.fromkeys(("times", "damping"), ("repeat",)),
    **dict.fromkeys(("factor", "unit"), ("scale",)),
    **dict.fromkeys(("matrices", "keep", "side"), ("truncate",)),
}
"""Options that only candidates of some families have."""


class SearchStudy(EditSearch):
    """Search for a layout that makes a model better, or for blocks it can do without.

    Example:
        >>> SearchStudy.make(model="bundled:llama-base", tasks=["primer:arithmetic"], family=["drop"]).lengths
        (1, 2, 3, 4, 5, 6, 7, 8)
    """

    IDENTITY_PREFIX: ClassVar[str] = "lesion search"

    kind: Literal["search"] = kind_key("search")
    family: Several[Family] = free_option(
        ("repeat",), help=f"What is tried: {one_of(Family)}; several by commas.", many="comma"
    )
    lengths: Several[Count] = free_option(
        tuple(range(1, 9)),
        help="Blocks in a run that is repeated, dropped or swapped with the next run.",
        many="comma",
        shown="1 to 8",
    )
    times: Several[Annotated[Whole, Field(ge=2, le=10)]] = free_option(
        (2,), help="How often a repeated run stands in the model.", many="comma"
    )
    damping: Several[Number] = free_option(
        (1.0,), help="Factor of what attention and MLP of the repeated blocks add, behind the first time.", many="comma"
    )
    factor: Several[Number] = free_option((0.9, 1.1), help="Factor of a scaled place.", many="comma")
    unit: Several[BlockUnit] = free_option(
        ("attention", "mlp"), help=f"Places to scale: {one_of(BlockUnit)}.", many="comma"
    )
    matrices: Several[Text] = MATRICES
    keep: Several[Share] = KEPT
    side: Sides = SIDE
    controls: Listed[OneTask] = option(
        (),
        help="Task that must not get worse; tested, and no part of the choice. Running text: its perplexity.",
        must="a list of tasks: strings, or tables with a name",
        name="control",
        many="repeat",
        identity=EXTENDABLE,
        unordered=True,
    )
    margin: Annotated[Number, Field(gt=0, le=100)] = free_option(
        2.0,
        help="A control or a dropped run is no worse where its loss is shown to be smaller, in points; of perplexity in"
        " percent.",
        panel=STATISTICS,
    )
    items: Items = ITEMS(200)
    validation: Annotated[Number, Field(gt=0, lt=1)] = free_option(
        0.5, help="Share of items for the choice, half of them for the screen; the others test it.", panel=STATISTICS
    )
    screen: Count | Literal["none"] = free_option(
        16,
        help="Candidates that are left by the screen, which looks at log-probabilities of the gold answers (of running"
        " text: of its tokens): the best of those that are to make the model better, and of the drops of each length;"
        " none: no screen.",
        must="a whole number from 1, or none",
        panel=STATISTICS,
    )

    @model_validator(mode="after")
    def _fits_together(self) -> SearchStudy:
        both = {task.name for task in self.tasks} & {control.name for control in self.controls}
        if both:
            raise ValueError(f"{min(both)} is a task of the search and cannot be its own control; leave one out.")
        for name, families in OF.items():
            if getattr(self, name) != type(self).model_fields[name].default and not {*families} & {*self.family}:
                one = one_of(Literal[families])
                raise ValueError(
                    f"{name} is of {one} alone, which is not tried; leave it out, or name such a family too."
                )
        if self.margin != type(self).model_fields["margin"].default and not (self.controls or "drop" in self.family):
            raise ValueError(
                "margin is of controls and dropped runs alone; leave it out, give a control, or name drop as a family."
            )
        if "repeat" in self.family and 0 in self.damping:
            raise ValueError("damping 0 takes all away that the repetition adds; give other factors.")
        if "scale" in self.family and 1 in self.factor:
            raise ValueError("factor 1 changes nothing; give other factors.")
        return self

    @override
    def styles_of(self, model: ModelChoice) -> dict[str, str | None]:
        return {task.name: self.prompt_style_of(model, task) for task in (*self.tasks, *self.controls)}


METHOD = Method(
    SearchStudy,
    "lesion.studies.search.run:run_search",
    "lesion.studies.search.report:SearchResult",
    "search",
    "Search for blocks to repeat, drop, swap or scale: chosen on some items, tested on the others.",
    examples=(
        "lesion search MODEL --task sums.jsonl --damping 1,0.5 --out repeat",
        "lesion search MODEL --task sums.jsonl --family drop --lengths 2 --out drop",
    ),
    python="""
Example:
    >>> search = lesion.search("bundled:llama-base", "primer:arithmetic", family="drop", lengths=1, items=40)
    >>> search.summary.choices[0].candidate, search.verdict

Raises:
    UsageError: a task or layer does not exist, no candidate is left, or a value is wrong.
    LesionError: the model cannot be loaded, or cannot have its blocks in another order; the folder belongs to other
        questions.
""",
)
