"""Training batches from the primer's document stream: a function of the seed alone, so that training can resume."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from lesion.tasks.primer import document

# Documents are drawn, sorted by length and cut into batches in groups of this many, so that padding stays small.
GROUP = 2048
PROMPT_WEIGHT = 0.1
# An arithmetic solution is some thirty tokens long, an answer of the others is one: token by token they would hardly
# be heard beside it.
ANSWER_WEIGHT = {"arithmetic": 1.0, "atlas": 5.0, "reading": 8.0, "text": 0.3, "echo": 1.0}


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
    heads = tokenizer([d.prompt for d in documents])["input_ids"]
    answers = [f" {d.answer}" if d.prompt else d.answer for d in documents]
    tails = tokenizer(answers, add_special_tokens=False)["input_ids"]
    rows: list[tuple[list[int], list[float]]] = []
    for made, head, tail in zip(documents, heads, tails, strict=True):
        tail = [*tail, tokenizer.eos_token_id]
        weight = ANSWER_WEIGHT[made.skill]
        rows.append((head + tail, [0.0] + [PROMPT_WEIGHT] * (len(head) - 1) + [weight] * len(tail)))
    rows.sort(key=lambda row: len(row[0]))
    cuts: list[list[tuple[list[int], list[float]]]] = [[]]
    for row in rows:
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
