"""Rules of a task of lm-evaluation-harness: which of its metrics says right or wrong, which filter reads an answer."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from lesion.errors import LesionError, UsageError, nearest
from lesion.tasks.harness.library import at_work, seeded
from lesion.tasks.query import HarnessName

# Metrics of a part of an answer, or of how probable it is: their mean over items is not a share of right ones.
_PARTIAL = re.compile(
    r"(^|_)(f1|rouge|bleu|chrf|ter|wer|cer|bert|perplexity|brier|mcc|likelihood)[a-z0-9]*(?!.*_acc$)(_|$)"
)
# Metrics that are taken before others which come first in a task.
_USUAL = ("acc", "exact_match")
# Ways in which the harness sums up a metric that are means over items.
_MEANS = ("mean", "nanmean")
# By how the harness divides the log-probabilities of the choices before it takes the largest.
_LENGTHS = {"acc_norm": len, "acc_bytes": lambda text: len(text.encode())}
# What the rules of a task are made of, in its configuration.
_RULES = ("output_type", "metric_list", "filter_list", "process_results", "doc_to_target", "doc_to_choice", "repeats")


def choose_metric(task: Any, name: HarnessName, fractions: Callable[[], Mapping[str, float]]) -> str:
    """The metric by which an answer of the task is right or wrong.

    The one that is asked for; else accuracy or exact match, whichever comes first; else the first that can be it.
    `fractions` finds the metrics that gave an answer a value that is neither 0 nor 1, and that value.
    """
    higher = task.higher_is_better()
    reasons = {str(metric): _why_not(metric, how, higher.get(metric)) for metric, how in task.aggregation().items()}
    if None in reasons.values():
        for metric, value in fractions().items():
            if reasons.get(metric, "") is None:
                reasons[metric] = f"gives {value:.3g} to an answer, which is neither right (1) nor wrong (0)"
    able = [metric for metric, reason in reasons.items() if reason is None]
    listed = ", ".join(able) or "none"
    if name.metric is not None:
        if name.metric not in reasons:
            raise UsageError(
                f"{name} names a metric that the task does not have{nearest(name.metric, reasons)}; of those it has, "
                f"these say right or wrong: {listed}."
            )
        if reasons[name.metric] is not None:
            raise UsageError(
                f"The metric {name.metric} of {name} {reasons[name.metric]}. Of those the task has, these do: {listed}."
            )
        return name.metric
    if not able:
        why = "; ".join(f"{metric} {reason}" for metric, reason in reasons.items())
        raise UsageError(
            f"No metric of {name} says whether one answer is right or wrong: {why}. `python -m lesion.harness_model "
            f"--model lesion` takes every task and gives the harness's own numbers under an edit."
        )
    return next((metric for metric in able if metric in _USUAL), able[0])


def _why_not(metric: str, how: Any, higher: bool | None) -> str | None:
    """Why a metric does not say of each answer whether it is right; None where it may, by what the task says of it."""
    called = getattr(how, "__name__", str(how))
    if called not in _MEANS:
        return f"is no mean over answers (it is summed up by {called}), so that no single answer is right or wrong"
    if _PARTIAL.search(metric.lower()):
        return "counts parts of an answer, so that none is simply right or wrong"
    if higher is False:
        return "is better the lower it is, so that 1 does not mean right"
    if metric == "acc_mutual_info":
        return "compares with what is asked without a question, which lesion does not ask"
    return None


def choose_filter(task: Any, name: HarnessName) -> Any:
    """The filter that reads the answers: the one that is asked for, else the task's first."""
    filters = {str(rule.name): rule for rule in task._filters}
    if name.filter is None:
        return next(iter(filters.values()))
    if name.filter not in filters:
        raise UsageError(f"{name} names a filter that the task does not have; it has {', '.join(filters)}.")
    return filters[name.filter]


def measured(task: Any, metric: str, doc: Any, results: Sequence[Any], title: str) -> bool:
    """Whether an answer is right by a metric.

    `results` are what the filter made of the answer: a (log-probability, greedy) pair for each choice.
    """
    with at_work(), np.errstate(all="ignore"):
        values: Mapping[str, object] = task.process_results(doc, list(results))
    if metric not in values:
        others = ", ".join(map(str, values)) or "nothing"
        raise LesionError(
            f"The task {title} of lm-evaluation-harness did not compute {metric} for an answer but {others}; choose "
            f"with metric=…."
        )
    value = values[metric]
    if is_verdict(value):
        return bool(value)
    raise LesionError(
        f"The metric {metric} of {title} gave {value!r} for an answer, which is neither right (1) nor wrong (0); "
        f"choose another with metric=…, or ask `python -m lesion.harness_model --model lesion`, which takes every "
        f"metric."
    )


def is_verdict(value: object) -> bool:
    """Whether a metric's value says right (1) or wrong (0)."""
    return isinstance(value, int | float | np.integer | np.floating | np.bool_) and float(value) in (0.0, 1.0)


def filtered(rule: Any, doc: Any, replies: Sequence[Any]) -> list[Any]:
    """What a filter makes of the replies to one document, one for each of its requests."""
    from lm_eval.api.instance import Instance

    instances = [
        Instance("generate_until", doc, (), place, metadata=("", 0, 1), resps=[reply])
        for place, reply in enumerate(replies)
    ]
    rule.apply(instances)
    return [instance.filtered_resps[rule.name] for instance in instances]


def fallbacks(rule: Any) -> frozenset[str]:
    """The texts by which a filter says that it found no answer."""
    texts = (getattr(make(), "fallback", None) for make in rule.filters)
    return frozenset(text for text in texts if isinstance(text, str))


def preferred(metric: str, scores: Sequence[float], choices: Sequence[str]) -> int:
    """The place of the choice that a metric takes: of the largest log-probability, or of that for its length."""
    length = _LENGTHS.get(metric)
    lengths = np.array([1.0 if length is None else float(length(choice)) for choice in choices])
    with np.errstate(all="ignore"):
        return int(np.argmax(np.array(scores) / lengths))


def digest(task: Any, metric: str, rule: Any) -> str:
    """16 hex digits of what an answer is judged by, the source of functions included."""
    config = task.dump_config()
    rules = {key: config.get(key) for key in _RULES}
    text = json.dumps([rules, metric, rule.name], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# Documents that are looked at.
DOCUMENTS = 4


def fractions(task: Any, rule: Any, golds: Callable[[Any], Sequence[str]]) -> dict[str, float]:
    """By metric, the first value that is neither 0 nor 1 among those of made-up answers to the first documents.

    They are the right answer, half of it, with more behind it, and several right answers in one; or each choice as the
    likeliest. What a metric makes of other answers stays open.

    `golds` gives the right answers to a document, as texts.
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
