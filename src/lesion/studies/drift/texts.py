"""The texts of a drift study: which items a run draws, what a model said to them, and both as token ids."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from lesion.core.inference import pending_cells
from lesion.core.run import Evaluation
from lesion.core.study_file import ModelChoice
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.studies.drift.result import Run
from lesion.studies.drift.study import DriftStudy
from lesion.tasks.catalogue import draw
from lesion.tasks.continuations import encode_answer, encode_choices, encode_gold, encode_solved
from lesion.tasks.prompts import encode, resolve
from lesion.tasks.task import TRUNCATED, Item, Task
from lesion.tasks.thinking import opening
from lesion.tasks.wrapped import Gold


@dataclass(frozen=True)
class Texts:
    """What a model reads in one run.

    Attributes:
        run: its number, from 0.
        items: ids, in the order drawn.
        ids: of each item, token ids of its prompt and solution, cut at the end of the context; prompts: how many of
            them are the prompt.
        right, truncated: how many own solutions were right, and how many did not end themselves; None without own ones.
    """

    run: int
    items: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    prompts: tuple[int, ...]
    right: int | None = None
    truncated: int | None = None

    @property
    def in_prompt(self) -> Bool[np.ndarray, " tokens"]:
        """[tokens] whether each token is of a prompt, text after text."""
        pairs = zip(self.ids, self.prompts, strict=True)
        return np.concatenate([np.arange(len(text)) < prompt for text, prompt in pairs])

    @property
    def flat(self) -> Int[np.ndarray, " tokens"]:
        """[tokens] token ids, text after text."""
        return np.concatenate([np.asarray(text, dtype=np.int64) for text in self.ids])

    @property
    def text_of(self) -> Int[np.ndarray, " tokens"]:
        """[tokens] which text each token is in, from 0."""
        return np.repeat(np.arange(len(self.ids)), [len(text) for text in self.ids])


def run_of(texts: Texts, clustered: Bool[np.ndarray, " tokens"]) -> Run:
    """How much a run read, with which of its [tokens] were clustered."""
    return Run(
        run=texts.run,
        items=len(texts.items),
        tokens=int(clustered.sum()),
        prompt_tokens=int(texts.in_prompt.sum()),
        solution_tokens=int((~texts.in_prompt).sum()),
        right=texts.right,
        truncated=texts.truncated,
    )


def draw_runs(study: DriftStudy, task: Task) -> list[list[Item]]:
    """The items of every run, the same for all models.

    Every run is a draw of its own from all items and depends on the seed and its number alone, so that further runs
    leave earlier ones as they are. An item may be in two runs; a task with fewer items than a run asks for gives all.
    """
    return [draw(task, study.items, seed_of(study, f"items {run}")) for run in range(study.runs)]


def seed_of(study: DriftStudy, purpose: str) -> int:
    """A seed for one purpose, from the study's: 31 bits of SHA-256."""
    return int.from_bytes(hashlib.sha256(f"{study.seed}:{purpose}".encode()).digest()[:4], "big") >> 1


def speaks(study: DriftStudy, task: Task) -> bool:
    """Whether a model generates solutions: running text has none."""
    return study.solution == "own" and task.kind != "score"


Solution = Mapping[Hashable, Any]
"""A stored own solution, by the columns of `Store.answers`."""


def own_solutions(chosen: ModelChoice, model: Model, evaluation: Evaluation) -> dict[str, Solution]:
    """Have a model answer every item once, greedily, as far as the store does not have its answer; answers by item."""
    evaluation.evaluate(chosen, model, (), what="own solutions")
    evaluation.release()
    cells = pending_cells(evaluation.study, chosen, model, evaluation.tasks, evaluation.items, (), stored=())
    answers = evaluation.store.answers(model=chosen.name).set_index("key").to_dict("index")
    return {cell.item.id: answers[key] for key, cell in cells.items()}


def read_texts(
    study: DriftStudy,
    chosen: ModelChoice,
    model: Model,
    task: Task,
    runs: Sequence[Sequence[Item]],
    solutions: Mapping[str, Solution] | None,
) -> list[Texts]:
    """The texts of every run as a model reads them.

    `solutions` are the model's own, by item. Such a solution is the stored text, encoded after the prompt as it was
    generated: of items with choices the chosen one, of contrasts the most probable token.
    """
    style = resolve(model, task, study.questions().prompt_style_of(chosen, study.task))
    results = []
    for number, items in enumerate(runs):
        own = [] if solutions is None else [solutions[item.id] for item in items]
        ids, prompts = [], []
        for place, item in enumerate(items):
            prompt, solution = _read(study, model, task, item, style, str(own[place]["text"]) if own else "")
            text = (*prompt, *solution)[: model.context]
            if not text:
                raise LesionError(f"Item {item.id} of {task.name} has no tokens for {model.name}; leave it out.")
            ids.append(text)
            prompts.append(min(len(prompt), len(text)))
        right = sum(bool(answer["correct"]) for answer in own) if own else None
        truncated = sum(answer["finish"] in TRUNCATED for answer in own) if own else None
        results.append(Texts(number, tuple(item.id for item in items), tuple(ids), tuple(prompts), right, truncated))
    return results


def _read(
    study: DriftStudy, model: Model, task: Task, item: Item, style: str, answer: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Prompt and solution of an item as token ids."""
    if task.kind == "score":
        if study.part == "solution":
            raise UsageError(f"{task.name} is running text without solutions; choose --part prompt or both.")
        return encode_solved(model, task, item, style), ()
    if study.solution == "gold":
        return encode_gold(model, Gold(task), item, style)
    prompt = encode(model, task, item, style, max_new_tokens=1)
    if not answer:
        return prompt, ()
    if task.kind == "generate":
        return prompt, encode_answer(model, task, item, answer.removeprefix(opening(model.tokenizer, prompt)), style)
    (solution,) = encode_choices(model, task, replace(item, choices=(answer,)), style)
    return prompt, solution
