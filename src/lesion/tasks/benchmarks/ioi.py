"""IOI, indirect object identification: who is given something, when the giver is named twice (Wang et al. 2022)."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from lesion.tasks import contrast
from lesion.tasks.counterparts import corrupted
from lesion.tasks.source import SourceRow, packaged
from lesion.tasks.task import Item

SUBJECT = "subject"
"""`?tempting=subject`: the name that stands twice has to be known in every item."""

ITEMS, POOL = 400, 400
PROMPTS = ("prompt", "text", "sentence")
RIGHTS = ("answer", "io", "IO", "indirect_object")
SUBJECTS = ("subject", "s", "S")

_BEHIND = re.compile(r"[\W_]+$")
_DRAWN = re.compile(r"\b(?:[Tt]he|[Aa]n?)\s+(?:(?!(?:to|for|at|and|where)\b|_)[\w’'-]+\s*)+")
_WORD = re.compile(r"[^\W\d_](?:[\w’'-]*\w)?")


class Ioi(contrast.Contrast):
    """Sentences such as "When Mary and John went to the shop, John gave a book to", which Mary's name continues.

    Without a path, 400 sentences of this project: names, places and things drawn by a seed, two names never with the
    same first letter. In half of them the one who is given something is named first (group `ABBA`), in half the giver
    (`BABA`). With a path, a file of objects with `prompt` (or a whole sentence, `text` or `sentence`, whose last word
    is the answer, whatever punctuation follows) and `answer` (or `io`, `IO`, `indirect_object`), perhaps `subject` and
    `case_id`. Where there is no `subject`, it is the one capitalised word besides the answer that stands twice.

    The rival is the name that stands twice. An item of a file in which it is not known has none; `?tempting=subject`
    refuses such a file.
    """

    title = "ioi"
    shared = "template"
    settings = (contrast.TEMPTING, SUBJECT)

    @classmethod
    def cluster(cls, question: str, gold: str, group: str) -> str:
        """The sentence without its names, and without what follows an article: places and things."""
        subject = _repeated(question, gold)
        named = re.sub(rf"(?<!\w)(?:{'|'.join(map(re.escape, filter(None, (gold, subject))))})(?!\w)", "_", question)
        return _DRAWN.sub("_ ", named)

    def evaluated(self) -> Iterable[Item]:
        """The first half of the project's own sentences."""
        return self.tempted(_sentences()[:ITEMS])

    def observed(self) -> Iterable[Item]:
        """Its second half, none of which is asked."""
        return self.tempted(_sentences()[ITEMS:])

    def tempted(self, items: Sequence[Item]) -> Iterable[Item]:
        """The items with the name that stands twice, or with the text of the setting."""
        if self.setting not in self.settings:
            return super().tempted(items)
        return (contrast.tempted(item, item.metadata["subject"] or contrast.TEMPTING) for item in items)

    def corruptions(self, item: Item) -> Iterable[Item]:
        """The sentence whose last name is the right one's, so that the other name is right; one at most."""
        subject = str(item.metadata.get("subject", ""))
        places = [word.start() for word in _WORD.finditer(item.question) if word[0] == subject]
        if len(places) > 1 and item.gold in item.question:
            before, behind = item.question[: places[-1]], item.question[places[-1] + len(subject) :]
            other = corrupted(item, f"{item.id} corrupted", f"{before}{item.gold}{behind}", subject)
            yield replace(other, metadata={"subject": item.gold})

    def aligned(self, item: Item) -> Iterator[Item]:
        """The sentence with other names, as in the reference distribution of Wang et al. (2022)."""
        subject = str(item.metadata.get("subject", ""))
        if not subject or item.gold not in item.question:
            return
        form = _WORD.sub(lambda word: {item.gold: "{gold}", subject: "{subject}"}.get(word[0], word[0]), item.question)
        names = _names(self).copy()
        random.Random(f"aligned {form}").shuffle(names)
        for apart in range(1, len(names)):
            for right, other in zip(names, (*names[apart:], *names[:apart]), strict=True):
                prompt = form.replace("{gold}", right).replace("{subject}", other)
                yield _item(f"{right}, {other}: {form}", prompt, right, other)

    def item(self, row: SourceRow, index: int) -> Item:
        """The item of a row."""
        prompt, right = row.text(*PROMPTS), row.text(*RIGHTS)
        prompt = _without(prompt, right, row)
        field = row.field(*SUBJECTS)
        subject = _repeated(prompt, right) if row.fields.get(field) is None else row.text(field)
        if self.setting == SUBJECT and subject in ("", right):
            raise row.fault(
                f"there is no name besides '{right}' that stands twice, to tempt; name it in a field 'subject', or "
                f"leave ?tempting=subject out."
            )
        return _item(contrast.identity(row, ("case_id",), prompt, index), prompt, right, subject)


@cache
def _names(task: Ioi) -> list[str]:
    """The names of a task's sentences and those of the project's own."""
    own = (name for item in task.load() for name in (item.gold, str(item.metadata.get("subject", ""))))
    return sorted({*packaged("benchmarks/ioi.toml")["names"], *filter(None, own)})


def _item(identity: str, prompt: str, right: str, subject: str) -> Item:
    item = contrast.item(identity, prompt, right, group=_order(prompt, right, subject))
    return replace(item, metadata={"subject": subject})


@cache
def _sentences() -> tuple[Item, ...]:
    """The project's own sentences, all different; every other one names the right one first."""
    words = packaged("benchmarks/ioi.toml")
    items: dict[str, Item] = {}
    number = 0
    while len(items) < ITEMS + POOL:
        rng = random.Random(f"ioi {number}")
        right = rng.choice(words["names"])
        subject = rng.choice([name for name in words["names"] if name[0] != right[0]])
        first, second = (right, subject) if len(items) % 2 == 0 else (subject, right)
        prompt = rng.choice(words["templates"]).format(
            first=first,
            second=second,
            giver=subject,
            place=rng.choice(words["places"]),
            thing=rng.choice(words["things"]),
        )
        identity = str(len(items)) if len(items) < ITEMS else f"train-{len(items) - ITEMS}"
        items.setdefault(prompt, _item(identity, prompt, right, subject))
        number += 1
    return tuple(items.values())


def _without(prompt: str, right: str, row: SourceRow) -> str:
    """A prompt without the right name at its end and what of punctuation follows it."""
    ended = _BEHIND.sub("", prompt)
    name = _BEHIND.sub("", right) or right
    if not f" {ended}".endswith(f" {name}"):
        if PROMPTS[0] in row:
            return prompt
        raise row.fault(
            f"the sentence must end in the answer '{right}', and ends in '{prompt.split()[-1]}'; give what stands "
            f"before the answer as 'prompt', or leave the row out."
        )
    shorter = ended[: len(ended) - len(name)].rstrip()
    if not shorter:
        raise row.fault(f"the prompt is nothing but the answer '{right}'.")
    return shorter


def _repeated(prompt: str, right: str) -> str:
    """The one capitalised word besides the right one that stands at least twice; "" where there is none or several."""
    counts = Counter(word for word in _WORD.findall(prompt) if word[0].isupper() and word != right)
    twice = [word for word, count in counts.items() if count > 1]
    return twice[0] if len(twice) == 1 else ""


def _order(prompt: str, right: str, subject: str) -> str:
    """`ABBA` where the right name comes before the repeated one, else `BABA`; "" where one of them is not there."""
    words = _WORD.findall(prompt)
    if right not in words or subject not in words:
        return ""
    return "ABBA" if words.index(right) < words.index(subject) else "BABA"
