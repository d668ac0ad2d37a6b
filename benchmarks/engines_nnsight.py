"""Contestant: nnsight. A trace around `generate`, in which the block's output is set to its input at every step."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch

from engines_job import Answers, Job, Layer, Sweep

LIBRARIES = ("nnsight", "transformers", "torch")
SIZED = True
OF_ALL = ("max_new_tokens", "do_sample", "eos_token_id", "pad_token_id")


def start(job: Job) -> Sweep:
    """The Hugging Face model, wrapped."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network = AutoModelForCausalLM.from_pretrained(job.place, dtype=getattr(torch, job.dtype)).to(job.device).eval()
    tokenizer = AutoTokenizer.from_pretrained(job.place)
    wrapped = importlib.import_module("nnsight.modeling.transformers").TransformersModel
    model = wrapped(network, tokenizer=tokenizer, task="text-generation")

    def sweep(edits: Sequence[Layer], size: int) -> Answers:
        answers = Answers()
        with torch.inference_mode():
            for layer in edits:
                for part, tokens, mask, limit in job.batches(size):
                    settings: dict[str, Any] = {
                        "input_ids": torch.tensor(tokens, device=job.device),
                        "attention_mask": torch.tensor(mask, device=job.device),
                        "max_new_tokens": limit,
                        "do_sample": False,
                        "eos_token_id": list(job.ends) or None,
                        "pad_token_id": job.ends[0] if job.ends else 0,
                    }
                    said = traced(model, layer, settings)[:, len(tokens[0]) :]
                    answers.count(steps=said.numel())
                    for index, row in zip(part, said.tolist(), strict=True):
                        answers.tokens[layer, index] = job.trimmed(row)
        return answers

    return sweep


def traced(model: Any, layer: Layer, settings: dict[str, Any]) -> Any:
    """Prompt and answer of every row. The body of a trace is rewritten by nnsight: it is not run as it stands.

    What follows an open `iter` in one invoke does not run, for the loop ends with the generation; so the result is
    asked for in a second invoke, which adds no rows.
    """
    if layer is None:
        with model.generate(**settings) as tracer:
            said = tracer.result.save()
        return said
    block = model.model.layers[layer]
    with model.generate(**{name: value for name, value in settings.items() if name in OF_ALL}) as tracer:
        with tracer.invoke(**{name: value for name, value in settings.items() if name not in OF_ALL}):
            for _ in tracer.iter[:]:
                block.output = block.input
        with tracer.invoke():
            said = tracer.result.save()
    return said
