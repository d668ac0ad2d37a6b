"""One task of lm-evaluation-harness: its documents as items, and its verdict on an answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from lesion.errors import LesionError, UsageError
from lesion.tasks.harness import rules
from lesion.tasks.harness.library import FEWSHOT_SEED, at_work, seeded
from lesion.tasks.judges import judge
from lesion.tasks.query import HarnessName
from lesion.tasks.task import Answer, Item, Kind, Verdict

KINDS: dict[str, Kind] = {
    "generate_until": "generate",
    "multiple_choice": "choose",
    "loglikelihood": "choose",
    "loglikelihood_rolling": "score",
}
# What a task may say about how its answers are generated; the rest is refused, unless it says what is so anyhow.
_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
Settings = Mapping[str, Any]
_KNOWN = ("until", *_LIMITS, "do_sample", "temperature", "top_p")
_NEUTRAL = {"num_beams": 1, "repetition_penalty": 1.0}
# New tokens of an answer where a task states no limit, as the harness has it.
_DEFAULT_LIMIT = 256


@dataclass(frozen=True)
class Subtask:
    """A task of the harness as it is asked here.

    Attributes:
        title: what the harness calls the task.
        metric: what says right or wrong; "" for running text.
    """

    name: HarnessName
    title: str
    task: Any = field(repr=False, compare=False)
    metric: str
    rule: Any = field(repr=False, compare=False)
    max_new_tokens: int = 1
    stop: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: HarnessName, title: str, task: Any) -> Subtask:
        """The task with its rules chosen."""
        if task.OUTPUT_TYPE not in KINDS:
            raise UsageError(
                f"The task {title} of lm-evaluation-harness asks for {task.OUTPUT_TYPE}, which is unknown."
            )
        if KINDS[task.OUTPUT_TYPE] == "score":
            if name.metric or name.filter:
                raise UsageError(
                    f"{name}: the task {title} reads running text, whose answer is its log-probability; it has no "
                    f"right and wrong answers for a metric or filter."
                )
            return cls(name, title, task, "", None)
        rule = rules.choose_filter(task, name)
        unjudged = cls(name, title, task, "", rule)
        metric = rules.choose_metric(task, name, lambda: rules.fractions(task, rule, unjudged.golds))
        if task.OUTPUT_TYPE != "generate_until":
            return cls(name, title, task, metric, rule)
        return cls(name, title, task, metric, rule, *_decoding(task, name, title))

    @property
    def kind(self) -> Kind:
        """What an answer is."""
        return KINDS[self.task.OUTPUT_TYPE]

    @cached_property
    def documents(self) -> tuple[Any, ...]:
        """The rows of the data set that are asked."""
        with at_work(), seeded():
            return tuple(doc for _, doc in self.task.doc_iterator())

    @cached_property
    def arguments(self) -> tuple[tuple[tuple[Any, ...], ...], ...]:
        """What the harness sends for every document, as it sends it: contexts, continuations, texts."""
        documents = self.documents
        self.task.set_fewshot_seed(seed=FEWSHOT_SEED)
        with at_work(), seeded():
            return tuple(self._arguments(index, doc) for index, doc in enumerate(documents))

    def _arguments(self, index: int, doc: Any) -> tuple[tuple[Any, ...], ...]:
        task, chat = self.task, {"apply_chat_template": False, "chat_template": None}
        try:
            context = task.fewshot_context(
                doc,
                num_fewshot=task.config.num_fewshot or 0,
                system_instruction=None,
                fewshot_as_multiturn=False,
                gen_prefix=task.doc_to_prefix(doc),
                **chat,
            )
            made = task.construct_requests(
                doc=doc, ctx=context, metadata=(self.title, index, task.config.repeats), **chat
            )
        except Exception as error:  # whatever a template or a function of a task raises
            raise LesionError(
                f"Document {index} of the task {self.title} of lm-evaluation-harness could not be written "
                f"({type(error).__name__}: {error})."
            ) from error
        instances = made if isinstance(made, list) else [made]
        wanted = "loglikelihood" if task.OUTPUT_TYPE == "multiple_choice" else task.OUTPUT_TYPE
        if any(instance.request_type != wanted for instance in instances):
            raise LesionError(
                f"Document {index} of the task {self.title} of lm-evaluation-harness asks for more than one kind of "
                f"answer; `python -m lesion.harness_model --model lesion` can ask it."
            )
        # Behind the choices, a metric of the harness may want them once more without the question.
        count = len(task.doc_to_choice(doc)) if task.OUTPUT_TYPE == "multiple_choice" else len(instances)
        return tuple(instance.args for instance in instances[:count])

    @cached_property
    def rules(self) -> str:
        """A digest of what answers are judged by."""
        return rules.digest(self.task, self.metric, self.rule) if self.rule is not None else ""

    def items(self, alone: bool) -> list[Item]:
        """The documents as items; their ids and groups name the task unless it is asked alone."""
        with at_work():
            return [self._item(index, arguments, alone) for index, arguments in enumerate(self.arguments)]

    def _item(self, index: int, arguments: tuple[tuple[Any, ...], ...], alone: bool) -> Item:
        doc = self.documents[index]
        fingerprint = hashlib.sha256(json.dumps(arguments, default=str).encode()).hexdigest()[:8]
        contexts = [str(before) for before, *_ in arguments]
        choices: tuple[str, ...] = ()
        if self.task.OUTPUT_TYPE == "multiple_choice":
            choices = tuple(map(str, self.task.doc_to_choice(doc)))
            if len(set(contexts)) > 1:  # the choices stand in the questions, and what follows them is the same
                contexts = ["\n".join(f"{before}{behind}" for before, behind in arguments)]
        elif self.task.OUTPUT_TYPE == "loglikelihood":
            choices = (str(arguments[0][1]),)
        gold, *aliases = self.golds(doc, choices) or [""]
        return Item(
            id=f"{index}-{fingerprint}" if alone else f"{self.title}/{index}-{fingerprint}",
            question=contexts[0],
            gold=gold,
            aliases=tuple(aliases),
            choices=choices,
            solution=gold,
            group="" if alone else self.title,
            metadata={"subtask": self.title, "document": index, "rules": self.rules},
        )

    def golds(self, doc: Any, choices: Sequence[str] = ()) -> list[str]:
        """The right answers as texts, those that are known."""
        if self.kind == "score":
            return []
        if self.task.OUTPUT_TYPE == "loglikelihood":
            return list(choices)
        in_questions = bool(getattr(self.task, "multiple_input", 0))
        target = self.task.doc_to_text(doc) if in_questions else self.task.doc_to_target(doc)
        if not choices and self.task.config.doc_to_choice is not None:
            choices = tuple(map(str, self.task.doc_to_choice(doc)))
        targets = list(target) if isinstance(target, list | tuple) else [target]
        texts = [choices[at] if isinstance(at, int) and 0 <= at < len(choices) else str(at) for at in targets]
        return [text for text in texts if not choices or text in choices]

    def gold_pair(self, index: int, gold: str) -> tuple[str, str]:
        """The context of a document, and what would be right to say behind it; `LesionError` where nothing is known."""
        arguments, doc = self.arguments[index], self.documents[index]
        if self.task.OUTPUT_TYPE == "loglikelihood":
            return arguments[0][0], arguments[0][1]
        if not gold:
            raise LesionError(f"Document {index} of the task {self.title} has no right answer that could be scored.")
        if self.task.OUTPUT_TYPE == "multiple_choice":
            context, continuation = arguments[list(map(str, self.task.doc_to_choice(doc))).index(gold)]
            return context, continuation
        context = arguments[0][0]
        # Behind a prefix that the answer begins with, the harness puts a space in its examples.
        between = self.task.config.target_delimiter if self.task.doc_to_prefix(doc) is None else " "
        return context, gold if context[-1:].isspace() and between == " " else f"{between}{gold}"

    def chosen(self, item: Item, scores: Sequence[float]) -> str:
        """The text of the choice that the metric takes."""
        return item.choices[rules.preferred(self.metric, scores, item.choices)]

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer is right by the filter and the metric."""
        doc = self.documents[int(item.metadata["document"])]
        if self.kind == "choose":
            return self._judge_scores(item, answer, doc)
        results = self._read(doc, [answer.text])
        correct = rules.measured(self.task, self.metric, doc, results, self.title)
        flat = [part for result in results for part in (result if isinstance(result, list | tuple) else [result])]
        read = next((part for part in flat if isinstance(part, str)), None)
        lost = read is None or not read.strip() or read in rules.fallbacks(self.rule)
        return Verdict(correct, None if lost else read)

    def _judge_scores(self, item: Item, answer: Answer, doc: Any) -> Verdict:
        greedy = answer.greedy
        if len(greedy) != len(answer.scores):
            if self.task.OUTPUT_TYPE == "loglikelihood" or self.metric == "exact_match":
                raise LesionError(
                    f"The engine does not tell whether greedy decoding says a continuation, which {self.name} asks "
                    f"for; choose another: --engine transformers."
                )
            greedy = (False,) * len(answer.scores)
        results = self._read(doc, list(zip(answer.scores, greedy, strict=True)))
        if "acc_mutual_info" in self.task.aggregation():
            results += [(0.0, False)] * len(results)  # another metric, which is not looked at, wants them
        correct = rules.measured(self.task, self.metric, doc, results, self.title)
        if self.task.OUTPUT_TYPE == "loglikelihood":
            return Verdict(correct, item.gold if correct else "")
        return Verdict(correct, answer.text)

    def _read(self, doc: Any, replies: Sequence[Any]) -> list[Any]:
        try:
            return rules.filtered(self.rule, doc, replies)
        except Exception as error:
            raise LesionError(
                f"The filter {self.rule.name} of {self.title} failed on an answer ({type(error).__name__}: {error}); "
                f"choose another with filter=…."
            ) from error


