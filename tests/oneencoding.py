"""Contrasts by one encoding of prompt and text by plain SentencePiece: what `encode_contrast` must find."""

from collections.abc import Sequence
from typing import Any


def contrasted(tokenizer: Any, prompt: str, texts: Sequence[str]) -> tuple[list[int], list[int]]:
    """The ids of a prompt with the bare `▁` that the first text begins with, and the first ids of all texts then."""
    before = tokenizer(prompt)["input_ids"]
    wholes = [tokenizer(f"{prompt} {text.strip()}")["input_ids"] for text in texts]
    assert all(whole[: len(before)] == before for whole in wholes)
    space = 0
    while set(tokenizer.convert_ids_to_tokens(wholes[0][len(before) + space])) == {"▁"}:
        space += 1
    extended = wholes[0][: len(before) + space]
    firsts = []
    for whole, text in zip(wholes, texts, strict=True):
        if whole[: len(extended)] == extended:
            firsts.append(whole[len(extended)])
        else:
            line = tokenizer("\n")["input_ids"]
            firsts.append(tokenizer(f"\n{text.strip()}")["input_ids"][len(line)])
    return extended, firsts
