"""Made-up answers, judged before a model is asked: a metric that gives one of them a fraction is not right or wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from lesion.tasks.harness.library import at_work, seeded
from lesion.tasks.harness.rules import filtered, is_verdict

# Documents that are looked at.
DOCUMENTS = 4


def fractions(task: Any, rule: Any, golds: Callable[[Any], Sequence[str]]) -> dict[str, float]:
    """By metric, the first value that is neither 0 nor 1 among those of made-up answers to the first documents.

    They are the right answer, half of it, with more behind it, and several right answers in one; or each choice as the
    likeliest. What a metric makes of other answers stays open.

    Args:
        task: of the harness.
        rule: the filter that reads an answer.
        golds: the right answers to a document, as texts.
    """
    values: dict[str, float] = {}
    with at_work(), seeded(), np.errstate(all="ignore"):
        for doc, replies in _answers(task, golds):
            for metric, value in _measured(task, rule, doc, replies).items():
                if isinstance(value, int | float | np.number) and not is_verdict(value):
                    values.setdefault(metric, float(value))
    return values


def _answers(task: Any, golds: Callable[[Any], Sequence[str]]) -> list[tuple[Any, list[Any]]]:
    """Documents, each with what the harness would get back for its requests."""
    try:
        documents = list(islice((doc for _, doc in task.doc_iterator()), DOCUMENTS))
        return [(doc, replies) for doc in documents for replies in _replies(task, doc, documents, golds)]
    except Exception:  # whatever a template or a function of a task raises; it is told when the items are made
        return []


def _measured(task: Any, rule: Any, doc: Any, replies: Sequence[Any]) -> Mapping[str, object]:
    try:
        results = filtered(rule, doc, replies)
        if task.OUTPUT_TYPE != "generate_until" and "acc_mutual_info" in task.aggregation():
            results += [(0.0, False)] * len(results)
        return dict(task.process_results(doc, results))
    except Exception:  # whatever a task makes of answers that no model gave; those of models are judged strictly
        return {}


def _replies(
    task: Any, doc: Any, documents: Sequence[Any], golds: Callable[[Any], Sequence[str]]
) -> Iterator[list[Any]]:
    if task.OUTPUT_TYPE == "loglikelihood":
        yield from ([(-1.0, True)], [(-1.0, False)])
    elif task.OUTPUT_TYPE == "multiple_choice":
        count = len(task.doc_to_choice(doc))
        for best in range(count):
            yield [(-1.0 if place == best else -2.0, place == best) for place in range(count)]
    else:
        for gold in golds(doc):
            words = gold.split(" ")
            others = [text for other in documents for text in golds(other)]
            yield from ([gold], [" ".join(words[: len(words) // 2])], [f"{gold} and 17 more"], [" and ".join(others)])
