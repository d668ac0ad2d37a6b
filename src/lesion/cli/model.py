"""`lesion show MODEL` and `lesion verify MODEL`: what of a model can be edited, and whether edits of it act."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from lesion.cli.commands import Device, DeviceMap, Dtype, Model, Revision, TrustRemoteCode, Workers
from lesion.cli.terminal import Bar, Terminal, say
from lesion.core.options import HARDWARE
from lesion.engines.config import EngineChoice, opened
from lesion.models.gguf_checkpoint import pending
from lesion.models.names import refuse_device, refuse_dtype
from lesion.models.source import find


def show(
    model: Model,
    dtype: Dtype = "auto",
    device: Device = "auto",
    device_map: DeviceMap = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
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
        model, revision=revision, dtype=dtype, device=device, device_map=device_map, trust_remote_code=trust_remote_code
    )
    Terminal().print(describe(loaded))


def verify(
    model: Model,
    edit: Annotated[
        list[str] | None, typer.Option(help="Edit in place of one of every kind, such as 3×0. Repeatable.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Inference backend: transformers or vllm.", rich_help_panel=HARDWARE)
    ] = "transformers",
    workers: Workers = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
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
