"""Claims: what a study says about its rows, in at most three sentences, each made by a rule.

A rule is a function from rows to claims, whose docstring says what it can say and what it needs to. `docs/reference.py`
lists every rule, and a test builds rows for each of its outcomes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, ParamSpec

from lesion.report.rows import Record

P = ParamSpec("P")
MOST = 3
"""Sentences of a claim at most."""
Standing = Literal["holds", "fails", "unknown"]


@dataclass(frozen=True)
class Claim:
    """What holds of one subject.

    Attributes:
        sentences: at most three: what holds, the strongest number with its interval, what cannot be told.
        rows: the lines that it rests on.
        subject: whom it is about, where the page is about several.
        rule: the name of the rule that made it.
        standing: of a claim that was put as a question before: whether it holds.
    """

    sentences: tuple[str, ...]
    rows: tuple[Record, ...] = ()
    subject: str = ""
    rule: str = ""
    standing: Standing | None = None

    def __post_init__(self) -> None:
        if len(self.sentences) > MOST:
            raise ValueError(f"A claim has at most {MOST} sentences, not {len(self.sentences)}: {self.sentences[0]}")

    @property
    def text(self) -> str:
        """The sentences, begun with the subject where there is one."""
        return f"{self.subject}: {' '.join(self.sentences)}" if self.subject else " ".join(self.sentences)


RULES: dict[str, Callable[..., Iterable[Claim]]] = {}
"""Every rule, by its module and name, as it was written: `docs/reference.py` reads its docstring."""


def rule(function: Callable[P, Iterable[Claim]]) -> Callable[P, tuple[Claim, ...]]:
    """Decorates a function that makes claims; every claim then has its name.

    Its docstring says what it is about, what it can say (`Says:`, outcomes with `|` between them) and what it needs to
    (`Needs:`).
    """
    name = function.__name__.replace("_", " ")
    RULES[f"{function.__module__}:{name}"] = function

    @functools.wraps(function)
    def make(*arguments: P.args, **named: P.kwargs) -> tuple[Claim, ...]:
        return tuple(replace(claim, rule=name) for claim in function(*arguments, **named))

    return make
