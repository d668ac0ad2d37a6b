"""`lesion evaluate`: measure what edits do to a skill and its controls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lesion.cli import engine_options
from lesion.cli.parsing import numbers, whole
from lesion.cli.progress import Bar
from lesion.cli.running import show
from lesion.engines.config import EngineChoice
from lesion.engines.opening import opened
from lesion.errors import UsageError
from lesion.studies.isolation.study import EvaluationStudy

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="Model: bundled:NAME, a local folder, or a hub id.")]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1, …")]
Dtype = Annotated[str, typer.Option(help="Data type: auto, float32, bfloat16 or float16.")]
Style = Annotated[str | None, typer.Option(help="Prompt style: auto, raw, chat, plain, …; default: the task's own.")]
Out = Annotated[Path, typer.Option("--out", help="Output folder; running again into it continues the study.")]


def evaluate(
    model: ModelName,
    task: Annotated[list[str], typer.Option(help="Task to evaluate, the skill or a control; repeatable.")],
    out: Out,
    edit: Annotated[list[Path] | None, typer.Option(help="An .edit file; repeatable.")] = None,
    factor: Annotated[
        str | None, typer.Option(help="Scale factor, 0 prunes; comma-separated list; default: each file's own.")
    ] = None,
    random_controls: Annotated[int, typer.Option(min=0, help="Number of matched random selections per edit.")] = 3,
    items: Annotated[str, typer.Option(help="Number of items per task, drawn with the seed; or all.")] = "100",
    seed: Annotated[int, typer.Option(help="Random seed of the item draw.")] = 0,
    validation: Annotated[
        float | None, typer.Option(help="Choose the best edit on this share of the items and report it on the others.")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Maximum length of an answer in tokens; default: the task's own.")
    ] = None,
    stop_loops: engine_options.StopLoops = None,
    prompt_style: Style = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    batch_size: Annotated[str, typer.Option(help="Number of sequences decoded together, or auto.")] = "auto",
    dtype: Dtype = "auto",
    device: Device = "auto",
    engine: engine_options.Engine = "transformers",
    workers: engine_options.Workers = None,
    ray: engine_options.Ray = None,
    gpus_per_worker: engine_options.GpusPerWorker = 1,
    force: Annotated[
        bool, typer.Option("--force", help="Accept edits made for another model of the same shapes.")
    ] = False,
) -> None:
    """Evaluate baseline and edits on the same items, each edit with its matched random controls."""
    from lesion.edits.files.artefact import read_edit
    from lesion.studies.isolation.api import IsolationResult
    from lesion.studies.isolation.run import run_evaluation

    study = EvaluationStudy.make(
        name="evaluation",
        model=model,
        tasks=task,
        items=whole(items),
        seed=seed,
        level=level,
        batch_size=whole(batch_size),
        dtype=dtype,
        device=device,
        engine=engine,
        decoding={"max_new_tokens": max_new_tokens, "stop_loops": stop_loops},
        **({"prompt_style": prompt_style} if prompt_style is not None else {}),
    )
    if validation is not None and not 0 < validation < 1:
        raise UsageError(f"--validation is a share of the items between 0 and 1, not {validation:g}.")
    factors = () if factor is None else numbers(factor, float, "--factor")
    files = [read_edit(file) for file in edit or []]
    with Bar() as bar:
        try:
            with opened(EngineChoice(engine, workers, ray, gpus_per_worker), bar) as make_engine:
                outcome = run_evaluation(
                    study,
                    files,
                    out,
                    factors=factors,
                    random_controls=random_controls,
                    validation=validation,
                    force=force,
                    watcher=bar,
                    make_engine=make_engine,
                )
        except KeyboardInterrupt:
            bar.say(f"Stopped. Every answer so far is kept in {out}; the same command goes on from there.")
            raise
    show(IsolationResult(outcome.folder, outcome.summary, outcome.asked, outcome.planned), bar.told)
