"""Options of every command whose models may answer on workers: how many, on which cluster, on how many GPUs each."""

from __future__ import annotations

from typing import Annotated

import typer

from lesion.core.options import HARDWARE

Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        help="Number of worker processes, each with the whole model; needs Ray.",
        rich_help_panel=HARDWARE,
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Use a Ray cluster: auto, HOST:PORT, …; one worker per GPU, or --workers.",
        rich_help_panel=HARDWARE,
    ),
]
GpusPerWorker = Annotated[
    int,
    typer.Option(
        "--gpus-per-worker",
        metavar="N",
        help="Number of GPUs that one model is spread over.",
        rich_help_panel=HARDWARE,
    ),
]
