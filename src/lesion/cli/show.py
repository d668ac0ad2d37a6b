"""`lesion show MODEL`: what lies on the table, what of it can be edited, and what cannot."""

from __future__ import annotations

from typing import Annotated

import typer

from lesion.cli.terminal import Terminal, say
from lesion.core.options import HARDWARE
from lesion.models.gguf_checkpoint import pending
from lesion.models.names import refuse_device, refuse_dtype
from lesion.models.source import find


def show(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Model: bundled:NAME, a local folder, a GGUF file, or a hub id (OWNER/NAME)."
        ),
    ],
    dtype: Annotated[
        str, typer.Option(help="Data type: auto, float32, bfloat16 or float16.", rich_help_panel=HARDWARE)
    ] = "auto",
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1, …", rich_help_panel=HARDWARE)] = "auto",
    device_map: Annotated[
        str | None, typer.Option(help="Distribute over devices with accelerate: auto.", rich_help_panel=HARDWARE)
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that came with the checkpoint.")
    ] = False,
) -> None:
    """Show a model: blocks, matrices, shapes, parameter counts, tied weights, and what is not covered."""
    refuse_device(device)
    refuse_dtype(dtype)
    waiting = pending(find(model, revision))
    if waiting:
        say(f"{waiting} …", error=True)
    from lesion.cli.description import describe
    from lesion.models.load import load

    loaded = load(
        model,
        revision=revision,
        dtype=dtype,
        device=device,
        device_map=device_map,
        trust_remote_code=trust_remote_code,
    )
    Terminal().print(describe(loaded))
