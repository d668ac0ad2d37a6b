"""`lesion truncate`: search for a part of a matrix whose removal makes the model better (LASER)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lesion.cli import engine_options as hands
from lesion.cli.parsing import numbers, whole
from lesion.cli.running import run
from lesion.engines.config import EngineChoice
from lesion.errors import UsageError
from lesion.studies.truncation.method import METHOD
from lesion.studies.truncation.study import TruncationStudy


def truncate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model: bundled:NAME, a local folder, or a hub id.")],
    task: Annotated[
        list[str],
        typer.Option(
            help="Task: primer:arithmetic, ioi, facts:PATH, gsm8k, fewshot:4:gsm8k, FILE.jsonl, …; repeatable."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Output folder; running again into it continues the study.")],
    matrices: Annotated[
        str, typer.Option(help="Matrices, comma-separated: mlp.up, attention.o, …, a branch (mlp, attention), or all.")
    ] = "mlp",
    layers: Annotated[str, typer.Option(help="Blocks: all, or numbers and ranges such as 0-3,7.")] = "all",
    keep: Annotated[
        str | None, typer.Option(help="Kept fractions of the rank, comma-separated; default: 14 from 0.9 to 0.0025.")
    ] = None,
    side: Annotated[str, typer.Option(help="Side of the spectrum that is kept: top, bottom or both.")] = "top",
    compose: Annotated[bool, typer.Option("--compose", help="Add further matrices greedily while that helps.")] = False,
    revisions: Annotated[
        str | None,
        typer.Option(help="Training checkpoints, comma-separated, on which the chosen edit is evaluated too."),
    ] = None,
    objective: Annotated[
        str, typer.Option(help="Selection criterion: accuracy, or gold (log-probability of the gold answers).")
    ] = "accuracy",
    validation: Annotated[float, typer.Option(help="Share of items for choosing an edit; the others test it.")] = 0.2,
    screen: Annotated[
        str,
        typer.Option(
            help="auto, none, or how many of the best cells are asked in full after a look at all by log-probability"
            " alone; 8 more are drawn at random to judge the screen."
        ),
    ] = "auto",
    screen_items: Annotated[
        str, typer.Option(help="Number of validation items per task for the screen, or all.")
    ] = "all",
    eliminate: Annotated[
        float | None,
        typer.Option(help="Discard hopeless cells early, with this probability of any error, such as 0.05."),
    ] = None,
    items: Annotated[str, typer.Option(help="Number of items per task, drawn with the seed; or all.")] = "100",
    seed: Annotated[int, typer.Option(help="Random seed of the item draw and of its split.")] = 0,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Maximum length of an answer in tokens; default: the task's own.")
    ] = None,
    stop_loops: hands.StopLoops = None,
    prompt_style: Annotated[
        str | None, typer.Option(help="Prompt style: auto, raw, chat, plain, …; default: the task's own.")
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
    """Search for a part of a matrix whose removal improves a model, chosen on some items and tested on the others."""
    study = TruncationStudy.make(
        name="truncation",
        model=model,
        tasks=task,
        matrices=_words(matrices, "--matrices"),
        layers=layers,
        **({} if keep is None else {"keep": numbers(keep, float, "--keep")}),
        side=side,
        compose=compose,
        revisions=[] if revisions is None else _words(revisions, "--revisions"),
        objective=objective,
        validation=validation,
        screen=_screen(screen, screen_items),
        items=whole(items),
        seed=seed,
        level=level,
        batch_size=whole(batch_size),
        dtype=dtype,
        device=device,
        engine=engine,
        decoding={"max_new_tokens": max_new_tokens, "stop_loops": stop_loops},
        **({} if eliminate is None else {"eliminate": eliminate}),
        **({} if prompt_style is None else {"prompt_style": prompt_style}),
    )
    run(METHOD, study, out, EngineChoice(engine, workers, ray, gpus_per_worker))


def _words(text: str, option: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(f"{option} takes names by commas; there is nothing between two of them in '{text}'.")
    return words


def _screen(screen: str, items: str) -> Any:
    if screen in ("auto", "none") and items == "all":
        return screen
    if screen == "none":
        raise UsageError("--screen-items says how much a screen looks at, and --screen none has none; leave one out.")
    best = {} if screen == "auto" else {"best": whole(screen)}
    if isinstance(best.get("best"), str):
        raise UsageError(f"--screen is auto, none or a number of cells, not '{screen}'.")
    return {**best, "items": whole(items)}
