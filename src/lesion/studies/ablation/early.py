"""Early answers to the questions of a layer study: every chain is cut off at some lengths, and its answer asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from lesion.core.inference import PendingAnswer, as_mathematics, prompt_digest
from lesion.core.row import answer_key
from lesion.core.run import Evaluation, Pending
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.engines.engine import Decoding
from lesion.models.load import Model
from lesion.tasks.early import EarlyAnswers
from lesion.tasks.task import Task


def early_tasks(
    tasks: Mapping[TaskChoice, Task], limits: Sequence[int]
) -> dict[TaskChoice, list[tuple[TaskChoice, EarlyAnswers]]]:
    """The tasks of early answers to each task that has items judged as mathematics, one for every limit."""
    chains = {choice: task for choice, task in tasks.items() if any(as_mathematics(task, item) for item in task.load())}
    return {
        choice: [
            (choice.model_copy(update={"name": each.name}), each) for each in map(partial(EarlyAnswers, task), limits)
        ]
        for choice, task in chains.items()
    }


def answer_early(
    evaluation: Evaluation, chosen: ModelChoice, model: Model, cells: Mapping[str, PendingAnswer], limits: Sequence[int]
) -> None:
    """Ask for the answers of chains that are longer than each limit.

    Args:
        cells: every cell of the study, by key; those that have no answer are left out.
    """
    wanted = early_tasks(evaluation.tasks, limits)
    for choice, asked in wanted.items():
        tasks = dict(asked)
        evaluation.ask(tasks, dict.fromkeys(tasks, evaluation.items[choice]))
    stored = evaluation.store.answers(model=chosen.name).set_index("key")
    chains = dict(zip(stored.index, zip(stored["text"], stored["tokens"], strict=True), strict=True))
    pending: dict[str, PendingAnswer] = {}
    full: set[str] = set()
    for key, cell in cells.items():
        text, tokens = chains.get(key, ("", 0))
        for choice, early in wanted.get(cell.choice, ()):
            if tokens <= early.limit:
                continue
            prompt, sampling = early.asked(model.tokenizer, cell.prompt, text), cell.decoding
            if len(prompt) >= model.context:
                full.add(choice.name)
                continue
            decoding = Decoding(early.max_new_tokens, early.stop, sampling.temperature, sampling.top_p, sampling.seed)
            digest = prompt_digest(prompt, (), (), ())
            about = (str(cell.edit), choice.name, cell.item.id, str(decoding), cell.style, digest)
            own = replace(cell, task=early, choice=choice, decoding=decoding, prompt=prompt, digest=digest)
            pending[answer_key(model.fingerprint, *about)] = own
    if full:
        evaluation.run.watcher.note(
            f"The context of {chosen.name} ({model.context:,} tokens) has no room for some of"
            f" {', '.join(sorted(full))}: it is not shown. Give smaller --early-answers."
        )
    elif not pending:
        evaluation.run.watcher.note(
            f"No chain of {chosen.name} is longer than {min(limits):,} tokens, so that none is cut off: give a smaller"
            " --early-answers."
        )
    evaluation.planned += len(pending)
    evaluation.answer(chosen, model, evaluation.still(Pending(len(pending), pending)), "early answers")
