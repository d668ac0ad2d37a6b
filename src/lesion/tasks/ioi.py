"""IOI, indirect object identification: who is given something, when the giver is named twice (Wang et al. 2022)."""

from __future__ import annotations

import random
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from typing import Any

from lesion.errors import UsageError
from lesion.tasks import contrast, options
from lesion.tasks.source import Row, fields_of, filled, identify, local_rows, rows_of
from lesion.tasks.task import Answer, Item, Kind, Verdict

SUBJECT = "subject"
"""`?tempting=subject`: the name that stands twice tempts."""

ITEMS, POOL = 400, 400
PROMPTS = ("prompt", "text", "sentence")
RIGHTS = ("answer", "io", "IO", "indirect_object")
SUBJECTS = ("subject", "s", "S")

_BEHIND = re.compile(r"[\W_]+$")
_WORD = re.compile(r"[^\W\d_](?:[\w’'-]*\w)?")


@dataclass(frozen=True)
class Ioi:
    """Sentences such as "When Mary and John went to the shop, John gave a book to", which Mary's name continues.

    Without a path, 400 sentences of this project: names, places and things drawn by a seed, two names never with the
    same first letter. In half of them the one who is given something is named first (group `ABBA`), in half the giver
    (`BABA`). With a path, a file of objects with `prompt` (or a whole sentence, `text` or `sentence`, whose last word
    is the answer, whatever punctuation follows) and `answer` (or `io`, `IO`, `indirect_object`), perhaps `subject` and
    `case_id`. Where there is no `subject`, it is the one capitalised word besides the answer that stands twice.

    Tempting is " the" (" a" where the right name begins with the same letters), or the text that is given, or with
    `subject` the name that stands twice.

    Raises:
        UsageError: there is no tempting text.
    """

    path: str | None = None
    tempting: str = contrast.TEMPTING
    kind: Kind = "contrast"
    max_new_tokens: int = 1
    stop: tuple[str, ...] = ()
    style: str = "raw"

    def __post_init__(self) -> None:
        contrast.check_tempting(self.tempting, "ioi")
        if self.tempting == "frequent":
            raise UsageError(
                "In ioi the name that tempts is that which stands twice: ioi?tempting=subject; the word 'frequent' "
                "itself is '?tempting= frequent', with a space."
            )

    @property
    def name(self) -> str:
        """`ioi`, with `:PATH` for a local file and `?tempting=…` where it is not " the"."""
        return contrast.named("ioi", self.path, self.tempting)

    def load(self) -> Sequence[Item]:
        """Every sentence, in the order of the file.

        Raises:
            UsageError: the file cannot be read, or a row is malformed; with the row.
        """
        return self._items

    def calibration(self) -> Sequence[Item]:
        """Without a path, 400 more sentences, none of which is asked; else `load()`."""
        return self._pool if self.path is None else self._items

    @cached_property
    @rows_of
    def _items(self) -> tuple[Item, ...]:
        if self.path is None:
            return tuple(self._tempted(number, sentence) for number, sentence in enumerate(_sentences()[:ITEMS]))
        items: list[Item] = []
        rows: dict[str, int] = {}
        for index, row in enumerate(local_rows(self.path)):
            where = f"{self.path}, row {index}"
            item = self._read(row, index, where)
            if item.id in rows:
                raise UsageError(
                    f"{where}: the case_id '{item.id}' is that of row {rows[item.id]}; ids must be unique."
                )
            rows[item.id] = index
            items.append(item)
        return tuple(items)

    @cached_property
    def _pool(self) -> tuple[Item, ...]:
        return tuple(self._tempted(f"train-{number}", sentence) for number, sentence in enumerate(_sentences()[ITEMS:]))

    def _tempted(self, identity: int | str, sentence: tuple[str, str, str]) -> Item:
        prompt, right, subject = sentence
        tempting = subject if self.tempting == SUBJECT else self.tempting
        item = contrast.item(str(identity), prompt, right, tempting, _order(prompt, right, subject))
        return replace(item, metadata={"subject": subject})

    def _read(self, row: Row, index: int, where: str) -> Item:
        prompt = options.text(_one_of(row, PROMPTS, where), "prompt", where)
        right = options.text(_one_of(row, RIGHTS, where), "answer", where)
        prompt = _without(prompt, right, where, whole=PROMPTS[0] not in row)
        given = next((row[field] for field in SUBJECTS if field in row), None)
        subject = _repeated(prompt, right) if given is None else options.text(given, "subject", where)
        if self.tempting == SUBJECT and subject in ("", right):
            raise UsageError(
                f"{where}: there is no name besides '{right}' that stands twice, to tempt; name it in a field "
                f"'subject', or leave ?tempting=subject out."
            )
        case = row.get("case_id")
        identity = str(case) if isinstance(case, int | str) and str(case).strip() else identify(prompt, index)
        return self._tempted(identity, (prompt, right, subject))

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether no token is more probable than that of the right name."""
        return contrast.verdict(item, answer)


@cache
def _sentences() -> tuple[tuple[str, str, str], ...]:
    """Different sentences as prompt, right name and repeated name; every other one names the right one first."""
    words = _words()
    found: dict[str, tuple[str, str, str]] = {}
    number = 0
    while len(found) < ITEMS + POOL:
        rng = random.Random(f"ioi {number}")
        right, subject = _two_names(rng, words["names"])
        first, second = (right, subject) if len(found) % 2 == 0 else (subject, right)
        prompt = rng.choice(words["templates"]).format(
            first=first,
            second=second,
            giver=subject,
            place=rng.choice(words["places"]),
            thing=rng.choice(words["things"]),
        )
        found.setdefault(prompt, (prompt, right, subject))
        number += 1
    return tuple(found.values())


def _two_names(rng: random.Random, names: Sequence[str]) -> tuple[str, str]:
    one = rng.choice(names)
    return one, rng.choice([name for name in names if name[0] != one[0]])


@cache
def _words() -> Mapping[str, Any]:
    return tomllib.loads(resources.files("lesion.tasks").joinpath("ioi.toml").read_text(encoding="utf-8"))


def _one_of(row: Row, fields: Sequence[str], where: str) -> Any:
    for field in fields:
        if field in row:
            return filled(row, field, where)
    raise UsageError(
        f"{where}: there is no field '{fields[0]}'; there are {fields_of(row)}. A row of ioi has 'prompt' and 'answer'."
    )


def _without(prompt: str, right: str, where: str, whole: bool) -> str:
    """A prompt without the right name at its end and what of punctuation follows it.

    Args:
        prompt: the text of the row.
        right: the right name.
        where: file and row, for errors.
        whole: whether the text must be a whole sentence, which ends in the name.

    Raises:
        UsageError: a sentence does not end in the name, or nothing stands before it.
    """
    ended = _BEHIND.sub("", prompt)
    name = _BEHIND.sub("", right) or right
    if not f" {ended}".endswith(f" {name}"):
        if not whole:
            return prompt
        raise UsageError(
            f"{where}: the sentence must end in the answer '{right}', and ends in '{prompt.split()[-1]}'; give what "
            f"stands before the answer as 'prompt', or leave the row out."
        )
    shorter = ended[: len(ended) - len(name)].rstrip()
    if not shorter:
        raise UsageError(f"{where}: the prompt is nothing but the answer '{right}'.")
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
