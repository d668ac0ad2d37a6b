"""Early answers to the questions of a layer study: every chain is cut off at some lengths, and its answer asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lesion.core.inference import PendingAnswer, as_mathematics, prompt_digest
from lesion.core.row import answer_key
from lesion.core.run import Evaluation, Pending
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.engines.engine import Decoding
from lesion.models.load import Model
from lesion.tasks.early import EarlyAnswers
from lesion.tasks.task import Task

COLUMNS = ("key", "text", "tokens")


def early_tasks(
    tasks: Mapping[TaskChoice, Task], limits: Sequence[int]
) -> dict[TaskChoice, list[tuple[TaskChoice, EarlyAnswers]]]:
    """The tasks of early answers to each task that has items judged as mathematics, one for every limit."""
    return {
        choice: [
            (choice.model_copy(update={"name": early.name}), early)
            for early in (EarlyAnswers(task, limit) for limit in limits)
        ]
        for choice, task in tasks.items()
        if any(as_mathematics(task, item) for item in task.load())
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
    stored = evaluation.store.answers(model=chosen.name)
    chains = {key: (text, tokens) for key, text, tokens in zip(*(stored[c] for c in COLUMNS), strict=True)}
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
            own = replace(cell, task=early, choice=choice, decoding=decoding, prompt=prompt, digest=digest)
            name = answer_key(
                model.fingerprint, str(cell.edit), choice.name, cell.item.id, str(decoding), cell.style, digest
            )
            pending[name] = own
    if full:
        names = ", ".join(sorted(full))
        evaluation.run.watcher.note(
            f"The context of {chosen.name} ({model.context:,} tokens) has no room for some of {names}:"
            " it is not shown. Give smaller --early-answers."
        )
    elif not pending:
        evaluation.run.watcher.note(
            f"No chain of {chosen.name} is longer than {min(limits):,} tokens, so that none is cut off: give a smaller"
            " --early-answers."
        )
    whole = Pending(len(pending), pending)
    evaluation.planned += whole.total
    evaluation.answer(chosen, model, evaluation.still(whole), "early answers")
