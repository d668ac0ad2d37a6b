"""`lesion show MODEL` and `lesion verify MODEL`: what of a model can be edited, and whether edits of it act."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from lesion.cli.commands import Device, DeviceMap, Dtype, Model, Revision, TrustRemoteCode, Workers
from lesion.cli.terminal import Bar, Terminal, say
from lesion.core.fields import MODEL
from lesion.core.options import HARDWARE
from lesion.engines.config import EngineChoice, opened
from lesion.errors import UsageError
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
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help=MODEL)] = None,
    edit: Annotated[
        list[str] | None, typer.Option(help="Edit in place of one of every kind, such as 3×0. Repeatable.")
    ] = None,
    all_families: Annotated[
        bool,
        typer.Option(
            "--all-families", help="In place of a model: a tiny one of every type of decoder that transformers has."
        ),
    ] = False,
    out: Annotated[
        Path, typer.Option(help="Of --all-families: the table (Markdown). The same command goes on where it stopped.")
    ] = Path("architectures.md"),
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
    if all_families:
        _verify_families(model, edit, out, engine)
        return
    if model is None:
        raise UsageError("Say which model to verify: lesion verify MODEL; or --all-families.")
    refuse_device(device)
    refuse_dtype(dtype)
    from lesion.core.preflight import refuse_no_part  # help need not wait for the catalogue of tasks

    refuse_no_part(model, edit or (), revision=revision)
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


def _verify_families(model: str | None, edit: list[str] | None, out: Path, engine: str) -> None:
    if model is not None or edit:
        raise UsageError("--all-families takes neither a model nor edits.")
    if not out.parent.is_dir():
        raise UsageError(f"--out: there is no folder {out.parent}.")
    from lesion.verification.families import COLUMNS, VLLM, families

    with Bar() as bar:
        done = families(out, bar, engine=EngineChoice(engine).engine)
    counts = {column: Counter(each.states.get(column) for each in done) for column in (*COLUMNS, *VLLM.values())}
    for column, states in counts.items():
        if any(states.keys() - {None, ""}):
            say(f"{column}: {', '.join(f'{count} {state}' for state, count in states.most_common() if state)}")
    untried = sum(not each.states for each in done)
    say(f"{len(done)} types of decoder, {untried} of them without a tiny configuration. Table: {out}")
    if any(states["wrong"] for states in counts.values()):
        raise typer.Exit(1)
