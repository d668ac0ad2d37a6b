"""Options of every command that asks models: which engine answers, where, and when it stops listening."""

from __future__ import annotations

from typing import Annotated

import typer

Engine = Annotated[str, typer.Option("--engine", help="Who answers: transformers or vllm.")]
Workers = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", help="Answer on this many workers, each with the whole model; needs Ray."),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="ADDRESS", help="Answer on a Ray cluster: auto, HOST:PORT, …; one worker a GPU, or --workers."
    ),
]
GpusPerWorker = Annotated[
    int, typer.Option("--gpus-per-worker", metavar="N", help="Spread a model over this many GPUs of a worker.")
]
StopLoops = Annotated[
    int | None,
    typer.Option(
        "--stop-loops",
        metavar="N",
        help="Approximate, off by default: end an answer that has said the same piece N times in a row.",
    ),
]
