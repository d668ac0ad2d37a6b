"""`lesion verify MODEL`: whether edits do on an engine what they say, compared with weights changed by hand."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from lesion.cli.progress import Bar
from lesion.cli.terminal import Terminal, say
from lesion.core.options import HARDWARE
from lesion.engines.config import EngineChoice, opened
from lesion.models.names import refuse_device, refuse_dtype


def verify(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Model: bundled:NAME, a local folder, a GGUF file, or a hub id (OWNER/NAME)."
        ),
    ],
    edit: Annotated[
        list[str] | None, typer.Option(help="Edit in place of one of every kind, such as 3×0. Repeatable.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Inference backend: transformers or vllm.", rich_help_panel=HARDWARE)
    ] = "transformers",
    workers: Annotated[
        int | None, typer.Option(help="Number of worker processes; needs Ray.", rich_help_panel=HARDWARE)
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="Data type: auto, float32, bfloat16 or float16.", rich_help_panel=HARDWARE)
    ] = "auto",
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1, …", rich_help_panel=HARDWARE)] = "auto",
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that came with the checkpoint.")
    ] = False,
) -> None:
    """Verify that edits act: every kind of edit compared with the weights changed by hand, token for token."""
    refuse_device(device)
    refuse_dtype(dtype)
    choice = EngineChoice(engine=engine, workers=workers, trust_remote_code=trust_remote_code)
    from lesion.edits.files.artefact import edit_for
    from lesion.report.rows import Rows
    from lesion.report.table import Table
    from lesion.report.wording import counted
    from lesion.verification.verify import Verified, verified

    with opened(choice) as engines, Bar() as bar:
        loaded = engines.load(model, revision=revision, dtype=dtype, device=device)
        rows = verified(loaded, engines, [edit_for(loaded, each) for each in edit or ()], bar)
    Terminal().print(Table.of(Rows("verified", rows, (Verified,), "Verified")).terminal())
    states = Counter(row.state for row in rows)
    summary = ", ".join(f"{count} {state}" for state, count in states.most_common())
    say(f"{counted(sum(row.answers for row in rows), 'answer')} compared token for token: {summary}")
    if states["wrong"]:
        raise typer.Exit(1)
