"""Options: what can be chosen about a study, declared once on its fields.

A field that is declared by `option` is a key of study files, an option of the command and an argument in Python; its
name, default, help and what it may be stand there and nowhere else. A field that is a table of its own (`decoding`) is
`flat`: on the command line and in Python its keys stand beside the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

WHAT, TRAINING, STATISTICS = "What", "Training", "Statistics"
DECODING, HARDWARE = "Decoding", "Hardware"
"""Panels in which `--help` groups options."""
Many = Literal["", "repeat", "comma"]


def option(
    default: Any = PydanticUndefined,
    *,
    help: str,
    must: str,
    panel: str = WHAT,
    name: str = "",
    many: Many = "",
    argument: str = "",
    shown: str = "",
) -> Any:
    """A field of a study that can be chosen everywhere.

    Args:
        default: its value where none is given; without one it is required.
        help: what it is, one sentence, without the syntax of the command: `--help` adds that from `many`.
        must: what a value must be, for messages: `a whole number from 1`.
        panel: in which `--help` shows it.
        name: on the command line and in Python, where that is not the key in study files: `task` of `tasks`.
        many: of a list, whether its option is given repeatedly or once with commas.
        argument: the placeholder of a positional argument (`MODEL`), which has no flag.
        shown: the default as `--help` shows it, where the value itself says little.
    """
    extra: dict[str, Any] = {"help": help, "panel": panel, "name": name, "many": many}
    extra |= {"argument": argument, "shown": shown}
    return Field(default=default, description=must, json_schema_extra={"option": extra})


def flat(default: Any, must: str) -> Any:
    """A field that is a table whose keys stand beside the others as options."""
    return Field(default=default, description=must, json_schema_extra={"flat": True})


@dataclass(frozen=True)
class Option:
    """An option of a study.

    Attributes:
        name: in Python, `max_new_tokens`.
        path: the keys in a study file, `("decoding", "max_new_tokens")`.
        kinds: the types of its values: `bool`, `int`, `float`, `str`.
        required: whether it has no default.
    """

    name: str
    path: tuple[str, ...]
    help: str
    panel: str
    kinds: frozenset[type]
    many: Many = ""
    argument: str = ""
    default: Any = None
    required: bool = False
    shown: str = ""

    @property
    def flag(self) -> str:
        """As it is typed: `--max-new-tokens`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def default_text(self) -> str:
        """The default for `--help`; empty where there is none to show."""
        if self.shown or self.required or self.default in (None, ()) or self.default is False:
            return self.shown
        values = self.default if isinstance(self.default, tuple) else (self.default,)
        return ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def options_of(study: type[BaseModel]) -> list[Option]:
    """The options of a study's class, in the order of its fields; those of flat tables in their place."""
    return [*_options(study, ()), *getattr(study, "EXTRA_OPTIONS", ())]


def _options(table: type[BaseModel], path: tuple[str, ...]) -> Iterator[Option]:
    for key, field in table.model_fields.items():
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if extra.get("flat"):
            yield from _options(_table(field.annotation), (*path, key))
        elif isinstance(declared := extra.get("option"), dict):
            yield _option(key, field, (*path, key), declared)


def _option(key: str, field: FieldInfo, path: tuple[str, ...], declared: Mapping[str, Any]) -> Option:
    return Option(
        name=declared["name"] or key,
        path=path,
        help=declared["help"],
        panel=declared["panel"],
        many=declared["many"],
        argument=declared["argument"],
        kinds=frozenset(_kinds(field.annotation)),
        default=None if field.is_required() else field.default,
        required=field.is_required(),
        shown=declared["shown"],
    )


def _table(annotation: Any) -> type[BaseModel]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(_table(part) for part in get_args(annotation) if part is not NoneType)


def _kinds(annotation: Any) -> Iterator[type]:
    """The plain types that an annotation holds; a table is given as text."""
    if annotation in (bool, int, float, str):
        yield annotation
    elif get_origin(annotation) is Literal:
        yield from (type(value) for value in get_args(annotation))
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield str
    elif get_origin(annotation) in (Union, UnionType, tuple):
        for part in get_args(annotation):
            yield from _kinds(part)
    elif get_args(annotation):  # Annotated
        yield from _kinds(get_args(annotation)[0])


def schema(study: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a study's files, for editors that complete and check TOML."""
    return _plain(study.model_json_schema())


def _plain(value: Any) -> Any:
    """A part of a schema with what an option is as its description."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if not isinstance(value, dict):
        return value
    described = {key: _plain(part) for key, part in value.items() if key not in ("option", "flat")}
    if isinstance(declared := value.get("option"), dict) and "help" in declared:
        described["description"] = f"{declared['help']} ({value['description']})"
    return described


def nested(study: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Options by their names as the tables of a study file; what is no option stays as it is."""
    options = [option for option in options_of(study) if option.path]
    # A list has the same name in Python as in study files: `tasks`, beside the option `task`.
    paths = {option.path[-1]: option.path for option in options} | {option.name: option.path for option in options}
    document: dict[str, Any] = {}
    for name, value in values.items():
        table = document
        *tables, key = paths.get(name, (name,))
        for part in tables:
            table = table.setdefault(part, {})
        table[key] = value
    return document
