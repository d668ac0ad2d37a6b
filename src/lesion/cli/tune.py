"""`lesion tune`: fine-tune chosen blocks of a model on a task, the rest frozen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lesion.cli import engine_options as hands
from lesion.cli.parsing import numbers, whole
from lesion.cli.running import run
from lesion.engines.config import EngineChoice
from lesion.errors import UsageError
from lesion.studies.tuning.method import METHOD
from lesion.studies.tuning.study import TuningStudy


def tune(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model: bundled:NAME, a local folder, or a hub id.")],
    task: Annotated[str, typer.Option(help="Task with a training split: primer:arithmetic, gsm8k, triviaqa, …")],
    out: Annotated[
        Path, typer.Option("--out", help="Output folder for model and report; running again into it continues.")
    ],
    layers: Annotated[
        str,
        typer.Option(
            help="Which blocks: critical, least, random (of those that are not critical, where it is known which are),"
            " all, all-adapter, or layers such as 0-3,7."
        ),
    ] = "critical",
    budget: Annotated[
        str, typer.Option(help="Number of blocks in critical, least and random, or a share such as 25%.")
    ] = "25%",
    steps: Annotated[int, typer.Option(help="Number of training steps.")] = 40,
    rows: Annotated[int, typer.Option(help="Batch size of a training step.")] = 16,
    learning_rate: Annotated[
        str,
        typer.Option(
            help="Peak learning rate; of a comma-separated list, the best on held-out training items is kept."
        ),
    ] = "1e-3",
    adapter: Annotated[
        int | None,
        typer.Option(help="Train low-rank adapters of this rank (merged at the end) instead of the blocks."),
    ] = None,
    control: Annotated[
        list[str] | None, typer.Option(help="Control task, evaluated before and after; repeatable.")
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(help="Output folder of a layer study of this model and task; it defines the critical blocks."),
    ] = None,
    items: Annotated[int, typer.Option(help="Number of test items of the task.")] = 400,
    control_items: Annotated[int, typer.Option(help="Maximum number of test items per control.")] = 200,
    ablation_items: Annotated[
        int, typer.Option(help="Number of items to find the critical blocks on, without --study.")
    ] = 100,
    validation_items: Annotated[
        int, typer.Option(help="Number of training items held out to choose the learning rate.")
    ] = 200,
    seed: Annotated[int, typer.Option(help="Random seed of the row order and of random blocks.")] = 0,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Maximum length of an answer in tokens; default: the task's own.")
    ] = None,
    stop_loops: hands.StopLoops = None,
    prompt_style: Annotated[
        str | None, typer.Option(help="Prompt style: auto, raw, chat, plain, …; default: the task's own.")
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    batch_size: Annotated[str, typer.Option(help="Number of sequences decoded together, or auto.")] = "auto",
    dtype: Annotated[str, typer.Option(help="Data type; only float32, as small steps are lost in others.")] = "float32",
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1, …")] = "auto",
    workers: hands.Workers = None,
    ray: hands.Ray = None,
    gpus_per_worker: hands.GpusPerWorker = 1,
) -> None:
    """Fine-tune chosen blocks on a task and measure gains there and losses elsewhere."""
    if dtype not in ("float32", "fp32", "auto"):
        raise UsageError(
            f"A model is tuned in float32, in which small steps are kept, not in {dtype}; leave --dtype out."
        )
    asked = TuningStudy.make(
        name="tuning",
        model=model,
        task=task,
        controls=control or [],
        arms=[layers],
        budget=budget,
        steps=steps,
        rows=rows,
        learning_rates=numbers(learning_rate, float, "--learning-rate"),
        seeds=[seed],
        items=items,
        control_items=control_items,
        ablation_items=ablation_items,
        validation_items=validation_items,
        level=level,
        batch_size=whole(batch_size),
        device=device,
        stop_loops=stop_loops,
        **_given(adapter=adapter, layers_from=study, max_new_tokens=max_new_tokens, prompt_style=prompt_style),
    )
    run(METHOD, asked, out, EngineChoice("transformers", workers, ray, gpus_per_worker))


def _given(**options: Any) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}
