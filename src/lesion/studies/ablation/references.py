"""The references of a layer study: what replaces a place's contribution under each task, kept in the study's folder.

`mean` and `optimal` have one reference a task. `position` and `resample` have one for every frame of its items
(`lesion.activations.calibration`): texts behind the same solved problems, aligned with the items token by token.
Answers are stored under one edit all the same, named by the digest of all frames together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from lesion.activations.calibration import Calibration, Frame, calibration, frames
from lesion.activations.contributions import FEWEST_TEXTS as FEWEST_ALIGNED
from lesion.activations.contributions import PLACES, Kind, observed, reference, sampled
from lesion.activations.optimal import FEWEST_TEXTS, STEPS, fitted
from lesion.core.inference import PendingAnswer
from lesion.core.run import Evaluation, Pending
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.edits.reference import Reference, read_reference
from lesion.edits.replace import ReplacedUnit, place_of
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.studies.ablation.sweep import CONTRIBUTIONS, OF_HEADS, PlaceEdit, Replacement, made
from lesion.tasks.catalogue import calibration_items
from lesion.tasks.continuations import encode_solved
from lesion.tasks.task import Item, Task
from lesion.tasks.wrapped import gold_name

TEXTS = 100
"""So many texts of a task make its reference, or all that it has."""
FOLDER = "references"


ALIGNED_TEXTS = 50
"""So many texts of a frame, at most."""


@dataclass(frozen=True)
class OfFrame:
    """Items of one frame with the reference of its texts.

    Attributes:
        own: the place among the texts of `resample` at which an item itself stands; it is not drawn.
    """

    items: tuple[str, ...]
    reference: Reference
    own: int | None = None

    def draw(self, number: int) -> int:
        """The text of a draw: the texts in their order without the item itself."""
        return number if self.own is None or number < self.own else number + 1


@dataclass(frozen=True)
class Frames:
    """The references of all frames of a task."""

    frames: tuple[OfFrame, ...]

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of all references with their items."""
        parts = sorted(
            (each.reference.digest, -1 if each.own is None else each.own, *each.items) for each in self.frames
        )
        return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


References = Mapping[str, Mapping[str, Reference | Frames]]
"""References by task, and of each task by what they are the source of (`Replacement.source`)."""


def references_of(
    evaluation: Evaluation, chosen: ModelChoice, model: Model, edits: Sequence[PlaceEdit]
) -> dict[str, dict[str, Reference | Frames]]:
    """The references of every task of a study that its edits need, by the task's name and by that of its gold answers.

    A reference that the folder has of these weights is read; another one is made from prompts with their gold
    solutions, of items that are not evaluated; of all items, where too few are left for that and nothing is fitted.
    Every fitted place is kept as soon as it is done.
    """
    replaced = [edit for edit in edits if isinstance(edit, Replacement)]
    by_task: dict[str, dict[str, Reference | Frames]] = {}
    draws = 1 + max((edit.draw for edit in replaced), default=0)
    aligned = dict.fromkeys(edit.source for edit in replaced if edit.kind in ("position", "resample"))
    owners = [(choice, _OfTask(evaluation, chosen, choice, task, model)) for choice, task in evaluation.tasks.items()]
    of_frames = [own.frames(draws) if aligned else [] for _, own in owners]  # refused before anything is observed
    for (choice, own), aligned_texts in zip(owners, of_frames, strict=True):
        for source in dict.fromkeys(edit.source for edit in replaced if edit.kind == "mean"):
            own.observe(source)
        for source in aligned:
            replaced_there = {edit.address for edit in replaced if edit.source == source}
            own.align(source, aligned_texts, replaced_there, draws)
        if places := [edit.address for edit in replaced if edit.kind == "optimal"]:
            own.fit(places)
        by_task[choice.name] = by_task[gold_name(choice.name)] = own.references
    return by_task


