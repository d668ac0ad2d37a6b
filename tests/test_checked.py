"""That the tests check types and shapes: what is wrong raises, what is right does not."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType

import numpy as np
import pytest
import torch

from checked import EVERY, MADE, SOME, NotAsAnnotatedError, check
from lesion.errors import nearest
from lesion.statistics.contrasts import perplexity

SOURCE = '''
"""A module to be checked."""
from __future__ import annotations
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING
from jaxtyping import Float, Int
from torch import Tensor
if TYPE_CHECKING:
    from nowhere import Unknown

def product(a: Float[Tensor, "rows inner"], b: Float[Tensor, "inner columns"]) -> Float[Tensor, "rows columns"]:
    return a @ b

def transposed(a: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    return a.T

def maybe(ids: Int[Tensor, "tokens"] | None = None) -> int:
    return 0 if ids is None else len(ids)

@cache
def double(number: int) -> int:
    return 2 * number

def wrong() -> int:
    return "text"

def later(thing: Unknown, number: int) -> int:
    return number

def outer(n):
    def inner(x: Float[Tensor, "n n"]) -> bool:
        return True
    return inner(torch_zeros(n))

def torch_zeros(shape):
    import torch
    return torch.zeros(shape)

@dataclass(frozen=True)
class Pair:
    one: Float[Tensor, "n"]
    other: Float[Tensor, "n"]
    name: str = "pair"
    rest: list[int] = field(default_factory=list)

    @property
    def length(self) -> str:
        return len(self.one)

    @classmethod
    def of(cls, size: int) -> Pair:
        return cls(torch_zeros(size), torch_zeros(size))
'''


@pytest.fixture
def module(tmp_path, monkeypatch) -> Iterator[ModuleType]:
    (tmp_path / "a_module_to_be_checked.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    check("a_module_to_be_checked")
    yield importlib.import_module("a_module_to_be_checked")
    del sys.modules["a_module_to_be_checked"]


def refused():
    return pytest.raises(NotAsAnnotatedError)


def test_an_axis_is_as_long_in_every_argument_and_in_the_result_of_one_call(module):
    for rows, inner in ((2, 3), (4, 5)):  # each call measures anew
        assert module.product(torch.zeros(rows, inner), torch.zeros(inner, 7)).shape == (rows, 7)
    with refused():
        module.product(torch.zeros(2, 3), torch.zeros(4, 5))
    with refused():
        module.product(torch.zeros(2, 3), torch.zeros(3, 5, 1))
    with refused():
        module.product(torch.zeros(2, 3), torch.zeros(3, 5, dtype=torch.int64))
    assert module.transposed(torch.zeros(3, 3)).shape == (3, 3)
    with refused():
        module.transposed(torch.zeros(2, 3))
    assert module.maybe() == module.maybe(torch.tensor([], dtype=torch.int64)) == 0
    with refused():
        module.maybe(torch.zeros(2))


def test_types_of_arguments_and_results_are_checked_under_other_decorators_too(module):
    assert module.double(2) == 4
    with refused():
        module.double("2")
    with refused():
        module.wrong()
    assert module.later(object(), 3) == 3  # what only mypy knows may be anything; the rest is checked
    with refused():
        module.later(object(), "3")


def test_classes_are_checked_in_what_they_are_made_of_and_in_their_methods(module):
    pair = module.Pair.of(3)
    assert pair.rest == []
    with refused():
        module.Pair(torch.zeros(2), torch.zeros(3))
    with refused():
        module.Pair(torch.zeros(2), torch.zeros(2), name=5)
    with refused():
        _ = pair.length
    with refused():
        module.Pair.of("3")


def test_of_many_calls_some_are_looked_at(module):
    for _ in range(EVERY):
        module.transposed(torch.zeros(3, 3))
    looked_at = 0
    for _ in range(2 * SOME):
        try:
            module.transposed(torch.zeros(2, 3))
        except NotAsAnnotatedError:
            looked_at += 1
    assert looked_at == 2
    for _ in range(MADE):  # as often a function inside a function is checked anew
        with refused():
            module.outer(3)
    assert module.outer(3)


def test_the_package_is_checked():
    with refused():
        nearest("name", 5)
    # Where tests of statistics ran before in this process, some calls alone are looked at.
    with refused():
        for _ in range(SOME):
            with suppress(ZeroDivisionError):
                perplexity(np.zeros(2), np.zeros(3, dtype=int))