def unread(kind: Kind) -> Verdict:
    """The verdict on an answer that broke off."""
    return Verdict(False, "") if kind == "score" else judge.UNREAD


def generation(settings: Settings) -> tuple[int, tuple[str, ...], list[str]]:
    """The most new tokens of an answer, the strings that end it, and the settings of other ways of decoding."""
    until = settings.get("until") or ()
    stop = (until,) if isinstance(until, str) else until
    limit = next((int(settings[key]) for key in _LIMITS if settings.get(key) is not None), _DEFAULT_LIMIT)
    others = [key for key, value in settings.items() if key not in _KNOWN and _NEUTRAL.get(key) != value]
    return limit, tuple(text for text in stop if text), others


def _decoding(task: Any, name: HarnessName, title: str) -> tuple[int, tuple[str, ...]]:
    settings = task.config.generation_kwargs or {}
    limit, stop, others = generation(settings)
    sampled = settings.get("do_sample") is not False and float(settings.get("temperature") or 0) > 0
    repeats = int(task.config.repeats or 1)
    wants = (
        ["to sample its answers"] * (sampled or bool(settings.get("do_sample")))
        + [f"{repeats} answers to every question"] * (repeats > 1)
        + [f"to decode with {', '.join(others)}"] * bool(others)
    )
    if wants and not name.study_decoding:
        raise UsageError(
            f"The task {title} of lm-evaluation-harness wants {' and '.join(wants)}. A study decodes all tasks in one "
            f"way, greedily unless --temperature says otherwise; write '{replace(name, study_decoding=True)}' to ask "
            f"it so."
        )
    return limit, stop
