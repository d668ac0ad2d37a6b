"""`lesion drift`: how far tokens leave the clusters that they are in at layer 0, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lesion.cli import engine_options as hands
from lesion.cli.parsing import numbers, whole
from lesion.cli.running import run
from lesion.engines.config import EngineChoice
from lesion.studies.drift.method import METHOD
from lesion.studies.drift.study import DriftStudy


def drift(
    models: Annotated[list[str], typer.Argument(metavar="MODEL", help="bundled:NAME, a folder, or a hub id.")],
    task: Annotated[str, typer.Option(help="primer:arithmetic, gsm8k, math500, FILE.jsonl, …")],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for what is found; run again into the same folder, it goes on.")
    ],
    clusters: Annotated[
        str, typer.Option(help="Of k-means; several by commas, of which 50, or else the first, is drawn.")
    ] = "50",
    runs: Annotated[int, typer.Option(help="Draws of items; curves are means over them.")] = 5,
    items: Annotated[int, typer.Option(help="Items of each run, drawn by the seed.")] = 20,
    layer_zero: Annotated[
        str, typer.Option(help="What later layers are compared with: embedding, or block for the output of block 0.")
    ] = "embedding",
    part: Annotated[str, typer.Option(help="Whose tokens are clustered: prompt, solution or both.")] = "both",
    solution: Annotated[
        str, typer.Option(help="What stands behind the prompt: own (said greedily), gold or none.")
    ] = "own",
    normalise: Annotated[
        str, typer.Option(help="Vectors as they are (none), of length 1 (unit), or per dimension (standardise).")
    ] = "none",
    nmi: Annotated[
        str, typer.Option(help="Mean of the two entropies that divides: arithmetic, geometric, min or max.")
    ] = "arithmetic",
    starts: Annotated[int, typer.Option(help="Of k-means++; the clustering with the least inertia counts.")] = 10,
    elbow: Annotated[
        str, typer.Option(help="Layers tested for a hinge (elbow) or step: those after layer 0 (later), or all.")
    ] = "later",
    between: Annotated[
        str | None,
        typer.Option(help="Two layers, as 3,5, between which tokens are followed; by default at the hinge or step."),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(help="Folder of a layer study, whose critical blocks are compared with the hinge or step."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the draws of items, and of all clusterings.")] = 0,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Limit for one own solution; each task has its own by default.")
    ] = None,
    stop_loops: hands.StopLoops = None,
    prompt_style: Annotated[
        str | None,
        typer.Option(help="auto, raw, chat, plain, or a paper's style; each task has its own, most of them auto."),
    ] = None,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    batch_size: Annotated[str, typer.Option(help="Rows decoded at once, or auto.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    engine: hands.Engine = "transformers",
    workers: hands.Workers = None,
    ray: hands.Ray = None,
    gpus_per_worker: hands.GpusPerWorker = 1,
) -> None:
    """Cluster the hidden states of every layer and show how far tokens leave the clusters they began in."""
    asked = DriftStudy.make(
        name="drift",
        models=models,
        task=task,
        clusters=numbers(clusters, int, "--clusters"),
        runs=runs,
        items=items,
        layer_zero=layer_zero,
        part=part,
        solution=solution,
        normalise=normalise,
        nmi=nmi,
        starts=starts,
        elbow=elbow,
        seed=seed,
        level=level,
        batch_size=whole(batch_size),
        dtype=dtype,
        device=device,
        engine=engine,
        stop_loops=stop_loops,
        **({} if between is None else {"between": numbers(between, int, "--between")}),
        **({} if study is None else {"study": study}),
        **({} if max_new_tokens is None else {"max_new_tokens": max_new_tokens}),
        **({} if prompt_style is None else {"prompt_style": prompt_style}),
    )
    run(METHOD, asked, out, EngineChoice(engine, workers, ray, gpus_per_worker))
