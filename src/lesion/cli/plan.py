"""`lesion plan STUDY.toml --out DIR`: hypotheses written down before any answer is there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lesion.cli.terminal import Terminal, say
from lesion.errors import UsageError


def plan(
    study: Annotated[str, typer.Argument(metavar="STUDY.toml", help="A layer study with tables of hypotheses.")],
    out: Annotated[Path, typer.Option("--out", help="Folder in which the study will run.")],
) -> None:
    """Write down what a layer study expects, with a hash, before it has any answer."""
    from lesion.core.database import FILE as DATABASE
    from lesion.core.layers import parse_layers
    from lesion.core.store import Store
    from lesion.edits.place import address
    from lesion.edits.units import scale_at
    from lesion.models.load import peek
    from lesion.registry import load_study
    from lesion.report.table import Table, Wide
    from lesion.studies.ablation.analyses import plan as shown
    from lesion.studies.ablation.plan.plan import FILE, prospects, read, refuse_not_evaluated, register
    from lesion.studies.ablation.study import Study

    given = load_study(study)
    if not isinstance(given, Study):
        raise UsageError(f"{study} is a study of kind {getattr(given, 'kind', '')}; a plan is of a layer study.")
    for chosen in given.models:
        blocks = peek(chosen.source, revision=chosen.revision)
        if blocks is not None:
            layers = parse_layers(given.edits.layers, blocks, chosen.name)
            places = {address(layer, unit) for layer in layers for unit in given.edits.unit}
            # How many heads or experts a block has is known with the model alone.
            inner = [each.place for each in given.hypotheses if scale_at(each.place, 0.0)]
            places |= {place for place in inner if int(place.partition(".")[0]) in layers}
            refuse_not_evaluated(given, chosen.name, places)
    rows = shown.prospects(prospects(given))
    Terminal().print(Wide(Table.of(rows).terminal()), rows.caption)
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
