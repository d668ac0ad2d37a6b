"""`lesion lab`: models trained from scratch, to study the methods on ground truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lesion.cli.arguments import checked
from lesion.cli.terminal import Terminal, say

app = typer.Typer(help="Train the small models that the methods are studied on.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps every laboratory a command of its own."""


@app.command()
@checked
def lineage(
    stage: Annotated[
        str, typer.Option(help="Which member to train: base, instruct, rlvr or distill; or all four.")
    ] = "base",
    family: Annotated[str | None, typer.Option(help="llama or qwen2; llama, unless --base is of the other.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the family; a model goes to STAGE/model in it.")] = Path(
        "lesion-lineage"
    ),
    seed: Annotated[int, typer.Option(help="Of weights, documents, questions, and what is tried.")] = 0,
    base: Annotated[
        str | None,
        typer.Option(help="A model to take as the base of the children, where none lies in the folder."),
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option(min=1, help="Groups of 2,048 documents to train the base on; fewer make a quicker, weaker model."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    checkpoints: Annotated[
        int,
        typer.Option(help="States of the base kept on the way, early ones closer together: revisions stepN; 0: none."),
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
def memory(
    out: Annotated[Path, typer.Option(help="Folder for summary.json and report.html.")],
    classes: Annotated[int, typer.Option(help="Outputs that are targets; the common class is one more.")] = 20,
    inputs: Annotated[int | None, typer.Option(help="Inputs to remember; as many as classes by default.")] = None,
    width: Annotated[int, typer.Option(help="Dimension of the codes.")] = 128,
    noise: Annotated[float, typer.Option(help="Probability that the common class stands in for the target.")] = 0.6,
    codes: Annotated[str, typer.Option(help="orthonormal or gaussian.")] = "orthonormal",
    steps: Annotated[int, typer.Option(help="Of full-batch gradient descent.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Of codes, controls and batches.")] = 0,
) -> None:
    """Train an associative memory with noise: where in its spectrum the noise lies, and what truncating it does."""
    from lesion.cli import memory as memory_command
    from lesion.labs.memory.recipe import Recipe

    memory_command.train(Recipe(classes, inputs, width, noise, codes, steps, seed=seed), out)


@app.command()
@checked
def recall(
    out: Annotated[
        Path, typer.Option(help="Folder for summary.json and report.html; run again into it, training goes on.")
    ],
    preset: Annotated[str, typer.Option(help="quick, released or paper.")] = "quick",
    feed_forward: Annotated[str | None, typer.Option(help="mlp, linear or none.")] = None,
    noise: Annotated[float | None, typer.Option(help="α: how often τ follows the trigger; below 1.")] = None,
    corpus: Annotated[str | None, typer.Option(help="A text file whose characters make the tables.")] = None,
    optimiser: Annotated[str | None, typer.Option(help="sgd or adam.")] = None,
    steps: Annotated[int | None, typer.Option(help="Of the optimiser.")] = None,
    vocabulary: Annotated[int | None, typer.Option(help="Tokens; of a text, its most frequent characters.")] = None,
    width: Annotated[int | None, typer.Option(help="Of the model.")] = None,
    keep: Annotated[str | None, typer.Option(help="Kept fractions of the rank, by commas.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, tables, sequences and random projections.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
) -> None:
    """Train a two-layer transformer on noisy in-context recall; truncate each of its matrices, beside controls."""
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
