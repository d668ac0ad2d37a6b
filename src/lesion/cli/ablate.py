"""`lesion ablate`, `run` and `report`: the commands that make and show a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lesion.cli import engine_options as hands
from lesion.cli.parsing import whole
from lesion.cli.progress import Bar
from lesion.cli.terminal import Terminal, say, tame
from lesion.engines.config import EngineChoice
from lesion.engines.opening import opened
from lesion.errors import UsageError
from lesion.outputs import default_folder
from lesion.plain import plain
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
    _run(study, out, EngineChoice(engine, workers, ray, gpus_per_worker))


def run_study(
    study: Annotated[str | None, typer.Argument(metavar="[STUDY.toml|NAME]")] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the studies shipped with the package.")] = False,
    workers: hands.Workers = None,
    ray: hands.Ray = None,
    gpus_per_worker: hands.GpusPerWorker = 1,
    out: Out = None,
) -> None:
    """Run a study file, or a study shipped with the package."""
    from lesion.cli import drift, isolate, recall, truncate, tune
    from lesion.studies.drift.study import DriftStudy
    from lesion.studies.isolation.study import IsolationStudy
    from lesion.studies.registry import load_study
    from lesion.studies.truncation.study import TruncationStudy
    from lesion.studies.tuning.study import TuningStudy

    if listing:
        for name in shipped():
            say(f"{name:36} {load_study(name).title or ''}")
        return
    if study is None:
        raise UsageError("Say which study to run: a file, or one of `lesion run --list`.")
    found = load_study(study)
    folder = out or default_folder(found.name, found.identity())
    choice = EngineChoice(getattr(found, "engine", None) or "transformers", workers, ray, gpus_per_worker)
    if isinstance(found, Study):
        _run(found, folder, choice)
    elif isinstance(found, TruncationStudy):
        truncate.run(found, folder, choice)
    elif isinstance(found, TuningStudy):
        tune.run(found, folder, choice)
    elif isinstance(found, DriftStudy):
        drift.run(found, folder, choice)
    elif isinstance(found, IsolationStudy):
        isolate.run(found, folder, choice)
    elif choice.distributed:
        raise UsageError("A laboratory trains its models in this process; leave --workers and --ray out.")
    else:
        recall.run(found, folder)


def report(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a study.")]) -> None:
    """Write the report of a study, an isolation, an evaluation, a search or a laboratory's training anew."""
    from lesion.report.files import received

    with received(folder):
        _report(folder)


def _report(folder: Path) -> None:
    from lesion.cli import drift, isolate, memory, overlay, truncate, tune
    from lesion.cli import recall as laboratory
    from lesion.core.cost import beside
    from lesion.studies.ablation import report as page
    from lesion.studies.ablation import tables
    from lesion.studies.ablation.run import recall

    if (
        overlay.show(folder)
        or tune.show(folder)
        or isolate.show(folder)
        or truncate.show(folder)
        or drift.show(folder)
        or laboratory.show(folder)
        or memory.show(folder)
    ):
        return
    _, summary, answers, items = recall(folder)
    path = page.write(folder, summary, answers, items)
    console = Terminal()
    console.print(tables.text(tame(beside(summary, folder))))
    for note in summary["notes"]:
        console.note(note)
    _tell_families(console, summary)
    say(f"report: {path}")


def _run(study: Study, out: Path | None, choice: EngineChoice) -> None:
    # Imported when there is something to run: help and wrong options need not wait for torch.
    from lesion.core.cost import beside
    from lesion.studies.ablation import report as page
    from lesion.studies.ablation import tables
    from lesion.studies.ablation.run import recall, run

    folder = out or default_folder(study.name, study.identity())
    with Bar() as bar:
        try:
            with opened(choice, bar) as make_engine:
                outcome = run(study, folder, watcher=bar, make_engine=make_engine)
        except KeyboardInterrupt:
            bar.say(
                f"Stopped. Every answer so far is kept in {folder}; the same command goes on from there,"
                f" and `lesion report {folder}` shows what there is."
            )
            raise
    _, _, answers, items = recall(folder)
    path = page.write(folder, outcome.summary, answers, items)
    console = Terminal()
    console.print(tables.text(tame(beside(outcome.summary, folder))))
    for note in outcome.summary["notes"]:
        if note not in bar.told:
            console.note(note)
    _tell_families(console, outcome.summary)
    stored = outcome.planned - outcome.asked
    say(
        f"asked {outcome.asked:,} of {outcome.planned:,} answers" + (f"; {stored:,} were stored already" * (stored > 0))
    )
    say(f"report: {path}")


def _tell_families(console: Terminal, summary: dict[str, Any]) -> None:
    """The paragraph on every family of models in the study: is the importance of layers the same in all of them?"""
    for family in (summary.get("invariance") or {}).get("families", ()):
        console.print()
        console.print(plain(f"{family['family']}: {family['verdict']['text']}"))
