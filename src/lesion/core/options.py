"""Options: what can be chosen about a study, declared once on its fields.

A field that is declared by `option` is a key of study files, an option of the command and an argument in Python; its
name, default, help, what it may be, and whether it decides the identity of the study stand there and nowhere else. A
field that is a table of its own (`decoding`) is `flat`: on the command line and in Python its keys stand beside the
others. A field declared by `key` stands in study files alone. Every option of a study is in its identity, unless it
says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

WHAT, TRAINING, STATISTICS = "What", "Training", "Statistics"
DECODING, HARDWARE = "Decoding", "Hardware"
"""Panels in which `--help` groups options."""
Many = Literal["", "repeat", "comma"]
Part = Literal["in identity", "extendable", "not in identity"]
"""Of what decides a key: of the answers in a folder (in identity); of which answers there are, so that a finished
folder takes further values (extendable); or of none (not in identity)."""
IN_IDENTITY: Part = "in identity"
EXTENDABLE: Part = "extendable"
NOT_IN_IDENTITY: Part = "not in identity"
_DECLARED = "lesion"  # in the extra JSON Schema of a field


def option(
    default: Any = PydanticUndefined,
    *,
    help: str,
    must: str = "",
    panel: str = WHAT,
    name: str = "",
    many: Many = "",
    argument: str = "",
    shown: str = "",
    first: bool = False,
    identity: Part = IN_IDENTITY,
    unordered: bool = False,
    **field: Any,
) -> Any:
    """A field of a study that can be chosen everywhere.

    Args:
        default: its value where none is given; without one it is required.
        help: what it is, one sentence, without the syntax of the command: `--help` adds that from `many`.
        must: what a value must be, for messages: `a whole number from 1`; where that is not what its type says.
        panel: in which `--help` shows it.
        name: on the command line and in Python, where that is not the key in study files: `task` of `tasks`.
        many: of a list, whether its option is given repeatedly or once with commas.
        argument: the placeholder of a positional argument (`MODEL`), which has no flag.
        shown: the default as `--help` shows it, where the value itself says little.
        first: whether it stands among the first arguments in Python though it has a default.
        identity: what it decides.
        unordered: of a list, whether its order decides nothing.
        field: further arguments of pydantic's `Field`.
    """
    extra: dict[str, Any] = {"help": help, "panel": panel, "name": name, "many": many}
    extra |= {"argument": argument, "shown": shown, "first": first}
    return key(default, must, identity=identity, unordered=unordered, extra={"option": extra}, **field)


free_option = partial(option, identity=NOT_IN_IDENTITY)
"""An option that decides no answer: a finished folder takes other values of it."""


def flat(default: Any, must: str, *, identity: Part = IN_IDENTITY) -> Any:
    """A field that is a table whose keys stand beside the others as options; without it, they have no default."""
    return key(default, must, identity=identity, extra={"flat": True})


def key(
    default: Any,
    must: str = "",
    *,
    identity: Part = IN_IDENTITY,
    unordered: bool = False,
    extra: Mapping[str, Any] | None = None,
    **field: Any,
) -> Any:
    """A field of a study that stands in study files alone; arguments as of `option`."""
    declared = {"identity": identity, "unordered": unordered, **(extra or {})}
    if must:
        field["description"] = must
    return Field(default=default, json_schema_extra={_DECLARED: declared}, **field)


def must_be(field: FieldInfo) -> str:
    """What a value of a field must be, in words: what the field itself says, or else its type."""
    return field.description or _must_be(field.annotation, field.metadata)


def _must_be(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation is bool:
        return "true or false"
    if annotation in (int, float):
        return _number("whole number" if annotation is int else "number", metadata)
    if origin is Literal:
        return one_of(annotation)
    if origin is tuple:
        each = _must_be(inner[0])
        return f"{each}, or a list of {'them' if each.startswith('a ') else 'these'}" * bool(each)
    if origin in (Union, UnionType):
        return next(filter(None, map(_must_be, inner)), "")
    if origin is Annotated:
        described = (each.description for each in inner[1:] if isinstance(each, FieldInfo) and each.description)
        return next(described, _must_be(inner[0], inner[1:]))
    return ""


def _number(noun: str, metadata: Sequence[Any]) -> str:
    """`a whole number from 2 to 256`, `a number between 0 and 1`, `a finite number`."""
    every = [limit for each in metadata for limit in (each.metadata if isinstance(each, FieldInfo) else [each])]
    limits = {name: getattr(each, name) for each in every for name in ("ge", "gt", "le", "lt") if hasattr(each, name)}
    forms = {
        "ge": "from {ge:g}",
        "ge le": "from {ge:g} to {le:g}",
        "gt": "above {gt:g}",
        "gt le": "above {gt:g}, up to {le:g}",
        "gt lt": "between {gt:g} and {lt:g}",
    }
    form = forms.get(" ".join(sorted(limits)), "")
    return f"a {noun} {form.format(**limits)}" if form else f"a {noun}" if noun != "number" else "a finite number"


def one_of(kind: Any) -> str:
    """The values of a `Literal` in words: `a, b or c`."""
    *most, final = map(str, get_args(kind))
    return f"{', '.join(most)} or {final}" if most else final


def kind_key(name: str, *, identity: Part = NOT_IN_IDENTITY) -> Any:
    """The key by which study files say which kind of study they are."""
    return key(name, name, identity=identity)


def keys(study: type[BaseModel], *parts: Part) -> set[str]:
    """The fields of a study that are such a part of its identity."""
    return {
        name for name, field in study.model_fields.items() if _declared(field).get("identity", IN_IDENTITY) in parts
    }


def unordered_lists(study: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """The paths of the lists in a study whose order decides nothing."""
    for name, field in study.model_fields.items():
        if _declared(field).get("unordered"):
            yield (name,)
        for table in _tables(field.annotation) if _declared(field).get("flat") else ():
            yield from ((name, *path) for path in unordered_lists(table))


def _declared(field: FieldInfo) -> dict[str, Any]:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    declared = extra.get(_DECLARED)
    return declared if isinstance(declared, dict) else {}


@dataclass(frozen=True)
class Option:
    """An option of a study.

    Attributes:
        name: of the option, `max_new_tokens`.
        path: the keys in a study file, `("decoding", "max_new_tokens")`; empty: it stands for other options.
        annotation: of its field, and `metadata` beside it.
        required: whether it has no default.
        first: whether it stands among the first arguments in Python.
    """

    name: str
    path: tuple[str, ...]
    help: str
    panel: str
    annotation: Any
    metadata: tuple[Any, ...] = ()
    many: Many = ""
    argument: str = ""
    default: Any = None
    required: bool = False
    shown: str = ""
    first: bool = False

    @property
    def kinds(self) -> frozenset[type]:
        """The types of its values: `bool`, `int`, `float`, `str`."""
        return frozenset(_kinds(self.annotation))

    @property
    def python(self) -> str:
        """The name in Python: that of the option, of a list that of its key (`tasks`)."""
        if self.argument == "MODEL":
            return "model"
        key = self.path[-1] if self.path else self.name
        return key if self.many == "repeat" and key == f"{self.name}s" else self.name

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
    """The options of a study's class, in the order of its fields; those of tables in their place."""
    return list(_options(study, ()))


