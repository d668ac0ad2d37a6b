"""A run: the machinery that evaluates edits of models on items of tasks, into a folder where nothing is done twice.

A study says which edits of which models are evaluated on which tasks; the run draws the items, loads one model after
the other, evaluates what the folder does not have yet, and keeps every answer as it comes.

    with Run.opened(study, folder, "logit-lens", watcher, make_engine, models) as run:
        for chosen, model in run.models():
            run.evaluate(chosen, model, edits_of(model), run.tasks)
            run.evaluate(chosen, model, edits_of(model), gold_tasks(run.tasks))
        answers = run.answers()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from lesion.core.inference import ask, clamped, identity, load_chosen, missing
from lesion.core.store import Store
from lesion.core.study_file import ModelChoice, Questions, TaskChoice
from lesion.edits.edit import Edit
from lesion.engines.engine import Engine, MakeEngine
from lesion.models.load import Model
from lesion.outputs import refuse_another_kind
from lesion.progress import Silent, Watcher
from lesion.tasks.catalogue import draw, find
from lesion.tasks.task import Item, Task


@dataclass
class Run:
    """A study that is being run; made by `Run.opened`.

    Attributes:
        study: which tasks, with which items, decoded how; its models are `study.models`, or the one `study.model`.
        store: where every answer is kept.
        tasks: what the study evaluates.
        items: of every task, in the order of the draw.
        evaluated: answers given in this run; planned: answers that the study consists of.
    """

    study: Questions
    store: Store
    tasks: dict[TaskChoice, Task]
    items: dict[TaskChoice, Sequence[Item]]
    watcher: Watcher
    make_engine: MakeEngine
    loaded: Mapping[str, Model]
    evaluated: int = 0
    planned: int = 0
    _engines: dict[str, Engine] = field(default_factory=dict)
    _noted: set[str] = field(default_factory=set)

    @classmethod
    @contextmanager
    def opened(
        cls,
        study: Questions,
        folder: Path,
        kind: str,
        watcher: Watcher | None,
        make_engine: MakeEngine,
        models: Mapping[str, Model] | None = None,
    ) -> Iterator[Run]:
        """A run into a folder, alone there until it ends.

        Args:
            study: what is evaluated.
            folder: made when absent; what it has already is not evaluated again.
            kind: of the study, as its folder is noted.
            watcher: is told how it goes.
            make_engine: the engine for a model and a batch size.
            models: those that are loaded already, by the name that the study gives them.

        Raises:
            UsageError: a task or a number of items does not exist, or the folder belongs to another kind of study.
            LesionError: the folder belongs to other questions or another process, or cannot be written.
        """
        refuse_another_kind(Path(folder), kind)
        tasks = {choice: find(choice.name) for choice in study.tasks}
        items: dict[TaskChoice, Sequence[Item]] = {
            choice: draw(task, study.items_of(choice), study.seed) for choice, task in tasks.items()
        }
        with Store.open(folder, identity(study, tasks, items), study.to_toml(), kind) as store:
            for choice, drawn in items.items():
                store.add_items(choice.name, drawn)
            yield cls(study, store, tasks, items, watcher or Silent(), make_engine, models or {})

    def models(self) -> Iterator[tuple[ModelChoice, Model]]:
        """Every model of the study, loaded one at a time.

        Raises:
            LesionError: a model cannot be loaded.
        """
        for chosen in self.study.chosen_models:
            model = self.loaded.get(chosen.name) or load_chosen(self.study, chosen, self.make_engine)
            if model.not_finite:
                self.watcher.note(model.complaint(chosen.name))
            dtype = str(model.dtype).removeprefix("torch.")
            about = {"blocks": len(model.anatomy.blocks), "family": model.anatomy.family, "dtype": dtype}
            self.store.add_model(model.fingerprint, chosen.name, about)
            yield chosen, model
            self._engines.clear()  # makes room for the next

    def evaluate(
        self,
        chosen: ModelChoice,
        model: Model,
        edits: Sequence[Edit],
        tasks: Mapping[TaskChoice, Task] | None = None,
        what: str = "answers",
    ) -> None:
        """Have the unedited model and every edit of it answer the items of tasks, as far as they have not.

        Args:
            chosen: the model, as the study names it.
            model: the model itself.
            edits: beside the baseline.
            tasks: those of the study by default; those of `gold_tasks` are about the same items.
            what: the answers are called, for the watcher.

        Raises:
            LesionError: a prompt does not fit, or the folder cannot be written. Every answer until then is kept.
        """
        tasks = self.tasks if tasks is None else tasks
        drawn = {choice: self._items_of(choice) for choice in tasks}
        for choice, items in drawn.items():
            self.store.add_items(choice.name, items)
        pending = missing(self.study, chosen, model, tasks, drawn, edits, self.store)
        total = (len(edits) + 1) * sum(map(len, drawn.values()))
        self.planned += total
        if not pending:
            return
        self.watcher.begin(chosen.name, total, total - len(pending), what)
        for text in clamped(model, pending.values()):
            if text not in self._noted:
                self._noted.add(text)
                self.watcher.note(text)
        engine = self._engines.setdefault(chosen.name, self.make_engine(model, self.study.batch_size))
        for count in ask(engine, model, chosen.name, pending, self.store):
            self.evaluated += count
            self.watcher.answered(count)

    def _items_of(self, choice: TaskChoice) -> Sequence[Item]:
        """The items of a task, also of `gold:` of it."""
        plain = choice.model_copy(update={"name": choice.name.removeprefix("gold:")})
        return self.items[choice] if choice in self.items else self.items[plain]

    def answers(self) -> pd.DataFrame:
        """Every stored answer (`Store.answers`)."""
        return self.store.answers()
