"""Types of the keys of study files, and the options that several studies share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    StringConstraints,
)
from pydantic_core.core_schema import CoreSchema, no_info_before_validator_function

from lesion.core.options import DECODING, EXTENDABLE, HARDWARE, NOT_IN_IDENTITY, STATISTICS, one_of, option
from lesion.plain import short, unruly

SAMPLES = 100
"""Calibration texts of each task of an isolation by default. Christ et al. (2024) take 500, and find that sets from 100
texts already overlap by 95 %; they take a fifth of the time."""


@dataclass(frozen=True)
class Also:
    """Of the type of a field: what Python takes beside the values of study files, as `module:Class`."""

    place: str


Text = Annotated[str, StringConstraints(min_length=1)]
TaskName = Annotated[Text, Also("lesion.tasks.task:Task")]
FolderName = Annotated[Text, Also("pathlib:Path"), Also("lesion.core.result:StudyResult")]
"""The output folder of a study, or in Python its result."""
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False), AfterValidator(lambda value: value + 0.0)]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]


def none_for(word: str | int, given: Any) -> BeforeValidator:
    """A word for the default is kept as None, which is no part of the identity of a study; `given` may be given."""
    return BeforeValidator(
        lambda value: None if type(value) is type(word) and value == word else value, json_schema_input_type=given
    )


EngineName = Annotated[
    Literal["vllm"] | None,
    none_for("transformers", Literal["transformers", "vllm"] | None),
    Also("lesion.engines.config:EngineChoice"),
]
StopLoops = Annotated[Annotated[Whole, Field(ge=2)] | None, none_for(0, Annotated[int, Field(ge=0)] | None)]
Thinking = Annotated[Literal["on", "off"] | None, none_for("auto", Literal["on", "off", "auto"] | None)]

Count = Annotated[Whole, Field(ge=1, description="a whole number from 1")]
Items = Annotated[Count | Literal["all"], Field(description="a whole number from 1, or all")]
Seed = Annotated[Whole, Field(ge=0, description="a whole number from 0")]
Level = Annotated[Number, Field(gt=0, lt=1, description="a number between 0 and 1, for example 0.95")]
BatchSize = Annotated[Count | Literal["auto"], Field(description="a whole number from 1, or auto")]
MODEL = "Model: bundled:NAME, a local folder, a GGUF file, or a hub id."


def listed(value: object) -> object:
    """One value is a list of one; TOML's lists become tuples, which do not change."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


class OneOrSeveral:
    """Of a field that is a list: one value is a list of one (`listed`), in the JSON Schema too."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(listed, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        several = handler(schema)
        return {"anyOf": [several["items"], several]}


def table_of(key: str, table: type[BaseModel]) -> BeforeValidator:
    """A plain string in the place of a table is its first key."""
    return BeforeValidator(
        lambda value: {key: value} if isinstance(value, str) else value, json_schema_input_type=str | table
    )


def printable(value: str) -> str:
    """The text, which has no control characters or half characters."""
    if unruly(value):
        raise ValueError(f"'{short(value)}' holds control characters or broken text; give a name that can be printed.")
    return value


def different(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values, all different; by name where they have one."""
    names = [getattr(value, "name", value) for value in values]
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise ValueError(f"{twice} is listed twice; list it once.")
    return values


T = TypeVar("T")
Listed = Annotated[tuple[T, ...], OneOrSeveral(), AfterValidator(different)]
"""A list of different values, or one value that stands for such a list."""
Several = Annotated[tuple[T, ...], Field(min_length=1), OneOrSeveral(), AfterValidator(different)]
"""Such a list of at least one."""


Arguments = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*=")], ...], Field(min_length=1), OneOrSeveral(),
    AfterValidator(different),
]  # fmt: skip
"""Arguments of a chat template, each KEY=VALUE."""


Stops = Annotated[
    tuple[Annotated[Text, AfterValidator(lambda text: text.replace("\\n", "\n"))], ...],
    OneOrSeveral(), AfterValidator(different),
]  # fmt: skip
r"""Texts that end an answer; `\n` as it is typed on a command line is a line break."""


# Options that several studies have.
ONE_MODEL = option(help=MODEL, must="a model: text, or a table with a source", argument="MODEL")
SEVERAL_MODELS = "a list of at least one model: strings, or tables with a source"
MODELS = partial(option, help=MODEL, must=SEVERAL_MODELS, many="repeat", argument="MODEL")
SEVERAL_TASKS = "a list of at least one task: strings, or tables with a name"
TASKS = partial(option, must=SEVERAL_TASKS, name="task", many="repeat", identity=EXTENDABLE, unordered=True)
ITEMS = partial(
    option, help="Number of items per task, drawn with the seed; or all.", panel=STATISTICS, identity=EXTENDABLE
)
SEEDS = partial(option, 0, panel=STATISTICS)
ANYWAY = option(
    False,
    help="Go on where too few answers of the unedited model are right for anything to show.",
    panel=STATISTICS,
    identity=NOT_IN_IDENTITY,
    exclude_if=lambda anyway: not anyway,
)
LEVEL_OPTION = partial(option, 0.95, help="Confidence level of the intervals.", panel=STATISTICS)
_decoding = partial(option, None, panel=DECODING)
PROMPT_STYLE = _decoding(
    help="Prompt style: auto, raw, chat, plain, or a paper's; default: the task's own.",
    must="the name of a prompt style",
)
THINKING = _decoding(
    help="Whether a model thinks before it answers: on, off, or auto, the chat template's own way.",
    must="on, off or auto",
    shown="auto",
)
SYSTEM = _decoding(help="System prompt of a chat; default: the chat template's own.", must="text")
TEMPLATE_ARGUMENTS = _decoding(
    help="Argument of the chat template: KEY=VALUE.",
    must="KEY=VALUE, or a list of these",
    name="template_argument",
    many="repeat",
)
STOP = _decoding(
    help=r"Text that ends an answer, \n for a line break; default: the task's own.",
    must="a string or a list of strings",
    many="repeat",
)
LOOP_STOP = _decoding(
    help="End an answer that repeats the same piece N times in a row (approximate; off by default).",
    must="a whole number from 2, or 0 to let loops go on",
)
THINKING_TOKENS = _decoding(
    help="Maximum length of the thinking in tokens; there it is closed, and the model answers. Default: no limit."
)
MOST_TOKENS = _decoding(help="Maximum length of an answer in tokens; default: the task's own.")
_hardware = partial(option, panel=HARDWARE)
BATCHES = _hardware("auto", help="Number of sequences decoded together, or auto.", identity=NOT_IN_IDENTITY)
DTYPES = _hardware("auto", help=f"Data type of the weights: {one_of(Dtype)}.")
DEVICES = _hardware(
    "auto", help="Device: auto, cpu, cuda, cuda:1, …", must="auto, cpu, cuda or cuda:N", identity=NOT_IN_IDENTITY
)
ENGINES = _hardware(
    None, help="Inference backend: transformers or vllm.", must="transformers or vllm", shown="transformers"
)
