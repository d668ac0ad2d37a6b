"""Contrasts: after a prompt, how likely is the right token, how likely its rivals, and how likely " the"?

Two answers are read of one pass. The *free* answer is the most probable token of the whole vocabulary. The
*forced* answer is the most probable among the right text and its rivals of the same kind (the other name, the other
words of the sequence), each with all its tokens: that of a name's first token alone is also that of every other word
which begins so. A model that says " the" where it named somebody before has changed the form of its answer; its
forced answer shows whether it still tells the names apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from lesion.errors import UsageError
from lesion.tasks.benchmark import OneARow
from lesion.tasks.judges import judge
from lesion.tasks.source import SourceRow, identify, whole
from lesion.tasks.task import Answer, Item, Verdict

TEMPTING = " the"
"""The word that follows almost anything (Chen et al. 2024): what tempts where an item has no rival."""
SECOND = " a"
"""What stands for it where the right text begins with the same letters and so perhaps with the same token."""
OWN = {"subject": "ioi", "frequent": "facts"}
"""Settings that say which text of the data tempts, and the benchmark that has each."""


class Contrast(OneARow):
    """Prompts that one word continues, against a rival: one of the data, or a text that is given; and against " the".

    Where the right text begins with the letters of " the", it is " a". Without a path, the items are the project's
    own, for use where nothing can be downloaded.
    """

    option = "tempting"
    kind = "contrast"
    style = "raw"

    def check(self, setting: str) -> None:
        """Refuse a text that cannot tempt, and the name of another benchmark's setting."""
        if not setting:
            raise UsageError(
                f"There is no text behind '?tempting=' of {self.title}; write one: '{self.title}?tempting={TEMPTING}'."
            )
        whole(setting, "tempting", self.title)
        if OWN.get(setting, self.title) != self.title:
            raise UsageError(
                f"{self.title} has {self.title}?tempting={self.settings[1]} and ?tempting=TEXT; the word '{setting}' "
                f"itself is '?tempting= {setting}', with a space."
            )

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether no token is more probable than the first of the right text."""
        return verdict(item, answer)

    def made(self, rows: Iterable[SourceRow]) -> tuple[Item, ...]:
        """The items of rows with what tempts."""
        return tuple(self.tempted(super().made(rows)))

    def tempted(self, items: Sequence[Item]) -> Iterable[Item]:
        """The items with what tempts by the setting."""
        return (tempted(item, str(self.setting)) for item in items)


def identity(row: SourceRow, fields: Sequence[str], prompt: str, index: int) -> str:
    """The first of these fields that holds a text or a whole number, else the place and a digest of the prompt."""
    value = next((row.fields[field] for field in fields if isinstance(row.fields.get(field), int | str)), "")
    return str(value) if str(value).strip() else identify(prompt, index)


def item(identity: str, prompt: str, right: str, *tempting: str, group: str = "") -> Item:
    """The item of a prompt with what is right to say next and what tempts; the first token of each counts."""
    return tempted(Item(identity, prompt, right, solution=right, group=group), *(tempting or (TEMPTING,)))


def tempted(item: Item, *tempting: str) -> Item:
    """The item with other tempting texts: rivals of the right text, and behind them " the"; or that alone."""
    return replace(item, choices=(item.gold, *against(item.gold, *tempting)))


def against(right: str, *tempting: str) -> tuple[str, ...]:
    """The texts that a right one is compared with: its rivals, as they are given, and last a word that is none.

    The last is " the", or " a" where the right text begins with these letters. Where it is all that tempts, it stands
    alone: there is no rival, and no forced answer.
    """
    word = SECOND if right.lstrip().startswith(TEMPTING.strip()) else TEMPTING
    rivals = tuple(text for text in tempting if text not in (TEMPTING, SECOND))
    return (*rivals, word) if rivals or tempting[0] == TEMPTING else tempting[:1]


def forced(whole: Sequence[float]) -> bool | None:
    """Whether the right text is more probable than each of its rivals; None where it has none.

    `whole` are log-probabilities of the right text and its rivals, each with all its tokens.
    """
    return whole[0] > max(whole[1:]) if len(whole) > 1 else None


def frequent(items: Sequence[Item]) -> Iterator[Item]:
    """The items of a task, each against the most frequent right text of its group that is not its own.

    What a model would say that knows the group only: of a country's capital, the capital that is asked for most. Where
    a group knows no other right text, the most frequent of all items; among equally frequent ones the first in
    the order of the alphabet.

    Whether a text begins with another token than the right one is known only with a tokenizer. So the next in this
    order, those of the group before those of all items, stand behind the first as further choices, as far as one is
    needed whose first byte (of the text in small letters) is not that of the right text, nor that of another right text
    that `shuffled:` may put there.
    """
    everywhere = _ranked(item.gold for item in items)
    of_group: dict[str, list[str]] = {}
    for item in items:
        of_group.setdefault(item.group, []).append(item.gold)
    groups = {group: _ranked(golds) for group, golds in of_group.items()}
    for item in items:
        tempting = _enough(item.gold, chain(groups[item.group], everywhere))
        if not tempting:
            raise UsageError(
                f"All {len(items)} items have the same right answer '{item.gold}', so that none of another item can "
                f"tempt; name a text with ?tempting=…, ' the' for example."
            )
        yield tempted(item, *tempting)


def verdict(item: Item, answer: Answer) -> Verdict:
    """Right when no token is more probable than the right one; read is the most probable token without white space."""
    if answer.finish == "nonfinite" or not answer.ranks:
        return judge.UNREAD
    return Verdict(answer.ranks[0] == 1, answer.text.strip())


def _ranked(texts: Iterable[str]) -> list[str]:
    counts = Counter(texts)
    return sorted(counts, key=lambda text: (-counts[text], text))


def _enough(right: str, texts: Iterable[str]) -> list[str]:
    """The first texts apart from the right one, until they begin with two bytes, one of them not that of the right."""
    first_bytes: dict[str, bytes] = {}
    for text in texts:
        if text != right:
            first_bytes[text] = text.lstrip().casefold().encode("utf-8", "surrogatepass")[:1]
        if len({*first_bytes.values()}) > 1:
            break
    return list(first_bytes)
