"""Contrasts: after a prompt, how likely is the right token, and how likely the one that tempts?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from lesion.errors import UsageError
from lesion.tasks.judges import judge
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


def tempted(item: Item, *tempting: str) -> Item:
    """The item with other tempting texts, of which the first that begins with another token tempts.

    See `item` for " the".
    """
    if tempting[0] == TEMPTING and item.gold.lstrip().startswith(TEMPTING.strip()):
        tempting = (SECOND, *tempting[1:])
    return replace(item, choices=(item.gold, *tempting))


def named(head: str, path: str | None, tempting: str) -> str:
    """`ioi`, with `:PATH` for a local file and `?tempting=…` where it is not " the"."""
    place = "" if path is None else f":{path}"
    return f"{head}{place}" + ("" if tempting == TEMPTING else f"?tempting={tempting}")


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

    Whether a text begins with another token than the right one is known only with a tokenizer. So the next in this
    order, those of the group before those of all items, stand behind the first as further choices, as far as one is
    needed whose first byte (of the text in small letters) is not that of the right text, nor that of another right text
    that `shuffled:` may put there.

    Args:
        items: of one task; their own tempting texts do not count.

    Raises:
        UsageError: all items have the same right text.
    """
    everywhere = _ranked(item.gold for item in items)
    of_group: dict[str, list[str]] = {}
    for item in items:
        of_group.setdefault(item.group, []).append(item.gold)
    groups = {group: _ranked(golds) for group, golds in of_group.items()}
    found = []
    for item in items:
        tempting = _enough(item.gold, chain(groups[item.group], everywhere))
        if not tempting:
            raise UsageError(
                f"All {len(items)} items have the same right answer '{item.gold}', so that none of another item can "
                f"tempt; name a text with ?tempting=…, ' the' for example."
            )
        found.append(tempted(item, *tempting))
    return found


def verdict(item: Item, answer: Answer) -> Verdict:
    """Right when no token is more probable than the right one; read is the most probable token, white space around it
    removed.
    """
    if answer.finish == "nonfinite" or not answer.ranks:
        return judge.UNREAD
    return Verdict(answer.ranks[0] == 1, answer.text.strip())


def _ranked(texts: Iterable[str]) -> list[str]:
    """The different ones, the most frequent first."""
    counts = Counter(texts)
    return sorted(counts, key=lambda text: (-counts[text], text))


def _enough(right: str, texts: Iterable[str]) -> list[str]:
    """The first texts apart from the right one, until they begin with two bytes, one of them not that of the right."""
    taken: dict[str, bytes] = {}
    for text in texts:
        if text == right or text in taken:
            continue
        taken[text] = _first(text)
        if len({*taken.values()}) > 1:  # so that one of the two is not that of the right text
            break
    return list(taken)


def _first(text: str) -> bytes:
    return text.lstrip().casefold().encode("utf-8", "surrogatepass")[:1]
