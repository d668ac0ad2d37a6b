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
    model: Annotated[str, typer.Argument(metavar="MODEL", help="bundled:NAME, a folder, or a hub id.")],
    task: Annotated[str, typer.Option(help="A task with a training split: primer:arithmetic, gsm8k, triviaqa, …")],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for model and report; run again into it, it goes on where it stopped.")
    ],
    layers: Annotated[
        str,
        typer.Option(
            help="Which blocks: critical, least, random (of those that are not critical, where it is known which are),"
            " all, all-adapter, or layers such as 0-3,7."
        ),
    ] = "critical",
    budget: Annotated[
        str, typer.Option(help="How many blocks critical, least and random are: a number, or a share such as 25%.")
    ] = "25%",
    steps: Annotated[int, typer.Option(help="Steps of the training.")] = 40,
    rows: Annotated[int, typer.Option(help="Rows of a step.")] = 16,
    learning_rate: Annotated[
        str, typer.Option(help="The largest rate; of several by commas, the best on held-out training items is kept.")
    ] = "1e-3",
    adapter: Annotated[
        int | None,
        typer.Option(help="Train low-rank adapters of this rank, merged at the end, in place of the blocks."),
    ] = None,
    control: Annotated[
        list[str] | None, typer.Option(help="A task that should survive, asked before and after; repeatable.")
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(help="Folder of a layer study of this model and task that says which blocks are critical."),
    ] = None,
    items: Annotated[int, typer.Option(help="Test items of the task, asked before and after.")] = 400,
    control_items: Annotated[int, typer.Option(help="Test items of each control, at most.")] = 200,
    ablation_items: Annotated[
        int, typer.Option(help="Items on which the critical blocks are found, where no --study says them.")
    ] = 100,
    validation_items: Annotated[int, typer.Option(help="Training items held out to choose among several rates.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the order of the rows, and of random blocks.")] = 0,
    max_new_tokens: Annotated[int | None, typer.Option(help="Limit for one answer.")] = None,
    stop_loops: hands.StopLoops = None,
    prompt_style: Annotated[
        str | None, typer.Option(help="auto, raw, chat, plain, …; the task has its own by default.")
    ] = None,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    batch_size: Annotated[str, typer.Option(help="Rows decoded at once, or auto.")] = "auto",
    dtype: Annotated[str, typer.Option(help="float32, in which alone small steps are kept.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    workers: hands.Workers = None,
    ray: hands.Ray = None,
    gpus_per_worker: hands.GpusPerWorker = 1,
) -> None:
    """Fine-tune only chosen blocks on a task, and show what it gains there and costs elsewhere."""
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
