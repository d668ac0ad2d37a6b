"""`lesion lab`: train or compile the small models that the methods are tested on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lesion.cli import running
from lesion.cli.commands import command
from lesion.cli.help import epilog
from lesion.cli.parsing import checked
from lesion.cli.terminal import Terminal, say
from lesion.core.method import Method
from lesion.core.options import HARDWARE
from lesion.engines.config import EngineChoice
from lesion.errors import UsageError
from lesion_labs.kinds import PLANTED, refuse_kind, refuse_stage
from lesion_labs.recall.study_file import METHOD, RecallStudy

app = typer.Typer(help="Train the small models that the methods are studied on.", no_args_is_help=True)


@app.callback(rich_help_panel="Labs")
def _group() -> None:
    """Keeps every laboratory a command of its own."""


def lineage(
    stage: Annotated[str, typer.Option(help="Model to train: base, instruct, rlvr or distill; or all.")] = "base",
    family: Annotated[str | None, typer.Option(help="llama or qwen2; llama, unless --base is of the other.")] = None,
    out: Annotated[
        Path, typer.Option(help="Output folder of the family; each model is written to STAGE/model.")
    ] = Path("lesion-lineage"),
    seed: Annotated[int, typer.Option(help="Random seed of weights, data and sampling.")] = 0,
    base: Annotated[str | None, typer.Option(help="Base model of the children, if the folder has none.")] = None,
    groups: Annotated[
        int | None,
        typer.Option(min=1, help="Groups of 2,048 documents to train the base on; fewer make a quicker, weaker model."),
    ] = None,
    device: Annotated[str, typer.Option(help="Device: auto, cpu or cuda.", rich_help_panel=HARDWARE)] = "auto",
    checkpoints: Annotated[
        int,
        typer.Option(help="Number of base checkpoints to keep (revisions stepN, early ones closer together); 0: none."),
    ] = 12,
) -> None:
    """Train a base model from scratch, and its children: tuned on chats, reinforced, distilled from the reinforced.

    Run again into the same folder, it goes on where it stopped.
    """
    refuse_stage(stage)
    from lesion.cli.terminal import Bar
    from lesion_labs.lineage import members as families
    from lesion_labs.lineage.shipping import table

    with Bar() as bar:
        trained = families.train(
            out,
            stage,
            family=family,
            seed=seed,
            base=base,
            groups=groups,
            device=device,
            checkpoints=checkpoints,
            watcher=bar,
        )
    for folder in trained:
        say(str(folder))
    Terminal().print(table(families.finished(out, base)), end="", soft_wrap=True)


def planted(
    kind: Annotated[str, typer.Option(help=f"Kind of truth: {', '.join(PLANTED)}; or all.")] = "all",
    out: Annotated[Path, typer.Option(help="Output folder; each model is written to KIND-SEED.")] = Path(
        "lesion-planted"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Random seed of weights, places and the table of the skill.")] = 0,
) -> None:
    """Make small models in which the place of a skill is known, to score methods on.

    What the folder has already is not made again.
    """
    refuse_kind(kind)
    from lesion.cli.terminal import Bar
    from lesion_labs.planted.run import plant

    with Bar() as bar:
        folders = plant(out, kind, seed, watcher=bar)
    for folder in folders:
        say(str(folder))


def _run_recall(
    method: Method[RecallStudy],
    study: RecallStudy,
    out: Path,
    choice: EngineChoice,
    *,
    every: bool = False,
    dry: bool = False,
    **outlets: str | None,
) -> None:
    """A single training is written into the folder by itself, several as a study."""
    from lesion.cli.terminal import Bar
    from lesion_labs.recall.report import TrainingResult
    from lesion_labs.recall.run import recipes, run

    planned = recipes(study)
    if len(planned) > 1:
        running.run(method, study, out, choice, every=every, dry=dry, **outlets)
        return
    if given := [name for name, value in outlets.items() if value is not None]:
        raise UsageError(f"A single training has no --{given[0]}; leave it out, or train several, as with --seed 0,1.")
    with Bar() as bar:
        try:
            summary = run(planned[0], out, corpus=study.corpus, device=study.device, watcher=bar)
        except KeyboardInterrupt:
            bar.say(f"Stopped. {method.kept.replace('{folder}', str(out))}")
            raise
    running.show(TrainingResult(out, summary), every=every)


app.command("lineage", epilog=epilog(("lesion lab lineage --stage all --out lineage",)))(checked(lineage))
app.command("planted", epilog=epilog(("lesion lab planted --kind block --seed 0 --out planted",)))(checked(planted))
app.command("recall", epilog=epilog(METHOD.examples))(checked(command(METHOD, _run_recall)))
