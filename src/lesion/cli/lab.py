"""`lesion lab`: models trained from scratch, to study the methods on ground truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lesion.cli.parsing import checked
from lesion.cli.terminal import Terminal, say

app = typer.Typer(help="Train the small models that the methods are studied on.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps every laboratory a command of its own."""


@app.command()
@checked
def lineage(
    stage: Annotated[str, typer.Option(help="Model to train: base, instruct, rlvr or distill; or all.")] = "base",
    family: Annotated[str | None, typer.Option(help="llama or qwen2; llama, unless --base is of the other.")] = None,
    out: Annotated[
        Path, typer.Option(help="Output folder of the family; each model is written to STAGE/model.")
    ] = Path("lesion-lineage"),
    seed: Annotated[int, typer.Option(help="Random seed of weights, data and sampling.")] = 0,
    base: Annotated[
        str | None,
        typer.Option(help="Base model of the children, if the folder has none."),
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option(min=1, help="Groups of 2,048 documents to train the base on; fewer make a quicker, weaker model."),
    ] = None,
    device: Annotated[str, typer.Option(help="Device: auto, cpu or cuda.")] = "auto",
    checkpoints: Annotated[
        int,
        typer.Option(help="Number of base checkpoints to keep (revisions stepN, early ones closer together); 0: none."),
    ] = 12,
) -> None:
    """Train a base model from scratch, and its children: tuned on chats, reinforced, distilled from the reinforced.

    Run again into the same folder, it goes on where it stopped.
    """
    from lesion.cli.progress import Bar
    from lesion.labs.lineage import family as families
    from lesion.labs.lineage import table

    with Bar() as bar:
        trained = families.train(
            out,
            stage,
            family=family,
            seed=seed,
            base=base,
            groups=groups,
            device=device,
            checkpoints=checkpoints,
            watcher=bar,
        )
    for folder in trained:
        say(str(folder))
    if stage == families.ALL:
        rows = table.members(families.folders(out, base))
        Terminal().print(table.text(rows), end="", soft_wrap=True)
        say(str(table.write(out, rows)))


@app.command()
@checked
def recall(
    out: Annotated[Path, typer.Option(help="Output folder; running again into it continues the training.")],
    preset: Annotated[str, typer.Option(help="Preset: quick, released or paper.")] = "quick",
    feed_forward: Annotated[str | None, typer.Option(help="Second feed-forward layer: mlp, linear or none.")] = None,
    noise: Annotated[float | None, typer.Option(help="α: probability that τ follows the trigger; below 1.")] = None,
    corpus: Annotated[
        str | None, typer.Option(help="Text file whose characters define the token distributions.")
    ] = None,
    optimiser: Annotated[str | None, typer.Option(help="Optimiser: sgd or adam.")] = None,
    steps: Annotated[int | None, typer.Option(help="Number of optimiser steps.")] = None,
    vocabulary: Annotated[
        int | None, typer.Option(help="Number of tokens; of a text, its most frequent characters.")
    ] = None,
    width: Annotated[int | None, typer.Option(help="Width of the model.")] = None,
    keep: Annotated[str | None, typer.Option(help="Kept fractions of the rank, comma-separated.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed of weights, data and random projections.")] = 0,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1, …")] = "auto",
) -> None:
    """Train a two-layer transformer on noisy in-context recall; truncate each of its matrices, with controls."""
    from lesion.cli import recall as recall_command
    from lesion.cli.parsing import numbers
    from lesion.labs.recall import language
    from lesion.labs.recall.recipe import preset as recipe_of

    recipe = recipe_of(
        preset,
        feed_forward=feed_forward,
        noise=noise,
        corpus=None if corpus is None else language.read(corpus)[1],
        optimiser=optimiser,
        steps=steps,
        vocabulary=vocabulary,
        width=width,
        keep=None if keep is None else tuple(dict.fromkeys(numbers(keep, float, "--keep"))),
        seed=seed,
    )
    recall_command.train(recipe, out, corpus, device)
