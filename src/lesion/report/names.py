"""Short names of models and tasks: what people read, while files and identities keep the full name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from lesion.report import wording

FILES = re.compile(r"\.(jsonl?|csv|tsv|parquet|txt|gguf)(\.gz)?$", re.IGNORECASE)
"""Endings that no short name has."""
FIELDS = frozenset(("model", "models", "task", "tasks", "skill", "control", "controls", "base"))
"""Fields that hold names of models and tasks, or values with such a `name`."""
QUESTIONS = ("", "jsonl", "primer", "text", "bundled", "python")
"""What stands before a colon and says nothing that the file's or task's own name does not say."""
_WRAPPED = re.compile(r"(?P<wrapped>((gold|shuffled|fewshot:\d+):)*)((?P<kind>\w[\w-]+):)?(?P<path>.*)", re.DOTALL)
_MODEL = re.compile(r"(?P<source>.+?)(?P<rest>(@[^/\\@]+)?( \(\w+\))?)")


def short_names(full: Iterable[str]) -> dict[str, str]:
    """Every full name with its short one, which no other has: `bundled:llama-base` → `llama-base`.

    Of paths and repositories the last part, of tasks what is asked, without options; of those that would be equal,
    as much more as tells them apart.
    """
    names = list(dict.fromkeys(full))
    forms = {name: list(dict.fromkeys((*_forms(name, names), name))) for name in names}
    while True:
        longer = [name for name, own in forms.items() if _must_differ(own, list(forms.values()))]
        if not longer:
            return {name: own[0] for name, own in forms.items()}
        for name in longer:
            del forms[name][0]


def _must_differ(own: list[str], every: Sequence[list[str]]) -> bool:
    """Whether a name takes its next form: others have the first too, and not it alone has the fewest left."""
    alike = [len(forms) for forms in every if forms[0] == own[0]]
    fewest = min(alike)
    return len(own) > 1 and len(alike) > 1 and (len(own) > fewest or alike.count(fewest) > 1)


def _forms(name: str, names: Iterable[str]) -> Iterator[str]:
    """Ever longer forms of a name."""
    head, _, options = name.partition("?")
    wrapped = _WRAPPED.fullmatch(head)
    assert wrapped is not None, "it matches any text"
    kind, path = wrapped["kind"] or "", wrapped["path"]
    match = _MODEL.fullmatch(path)
    source, rest = (match["source"], match["rest"]) if match else (path, "")
    parts = [part for part in re.split(r"[/\\]", source) if part.strip(".")]
    is_path = bool(FILES.search(source)) or len(parts) > 1 or len(source) > len("".join(parts))
    if not parts or (kind not in QUESTIONS and not is_path):
        tails = [head]
    else:
        ends = [FILES.sub("", "/".join(parts[-count:])) for count in range(1, len(parts) + 1)]
        tails = ends if kind in QUESTIONS else [kind, *(f"{kind}:{end}" for end in ends)]
    of_head = [set(other.partition("?")[2].split("&")) for other in names if other.partition("?")[0] == head]
    differing = [option for option in options.split("&") if option and any(option not in each for each in of_head)]
    query = f"?{'&'.join(differing)}" if differing else ""
    for tail in tails:
        short = tail if tail == head else f"{wrapped['wrapped']}{tail}"
        yield from (short, f"{short}{rest}", f"{short}{rest}{query}")


def names_in(value: Any) -> Iterator[str]:
    """The names of all models and tasks of a study or summary: what its fields of `FIELDS` hold."""
    if isinstance(value, tuple | list) and value and isinstance(value[0], BaseModel):
        for each in value:
            yield from names_in(each)
    if not isinstance(value, BaseModel):
        return
    for field_name in type(value).model_fields:
        held = getattr(value, field_name)
        if field_name in FIELDS:
            for each in held if isinstance(held, tuple | list) else (held,):
                name = each if isinstance(each, str) else getattr(each, "name", None)
                if isinstance(name, str):
                    yield name
        yield from names_in(held)


@dataclass(frozen=True)
class Names:
    """Texts in which every full name is written in short; what stands between backquotes (a command) stays.

    Attributes:
        full: names as studies and files have them.
    """

    full: tuple[str, ...] = field(default=())

    @cached_property
    def short(self) -> Mapping[str, str]:
        """The names that are written in another way."""
        return {full: name for full, name in short_names(self.full).items() if full != name}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        known = "|".join(map(re.escape, sorted(self.short, key=len, reverse=True)))
        return re.compile(rf"`[^`]*`|(?<![\w/.:-])(?:{known})(?![\w/-]|[@?.:]\w)")

    def __call__(self, text: str) -> str:
        """The text with short names."""
        return self._pattern.sub(lambda match: self.short.get(match[0], match[0]), text) if self.short else text

    def within(self, value: Any) -> Any:
        """A text, or texts in a list or tuple, with short names; other values as they are."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, tuple | list):
            return type(value)(map(self.within, value))
        return value

    @property
    def note(self) -> str:
        """Which names were written in short; empty where none was."""
        return wording.listed([f"{short} is {full}" for full, short in self.short.items()])


NO_NAMES = Names()
"""Of a part whose study is not known: every name as it is."""
