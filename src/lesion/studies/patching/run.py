"""Running a patching study: pairs of prompts, both runs, every patch that is not stored, and the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lesion.core import cells
from lesion.core.layers import parse_layers
from lesion.core.lock import locked
from lesion.core.preflight import refuse_unshared
from lesion.core.run import Run
from lesion.core.store import refuse_another, study_there
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.engines.transformers.engine import refuse_simple
from lesion.errors import UsageError
from lesion.models.load import Model
from lesion.report import wording
from lesion.report.values import Value
from lesion.studies.patching.passes import Pair, Patch, Place, Readout, pair_of, patched, places_of, read
from lesion.studies.patching.report import PatchingResult
from lesion.studies.patching.result import DIRECTIONS, Direction, PatchedTask, PatchingSummary
from lesion.studies.patching.study import KINDS, PatchingStudy
from lesion.studies.patching.summary import Measured, name_of, summarise
from lesion.tasks.catalogue import find
from lesion.tasks.counterparts import corruptions_of
from lesion.tasks.task import Item, Task


def run_patching(study: PatchingStudy, run: Run) -> PatchingResult:
    """Patch every model on every task; what is stored of a pair is not run again."""
    run.refuse_elsewhere("Activations are patched")
    questions = study.questions()
    tasks = {choice: find(choice.name) for choice in study.tasks}
    items = run.drawn(questions, tasks)
    for choice, task in tasks.items():
        corruptions_of(task, items[choice][0])  # refused before any model is loaded
    for chosen in run.unloaded(study.models, questions, tasks):
        refuse_unshared(chosen, "patching", trust_remote_code=run.trusts_code)
    refuse_another(run.folder, "patching study", study_there(PatchingSummary, run.folder), study)
    work = _Work(study, run)
    with locked(run.folder, "patching"):
        for chosen in study.models:
            model = run.load(questions, chosen, finite=True)
            refuse_simple(model, "patching")
            for choice, task in tasks.items():
                work.measure(chosen, model, choice, task, items[choice])
            del model
    return PatchingResult(run.folder, work.summary(), work.evaluated, work.planned)


class Readouts(Value):
    """The readouts of a pair: of both runs, and of every patch by `name_of`."""

    readouts: dict[str, Readout]


class _Work:
    """The study at work: what has been measured so far."""

    def __init__(self, study: PatchingStudy, run: Run) -> None:
        self.study, self.run = study, run
        self.evaluated = self.planned = 0
        self.tasks: list[PatchedTask] = []
        self.notes: list[str] = []

    def summary(self) -> PatchingSummary:
        """What there is so far."""
        return PatchingSummary(study=self.study, tasks=self.tasks, notes=tuple(dict.fromkeys(self.notes)))

    def measure(self, chosen: ModelChoice, model: Model, choice: TaskChoice, task: Task, items: Sequence[Item]) -> None:
        """One model on one task, with the summary written at the end."""
        style = self.study.questions().prompt_style_of(chosen, choice)
        pair_by_item = {item.id: pair_of(model, task, item, style) for item in items}
        pairs = [pair for pair in pair_by_item.values() if pair is not None]
        left_out = [identity for identity, pair in pair_by_item.items() if pair is None]
        if not pairs:
            raise UsageError(
                f"None of {wording.counted(len(items), 'item')} of {choice.name} has a corrupted prompt of as many"
                f" tokens of {chosen.name} with another answer; give more items with --items, or another task."
            )
        if left_out:
            self.note(
                f"{chosen.name}, {choice.name}: {len(left_out)} of {wording.counted(len(items), 'item')} left out, for"
                " which there is no corrupted prompt of as many tokens with another answer."
            )
        places = self.places(chosen, model)
        wanted = {pair.item: self.patches(pair, places) for pair in pairs}
        if not any(wanted.values()):
            raise UsageError(
                f"No pair of {choice.name} has tokens at --position {', '.join(self.study.position)}; leave it out to"
                " patch every class of positions."
            )
        decided = {"model": model.fingerprint, "dtype": str(model.dtype)}
        asked = ("clean", "corrupted", "right", "tempting")
        keys = {pair.item: cells.key_of({**decided, **{name: getattr(pair, name) for name in asked}}) for pair in pairs}
        kept = cells.read_all(self.run.folder, keys, Readouts, self.run.watcher.note, chosen.name)
        stored = {item: kept[item].readouts if item in kept else {} for item in keys}
        total = sum(2 + len(patches) for patches in wanted.values())
        missing = {item: {n: p for n, p in wanted[item].items() if n not in stored[item]} for item in wanted}
        done = total - sum(map(len, missing.values())) - 2 * sum("clean" not in stored[item] for item in wanted)
        self.planned += total
        if done < total:
            self.run.watcher.begin(f"{chosen.name}, {choice.name}", total, done, "patched runs")
        measured = []
        for pair in pairs:
            readouts = stored[pair.item]
            if missing[pair.item] or "clean" not in readouts:
                readouts = self.run_pair(model, pair, keys[pair.item], missing[pair.item], readouts)
            patches = {name: readouts[name] for name in wanted[pair.item]}
            measured.append(Measured(pair, readouts["clean"], readouts["corrupted"], patches))
        names = {"model": chosen.name, "task": choice.name}
        blocks = len(model.anatomy.blocks)
        self.tasks.append(summarise(measured, places, self.study.level, blocks=blocks, left_out=left_out, **names))
        self.summary().write(self.run.folder)

    def run_pair(
        self,
        model: Model,
        pair: Pair,
        key: str,
        missing: Mapping[str, tuple[Direction, Patch]],
        before: Mapping[str, Readout],
    ) -> dict[str, Readout]:
        """The readouts of a pair with those that were missing, kept."""
        clean, corrupted, values = read(model, pair)
        readouts = {**before, "clean": clean, "corrupted": corrupted}
        size = self.study.batch_size if isinstance(self.study.batch_size, int) else None
        for direction in DIRECTIONS:
            names = [name for name, (of, _) in missing.items() if of == direction]
            patches = [missing[name][1] for name in names]
            readouts |= zip(names, patched(model, pair, values, direction, patches, size), strict=True)
        cells.write(self.run.folder, key, Readouts(readouts=readouts))
        count = len(readouts) - len(before)
        self.evaluated += count
        self.run.watcher.answered(count)
        return readouts

    def places(self, chosen: ModelChoice, model: Model) -> list[Place]:
        """The places that are patched; said of those that cannot be."""
        units, layers = self.study.unit, parse_layers(self.study.layers, len(model.anatomy.blocks), chosen.name)
        wanted = [place for place in places_of(model) if place.layer in set(layers) and place.kind in units]
        missing = {(kind, layer) for kind in units for layer in layers} - {(each.kind, each.layer) for each in wanted}
        if not wanted and set(units) == {"head"}:
            model.anatomy.heads(layers[0])  # says why they are not known
        if missing:
            names = wording.listed([kind for kind in KINDS if kind in {kind for kind, _ in missing}])
            where = f"{names} of {wording.numbered('block', sorted({layer for _, layer in missing}))}"
            why = "no module is known that makes it alone and for this block alone"
            if not wanted:
                raise UsageError(f"{chosen.name}: {where} cannot be patched, since {why}; take --unit block.")
            self.note(f"{chosen.name}: {where} not patched, since {why}.")
        return sorted(wanted, key=lambda place: (KINDS.index(place.kind), place.layer, place.head or 0))

    def patches(self, pair: Pair, places: Sequence[Place]) -> dict[str, tuple[Direction, Patch]]:
        """Every patch of a pair by its name; the whole stream at all positions is left out, which restores all."""
        return {
            name_of(direction, place, position): (direction, Patch(place, where))
            for direction in DIRECTIONS
            for place in places
            for position, where in pair.positions.items()
            if position in self.study.position and (place.kind, position) != ("block", "all")
        }

    def note(self, text: str) -> None:
        """Say it now and in the summary."""
        if text not in self.notes:
            self.notes.append(text)
            self.run.watcher.note(text)
