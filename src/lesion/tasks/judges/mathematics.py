"""Whether the mathematical answer in a text is the gold answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lesion.tasks.judges.deadline import within
from lesion.tasks.judges.grammar import readings
from lesion.tasks.judges.meanings import Value, variants
from lesion.tasks.judges.notation import LONGEST, typed
from lesion.tasks.judges.reading import TAIL, candidates, dressed_off, heads, sentence, value_in
from lesion.tasks.judges.values import as_text, same_value
from lesion.tasks.task import Verdict

SECONDS = 2.0
"""Time limit for one comparison; a comparison that takes longer counts as unequal."""

_OPTION = re.compile(r"\\?(?:text|textbf|mathrm)?\{?\(?[A-J]\)?\}?")
_LOOP = re.compile(r"([\W_]{60})[\W_]+")
_TAG = re.compile(r"</?(?:b|em|strong|code)>")
_TOO_MUCH = (TimeoutError, RecursionError, MemoryError, OverflowError, ArithmeticError)


def math_answer(text: str, gold: str, aliases: Sequence[str] = (), complete: bool = True) -> Verdict:
    r"""Judge a solution written in words and mathematics by the answer it arrives at.

    The answer is read at the first of these places that is not empty: the last `\boxed{…}`, with those that "and"
    joins to it; the last line behind `####`; the last "answer is …" or "answer: …"; a first line that is a number alone
    and is explained below it ("12", then "Because …"); a text that is nothing but an answer; the end of the text. Where
    the text has `<answer>` tags or ends its thinking with `</think>`, these places are looked for behind the tag first.
    A next question that the model asks itself, and all behind it, is no part of the text.

    What stands there is read whole, by the grammar of `grammar.py`, up to the end of its box, line or sentence or up to
    a remark, and compared with the gold answer by value (`values.py`). What cannot be read whole is compared as text,
    never by a number inside it. `docs/internals.md` has a table of what counts as the same.

    `complete`: whether the model ended the text itself. In a text cut off at the token limit the last number is the
    place where it was cut, not an answer: only a marked answer is read there.
    """
    rights = [dressed_off(typed(right)) for right in (gold, *aliases)]
    try:
        # A loop of signs or blanks, as damaged models write it, costs some patterns the cube of its length.
        read = _LOOP.sub(r"\1", _TAG.sub("", typed(text[-TAIL:])))
        return within(SECONDS, lambda: _verdict(read, rights, complete))
    except _TOO_MUCH:
        return Verdict(False, None)


def _verdict(text: str, rights: Sequence[str], complete: bool) -> Verdict:
    in_words = any(_OPTION.fullmatch(right) for right in rights) or not any(readings(right) for right in rights)
    for stated, place in candidates(text, complete):
        if not dressed_off(stated):
            continue
        if place == "last" or (place == "whole" and not in_words):
            read = value_in(stated, place)
            if read is None:
                continue
            return Verdict(_is_one_of(read[0], rights), read[1])
        written = _as_written(stated[: 2 * LONGEST], rights, in_words)
        if written is not None:
            return Verdict(True, written)
        read = value_in(stated, place)
        if read is not None:
            return Verdict(_is_one_of(read[0], rights), read[1])
        if place == "whole":
            continue
        # The first place decides: a number found elsewhere is not what an unreadable box says.
        return Verdict(False, dressed_off(stated) if in_words and len(stated) <= LONGEST else None)
    stated_words = dressed_off(sentence(text)) if in_words and complete else ""
    return Verdict(False, stated_words if 0 < len(stated_words) <= LONGEST else None)


def _as_written(stated: str, rights: Sequence[str], in_words: bool) -> str | None:
    """What is stated, where it is a right answer as text, whole or before a remark: formulas only if typed alike."""
    first = re.split(r"[,.;:!—–(]\s|\s[-–—(]", stated.lstrip())[0]
    option = re.match(
        r"\s*\\?(?:text[a-z]{0,2}\{)?\(?([A-Ja-j])\)(?!\W*(?:and|or|,|&|/)\W*(?:\([A-Ja-j]\)|[A-J]\b))", stated
    )
    predicate = re.split(r"\b(?:is|are|was|were|has|have)\s", sentence(stated))[-1]
    for head in (*heads(stated), first, predicate, option[1] if option else "") if in_words else (stated,):
        bare = dressed_off(head)
        if not bare or len(bare) > LONGEST:
            continue
        for right in rights:
            formulas = readings(bare) and readings(right) and not _OPTION.fullmatch(right)
            if bare == right or (not formulas and as_text(bare) == as_text(right)):
                return bare
    return None


def _is_one_of(values: Sequence[Value], rights: Sequence[str]) -> bool:
    return any(
        same_value(variants(value), variants(right))
        for value in values
        for gold in rights
        for right, _ in readings(gold)
    )
