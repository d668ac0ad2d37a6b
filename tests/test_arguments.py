"""Arguments of public functions: what is converted, what is refused, and in which words."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
import torch

from lesion.arguments import argument, described, validated
from lesion.errors import LesionError, UsageError


@validated
def asked(
    name: str,
    numbers: int | Sequence[int] = 1,
    *,
    share: float | Sequence[float] = 0.5,
    side: Literal["top", "bottom"] = "top",
    force: bool = False,
    out: str | Path | None = None,
) -> tuple[Any, ...]:
    return name, numbers, share, side, force, out


@pytest.mark.parametrize(
    ("given", "hint", "becomes"),
    [
        (np.int64(3), int, 3), (torch.tensor(3), int, 3), (np.float32(0.5), float, 0.5), (2, float, 2.0),
        (np.bool_(True), bool, True), (Path("a/b"), str, "a/b"), ("a", Path, Path("a")), ("./a", str | Path, "./a"),
        ("a", Path | None, Path("a")), (range(3), Sequence[int], [0, 1, 2]),
        ((n for n in (1, 2)), int | Sequence[int], [1, 2]), (np.array([1, 2]), int | Sequence[int], [1, 2]),
        (pd.Series([0.5, 1.0]), float | Sequence[float], [0.5, 1.0]), ({"a": 1}.values(), Iterable[int], [1]),
        ([1, "a"], tuple[int | str, ...], (1, "a")), (None, int | None, None), ("all", int | str, "all"),
        (np.str_("top"), Literal["top", "bottom"], "top"), ({"items": 3}, str | Mapping[str, int], {"items": 3}),
        (1, float | int, 1.0),
    ],
)  # fmt: skip
def test_what_means_the_same_becomes_it(given, hint, becomes):
    found = argument(given, hint, "here")
    assert found == becomes
    assert type(found) is type(becomes)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (True, int), (True, float), (False, int | str), (1, bool), (1.0, int), ("1", int), ("0.5", float),
        (float("nan"), float), (float("inf"), float | None), (10**400, float), (1j, float), (None, str), (b"a", str),
        ("a\0b", str), ("abc", Sequence[str]), (b"abc", Sequence[int]), ({"a": 1}, Sequence[str]),
        ([[1]], Sequence[int]), (np.array([[1]]), Sequence[int]), (itertools.count(), Sequence[int]),
        ("middle", Literal["top", "bottom"]), (True, Literal[1]), ({1: "a"}, str | dict[str, str]),
        ({"a": 1}, Mapping[str, str]), (object(), str | Path), (b"a", str | Path),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_by_name_value_and_what_is_wanted(given, hint):
    with pytest.raises(UsageError, match=r"^here must be .*, not .{1,80}\.$"):
        argument(given, hint, "here")


def test_a_message_says_what_is_wanted_in_words():
    assert described(int | str) == "a whole number or text"
    assert described(float | Sequence[float]) == "a finite number or several of these"
    assert described(str | Path | None) == "text, a path or None"
    assert described(Literal["top", "bottom"]) == "'top' or 'bottom'"
    with pytest.raises(UsageError, match=r"^asked: share must be a finite number or several of these, not '0.5'\.$"):
        asked("a", share="0.5")


@pytest.mark.parametrize("path", ["", "  ", "a\nb", "x" * 300, "a/" * 3000, "~nobody-of-this-name/x"])
def test_a_path_that_no_file_can_have_is_refused(path):
    with pytest.raises(UsageError, match=r"argument out|cannot be used|out must be text"):
        asked("a", out=path)
    assert asked("a", out="some/where")[-1] == "some/where"


def test_the_home_folder_is_put_in_for_a_tilde(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert asked("a", out="~/study")[-1] == f"{tmp_path}/study"
    assert asked("a", out=Path("~/study"))[-1] == tmp_path / "study"


def test_missing_and_unknown_arguments_are_named_with_the_nearest():
    with pytest.raises(UsageError, match="asked: missing a required argument: 'name'"):
        asked()
    with pytest.raises(UsageError, match=r"unexpected keyword argument 'number' \(nearest: numbers"):
        asked("a", number=2)
    with pytest.raises(UsageError, match="too many positional arguments"):
        asked("a", 1, 2)


def test_what_a_function_raises_itself_is_left_as_it_is():
    @validated
    def broken(number: int) -> float:
        return 1 / number

    with pytest.raises(ZeroDivisionError):
        broken(0)


def test_a_value_without_a_text_of_its_own_is_named_by_its_type():
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(LesionError, match="not a value of the type Odd"):
        asked(Odd())
    with pytest.raises(LesionError, match="whole number or several of these, not"):
        asked("a", numbers=[[10**5000]])