def _options(table: type[BaseModel], path: tuple[str, ...], *, absent: bool = False) -> Iterator[Option]:
    """The options of a table; of one that is absent by default, they have no default of their own."""
    for name, field in table.model_fields.items():
        declared = _declared(field)
        if "option" in declared:
            chosen = dict(declared["option"])
            yield Option(
                **{**chosen, "name": chosen["name"] or name},
                path=(*path, name),
                annotation=field.annotation,
                metadata=tuple(field.metadata),
                default=None if absent or field.is_required() else field.default,
                required=field.is_required(),
            )
        for inner in _tables(field.annotation) if declared.keys() & {"option", "flat"} else ():
            yield from _options(inner, (*path, name), absent=not isinstance(field.default, BaseModel))


def _tables(annotation: Any) -> Iterator[type[BaseModel]]:
    """The classes of tables that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _tables(part)


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
    return _plain(study.model_json_schema(by_alias=False))


def _plain(value: Any) -> Any:
    """A part of a schema with what an option is as its description."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if not isinstance(value, dict):
        return value
    described = {key: _plain(part) for key, part in value.items() if key != _DECLARED}
    if isinstance(declared := value.get(_DECLARED), dict) and "option" in declared:
        must = f" ({value['description']})" if "description" in value else ""
        described["description"] = declared["option"]["help"] + must
    return described


