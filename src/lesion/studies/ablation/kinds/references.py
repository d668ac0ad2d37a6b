"""The references of a layer study: what replaces a place's contribution under each task, kept in the study's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from lesion.activations.calibration import Calibration, calibration
from lesion.activations.contributions import PLACES, Kind, reference
from lesion.activations.optimal import FEWEST_TEXTS, STEPS, fitted
from lesion.core.run import Evaluation, Pending
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.edits.reference import Reference, read_reference
from lesion.edits.replace import ReplacedUnit, place_of
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.studies.ablation.sweep import CONTRIBUTIONS, OF_HEADS, PlaceEdit, Replacement, made
from lesion.tasks.catalogue import calibration_items
from lesion.tasks.continuations import encode_solved
from lesion.tasks.gold import gold_name
from lesion.tasks.task import Item, Task

TEXTS = 100
"""So many texts of a task make its reference, or all that it has."""
FOLDER = "references"


References = Mapping[str, Mapping[str, Reference]]
"""References by task, and of each task by what they are the source of (`Replacement.source`)."""


def references_of(
    evaluation: Evaluation, chosen: ModelChoice, model: Model, edits: Sequence[PlaceEdit]
) -> dict[str, dict[str, Reference]]:
    """The references of every task of a study that its edits need, by the task's name and by that of its gold answers.

    A reference that the folder has of these weights is read; another one is made from prompts with their gold
    solutions, of items that are not evaluated; of all items, where too few are left for that and nothing is fitted.
    Every fitted place is kept as soon as it is done.

    Raises:
        UsageError: a task has no items, or too few of them that are not evaluated for a kind that is fitted.
        LesionError: what a place adds cannot be read, or a file of the folder is damaged or cannot be written.
    """
    replaced = [edit for edit in edits if isinstance(edit, Replacement)]
    by_task: dict[str, dict[str, Reference]] = {}
    for choice, task in evaluation.tasks.items():
        own = _OfTask(evaluation, chosen, choice, task, model, 1 + max((edit.draw for edit in replaced), default=0))
        for source in dict.fromkeys(edit.source for edit in replaced if edit.kind != "optimal"):
            own.observe(source)
        if places := [edit.address for edit in replaced if edit.kind == "optimal"]:
            own.fit(places)
        by_task[choice.name] = by_task[gold_name(choice.name)] = own.references
    return by_task


class _OfTask:
    """The references of one model and task, read or made and kept."""

    def __init__(
        self,
        evaluation: Evaluation,
        chosen: ModelChoice,
        choice: TaskChoice,
        task: Task,
        model: Model,
        draws: int,
    ) -> None:
        self.evaluation, self.task, self.model, self.draws = evaluation, task, model, draws
        self.seed, self.watcher = evaluation.study.seed, evaluation.run.watcher
        self.style = evaluation.study.prompt_style_of(chosen, choice)
        self.decided = f"{chosen.name}|{choice.name}|{self.style}|{self.seed}"
        self.items = evaluation.items[choice]
        self.references: dict[str, Reference] = {}

    def observe(self, source: str) -> Reference:
        """Read or make what needs one pass over the texts."""
        if source not in self.references and not self._read(source):
            kinds: Sequence[Kind] = ("mean", "resample") if source.startswith(CONTRIBUTIONS) else ("position",)
            units: Sequence[ReplacedUnit] = ("head",) if source.endswith(OF_HEADS) else PLACES
            made = reference(
                self.model, self.texts, kinds=kinds, units=units, draws=self.draws, seed=self.seed, watcher=self.watcher
            )
            self._keep(source, made)
        return self.references[source]

    def fit(self, addresses: Sequence[str]) -> None:
        """Read or fit the constants of places, each of which is a reference of its own."""
        missing = [address for address in addresses if not self._read(f"optimal {address}")]
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
        count = min(TEXTS, len(pool))
        return calibration(self.model, self.task, count, seed=self.seed, style=self.style, items=pool)

    def _path(self, source: str) -> Path:
        """The file of a source: what decides the reference, as a hash; how a text is put into tokens among it."""
        decided = hashlib.sha256(f"{self.decided}|{source}|{self.spelt}".encode("utf-8", "surrogatepass")).hexdigest()[
            :16
        ]
        return self.evaluation.run.folder / FOLDER / f"{decided}.safetensors"

    def _read(self, source: str) -> bool:
        """Whether the folder has a reference of these weights."""
        path = self._path(source)
        if not path.is_file():
            return False
        try:
            stored = read_reference(path)
        except LesionError as error:
            raise LesionError(
                f"{error} Delete it to have it made anew; what was answered under it is answered again where the new"
                " one differs."
            ) from error
        enough = "resample" not in stored.vectors or len(stored.texts) >= self.draws
        if stored.fingerprint == self.model.fingerprint and enough:
            self.references[source] = stored
        return source in self.references

    def _keep(self, source: str, made: Reference) -> None:
        path = self._path(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        made.save(path)
        self.references[source] = made


def pending_of(
    evaluation: Evaluation,
    chosen: ModelChoice,
    model: Model,
    edits: Sequence[PlaceEdit],
    references: References,
    tasks: Mapping[TaskChoice, Task] | None = None,
    items: Mapping[TaskChoice, Sequence[Item]] | None = None,
) -> Pending:
    """The answers that are wanted of a model (`Evaluation.pending`), each task under edits with its own reference."""
    tasks = evaluation.tasks if tasks is None else tasks
    whole = Pending(0, {})
    for choice, task in tasks.items():
        of_task = [made(edit, references.get(choice.name, {})) for edit in edits]
        part = evaluation.pending(chosen, model, of_task, {choice: task}, items)
        whole = Pending(whole.total + part.total, whole.cells | part.cells)
    return whole
