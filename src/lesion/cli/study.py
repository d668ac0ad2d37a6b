"""`lesion run` and `lesion report`: study files of any kind, and the folders that studies leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lesion.cli.commands import DeviceMap, Every, GpusPerWorker, Ray, TrustRemoteCode, Workers
from lesion.cli.listing import lines
from lesion.cli.running import run, show
from lesion.cli.terminal import say
from lesion.core.options import schema
from lesion.core.study_file import study_file
from lesion.engines.config import EngineChoice
from lesion.errors import UsageError, nearest


def run_study(
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.toml|NAME]", help="A study file, or the name of a study of --list."),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the studies shipped with the package.")] = False,
    showing: Annotated[bool, typer.Option("--show", help="Print the study file instead of running it.")] = False,
    schemata: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of study files of a kind: layers, drift, …")
    ] = False,
    workers: Workers = None,
    ray: Ray = None,
    gpus_per_worker: GpusPerWorker = 1,
    device_map: DeviceMap = None,
    trust_remote_code: TrustRemoteCode = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Output folder; running again into it continues the study.")
    ] = None,
    every: Every = False,
) -> None:
    """Run a study file, or a study shipped with the package."""
    from lesion.registry import load_study, method_of

    if listing:
        for line in lines():
            say(line)
    elif schemata:
        _print_schema(study)
    elif study is None:
        raise UsageError("Say which study to run: a file, or one of `lesion run --list`.")
    elif showing:
        _print(study_file(study).read_text("utf-8"))
    else:
        plan = load_study(study)
        engine = getattr(plan, "engine", None) or "transformers"
        choice = EngineChoice(engine, workers, ray, gpus_per_worker, device_map, trust_remote_code)
        run(method_of(plan), plan, out, choice, every=every)


def _print_schema(kind: str | None) -> None:
    from lesion.registry import methods

    known = {kind or "layers": method for kind, method in methods().items()}
    if kind not in known:
        near = nearest(kind, known) if kind else ""
        raise UsageError(f"Say which kind of study{near}: `lesion run --schema KIND`, of {', '.join(known)}.")
    _print(json.dumps(schema(known[kind].study), indent=2))


def _print(text: str) -> None:
    for line in text.splitlines():
        say(line)


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a study.")],
    every: Every = False,
) -> None:
    """Regenerate report.html from an output folder."""
    from lesion.core.preflight import refuse_no_folder

    refuse_no_folder(folder)
    from lesion.registry import recall
    from lesion.report.files import received

    with received(folder):
        show(recall(folder), every=every)
