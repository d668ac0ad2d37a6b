"""Questions with options: the two forms in which they are asked, and what is wrong with one that cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

from lesion.plain import short
from lesion.tasks.benchmark import Benchmark
from lesion.tasks.judges import judge
from lesion.tasks.source import SourceRow, whole
from lesion.tasks.task import Answer, Item, Verdict


class Choice(Benchmark):
    """Questions with options. The form in which they are asked is part of the name.

    In form `letter` the question of an item is the question and a line `A. …` for each option, and the choices are the
    letters, as lm-evaluation-harness asks MMLU. In form `text` it is the question alone, and the choices are the
    options, white space around them removed; two options of the same text are one answer, and both are right when one
    is. The options as they stand in the data, and the right letter, are in the metadata of either form.
    """

    option = "form"
    settings = ("letter", "text")
    kind = "choose"

    @property
    def subject(self) -> str:
        """What instructions are written for: `letter`, or nothing."""
        return "letter" if self.setting == "letter" else ""

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the right option was chosen."""
        return judge.UNREAD if answer.finish == "nonfinite" else Verdict(answer.text == item.gold, answer.text)

    def choice(self, identity: str, question: str, row: SourceRow, field: str, group: str, **metadata: str) -> Item:
        """The item of a question with the options in a field of a row.

        Args:
            identity: the id.
            question: what is asked.
            row: it has the options, 2 to 26 texts, and in `answer` the letter of the right one or its place. An option
                that is empty can stand behind a letter, unless it is the right one; it cannot be scored as a text.
            field: of the options.
            group: see `Item`.
            metadata: more to keep with the item.
        """
        options = row[field]
        if not isinstance(options, list | tuple) or not all(isinstance(option, str) for option in options):
            raise row.fault("the options must be a list of texts.")
        if not 2 <= len(options) <= len(ascii_uppercase):
            raise row.fault(f"there must be 2 to {len(ascii_uppercase)} options, not {len(options)}.")
        letters = tuple(ascii_uppercase[: len(options)])
        right = _place(row, letters)
        for letter, option in zip(letters, options, strict=True):
            whole(option, f"option {letter}", row.where)
            if not option.strip() and (self.setting == "text" or letter == letters[right]):
                way_out = "" if letter == letters[right] else "; write it out, or ask with ?form=letter"
                raise row.fault(f"option {letter} is empty{way_out}.")
        if sum(bool(option.strip()) for option in options) < 2:
            raise row.fault("all options but one are empty.")
        choices = letters if self.setting == "letter" else tuple(option.strip() for option in options)
        lines = [f"{letter}. {option}" for letter, option in zip(letters, options, strict=True)]
        return Item(
            id=identity,
            question="\n".join((question, *lines)) if self.setting == "letter" else question,
            gold=choices[right],
            choices=choices,
            solution=choices[right],
            group=group,
            metadata={**metadata, "options": tuple(options), "letter": letters[right]},
        )


def _place(row: SourceRow, letters: Sequence[str]) -> int:
    """The place of the right option, from 0."""
    answer = row["answer"]
    if isinstance(answer, str) and answer.strip() in letters:
        return letters.index(answer.strip())
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(letters):
        return answer
    raise row.fault(
        f"the answer is {short(repr(answer))}; it must be a letter from A to {letters[-1]}, or a number from 0 to "
        f"{len(letters) - 1}, since there are {len(letters)} options."
    )
