"""The bar of the command: drawn on a terminal on which nothing but the command's own styles act."""

from __future__ import annotations

from lesion import bar
from lesion.cli.terminal import Terminal


class Bar(bar.Bar):
    """A watcher of runs (`lesion.progress.Watcher`) that draws on standard error."""

    def __init__(self) -> None:
        super().__init__(Terminal(stderr=True))
