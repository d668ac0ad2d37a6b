"""Facts: statements about the real world that one word completes, and the word that tempts instead."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any

from lesion.errors import UsageError
from lesion.tasks import contrast, options
from lesion.tasks.source import Row, fields_of, filled, identify, local_rows, rows_of
from lesion.tasks.task import Answer, Item, Kind, Verdict

FREQUENT = "frequent"
"""`?tempting=frequent`: the most frequent answer to others of the same relation tempts."""

RIGHTS = ("attribute", "ground_truth", "target_true")
IDS = ("case_id", "known_id", "id")
RELATIONS = ("relation_id", "relation")


@dataclass(frozen=True)
class Facts:
    """Statements such as "Madrid is a city in", which Spain continues.

    Without a path, facts of this project about capitals, countries, languages, continents, authors and the like, for
    use where nothing can be downloaded; the group is the relation. With a path, a file in one of these forms:

    - `subject`, `attribute`, `prompt`, `relation_id` (the facts that GPT-2 XL knows, of Meng et al. 2022);
    - `subject`, `prompt`, `ground_truth`, or `target_true` (CounterFact, one object a statement);
    - `requested_rewrite` with `prompt`, in which `{}` stands for the subject, `subject`, `target_true` and
      `relation_id` (CounterFact as Meng et al. 2022 published it).

    The group is the relation; where a row names none, its prompt with `{}` for the subject.

    Tempting is " the" (" a" where the right text begins with the same letters), or the text that is given, or with
    `frequent` the most frequent right text of the same relation among the statements with another one; where that
    begins with the same token as the right text, the next most frequent.

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
        contrast.check_tempting(self.tempting, "facts")
        if self.tempting == "subject":
            raise UsageError(
                "facts have ?tempting=frequent and ?tempting=TEXT; the word 'subject' itself is '?tempting= subject', "
                "with a space."
            )

    @property
    def name(self) -> str:
        """`facts`, with `:PATH` for a local file and `?tempting=…` where it is not " the"."""
        return contrast.named("facts", self.path, self.tempting)

    def load(self) -> Sequence[Item]:
        """Every statement, in the order of the file.

        Raises:
            UsageError: the file cannot be read, a row is malformed (with the row), or nothing can tempt.
        """
        return self._items

    @cached_property
    @rows_of
    def _items(self) -> tuple[Item, ...]:
        items = _written() if self.path is None else _local(self.path)
        if self.tempting == FREQUENT:
            return tuple(contrast.frequent(items))
        return tuple(contrast.tempted(item, self.tempting) for item in items)

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether no token is more probable than the first of the right text."""
        return contrast.verdict(item, answer)


@cache
def _written() -> tuple[Item, ...]:
    """The project's own facts, each in one of the wordings of its relation, by turns."""
    relations: Mapping[str, Any] = tomllib.loads(
        resources.files("lesion.tasks").joinpath("facts.toml").read_text(encoding="utf-8")
    )
    return tuple(
        contrast.item(
            f"{relation}:{subject}",
            facts["wordings"][number % len(facts["wordings"])].format(subject),
            right,
            group=relation,
        )
        for relation, facts in relations.items()
        for number, (subject, right) in enumerate(facts["facts"].items())
    )


def _local(path: str) -> list[Item]:
    items: list[Item] = []
    rows: dict[str, int] = {}
    for index, row in enumerate(local_rows(path)):
        where = f"{path}, row {index}"
        item = _read(row, index, where)
        if item.id in rows:
            raise UsageError(f"{where}: the id '{item.id}' is that of row {rows[item.id]}; ids must be unique.")
        rows[item.id] = index
        items.append(item)
    return items


def _read(row: Row, index: int, where: str) -> Item:
    fact = row.get("requested_rewrite", row)
    if not isinstance(fact, dict):
        raise UsageError(f"{where}: 'requested_rewrite' must be an object with 'prompt', 'subject' and 'target_true'.")
    subject = options.text(fact["subject"], "subject", where) if "subject" in fact else ""
    field = next((field for field in RIGHTS if field in fact), None)
    if "prompt" not in fact or field is None:
        missing = "prompt" if "prompt" not in fact else RIGHTS[0]
        raise UsageError(
            f"{where}: there is no field '{missing}'; there are {fields_of(fact)}. A fact has a "
            f"'prompt', a 'subject' and an 'attribute', a 'ground_truth' or a 'target_true'."
        )
    right = filled(fact, field, where)
    if isinstance(right, dict) and "str" in right:
        right = filled(right, "str", f"{where}, '{field}'")
    right = options.text(right, "answer", where)
    prompt = options.text(filled(fact, "prompt", where), "prompt", where)
    wording = prompt
    if "{}" in prompt:
        if not subject:
            raise UsageError(f"{where}: the prompt has '{{}}' for a subject, and there is no 'subject'.")
        prompt = prompt.replace("{}", subject)
    elif subject:
        wording = prompt.replace(subject, "{}")
    relation = next((str(fact[field]) for field in RELATIONS if fact.get(field)), wording if subject else "")
    case = next((row[field] for field in IDS if isinstance(row.get(field), int | str)), "")
    identity = str(case) if str(case).strip() else identify(prompt, index)
    return contrast.item(identity, prompt, right, group=relation)
