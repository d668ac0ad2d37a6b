"""Meanings: what a text may say: an expression with its unit, several values, intervals, relations, ratios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from lesion.tasks.judges.expressions import Node, Unreadable, parts, rational, substituted

INFINITY = Node("constant", ("infinity",))
BELOW = Node("negative", (INFINITY,))
RELATIONS = "=<>≤≥≠≈∈"
TURNED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤", "=": "=", "≠": "≠", "≈": "≈"}
CURRENCIES = "$€£¥₹¢"


@dataclass(frozen=True)
class Scalar:
    """An expression with what stands at it.

    Attributes:
        node: the expression.
        unit: the unit in words, or a currency sign; empty without one.
        factor: what a percent sign (1/100), "dozen" or "million" multiplies it by; None without one.
    """

    node: Node
    unit: str = ""
    factor: Fraction | None = None


@dataclass(frozen=True)
class Many:
    """Several values: `list` (bare, in any order), `set`, `tuple`, `bracket` (`[…]`), `vector`, `matrix` (of rows).

    A tuple or bracket of two values may be an interval as well.
    """

    kind: str
    items: tuple[Value, ...]


@dataclass(frozen=True)
class Interval:
    """The numbers from one end to another."""

    low: Node
    high: Node
    low_closed: bool
    high_closed: bool


@dataclass(frozen=True)
class Region:
    """A union of intervals; of the values of a variable, where one is named."""

    intervals: tuple[Interval, ...]
    name: str = ""


REALS = Region((Interval(BELOW, INFINITY, False, False),))


@dataclass(frozen=True)
class Relation:
    """Sides with relations between them, such as `y = 2x + 1` or `3 < x ≤ 5`; the first side may be missing (None)."""

    sides: tuple[Value | None, ...]
    signs: str


@dataclass(frozen=True)
class Ratio:
    """Numbers apart by colons: `3:4`, or a time of day."""

    terms: tuple[Node, ...]
    written: str
    half: str = ""


@dataclass(frozen=True)
class Gap:
    """What an ellipsis leaves out of a sequence."""


@dataclass(frozen=True)
class Word:
    """Words where a value might stand, such as one entry of a list."""

    text: str


Value = Scalar | Many | Region | Relation | Ratio | Gap | Word


def end(value: Value) -> Node:
    """The end of an interval that a value is; it raises `Unreadable` where it is no single expression."""
    if not isinstance(value, Scalar):
        raise Unreadable("no end of an interval")
    return value.node


def united(first: Value, second: Value) -> Value:
    """The union of two regions or sets."""
    left, right = as_region(first), as_region(second)
    if left and right:
        return Region(left.intervals + right.intervals, left.name or right.name)
    if isinstance(first, Many) and isinstance(second, Many):
        return Many("set", first.items + second.items)
    if left and isinstance(second, Many) and second.kind == "set":
        return Region(left.intervals + tuple(Interval(end(each), end(each), True, True) for each in second.items))
    raise Unreadable("a union")


def without(first: Value, second: Value) -> Value:
    """A region without some numbers."""
    whole = as_region(first)
    items = second.items if isinstance(second, Many) else (second,)
    if whole is None or len(whole.intervals) != 1:
        raise Unreadable("a difference")
    only = whole.intervals[0]
    ends = sorted((end(each) for each in items), key=lambda node: float(rational(node) or 0))
    if any(rational(end) is None for end in ends):
        raise Unreadable("a difference")
    cuts = [only.low, *ends, only.high]
    closed = [only.low_closed, *(False for _ in ends), only.high_closed]
    pairs = zip(cuts, cuts[1:], closed, closed[1:], strict=False)
    return Region(tuple(Interval(low, high, a, b) for low, high, a, b in pairs))


def as_region(value: Value) -> Region | None:
    """A region, or the interval that a tuple or bracket of two values may be."""
    if isinstance(value, Region):
        return value
    if not isinstance(value, Many) or value.kind not in ("tuple", "bracket") or len(value.items) != 2:
        return None
    if not all(isinstance(each, Scalar) for each in value.items):
        return None
    closed = value.kind == "bracket"
    return Region((Interval(end(value.items[0]), end(value.items[1]), closed, closed),))


def variants(value: Value) -> Value:
    """The value with `±` written out: two values."""
    if isinstance(value, Many):
        items = [variants(each) for each in value.items]
        flat = [
            part
            for each in items
            for part in (each.items if isinstance(each, Many) and each.kind == "list" else (each,))
        ]
        return Many(value.kind, tuple(flat if value.kind in ("list", "set") else items))
    if isinstance(value, Relation):
        sides = tuple(None if side is None else variants(side) for side in value.sides)
        return Relation(sides, value.signs)
    if not isinstance(value, Scalar) or not any(part.op in "±∓" for part in parts(value.node)):
        return value

    def signed(upper: str, lower: str) -> Callable[[Node], Node | None]:
        def change(node: Node) -> Node | None:
            if node.op not in ("±", "∓"):
                return None
            sign = upper if node.op == "±" else lower
            return Node(sign, tuple(substituted(each, change) for each in node.args))

        return change

    return Many("list", tuple(replace(value, node=substituted(value.node, signed(*each))) for each in ("+-", "-+")))
