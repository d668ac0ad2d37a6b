"""The references of a layer study: what replaces a place's contribution under each task, kept in the study's folder.

`mean` and `optimal` have one reference a task. `position` and `resample` have one for every frame of its items
(`lesion.activations.calibration`): texts behind the same solved problems, aligned with the items token by token.
Answers are stored under one edit all the same, named by the digest of all frames together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from lesion.activations.calibration import Calibration, Frame, calibration, frames
from lesion.activations.contributions import FEWEST_TEXTS as FEWEST_ALIGNED
from lesion.activations.contributions import PLACES, Kind, observed, reference, sampled
from lesion.activations.optimal import FEWEST_TEXTS, STEPS, fitted
from lesion.core.run import Evaluation, Pending
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.edits.edit import Edit, Scale
from lesion.edits.reference import Reference, read_reference
from lesion.edits.replace import Replace, ReplacedUnit, place_of
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.studies.ablation.sweep import CONTRIBUTIONS, OF_HEADS, PlaceEdit, Replacement, source_of
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
        own: the place among the texts of `resample` at which an item itself stands, which is not drawn; −1: nowhere.
    """

    items: tuple[str, ...]
    reference: Reference
    own: int = -1

    def draw(self, edit: Replacement) -> int:
        """The number of the text for a draw of `resample`: in their order, without the item itself."""
        passed_over = edit.kind == "resample" and 0 <= self.own <= edit.draw
        return edit.draw + passed_over


@dataclass(frozen=True)
class Frames:
    """The references of all frames of a task."""

    frames: tuple[OfFrame, ...]

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of all references with their items."""
        return _hashed(repr(sorted((each.reference.digest, each.own, *each.items) for each in self.frames)))[:16]

    def edits(self, edit: Replacement, items: Sequence[Item]) -> Iterator[tuple[list[Edit], list[Item]]]:
        """An edit with the reference of every frame that has some of the items, all stored under one name."""
        for frame in self.frames:
            if own := [item for item in items if item.id in frame.items]:
                name = f"{edit}@{self.digest}"
                yield [Replace(edit.address, edit.kind, frame.reference, frame.draw(edit), name)], own


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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
                    self.model, texts, kinds=("position", "resample"), units=units, draws=draws + 1, vectors=1,
                    seed=self.seed,
                )  # fmt: skip
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
            places = {question: place for place, question in reversed([*enumerate(order)])}
            by_own: dict[int, list[str]] = {}
            for item in frame.items:
                by_own.setdefault(places.get(item.question, -1), []).append(item.id)
            held += [OfFrame(tuple(ids), stored, own) for own, ids in by_own.items()]
        self.references[source] = Frames(tuple(held))

    def fit(self, addresses: Sequence[str]) -> None:
        """Read or fit the constants of places, each of which is a reference of its own."""
        stored = {f"optimal {address}": self._read(f"optimal {address}") for address in addresses}
        self.references |= {source: each for source, each in stored.items() if each is not None}
        missing = [address for address in addresses if f"optimal {address}" not in self.references]
        if missing and len(self.others) < FEWEST_TEXTS:
            raise UsageError(
                f"The optimal constant is fitted on at least {FEWEST_TEXTS} items that are not evaluated, and"
                f" {self.task.name} has {len(self.others)} of them: ask for fewer items (--items), or leave optimal out"
                " of --replace."
            )
        by_source: dict[str, list[str]] = {}
        for address in missing:
            by_source.setdefault(source_of(place_of(address)[1], CONTRIBUTIONS), []).append(address)
        for source, places in by_source.items():
            start = self.observe(source)
            about = (start.model, start.fingerprint, self.texts.label, start.tokens)
            fits = fitted(self.model, self.texts, places, start, STEPS, self.seed, None, self.watcher)
            for address, vector, fit in fits:
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
        return self._calibration(pool)

    def _calibration(self, pool: Sequence[Item]) -> Calibration:
        count = min(TEXTS, len(pool))
        return calibration(self.model, self.task, count, seed=self.seed, style=self.style, items=pool)

    def _path(self, source: str) -> Path:
        """The file of a source: what decides the reference, as a hash; how a text is put into tokens among it."""
        decided = _hashed(f"{self.decided}|{source}|{self.spelt}")
        return self.evaluation.run.folder / FOLDER / f"{decided[:16]}.safetensors"

    def _read(self, source: str) -> Reference | None:
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
    return f"{source} {_hashed(repr([(text.shots, text.question) for text in frame.texts]))}"


@dataclass(frozen=True)
class ModelSweep:
    """A model of a study with the edits under which it is evaluated, and the references of every task."""

    evaluation: Evaluation
    chosen: ModelChoice
    model: Model
    edits: Sequence[PlaceEdit]
    references: References

    def pending(
        self,
        tasks: Mapping[TaskChoice, Task],
        items: Mapping[TaskChoice, Sequence[Item]],
        stored: Container[str] | None = None,
    ) -> Pending:
        """The answers that are wanted (`Evaluation.pending`), each task under edits with its own references."""
        whole = Pending(0, {})
        for choice, task in tasks.items():
            of_all: list[Edit] = [edit for edit in self.edits if isinstance(edit, Scale)]
            parts: list[tuple[list[Edit], Sequence[Item]]] = [(of_all, items[choice])]
            for edit in (each for each in self.edits if isinstance(each, Replacement)):
                held = self.references[choice.name][edit.source]
                if isinstance(held, Reference):
                    of_all.append(Replace(edit.address, edit.kind, held, edit.draw))
                else:
                    parts += held.edits(edit, items[choice])
            cells = dict(whole.cells)
            for edits, own in parts:
                of_part = {choice: own}
                cells |= self.evaluation.pending(self.chosen, self.model, edits, {choice: task}, of_part, stored).cells
            whole = Pending(whole.total + (1 + len(self.edits)) * len(items[choice]), cells)
        return whole
