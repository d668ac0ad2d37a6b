"""Options of `lesion` itself, before any command."""

from __future__ import annotations

from typing import Annotated

import typer


def _print_version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"lesion {version('lesion')}")
        raise typer.Exit
    return wanted


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
]


def about(version: Version = False) -> None:
    """What `lesion` takes before the name of a command; its help is that of the application."""
