"""Terms: expressions read from tokens: sums, products, powers, functions, roots, fractions and brackets."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import replace
from fractions import Fraction

from lesion.tasks.judges.expressions import Node, Unreadable, number, rational
from lesion.tasks.judges.meanings import (
    CURRENCIES,
    INFINITY,
    Interval,
    Many,
    Region,
    Relation,
    Scalar,
    Value,
    Word,
    end,
)
from lesion.tasks.judges.notation import WORDS, Token
from lesion.tasks.judges.regions import solved
from lesion.tasks.judges.units import is_unit

_END = Token("", "", False, 0, 0)
DEEPEST = 40
"""How deep brackets, fractions and powers may stand in one another."""


class Terms(ABC):
    """Reads expressions from tokens, from left to right.

    Every method takes the tokens that it reads, or raises `Unreadable`.

    Args:
        prose: whether words may stand around the value.
    """

    def __init__(self, read: list[Token], prose: bool = False) -> None:
        self.tokens = read
        self.prose = prose
        self.at = 0
        self.depth = 0
        self.begin = 0
        self.end = 0
        self.percents = False
        self.currency = ""

    @abstractmethod
    def element(self) -> Value:
        """An expression with its unit, or a bracket of several values."""

    @abstractmethod
    def statement(self) -> Value:
        """Sides with relations between them, or one side alone."""

    @abstractmethod
    def several(self, closing: frozenset[str]) -> Value:
        """Values apart by commas, up to a closing bracket or the end."""

    # Tokens

    def peek(self, ahead: int = 0) -> Token:
        """The next token, or one further ahead; behind the last one without text, which is false."""
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else _END

    def next(self) -> Token:
        """The next token, taken."""
        token = self.peek()
        if not token:
            raise Unreadable("the end")
        self.at += 1
        return token

    def follows(self, *texts: str, ahead: int = 0) -> bool:
        """Whether the next token, or one further ahead, is one of these."""
        return self.peek(ahead).text in texts

    def skip(self, *texts: str) -> bool:
        """Take the next token if it is one of these; whether it is."""
        skipped = self.follows(*texts)
        self.at += skipped
        return skipped

    def take(self, text: str) -> None:
        """Take a token that must be the next."""
        if not self.skip(text):
            raise Unreadable(f"no {text}")

    def unit_word(self, token: Token, begun: bool) -> bool:
        """Whether a token may be a part of the unit behind a value."""
        if token.kind == "symbol":
            return (is_unit(token.text) and (begun or token.spaced or token.text not in "smghlk")) or (
                begun and token.text in ("a", "A")
            )
        if token.kind != "word" or token.text.lower() in _NO_UNIT:
            return False
        return begun or is_unit(token.text) or len(token.text) > 3 or self.prose or token.spaced

    def unit_in_brackets(self) -> bool:
        """Whether a unit in brackets follows, as in `5 (cm)`."""
        first, second = self.peek(1), self.peek(2)
        closed = any(token.text in (")", "]") for token in self.tokens[self.at + 2 :])
        return closed and bool(second) and (first.kind == "word" or is_unit(first.text)) and not first.spaced

    # Expressions

    def expression(self) -> Node | Many | Region | Word:
        """A sum of terms."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable("too deep")
        left = self.term()
        while (token := self.peek()) and token.kind == "sign" and token.text in ("+", "-", "±", "∓"):
            is_number = isinstance(left, Node) and left.op == "number"
            if token.text == "-" and is_number and self.follows("%", ahead=2) and not self.percents:
                raise Unreadable("a range of percentages")
            self.at += 1
            right = self.term()
            left = Node(token.text, (only_node(left), only_node(right)))
        self.depth -= 1
        return left

    def term(self) -> Node | Many | Region | Word:
        """A product; also without a sign between its factors."""
        left = self.signed()
        while token := self.peek():
            times = token.text == "*" and {each.text for each in self.tokens[self.at :]} - {"*", "`", ".", "_"}
            if token.kind == "sign" and (times or token.text == "/"):
                self.at += 1
                left = Node(token.text, (only_node(left), only_node(self.signed())))
            elif self._factor_follows(left, token):
                right = self._fraction() if token.kind == "number" and self.follows("/", ahead=1) else self.power()
                factors = only_node(left), only_node(right)
                left = _mixed(*factors) if _is_mixed(*factors, token) else Node("*", factors)
            else:
                break
        return left

    def _fraction(self) -> Node:
        """The fraction of a mixed number such as `3 1/2`."""
        above, _, below = self.next(), self.next(), self.next()
        return Node("/", (self.read_number(above), self.read_number(below)))

    def _factor_follows(self, left: object, token: Token) -> bool:
        if not isinstance(left, Node):
            return False
        if token.kind == "number":  # 3 1/2, or behind a bracket
            before = self.tokens[self.at - 1]
            apart = before.kind == "number" and token.spaced
            fraction = apart and self.follows("/", ahead=1) and self.peek(2).kind == "number"
            return fraction or before.text in (")", "π", "!")
        if token.kind in ("command", "function"):
            return True
        if token.kind == "symbol":
            if self.unit_word(token, False) and token.spaced and rational(left) is not None:
                return False
            if self.prose and token.text in ("k", "K", "M", "B") and left.op == "number":
                return False
            if self.prose and token.text == "a" and token.spaced and self.peek(1).kind == "word":
                return False
            return not (token.text == "U" and token.spaced)
        if token.kind == "word":
            return self._is_product(token)
        if token.text in ("(", "[", "{"):
            if self.unit_in_brackets() and self.peek(1).kind == "word" and not self._is_product(self.peek(1)):
                return False
            return token.text != "[" and not (self.prose and token.spaced and left.op == "number")
        return token.text in "π√∛∜⌊⌈"

    def _is_product(self, token: Token) -> bool:
        """Whether a run of letters is a product of variables, such as `xy`: no unit, short, with a value beside it."""
        return (
            len(token.text) <= 3 and token.text.isalpha() and token.text.islower() and not is_unit(token.text)
            and not token.spaced and token.text not in SHORT
        )  # fmt: skip

    def signed(self) -> Node | Many | Region | Word:
        """A factor with signs before it."""
        if self.follows("-", "+", "±", "∓", "¬"):
            sign = self.next().text
            self.depth += 1
            if self.depth > DEEPEST:
                raise Unreadable("too deep")
            inner = only_node(self.signed())
            self.depth -= 1
            if sign == "-":
                return Node("negative", (inner,))
            if sign == "+":
                return inner
            return Node(sign, (number(0), inner))
        return self.power()

    def power(self) -> Node | Many | Region | Word:
        """A factor with its exponent and its factorials."""
        base = self.primary()
        while token := self.peek():
            if token.text == "!" and isinstance(base, Node):
                self.at += 1
                if self.follows("!"):
                    raise Unreadable("!!")
                base = Node("factorial", (base,))
            elif token.text == "^":
                self.at += 1
                base = Node("^", (only_node(base), self._exponent()))
            elif token.text == "%" and self.percents:
                self.at += 1
            elif token.text == "'" and not token.spaced:
                raise Unreadable("'")
            else:
                break
        if isinstance(base, Node) and self.follows("°") and self.follows("+", "-", ")", ahead=1):
            self.at += 1
            return Node("*", (base, DEGREE))
        return base

    def _exponent(self) -> Node:
        if self.follows("{"):
            return self._group()
        if self.follows("-", "+"):
            sign = self.next().text
            inner = self._exponent()
            return Node("negative", (inner,)) if sign == "-" else inner
        node = only_node(self.primary())
        if self.skip("^"):
            node = Node("^", (node, self._exponent()))
        return node

    def _group(self) -> Node:
        self.take("{")
        inner = only_node(self.expression())
        self.take("}")
        return inner

    def _argument(self) -> Node:
        """What a command takes: a group, or one token; of `\\frac12` the 1."""
        if self.follows("{"):
            return self._group()
        token = self.peek()
        if token.kind == "number" and token.text.isdigit() and len(token.text) > 1:
            first = replace(token, text=token.text[0], close=token.place + 1)
            rest = replace(token, text=token.text[1:], place=token.place + 1, spaced=False)
            self.tokens[self.at : self.at + 1] = [first, rest]
        return only_node(self.primary())

    def primary(self) -> Node | Many | Region | Word:
        """A number, a variable, a constant, a function's value, a root, a fraction, or a bracket."""
        token = self.next()
        if token.kind == "number":
            return self.read_number(token)
        if token.kind == "symbol":
            return self._symbol(token)
        if token.kind == "function":
            return self._function(token.text)
        if token.kind == "command":
            return self._command(token.text)
        if token.kind == "begin":
            return self._matrix()
        if token.kind == "word":
            if len(token.text) <= 3 and token.text.isalpha() and token.text.islower() and token.text not in SHORT:
                return _product(token.text)
            raise Unreadable(token.text)
        if token.text == "π":
            return Node("constant", ("pi",))
        if token.text == "∞":
            return INFINITY
        if token.text == "...":
            return Node("constant", ("...",))
        if token.text in CURRENCIES and self.peek().kind == "number":
            self.currency = token.text
            return self.primary()
        if token.text in "√∛∜":
            degree = number(2 + "√∛∜".index(token.text))
            return Node("root", (only_node(self.primary()), degree))
        if token.text == "|":
            inner = only_node(self.expression())
            self.take("|")
            return Node("abs", (inner,))
        if token.text in "⌊⌈":
            inner = only_node(self.expression())
            self.take("⌋" if token.text == "⌊" else "⌉")
            return Node("floor" if token.text == "⌊" else "ceil", (inner,))
        if token.text in ("(", "[", "{", "⦃", "⟨", "<"):
            return self._bracket(token.text)
        raise Unreadable(token.text)

    def read_number(self, token: Token) -> Node:
        """The number that a token is, or a numeral with the base behind it."""
        if self.follows("_") or self.peek().text.lower() == "base":
            return self._numeral(token)
        digits = re.sub(r"[\s,'’_]", "", token.text).replace("−", "-").lower()
        mantissa, _, exponent = digits.partition("e")
        if len(exponent) > 4 or abs(int(exponent or 0)) > 999:
            raise Unreadable(token.text)
        power = int(exponent or 0)
        if "." in mantissa and self.follows("...") and not self.peek().spaced:
            self.at += 1
            return Node("cut", (number(Fraction(mantissa), float(len(mantissa.partition(".")[2]))),))
        return number(
            Fraction(mantissa) * Fraction(10) ** power, float(max(0, len(mantissa.partition(".")[2]) - power))
        )

    def _numeral(self, token: Token) -> Node:
        self.at += 1
        opened = 0
        while self.follows("{", "(") or self.peek().text.lower() == "base":
            opened += self.next().text in ("{", "(")
        base = self.next()
        for _ in range(opened):
            if not self.skip("}", ")"):
                raise Unreadable("_")
        if not base.text.isdigit() or not 2 <= int(base.text) <= 36:
            raise Unreadable(base.text)
        if base.text == "10":
            return number(Fraction(token.text.replace(",", "")), 0.0)
        return Node("numeral", (token.text.lstrip("0") or "0", int(base.text)))

    def _symbol(self, token: Token) -> Node:
        name = token.text
        while self.follows("'") and not self.peek().spaced:
            self.at += 1
            name += "'"
        if self.skip("_"):
            name += "_"
            if self.skip("{"):
                while not self.skip("}"):
                    name += self.next().text
            else:
                name += self.next().text
            return Node("symbol", (name,))
        return _letter(name)

    def _function(self, name: str) -> Node:
        exponent: Node | None = None
        base: Node | None = None
        degree: Node | None = None
        if name == "sqrt" and self.skip("["):
            degree = only_node(self.expression())
            self.take("]")
        if name == "log" and self.skip("_"):
            base = self._argument()
        if self.skip("^"):
            exponent = self._exponent()
        if self.follows("{"):
            inner = self._group()
        elif self.skip("("):
            inner = only_node(self.expression())
            self.take(")")
        elif name in ("sqrt", "cbrt"):
            inner = self._argument() if self.tokens[self.at - 1].source.startswith("\\") else only_node(self.power())
        else:
            inner = self._bare_argument()
        if name in ("sqrt", "cbrt"):
            node = Node("root", (inner, degree or number(2 if name == "sqrt" else 3)))
        elif name == "log":
            node = Node("log", (inner, base or number(10)))
        elif exponent is not None and rational(exponent) == -1:
            return Node(f"a{name}", (inner,))
        else:
            node = Node(name, (inner,))
        return node if exponent is None else Node("^", (node, exponent))

    def _bare_argument(self) -> Node:
        """The argument of a function without brackets: a product up to the next sign, as in `sin 2x`."""
        node = only_node(self.power())
        while ((token := self.peek()) and token.kind in ("symbol", "command")) or self.follows("π"):
            node = Node("*", (node, only_node(self.power())))
        if self.skip("°"):
            node = Node("*", (node, DEGREE))
        elif self.skip("/"):
            node = Node("/", (node, only_node(self.power())))
        return node

    def _command(self, name: str) -> Node:
        if name not in ("frac", "binom"):
            raise Unreadable(name)
        parts = self._argument(), self._argument()
        return Node("binomial", parts) if name == "binom" else Node("group", (Node("/", parts),))

    def _matrix(self) -> Many:
        rows: list[Value] = []
        cells: list[Value] = []
        while self.peek().kind != "end":
            if self.skip("&"):
                continue
            if self.skip("⏎"):
                rows, cells = [*rows, Many("row", tuple(cells))], []
            else:
                cells.append(self.element())
        self.at += 1
        if cells:
            rows.append(Many("row", tuple(cells)))
        return Many("matrix", tuple(rows))

    def _bracket(self, opening: str) -> Node | Many | Region | Word:
        """What stands in brackets: one expression, a tuple, a set, an interval or a vector."""
        closings = {"(": ")]", "[": ")]", "{": "}", "⦃": "⦄", "⟨": "⟩", "<": ">"}[opening]
        prose, self.prose = self.prose, False
        if self.follows(*closings):
            if opening not in "{⦃":
                raise Unreadable("()")
            self.at += 1
            return Word("no solution")
        items: list[Value] = []
        if opening in "{⦃" and self.peek().kind == "symbol" and self.follows(":", ahead=1):  # { x : x > 5 }
            self.at += 2
        while True:
            items.append(Scalar(only_node(self.expression())) if opening == "<" else self.statement())
            if self.skip(",", ";"):
                continue
            if opening in "{⦃" and self.skip("|", ":"):  # { x | x > 5 }
                items = [self.several(frozenset(closings))]
            break
        closing = self.next().text
        if closing not in closings:
            raise Unreadable(closing)
        self.prose = prose
        if len(items) == 1:
            return self._single(opening, items[0])
        if opening + closing in ("(]", "[)"):
            if len(items) != 2:
                raise Unreadable(closing)
            return Region((Interval(end(items[0]), end(items[1]), opening == "[", closing == "]"),))
        kind = {"(": "tuple", "[": "bracket", "{": "set", "⦃": "set", "⟨": "vector", "<": "vector"}[opening]
        return Many(kind, tuple(items))

    def _single(self, opening: str, item: Value) -> Node | Many | Region:
        if opening in "([{" and isinstance(item, Scalar) and not item.unit and item.factor is None:
            return Node("group", (item.node,))
        if isinstance(item, Many | Region) and opening in "({⦃":
            return item
        if opening in "{⦃":
            if isinstance(item, Relation):
                region = solved(item)
                if region is not None:
                    return region
            return Many("set", (item,))
        if opening == "<" and isinstance(item, Scalar):
            return item.node
        if opening == "[":
            return Many("bracket", (item,))
        raise Unreadable("a bracket")


