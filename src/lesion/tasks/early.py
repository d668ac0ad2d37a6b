r"""Early answers: what a model answers when its chain of thought is cut off (Lanham et al. 2023, arXiv:2307.13702).

The chain so far is followed by "Therefore, the answer is \boxed{", and what the model writes into the box is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lesion.tasks.style import CLOSE, opening, unclosed
from lesion.tasks.task import Answer, Item, Task, Verdict
from lesion.tasks.wrapped import WrappedTask

BOX = "\\boxed{"
ASKED = f"\n\nTherefore, the answer is {BOX}"
EARLY = "early:"
TOKENS = 24
"""A boxed answer has so many at most."""


def early_name(task: str, limit: int) -> str:
    """`early:64:TASK`: what stored answers call those to a task after 64 tokens of a chain."""
    return f"{EARLY}{limit}:{task}"


def said(tokens: Any, finish: Any) -> Any:
    """Of answers (or of one) how many tokens they say: the one that ends an answer is none of them."""
    return tokens - (finish == "stop")


class EarlyAnswers(WrappedTask):
    """A task whose questions are answered after so many tokens of a chain. Items keep the ids of the task."""

    def __init__(self, of: Task, limit: int) -> None:
        super().__init__(of, f"{EARLY}{limit}")
        self.limit, self.max_new_tokens, self.stop = limit, TOKENS, ("\n",)

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer in the box is right."""
        if answer.finish == "nonfinite":
            return self.of.judge(item, answer)
        return self.of.judge(item, replace(answer, text=f"{BOX}{boxed(answer.text)}}}", finish="stop"))

    def asked(self, tokenizer: Any, prompt: Sequence[int], chain: str) -> tuple[int, ...]:
        """The token ids of a prompt, a chain up to the limit, and what asks for the answer.

        `chain` is the text as it is stored, with the tag of thinking that the prompt ends in; its tokens need not be
        those that were said.
        """
        tag = opening(tokenizer, prompt)
        tokens = tokenizer.encode(chain.removeprefix(tag), add_special_tokens=False)[: self.limit]
        opened = unclosed(tag + tokenizer.decode(tokens, skip_special_tokens=False))
        end = f"\n{CLOSE}{ASKED}" if opened else ASKED
        return (*prompt, *tokens, *tokenizer.encode(end, add_special_tokens=False))


def boxed(text: str) -> str:
    """What stands before the brace that closes a box; all of it where none does."""
    depth = 1
    for place, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if not depth:
            return text[:place]
    return text
