"""What every study has: tasks and items, how they are asked and decoded, as validated TOML."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from lesion.bounds import excess
from lesion.core import fields
from lesion.core.options import DECODING, EXTENDABLE, NOT_IN_IDENTITY, flat, key, keys, nested, option, unordered_lists
from lesion.core.toml import Lines, dump, explain
from lesion.errors import UsageError, nearest
from lesion.files import STUDY_BYTES, existing, named, parse_toml, read_text
from lesion.plain import short
from lesion.reprs import brief, described
from lesion.tasks.style import Style
from lesion.tasks.task import Task

VARIANTS = ("base", "instruct", "distill", "rlvr")
"""What models of one family are called after the training that made them; a study may say anything else."""
PROMPTING = ("prompt_style", "thinking", "system", "template_arguments")
"""Keys that say how a question is put."""
_BUNDLED = re.compile(rf"bundled:(.+)-({'|'.join(VARIANTS)})(?:@.*)?")


class Table(BaseModel):
    """A table of a study file: keys that it does not know are faults."""

    # A field with an alias is written under it in results, and under its name in study files and Python.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, serialize_by_alias=True)

    def __repr__(self) -> str:
        fields = type(self).model_fields
        values = {name: getattr(self, name) for name in fields}
        return described(self, *(f"{key}={brief(each)}" for key, each in values.items() if each != fields[key].default))

    @field_validator("*")
    @classmethod
    def _within_bounds(cls, value: Any, about: Any) -> Any:
        if wrong := excess(about.field_name or "", value):
            raise ValueError(wrong)
        return value


class ModelChoice(Table):
    """A model of the study: its source as typed, and what differs from the study's defaults."""

    source: fields.Text = Field(description="a hub id, a folder or bundled:NAME")
    revision: fields.Text | None = Field(default=None, description="a branch, tag or commit")
    dtype: fields.Dtype | None = None
    prompt_style: fields.Text | None = Field(default=None, description="the name of a prompt style")
    family: fields.Text | None = Field(
        default=None, description="a name that models share which come from one base, for example llama"
    )
    variant: fields.Text | None = Field(
        default=None, description="what the model is in its family: base, instruct, distill, rlvr or any text"
    )
    parent: fields.Text | None = Field(
        default=None, description="what the model was trained from, where that is not the base of its family"
    )

    LABELS: ClassVar[tuple[str, ...]] = ("family", "variant", "parent")
    """Keys that say how models are grouped and determine no answer: they are no part of a study's identity."""

    @property
    def name(self) -> str:
        """The name in tables: the source, with revision and dtype where they are given; unique in a study."""
        revision = f"@{self.revision}" if self.revision else ""
        return f"{self.source}{revision}" + (f" ({self.dtype})" if self.dtype else "")

    @property
    def lineage(self) -> tuple[str | None, str | None]:
        """Family and variant: as labelled, else read from the name of a bundled model (`bundled:llama-rlvr`)."""
        match = _BUNDLED.fullmatch(self.source)
        family, variant = match.groups() if match else (None, None)
        return self.family or family, self.variant or variant


class TaskChoice(Table):
    """A task of the study: its name as typed, and what differs from the study's defaults."""

    name: fields.Text = Field(description="the name of a task, for example gsm8k or primer:atlas")
    items: fields.Items | None = None
    max_new_tokens: fields.Count | None = None
    prompt_style: fields.Text | None = Field(default=None, description="the name of a prompt style")
    stop: fields.Stops | None = Field(default=None, description="a string or a list of strings")
    forbid: Annotated[tuple[Annotated[fields.Whole, Field(ge=0)], ...], fields.OneOrSeveral()] | None = Field(
        default=None,
        description="ids of tokens that no answer begins with: a whole number from 0, or a list of them",
        exclude_if=lambda forbid: forbid is None,
    )