def nested(study: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Options by their names as the tables of a study file; what is no option stays as it is."""
    # A list has the same name in Python as in study files: `tasks`, beside the option `task`.
    paths = {name: option.path for option in options_of(study) for name in (option.python, option.name)}
    document: dict[str, Any] = {}
    for name, value in values.items():
        table = document
        *tables, key = paths.get(name, (name,))
        for part in tables:
            table = table.setdefault(part, {})
        table[key] = value
    return document


ASKING = (
    *("prompt_style", "system", "thinking", "template_argument", "items", "seed", "dtype", "temperature", "top_p"),
    *("max_new_tokens", "stop", "stop_loops", "thinking_tokens"),
)
"""By these options a study says how its questions are put and answered."""


def asking(study: BaseModel, otherwise: str = "") -> list[str]:
    """How the questions of a study are put, as it is typed; what is at its default, or is `otherwise`, is left out."""
    given = otherwise.split()
    of_all = {name: next(iter(values)) for name, values in of_tasks(study).items() if len(values) == 1}
    values = {name: value for name, value in (values_of(study) | of_all).items() if name in ASKING}
    kept = {name: value for name, value in values.items() if f"--{name.replace('_', '-')}" not in given}
    return typed(options_of(type(study)), kept)


def of_tasks(study: BaseModel) -> dict[str, set[Any]]:
    """What a study file sets for its tasks one by one, by name. Said by options of all tasks, it is another study."""
    tasks = [*getattr(study, "tasks", ()), getattr(study, "task", None)]
    tables = [dict(task) for task in tasks if isinstance(task, BaseModel)]
    settings = {name: {table[name] for table in tables} for name in (tables[0] if tables else ()) if name != "name"}
    return {name: values for name, values in settings.items() if values - {None}}


def values_of(study: BaseModel) -> dict[str, Any]:
    """The options of a study, by name and `MODEL`."""
    return {_name(option): _value(study, option) for option in options_of(type(study))}


def typed(options: Iterable[Option], values: Mapping[str, Any]) -> list[str]:
    """Options as words of a command, by name and `MODEL`, which comes first; those at their default are left out."""
    words: list[str] = []
    for option in sorted(options, key=lambda option: not option.argument):
        value = values.get(_name(option))
        if value is None or value is False or value == () or (value == option.default and not option.required):
            continue
        texts = [_text(each) for each in (value if isinstance(value, tuple) else (value,))]
        if option.argument:
            words += texts
        elif value is True:
            words.append(option.flag)
        else:
            for text in texts if option.many == "repeat" else [",".join(texts)]:
                words += [option.flag, text]
    return words


def _name(option: Option) -> str:
    return option.argument or option.name


def _value(study: BaseModel, option: Option) -> Any:
    value: Any = study
    for key in option.path:
        value = getattr(value, key, None)  # of a table that is absent too
    return value


def _text(value: Any) -> str:
    """A value as it is typed; of a table its first key that is no option itself, of a model with its revision."""
    if isinstance(value, BaseModel):
        inner = {option.path[-1] for option in options_of(type(value))}
        first = next(name for name in type(value).model_fields if name not in inner)
        revision = getattr(value, "revision", None)
        return f"{getattr(value, first)}" + (f"@{revision}" if revision else "")
    return f"{value:g}" if isinstance(value, float) else str(value).replace("\n", "\\n")
