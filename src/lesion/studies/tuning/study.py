"""The tuning study: does it pay to tune the critical blocks only, rather than others or all? As validated TOML."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from lesion.core.layers import canonical_layers
from lesion.core.study_file import (
    ModelChoice,
    Number,
    Questions,
    StopLoops,
    StudyFile,
    Text,
    Whole,
    different,
    listed,
    table_of,
)
from lesion.errors import UsageError, nearest

CRITICAL, LEAST, RANDOM, ALL_ADAPTER, ALL_FULL = "critical", "least", "random", "all-adapter", "all-full"
NAMED = (CRITICAL, LEAST, RANDOM, ALL_ADAPTER, ALL_FULL)
"""The arms with names; any other arm is layers in text form."""
_LABELS = {
    CRITICAL: "critical blocks",
    LEAST: "least critical blocks",
    RANDOM: "random blocks",
    ALL_ADAPTER: "all blocks (adapters)",
    ALL_FULL: "all blocks (full)",
}
_SHARE = re.compile(r"^([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%$")


def _arm(value: object) -> object:
    """A name, or layers in their one text form; `all` means every block in full."""
    if isinstance(value, list | tuple) and value and all(type(layer) is int for layer in value):
        return canonical_layers([int(layer) for layer in value])
    if type(value) is int:
        return str(value)
    if not isinstance(value, str):
        return value
    name = value.strip().lower()
    if name == "all":
        return ALL_FULL
    if name in NAMED:
        return name
    try:
        return canonical_layers(name)
    except UsageError as error:
        if any(letter.isdecimal() for letter in name):
            raise ValueError(str(error)) from None
        raise ValueError(
            f"'{value}' names no blocks to tune{nearest(name, NAMED)}; write {', '.join(NAMED)}, or layers such as"
            f" 0-3,7."
        ) from None


def label(name: str) -> str:
    """An arm in words: `critical blocks`, `all blocks (adapters)`, `blocks 0-3,7`."""
    return _LABELS.get(name) or (f"block {name}" if name.isdecimal() else f"blocks {name}")


def _budget(value: object) -> object:
    """A number of blocks, or a share of them as `25%`."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value.strip()) < 7:
        value = int(value)
    if type(value) is int:
        if value < 1:
            raise ValueError(f"{value} blocks are nothing to tune; give at least 1, or a share such as 25%.")
        return value
    if isinstance(value, str):
        match = _SHARE.match(value.strip())
        if match is None or not 0 < float(match[1]) <= 100:
            raise ValueError(f"'{value}' is no budget; give a number of blocks from 1, or a share such as 25%.")
        return f"{float(match[1]):g}%"
    return value


Arm = Annotated[
    str, BeforeValidator(_arm), Field(description=f"{', '.join(NAMED)}, or layers such as 0-3,7, or a list of these")
]
Budget = Annotated[
    int | str, BeforeValidator(_budget), Field(description="a number of blocks from 1, or a share such as 25%")
]
Rate = Annotated[Number, Field(gt=0)]