OneModel = Annotated[ModelChoice, fields.table_of("source", ModelChoice), fields.Also("lesion.models.load:Model")]
OneTask = Annotated[TaskChoice, fields.table_of("name", TaskChoice), fields.Also("lesion.tasks.task:Task")]


class DecodingPlan(Table):
    """How answers are decoded: greedy at temperature 0, else sampled under the study's seed.

    With `stop_loops` an answer that has said the same piece so many times in a row is ended there (see
    `lesion.engines.endings`), which is approximate.
    """

    temperature: Annotated[fields.Number, Field(ge=0)] = option(
        0.0, help="Sampling temperature; 0 is greedy.", panel=DECODING
    )
    top_p: Annotated[fields.Number, Field(gt=0, le=1)] = option(
        1.0, help="Nucleus (top-p) of sampling.", must="a number above 0 and at most 1", panel=DECODING
    )
    max_new_tokens: fields.Count | None = fields.MOST_TOKENS
    stop: fields.Stops | None = fields.STOP
    stop_loops: fields.StopLoops = fields.LOOP_STOP
    thinking_tokens: fields.Count | None = fields.THINKING_TOKENS

    @model_validator(mode="after")
    def _samples(self) -> DecodingPlan:
        if self.temperature == 0 and self.top_p != 1:
            raise ValueError(
                "top_p chooses what is sampled from, and temperature 0 is greedy; give a temperature above 0, or leave"
                " top_p out."
            )
        return self


S = TypeVar("S", bound="StudyFile")


class StudyFile(Table):
    """What every study file has, whatever it asks: a name, and how it is read, written and told from another."""

    IDENTITY_PREFIX: ClassVar[str] = "lesion file"
    """What the identity begins with, so that two kinds never share one."""

    name: Annotated[fields.Text, AfterValidator(fields.printable)] = key("study", "a name", identity=NOT_IN_IDENTITY)
    title: str | None = key(None, "text", identity=NOT_IN_IDENTITY)

    @classmethod
    def make(cls: type[S], **values: Any) -> S:
        """A study from values as they would stand in a file; the constructor with readable errors."""
        return cls._validated(values, "This study", None)

    @classmethod
    def from_options(cls: type[S], **options: Any) -> S:
        """A study from options by their flat names, as the command line and Python have them (`core.options`)."""
        return cls.make(**nested(cls, options))

    @classmethod
    def parse(cls: type[S], text: str, origin: str = "This study") -> S:
        """A study from TOML text; the inverse of `to_toml`."""
        return cls._validated(parse_toml(text, origin), origin, text)

    @classmethod
    def _validated(cls: type[S], values: Mapping[str, Any], origin: str, text: str | None) -> S:
        try:
            return cls.model_validate(dict(values), by_alias=False, by_name=True)
        except ValidationError as error:
            lines = None if text is None else Lines(text)
            raise UsageError(*explain(error, cls, origin, lines)) from None

    @classmethod
    def load(cls: type[S], source: str | Path) -> S:
        """The study of a file, or one shipped with the package by its name (`shipped`).

        A file is meant when the source ends in `.toml` or there is a file of that name.
        """
        file = study_file(source)
        text = read_text(file, limit=STUDY_BYTES, fault=UsageError)
        study = cls.parse(text, str(file))
        return study if "name" in study.model_fields_set else study.model_copy(update={"name": file.stem})

    def to_toml(self) -> str:
        """The study as TOML, every value spelt out, defaults too; `parse` reads it back as the same study."""
        document = self.model_dump(exclude_none=True, by_alias=False)
        for name, first in (("models", "source"), ("tasks", "name")):
            if name in document:
                document[name] = [entry[first] if len(entry) == 1 else entry for entry in document[name]]
        if isinstance(document.get("model"), dict) and len(document["model"]) == 1:
            document["model"] = document["model"]["source"]
        first_names = [name for name in ("kind", "name", "title", "model", "models") if name in document]
        return dump({name: document[name] for name in [*first_names, *document]})

    def look_ahead(self, blocks: Mapping[str, int]) -> None:
        """Refuse what is wrong with the study itself, as far as it shows before a large library is loaded.

        Args:
            blocks: the number of blocks of its models, by name, where a configuration tells.
        """

    def identity(self) -> str:
        """SHA-256 (64 hex digits) of what determines the answers.

        Left out are keys declared as not in it, and how models are labelled (`ModelChoice.LABELS`).
        """
        return self._hash(keys(type(self), NOT_IN_IDENTITY))

    def basis(self) -> str:
        """SHA-256 (64 hex digits) of what all answers in one folder share: `identity` without extendable keys."""
        return self._hash(keys(type(self), NOT_IN_IDENTITY, EXTENDABLE))

    def _hash(self, without: set[str]) -> str:
        # Without what is None, a key that a later version adds leaves the studies of today what they are.
        document = self.model_dump(mode="json", exclude=without, exclude_none=True)
        for chosen in [*document.get("models", ()), document.get("model")]:
            for label in ModelChoice.LABELS if isinstance(chosen, dict) else ():
                chosen.pop(label, None)
        for *tables, name in (path for path in unordered_lists(type(self)) if path[0] in document):
            table = document
            for outer in tables:
                table = table[outer]
            table[name] = sorted(table[name], key=lambda value: json.dumps(value, sort_keys=True))
        canonical = json.dumps([self.IDENTITY_PREFIX, 1, document], sort_keys=True)
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def variable_keys(kind: object) -> set[str]:
    """Keys in which studies of one folder may differ, of a kind, None for layer studies, as their classes say."""
    variable, classes = set[str](), [StudyFile]
    while classes:
        study = classes.pop()
        classes += study.__subclasses__()
        own = study.model_fields["kind"].default if "kind" in study.model_fields else None
        variable |= keys(study, NOT_IN_IDENTITY, EXTENDABLE) if own == kind or study is StudyFile else set()
    return variable


