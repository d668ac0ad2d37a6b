"""Contrasts: after a prompt, how likely is the right token, and how likely the one that tempts?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from lesion.errors import UsageError
from lesion.tasks import judge
from lesion.tasks.source import whole
from lesion.tasks.task import Answer, Item, Verdict

TEMPTING = " the"
"""The word that follows almost anything (Chen et al. 2024): what tempts where nothing else is named."""
SECOND = " a"
"""What tempts instead where the right text begins with the same letters and so perhaps with the same token."""


def item(identity: str, prompt: str, right: str, tempting: str = TEMPTING, group: str = "") -> Item:
    """The item of a prompt with what is right to say next and what tempts.

    Against "theology" it is " a" that tempts, not " the".

    Args:
        identity: the id.
        prompt: the whole prompt.
        right: the right text; its first token counts.
        tempting: the tempting text; its first token counts.
        group: see `Item`.
    """
    return tempted(Item(identity, prompt, right, solution=right, group=group), tempting)


def tempted(item: Item, tempting: str) -> Item:
    """The item with another tempting text; see `item` for " the"."""
    if tempting == TEMPTING and item.gold.lstrip().startswith(TEMPTING.strip()):
        tempting = SECOND
    return replace(item, choices=(item.gold, tempting))


def check_tempting(text: str, task: str) -> str:
    """The text, if it can tempt.

    Raises:
        UsageError: it is empty, or holds half a character.
    """
    if not text:
        raise UsageError(f"There is no text behind '?tempting=' of {task}; write one: '{task}?tempting={TEMPTING}'.")
    return whole(text, "tempting", task)


def frequent(items: Sequence[Item]) -> list[Item]:
    """The items, each tempted by the most frequent right text of its group that is not its own.

    What a model would say that knows the group only: of a country's capital, the capital that is asked for most. Where
    a group knows no other right text, the most frequent of all items; among equally frequent ones the first in
    the order of the alphabet.

    Args:
        items: of one task; their own tempting texts do not count.

    Raises:
        UsageError: all items have the same right text.
    """
    everywhere = Counter(item.gold for item in items)
    of_group: dict[str, Counter[str]] = {}
    for item in items:
        of_group.setdefault(item.group, Counter())[item.gold] += 1
    found = []
    for item in items:
        tempting = _most(of_group[item.group], item.gold) or _most(everywhere, item.gold)
        if not tempting:
            raise UsageError(
                f"All {len(items)} items have the same right answer '{item.gold}', so that none of another item can "
                f"tempt; name a text with ?tempting=…, ' the' for example."
            )
        found.append(tempted(item, tempting))
    return found


def verdict(item: Item, answer: Answer) -> Verdict:
    """Right when no token is more probable than the right one; read is the most probable token, white space around it
    removed.
    """
    if answer.finish == "nonfinite" or not answer.ranks:
        return judge.UNREAD
    return Verdict(answer.ranks[0] == 1, answer.text.strip())


def _most(counts: Counter[str], apart: str) -> str:
    others = [(-count, text) for text, count in counts.items() if text != apart]
    return min(others)[1] if others else ""
