"""`lesion perturb BASE --like CHILD --out DIR`: the base with noise as large as what training changed in the child."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lesion.cli.terminal import say


def perturb(
    base: Annotated[
        str, typer.Argument(metavar="BASE", help="Model: bundled:NAME, a local folder, a GGUF file, or a hub id.")
    ],
    like: Annotated[str, typer.Option(metavar="MODEL", help="A child of BASE: noise of the norm of its change.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the noisy model; it must not exist or be empty.")],
    scale: Annotated[float, typer.Option(help="So many times as large as the child's change.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Random seed of the noise.")] = 0,
) -> None:
    """Write a model with noise as large as what tuning changed: the control for comparisons with its children."""
    from lesion.edits.files import perturbed

    done = perturbed.perturb(base, like, out, scale=scale, seed=seed)
    say(f"{like}: ‖change‖ / ‖weights‖ = {done.distance:.4g}")
    say(f"noise in {done.tensors[0]:,} of {done.tensors[1]:,} tensors, ‖noise‖ / ‖weights‖ = {done.achieved:.4g}")
    say(f"written: {done.out}")
