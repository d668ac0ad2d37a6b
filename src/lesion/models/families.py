"""Families: the table families.toml read into plans that say where the matrices of a block lie."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

Layout = Literal["rows", "head"]


@dataclass(frozen=True)
class Entry:
    """One parameter of a block and the matrices that lie in it.

    Attributes:
        names: the matrices, in the order of their rows; a `*` stands for the number of an expert.
        path: dotted path within the block, of the parameter or of the module whose `weight` it is.
        layout: `rows` (one after the other) or `head` (interleaved, head by head).
        transposed: whether the parameter holds [in, out] of each expert.
        called: whether a pass runs through the module; some code takes its weight alone.
    """

    names: tuple[str, ...]
    path: str
    layout: Layout = "rows"
    transposed: bool = False
    called: bool = True


@dataclass(frozen=True)
class Proved:
    """What a few tokens have proved about the parts of a branch (`lesion.models.probe`).

    Attributes:
        ends: paths of linear maps, each the only way to what a tail gives.
        whole: of these the one that reads the heads side by side, or the neurons; empty where there is none.
        heads: of an attention, how many of them that map reads.
        groups: in how many groups they share keys and values.
        why: why nothing more is proved, as the end of a sentence.
        side_by_side: whether its experts are given their tokens one after the other, not a router's choice.
    """

    ends: tuple[str, ...] = ()
    whole: str = ""
    heads: int = 0
    groups: int = 0
    why: str = ""
    side_by_side: bool = False


@dataclass(frozen=True)
class BranchPaths:
    """One branch of a block: its tail and its entries, as paths within the block.

    Attributes:
        beside: further modules whose outputs the block adds beside that of the tail.
        proved: what is proved about its parts; None where the table says it (`lesion.models.units`).
    """

    tail: str
    entries: tuple[Entry, ...]
    beside: tuple[str, ...] = ()
    proved: Proved | None = None


@dataclass(frozen=True)
class Architecture:
    """One architecture of families.toml, with alternatives of which the first that exists counts.

    Attributes:
        name: as in the table.
        blocks: dotted paths of the list of decoder layers.
        attention, mlp: plans of the branches, for each block.
        notes: tables with a sentence, `text`, that holds when the configuration has the value `is` at the key `when`.
    """

    name: str
    blocks: tuple[str, ...]
    attention: tuple[BranchPaths, ...]
    mlp: tuple[BranchPaths, ...]
    notes: tuple[Mapping[str, Any], ...] = ()


def _entry(names: str, value: str | Mapping[str, str]) -> Entry:
    if isinstance(value, str):
        return Entry(tuple(names.split()), value)
    if set(value) != {"at", "per"} or value["per"] != "head":
        raise ValueError(f"families.toml: '{names}' must be a path or {{ at = path, per = \"head\" }}, not {value}")
    return Entry(tuple(names.split()), value["at"], "head")


def _plans(value: Mapping[str, Any] | list[Mapping[str, Any]]) -> tuple[BranchPaths, ...]:
    tables = value if isinstance(value, list) else [value]
    return tuple(
        BranchPaths(table["tail"], tuple(_entry(names, place) for names, place in table["matrices"].items()))
        for table in tables
    )


def _resolved(name: str, tables: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a family with everything filled in that it takes from the one it is like."""
    own = dict(tables[name])
    if "like" not in own:
        return own
    base = _resolved(own.pop("like"), tables)
    base.pop("types", None)
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        base[key] = {**base[key], **value} if both else value
    return base


def parse(text: str) -> dict[str, Architecture]:
    """The families in the text of a table, by `model_type`."""
    tables = tomllib.loads(text)
    families: dict[str, Architecture] = {}
    for name in tables:
        table = _resolved(name, tables)
        family = Architecture(
            name,
            tuple(table["blocks"]),
            _plans(table["attention"]),
            _plans(table["mlp"]),
            tuple(table.get("notes", [])),
        )
        families.update(dict.fromkeys(table.get("types", [name]), family))
    return families


@cache
def families() -> Mapping[str, Architecture]:
    """The families that the package knows, by `model_type`."""
    return parse(resources.files("lesion.models").joinpath("families.toml").read_text(encoding="utf-8"))
