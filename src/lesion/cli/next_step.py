"""The line under a study that says what to run next: the first of its checks that names a step, as it is typed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from lesion.core.method import Method
from lesion.core.options import Option, options_of
from lesion.core.result import StudyResult
from lesion.registry import method_of, methods

SHARED = ("MODEL", "task", "prompt_style", "dtype", "device")
"""What a study of another kind takes over."""


def next_step(result: StudyResult) -> str:
    """The command line of the first check that names a step; empty where none does."""
    study = getattr(result.summary, "study", None)
    # What a person has to fill in stands in capitals.
    steps = (check for check in result.checks() if check.command and "FOLDER" not in check.options)
    check = next(steps, None)
    if check is None or study is None:
        return ""
    values = {_name(option): _value(study, option) for option in options_of(type(study))}
    words = shlex.split(check.options)
    method = method_of(study)
    if check.command == method.command:
        values["out"] = str(result.folder)
        kept = {name: value for name, value in values.items() if f"--{name.replace('_', '-')}" not in words}
        return f"{typed(method, kept)} {check.options}"
    other = next((other for other in methods().values() if other.command == check.command), None)
    if other is None:  # a command that writes a model
        return f"{shlex.join(['lesion', check.command, _text(values['MODEL'])])} {check.options}"
    return f"{typed(other, {name: values[name] for name in SHARED if name in values})} {check.options}".strip()


def typed(method: Method[Any], values: Mapping[str, Any]) -> str:
    """A command with options of these values, by name and `MODEL`; those at their default are left out."""
    words = ["lesion", *method.command.split()]
    for option in sorted(method.options, key=lambda option: not option.argument):
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
    return shlex.join([*words, *(["--out", values["out"]] if "out" in values else [])])


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
        options = {option.path[-1] for option in options_of(type(value))}
        first = next(name for name in type(value).model_fields if name not in options)
        revision = getattr(value, "revision", None)
        return f"{getattr(value, first)}" + (f"@{revision}" if revision else "")
    return f"{value:g}" if isinstance(value, float) else str(value).replace("\n", "\\n")
