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
    typer.Option("--out", help="Folder of the study; run again into the same folder, it goes on where it stopped."),
]


def ablate(
    models: Annotated[list[str], typer.Argument(metavar="MODEL", help="bundled:NAME, a folder, or a hub id.")],
    task: Annotated[
        list[str],
        typer.Option(help="gsm8k, math500, triviaqa, TASK:PATH, questions.jsonl, primer:arithmetic, …; repeatable."),
    ],
    unit: Annotated[
        list[str] | None, typer.Option(help="What of each block to scale: block, attention or mlp; repeatable.")
    ] = None,
    layers: Annotated[str, typer.Option(help="all, or numbers and ranges such as 0-3,7.")] = "all",
    factor: Annotated[float, typer.Option(help="0 switches off; any finite number scales.")] = 0.0,
    revisions: Annotated[
        str | None,
        typer.Option(help="Checkpoints of the training too: all, or names by commas: step23,step256."),
    ] = None,
    items: Annotated[str, typer.Option(help="Items of each task, drawn by the seed; or all.")] = "100",
    seed: Annotated[int, typer.Option(help="Of the draw of items, and of sampling.")] = 0,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Limit for one answer; each task has its own by default.")
    ] = None,
    prompt_style: Annotated[
        str | None, typer.Option(help="auto, raw, chat, plain, or a paper's style; each task has its own by default.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 decodes greedily.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Nucleus for sampling.")] = 1.0,
    level: Annotated[
        float, typer.Option(help="Of the intervals; with --stop-when 0.05, the false discovery rate, says the same.")
    ] = 0.95,
    stop_when: Annotated[
        str | None,
        typer.Option(
            "--stop-when",
            metavar="decided",
            help="Stop asking about a layer once it is decided whether its drop exceeds --effect.",
        ),
    ] = None,
    effect: Annotated[
        float | None,
        typer.Option(help="With --stop-when: the smallest drop of accuracy that counts.", show_default=str(EFFECT)),
    ] = None,
    screen: Annotated[
        bool, typer.Option("--screen", help="First score gold solutions under every edit: cheap, and it ranks layers.")
    ] = False,
    stop_loops: hands.StopLoops = None,
    batch_size: Annotated[str, typer.Option(help="Rows decoded at once, or auto.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    engine: hands.Engine = "transformers",
    workers: hands.Workers = None,
    ray: hands.Ray = None,
    gpus_per_worker: hands.GpusPerWorker = 1,
    out: Out = None,
) -> None:
    """Switch off one block after another and show, with intervals, what each task loses."""
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


def report(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a study.")]) -> None:
    """Write the report of a study, an isolation, an evaluation, a search or a laboratory's training anew."""
    from lesion.report.files import received

    with received(folder):
        _report(folder)


def _report(folder: Path) -> None:
    from lesion.cli import memory, overlay
    from lesion.studies.registry import recall

    if not (overlay.show(folder) or memory.show(folder)):
        show(recall(folder))