class _OfTask:
    """The references of one model and task, read or made and kept."""

    def __init__(
        self, evaluation: Evaluation, chosen: ModelChoice, choice: TaskChoice, task: Task, model: Model
    ) -> None:
        self.evaluation, self.task, self.model = evaluation, task, model
        self.seed, self.watcher = evaluation.study.seed, evaluation.run.watcher
        self.style = evaluation.study.prompt_style_of(chosen, choice)
        self.decided = f"{chosen.name}|{choice.name}|{self.style}|{self.seed}"
        self.items = evaluation.items[choice]
        self.references: dict[str, Reference | Frames] = {}

    def observe(self, source: str) -> Reference:
        """Read or make the means, and what an optimum begins with."""
        stored = self._read(source)
        if stored is None:
            kinds: set[Kind] = {"mean", "resample"}
            units: Sequence[ReplacedUnit] = ("head",) if source.endswith(OF_HEADS) else PLACES
            stored = observed(self.model, self.texts, kinds, units, seed=self.seed, watcher=self.watcher)
            self._keep(source, stored)
        self.references[source] = stored
        return stored

    def frames(self, draws: int) -> list[Frame]:
        """The items with the texts that are aligned with them: one more than there are draws, and ten at least."""
        fewest = max(FEWEST_ALIGNED, draws + 1)
        return frames(self.model, self.task, self.items, style=self.style, texts=ALIGNED_TEXTS, fewest=fewest)

    def align(self, source: str, frames: Sequence[Frame], addresses: Set[str], draws: int) -> None:
        """Read or make the references of all frames, of the places that are replaced alone."""
        units = sorted({place_of(address)[1] for address in addresses})
        held: list[OfFrame] = []
        known = [self._read(_file(source, frame)) for frame in frames]
        missing = [
            stored is None or len(stored.texts) <= draws or not addresses <= stored.vectors["position"].keys()
            for stored in known
        ]
        if any(missing):
            texts_of = [len(frame.texts) for frame in frames]
            done = sum(count for count, lacks in zip(texts_of, missing, strict=True) if not lacks)
            self.watcher.begin(self.model.name, sum(texts_of), done, f"aligned texts of {self.task.name}")
        for number, (frame, stored, lacks) in enumerate(zip(frames, known, missing, strict=True), 1):
            texts = self._calibration(frame.texts)
            if stored is None or lacks:
                whole = reference(
                    self.model,
                    texts,
                    kinds=("position", "resample"),
                    units=units,
                    draws=draws + 1,
                    vectors=1,
                    seed=self.seed,
                )
                vectors = {
                    kind: {address: of for address, of in by_address.items() if address in addresses}
                    for kind, by_address in whole.vectors.items()
                }
                label = f"{whole.label}, frame {number} of {len(frames)}"
                stored = replace(whole, vectors=vectors, label=label)
                self._keep(_file(source, frame), stored)
                self.watcher.answered(len(frame.texts))
            questions = {text.id: text.question for text in frame.texts}
            order = [questions[texts.ids[place]] for place in sampled(texts, draws + 1, self.seed)]
            by_own: dict[int | None, list[str]] = {}
            for item in frame.items:
                by_own.setdefault(order.index(item.question) if item.question in order else None, []).append(item.id)
            held += [OfFrame(tuple(ids), stored, own) for own, ids in by_own.items()]
        self.references[source] = Frames(tuple(held))

    def fit(self, addresses: Sequence[str]) -> None:
        """Read or fit the constants of places, each of which is a reference of its own."""
        missing = []
        for address in addresses:
            stored = self._read(f"optimal {address}")
            if stored is None:
                missing.append(address)
            else:
                self.references[f"optimal {address}"] = stored
        if not missing:
            return
        if len(self.others) < FEWEST_TEXTS:
            raise UsageError(
                f"The optimal constant is fitted on at least {FEWEST_TEXTS} items that are not evaluated, and"
                f" {self.task.name} has {len(self.others)} of them: ask for fewer items (--items), or leave optimal out"
                " of --replace."
            )
        heads = [address for address in missing if place_of(address)[1] == "head"]
        whole = [address for address in missing if address not in heads]
        for source, places in ((CONTRIBUTIONS, whole), (f"{CONTRIBUTIONS} {OF_HEADS}", heads)):
            if not places:
                continue
            start = self.observe(source)
            about = (start.model, start.fingerprint, self.texts.label, start.tokens)
            for address, vector, fit in fitted(
                self.model, self.texts, places, start, STEPS, self.seed, None, self.watcher
            ):
                held = Reference(*about, {"optimal": {address: vector}}, {address: fit})
                self._keep(f"optimal {address}", held)
                self.references[f"optimal {address}"] = held

    @cached_property
    def others(self) -> list[Item]:
        """The items that are not evaluated."""
        evaluated = {item.id for item in self.items}
        return [item for item in calibration_items(self.task) if item.id not in evaluated]

    @cached_property
    def spelt(self) -> tuple[int, ...]:
        """The token ids of one text, whichever items are evaluated: another tokenizer or template has others."""
        return encode_solved(self.model, self.task, calibration_items(self.task)[0], self.style)

    @cached_property
    def texts(self) -> Calibration:
        """Prompts with their gold solutions."""
        pool = self.others if len(self.others) >= FEWEST_TEXTS else calibration_items(self.task)
        return self._calibration(pool, TEXTS)

    def _calibration(self, pool: Sequence[Item], most: int | None = None) -> Calibration:
        count = len(pool) if most is None else min(most, len(pool))
        return calibration(self.model, self.task, count, seed=self.seed, style=self.style, items=pool)

    def _path(self, source: str) -> Path:
        """The file of a source: what decides the reference, as a hash; how a text is put into tokens among it."""
        decided = hashlib.sha256(f"{self.decided}|{source}|{self.spelt}".encode("utf-8", "surrogatepass")).hexdigest()[
            :16
        ]
        return self.evaluation.run.folder / FOLDER / f"{decided}.safetensors"

    def _read(self, source: str) -> Reference | None:
        """The reference of these weights that the folder has; None where it has none."""
        path = self._path(source)
        if not path.is_file():
            return None
        try:
            stored = read_reference(path)
        except LesionError as error:
            raise LesionError(
                f"{error} Delete it to have it made anew; what was answered under it is answered again where the new"
                " one differs."
            ) from error
        return stored if stored.fingerprint == self.model.fingerprint else None

    def _keep(self, source: str, made: Reference) -> None:
        path = self._path(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        made.save(path)


def _file(source: str, frame: Frame) -> str:
    """What the reference of a frame is kept under."""
    texts = repr([(text.shots, text.question) for text in frame.texts])
    return f"{source} {hashlib.sha256(texts.encode('utf-8', 'surrogatepass')).hexdigest()}"


def pending_of(
    evaluation: Evaluation,
    chosen: ModelChoice,
    model: Model,
    edits: Sequence[PlaceEdit],
    references: References,
    tasks: Mapping[TaskChoice, Task] | None = None,
    items: Mapping[TaskChoice, Sequence[Item]] | None = None,
    stored: Container[str] | None = None,
) -> Pending:
    """The answers that are wanted of a model (`Evaluation.pending`), each task under edits with its own reference."""
    tasks = evaluation.tasks if tasks is None else tasks
    whole = Pending(0, {})
    for choice, task in tasks.items():
        held = references.get(choice.name, {})
        of_task = evaluation.items_of(choice) if items is None else items[choice]
        framed = [edit for edit in edits if isinstance(edit, Replacement) and isinstance(held[edit.source], Frames)]
        others = [made(edit, _single(edit, held)) for edit in edits if edit not in framed]
        part = evaluation.pending(chosen, model, others, {choice: task}, items, stored)
        cells = dict(part.cells)
        for edit in framed:
            of_frames = held[edit.source]
            if isinstance(of_frames, Frames):
                cells |= _of_frames(evaluation, chosen, model, edit, of_frames, {choice: task}, of_task, stored)
        whole = Pending(whole.total + part.total + len(framed) * len(of_task), whole.cells | cells)
    return whole


def _single(edit: PlaceEdit, held: Mapping[str, Reference | Frames]) -> Reference | None:
    of = held.get(edit.source) if isinstance(edit, Replacement) else None
    return of if isinstance(of, Reference) else None


def _of_frames(
    evaluation: Evaluation,
    chosen: ModelChoice,
    model: Model,
    edit: Replacement,
    frames: Frames,
    task: Mapping[TaskChoice, Task],
    items: Sequence[Item],
    stored: Container[str] | None,
) -> dict[str, PendingAnswer]:
    """The answers under one edit that has a reference of its own for every frame, stored under one name."""
    (choice,) = task
    name = f"{edit}@{frames.digest}"
    cells: dict[str, PendingAnswer] = {}
    for frame in frames.frames:
        in_frame = [item for item in items if item.id in frame.items]
        draw = frame.draw(edit.draw) if edit.kind == "resample" else 0
        if in_frame:
            edits = [made(edit, frame.reference, draw=draw, name=name)]
            cells |= evaluation.pending(chosen, model, edits, task, {choice: in_frame}, stored).cells
    return cells
