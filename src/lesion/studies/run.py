"""Running a study: plan → engine → judge → store, asking only for what is missing."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lesion.edits.edit import BASELINE, Edit, Scale
from lesion.engines.engine import Decoding, Engine, Request, Response
from lesion.engines.transformers import TransformersEngine
from lesion.errors import LesionError
from lesion.methods.ablation import sweep
from lesion.models.load import Model, load, peek
from lesion.studies.layers import parse_layers
from lesion.studies.row import Row, answer_key
from lesion.studies.store import Store
from lesion.studies.study import ModelChoice, Study, TaskChoice
from lesion.studies.summary import summarise
from lesion.tasks.catalogue import draw, find
from lesion.tasks.prompts import encode, encode_choices, resolve
from lesion.tasks.task import Answer, Item, Task

# Answers are committed together when they come faster than this many seconds apart.
COMMIT_EVERY = 0.2


@runtime_checkable
class Watcher(Protocol):
    """Somebody who is told how a run goes."""

    def begin(self, model: str, asked: int, stored: int) -> None:
        """A model starts: so many answers in all, so many of them stored already."""
        ...

    def answered(self, count: int) -> None:
        """So many more answers are stored."""
        ...

    def note(self, text: str) -> None:
        """Something the person should know."""
        ...


class Silent:
    """A watcher that says nothing."""

    def begin(self, model: str, asked: int, stored: int) -> None:
        """Nothing."""

    def answered(self, count: int) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Outcome:
    """What a run left behind.

    Attributes:
        folder: where the store lies.
        summary: the numbers, as in `summary.json`.
        asked: answers asked for in this run; fewer than `planned` when earlier ones were stored.
        planned: answers that the study consists of.
    """

    folder: Path
    summary: dict[str, Any]
    asked: int
    planned: int


@dataclass(frozen=True)
class _Cell:
    task: Task
    choice: TaskChoice
    item: Item
    edit: Edit
    style: str
    decoding: Decoding
    prompt: tuple[int, ...]


def run(
    study: Study,
    folder: Path,
    *,
    watcher: Watcher | None = None,
    models: Mapping[str, Model] | None = None,
    make_engine: Callable[[Model, int | str], Engine] = TransformersEngine,
) -> Outcome:
    """Run a study into a folder; what is stored there already is not asked again.

    Args:
        study: what to ask.
        folder: of the store; made when absent.
        watcher: is told how it goes.
        models: models that are loaded already, by the name the study gives them.
        make_engine: the engine for a model and a batch size.

    Raises:
        UsageError: a task, a layer or a number of items does not exist; nothing has been asked then.
        LesionError: a model cannot be loaded, a prompt does not fit, the folder belongs to another study or process,
            or cannot be written. Every answer given until then is stored.
    """
    watcher = watcher or Silent()
    tasks = {choice: find(choice.name) for choice in study.tasks}
    drawn = {choice: draw(task, study.items_of(choice), study.seed) for choice, task in tasks.items()}
    _look_ahead(study, models or {})
    asked = planned = 0
    plan: dict[str, Sequence[Scale]] = {}
    with Store.open(folder, _identity(study, tasks, drawn), study.to_toml()) as store:
        for choice, items in drawn.items():
            store.add_items(choice.name, items)
        for chosen in study.models:
            model = (models or {}).get(chosen.name) or load(
                chosen.source, revision=chosen.revision, dtype=study.dtype_of(chosen), device=study.device
            )
            layers = parse_layers(study.edits.layers, len(model.anatomy.blocks), chosen.name)
            plan[chosen.name] = sweep(model.anatomy, study.edits.unit, layers, study.edits.factor)
            _note_model(store, chosen.name, model, plan[chosen.name])
            cells = _missing(study, chosen, model, tasks, drawn, plan[chosen.name], store)
            total = (len(plan[chosen.name]) + 1) * sum(map(len, drawn.values()))
            watcher.begin(chosen.name, total, total - len(cells))
            for text in _clamped(model, cells.values()):
                watcher.note(text)
            for count in _ask(make_engine(model, study.batch_size), model, chosen.name, cells, store):
                watcher.answered(count)
            asked, planned = asked + len(cells), planned + total
        summary = summarise(study, plan, store.answers(), store.items())
    return Outcome(Path(folder), summary, asked, planned)


def _identity(study: Study, tasks: Mapping[TaskChoice, Task], drawn: Mapping[TaskChoice, Sequence[Item]]) -> str:
    """The identity of the study on these very items: a data file that changed, in any way that counts, is another."""
    items = [
        [choice.name, task.kind, task.max_new_tokens, task.stop, task.style]
        + [[i.id, i.question, i.gold, i.aliases, i.choices, i.group, dict(i.metadata)] for i in drawn[choice]]
        for choice, task in tasks.items()
    ]
    text = json.dumps([study.identity(), sorted(items, key=lambda entry: str(entry[0]))], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _look_ahead(study: Study, loaded: Mapping[str, Model]) -> None:
    """What is wrong with a later model is told before the first one works for hours."""
    for chosen in study.models[1:]:
        blocks = None if chosen.name in loaded else peek(chosen.source, revision=chosen.revision)
        if blocks is not None:
            parse_layers(study.edits.layers, blocks, chosen.name)


def recall(folder: Path) -> tuple[Study, dict[str, Any], Any, Any]:
    """The study of a folder as far as it has got: the study, its summary, its answers and its items.

    Loads no model and works while another process writes.

    Raises:
        LesionError: there is no store in the folder, or it is damaged.
    """
    from lesion.edits.edit import parse

    with Store.read(folder) as store:
        study = Study.parse(store.study[1], "The stored study")
        answers, items = store.answers(), store.items()
        known = {row["name"]: row["metadata"] for row in store.models().to_dict("records")}
    plan: dict[str, Sequence[Scale]] = {}
    for chosen in study.models:
        texts = known.get(chosen.name, {}).get("edits", [])
        plan[chosen.name] = [edit for edit in map(parse, texts) if isinstance(edit, Scale)]
    return study, summarise(study, plan, answers, items), answers, items


def _note_model(store: Store, name: str, model: Model, edits: Sequence[Scale]) -> None:
    store.add_model(
        model.fingerprint,
        name,
        {
            "blocks": len(model.anatomy.blocks),
            "family": model.anatomy.family,
            "dtype": str(model.dtype).removeprefix("torch."),
            "edits": [str(edit) for edit in edits],
        },
    )


def _missing(
    study: Study,
    chosen: ModelChoice,
    model: Model,
    tasks: Mapping[TaskChoice, Task],
    drawn: Mapping[TaskChoice, Sequence[Item]],
    edits: Sequence[Scale],
    store: Store,
) -> dict[str, _Cell]:
    """The cells of a model that have no answer yet, by their key."""
    stored = store.keys()
    cells: dict[str, _Cell] = {}
    for choice, task in tasks.items():
        style = resolve(model, task, study.prompt_style_of(chosen, choice))
        decoding = Decoding(
            max_new_tokens=study.max_new_tokens_of(choice) or task.max_new_tokens,
            stop=task.stop if choice.stop is None else choice.stop,
            temperature=study.decoding.temperature,
            top_p=study.decoding.top_p,
            seed=study.seed,
        )
        for item in drawn[choice]:
            # Room for one token is enough: an answer that meets the end of the context is a truncated one.
            prompt = encode(model, task, item, style, max_new_tokens=1)
            everything: list[Edit] = [BASELINE, *edits]
            for edit in everything:
                key = answer_key(model.fingerprint, str(edit), choice.name, item.id, str(decoding), style)
                if key not in stored:
                    cells[key] = _Cell(task, choice, item, edit, style, decoding, prompt)
    return cells


def _clamped(model: Model, cells: Iterable[_Cell]) -> Iterator[str]:
    """A note for each task whose answers may meet the end of the context before their own limit."""
    short: dict[str, set[str]] = {}
    for cell in cells:
        if not cell.item.choices and len(cell.prompt) + cell.decoding.max_new_tokens > model.context:
            short.setdefault(cell.choice.name, set()).add(cell.item.id)
    for task, items in short.items():
        yield (
            f"{task}: for {len(items)} items the context of {model.name} ({model.context} tokens) ends before the"
            " token limit; such answers count as truncated."
        )


def _ask(engine: Engine, model: Model, name: str, cells: Mapping[str, _Cell], store: Store) -> Iterator[int]:
    """Ask for every cell, store the answers as they come, and say how many were stored at a time."""
    waiting: list[Row] = []
    last = time.monotonic()
    responses = engine.answer([_request(model, key, cell) for key, cell in cells.items()])
    try:
        for response in responses:
            waiting.append(_row(model, name, cells[response.key], response))
            if time.monotonic() - last >= COMMIT_EVERY:
                yield _flush(store, waiting)
                last = time.monotonic()
    finally:
        # Also when interrupted: what has been answered is kept.
        count = _flush(store, waiting)
    if count:
        yield count


def _flush(store: Store, waiting: list[Row]) -> int:
    count = len(waiting)
    if count:
        store.write(waiting)
        waiting.clear()
    return count


def _request(model: Model, key: str, cell: _Cell) -> Request:
    choices = encode_choices(model, cell.task, cell.item, cell.style) if cell.item.choices else ()
    return Request(key, cell.prompt, cell.edit, cell.decoding, choices)


def _row(model: Model, name: str, cell: _Cell, response: Response) -> Row:
    answer = _chosen(cell.item, response.answer)
    verdict = cell.task.judge(cell.item, answer)
    if answer.finish == "nonfinite":
        verdict = replace(verdict, correct=False)
    return Row(
        model=model.fingerprint,
        model_name=name,
        edit=str(cell.edit),
        task=cell.choice.name,
        item=cell.item.id,
        decoding=str(cell.decoding),
        prompt_style=cell.style,
        text=answer.text,
        tokens=answer.tokens,
        finish=answer.finish,
        correct=verdict.correct,
        parsed=verdict.parsed,
        scores=answer.scores,
        group=cell.item.group,
        question=cell.item.question,
        gold=cell.item.gold,
    )


def _chosen(item: Item, answer: Answer) -> Answer:
    """The answer of a choice item as the text of the choice, spelt as the item spells it."""
    if not item.choices or answer.finish == "nonfinite":
        return answer
    if len(answer.scores) != len(item.choices):
        raise LesionError(f"The engine gave {len(answer.scores)} scores for {len(item.choices)} choices of {item.id}.")
    return replace(answer, text=item.choices[max(range(len(item.choices)), key=answer.scores.__getitem__)])
