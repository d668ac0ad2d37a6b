"""A run: what every study needs while it works on a folder, and the evaluation of edits of models on items of tasks.

A study says which edits of which models are evaluated on which tasks; the rest is done here:

    def run(study, run):
        with run.evaluation(study) as evaluation:
            for chosen, model in evaluation.models():
                evaluation.evaluate(chosen, model, edits_of(model))
            answers = evaluation.store.answers()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lesion.core import inference
from lesion.core.apart import draw_apart
from lesion.core.estimate import DryRun, Estimating, first_items, of_answers
from lesion.core.preflight import refuse_unfit_styles
from lesion.core.prove import prove
from lesion.core.row import Asked, StoredAnswer
from lesion.core.store import Store, refuse_other_prompts, refuse_other_spelling
from lesion.core.study_file import ModelChoice, Questions, TaskChoice
from lesion.edits.edit import BASELINE, Edit
from lesion.edits.table import in_weights
from lesion.engines.checking import spelling
from lesion.engines.config import EngineChoice
from lesion.engines.engine import Engine, MakeEngine
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError, UsageError
from lesion.models.anatomy import Anatomy
from lesion.models.gguf_checkpoint import pending
from lesion.models.load import Model, refuse_not_finite
from lesion.models.source import find as find_source
from lesion.outputs import refuse_another_kind
from lesion.progress import Silent, Watcher
from lesion.report import wording
from lesion.tasks.catalogue import find
from lesion.tasks.jsonl import JsonLines
from lesion.tasks.task import Item, Task

ROWS = 64
"""Rows that an engine answers at once, where it does not say."""
ALONE = 2
"""Of the edits that are written into the weights, and answer alone, an estimate takes so many."""


@dataclass
class Run:
    """A study at work on a folder.

    Attributes:
        folder: of the study; made when absent.
        kind: of study, as the folder is noted.
        make_engine: the engine for a model and a batch size.
        loaded: models that are loaded already, by the name that the study gives them.
        dry: whether it only says what it would cost.
    """

    folder: Path
    kind: str
    watcher: Estimating
    make_engine: MakeEngine
    loaded: Mapping[str, Model] = field(default_factory=dict)
    dry: bool = False

    @classmethod
    def at(
        cls,
        folder: str | Path,
        kind: str,
        watcher: Watcher | None = None,
        make_engine: MakeEngine = TransformersEngine,
        loaded: Mapping[str, Model] | None = None,
        *,
        dry: bool = False,
    ) -> Run:
        """A run into a folder."""
        refuse_another_kind(Path(folder), kind)
        estimating = Estimating(watcher or Silent(), dry=dry)
        return cls(Path(folder), kind, estimating, make_engine, loaded or {}, dry)

    @property
    def choice(self) -> EngineChoice:
        """On what the study runs."""
        choice = getattr(self.make_engine, "choice", None)
        return choice if isinstance(choice, EngineChoice) else EngineChoice()

    @property
    def trusts_code(self) -> bool:
        """Whether code that came with a checkpoint may run."""
        return self.choice.trust_remote_code

    @property
    def elsewhere(self) -> bool:
        """Whether answers are not given in this process, or not by transformers."""
        return self.choice.distributed or self.choice.engine != "transformers"

    def refuse_elsewhere(self, what: str) -> None:
        """Refuse workers and other engines; `what` begins the sentence: `Activations are patched`."""
        if self.elsewhere:
            raise UsageError(f"{what} in this process, on transformers; leave --workers, --ray and other engines out.")

    def load(
        self,
        study: Questions,
        chosen: ModelChoice,
        *,
        tasks: Mapping[TaskChoice, Task] | None = None,
        finite: bool = False,
    ) -> Model:
        """A model of the study: the one that is loaded already, or loaded now.

        Args:
            study: its dtype and device, and which tasks it asks in which prompt style.
            chosen: the model.
            tasks: those that have been found already.
            finite: refuse weights that are not finite; otherwise they are noted.
        """
        model = self.loaded.get(chosen.name)
        if model is None:
            refuse_unfit_styles(study, chosen, tasks, trust_remote_code=self.trusts_code)
            if waiting := pending(find_source(str(chosen.source), chosen.revision)):
                self.watcher.note(f"{waiting}.")
            model = inference.load_chosen(study, chosen, self.make_engine)
        if finite:
            refuse_not_finite(model, chosen.name)
        elif model.not_finite:
            self.watcher.note(model.complaint(chosen.name))
        return model

    def unloaded(
        self, models: Sequence[ModelChoice], study: Questions, tasks: Mapping[TaskChoice, Task] | None = None
    ) -> Iterator[ModelChoice]:
        """Those of the models that are still to be loaded, refused where the study's prompts cannot be put to them.

        So what is wrong with a later model is said before the first one works for hours. `tasks` as of `load`.
        """
        for chosen in models:
            if chosen.name not in self.loaded:
                refuse_unfit_styles(study, chosen, tasks, trust_remote_code=self.trusts_code)
                yield chosen

    @contextmanager
    def evaluation(
        self,
        study: Questions,
        items: Mapping[TaskChoice, Sequence[Item]] | None = None,
        *,
        tasks: Mapping[TaskChoice, Task] | None = None,
        text: str | None = None,
        shared: str | None = None,
    ) -> Iterator[Evaluation]:
        """The store of the folder, open and alone there, with the study's tasks and items.

        Args:
            study: which tasks, with which items, decoded how.
            items: of every task, where they are not the study's own draw.
            tasks: where they have been found already.
            text: the study as TOML, where it is not that of `study`.
            shared: what all answers in the folder share, where that is not the `basis` of `study`.
        """
        tasks = tasks or {choice: find(choice.name) for choice in study.tasks}
        items = self.drawn(study, tasks) if items is None else items
        asked = {choice.name: _asked(tasks[choice], of_task) for choice, of_task in items.items()}
        with Store.open(
            self.folder, shared or inference.basis(study), text or study.to_toml(), self.kind, asked
        ) as store:
            if shared is None:
                self._note_left_out(study, store)
            yield Evaluation(self, study, store, tasks, items)

    def _note_left_out(self, study: Questions, store: Store) -> None:
        """Say which models, tasks and items of the folder the study does not ask for."""
        tasks, items = store.left_out()
        others = _other_models(study, store)
        words = [f"{'model' if len(others) == 1 else 'models'} {wording.listed(others)}"] if others else []
        words += [f"{'task' if len(tasks) == 1 else 'tasks'} {wording.listed(tasks)}"] if tasks else []
        words += [f"{wording.counted(count, 'further item')} of {task}" for task, count in items.items()]
        if words:
            self.watcher.note(
                f"{self.folder} also has answers that this study does not ask for ({'; '.join(words)}); they are kept"
                " and not shown."
            )

    def drawn(
        self, study: Questions, tasks: Mapping[TaskChoice, Task] | None = None
    ) -> dict[TaskChoice, Sequence[Item]]:
        """The items that a study draws of its tasks, with a note where a task has fewer than it asks for."""
        tasks = tasks or {choice: find(choice.name) for choice in study.tasks}
        items: dict[TaskChoice, Sequence[Item]] = {}
        for choice, task in tasks.items():
            items[choice] = of_task = draw_apart(study, choice, task)[: study.items_of(choice)]
            self.note_if_fewer(choice.name, len(of_task), study.items_of(choice))
            # A benchmark is large, and a sample of it is the rule; of a file of one's own, all is expected.
            if isinstance(task, JsonLines) and len(of_task) < (there := len(task.load())):
                self.watcher.note(
                    f"{choice.name} has {there:,} items, of which {len(of_task):,} are drawn; --items all takes all."
                )
        return items

    def note_if_fewer(self, task: str, items: int, wanted: int | None) -> None:
        """Say that a task has fewer items than a study asks for; None asks for all."""
        if wanted is not None and items < wanted:
            there = f"{items:,} item{'' if items == 1 else 's'}"
            self.watcher.note(f"{task} has {there}, fewer than the {wanted:,} asked for; all of them are used.")


def _other_models(study: Questions, store: Store) -> list[str]:
    """The models of a folder that a study of several models does not have; a study of one makes further ones."""
    if "models" not in type(study).model_fields:
        return []
    names = {chosen.name for chosen in study.chosen_models}
    return [name for name in store.models()["name"] if name not in names]


def _asked(task: Task, items: Sequence[Item]) -> list[Asked]:
    return [Asked(item, inference.item_digest(task, item)) for item in items]


def refuse_scored(tasks: Mapping[TaskChoice, Task], advice: str) -> None:
    """Refuse tasks whose answers are log-probabilities: they have no accuracy; `advice` ends the sentence."""
    for choice, task in tasks.items():
        if task.kind == "score":
            raise UsageError(f"{choice.name} is scored, not judged, so nothing in it is right or wrong{advice}")


class Pending(NamedTuple):
    """Answers that are wanted: how many there are, and those that have not been given, by key."""

    total: int
    cells: dict[str, inference.PendingAnswer]


Answering = Callable[[Engine, Mapping[str, inference.PendingAnswer]], Iterator[list[StoredAnswer]]]


@dataclass
class Evaluation:
    """Edits of models evaluated on items of tasks, every answer stored as it comes; made by `Run.evaluation`.

    Attributes:
        run: the folder, the engine and the progress.
        study: how items are put and answers decoded.
        store: where every answer is kept.
        tasks: what the study evaluates; items: of every task, in the order of the draw.
        evaluated: answers computed in this run; planned: answers that the study consists of.
        later: how many answers to each task, by its name, other work of the study gives after the work in hand.
    """

    run: Run
    study: Questions
    store: Store
    tasks: Mapping[TaskChoice, Task]
    items: Mapping[TaskChoice, Sequence[Item]]
    evaluated: int = 0
    planned: int = 0
    later: Mapping[str, int] = field(default_factory=dict)
    _latest: tuple[Model, Engine] | None = None
    _noted: set[str] = field(default_factory=set)
    _seen: set[tuple[object, ...]] = field(default_factory=set)

    def models(self) -> Iterator[tuple[ModelChoice, Model]]:
        """Every model of the study, loaded one at a time and noted in the store."""
        for chosen in self.study.chosen_models:
            model = self.run.load(self.study, chosen)
            self.add(chosen.name, model)
            yield chosen, model
            self.release()

    def add(self, name: str, model: Model, **about: object) -> None:
        """Note a model in the store (`Store.add_model`), with what else is to be known about it."""
        known = {"blocks": len(model.anatomy.blocks), "family": model.anatomy.family, "dtype": model.dtype_name}
        spelt, before = spelling(model), self._metadata(name)
        refuse_other_spelling(self.store, model, before.get("spelling"), spelt)
        # What an earlier run has learned of the prompts.
        kept = {key: value for key, value in before.items() if key in ("context", "rooms")}
        self.store.add_model(model.fingerprint, name, {**kept, **known, "spelling": spelt, **about})

    def _metadata(self, name: str) -> dict[str, Any]:
        """What the store knows of a model."""
        known = {row["name"]: row["metadata"] for row in self.store.models().to_dict("records")}
        return dict(known.get(name) or {})

    def _note_rooms(self, name: str, model: Model, cells: Iterable[inference.PendingAnswer], *, silent: bool) -> None:
        """Store, and unless `silent` say, where answers may meet the end of the context."""
        left = inference.rooms(model, cells)
        known = self._metadata(name)
        if not left or not known:
            return
        stored = known.get("rooms", {})
        both = {task: min(room, tuple(stored.get(task, room))) for task, room in left.items()}
        self.store.add_model(model.fingerprint, name, {**known, "context": model.context, "rooms": {**stored, **both}})
        for text in () if silent else inference.room_notes(name, model.context, both):
            self._note(text)

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self.run.watcher.note(text)

    def engine(self, model: Model) -> Engine:
        """The engine of a model; one is kept at a time."""
        if self._latest is None or self._latest[0] is not model:
            self._latest = None
            self._latest = model, self.run.make_engine(model, self.study.batch_size)
        return self._latest[1]

    def release(self) -> None:
        """Let go of the engine and its model, whose memory other work or the next model needs."""
        self._latest = None

    def pending(
        self,
        chosen: ModelChoice,
        model: Model,
        edits: Sequence[Edit],
        tasks: Mapping[TaskChoice, Task] | None = None,
        items: Mapping[TaskChoice, Sequence[Item]] | None = None,
        stored: Container[str] | None = None,
    ) -> Pending:
        """The answers of the unedited model and every edit of it to items of tasks.

        `tasks` and `items` are those of the study by default; those of `gold_tasks` are about the same items. Left out
        are those whose keys are among `stored`, by default all that the folder has.
        """
        tasks = self.tasks if tasks is None else tasks
        if items is None:
            items = {choice: self.items_of(choice) for choice in tasks}
            self.ask({choice: task for choice, task in tasks.items() if choice not in self.items})
        stored = self.store.keys() if stored is None else stored
        cells = inference.pending_cells(self.study, chosen, model, tasks, items, edits, stored)
        _refuse_asked_otherwise(self.store, model, cells.values())
        refuse_other_prompts(self.store, model, cells.values())
        texts = {str(BASELINE), *map(str, edits)}
        return Pending(len(texts) * sum(len(items[choice]) for choice in tasks), cells)

    def still(self, pending: Pending) -> Pending:
        """What is still pending of it."""
        stored = self.store.keys()
        return pending._replace(cells={key: cell for key, cell in pending.cells.items() if key not in stored})

    def ask(self, tasks: Mapping[TaskChoice, Task], items: Mapping[TaskChoice, Sequence[Item]] | None = None) -> None:
        """Note that tasks made from those of the study (`gold_tasks`) are asked too."""
        for choice, task in tasks.items():
            of_task = self.items_of(choice) if items is None else items[choice]
            self.store.add_items(choice.name, _asked(task, of_task))

    def answer(
        self,
        chosen: ModelChoice,
        model: Model,
        pending: Pending,
        what: str = "answers",
        *,
        name: str | None = None,
        title: str | None = None,
        by: Answering | None = None,
        begun: bool = False,
        estimated: bool = True,
    ) -> None:
        """Have a model give the answers that are pending; what they will cost is said once a few items are answered.

        `title` and what the answers are called are for the watcher; `name` is that of the model in the store, where it
        is not that of `chosen`. `by` answers the cells and yields the rows that were stored together. With `begun` the
        watcher knows of them already. With `estimated`, a few items go first and their cost is said: `by` is called
        several times then.
        """
        cells, name = pending.cells, name or chosen.name
        if not cells and by is None:
            return
        watcher = self.run.watcher.inner  # what it counts is estimated here
        if not begun:
            watcher.begin(title or name, pending.total, pending.total - len(cells), what)
        prompts = {_prompt_of(model, cell): cell for cell in reversed(cells.values())}
        unseen = [cell for prompt, cell in prompts.items() if prompt not in self._seen]
        self._seen |= prompts.keys()
        for text in inference.prompt_notes(model, unseen):
            self._note(text)
        self._note_rooms(name, model, cells.values(), silent=not unseen)
        engine = self.engine(model)
        judged = [cell for cell in cells.values() if cell.task.kind != "score"]
        if judged and not self.run.dry:
            prove(self.run.folder, name, engine, model, judged[0].prompt, [cell.edit for cell in judged])

        def answers(part: Mapping[str, inference.PendingAnswer]) -> list[StoredAnswer]:
            given: list[StoredAnswer] = []
            for rows in by(engine, part) if by else inference.answer_cells(engine, model, name, part, self.store):
                self.evaluated += len(rows)
                watcher.answered(len(rows))
                given += rows
            return given

        rows = engine.rows() if isinstance(engine, TransformersEngine) else ROWS
        sampled = _few_alone(cells, model.anatomy)
        parts, first = first_items(sampled, rows, sum(self.later.values())) if estimated else [], []
        if parts:
            self.run.watcher.wait()
        for part in parts:
            began = time.monotonic()
            first.append((part, answers(part), time.monotonic() - began))
        ahead = {key for part, _, _ in first for key in part}
        left = {key: cell for key, cell in cells.items() if key not in ahead}
        if first:
            self.run.watcher.say(of_answers(first, left, what, self.later))
        elif self.run.dry:
            text = f"{len(cells):,} {what} are to come, of too few items for an estimate; the dry run stops here."
            raise DryRun(text + self.run.watcher.uncounted(more=any(self.later.values())))
        answers(left)

    def evaluate(
        self,
        chosen: ModelChoice,
        model: Model,
        edits: Sequence[Edit],
        tasks: Mapping[TaskChoice, Task] | None = None,
        what: str = "answers",
    ) -> None:
        """Have the unedited model and every edit of it answer the items of tasks, as far as they have not."""
        pending = self.pending(chosen, model, edits, tasks)
        self.planned += pending.total
        self.answer(chosen, model, pending, what)

    def items_of(self, choice: TaskChoice) -> Sequence[Item]:
        """The items of a task, also of `gold:` of it."""
        plain = choice.model_copy(update={"name": choice.name.removeprefix("gold:")})
        return self.items[choice] if choice in self.items else self.items[plain]


def _few_alone(cells: Mapping[str, inference.PendingAnswer], anatomy: Anatomy) -> dict[str, inference.PendingAnswer]:
    """The cells without those of most edits that are written into the weights: a few items of each would fill no
    batch, and `ALONE` of them tell what the others cost.
    """
    edits = dict.fromkeys(cell.edit for cell in cells.values())
    left_out = set([edit for edit in edits if any(in_weights(edit, anatomy))][ALONE:])
    return {key: cell for key, cell in cells.items() if cell.edit not in left_out}


def _prompt_of(model: Model, cell: inference.PendingAnswer) -> tuple[object, ...]:
    """A prompt, of whatever order of a network's blocks, which share the tokenizer; of gold answers the question's."""
    return model.tokenizer, cell.choice.name.removeprefix("gold:"), cell.item.id, hash(cell.prompt), len(cell.parts)


def _refuse_asked_otherwise(store: Store, model: Model, cells: Iterable[inference.PendingAnswer]) -> None:
    """Refuse answers that would stand beside others of the same model and task that were asked otherwise."""
    before = store.asked_as(model.fingerprint)
    for name, *now in dict.fromkeys((cell.choice.name, str(cell.decoding), cell.style) for cell in cells):
        for what, theirs, ours in zip(("decoding", "prompt style"), before.get(name, now), now, strict=True):
            if theirs != ours:
                raise LesionError(
                    f"{store.folder} holds answers of {model.name} to {name} that were asked otherwise"
                    f" ({what}: {theirs} there, {ours} here). Give another folder with --out."
                )
