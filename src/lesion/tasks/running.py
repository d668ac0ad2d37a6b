"""Running text: what a model makes of text that asks nothing, measured by the log-probability of its tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lesion import files
from lesion.errors import UsageError
from lesion.tasks.benchmark import Benchmark, Hub
from lesion.tasks.source import SourceRow, identify
from lesion.tasks.task import Answer, Item, Verdict

WORDS = 200
"""How long a stretch is where no paragraph ends near."""
SHORTEST, LONGEST = 150, 250
"""Between so many words, a stretch ends with its paragraph."""
LAST = LONGEST - WORDS
"""At least so many words are left for the last stretch."""

# Scripts that put no space between words count by the character, and so does what is too long for a word by forties.
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]{{1,40}}")
_PARAGRAPH = re.compile(r"\n\s*\n")


class RunningText(Benchmark):
    """A UTF-8 text file, or the test split of WikiText-2 (Merity et al. 2016) from the hub, as stretches to score.

    A stretch ends with the first paragraph that ends between 150 and 250 words, else after 200 words; the last has
    what is left, 50 to 250 words, or all of a shorter text. Words are what white space separates (characters, where a
    script has no spaces), never tokens: every model and every edit is asked the very same text. White space inside a
    stretch stays as it is. WikiText-2 is the form with raw characters, whose lines make one text; its ` @-@ ` and the
    spaces before its punctuation stay too.

    The question of an item is the stretch; there is no gold answer. The answer is the summed log-probability of its
    tokens, and the verdict says only whether that is finite.
    """

    title = "text"
    hub = Hub("Salesforce/wikitext", "wikitext-2-raw-v1", "test", ("validation",))
    kind = "score"
    style = "raw"

    @property
    def name(self) -> str:
        """`text:PATH`, or `wikitext` for the one from the hub."""
        return "wikitext" if self.path is None else f"text:{self.path}"

    def rows(self, file: Path) -> Iterable[SourceRow]:
        """The whole text as one row."""
        return [SourceRow({"text": files.read_text(file, fault=UsageError)}, str(file))]

    def read(self, rows: Iterable[SourceRow]) -> Iterator[Item]:
        """The stretches of the text that the rows make."""
        lines = [str(row["text"]) for row in rows]
        text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
        items = [Item(identify(stretch, index), stretch, "") for index, stretch in enumerate(stretches(text))]
        if not items:
            raise UsageError(f"{self.path} has no words; a task needs at least one item.")
        yield from items

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the log-probability is finite."""
        return verdict(item, answer)


def verdict(item: Item, answer: Answer) -> Verdict:
    """The verdict on running text: nothing is right or wrong; "correct" is a log-probability that is finite."""
    return Verdict(answer.finish != "nonfinite", "")


def stretches(text: str) -> Iterator[str]:
    """Consecutive stretches that hold all words of a text; see `RunningText` for where they end."""
    words = list(_WORD.finditer(text))
    start = 0
    while start < len(words):
        end = _end(text, words, start)
        yield text[words[start].start() : words[end - 1].end()]
        start = end


def _end(text: str, words: Sequence[re.Match[str]], start: int) -> int:
    """The index behind the last word of the stretch that begins with word `start`."""
    left = len(words) - start
    if left <= LONGEST:
        return len(words)
    for end in range(start + SHORTEST, min(start + LONGEST, len(words) - LAST) + 1):
        if _PARAGRAPH.search(text[words[end - 1].end() : words[end].start()]):
            return end
    return start + WORDS
