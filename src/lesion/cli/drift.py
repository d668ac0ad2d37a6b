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
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="Model: bundled:NAME, a local folder, or a hub id.")
    ],
    task: Annotated[str, typer.Option(help="Task: primer:arithmetic, gsm8k, math500, FILE.jsonl, …")],
    out: Annotated[Path, typer.Option("--out", help="Output folder; running again into it continues the study.")],
    clusters: Annotated[
        str, typer.Option(help="Number of clusters (comma-separated list; 50, or the first, is plotted).")
    ] = "50",
    runs: Annotated[int, typer.Option(help="Number of draws of items; curves are means over them.")] = 5,
    items: Annotated[int, typer.Option(help="Number of items per run.")] = 20,
    layer_zero: Annotated[
        str, typer.Option(help="Reference of the comparison: embedding, or block (the output of block 0).")
    ] = "embedding",
    part: Annotated[str, typer.Option(help="Tokens that are clustered: prompt, solution or both.")] = "both",
    solution: Annotated[str, typer.Option(help="Solution after the prompt: own (greedy), gold or none.")] = "own",
    normalise: Annotated[
        str, typer.Option(help="Normalisation of the vectors: none, unit (length 1) or standardise (per dimension).")
    ] = "none",
    nmi: Annotated[
        str, typer.Option(help="Normalisation of the mutual information: arithmetic, geometric, min or max.")
    ] = "arithmetic",
    starts: Annotated[int, typer.Option(help="Number of k-means++ initialisations; the lowest inertia is kept.")] = 10,
    elbow: Annotated[
        str, typer.Option(help="Layers tested for a hinge (elbow) or step: later (all but layer 0), or all.")
    ] = "later",
    between: Annotated[
        str | None,
        typer.Option(help="Two layers (3,5) between which tokens are followed; default: at the hinge or step."),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(help="Output folder of a layer study; its critical blocks are compared with the hinge or step."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the item draws and of k-means.")] = 0,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Maximum length of a generated solution in tokens; default: the task's own.")
    ] = None,
    stop_loops: hands.StopLoops = None,
    prompt_style: Annotated[
        str | None,
        typer.Option(help="Prompt style: auto, raw, chat, plain, or a paper's; default: the task's own."),
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    batch_size: Annotated[str, typer.Option(help="Number of sequences decoded together, or auto.")] = "auto",
    dtype: Annotated[str, typer.Option(help="Data type: auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1, …")] = "auto",
    engine: hands.Engine = "transformers",
    workers: hands.Workers = None,
    ray: hands.Ray = None,
    gpus_per_worker: hands.GpusPerWorker = 1,
) -> None:
    """Cluster the hidden states of every layer and measure how far tokens leave their first clusters."""
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
