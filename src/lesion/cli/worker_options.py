"""Options of every command that loads models: on how many workers, on which cluster and devices they answer."""

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
DeviceMap = Annotated[
    str | None,
    typer.Option(
        "--device-map",
        metavar="TEXT",
        help="Spread a model over the devices here with accelerate: auto, balanced, …; in place of --device.",
        rich_help_panel=HARDWARE,
    ),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code", help="Run code that came with a checkpoint; read it first.", rich_help_panel=HARDWARE
    ),
]
