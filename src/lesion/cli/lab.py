"""`lesion lab`: models trained from scratch, to study the methods on ground truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lesion.errors import UsageError

app = typer.Typer(help="Train the small models that the methods are studied on.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `lineage` a command of its own even while it is the only one."""


@app.command()
def lineage(
    stage: Annotated[str, typer.Option(help="Which member of the lineage to train: base.")] = "base",
    out: Annotated[Path, typer.Option(help="Folder of the training; the model goes to its `model` folder.")] = Path(
        "lesion-lineage"
    ),
    seed: Annotated[int, typer.Option(help="Of the weights and of the documents.")] = 0,
    groups: Annotated[
        int | None,
        typer.Option(min=1, help="Groups of 2,048 documents to train on; fewer make a quicker, weaker model."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Train the bundled base model from scratch; run again into the same folder, it goes on where it stopped."""
    from lesion.labs.lineage.stage import train_base

    if stage != "base":
        raise UsageError(f"There is no stage '{stage}' of the lineage yet; there is base.")
    print(train_base(out, seed=seed, groups=groups, device=device))