class ModelStudy(StudyFile):
    """What every study has that runs models: a prompt style, the level of its intervals, batch size and device."""

    prompt_style: fields.Text | None = fields.PROMPT_STYLE
    thinking: fields.Thinking = fields.THINKING
    system: fields.Text | None = fields.SYSTEM
    template_arguments: fields.Arguments | None = fields.TEMPLATE_ARGUMENTS
    level: fields.Level = fields.LEVEL_OPTION(identity=NOT_IN_IDENTITY)
    batch_size: fields.BatchSize = fields.BATCHES
    device: fields.Text = fields.DEVICES

    def questions(self) -> Questions:
        """The same as a study that asks these tasks: which items, in which prompt style."""
        shared = type(self).model_fields.keys() & Questions.model_fields.keys() - StudyFile.model_fields.keys()
        return Questions(**self.model_dump(include=set(shared)))

    def styled(self, model: str | None = None) -> str | None:
        """The prompt style, that of a model or else the study's, with the study's settings of a chat behind it."""
        style = model or self.prompt_style
        if not (self.thinking or self.system or self.template_arguments):
            return style
        return str(Style.parse(style or "").having(self.thinking, self.system, self.template_arguments))


class GreedyStudy(ModelStudy):
    """A study of one task whose answers are decoded greedily."""

    max_new_tokens: fields.Count | None = fields.MOST_TOKENS
    stop_loops: fields.StopLoops = fields.LOOP_STOP
    thinking_tokens: fields.Count | None = fields.THINKING_TOKENS

    @property
    def answering(self) -> dict[str, Any]:
        """How its models answer, as keys of `Questions`."""
        shared = {"seed", "level", "batch_size", "device", *PROMPTING}
        decoding = {"max_new_tokens", "stop_loops", "thinking_tokens"}
        return {**self.model_dump(include=shared), "decoding": self.model_dump(include=decoding)}


