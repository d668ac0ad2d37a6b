"""Values: whether what two texts say is the same, each read whole; texts that cannot be read are compared as text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from string import ascii_lowercase

from lesion.tasks.judges.expressions import (
    Node,
    Unreadable,
    close,
    number,
    parts,
    places_agree,
    points,
    rational,
    same_expression,
    symbols,
    value,
)
from lesion.tasks.judges.meanings import TURNED, Gap, Many, Ratio, Region, Relation, Scalar, Value, Word, as_region
from lesion.tasks.judges.notation import EXPONENT, WORDS, plain
from lesion.tasks.judges.regions import same_region, solved, together
from lesion.tasks.judges.units import size

EXACT, ROUNDED = 3, 4
"""Significant digits from which on a decimal stands for an irrational value: in the gold answer, and in an answer."""

PLACES = 6
"""Decimals from which on a decimal may be a rounded value: where both have as many, half a unit in the last place of
the coarser may lie between them."""

_SYNONYMS = {
    re.sub(r"\b(?:the|a|an) ", "", text): f"<{meaning}>"
    for meaning, texts in WORDS["synonyms"].items()
    for text in texts
}


def as_text(text: str) -> str:
    """A text as it is compared with another that cannot be read: without typesetting, articles, case and final stop.

    Braces stay around more than one character, and primes stay: `a_{n+1}` is not `a_n+1`, and `x'` not `x`.
    """
    words = plain(text)
    words = re.sub(r"^(?:\{\s*\}|\\\{\s*\\\}|\\(?:emptyset|varnothing))$", "∅", words)
    words = re.sub(r"\(?\s*\\?\b[pb]?mod(?:ulo)?\s*\{?\s*(\w+)\s*\}?\s*\)?", r" mod \1", words)
    words = re.sub(r"^[a-z]\s*(?:≡|\\equiv)\s*", "", words)
    words = re.sub(r"\\([A-Za-z]+)\s*", r"\1 ", words)
    words = re.sub(r"^\s*\{([^{}]*)\}$|\{\s*(\w?)\s*\}", lambda braced: braced[1] or braced[2], words)
    words = re.sub(r"[$*`\"]|(?<!\w)_|_(?![\w{])|\\(?=\S)", "", words)
    words = re.sub(r"(?<!(?<![A-Za-z])[A-Za-z])(?<![)\]}'])'|'(?=[A-Za-z]{2})", "", words).casefold()
    words = re.sub(r"\bthe\b(?=\s+\w)|\b(?:a|an)\b(?=\s+\w{2})", " ", words)
    words = " ".join(re.sub(r"(?<=[^\w\s])\s+|\s+(?=[^\w\s])", "", words).split()).rstrip(".,;: ")
    words = re.sub(r"(?<=[a-z]{2})!+$", "", words)
    option = re.fullmatch(r"\(?([a-j])\)|\(([a-j])\)?", words)
    words = (option[1] or option[2]) if option else words
    return _SYNONYMS.get(re.sub(r"\b(?:the|a|an) ", "", words)) or _date(words) or words


_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?" for month in _MONTHS)


def _date(words: str) -> str | None:
    day, year = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?", r"(?:,?\s*(?P<year>\d{4}))?"
    for form in (rf"(?P<month>{_MONTH})\.? ?{day}{year}", rf"{day} (?:of )?(?P<month>{_MONTH})\.?{year}"):
        match = re.fullmatch(form, words)
        if match:
            month = [each[:3] for each in _MONTHS].index(match["month"][:3]) + 1
            return f"{match['year'] or '-'}-{month:02}-{int(match['day']):02}"
    match = re.fullmatch(r"(\d{4})-(\d{2})-(\d{2})", words)
    return words if match else None


def same_value(answer: Value, gold: Value) -> bool:
    """Whether two values are the same, as a mathematician would say."""
    answer, gold = _simplest(answer), _simplest(gold)
    if isinstance(answer, Word) or isinstance(gold, Word):
        return isinstance(answer, Word) and isinstance(gold, Word) and as_text(answer.text) == as_text(gold.text)
    if isinstance(answer, Gap) or isinstance(gold, Gap):
        return isinstance(answer, Gap) and isinstance(gold, Gap)
    if isinstance(answer, Ratio) or isinstance(gold, Ratio):
        return _same_ratio(answer, gold)
    regions = _regions(answer, gold)
    if regions is not None:
        return any(same_region(*pair) for pair in regions)
    if isinstance(answer, Relation) or isinstance(gold, Relation):
        return _same_relation(answer, gold)
    if isinstance(answer, Many) or isinstance(gold, Many):
        return _same_many(answer, gold)
    if isinstance(answer, Scalar) and isinstance(gold, Scalar):
        if answer.node.op == "cut" or gold.node.op == "cut":
            return _same_cut(answer.node, gold.node)
        return same_scalar(answer, gold)
    return False


def roughly_same(first: Value, second: Value) -> bool:
    """Whether two values without variables are the same, or one is the other rounded to two digits or more."""
    sides = [each.sides[-1] if isinstance(each, Relation) else each for each in (first, second)]
    scalars = [each for each in sides if isinstance(each, Scalar) and not symbols(each.node)]
    if len(scalars) < 2:
        return False
    one, other = (_times(each, Fraction(1)) for each in scalars)
    return same_value(*scalars) or places_agree(other, one, 2, cut=True) or places_agree(one, other, 2, cut=True)


def _simplest(value: Value) -> Value:
    """One value instead of a list of the same, of a set of one, or of an equation of numbers such as `3 + 4 = 7`."""
    if isinstance(value, Many) and value.kind in ("list", "set", "bracket"):
        items: list[Value] = []
        for item in map(_simplest, value.items):
            if value.kind == "bracket" or isinstance(item, Gap) or not any(_alike(item, each) for each in items):
                items.append(item)
        value = Many(value.kind, tuple(items))
        return items[0] if len(items) == 1 and value.kind != "bracket" else value
    if isinstance(value, Relation) and set(value.signs) <= {"=", "≈"}:
        sides = [side for side in value.sides if side is not None]
        closed = [side for side in sides if isinstance(side, Scalar) and not symbols(side.node)]
        if len(closed) == len(sides) and len(closed) == len(value.sides):
            exact = value.signs.find("≈")  # of `√2 ≈ 1.414` the exact one
            if exact >= 0:
                closed = closed[: exact + 1]
            single = [side for side in closed if _is_number(side.node)]
            return single[-1] if single and exact < 0 else closed[-1]
        if isinstance(sides[0], Scalar) and len(sides) > 2 and closed and len(closed) == len(sides) - 1:
            return Relation((sides[0], _simplest(Relation(tuple(sides[1:]), value.signs[1:]))), "=")
    return value


def _alike(first: Value, second: Value) -> bool:
    if not isinstance(first, Scalar) or not isinstance(second, Scalar):
        return first == second
    units_differ = first.unit != second.unit and bool(first.unit) and bool(second.unit)
    return first == second or (not units_differ and same_scalar(first, second))


def _is_number(node: Node) -> bool:
    if node.op in ("negative", "group"):
        return _is_number(node.args[0])
    return node.op == "number" or (node.op == "/" and all(each.op == "number" for each in node.args))


def same_scalar(answer: Scalar, gold: Scalar) -> bool:
    """Whether two numbers or expressions are the same, with their units and percent signs.

    Units are compared where both are known: `5 km` is `5000 m` and not `5 m`. Where one of two has no unit, or none
    that is known, the numbers decide. A percent sign or "million" at one of the two may be the unit of the question.
    """
    own, other = size(answer.unit), size(gold.unit)
    kinds = {kind for each in (own, other) if each for kind, _ in each[0]}
    if kinds == {"angle", "radian"}:
        degrees, radians = (answer, gold) if own and own[0][0][0] == "angle" else (gold, answer)
        return same_scalar(replace(radians, unit=""), degrees) if _has_pi(replace(radians, unit="")) else False
    if own and other and not ("angle" in kinds and kinds & {"celsius", "fahrenheit"}):
        if own[0] != other[0]:
            return False
        if own[1] != other[1]:
            return _same_node(_times(answer, own[1]), _times(gold, other[1]))
    elif answer.unit == "degree" and _has_pi(gold):
        return same_scalar(gold, answer)
    elif gold.unit == "degree" and _has_pi(answer):
        half_turn = Node("/", (Node("constant", ("pi",)), number(180)))
        return _same_node(answer.node, Node("*", (gold.node, half_turn)))
    left, right = rational(_ungrouped(answer.node)), rational(_ungrouped(gold.node))
    if left is not None and right is not None:
        places = min(_places(answer.node, left), _places(gold.node, right))
        slack = Fraction(1, 2 * 10 ** int(min(places, 2 * EXPONENT))) if PLACES <= places < math.inf else Fraction(0)
        amounts = [(left * (answer.factor or 1), right * (gold.factor or 1))]
        if (answer.factor is None) != (gold.factor is None):
            amounts.append((left, right))
        return any(abs(one - other) <= slack for one, other in amounts)
    pairs = [(_times(answer, Fraction(1)), _times(gold, Fraction(1)))]
    if (answer.factor is None) != (gold.factor is None):
        pairs.append((answer.node, gold.node))
    return any(_same_node(*pair) for pair in pairs)


def _same_cut(answer: Node, gold: Node) -> bool:
    """Whether a decimal that goes on, such as `0.333...`, is the beginning of the other value."""
    for decimal, other in ((answer, gold), (gold, answer)):
        if decimal.op == "cut":
            exact = other.args[0] if other.op == "cut" else other
            return answer == gold or places_agree(decimal.args[0], exact, EXACT, cut=True)
    return False


def _has_pi(scalar: Scalar) -> bool:
    return not scalar.unit and any(part == Node("constant", ("pi",)) for part in parts(scalar.node))


def _times(scalar: Scalar, unit: Fraction) -> Node:
    factor = (scalar.factor or Fraction(1)) * unit
    return _ungrouped(scalar.node) if factor == 1 else Node("*", (_ungrouped(scalar.node), number(factor)))


def _places(node: Node, exact: Fraction) -> float:
    """Decimals of a number as written, or of the exact value of an expression; infinite where they do not end."""
    while node.op in ("negative", "group"):
        node = node.args[0]
    if node.op == "number" and node.places != math.inf:
        return node.places
    rest, twos, fives = exact.denominator, 0, 0
    if rest.bit_length() > 4000:
        return math.inf
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    return float(max(twos, fives)) if rest == 1 else math.inf


def _ungrouped(node: Node) -> Node:
    args = tuple(_ungrouped(each) if isinstance(each, Node) else each for each in node.args)
    return args[0] if node.op == "group" else Node(node.op, args, node.places)


def _same_node(answer: Node, gold: Node) -> bool:
    answer, gold = _ungrouped(answer), _ungrouped(gold)
    if same_expression(answer, gold):
        return True
    if symbols(answer) or symbols(gold) or (rational(answer) is None) == (rational(gold) is None):
        return False
    for decimal, exact, fewest in ((answer, gold, ROUNDED), (gold, answer, EXACT)):
        sign, inner = (1, decimal) if decimal.op != "negative" else (-1, decimal.args[0])
        if inner.op == "number" and inner.places not in (0, math.inf):
            signed = exact if sign == 1 else Node("negative", (exact,))
            return places_agree(inner, signed, fewest)
    return False


def _regions(answer: Value, gold: Value) -> list[tuple[Region, Region]] | None:
    """The pairs of regions to compare, where one of the two is one; None where both are something else."""
    left, right = (_as_regions(each) for each in (answer, gold))
    if not left or not right:
        sure = any(isinstance(each, Region) for each in (answer, gold))
        return [] if sure else None
    if not any(_is_region(each) for each in (answer, gold)):
        return None
    return [(one, other) for one in left for other in right]


def _is_region(value: Value) -> bool:
    return isinstance(value, Region | Relation) or (isinstance(value, Many) and value.kind in ("list", "conjunction"))


def _as_regions(value: Value) -> list[Region]:
    if isinstance(value, Relation):
        region = solved(value)
        return [region] if region else []
    if isinstance(value, Many) and value.kind in ("list", "conjunction", "set"):
        if all(isinstance(each, Region) or as_region(each) for each in value.items):
            pieces = [region for each in value.items if (region := as_region(each))]
            return [Region(tuple(interval for piece in pieces for interval in piece.intervals))]
        if all(isinstance(each, Relation) for each in value.items):
            region = together(value, False) if value.kind == "conjunction" else None
            region = region if region and region.intervals else together(value, True)
            return [region] if region else []
        return []
    region = as_region(value)
    return [region] if region else []


def _same_relation(answer: Value, gold: Value) -> bool:
    """An equation against an equation, or against the value of its right side."""
    if isinstance(answer, Relation) and isinstance(gold, Relation):
        if set(answer.signs) | set(gold.signs) - {"≈"} == {"="} and len(answer.sides) == len(gold.sides) == 2:
            return _same_equation(answer, gold)
        return _same_sides(answer, gold)
    relation, other = (answer, gold) if isinstance(answer, Relation) else (gold, answer)
    assert isinstance(relation, Relation)
    if isinstance(other, Many):
        return _same_many(answer, gold)
    if not set(relation.signs) <= {"=", "≈", "∈"} or relation.sides[-1] is None:
        return False
    first = relation.sides[0]
    if isinstance(first, Scalar) and _is_label(first.node):
        last = relation.sides[1] if "≈" in relation.signs[1:] else relation.sides[-1]
        # `x = 2x + 1` says nothing about x; `3 = x` is `x = 3`
        return last is not None and _ordered(last, other, isinstance(answer, Relation))
    last = relation.sides[-1]
    if isinstance(last, Scalar) and _is_label(last.node) and first is not None:
        return _ordered(first, other, isinstance(answer, Relation))
    return False


def _ordered(side: Value, other: Value, answers: bool) -> bool:
    return same_value(side, other) if answers else same_value(other, side)


def _is_label(node: Node) -> bool:
    """Whether a side names what the other side is: a variable, f(x), or a product of letters such as AB."""
    if node.op == "group":
        return _is_label(node.args[0])
    if node.op in ("*", "/"):
        return all(_is_label(each) for each in node.args)
    return node.op == "symbol" or (
        node.op == "^" and _is_label(node.args[0]) and node.args[1] in (Node("negative", (number(1, 0.0),)), number(-1))
    )


def _same_equation(answer: Relation, gold: Relation) -> bool:
    """Whether two equations have the same solutions, as far as one is a multiple of the other."""
    sides = [side for each in (answer, gold) for side in each.sides]
    if not all(isinstance(side, Scalar) for side in sides):
        labels = [each.sides[0] for each in (answer, gold)]
        return _same_sides(answer, gold) if labels[0] == labels[1] else False
    left, right = (
        Node("-", tuple(_times(side, Fraction(1)) for side in each.sides if isinstance(side, Scalar)))
        for each in (answer, gold)
    )
    if symbols(left) != symbols(right):
        return False
    ratios = []
    for point in points(symbols(left)):
        try:
            ratios.append(value(left, point) / value(right, point))
        except (Unreadable, ZeroDivisionError):
            continue
    multiple = len(ratios) > 1 and all(close(ratio, ratios[0]) for ratio in ratios[1:]) and not close(ratios[0], 0)
    return multiple or _same_sides(answer, gold)


def _same_sides(answer: Relation, gold: Relation) -> bool:
    if len(answer.sides) != len(gold.sides):
        return False

    def alike(sides: Sequence[Value | None], signs: str) -> bool:
        return signs == gold.signs and all(
            (one is None and other is None) or (one is not None and other is not None and same_value(one, other))
            for one, other in zip(sides, gold.sides, strict=True)
        )

    turned = "".join(TURNED.get(sign, sign) for sign in reversed(answer.signs))
    return alike(answer.sides, answer.signs) or alike(answer.sides[::-1], turned)


def _labelled(value: Value) -> list[tuple[str, Value]] | None:
    """The names and values of `x = 3, y = 4` and `(x, y) = (3, 4)`; None for anything else."""
    if isinstance(value, Relation) and value.signs == "=":
        left, right = value.sides
        if isinstance(left, Many) and isinstance(right, Many) and len(left.items) == len(right.items):
            names = [each.node.args[0] for each in left.items if isinstance(each, Scalar) and each.node.op == "symbol"]
            return list(zip(names, right.items, strict=True)) if len(names) == len(right.items) else None
    if isinstance(value, Many) and value.kind in ("list", "conjunction", "set"):
        pairs = []
        for each in value.items:
            name, own = each.sides[:2] if isinstance(each, Relation) and each.signs in ("=", "∈") else (None, None)
            if not isinstance(name, Scalar) or own is None or not _is_label(name.node):
                return None
            pairs.append((re.sub(r"\W", "", str(name.node.args)), own))
        return pairs
    return None


def _same_many(answer: Value, gold: Value) -> bool:
    named = [_labelled(each) for each in (answer, gold)]
    if named[0] and named[1]:
        first, second = dict(named[0]), dict(named[1])
        if len(first) == len(named[0]) and len(second) == len(named[1]):
            return first.keys() == second.keys() and all(same_value(first[name], second[name]) for name in first)
    left, right = (_bare(each, pairs) for each, pairs in zip((answer, gold), named, strict=True))
    if not isinstance(left, Many) or not isinstance(right, Many):
        return same_value(left, right) if (left, right) != (answer, gold) else _entry_alone(left, right)
    return _same_items(left, right)


def _entry_alone(left: Value, right: Value) -> bool:
    """Whether a bracket of one value is that value."""
    many, other = (left, right) if isinstance(left, Many) else (right, left)
    if not isinstance(many, Many) or len(many.items) != 1 or many.kind not in ("bracket", "set", "list"):
        return False
    return same_value(many.items[0], other)


def _bare(value: Value, pairs: list[tuple[str, Value]] | None) -> Value:
    """A list without the names of its entries: of the same variable a list, of several a tuple in their order."""
    if pairs:
        letters = {name.split("_")[0] for name, _ in pairs}
        if "".join(sorted(letters)) in ascii_lowercase and len(letters) == len(pairs):
            pairs = sorted(pairs, key=lambda pair: pair[0])  # y = 3, x = 4
        items: list[Value] = []
        for _, each in pairs:
            if isinstance(each, Many) and each.kind in ("list", "set") and len(letters) == 1:
                items += each.items
            else:
                items.append(each)
        return _simplest(Many("list" if len(letters) == 1 else "named", tuple(items)))
    if isinstance(value, Relation) and value.signs in ("=", "∈") and isinstance(value.sides[0], Scalar):
        return value if value.sides[1] is None else _simplest(value.sides[1])
    return value


def _same_items(answer: Many, gold: Many) -> bool:
    kinds = {answer.kind, gold.kind}
    if "matrix" in kinds:
        return _same_matrix(answer, gold)
    if len(answer.items) != len(gold.items):
        return False
    in_order = all(same_value(one, other) for one, other in zip(answer.items, gold.items, strict=True))
    unordered = kinds <= {"list", "set", "conjunction"} or (kinds == {"bracket", "list"} and gold.kind == "list")
    if unordered and not any(isinstance(each, Gap) for each in gold.items):
        return in_order or _same_set(list(answer.items), list(gold.items))
    if "set" in kinds and kinds != {"set"} and not (kinds <= {"set", "list"}):
        return False
    if kinds == {"tuple", "bracket"} or ("bracket" in kinds and kinds != {"bracket"} and len(gold.items) == 2):
        return False
    return in_order


def _same_set(answer: list[Value], gold: list[Value]) -> bool:
    rest = list(gold)
    for item in answer:
        match = next((place for place, other in enumerate(rest) if same_value(item, other)), None)
        if match is None:
            return False
        del rest[match]
    return True


def _same_matrix(answer: Many, gold: Many) -> bool:
    left, right = _rows(answer), _rows(gold)
    if left is None or right is None or list(map(len, left)) != list(map(len, right)):
        return False
    return all(map(same_value, chain(*left), chain(*right)))


def _rows(value: Many) -> list[tuple[Value, ...]] | None:
    """The rows of a matrix, also of `[[1, 2], [3, 4]]`; a tuple or vector is one column."""
    if value.kind in ("tuple", "vector", "bracket", "matrix", "list"):
        if all(isinstance(each, Many) and each.kind in ("row", "tuple", "bracket") for each in value.items):
            return [each.items for each in value.items if isinstance(each, Many)]
        return [(each,) for each in value.items] if value.kind != "list" else None
    return None


def _same_ratio(answer: Value, gold: Value) -> bool:
    """Ratios in proportion, a ratio of two against a fraction; times of day by the hour where both say which half."""
    if isinstance(answer, Ratio) and isinstance(gold, Ratio):
        clock = [re.sub(r"^0(?=\d)", "", each.written) for each in (answer, gold)]
        if answer.half or gold.half or re.fullmatch(r"\d{1,2}:[0-5]\d", clock[1]):
            return _hours(answer, gold) == _hours(gold, answer)
        if len(answer.terms) != len(gold.terms):
            return False
        return all(
            same_expression(Node("*", (answer.terms[0], other)), Node("*", (gold.terms[0], one)))
            for one, other in zip(answer.terms[1:], gold.terms[1:], strict=True)
        )
    ratio, other = (answer, gold) if isinstance(answer, Ratio) else (gold, answer)
    assert isinstance(ratio, Ratio)
    if len(ratio.terms) != 2 or re.fullmatch(r"\d{1,2}:\d\d", ratio.written):
        return False
    if not isinstance(other, Scalar) or other.unit:
        return False
    fraction = _ungrouped(other.node)
    return fraction.op == "/" and same_expression(Node("/", ratio.terms), fraction)


def _hours(time: Ratio, beside: Ratio) -> tuple[object, ...]:
    exact = [rational(term) for term in time.terms]
    if time.half and beside.half == "" and exact[0] is not None and (rational(beside.terms[0]) or 0) <= 12:
        return tuple(exact)
    if time.half and exact[0] is not None:
        exact[0] = exact[0] % 12 + (12 if time.half == "p" else 0)
    return tuple(exact)
