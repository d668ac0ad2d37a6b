"""TriviaQA: closed-book trivia questions with many accepted answers (Joshi et al. 2017)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lesion.tasks.benchmark import Hub, Trivia
from lesion.tasks.source import SourceRow, identify
from lesion.tasks.task import Answer, Item, Verdict


class TriviaQa(Trivia):
    """TriviaQA without documents, from the hub or a file.

    A local file has either the fields of the hub, `{"question", "answer": {"value", "aliases", …}}`, or the short form
    `{"id", "question", "golden_answers": […]}`. A row whose id has been seen is the same question with another
    document and is left out.

    `triviaqa?rule=substring` is the rule of Nepal et al. (2025), who look for the main answer only. The short form has
    no main answer: there the rule looks for any of them, and the item's gold answer is the first of the list.
    """

    title = "triviaqa"
    hub = Hub("mandarjoshi/trivia_qa", "rc.nocontext", "validation", ("train",))

    def read(self, rows: Iterable[SourceRow]) -> Iterable[Item]:
        """Every question once."""
        items: dict[str, Item] = {}
        for index, row in enumerate(rows):
            item = self.item(row, index)
            items.setdefault(item.id, item)
        return items.values()

    def item(self, row: SourceRow, index: int) -> Item:
        """The item of a row."""
        question = row.written("question")
        short_form = "golden_answers" in row
        if short_form:
            answers = row["golden_answers"]
            question = unquote_csv(question)
        else:
            answer = row["answer"]
            if not isinstance(answer, dict):
                raise row.fault("'answer' must be an object with 'value' and 'aliases'.")
            answers = [SourceRow(answer, f"{row.where}, 'answer'")["value"], *answer.get("aliases", ())]
        if not isinstance(answers, list) or not answers:
            raise row.fault("there are no answers.")
        if not all(isinstance(answer, str | int | float) for answer in answers):
            raise row.fault("every answer must be a text.")
        gold, *others = dict.fromkeys(map(str, answers))  # in order, each once
        return Item(
            id=str(row.fields.get("id") or row.fields.get("question_id") or identify(question, index)),
            question=question,
            gold=gold,
            aliases=tuple(others),
            metadata={"main_answer": not short_form},
        )

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer names the gold answer or an alias, by the task's rule."""
        if self.setting == "substring" and item.metadata.get("main_answer", True):
            item = replace(item, aliases=())
        return super().judge(item, answer)


def unquote_csv(question: str) -> str:
    """The question without the quoting of a CSV cell that some copies of the data kept.

    `"Who said ""God is dead""?"` becomes `Who said "God is dead"?`. Only a question that stands in quotation
    marks as a whole, with all marks inside doubled and at least one pair of them, is such a cell; others stay
    as they are.
    """
    inside = question[1:-1]
    quoted = len(question) > 1 and question[0] == question[-1] == '"'
    if quoted and '""' in inside and '"' not in inside.replace('""', ""):
        return inside.replace('""', '"')
    return question
