"""Regions: inequalities as the intervals of numbers for which they hold."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from lesion.tasks.judges.expressions import Node, Unreadable, close, number, rational, substituted, symbols, value
from lesion.tasks.judges.meanings import (
    BELOW,
    INFINITY,
    REALS,
    TURNED,
    Interval,
    Many,
    Region,
    Relation,
    Scalar,
    as_region,
)


def solved(relation: Relation) -> Region | None:
    """The numbers for which relations between expressions in one variable hold; None where they are no inequalities.

    `x > 5`, `5 < x`, `3 < x ≤ 5`, `2x > 10`, `x ∈ [3, 5)`, `x ≠ 3` and `> 5`; linear in the variable.
    """
    sides, signs = relation.sides, relation.signs
    if signs == "∈" and isinstance(sides[0], Scalar) and sides[1] is not None:
        region = as_region(sides[1])
        return None if region is None else Region(region.intervals, _name(sides[0].node))
    if sides[0] is None:
        sides = (Scalar(Node("symbol", ("",))), *sides[1:])
    if set(signs) - set("<>≤≥≠") or len(sides) != len(signs) + 1:
        return None
    whole = REALS
    for sign, left, right in zip(signs, sides, sides[1:], strict=False):
        if not isinstance(left, Scalar) or not isinstance(right, Scalar):
            return None
        half = _half(sign, left.node, right.node)
        if half is None or (whole.name and half.name and whole.name != half.name):
            return None
        common = intersection(whole, half)
        if common is None:
            return None
        whole = Region(common.intervals, half.name)
    return whole


def _name(node: Node) -> str:
    return str(node.args[0]) if node.op == "symbol" else ""


def _half(sign: str, left: Node, right: Node) -> Region | None:
    """The solutions of one inequality: of `|x| < 3` and of those that are linear in one variable."""
    for one, other, relation in ((left, right, sign), (right, left, TURNED[sign])):
        if one.op == "abs" and one.args[0].op == "symbol" and not symbols(other):
            name, minus = _name(one.args[0]), Node("negative", (other,))
            if relation in "<≤":
                return Region((Interval(minus, other, relation == "≤", relation == "≤"),), name)
            if relation in ">≥":
                closed = relation == "≥"
                return Region((Interval(BELOW, minus, False, closed), Interval(other, INFINITY, closed, False)), name)
            return None
        if one.op == "symbol" and one.args[0] not in symbols(other):
            return _ray(relation, other, str(one.args[0]))
    names = symbols(left) | symbols(right)
    if len(names) != 1:
        return None
    (name,) = names
    difference = Node("-", (left, right))
    try:
        at = [value(difference, {name: turn}) for turn in (0, 1, 2, 5)]
    except Unreadable:
        return None
    slope = at[1] - at[0]
    if not close(at[2], at[0] + 2 * slope) or not close(at[3], at[0] + 5 * slope) or close(slope, 0):
        return None
    zero, one = (substituted(difference, {Node("symbol", (name,)): number(turn)}.get) for turn in (0, 1))
    root = Node("/", (Node("negative", (zero,)), Node("-", (one, zero))))
    exact = rational(root)
    return _ray(sign if slope.real > 0 else TURNED[sign], root if exact is None else number(exact), name)


def _ray(sign: str, end: Node, name: str) -> Region:
    if sign in ">≥":
        return Region((Interval(end, INFINITY, sign == "≥", False),), name)
    if sign in "<≤":
        return Region((Interval(BELOW, end, False, sign == "≤"),), name)
    return Region((Interval(BELOW, end, False, False), Interval(end, INFINITY, False, False)), name)


def order(node: Node) -> float | Fraction | object:
    """Where an end of an interval lies, for sorting."""
    if node == INFINITY:
        return float("inf")
    if node in (BELOW, Node("-", (number(0), INFINITY))):
        return float("-inf")
    if node.op == "group":
        return order(node.args[0])
    place = value(node)
    if getattr(place, "imag", 0) != 0:
        raise Unreadable("no real number")
    return place


def intersection(first: Region, second: Region) -> Region | None:
    """What two regions have in common; None where their ends cannot be ordered."""
    pieces = []
    try:
        for interval in first.intervals:
            for other in second.intervals:
                low, low_closed = max(
                    ((interval.low, interval.low_closed), (other.low, other.low_closed)),
                    key=lambda end: (order(end[0]), not end[1]),
                )
                high, high_closed = min(
                    ((interval.high, interval.high_closed), (other.high, other.high_closed)),
                    key=lambda end: (order(end[0]), end[1]),
                )
                if order(low) < order(high) or (low_closed and high_closed and order(low) == order(high)):  # type: ignore[operator]
                    pieces.append(Interval(low, high, low_closed, high_closed))
    except Unreadable:
        return None
    return Region(tuple(pieces), first.name or second.name)


def merged(intervals: Sequence[Interval]) -> list[tuple[object, bool, object, bool]]:
    """The intervals in order, those that touch as one: the place of each end and whether it belongs to it."""
    ordered = sorted(
        ((order(each.low), each.low_closed, order(each.high), each.high_closed) for each in intervals),
        key=lambda each: (each[0], not each[1]),
    )
    result: list[tuple[object, bool, object, bool]] = []
    for low, low_closed, high, high_closed in ordered:
        if result:
            begin, begin_closed, end, end_closed = result[-1]
            if low < end or (low == end and (low_closed or end_closed)):  # type: ignore[operator]
                if high > end or (high == end and high_closed):  # type: ignore[operator]
                    result[-1] = (begin, begin_closed, high, high_closed)
                continue
        result.append((low, low_closed, high, high_closed))
    return result


def same_region(first: Region, second: Region) -> bool:
    """Whether two regions hold the same numbers."""
    if first.name and second.name and first.name != second.name:
        return False
    try:
        left, right = merged(first.intervals), merged(second.intervals)
    except Unreadable:
        return first.intervals == second.intervals
    return len(left) == len(right) and all(
        one[1] == other[1] and one[3] == other[3] and _same_end(one[0], other[0]) and _same_end(one[2], other[2])
        for one, other in zip(left, right, strict=True)
    )


def _same_end(first: object, second: object) -> bool:
    return first == second or (not isinstance(first, float) and not isinstance(second, float) and close(first, second))


def together(relations: Many, disjunction: bool) -> Region | None:
    """Inequalities of one variable that hold together, or of which one holds."""
    regions = [solved(each) for each in relations.items if isinstance(each, Relation)]
    known = [region for region in regions if region is not None]
    if not known or len(known) < len(relations.items) or len({region.name for region in known if region.name}) > 1:
        return None
    result = known[0]
    for region in known[1:]:
        other = (
            Region(result.intervals + region.intervals, result.name or region.name)
            if disjunction
            else intersection(result, region)
        )
        if other is None:
            return None
        result = other
    return result
