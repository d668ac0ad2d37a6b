"""Continuations: what follows a prompt, or is read in its place, as token ids: choices, solutions, contrasts, text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from lesion.errors import LesionError
from lesion.tasks.contrast import SECOND, TEMPTING, Contrast
from lesion.tasks.conversation import Written, apart, beginning, continued, section, spell
from lesion.tasks.gold_classes import gold_text
from lesion.tasks.harness.task import Harness
from lesion.tasks.jsonl import JsonLines
from lesion.tasks.prompts import Speaker, encode, longest_text, refuse_immense, resolve, templates, write
from lesion.tasks.task import Item, Task
from lesion.tasks.wrapped import Gold, Shuffled, WrappedTask

# So many characters of a prompt, its last, are looked at to see how what follows is encoded: far more than any token
# spans, and the same work after a long passage as after a short question.
REACH = 500
WORDS = (TEMPTING, SECOND)


def encode_choices(model: Speaker, task: Task, item: Item, style: str | None = None) -> tuple[tuple[int, ...], ...]:
    """The token ids of each choice of an item, as they follow its prompt.

    A choice follows a prompt after one space, unless the prompt ends or the choice begins with white space. It follows
    at once where a chat template ends in a control token. It is encoded without special tokens, and its names of
    control tokens are characters.

    Its ids are those that prompt and choice, encoded as one text, have behind the ids of the prompt. (Encoded alone, a
    choice would begin with a stray `▁` under tokenizers that put one before every text.) Where the two do not come
    apart there, the choice is encoded behind a line break, and where it does not come apart from that, alone.
    """
    prompt, ending = _prompt(model, task, item, style)
    return tuple(tuple(_choice(model, task, item, prompt, apart(ending, choice))) for choice in item.choices)


@dataclass(frozen=True)
class Contrasted:
    """What is asked of a contrast: tokens right after a prompt.

    Attributes:
        prompt: token ids of the item's prompt, and behind them those of white space alone that the right text begins
            with.
        right: the first token of the right text behind that.
        others: the first tokens of what tempts behind that, all different and others than the right one, last that of
            a word that is no rival (`lesion.tasks.contrast`). A rival that begins with the token of the right text is
            not among them.
        whole: all tokens of the right text and of each rival behind that, for the forced answer; empty without a rival.
            A rival that begins with all tokens of the right text, or is such a beginning, is not among them: its
            probability is never larger, or never smaller.
        alike: whether the name that stands twice (ioi) begins with the right token too: the model cannot tell the two
            names apart by one token.
    """

    prompt: tuple[int, ...]
    right: int
    others: tuple[int, ...]
    alike: bool = False
    whole: tuple[tuple[int, ...], ...] = ()

    @property
    def tempting(self) -> int:
        """The first rival; where there is none, the word that is none."""
        return self.others[0]

    @property
    def word(self) -> int | None:
        """The word that is no rival, beside one; None where it is all that tempts."""
        return self.others[-1] if len(self.others) > 1 else None

    @property
    def tokens(self) -> tuple[int, ...]:
        """The right one, then the others."""
        return self.right, *self.others


def encode_contrast(model: Speaker, task: Task, item: Item, style: str | None = None) -> Contrasted:
    """An item's prompt with the first tokens of its right text and of what tempts, as they follow it.

    A tokenizer without a token for a space with the first letters of a word spells the space by itself, with a token
    that most words share. So where the right text begins with tokens of white space alone, they are put behind the
    prompt, and the tokens are the first behind them: the probability is that of the word, given the white space. A
    tempting text that begins with the same white space goes on behind it; any other stands there without its own (the
    tokens that the word has behind a line break). A tempting text whose first token is white space where that of the
    right text is not is left as it is. Rivals that begin with the token of the right text are left out, and of rivals
    that begin with the same token all but one.
    """
    prompt, ending = _prompt(model, task, item, style)

    @cache
    def tokens_of(text: str) -> tuple[int, ...]:
        return _behind(model.tokenizer, space, text, _choice(model, task, item, prompt, apart(ending, text)))

    def first_token(text: str) -> int | None:
        return next(iter(tokens_of(text)), None)

    right, *others = item.choices
    ids = _choice(model, task, item, prompt, apart(ending, right))
    count = next((place for place, token in enumerate(ids[:-1]) if not _blank(model.tokenizer, token)), len(ids) - 1)
    space, first = ids[:count], ids[count]
    *rivals, word = others
    rival_tokens = dict.fromkeys(token for token in map(first_token, rivals) if token not in (None, first))
    words = map(first_token, (word, *WORDS) if rivals else (word,))
    beside = next((token for token in words if token not in (None, first)), None)
    twice = str(item.metadata.get("subject", ""))
    alike = bool(twice) and twice != right and first_token(twice) == first
    gold = tuple(ids[count:])
    apart_from = dict.fromkeys(tokens for tokens in map(tokens_of, rivals) if tokens and not _nested(tokens, gold))
    if beside is None or (rivals and not apart_from and not alike):
        token = model.tokenizer.convert_ids_to_tokens(first)
        more = f" (nor do {len(rivals) - 1} others differ)" if len(rivals) > 1 else ""
        raise LesionError(
            f"'{right}' and '{others[0]}' of item {item.id} of {task.name} begin with the same token {token!r} of "
            f"{model.name}{more}: the item has no tempting token apart from the right one; {_another_tempting(task)}."
        )
    whole = (*encode(model, task, item, style), *space)
    if len(whole) > model.context:
        raise LesionError(
            f"The prompt of item {item.id} of {task.name} fills the context of {model.name}, {model.context:,} "
            f"tokens, and leaves no room for the white space before '{right}'; leave the item out."
        )
    every = (gold, *apart_from) if apart_from else ()
    return Contrasted(whole, first, (*rival_tokens, beside), alike, every)


def _another_tempting(task: Task) -> str:
    """What to do about a text that cannot tempt: where it comes from differs from task to task."""
    while isinstance(task, WrappedTask):
        task = task.of
    if isinstance(task, JsonLines):
        return "write another 'tempting' in its line of the file, or leave the line out"
    return "give another with ?tempting=…" if isinstance(task, Contrast) else "take another task or model"


def encode_gold(
    model: Speaker, task: Gold, item: Item, style: str | None = None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The token ids of an item's prompt and of what is right to say after it: what `gold:TASK` scores.

    That is the gold choice where there are choices, else the solution, else the gold answer, as `encode_choices` has a
    choice follow. What does not fit the context behind the prompt is cut off at its end, as of running text.
    """
    if isinstance(task.of, Harness):
        part = task.of.gold(model, item)
        return part.prompt, part.choices[0]
    solution = gold_text(item)
    if not solution.strip():
        raise LesionError(f"Item {item.id} of {task.of.name} has no gold answer that could be scored; leave it out.")
    (continuation,) = encode_choices(model, task.of, replace(item, choices=(solution,)), style)
    prompt = encode(model, task.of, item, style, max_new_tokens=1)
    if len(prompt) == model.context:  # `encode` asks for no room behind the prompt of a choice
        raise LesionError(
            f"The prompt of item {item.id} of {task.of.name} fills the context of {model.name}, {model.context:,} "
            f"tokens; leave the item out."
        )
    return prompt, continuation[: model.context - len(prompt)]


