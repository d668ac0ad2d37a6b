"""Contestant: the plain loop. One edit after another, a forward hook on the block, `generate` over padded batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from engines_job import Answers, Job, Layer, Sweep

LIBRARIES = ("transformers", "torch")
SIZED = True


def start(job: Job) -> Sweep:
    """The Hugging Face model as anyone would load it."""
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(job.place, dtype=getattr(torch, job.dtype)).to(job.device).eval()

    def sweep(edits: Sequence[Layer], size: int) -> Answers:
        answers = Answers()
        for layer in edits:
            with removed(network.model.layers, layer), torch.inference_mode():
                for part, tokens, mask, limit in job.batches(size):
                    said = network.generate(
                        input_ids=torch.tensor(tokens, device=job.device),
                        attention_mask=torch.tensor(mask, device=job.device),
                        max_new_tokens=limit,
                        do_sample=False,
                        eos_token_id=list(job.ends) or None,
                        pad_token_id=job.ends[0] if job.ends else 0,
                    )[:, len(tokens[0]) :]
                    answers.count(steps=said.numel())
                    for index, row in zip(part, said.tolist(), strict=True):
                        answers.tokens[layer, index] = job.trimmed(row)
        return answers

    return sweep


@contextmanager
def removed(blocks: Any, layer: Layer) -> Iterator[None]:
    """The model without what one block adds: the block's output is its input."""
    if layer is None:
        yield
        return

    def give_back(module: Any, arguments: Any, output: Any) -> Any:
        return (arguments[0], *output[1:]) if isinstance(output, tuple) else arguments[0]

    handle = blocks[layer].register_forward_hook(give_back)
    try:
        yield
    finally:
        handle.remove()
