"""The words of generated tasks."""

from __future__ import annotations

from functools import cache

from lesion.tasks.source import Fields, packaged


@cache
def tables() -> Fields:
    """The tables of `words.toml`."""
    return packaged("generated/words.toml")


def words() -> list[str]:
    """Common words, all different."""
    return list(tables()["words"])