SHORT, _NO_UNIT = (frozenset(WORDS["formula"][words]) for words in ("short", "no_unit"))
DEGREE = Node("/", (Node("constant", ("pi",)), number(180)))


def _product(letters: str) -> Node:
    node = _letter(letters[0])
    for letter in letters[1:]:
        node = Node("*", (node, _letter(letter)))
    return node


def _letter(name: str) -> Node:
    return Node("constant", (name,)) if name in ("i", "e") else Node("symbol", (name,))


def only_node(value: object) -> Node:
    """A part of an expression; anything that is no single value is none."""
    if not isinstance(value, Node):
        raise Unreadable("no single value")
    return value


def _is_mixed(left: Node, right: Node, token: Token) -> bool:
    """Whether a whole number before a fraction below 1 makes a mixed number, as in `1 1/2` and `1\\frac12`."""
    if left.op == "negative":
        return _is_mixed(left.args[0], right, token)
    if left.op != "number" or left.places != 0:
        return False
    if token.kind == "number":
        return True
    value = rational(right)
    plain_fraction = (
        right.op == "group" and right.args[0].op == "/" and all(part.op == "number" for part in right.args[0].args)
    )
    return token.text == "frac" and plain_fraction and value is not None and 0 < value < 1


def _mixed(left: Node, right: Node) -> Node:
    if left.op == "negative":
        return Node("negative", (_mixed(left.args[0], right),))
    return Node("group", (Node("+", (left, right)),))
