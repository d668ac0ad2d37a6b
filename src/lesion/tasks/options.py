"""Questions with options: the two forms in which they are asked, and what is wrong with one that cannot be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any, Literal, get_args

from lesion.errors import UsageError, nearest
from lesion.plain import short
from lesion.tasks.judges import judge
from lesion.tasks.source import whole
from lesion.tasks.task import Answer, Item, Verdict

Form = Literal["letter", "text"]
"""`letter`: the options stand in the prompt behind letters, and the letters are scored. `text`: the prompt is the
question alone, and the options themselves are scored."""
FORMS: tuple[Form, ...] = get_args(Form)


def check_form(form: str, task: str) -> Form:
    """The form of that name.

    Raises:
        UsageError: there is none, with the nearest.
    """
    for known in FORMS:
        if form == known:
            return known
    raise UsageError(f"There is no form '{form}' for {task}{nearest(form, FORMS)}; there are {', '.join(FORMS)}.")


def item(
    identity: str,
    question: str,
    options: Sequence[str],
    place: int,
    form: Form,
    group: str = "",
    metadata: Mapping[str, Any] | None = None,
) -> Item:
    """The item of a question with options.

    In form `letter` the question of the item is the question and a line `A. …` for each option, and the choices are
    the letters, as lm-evaluation-harness asks MMLU. In form `text` it is the question alone, and the choices are the
    options, white space around them removed; two options of the same text are one answer, and both are right when
    one is. The options as they stand in the data, and the right letter, are in the metadata of either form.

    Args:
        identity: the id.
        question: what is asked.
        options: what is chosen among.
        place: of the right option, from 0.
        form: see above.
        group: see `Item`.
        metadata: more to keep with the item.
    """
    letters = tuple(ascii_uppercase[: len(options)])
    lines = (f"{letter}. {option}" for letter, option in zip(letters, options, strict=True))
    choices = letters if form == "letter" else tuple(option.strip() for option in options)
    return Item(
        id=identity,
        question="\n".join((question, *lines)) if form == "letter" else question,
        gold=choices[place],
        choices=choices,
        solution=choices[place],
        group=group,
        metadata={**(metadata or {}), "options": tuple(options), "letter": letters[place]},
    )


def verdict(item: Item, answer: Answer) -> Verdict:
    """Whether the option that was chosen is the right one."""
    if answer.finish == "nonfinite":
        return judge.UNREAD
    return Verdict(answer.text == item.gold, answer.text)


def check(options: Any, answer: Any, form: Form, where: str) -> tuple[tuple[str, ...], int]:
    """The options and the place of the right one, from 0, if a question can be asked with them.

    Args:
        options: 2 to 26 texts. One that is empty can stand behind a letter, unless it is the right one; it cannot be
            scored as a text.
        answer: the letter of the right option, or its place.
        form: in which it will be asked.
        where: file and row, for errors.

    Raises:
        UsageError: there are too few options or too many, one is not a text or empty where it may not be, or the
            answer is beyond them.
    """
    if not isinstance(options, list | tuple) or not all(isinstance(option, str) for option in options):
        raise UsageError(f"{where}: the options must be a list of texts.")
    if not 2 <= len(options) <= len(ascii_uppercase):
        raise UsageError(f"{where}: there must be 2 to {len(ascii_uppercase)} options, not {len(options)}.")
    letters = ascii_uppercase[: len(options)]
    if isinstance(answer, str) and len(answer.strip()) == 1 and answer.strip() in letters:
        place = letters.index(answer.strip())
    elif isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(options):
        place = answer
    else:
        raise UsageError(
            f"{where}: the answer is {short(repr(answer))}; it must be a letter from A to {letters[-1]}, or a number"
            f" from 0 to {len(options) - 1}, since there are {len(options)} options."
        )
    for index, option in enumerate(options):
        whole(option, f"option {letters[index]}", where)
        if not option.strip() and (form == "text" or index == place):
            way_out = "" if index == place else "; write it out, or ask with ?form=letter"
            raise UsageError(f"{where}: option {letters[index]} is empty{way_out}.")
    if sum(bool(option.strip()) for option in options) < 2:
        raise UsageError(f"{where}: all options but one are empty.")
    return tuple(options), place


def text(value: Any, name: str, where: str) -> str:
    """A text that is not empty, white space around it removed.

    Raises:
        UsageError: it is no text, or empty.
    """
    if not isinstance(value, str):
        raise UsageError(f"{where}: '{name}' must be a text.")
    if not value.strip():
        raise UsageError(f"{where}: '{name}' is empty.")
    return whole(value.strip(), name, where)
