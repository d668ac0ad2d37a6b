"""Summaries that are the same to rounding."""

import pytest


def assert_same_to_rounding(one: object, other: object, at: str = "summary") -> None:
    """Equal but for floats, which may differ by 1e-5: last bits of log-probabilities depend on who shares a batch."""
    assert type(one) is type(other), at
    if isinstance(one, dict):
        assert list(one) == list(other), at
        for key in one:
            assert_same_to_rounding(one[key], other[key], f"{at}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), at
        for index, pair in enumerate(zip(one, other, strict=True)):
            assert_same_to_rounding(*pair, f"{at}[{index}]")
    elif isinstance(one, float):
        assert one == pytest.approx(other, abs=1e-5), at
    else:
        assert one == other, at
