"""Expressions that math-verify has parsed: how large they may become, and their exact values."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from lesion.tasks.judges.numerals import EXPONENT, Quantity

BITS = 1e6
"""Largest number, in bits, that a comparison may have to compute; `9**9**9` has 10⁹."""

EXACT_BITS = 1e4
"""Largest number, in bits, that is computed as a fraction here; fractions that are much larger take seconds."""


def computed(expression: Any) -> Quantity | None:
    """The exact value of arithmetic on numbers; None where a symbol or an irrational number is in it.

    A sum of percentages has the factor 1/100, as a single percentage has.
    """
    value = _rational(expression) if bits(expression) <= EXACT_BITS else None
    if value is None:
        return None
    factor = Fraction(1, 100) if _is_percentage(expression) else None
    return Quantity(value if factor is None else value / factor, factor, _places(value))


def exact_decimals(expression: Any) -> Any:
    """The expression with the decimals inside its sums, products and powers as fractions: 0.1 x + 0.2 x is 0.3 x.

    A decimal that stands alone, also in a pair or a set, is left as it is.
    """
    import sympy  # type: ignore[import-untyped]

    if not isinstance(expression, sympy.Basic):
        return expression
    compound = (part for part in sympy.preorder_traversal(expression) if isinstance(part, sympy.Expr) and part.args)
    decimals = {decimal: _rational(decimal) for part in compound for decimal in part.atoms(sympy.Float)}
    exact = {decimal: sympy.Rational(value) for decimal, value in decimals.items() if value is not None}
    try:
        changed = expression.xreplace(exact)
    except (AttributeError, TypeError, ValueError):  # some relations of latex2sympy cannot be built anew
        return expression
    alike = isinstance(changed, sympy.Expr) if isinstance(expression, sympy.Expr) else type(changed) is type(expression)
    return changed if alike else expression  # an equation that holds would be no more than "true"


def bits(expression: Any) -> float:
    """An upper bound of log2 of the largest number that evaluating a sympy expression meets, taken before that."""
    import sympy

    inside = expression.flat() if isinstance(expression, sympy.MatrixBase) else getattr(expression, "args", ())
    arguments = [bits(argument) for argument in inside]
    if max(arguments, default=0.0) > BITS:
        return math.inf
    if isinstance(expression, sympy.Number):
        return _log2(expression)
    if isinstance(expression, sympy.Pow):
        base, exponent = arguments
        return max(base, 1.0) * _power_of_two(exponent)
    if isinstance(expression, sympy.exp):
        return 1.5 * _power_of_two(arguments[0])
    if isinstance(expression, (sympy.factorial, sympy.factorial2, sympy.binomial, sympy.gamma)):
        return max(arguments[0], 1.0) * _power_of_two(arguments[0])
    if isinstance(expression, sympy.Mul):
        return sum(arguments)
    if isinstance(expression, sympy.Add):
        return max(arguments) + math.log2(len(arguments) + 1)
    return max(arguments, default=1.0)


def _rational(expression: Any) -> Fraction | None:
    """The value of sums, products and whole powers of rational numbers; a decimal counts as its digits say."""
    import sympy

    if isinstance(expression, sympy.Rational):
        return Fraction(int(expression.p), int(expression.q))
    if isinstance(expression, sympy.Float):  # its text has every digit as typed; the binary number behind it has not
        return Fraction(str(expression)) if expression.is_finite else None
    if not isinstance(expression, (sympy.Add, sympy.Mul, sympy.Pow, sympy.UnevaluatedExpr)):
        return None
    values = [_rational(argument) for argument in expression.args]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if isinstance(expression, sympy.Pow):
        base, exponent = known
        possible = exponent.denominator == 1 and (base != 0 or exponent >= 0)
        return Fraction(base ** int(exponent)) if possible else None
    if isinstance(expression, sympy.Mul):
        return math.prod(known, start=Fraction(1))
    return sum(known, start=Fraction(0))


def _is_percentage(expression: Any) -> bool:
    import sympy

    if isinstance(expression, sympy.Add):
        return all(_is_percentage(term) for term in expression.args)
    return isinstance(expression, sympy.Mul) and any(
        isinstance(part, sympy.UnevaluatedExpr) and part.args[0] == sympy.Rational(1, 100) for part in expression.args
    )


def _places(value: Fraction) -> float:
    """Decimals of a number; infinite where they do not end."""
    rest, twos, fives = value.denominator, 0, 0
    if rest.bit_length() > 4 * EXPONENT:  # more decimals than the smallest power of ten that is read has
        return math.inf
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    return float(max(twos, fives)) if rest == 1 else math.inf


def _log2(number: Any) -> float:
    size = abs(number)
    if size.is_Rational:  # exact, where a float would overflow
        return math.log2(max(int(size.p), int(size.q)))
    return max(0.0, math.log2(size)) if size.is_finite and size > 0 else 0.0


def _power_of_two(bits: float) -> float:
    return 2.0**bits if bits < 60 else math.inf