class TuningStudy(StudyFile):
    """Tune chosen blocks of a model on a task, the rest frozen, and compare the choices at equal cost.

    Every arm is trained for the same steps on the same rows in the same order under every learning rate; the rate that
    is best on held-out training items is the arm's, and only that one meets the test items. With one arm and one seed
    the tuned model is written.

    Example:
        >>> TuningStudy.make(model="bundled:llama-base", task="primer:arithmetic").arms[0]
        'critical'
    """

    FORM: ClassVar[str] = "lesion tuning"
    # Arms, rates and seeds are cells of their own: a folder takes further ones.
    SILENT: ClassVar[tuple[str, ...]] = (
        *StudyFile.SILENT,
        *("kind", "level", "batch_size", "device", "arms", "seeds", "learning_rates"),
    )

    kind: Literal["tuning"] = Field(default="tuning", description="tuning")
    model: Annotated[ModelChoice, table_of("source")] = Field(description="a model: text, or a table with a source")
    task: Text = Field(description="the name of a task with a training split, for example primer:arithmetic")
    controls: Annotated[tuple[Text, ...], BeforeValidator(listed), AfterValidator(different)] = Field(
        default=(), description="a list of tasks that should survive"
    )
    arms: Annotated[tuple[Arm, ...], BeforeValidator(listed), Field(min_length=1), AfterValidator(different)] = Field(
        default=NAMED, description=f"{', '.join(NAMED)}, or layers such as 0-3,7, or a list of these"
    )
    budget: Budget = Field(default="25%", description="a number of blocks from 1, or a share such as 25%")
    adapter: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None, description="the rank of low-rank adapters, a whole number from 1; without it, blocks in full"
    )
    layers_from: Text | None = Field(default=None, description="the folder of a layer study of this model and task")
    ablation_items: Annotated[Whole, Field(ge=1)] = Field(
        default=100, description="how many items the critical blocks are found on, a whole number from 1"
    )
    steps: Annotated[Whole, Field(ge=1)] = Field(default=40, description="a whole number from 1")
    rows: Annotated[Whole, Field(ge=1)] = Field(default=16, description="rows of a step, a whole number from 1")
    learning_rates: Annotated[
        tuple[Rate, ...], BeforeValidator(listed), Field(min_length=1), AfterValidator(different)
    ] = Field(default=(1e-3,), description="a number above 0, or a list of them")
    seeds: Annotated[
        tuple[Annotated[Whole, Field(ge=0)], ...],
        BeforeValidator(listed),
        Field(min_length=1),
        AfterValidator(different),
    ] = Field(default=(0, 1, 2), description="a whole number from 0, or a list of them")
    items: Annotated[Whole, Field(ge=1)] = Field(default=400, description="test items, a whole number from 1")
    control_items: Annotated[Whole, Field(ge=1)] = Field(
        default=200, description="test items of each control at most, a whole number from 1"
    )
    validation_items: Annotated[Whole, Field(ge=1)] = Field(
        default=200, description="training items held out to choose the learning rate, a whole number from 1"
    )
    seed: Annotated[Whole, Field(ge=0)] = Field(default=0, description="of the draw of items, a whole number from 0")
    prompt_style: Text | None = Field(default=None, description="the name of a prompt style")
    max_new_tokens: Annotated[Whole, Field(ge=1)] | None = Field(default=None, description="a whole number from 1")
    stop_loops: StopLoops = None
    level: Annotated[Number, Field(gt=0, lt=1)] = Field(
        default=0.95, description="a number between 0 and 1, for example 0.95"
    )
    batch_size: Annotated[Whole, Field(ge=1)] | Literal["auto"] = Field(
        default="auto", description="a whole number from 1, or auto"
    )
    device: Text = Field(default="auto", description="auto, cpu, cuda or cuda:N")

    @model_validator(mode="after")
    def _fits_together(self) -> TuningStudy:
        if self.model.dtype not in (None, "float32"):
            raise ValueError(f"a model is tuned in float32, not in {self.model.dtype}; leave its dtype out.")
        if self.task in self.controls:
            raise ValueError(f"{self.task} is the task that is tuned on and cannot be a control too.")
        if self.layers_from is not None and not {CRITICAL, LEAST, RANDOM}.intersection(self.arms):
            raise ValueError(
                f"a layer study says which blocks are critical, and the blocks of {', '.join(self.arms)} do not depend"
                " on that; leave it out, or tune critical."
            )
        return self

    @property
    def writes_model(self) -> bool:
        """Whether there is one tuned model to write: one arm, one seed."""
        return len(self.arms) == 1 and len(self.seeds) == 1

    def questions(self) -> Questions:
        """How the model is asked, before and after: the part of a study that the store of answers knows."""
        return Questions.make(
            tasks=[self.task, *self.controls],
            items=self.items,
            seed=self.seed,
            level=self.level,
            batch_size=self.batch_size,
            dtype="float32",
            device=self.device,
            decoding={"max_new_tokens": self.max_new_tokens, "stop_loops": self.stop_loops},
            **({} if self.prompt_style is None else {"prompt_style": self.prompt_style}),
        )
