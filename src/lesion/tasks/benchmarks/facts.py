"""Facts: statements about the real world that one word completes, and the word that tempts instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from lesion.tasks import contrast
from lesion.tasks.counterparts import corrupted, others_of_group
from lesion.tasks.source import SourceRow, packaged
from lesion.tasks.task import Item

FREQUENT = "frequent"
"""`?tempting=frequent`: the most frequent answer to others of the same relation tempts."""

RIGHTS = ("attribute", "ground_truth", "target_true")
FALSE = ("target_new", "target_false")
IDS = ("case_id", "known_id", "id")
RELATIONS = ("relation_id", "relation")


class Facts(contrast.Contrast):
    """Statements such as "Madrid is a city in", which Spain continues.

    Without a path, facts of this project about capitals, countries, languages, continents, authors and the like; the
    group is the relation. With a path, a file in one of these forms:

    - `subject`, `attribute`, `prompt`, `relation_id` (the facts that GPT-2 XL knows, of Meng et al. 2022);
    - `subject`, `prompt`, `ground_truth`, or `target_true` (CounterFact, one object a statement);
    - `requested_rewrite` with `prompt`, in which `{}` stands for the subject, `subject`, `target_true` and
      `relation_id` (CounterFact as Meng et al. 2022 published it).

    The group is the relation; where a row names none, its prompt with `{}` for the subject.

    The rival is the false object of the row, where it has one (`target_new` or `target_false`, as in CounterFact). With
    `?tempting=frequent` it is the most frequent right text of the same relation among the statements with another one;
    where that begins with the same token as the right text, the next most frequent.
    """

    title = "facts"
    shared = "relation"
    settings = (contrast.TEMPTING, FREQUENT)

    def evaluated(self) -> Iterable[Item]:
        """The project's own facts."""
        return self.tempted(_packaged())

    observed = evaluated

    def tempted(self, items: Sequence[Item]) -> Iterable[Item]:
        """The items with what tempts by the setting."""
        if self.setting == FREQUENT:
            return contrast.frequent(items)
        if self.setting == contrast.TEMPTING:
            return (contrast.tempted(item, item.metadata.get("false") or contrast.TEMPTING) for item in items)
        return super().tempted(items)

    def corruptions(self, item: Item) -> Iterable[Item]:
        """The statement about other subjects of the same relation, in the wording of the item."""
        wording = str(item.metadata.get("wording", ""))
        for other in others_of_group(self.load(), item) if "{}" in wording else ():
            if topic := other.metadata.get("topic"):
                yield corrupted(item, other.id, wording.replace("{}", str(topic)), other.gold)

    def item(self, row: SourceRow, index: int) -> Item:
        """The item of a row."""
        fact = row
        if "requested_rewrite" in row:
            if not isinstance(row["requested_rewrite"], dict):
                raise row.fault("'requested_rewrite' must be an object with 'prompt', 'subject' and 'target_true'.")
            fact = SourceRow(row["requested_rewrite"], row.where)
        subject = fact.text("subject") if "subject" in fact else ""
        prompt = wording = fact.text("prompt")
        right = _object(fact, *RIGHTS)
        false = _object(fact, *FALSE) if any(fact.fields.get(field) for field in FALSE) else ""
        if "{}" in prompt:
            if not subject:
                raise row.fault("the prompt has '{}' for a subject, and there is no 'subject'.")
            prompt = wording.replace("{}", subject)
        elif subject:
            wording = prompt.replace(subject, "{}")
        relation = next((str(fact[field]) for field in RELATIONS if fact.fields.get(field)), wording if subject else "")
        item = _item(contrast.identity(row, IDS, prompt, index), wording, subject, prompt, right, relation)
        if false in ("", right):
            return item
        return replace(item, metadata={**item.metadata, "false": false})


def _object(fact: SourceRow, *fields: str) -> str:
    """The first of these fields, a text or an object with `str`."""
    field = fact.field(*fields)
    value = fact[field]
    if isinstance(value, dict) and "str" in value:
        value = SourceRow(value, f"{fact.where}, '{field}'")["str"]
    return SourceRow({"answer": value}, fact.where).text("answer")


def _item(identity: str, wording: str, subject: str, prompt: str, right: str, relation: str) -> Item:
    item = contrast.item(identity, prompt, right, group=relation)
    return replace(item, metadata={"wording": wording, "topic": subject})


@cache
def _packaged() -> tuple[Item, ...]:
    """The project's own facts, each in one of the wordings of its relation, by turns."""
    return tuple(
        _item(f"{relation}:{subject}", wording, subject, wording.format(subject), right, relation)
        for relation, facts in packaged("benchmarks/facts.toml").items()
        for number, (subject, right) in enumerate(facts["facts"].items())
        for wording in (facts["wordings"][number % len(facts["wordings"])],)
    )
