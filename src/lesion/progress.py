"""Watching: who is told how a long run goes, whatever it counts."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Watcher(Protocol):
    """Somebody who is told how a run goes."""

    def begin(self, model: str, total: int, stored: int, what: str = "answers") -> None:
        """Work on a model starts: so many answers, texts or shards in all, so many of them done already."""
        ...

    def answered(self, count: int) -> None:
        """So many more are done."""
        ...

    def note(self, text: str) -> None:
        """Something the person should know."""
        ...


class Silent:
    """A watcher that says nothing."""

    def begin(self, model: str, total: int, stored: int, what: str = "answers") -> None:
        """Nothing."""

    def answered(self, count: int) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""


SILENT: Watcher = Silent()
