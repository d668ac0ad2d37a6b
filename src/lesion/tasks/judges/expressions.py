"""Mathematical expressions: their exact values where they are rational, and their values to fifty digits elsewhere."""

from __future__ import annotations

import hashlib
import math
import operator
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

DIGITS = 50
"""Decimal digits in which an irrational value is computed."""

CLOSE = 30
"""Decimal digits in which two values agree that count as the same."""

BITS = 20_000
"""Largest number, in bits, that is computed exactly."""

LARGEST = 10**6
"""Largest exponent, and argument of a factorial, that is computed at all: `9^9^9` is beyond it."""


class Unreadable(Exception):  # noqa: N818  (no error of the program: the text is compared as text)
    """The text is not mathematics of this grammar, or its value is too large to compute."""


@dataclass(frozen=True)
class Node:
    """A part of an expression.

    Attributes:
        op: `number`, `symbol`, `constant`, `numeral` (digits and base), or the name of an operation.
        args: for a number, its value; for a symbol or constant, its name; else the operands.
        places: of a number, the decimals as written; infinite where it is no decimal.
    """

    op: str
    args: tuple[Any, ...]
    places: float = math.inf


def number(value: Fraction | int, places: float = math.inf) -> Node:
    """A number as an expression."""
    return Node("number", (Fraction(value),), places)


def parts(node: Node) -> Iterator[Node]:
    """An expression and everything in it."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [each for each in node.args if isinstance(each, Node)]


def symbols(node: Node) -> frozenset[str]:
    """The names of the variables in an expression."""
    return frozenset(part.args[0] for part in parts(node) if part.op == "symbol")


def substituted(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """The expression with some parts replaced: those for which `change` gives another."""
    other = change(node)
    if other is not None:
        return other
    args = tuple(substituted(each, change) if isinstance(each, Node) else each for each in node.args)
    return node if args == node.args else Node(node.op, args, node.places)


@lru_cache(maxsize=4096)
def rational(node: Node) -> Fraction | None:
    """The exact value of arithmetic on rational numbers; None where anything else is in it, or it is too large."""
    if node.op == "number":
        value: Fraction = node.args[0]
        return value
    if node.op not in _EXACT:
        return None
    values = [rational(each) for each in node.args]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    result = _EXACT[node.op](*known)
    return None if result is None or _bits(result) > BITS else result


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if base < 0 and exponent.denominator % 2 and exponent.denominator > 1:
        root = _power(-base, exponent)
        return None if root is None else root * (-1) ** (exponent.numerator % 2)
    if base == 0:
        return Fraction(0) if exponent > 0 else None
    if abs(exponent) > LARGEST or _bits(base) * abs(exponent) > BITS:
        return Fraction(base ** int(exponent)) if abs(base) == 1 and exponent.denominator == 1 else None
    if exponent.denominator == 1:
        return Fraction(base ** int(exponent))
    if base < 0 or exponent.denominator > 64:
        return None
    above, below = (_root(part, exponent.denominator) for part in (base.numerator, base.denominator))
    if above is None or below is None:
        return None
    return Fraction(above, below) ** exponent.numerator


def _root(whole: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(whole)
    else:
        low, high = 0, 1 << (whole.bit_length() // degree + 1)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**degree <= whole else (low, middle - 1)
        root = low
    return root if root**degree == whole else None


def _factorial(value: Fraction) -> Fraction | None:
    return Fraction(math.factorial(int(value))) if value.denominator == 1 and 0 <= value <= 2000 else None


def _binomial(above: Fraction, below: Fraction) -> Fraction | None:
    whole = above.denominator == below.denominator == 1 and 0 <= below <= above <= 2000
    return Fraction(math.comb(int(above), int(below))) if whole else None


_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "negative": operator.neg,
    "group": lambda value: value,
    "abs": abs,
}
"""What is computed alike of rational numbers and of others."""
_EXACT: Mapping[str, Callable[..., Fraction | None]] = {
    **_ARITHMETIC,
    "/": lambda left, right: left / right if right else None,
    "^": _power,
    "root": lambda value, degree: _power(value, 1 / degree) if degree > 0 else None,
    "factorial": _factorial,
    "binomial": _binomial,
    "floor": lambda value: Fraction(math.floor(value)),
    "ceil": lambda value: Fraction(math.ceil(value)),
}

_FUNCTIONS = frozenset(
    ("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "acot", "asec", "acsc", "sinh", "cosh", "tanh")
)
FUNCTIONS = {
    **{name: name for name in _FUNCTIONS},
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    "tg": "tan", "ctg": "cot", "cosec": "csc", "sqrt": "sqrt", "cbrt": "cbrt", "exp": "exp", "ln": "ln", "log": "log",
    "lg": "log", "abs": "abs", "floor": "floor", "ceil": "ceil",
}  # fmt: skip
"""Functions by the names under which they are written."""

_local = threading.local()


def _arithmetic() -> Any:
    """The numbers of fifty digits of this thread; mpmath's own context is shared by all threads."""
    if not hasattr(_local, "context"):
        import mpmath  # only expressions with roots or symbols need it

        _local.context = mpmath.MPContext()
        _local.context.dps = DIGITS
    return _local.context


