"""`lesion isolate` and `lesion evaluate`: find the weights of a skill, and measure what editing them does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lesion.cli import engine_options as hands
from lesion.cli.parsing import numbers, whole
from lesion.cli.progress import Bar
from lesion.cli.running import run, show
from lesion.engines.config import EngineChoice
from lesion.engines.opening import opened
from lesion.errors import UsageError
from lesion.studies.isolation.method import METHOD
from lesion.studies.isolation.study import METHODS, SAMPLES, EvaluationStudy, IsolationStudy

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="bundled:NAME, a folder, or a hub id.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
Style = Annotated[str | None, typer.Option(help="auto, raw, chat, plain, …; each task has its own by default.")]
Out = Annotated[
    Path, typer.Option("--out", help="Folder for what is found; run again into the same folder, it goes on.")
]


def isolate(
    model: ModelName,
    skill: Annotated[
        str, typer.Option(help="The task whose weights are sought: gsm8k, primer:arithmetic, FILE.jsonl.")
    ],
    control: Annotated[list[str], typer.Option(help="A task whose weights are left out; repeatable.")],
    out: Out,
    keep: Annotated[
        str, typer.Option(help="Share of every matrix taken of each task, in (0, 1]; several by commas.")
    ] = "0.05",
    samples: Annotated[
        str, typer.Option(help="Calibration texts of each task; several by commas show how many are needed.")
    ] = str(SAMPLES),
    repeats: Annotated[int, typer.Option(help="Draws of texts; more than one shows how far selections agree.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    replacement: Annotated[bool, typer.Option("--replacement", help="Draw texts with replacement.")] = False,
    method: Annotated[list[str] | None, typer.Option(help=f"{', '.join(METHODS)}; repeatable.")] = None,
    prompt_style: Style = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
) -> None:
    """Find the weights that a skill needs and its controls do not, and keep them as edits, with forward passes only."""
    study = IsolationStudy.make(
        name="isolation",
        model=model,
        skill=skill,
        controls=control,
        methods=method or ["mathneuro"],
        keep=numbers(keep, float, "--keep"),
        samples=numbers(samples, int, "--samples"),
        repeats=repeats,
        seed=seed,
        replacement=replacement,
        dtype=dtype,
        device=device,
        **({"prompt_style": prompt_style} if prompt_style is not None else {}),
    )
    run(METHOD, study, out, EngineChoice())


def evaluate(
    model: ModelName,
    task: Annotated[list[str], typer.Option(help="A task that is asked, the skill or a control; repeatable.")],
    out: Out,
    edit: Annotated[list[Path] | None, typer.Option(help="An .edit file; repeatable.")] = None,
    factor: Annotated[str | None, typer.Option(help="0 prunes; several by commas; each file's own by default.")] = None,
    random_controls: Annotated[int, typer.Option(min=0, help="Matched random selections beside every edit.")] = 3,
    items: Annotated[str, typer.Option(help="Items of each task, drawn by the seed; or all.")] = "100",
    seed: Annotated[int, typer.Option(help="Of the draw of items.")] = 0,
    validation: Annotated[
        float | None, typer.Option(help="Choose the best edit on this share of the items, report it on the others.")
    ] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Limit for one answer.")] = None,
    stop_loops: hands.StopLoops = None,
    prompt_style: Style = None,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    batch_size: Annotated[str, typer.Option(help="Rows decoded at once, or auto.")] = "auto",
    dtype: Dtype = "auto",
    device: Device = "auto",
    engine: hands.Engine = "transformers",
    workers: hands.Workers = None,
    ray: hands.Ray = None,
    gpus_per_worker: hands.GpusPerWorker = 1,
    force: Annotated[
        bool, typer.Option("--force", help="Also edits made for another model, where shapes fit.")
    ] = False,
) -> None:
    """Ask the baseline and every edit the same items, each edit beside its matched random controls."""
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
