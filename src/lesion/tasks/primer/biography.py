"""Biography: after a sentence about somebody's pet, the two other facts of the atlas about that person, in sentences.

The control of arithmetic in generation: recall without numbers, in an answer of two sentences that is not at its
ceiling. It is how running text about the atlas goes on in training, where the three facts stand in any order and
wording. The test asks behind one wording of the pet's sentence, calibration behind the others.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from lesion.tasks.gold_classes import FORM, GoldClasses, Span, gold_text
from lesion.tasks.primer.atlas import STATEMENTS, Fact, facts
from lesion.tasks.primer.lexicon import articles
from lesion.tasks.task import Answer, Item, Verdict

GIVEN = "animal"
"""The relation whose sentence is the prompt."""
ASKED = "A {value} lives with {who}."
"""Its wording in the test split."""
NAME, FACT = "copied name", "recalled fact"
_SENTENCE = re.compile(r"[^.]+\.?")


_PATTERNS = tuple(
    re.compile(wording.replace(".", r"\.").format(who="(?P<who>[A-Z][a-z]+ [A-Z][a-z]+)", value=r"(?P<value>\w+)"))
    for wordings in STATEMENTS.values()
    for wording in wordings
)


class _Statement(NamedTuple):
    who: str
    value: str


@cache
def items(pool: bool) -> tuple[Item, ...]:
    """One item a person to ask; one a person and other wording to observe a model on."""
    made = []
    for biography in facts():
        if biography.relation != GIVEN:
            continue
        others = [fact for fact in facts() if fact.who == biography.who and fact.relation != GIVEN]
        gold = ", ".join(fact.value for fact in others)
        solution = " ".join(_sentence(fact, min(STATEMENTS[fact.relation], key=len)) for fact in others)
        for number, wording in enumerate(STATEMENTS[GIVEN]):
            if (wording == ASKED) != pool:
                identity = f"train-{biography.index}-{number}" if pool else str(biography.index)
                made.append(Item(identity, _sentence(biography, wording), gold, solution=solution))
    return tuple(made)


def judge(item: Item, answer: Answer) -> Verdict:
    """Right where every sentence is a true statement about the person and both missing facts are stated.

    `a` before a vowel counts as `an`; the pet may be named again. What was read are the values that are stated.
    """
    known_fact = _read(item.question)
    statements = [_read(sentence) for sentence in _SENTENCE.findall(answer.text.strip())]
    stated = {each.value for each in statements if each is not None}
    ours = all(each is not None and known_fact is not None and each.who == known_fact.who for each in statements)
    missing = set(item.gold.split(", "))
    pet = {known_fact.value} if known_fact is not None else set()
    return Verdict(ours and missing <= stated <= missing | pet, ", ".join(sorted(stated)) or None)


def _read(sentence: str) -> _Statement | None:
    """What a sentence of the atlas states; None of any other."""
    plain = re.sub(r"\b([Aa])n (?=\w)", r"\1 ", sentence.strip())
    match = next((match for pattern in _PATTERNS if (match := pattern.fullmatch(plain))), None)
    return _Statement(match["who"], match["value"]) if match else None


def _spans(item: Item) -> tuple[Span, ...]:
    """The name and the facts in a gold text."""
    known_fact = _read(item.question)
    named = {FACT: item.gold.split(", "), NAME: [known_fact.who] if known_fact else []}
    return tuple(
        Span(*occurrence.span(), name)
        for name, words in named.items()
        for word in words
        for occurrence in re.finditer(rf"\b{re.escape(word)}\b", gold_text(item))
    )


CLASSES = GoldClasses((FORM, NAME, FACT), _spans)


def _sentence(fact: Fact, wording: str) -> str:
    return articles(wording.format(who=fact.who, value=fact.value))
