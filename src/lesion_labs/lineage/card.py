"""The model card of a member of the lineage, written from what was measured (`card.md.jinja`)."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypedDict

import jinja2

from lesion.training.resume import Point, curve
from lesion_labs.lineage.base import Recipe

TASK = "primer:arithmetic"
LINES, WIDTH = 12, 120  # of a curve, and characters of a line


class Result(TypedDict):
    """Accuracy on the test items of a task, or of one group of them (all: ""), with its 95 % interval."""

    task: str
    group: str
    items: int
    accuracy: float
    low: float
    high: float


class Gain(TypedDict):
    """Accuracy beyond the parent's on the same items; `gained` and `lost` are right in the child or parent alone."""

    task: str
    items: int
    gain: float
    low: float
    high: float
    gained: int
    lost: int


class Facts(TypedDict, total=False):
    """What `training.json` says of a member; some of it of the base alone, some of the children alone."""

    family: str
    stage: str
    parent: Mapping[str, str]
    recipe: Mapping[str, object]
    data: Mapping[str, object]
    vocabulary: int
    steps: int | float
    tokens: int | float
    seconds: int | float
    machine: str
    torch: str
    trl: str
    results: list[Result]
    gain: list[Gain]
    curve: list[Point]


def card(facts: Facts, parameters: int) -> str:
    """The card of a member with so many parameters, as Markdown."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lesion_labs.lineage", "."),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {"n": "{:,}".format, "filled": _filled, "stretches": partial(curve, about=LINES)}
    doubtful = facts["stage"] == "rlvr" and not proven(facts["gain"])
    return environment.get_template("card.md.jinja").render(
        facts,
        parameters=parameters,
        all_groups=Recipe.groups,
        doubt=doubt(f"{facts['family']}-rlvr") if doubtful else "",
    )


def proven(gains: Sequence[Gain]) -> bool:
    """Whether the gain on arithmetic is one: its interval lies above 0."""
    return any(entry["task"] == TASK and entry["low"] > 0 for entry in gains)


def doubt(name: str) -> str:
    """What is said of a reinforced child whose gain may be none."""
    return f"{name} is not shown to be better at arithmetic than its parent: the interval of the gain reaches 0."


def _filled(text: str) -> str:
    """Paragraphs and the points of lists, each wrapped to the width of the card."""
    paragraphs = []
    for block in text.strip().split("\n\n"):
        points = block.replace("\n- ", "\0- ").split("\0")
        paragraphs.append("\n".join(_wrapped(" ".join(point.split())) for point in points))
    return "\n\n".join(paragraphs) + "\n"


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
