"""In what two studies or recipes differ, in words."""

from __future__ import annotations

from collections.abc import Mapping


def differences(stored: Mapping[str, object], wanted: Mapping[str, object]) -> str:
    """`noise 0.5 instead of 0.6, …` for the values of `wanted`, both as JSON has them; empty where none differs."""
    pairs = [(name, stored.get(name), value) for name, value in wanted.items()]
    return ", ".join(f"{name} {theirs} instead of {ours}" for name, theirs, ours in pairs if theirs != ours)
