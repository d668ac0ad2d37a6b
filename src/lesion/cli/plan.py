"""`lesion plan STUDY.toml --out DIR`: hypotheses written down before any answer is there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lesion.cli.terminal import say
from lesion.errors import UsageError


def plan(
    study: Annotated[str, typer.Argument(metavar="STUDY.toml", help="A layer study with tables of hypotheses.")],
    out: Annotated[Path, typer.Option("--out", help="Folder in which the study will run.")],
) -> None:
    """Write down what a layer study expects, with a hash, before it has any answer."""
    from lesion.core.database import FILE as DATABASE
    from lesion.core.store import Store
    from lesion.registry import load_study
    from lesion.studies.ablation.plan import FILE, prospects, read, register
    from lesion.studies.ablation.study import Study

    given = load_study(study)
    if not isinstance(given, Study):
        raise UsageError(f"{study} is a study of kind {getattr(given, 'kind', '')}; a plan is of a layer study.")
    for sentence in prospects(given):
        say(sentence)
    there = 0
    if (out / DATABASE).is_file():
        with Store.read(out) as store:
            tasks = {each.task for each in given.hypotheses}
            there = int(store.answers()["task"].isin(tasks).sum())
    note = register(out, given, there)
    say(note or f"{out / FILE} is the plan of this study already.")
    written = read(out)
    say(f"SHA-256 {written['sha256'] if written else ''}")
    say(f"Run it: lesion run {study} --out {out}")