def encode_answer(model: Speaker, task: Task, item: Item, text: str, style: str | None = None) -> tuple[int, ...]:
    """The token ids of what was said behind an item's prompt, as it was said: nothing is put between the two.

    Where the text came from a model's own tokens, these are those tokens, unless the model spelt it otherwise than its
    tokenizer would. Names of control tokens in the text are characters. An empty text has no tokens.
    """
    return tuple(_follow(model.tokenizer, _prompt(model, task, item, style)[0], text)) if text else ()


def encode_solved(model: Speaker, task: Task, item: Item, style: str | None = None) -> tuple[int, ...]:
    """The token ids of an item together with its gold solution: a text to observe a model on.

    The prompt is that of `encode`. The solution (the gold answer where the data set has none, the gold choice where
    there are choices) follows it as `encode_choices` has a choice follow. Of a JSON Lines file without choices in style
    `raw`, prompt and answer stand as they are, with nothing between them, as one text. An item that is scored as
    running text has no answer and stands alone.

    The text may be longer than the model's context, and may have no tokens; the caller decides what becomes of it.
    """
    prompt, solution = solved_parts(model, task, item, style)
    return (*prompt, *solution)


def solved_parts(
    model: Speaker, task: Task, item: Item, style: str | None = None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The token ids of an item and those of its gold solution behind it; a text without such parts has no prompt."""
    style = resolve(model, task, style)
    while isinstance(task, Gold | Shuffled):
        task = task.of
    if isinstance(task, Harness):
        return task.solved(model, item)
    if isinstance(task, JsonLines) and style == "raw" and not item.choices:
        return (), tuple(Written(item.question + item.gold, begin=True).ids(model.tokenizer))
    solution = gold_text(item)
    if not solution:  # running text is data, whatever style its task names
        return (), tuple(Written("", item.question, begin=True).ids(model.tokenizer))
    prompt, ending = _prompt(model, task, item, style)
    return tuple(prompt.ids(model.tokenizer)), tuple(_follow(model.tokenizer, prompt, apart(ending, solution)))


def encode_passage(model: Speaker, task: Task, item: Item) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The token ids of running text: what stands before it, and those whose log-probability is summed.

    Before it stand the special tokens that the tokenizer begins texts with; where there are none, the first token of
    the text, which nothing predicts. A text that does not fit the context is cut at its end. Names of control tokens
    in it are characters.

    Each has at least one token, and together no more than the context.
    """
    before = beginning(model.tokenizer)
    ids = spell(model.tokenizer, item.question[: longest_text(model.context)])
    if not before:
        before, ids = ids[:1], ids[1:]
    scored = ids[: max(0, model.context - len(before))]
    if not before or not scored:
        raise LesionError(
            f"Item {item.id} of {task.name} leaves {model.name} no token to predict; a text needs two, or a tokenizer "
            f"that begins texts with a token of its own."
        )
    return tuple(before), tuple(scored)


def _prompt(model: Speaker, task: Task, item: Item, style: str | None) -> tuple[Written, str]:
    """A prompt and the text that it ends with; behind a control token, an answer stands as behind a line break."""
    refuse_immense(model, task, item)
    style = resolve(model, task, style)
    prompt = write(model, task, item, style)
    if style == "raw":
        return prompt, item.question
    if style in templates():
        return prompt, templates()[style].template
    return prompt, prompt.pieces(model.tokenizer)[-1] or "\n"


def _choice(model: Speaker, task: Task, item: Item, prompt: Written, text: str) -> list[int]:
    ids = _follow(model.tokenizer, prompt, text)
    if not ids:
        raise LesionError(f"The choice '{text.strip()}' of item {item.id} of {task.name} has no tokens.")
    return ids


def _follow(tokenizer: Any, prompt: Written, text: str) -> list[int]:
    """The ids of a text behind a prompt, with its names of control tokens as characters."""
    *_, control, ending = ["", *prompt.pieces(tokenizer)]
    if len(ending) > REACH:
        control, ending = "", ending[-REACH:]
    for behind, before in ((control, ending), ("", "\n")):
        ids = continued(section(tokenizer, behind, before), section(tokenizer, behind, before + text))
        if ids:
            return ids
    return spell(tokenizer, text)


def _blank(tokenizer: Any, token: int) -> bool:
    """Whether a token is white space alone; some tokenizers write one that begins a text as nothing."""
    return not tokenizer.decode([token]).strip()


def _nested(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether one of two texts is the beginning of the other."""
    shorter = min(len(first), len(second))
    return first[:shorter] == second[:shorter]


def _behind(tokenizer: Any, space: list[int], text: str, ids: list[int]) -> tuple[int, ...]:
    """The tokens of a text, whose ids behind the prompt are given, behind white space; empty where it has no others."""
    if ids[: len(space)] == space:
        return tuple(ids[len(space) :])
    word = text.lstrip()
    if not word:
        return tuple(ids)
    alone = continued(section(tokenizer, "", "\n"), section(tokenizer, "", f"\n{word}")) or spell(tokenizer, word)
    begin = next((place for place, token in enumerate(alone) if not _blank(tokenizer, token)), 0)
    return tuple(alone[begin:])
