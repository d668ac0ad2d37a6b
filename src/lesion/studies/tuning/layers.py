"""Which blocks matter: the drop of accuracy without each, from a layer study's folder or from a quick ablation."""

from __future__ import annotations

from pathlib import Path

from lesion.core.run import Run
from lesion.errors import UsageError, nearest
from lesion.models.load import Model
from lesion.report.wording import counted
from lesion.studies.ablation.result import AblationSummary, read_finished
from lesion.studies.ablation.study import METHOD, Study
from lesion.studies.tuning.result import Drops
from lesion.studies.tuning.study import TuningStudy
from lesion.tasks.catalogue import canonical

FOLDER = "layers"
"""Where in a study's folder its own ablation lies: a layer study like any other."""


def ablated(study: TuningStudy, model: Model, run: Run) -> Drops:
    """Switch off one block after another on a few items, in `layers` of the study's folder; what is there is kept.

    The items are the first of the draw; test items are never among them (`tuning_data.prepare`).
    """
    layers = Study.make(
        name="layers",
        models=[study.model.model_dump(exclude_none=True)],
        tasks=[study.task],
        items=study.ablation_items,
        dtype="float32",
        **study.answering,
    )
    place = run.folder / FOLDER
    run.watcher.note(
        f"Which blocks are critical is found by switching off each of {len(model.anatomy.blocks)} on"
        f" {counted(study.ablation_items, 'item')}, none of them a test item; it is kept in {place}."
    )
    models = {study.model.name: model}
    outcome = METHOD.run(layers, place, watcher=run.watcher, models=models, make_engine=run.make_engine)
    outcome.summary.write(place)
    return _drops(outcome.summary, study, len(model.anatomy.blocks), place, None)


def read(study: TuningStudy, blocks: int) -> Drops:
    """The drops of a layer study that was run before (`layers_from`), for this model and task."""
    source = str(study.layers_from)
    return _drops(read_finished(source, [study.model.name]), study, blocks, Path(source), source)


def _drops(summary: AblationSummary, study: TuningStudy, blocks: int, place: Path, source: str | None) -> Drops:
    name, which = study.model.name, f"The layer study in {place}"
    tasks = next(model.tasks for model in summary.models if model.model == name)
    result = next((task for task in tasks if canonical(task.task) == canonical(study.task)), None)
    if result is None:
        known = [task.task for task in tasks]
        raise UsageError(
            f"{which} asked {', '.join(known)}, not {study.task}{nearest(study.task, known)}; give one of this task, or"
            f" leave --study out."
        )
    off = {cell.layer: cell for cell in result.of("block", 0.0)}
    missing = [layer for layer in range(blocks) if layer not in off]
    if missing:
        raise UsageError(
            f"{which} did not switch off every block of {name}: block {missing[0]} is missing. Finish it, or leave"
            f" --study out."
        )
    return Drops(
        drops=[off[layer].drop.value or 0.0 for layer in range(blocks)],
        critical=[layer for layer in range(blocks) if off[layer].critical],
        items=result.items,
        source=source,
    )
