"""Grammar: what a piece of text says, read whole: numbers, formulas, lists, tuples, sets, intervals, relations."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from lesion.tasks.judges.expressions import Node, Unreadable, number, parts
from lesion.tasks.judges.meanings import (
    CURRENCIES,
    REALS,
    RELATIONS,
    Gap,
    Many,
    Ratio,
    Region,
    Relation,
    Scalar,
    Value,
    Word,
    united,
    without,
)
from lesion.tasks.judges.notation import LONGEST, WORDS, plain, tokens
from lesion.tasks.judges.terms import SHORT, Terms, only_node
from lesion.tasks.judges.units import SCALES, is_unit, size


@lru_cache(maxsize=4096)
def readings(text: str, prose: bool = False) -> tuple[tuple[Value, str], ...]:
    """The ways in which the grammar reads the whole of a text, each with the part of it that is the value.

    Of prose, words before the value and behind it are left out ("she makes", "a day", what stands in brackets). None:
    the text is no mathematics.
    """
    if len(text) > LONGEST:
        return ()
    whole = plain(text)
    numeral = _NUMERAL.fullmatch(whole)
    if numeral and all(int(digit, 36) < int(numeral[2]) for digit in numeral[1]) and 10 < int(numeral[2]) <= 36:
        return ((Scalar(Node("numeral", (numeral[1].lower().lstrip("0"), int(numeral[2])))), text),)
    if re.fullmatch(r"-?\d{1,3}(?:\.\d{3})+,\d+", whole):  # 1.200,50: no decimal commas
        return ()
    results: list[tuple[Value, str]] = []
    if re.search(r"\d[mgsL]$" if prose else r"\dL$", whole):  # 5m in prose
        results += readings(f"{whole[:-1]} {whole[-1]}", True)
    for grouped in (True, False):
        if not grouped and not re.search(r"[(\[{⦃][^)\]}⦄]*\d,\d{3}", whole):
            continue
        try:
            parser = Parser(tokens(whole, grouped), prose)
            result = parser.whole()
        except (Unreadable, RecursionError):
            continue
        results.append((result, whole[parser.begin : parser.end].strip()))
    return tuple(results)


_NUMERAL = re.compile(r"((?=.*[0-9])[0-9a-z]*[a-z][0-9a-z]*)\s*_\s*\{?\s*\(?(\d{2})\)?\s*\}?", re.IGNORECASE)
"""A numeral with letters among its digits, `1AF_{16}`; others are read by the parser."""
_DENYING = frozenset(WORDS["formula"]["denying"])
_PARTS_OF = frozenset(WORDS["formula"]["parts_of"])
_BOUNDS = frozenset(WORDS["formula"]["bounds"])


class Parser(Terms):
    """Reads tokens from left to right; every method takes what it reads, or raises `Unreadable`."""

    # The answer as a whole

    def whole(self) -> Value:
        """All tokens as one value."""
        if self.prose:
            self._lead()
        self.begin = self.peek().place
        result = self.several(frozenset())
        if rest := self.peek():
            raise Unreadable(rest.text)
        return result

    def _lead(self) -> None:
        """Words before the value: "she makes", "approximately", "x is"."""
        while (token := self.peek()) and (
            (token.kind == "word" and not is_unit(token.text))
            or token.text in ("≈", ":", "→")
            or (token.text in (".", ",") and self.at)
            or (token.text == "a" and self.peek(1).kind in ("word", "number"))
            or (token.text == "I" and token.spaced)
        ):
            short = token.kind == "word" and len(token.text) <= 3 and token.text.islower()
            if short and self.follows("+", "-", "*", "/", "^", "=", "<", ">", ahead=1) and token.text not in SHORT:
                break  # ab + 2
            if token.text in ("of", "by") and self.at and self.tokens[self.at - 1].text.lower() in _PARTS_OF:
                raise Unreadable("a part of a number")
            if token.text.lower() in _DENYING and not self.follows(*_BOUNDS, ahead=1):
                raise Unreadable(token.text)
            self.at += 1
        if self.at and self.tokens[self.at - 1].kind == "word":
            self.skip("=")  # "the area = 5"

    def several(self, closing: frozenset[str]) -> Value:
        """Values apart by commas, semicolons, "and", "or", up to a closing bracket or the end."""
        items = [self.statement()]
        kinds = set()
        while (token := self.peek()) and token.text not in closing:
            if token.kind == "number" and isinstance(items[-1], Scalar) and size(items[-1].unit):  # 5 feet 4 inches
                items.append(self.element())
                kinds.add("beside")
                continue
            if not self.skip("and", "or", "&", ",", ";"):
                break
            if token.text in (",", ";"):
                self.skip("and", "or", "&")
            kinds.add("and" if token.text in ("and", "&") else token.text)
            if not self.peek() or self.follows(*closing):
                if token.text == ",":
                    break
                raise Unreadable("nothing behind a comma")
            items.append(self.statement())
        if len(items) == 1:
            return items[0]
        return _joined(items, kinds)

    # Sides and relations

    def statement(self) -> Value:
        """Sides with relations between them, or one side alone."""
        related = self.follows(*"<>≤≥≠≈=") and not (self.follows("<") and self.tokens[-1].text == ">")
        sides: list[Value | None] = [None if related and not self.skip("≈", "=") else self.side()]
        signs = ""
        while (token := self.peek()) and token.kind == "sign" and token.text in RELATIONS:
            self.at += 1
            signs += token.text
            if token.text in "≈=":
                self.skip("=", "≈")
            sides.append(self.side())
            if self.follows(",") and signs.endswith("=") and isinstance(sides[0], Scalar) and self._value_follows():
                items = [sides[-1]]
                while self.follows(",") and self._value_follows():  # x = 2, 3
                    self.at += 1
                    items.append(self.side())
                sides[-1] = Many("list", tuple(each for each in items if each is not None))
        if not signs:
            only = sides[0]
            assert only is not None
            return only
        return Relation(tuple(sides), signs)

    def _value_follows(self) -> bool:
        """Whether a number alone, and no relation, follows a comma."""
        place = 2 if self.follows("-", "±", ahead=1) else 1
        return self.peek(place).kind == "number" and self.follows("", ",", "and", "or", ahead=place + 1)

    def side(self) -> Value:
        """An expression, or sets and intervals joined by ∪ or without some numbers."""
        first = self.element()
        while self.follows("∪", "∖", "∩", "U") and not isinstance(first, Word):
            sign = self.next().text
            if sign == "∩":
                raise Unreadable(sign)
            second = self.element()
            first = united(first, second) if sign in "∪U" else without(first, second)
        return first

    def element(self) -> Value:
        """An expression with its sign of currency and its unit, a ratio, or a bracket of several values."""
        token = self.peek()
        if not token:
            raise Unreadable("nothing")
        if token.text == "..." and not self.follows("+", "-", "*", ahead=1):
            self.at += 1
            return Gap()
        if token.text in ("∅", "ℝ", "ℤ", "ℕ", "ℚ", "ℂ"):
            self.at += 1
            return REALS if token.text == "ℝ" else Word({"∅": "no solution"}.get(token.text, token.text))
        negative = token.text == "-" and self.follows(*CURRENCIES, ahead=1)
        if self.follows("-", "+") and self.follows(*CURRENCIES, ahead=1):
            self.at += 1
        currency = ""
        if self.follows(*CURRENCIES) and self.peek(1):
            currency = self.next().text
        elif self.follows("USD", "EUR", "GBP", "US"):
            currency = {"EUR": "€", "GBP": "£"}.get(self.next().text, "$")
            self.skip("$")
        ahead = [each.text for each in self.tokens[self.at :]]
        stop = next((place for place, text in enumerate(ahead) if text in RELATIONS or text == ","), len(ahead))
        self.percents, percents = ahead[:stop].count("%") > 1, self.percents
        self.currency = ""
        node = self.expression()
        several, self.percents = self.percents, percents
        self.end = self.tokens[self.at - 1].close
        if isinstance(node, Many | Region | Word):
            return node
        currency = currency or self.currency
        if negative:
            node = Node("negative", (node,))
        if (self.follows(":") or (self.prose and self.follows("to"))) and not currency and self.peek(1):
            return self._ratio(node)
        unit, factor = self._unit(node)
        factor = Fraction(1, 100) if several else factor
        self._remark(bool(unit or factor))
        return Scalar(node, currency or unit, factor)

    def _ratio(self, first: Node) -> Value:
        begin = self.at - 1
        terms = [first]
        while self.skip(":", "to"):
            terms.append(only_node(self.power()))
        self.end = self.tokens[self.at - 1].close
        written = "".join(token.source for token in self.tokens[begin : self.at])
        half = ""
        rest = "".join(token.text for token in self.tokens[self.at : self.at + 4]).lower()
        match = re.match(r"([ap])\.?m\b\.?", rest)
        if match:
            half = match[1]
            used = 0
            while used < len(match[0]):
                used += len(self.next().text)
        elif self.prose:
            self._words()
        return Ratio(tuple(terms), written, half)

    def _unit(self, node: Node) -> tuple[str, Fraction | None]:
        """What stands behind a value: a percent sign, "million", a currency, a unit, in prose any words."""
        factor: Fraction | None = None
        unit: list[str] = []
        start = self.at
        counted = any(part.op in ("number", "constant") for part in parts(node))
        while token := self.peek():
            scale = SCALES.get(token.text.lower().removesuffix("s")) or SCALES.get(token.text)
            letter = self.prose and (token.text in ("k", "M", "B") or (token.text == "K" and not token.spaced))
            if token.text == "%" and factor is None:
                factor = Fraction(1, 100)
            elif (scale and (token.kind == "word" or letter)) and not unit:
                factor = (factor or 1) * scale
            elif token.text in CURRENCIES:
                unit.append(token.text)
            elif token.text == "°":
                unit.append("degree")
            elif self.unit_word(token, bool(unit)) and (counted or is_unit(token.text)):
                if self.follows("(", ahead=1) and not self.peek(1).spaced:
                    raise Unreadable("a function")
                unit.append(token.text)
            elif unit and token.text == "^" and self.peek(1):
                self.at += 1
                braced, negative = self.skip("{"), self.skip("-")
                if self.peek().kind != "number":
                    raise Unreadable("^")
                unit.append(f"^{'-' * negative}{self.peek().text}")
                self.at += braced
            elif unit and token.text in ("/", "*", ".") and self.peek(1).kind in ("word", "symbol"):
                unit.append(token.text)
            elif token.text in ("(", "[") and not unit and self.unit_in_brackets():
                close = self.tokens[self.at + 2 :]
                unit.append(self.tokens[self.at + 1].text)
                self.at += 2 + next(place for place, each in enumerate(close) if each.text in (")", "]"))
            elif not (token.text in (".", "!", "*", "`", '"') and self.prose and self.at > start and not self.peek(1)):
                break
            self.at += 1
        return " ".join(unit), factor

    def _words(self) -> None:
        while (token := self.peek()) and token.kind == "word" and token.text not in ("and", "or"):
            self.at += 1

    def _remark(self, dressed: bool) -> None:
        """A remark in brackets behind a value with its unit, or behind a number after a space."""
        if not self.follows("(", "[") or not (dressed or (self.prose and self.peek().spaced)):
            return
        depth = 0
        for place in range(self.at, len(self.tokens)):
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(self.tokens[place].text, 0)
            if depth == 0:
                self.at = place + 1
                break
        else:
            return
        if self.prose:
            self._words()


def _joined(items: list[Value], kinds: set[str]) -> Value:
    """Several values as one: a list, relations that hold together, or an amount in two units such as `$3 and 50 cents`.

    Amounts of different things, such as `12 apples and 3 pears`, are no answer; it raises `Unreadable` there.
    """
    scalars = [each for each in items if isinstance(each, Scalar)]
    units = {each.unit for each in scalars if each.unit}
    if "beside" in kinds and not len(scalars) == len(units) == len(items):
        raise Unreadable("amounts side by side")
    if len(scalars) == len(items) > 1 and len(units) > 1 and "or" not in kinds:
        sizes = [size(each.unit) for each in scalars]
        first = sizes[0]
        if kinds - {"and", "beside"} or first is None or any(each is None or each[0] != first[0] for each in sizes):
            raise Unreadable("amounts of different things")
        total = number(0, 0.0)
        for each, known in zip(scalars, sizes, strict=True):
            share = (known[1] if known else Fraction(1)) / first[1]
            total = Node("+", (total, Node("*", (each.node, number(share)))))
        return Scalar(total, scalars[0].unit)
    if "or" in kinds and all(isinstance(each, Scalar) and each.node.op in ("symbol", "¬") for each in items):
        raise Unreadable("alternatives")  # of propositions or names: another thing than both
    together = "or" not in kinds and all(isinstance(each, Relation) for each in items)
    return Many("conjunction" if together else "list", tuple(items))