class Questions(ModelStudy):
    """What every study has that asks models: which tasks, with which items, and how they are decoded.

    Sources and tasks that name files are relative to the folder that the command runs in.
    """

    IDENTITY_PREFIX: ClassVar[str] = "lesion questions"

    tasks: fields.Several[OneTask] = fields.TASKS(
        help="Task: gsm8k, svamp, math500, triviaqa, TASK:PATH, questions.jsonl, primer:arithmetic, …"
    )
    items: fields.Items = fields.ITEMS(100)
    seed: fields.Seed = fields.SEEDS(
        help="Random seed: of the draw of items, of sampling, and of all else that is drawn."
    )
    apart: Annotated[tuple[fields.Text, ...], fields.OneOrSeveral()] | None = key(
        None,
        "study files, or names of shipped studies: no item is drawn that one of them asks, shows, calibrates on or"
        " keeps apart from itself",
        identity=EXTENDABLE,
        exclude_if=lambda apart: apart is None,
    )
    dtype: fields.Dtype = fields.DTYPES
    engine: fields.EngineName = fields.ENGINES
    decoding: DecodingPlan = flat(DecodingPlan(), must="a table [decoding]")

    @property
    def chosen_models(self) -> tuple[ModelChoice, ...]:
        """The models of the study: `models`, or the one `model`; none of a study that has no such key."""
        single = getattr(self, "model", None)
        several: tuple[ModelChoice, ...] = getattr(self, "models", () if single is None else (single,))
        return several

    def items_of(self, task: TaskChoice) -> int | None:
        """How many items of a task are asked; None for all."""
        items = self.items if task.items is None else task.items
        return None if items == "all" else items

    def max_new_tokens_of(self, task: TaskChoice) -> int | None:
        """The token limit of an answer to a task, or None: the task's own default holds."""
        return self.decoding.max_new_tokens if task.max_new_tokens is None else task.max_new_tokens

    def stop_of(self, choice: TaskChoice, task: Task) -> tuple[str, ...]:
        """The texts that end an answer to a task: those stated for it, else those of the study, else its own."""
        stated = self.decoding.stop if choice.stop is None else choice.stop
        return task.stop if stated is None or task.kind != "generate" else stated

    def prompt_style_of(self, model: ModelChoice, task: TaskChoice) -> str | None:
        """The prompt style: exactly the task's, else as `styled`; None: the task's own default."""
        return task.prompt_style or self.styled(model.prompt_style)

    def styles_of(self, model: ModelChoice) -> dict[str, str | None]:
        """The tasks that a model is asked, each with its prompt style as `prompt_style_of`."""
        return {task.name: self.prompt_style_of(model, task) for task in self.tasks}

    def dtype_of(self, model: ModelChoice) -> str:
        """The dtype of a model: its own, else the study's."""
        return model.dtype or self.dtype


def shipped() -> dict[str, Path]:
    """The studies shipped with this package and others, by name: for `lesion run NAME`.

    Another package names the package that holds its `.toml` files under the entry-point group `lesion.study_files`.
    """
    files: dict[str, Path] = {}
    for package in (*(entry.value for entry in entry_points(group="lesion.study_files")), "lesion.studies.papers"):
        with contextlib.suppress(ModuleNotFoundError):  # of a package that is registered and not there
            specification = find_spec(package)
            for folder in (specification and specification.submodule_search_locations) or ():
                files |= {file.stem: file for file in Path(folder).glob("*.toml")}
    return dict(sorted(files.items()))


def study_file(source: str | Path) -> Path:
    """The file of a study: one that ends in `.toml` or is there, or else the one shipped under that name.

    A folder hides no shipped study: `lesion demo --out demo` makes one of that name.
    """
    file = named(source, "study")
    known = shipped()
    if file.suffix == ".toml" or (file.exists() and not (file.is_dir() and str(source) in known)):
        return existing(file, "study")
    if str(source) not in known:
        raise UsageError(
            f"There is no study '{short(str(source))}', neither a file nor shipped{nearest(str(source), known)}. "
            "`lesion run --list` lists the shipped studies."
        )
    return known[str(source)]
