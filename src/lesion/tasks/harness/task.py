"""Any task of lm-evaluation-harness as a task: its prompts, its few-shot examples, its filters and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lesion.errors import LesionError, UsageError
from lesion.reprs import short_repr
from lesion.tasks import running
from lesion.tasks.harness.library import loaded
from lesion.tasks.harness.subtask import Subtask, unread
from lesion.tasks.harness.tokens import HarnessTokens, Part
from lesion.tasks.prompts import Speaker
from lesion.tasks.query import HarnessName
from lesion.tasks.task import Answer, Item, Kind, Verdict


@dataclass(frozen=True)
class Harness:
    """A task of lm-evaluation-harness (Gao et al.), or all tasks of a group or tag as one.

    Its prompts are sent as they stand (style `raw`), token for token as the harness's own Hugging Face model has them.
    Of a prompt that does not fit the context, the beginning is left out, as the harness does. What is right is said by
    the harness's filter and metric:

    - `generate_until` is a task to generate, ended by the task's own strings and limit.
    - `multiple_choice` is one to choose; also where the choices stand in the questions (Winogrande).
    - `loglikelihood` is one to choose with one choice: right where greedy decoding would have said it.
    - `loglikelihood_rolling` is running text to score, long texts in windows.

    Few-shot examples are those of the harness's command with its default seed and without `--samples`, whatever items
    are drawn here.

    Attributes:
        name: as typed: `harness:NAME`, with `?metric=…&filter=…&shots=K&path=FOLDER&decoding=study` behind it.
        subtasks: what is asked, by the names that the harness has for them; for the others see `Task`.
    """

    name: str
    kind: Kind
    max_new_tokens: int
    stop: tuple[str, ...]
    subtasks: Mapping[str, Subtask] = field(repr=False, compare=False)
    style: str = "raw"

    __repr__ = short_repr

    @classmethod
    def read(cls, name: str) -> Harness:
        """The task of a name; its data are loaded."""
        parsed = HarnessName.parse(name)
        subtasks = {title: Subtask.of(parsed, title, task) for title, task in loaded(parsed).items()}
        first, *others = subtasks.values()
        for other in others:
            if (other.kind, other.max_new_tokens, other.stop) != (first.kind, first.max_new_tokens, first.stop):
                raise UsageError(
                    f"{parsed.task} is a group of {len(subtasks)} tasks that are not asked in one way ({first.title} "
                    f"and {other.title} differ); ask one of them: {', '.join(subtasks)}."
                )
        return cls(name, first.kind, first.max_new_tokens, first.stop, subtasks)

    def load(self) -> Sequence[Item]:
        """Every document, in the order of the data sets; it raises `LesionError` where one cannot be written."""
        return self._items

    @cached_property
    def _items(self) -> tuple[Item, ...]:
        alone = len(self.subtasks) == 1
        return tuple(item for subtask in self.subtasks.values() for item in subtask.items(alone))

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer is right, by the task's own filter and metric; of running text, whether it is finite."""
        if answer.finish == "nonfinite":
            return unread(self.kind)
        if self.kind == "score":
            return running.verdict(item, answer)
        return self._of(item).judge(item, answer)

    def parts(self, model: Speaker, item: Item, style: str, max_new_tokens: int) -> tuple[Part, ...]:
        """The requests that ask a model an item."""
        if style != "raw":
            raise UsageError(
                f"{self.name} is asked with the harness's own prompts, without a style; leave prompt_style '{style}' "
                f"out, or give it to the other tasks of the study alone. For chat templates there is "
                f"`python -m lesion.harness_model --model lesion --apply_chat_template`."
            )
        arguments = self._of(item).arguments[int(item.metadata["document"])]
        tokens = _tokens(model)
        if self.kind == "generate":
            return (tokens.generation(arguments[0][0], max_new_tokens),)
        if self.kind == "choose":
            return tokens.likelihood([(before, behind) for before, behind in arguments])
        parts = tokens.rolling(arguments[0][0])
        if not parts:
            raise LesionError(f"Item {item.id} of {self.name} is an empty text, in which nothing can be scored.")
        return parts

    def joined(self, item: Item, parts: Sequence[Part], answers: Sequence[Answer]) -> Answer:
        """One answer of the answers to the parts of an item, in their order."""
        if self.kind == "generate":
            return answers[0]
        read = sum(len(choice) for part in parts for choice in part.choices) if self.kind == "score" else 0
        if any(answer.finish == "nonfinite" for answer in answers):
            return Answer("", read, "nonfinite")
        scores = tuple(score for answer in answers for score in answer.scores)
        if self.kind == "score":
            return Answer("", read, "stop", (sum(scores),))
        greedy = tuple(is_greedy for answer in answers for is_greedy in answer.greedy)
        return Answer(self._of(item).chosen(item, scores), 0, "stop", scores, greedy=greedy)

    def gold(self, model: Speaker, item: Item) -> Part:
        """What scores the right answer of an item after its prompt; `LesionError` where there is none or no room."""
        pair = self._of(item).gold_pair(int(item.metadata["document"]), item.gold)
        (part,) = _tokens(model).likelihood([pair])
        return part

    def solved(self, model: Speaker, item: Item) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The token ids of an item and of its right answer behind it; of running text, the text without a prompt."""
        subtask, index = self._of(item), int(item.metadata["document"])
        if self.kind == "score":
            return (), tuple(_tokens(model).encode(subtask.arguments[index][0][0]))
        before, ids = _tokens(model).pair(*subtask.gold_pair(index, item.gold))
        return tuple(before), tuple(ids)

    def _of(self, item: Item) -> Subtask:
        return self.subtasks[str(item.metadata["subtask"])]


def _tokens(model: Speaker) -> HarnessTokens:
    return HarnessTokens(model.tokenizer, model.context, model.name)