def value(node: Node, point: Mapping[str, Any] | None = None) -> Any:
    """The value of an expression, an mpmath number of `DIGITS` digits; variables have the values of the point."""
    m = _arithmetic()
    try:
        result = _value(node, point or {}, m)
    except (ArithmeticError, ValueError, TypeError, RecursionError, MemoryError, KeyError) as error:
        raise Unreadable(str(error)) from error
    if not m.isfinite(result):
        raise Unreadable("not finite")
    return result


def _value(node: Node, point: Mapping[str, Any], m: Any) -> Any:
    exact = rational(node)
    if exact is not None:
        return m.mpf(exact.numerator) / exact.denominator
    if node.op == "symbol":
        return point[node.args[0]]
    if node.op == "constant":
        return {"pi": m.pi, "e": m.e, "i": m.mpc(0, 1), "phi": m.phi}[node.args[0]] * 1
    if node.op == "numeral" or (node.op in _EXACT and not node.args):
        raise Unreadable("a numeral")
    args = [_value(each, point, m) for each in node.args]
    if any(abs(m.mag(each)) > LARGEST * 4 for each in args if each):
        raise Unreadable("too large")
    if node.op in ("^", "exp"):
        base, exponent = args if node.op == "^" else (m.e, args[0])
        return _raised(m, base, exponent)
    if node.op == "root":
        return _raised(m, args[0], 1 / args[1])
    if node.op == "log":
        return m.log(args[0]) / m.log(args[1])
    if node.op in ("factorial", "binomial") and any(abs(each) > LARGEST for each in args):
        raise Unreadable("too large")
    if node.op in _FUNCTIONS and any(m.mag(each) > 200 for each in args if each):
        raise Unreadable("too large")
    if node.op in _ARITHMETIC:
        return _ARITHMETIC[node.op](*args)
    if node.op not in _FUNCTIONS and node.op not in ("ln", "factorial", "binomial", "floor", "ceil"):
        raise Unreadable(node.op)
    return getattr(m, node.op)(*args)


def _raised(m: Any, base: Any, exponent: Any) -> Any:
    if abs(exponent) > LARGEST:
        raise Unreadable("too large")
    if base and abs(m.mag(base)) * max(1, abs(exponent)) > LARGEST * 4:
        raise Unreadable("too large")
    if m.im(base) == 0 and m.re(base) < 0 and m.im(exponent) == 0:
        ratio = Fraction(str(m.nstr(m.re(exponent), 30))).limit_denominator(99)
        # The real root, as schools take it: the cube root of -8 is -2.
        if (
            ratio.denominator % 2
            and ratio.denominator > 1
            and abs(exponent - m.mpf(ratio.numerator) / ratio.denominator) < m.mpf(10) ** -CLOSE
        ):
            return (-base) ** exponent * (-1) ** (ratio.numerator % 2)
    return base**exponent


def points(names: frozenset[str]) -> list[dict[str, Any]]:
    """Points at which two expressions are compared: the same for the same names, in no relation to one another."""
    m = _arithmetic()

    def coordinate(name: str, turn: int) -> Any:
        digest = hashlib.sha256(f"{turn} {name}".encode()).digest()
        size = m.mpf(int.from_bytes(digest[:16], "big")) / 2**128 * 2 + m.mpf(3) / 10
        return -size if turn == 2 else size * (7 if turn == 1 else 1)

    return [{name: coordinate(name, turn) for name in names} for turn in range(3)]


def close(first: Any, second: Any) -> bool:
    """Whether two values agree in `CLOSE` digits."""
    m = _arithmetic()
    return bool(abs(first - second) <= m.mpf(10) ** -CLOSE * max(1, abs(first), abs(second)))


@lru_cache(maxsize=4096)
def same_expression(first: Node, second: Node) -> bool:
    """Whether two expressions have the same value, wherever both have one.

    Rational numbers are compared exactly, all else at points that stand in no relation to one another: two different
    expressions of the length of an answer agree in thirty digits at none of them.
    """
    if first == second:
        return True
    if any(part.op == "numeral" for node in (first, second) for part in parts(node)):
        return False
    left, right = rational(first), rational(second)
    if left is not None and right is not None:
        return left == right
    compared = 0
    for point in points(symbols(first) | symbols(second)):
        try:
            values = value(first, point), value(second, point)
        except Unreadable:
            continue
        if not close(*values):
            return False
        compared += 1
    return compared > 0


def places_agree(decimal: Node, exact: Node, fewest: int, cut: bool = False) -> bool:
    """Whether a decimal is the exact value rounded to the places that it has, with at least so many significant digits.

    From `fewest` + 2 digits on, or where `cut` says so, it may be cut off instead of rounded.
    """
    m = _arithmetic()
    written = rational(decimal)
    if written is None or written == 0 or decimal.places == math.inf:
        return False
    try:
        difference = value(exact) - value(decimal)
    except Unreadable:
        return False
    places = int(decimal.places)
    digits = len(str(abs(written.numerator) * 10**places // written.denominator))
    if digits < fewest or m.im(difference):
        return False
    unit = m.mpf(10) ** -places
    if digits >= 16:  # a machine number, of which the last digit may be off
        return bool(abs(difference) <= 10 * unit)
    missing = difference if written > 0 else -difference
    return bool(abs(difference) <= unit / 2 or ((cut or digits >= fewest + 2) and 0 <= missing < unit))
