"""The tuning study: does it pay to tune the critical blocks only, rather than others or all? As validated TOML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import override

from lesion.core.fields import ONE_MODEL, Count, FolderName, Listed, Number, Seed, Several, TaskName, Whole, none_for
from lesion.core.layers import ALL, layers_as_text, parse_layers
from lesion.core.method import Method
from lesion.core.options import HARDWARE, STATISTICS, TRAINING, free_option, key, kind_key, option
from lesion.core.study_file import GreedyStudy, OneModel, Questions
from lesion.errors import nearest
from lesion.report.wording import counted

CRITICAL, LEAST, RANDOM, ALL_ADAPTER, ALL_FULL = "critical", "least", "random", "all-adapter", "all-full"
NAMED = (CRITICAL, LEAST, RANDOM, ALL_ADAPTER, ALL_FULL)
"""The arms with names; any other arm is layers in text form."""
COMPLETIONS, REWARD = "completions", "reward"
"""What a model is trained by."""
GENERATIONS, TEMPERATURE = 8, 1.0
RATE, ADAPTER_RATE, BUNDLED_RATES = 1e-5, 5e-4, {COMPLETIONS: 1e-3, REWARD: 1e-4}
"""Default learning rates: a small one, as pretrained models are easily damaged; adapters take a larger one, and the
bundled models are tiny."""
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
    name = value.strip().lower() if isinstance(value, str) else ""
    if name in (ALL, *NAMED):
        return ALL_FULL if name == ALL else name
    if isinstance(value, str) and not any(letter.isdecimal() for letter in name):
        raise ValueError(
            f"'{value}' names no blocks to tune{nearest(name, NAMED)}; write {', '.join(NAMED)}, or layers such as"
            f" 0-3,7."
        )
    return layers_as_text(value)


def label(name: str) -> str:
    """An arm in words: `critical blocks`, `all blocks (adapters)`, `blocks 0-3,7`."""
    return _LABELS.get(name) or (f"block {name}" if name.isdecimal() else f"blocks {name}")


def form(rank: int | None) -> str:
    """How blocks train: `in full`, `by adapters of rank 4`."""
    return "in full" if rank is None else f"by adapters of rank {rank}"


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
    str,
    BeforeValidator(_arm, json_schema_input_type=str | int | list[int]),
    Field(description=f"{', '.join(NAMED)}, or layers such as 0-3,7, or a list of these"),
]
Budget = Annotated[
    int | str, BeforeValidator(_budget), Field(description="a number of blocks from 1, or a share such as 25%")
]
Rate = Annotated[Number, Field(gt=0)]
By = Annotated[Literal["reward"] | None, none_for(COMPLETIONS, Literal["completions", "reward"] | None)]


def _exact_dtype(value: object) -> object:
    """float32, under any of its names."""
    if value in ("float32", "fp32", "auto"):
        return "float32"
    if not isinstance(value, str):
        return value
    raise ValueError(f"a model is tuned in float32, in which small steps are kept, not in {value}; leave --dtype out.")


class TuningStudy(GreedyStudy):
    """Tune chosen blocks of a model on a task, the rest frozen, and compare the choices at equal cost.

    Every arm is trained for the same steps on the same rows in the same order under every learning rate; the rate that
    is best on held-out training items is the arm's, and only that one meets the test items. With one arm and one seed
    the tuned model is written. A row is one training item in a step.

    Example:
        >>> TuningStudy.make(model="bundled:llama-base", task="primer:arithmetic").arms[0]
        'critical'
    """

    IDENTITY_PREFIX: ClassVar[str] = "lesion tuning"

    kind: Literal["tuning"] = kind_key("tuning")
    model: OneModel = ONE_MODEL
    task: TaskName = option(
        help="Task with training items: primer:arithmetic, arithmetic:add, copying, gsm8k, triviaqa, …",
        must="the name of a task with training items, for example primer:arithmetic",
    )
    controls: Listed[TaskName] = option(
        (),
        help="Control task, evaluated before and after.",
        must="a list of tasks that should survive",
        name="control",
        many="repeat",
    )
    arms: Several[Arm] = free_option(
        (CRITICAL,),
        help="Which blocks: critical, least, random (of those that are not called critical, where any are known),"
        " all, all-adapter, or layers such as 0-3,7; several choices are compared.",
        must=f"{', '.join(NAMED)}, or layers such as 0-3,7, or a list of these",
        name="layers",
        many="repeat",
    )
    budget: Budget = option(
        "25%",
        help="Number of blocks in critical, least and random, or a share such as 25%.",
        must="a number of blocks from 1, or a share such as 25%",
    )
    layers_from: FolderName | None = option(
        None,
        help="Output folder of a layer study of this model and task; it defines the critical blocks.",
        must="the folder of a layer study of this model and task",
        name="study",
    )
    ablation_items: Count = option(
        100, help="Number of items to find the critical blocks on, where no layer study is given.", panel=STATISTICS
    )
    by: By = option(
        None,
        help="Train by completions (supervised, on solved items) or by reward (reinforcement with a verifiable reward,"
        " GRPO: answers are drawn, and those that the task's judge finds right are made likelier).",
        must="completions or reward",
        panel=TRAINING,
        shown=COMPLETIONS,
    )
    adapter: Count | None = option(
        None,
        help="Train low-rank adapters of this rank (merged at the end) instead of the blocks.",
        must="the rank of low-rank adapters, a whole number from 1; without it, blocks in full",
        panel=TRAINING,
    )
    steps: Count = option(40, help="Number of training steps.", panel=TRAINING)
    rows: Count = option(
        16,
        help="Batch size: number of training items in a step (by reward, each with its generations).",
        panel=TRAINING,
    )
    generations: Annotated[Whole, Field(ge=2)] | None = option(
        None, help="By reward: number of answers drawn to each item of a step.", panel=TRAINING, shown=str(GENERATIONS)
    )
    rollout_temperature: Rate | None = option(
        None,
        help="By reward: sampling temperature of these answers (those that are evaluated are greedy).",
        panel=TRAINING,
        shown=f"{TEMPERATURE:g}",
    )
    learning_rates: Several[Rate] = free_option(
        None,
        help="Peak learning rate; of several, the best on held-out training items is kept.",
        panel=TRAINING,
        name="learning_rate",
        many="comma",
        shown="0.00001, with --adapter 0.0005; for bundled models 0.001, by reward 0.0001",
    )
    seeds: Several[Seed] = free_option(
        (0,),
        help="Random seed of the row order and of random blocks; several seeds give means.",
        panel=STATISTICS,
        name="seed",
        many="comma",
    )
    items: Count = option(400, help="Number of test items of the task.", panel=STATISTICS)
    control_items: Count = option(200, help="Maximum number of test items per control.", panel=STATISTICS)
    validation_items: Count = option(
        200, help="Number of training items held out to choose the learning rate.", panel=STATISTICS
    )
    seed: Seed = key(0, "of the draw of items, a whole number from 0")
    dtype: Annotated[Literal["float32"], BeforeValidator(_exact_dtype, json_schema_input_type=str)] = option(
        "float32",
        help="Data type; only float32, as small steps are lost in others.",
        must="float32",
        panel=HARDWARE,
        exclude=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: Any) -> Any:
        """Fill in the defaults that depend on the model and on what it is trained by."""
        if not isinstance(values, Mapping):
            return values
        by = REWARD if values.get("by") == REWARD else COMPLETIONS
        model = values.get("model")
        source = model.get("source") if isinstance(model, Mapping) else getattr(model, "source", model)
        bundled = isinstance(source, str) and source.startswith("bundled:")
        rate = ADAPTER_RATE if values.get("adapter") is not None else RATE
        defaults: dict[str, Any] = {"learning_rates": BUNDLED_RATES[by] if bundled else rate}
        if by == REWARD:
            defaults |= {"generations": GENERATIONS, "rollout_temperature": TEMPERATURE}
        return {**values, **{key: value for key, value in defaults.items() if values.get(key) is None}}

    @model_validator(mode="after")
    def _fits_together(self) -> TuningStudy:
        for name in ("generations", "rollout_temperature"):
            if not self.reinforced and getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is of answers that are drawn, and training by completions draws none; train by reward, or"
                    " leave it out."
                )
        if self.adapter is not None and set(self.arms) <= {ALL_FULL, ALL_ADAPTER}:
            raise ValueError(
                f"adapter={self.adapter} is for blocks that are named, and layers={self.arms[0]} has a form of its own;"
                " for adapters on all blocks name these by number, such as 0-29, or leave adapter out."
            )
        if self.reinforced and self.thinking_tokens is not None:
            raise ValueError(
                "thinking_tokens closes the thinking in place of the model, which cannot be rewarded; leave it out, or"
                " train by completions."
            )
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

    @override
    def look_ahead(self, blocks: Mapping[str, int]) -> None:
        for name, count in blocks.items():
            for arm in self.arms:
                if arm not in NAMED:
                    parse_layers(arm, count, name)

    @classmethod
    @override
    def from_options(cls, layers: Any = (CRITICAL,), **options: Any) -> TuningStudy:
        """A study from options by their flat names; numbers of layers are one choice of blocks."""
        several = layers if isinstance(layers, list | tuple) else [layers]
        words = any(isinstance(each, str) for each in several)
        return super().from_options(**options, arms=several if words else [layers])

    @property
    def reinforced(self) -> bool:
        """Whether it trains by a verifiable reward, and not by completions."""
        return self.by == REWARD

    @property
    def recipe(self) -> str:
        """How it trains: `completions (supervised), 40 steps of 16 items`."""
        steps, items = counted(self.steps, "step"), counted(self.rows, "item")
        if not self.reinforced:
            return f"completions (supervised), {steps} of {items}"
        drawn = f"{self.generations} answers drawn at temperature {self.rollout_temperature:g}"
        return f"a verifiable reward (GRPO), {steps} of {items} × {drawn}"

    @property
    def writes_model(self) -> bool:
        """Whether there is one tuned model to write: one arm, one seed."""
        return len(self.arms) == 1 and len(self.seeds) == 1

    def questions(self) -> Questions:
        """How the model is asked, before and after: the part of a study that the store of answers knows."""
        return Questions.make(tasks=[self.task, *self.controls], items=self.items, dtype="float32", **self.answering)


METHOD = Method(
    TuningStudy,
    "lesion.studies.tuning.run:run_tuning",
    "lesion.studies.tuning.report:TuningResult",
    "tune",
    "Fine-tune chosen blocks on a task and measure gains there and losses elsewhere.",
    kept="What is trained and answered is kept in {folder}; the same command goes on from there.",
    examples=(
        "lesion tune bundled:llama-base --task primer:arithmetic --out tuned",
        "lesion tune bundled:llama-base --task primer:reading --by reward --out rlvr",
    ),
    python="""
Example:
    >>> tuned = lesion.tune("bundled:llama-base", "primer:arithmetic", layers="critical", budget=2)
    >>> lesion.load(tuned.model)
    >>> lesion.tune("bundled:llama-base", "primer:arithmetic", layers=["critical", "random"], seed=[0, 1, 2]).table

Raises:
    UsageError: a task, layer, budget, rank or number of items cannot be, or a model is not in float32.
    LesionError: the model cannot be loaded, TRL is not installed, or the folder belongs to something else.
""",
)
