"""`lesion ablate`, `run` and `report`: the commands that make and show a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lesion.cli import engine_options as hands
from lesion.cli.parsing import whole
from lesion.cli.running import run, show
from lesion.cli.terminal import say
from lesion.engines.config import EngineChoice
from lesion.errors import UsageError
from lesion.studies.ablation.method import METHOD
from lesion.studies.ablation.study import Study, shipped, stopping

EFFECT = 0.1  # as in a study file

Out = Annotated[
    Path | None,
    typer.Option("--out", help="Output folder; running again into it continues the study."),
]


def ablate(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="Model: bundled:NAME, a local folder, or a hub id.")
    ],
    task: Annotated[
        list[str],
        typer.Option(
            help="Task: gsm8k, math500, triviaqa, TASK:PATH, questions.jsonl, primer:arithmetic, …; repeatable."
        ),
    ],
    unit: Annotated[
        list[str] | None, typer.Option(help="Part of each block to scale: block, attention or mlp; repeatable.")
    ] = None,
    layers: Annotated[str, typer.Option(help="Blocks: all, or numbers and ranges such as 0-3,7.")] = "all",
    factor: Annotated[float, typer.Option(help="Scale factor: 0 ablates, 1 changes nothing.")] = 0.0,
    revisions: Annotated[
        str | None,
        typer.Option(help="Training checkpoints to study as well: all, or a comma-separated list."),
    ] = None,
    items: Annotated[str, typer.Option(help="Number of items per task, drawn with the seed; or all.")] = "100",
    seed: Annotated[int, typer.Option(help="Random seed of the item draw and of sampling.")] = 0,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Maximum length of an answer in tokens; default: the task's own.")
    ] = None,
    prompt_style: Annotated[
        str | None, typer.Option(help="Prompt style: auto, raw, chat, plain, or a paper's; default: the task's own.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="Sampling temperature; 0 is greedy.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Nucleus (top-p) of sampling.")] = 1.0,
    level: Annotated[
        float, typer.Option(help="Confidence level of the intervals; with --stop-when 1 − the false discovery rate.")
    ] = 0.95,
    stop_when: Annotated[
        str | None,
        typer.Option(
            "--stop-when",
            metavar="decided",
            help="Stop evaluating a layer once it is decided whether its drop exceeds --effect.",
        ),
    ] = None,
    effect: Annotated[
        float | None,
        typer.Option(help="With --stop-when: smallest drop in accuracy that counts.", show_default=str(EFFECT)),
    ] = None,
    screen: Annotated[
        bool, typer.Option("--screen", help="First score the gold solutions under every edit (cheap; ranks layers).")
    ] = False,
    stop_loops: hands.StopLoops = None,
    batch_size: Annotated[str, typer.Option(help="Number of sequences decoded together, or auto.")] = "auto",
    dtype: Annotated[str, typer.Option(help="Data type: auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1, …")] = "auto",
    engine: hands.Engine = "transformers",
    workers: hands.Workers = None,
    ray: hands.Ray = None,
    gpus_per_worker: hands.GpusPerWorker = 1,
    out: Out = None,
) -> None:
    """Ablate one block at a time and measure, with intervals, what each task loses."""
    chosen: list[Any] = list(models)
    if revisions is not None:
        from lesion.studies.ablation.invariance.revisions import over_time

        chosen, notes = over_time(models, revisions)
        for note in notes:
            say(f"note: {note}")
    if effect is not None and stop_when is None:
        raise UsageError("--effect says when to stop asking; give --stop-when decided with it, or leave it out.")
    if stop_when is None and 0 < level < 0.5:
        raise UsageError(
            f"Intervals at a level of {level:g} would mostly miss the truth; say --level {1 - level:g}, or give"
            f" --stop-when decided, with which --level {level:g} is the false discovery rate allowed."
        )
    decoding: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "stop_loops": stop_loops}
    if max_new_tokens is not None:
        decoding["max_new_tokens"] = max_new_tokens
    study = Study.make(
        name="ablation",
        models=chosen,
        tasks=task,
        items=whole(items),
        seed=seed,
        batch_size=whole(batch_size),
        dtype=dtype,
        device=device,
        engine=engine,
        **{"level": level, **stopping(stop_when, EFFECT if effect is None else effect, level, screen)},
        edits={"unit": unit or ["block"], "layers": layers, "factor": factor},
        decoding=decoding,
        **({"prompt_style": prompt_style} if prompt_style is not None else {}),
    )
    run(METHOD, study, out, EngineChoice(engine, workers, ray, gpus_per_worker))


def run_study(
    study: Annotated[str | None, typer.Argument(metavar="[STUDY.toml|NAME]")] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the studies shipped with the package.")] = False,
    workers: hands.Workers = None,
    ray: hands.Ray = None,
    gpus_per_worker: hands.GpusPerWorker = 1,
    out: Out = None,
) -> None:
    """Run a study file, or a study shipped with the package."""
    from lesion.studies.registry import load_study, method_of

    if listing:
        for name in shipped():
            say(f"{name:36} {load_study(name).title or ''}")
        return
    if study is None:
        raise UsageError("Say which study to run: a file, or one of `lesion run --list`.")
    plan = load_study(study)
    choice = EngineChoice(getattr(plan, "engine", None) or "transformers", workers, ray, gpus_per_worker)
    run(method_of(plan), plan, out, choice)


def report(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a study.")]) -> None:
    """Regenerate report.html from an output folder."""
    from lesion.report.files import received

    with received(folder):
        _report(folder)


def _report(folder: Path) -> None:
    from lesion.cli import overlay
    from lesion.studies.registry import recall

    if not overlay.show(folder):
        show(recall(folder))
