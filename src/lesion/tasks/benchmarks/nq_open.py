"""NQ-open: questions that people typed into a search engine, answered without documents (Lee et al. 2019)."""

from __future__ import annotations

from lesion.tasks.benchmark import Hub, Trivia
from lesion.tasks.source import SourceRow, identify
from lesion.tasks.task import Item


class NqOpen(Trivia):
    """NQ-open from the hub (the 3,610 questions of `validation`) or a local file with its fields.

    These are `question` and `answer`, a list of right answers, none of them the main one. The questions are written in
    lower case without a mark at their end; they are asked with a question mark, as lm-evaluation-harness does.
    `nq_open?rule=exact` is the exact match of the field.
    """

    title = "nq_open"
    hub = Hub("google-research-datasets/nq_open", None, "validation", ("train",))

    def item(self, row: SourceRow, index: int) -> Item:
        """The item of a row."""
        question, answers = row.text("question"), row["answer"]
        if not isinstance(answers, list) or not answers or not all(isinstance(answer, str) for answer in answers):
            raise row.fault("'answer' must be a list of at least one text.")
        rights = list(dict.fromkeys(answer.strip() for answer in answers if answer.strip()))  # in order, each once
        if not rights:
            raise row.fault("there is an empty answer only.")
        return Item(
            id=identify(row["question"], index),
            question=question if question.endswith("?") else f"{question}?",
            gold=rights[0],
            aliases=tuple(rights[1:]),
        )
