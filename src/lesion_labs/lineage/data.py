"""Training batches from the primer's document stream: a function of the seed alone, so that training can resume."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from lesion.tasks.primer.task import Document, document

# Documents are drawn, sorted by length and cut into batches in groups of this many, so that padding stays small.
GROUP = 2048
PROMPT_WEIGHT = 0.1
# An arithmetic solution is some thirty tokens long, an answer of the others is one: token by token they would hardly
# be heard beside it.
ANSWER_WEIGHT = {"arithmetic": 1.0, "atlas": 5.0, "reading": 8.0, "text": 0.3, "listing": 1.0, "echo": 1.0}


@dataclass(frozen=True)
class Batch:
    """Padded documents and the weight of each token in the loss.

    Attributes:
        tokens: ids, padded on the right.
        weights: at least 1 for answer tokens, less for prompts and running text, 0 for padding and the first.
        documents: number of documents up to and including this batch's group share.
    """

    tokens: Int[Tensor, "rows length"]
    weights: Float[Tensor, "rows length"]
    documents: int


def group(tokenizer: PreTrainedTokenizerBase, seed: int, number: int, tokens_per_batch: int) -> Iterator[Batch]:
    """The batches of one group of documents, in an order of the seed's making."""
    documents = [document(seed, number * GROUP + index) for index in range(GROUP)]
    cuts: list[list[tuple[list[int], list[float]]]] = [[]]
    for row in sorted(_rows(tokenizer, documents), key=lambda row: len(row[0])):
        # Sorted by length: the present row is the longest of its batch.
        if (len(cuts[-1]) + 1) * len(row[0]) > tokens_per_batch:
            cuts.append([])
        cuts[-1].append(row)
    random.Random(f"batches {seed} {number}").shuffle(cuts)
    seen = number * GROUP
    for cut in cuts:
        seen += len(cut)
        length = max(len(tokens) for tokens, _ in cut)
        tokens = torch.full((len(cut), length), tokenizer.pad_token_id)
        weights = torch.zeros(len(cut), length)
        for index, (ids, weights_of_row) in enumerate(cut):
            tokens[index, : len(ids)] = torch.tensor(ids)
            weights[index, : len(ids)] = torch.tensor(weights_of_row)
        yield Batch(tokens, weights, seen)


def _rows(tokenizer: PreTrainedTokenizerBase, documents: Sequence[Document]) -> list[tuple[list[int], list[float]]]:
    """Token ids and weights of each document; every answer ends in the end-of-text token."""
    turns = [turn for made in documents for turn in made.turns]
    heads = iter(tokenizer([before for before, _ in turns], add_special_tokens=False)["input_ids"])
    answers = [f" {learned}" if before else learned for before, learned in turns]
    tails = iter(tokenizer(answers, add_special_tokens=False)["input_ids"])
    newline = tokenizer("\n", add_special_tokens=False)["input_ids"]
    rows = []
    for made in documents:
        ids, weights = [tokenizer.bos_token_id], [0.0]
        for turn in range(len(made.turns)):
            head = [*(newline if turn else ()), *next(heads)]
            tail = [*next(tails), tokenizer.eos_token_id]
            ids += head + tail
            weights += [PROMPT_WEIGHT] * len(head) + [ANSWER_WEIGHT[made.skill]] * len(tail)
        rows.append((ids, weights))
    return rows
