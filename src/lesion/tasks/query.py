"""What stands behind the `?` of a task's name, `digits=2&shots=4`, taken apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lesion.errors import UsageError, nearest
from lesion.plain import short

_NEXT = re.compile(r"&(?=\w*=|\w*$)")  # "R&D" in a value is no second option


@dataclass(frozen=True)
class Option:
    """An option whose values are whole numbers of a range, or words of a list.

    Attributes:
        default: the value where the name has none.
        values: what it may be.
        meaning: what it says, for the documentation.
    """

    default: int | str
    values: range | tuple[str, ...]
    meaning: str

    def read(self, key: str, text: str, name: str) -> int | str:
        """The value of a text."""
        if not isinstance(self.values, range):
            if text in self.values:
                return text
            raise UsageError(
                f"There is no {key} '{short(text)}' in '{short(name)}'{nearest(text, self.values)}; there are"
                f" {', '.join(self.values)}."
            )
        if text.isascii() and text.isdigit() and len(text) < 7 and int(text) in self.values:
            return int(text)
        raise UsageError(
            f"In '{short(name)}', {key} is '{short(text)}'; write a whole number from {self.values[0]} to"
            f" {self.values[-1]}, such as {key}={self.default}."
        )


def options(name: str, query: str, examples: Mapping[str, str]) -> dict[str, str]:
    """The texts of options by their keys, in the order in which they were typed.

    `examples` has a value of every option there is.
    """
    given: dict[str, str] = {}
    for piece in _NEXT.split(query):
        key, _, value = piece.partition("=")
        if key not in examples:
            body = name.partition("?")[0]
            known = "&".join(f"{option}={value}" for option, value in [*examples.items()][:2])
            there = f"there are {', '.join(examples)}, as in '{short(body)}?{known}'" if examples else "it has none"
            raise UsageError(f"There is no option '{short(key)}' in '{short(name)}'{nearest(key, examples)}; {there}.")
        if key in given:
            raise UsageError(f"The option '{key}' stands twice in '{short(name)}'; write it once.")
        if not value:
            raise UsageError(f"The option '{key}' of '{short(name)}' has no value; write {key}={examples[key]}.")
        given[key] = value
    return given


def read(name: str, query: str, known: Mapping[str, Option]) -> dict[str, int | str]:
    """The value of every option there is: the one given, else its default. It raises what `options` and `read` do."""
    given = options(name, query, {key: str(option.default) for key, option in known.items()}) if query else {}
    return {key: opt.read(key, given[key], name) if key in given else opt.default for key, opt in known.items()}
