"""Contestant: TransformerLens. Hooks that set what attention and MLP of the block add to 0, around its `generate`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch

from engines_job import Answers, Job, Layer, Sweep

LIBRARIES = ("transformer-lens", "transformers", "torch")
SIZED = True


def start(job: Job) -> Sweep:
    """The Hugging Face model behind TransformerLens's bridge."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network = AutoModelForCausalLM.from_pretrained(
        job.place, dtype=getattr(torch, job.dtype), attn_implementation="eager"
    ).eval()
    model: Any = importlib.import_module("transformer_lens.model_bridge").TransformerBridge.boot_transformers(
        job.place,
        hf_model=network.to(job.device),
        tokenizer=AutoTokenizer.from_pretrained(job.place),
        device=job.device,
        dtype=getattr(torch, job.dtype),
    )

    def sweep(edits: Sequence[Layer], size: int) -> Answers:
        answers = Answers()
        for layer in edits:
            names = [] if layer is None else [f"blocks.{layer}.hook_attn_out", f"blocks.{layer}.hook_mlp_out"]
            with torch.inference_mode(), model.hooks(fwd_hooks=[(name, nothing) for name in names]):
                for part, tokens, mask, limit in job.batches(size):
                    said = model.generate(
                        torch.tensor(tokens, device=job.device),
                        attention_mask=torch.tensor(mask, device=job.device),
                        max_new_tokens=limit,
                        do_sample=False,
                        stop_at_eos=bool(job.ends),
                        eos_token_id=job.ends[0] if job.ends else None,
                        return_type="tokens",
                        verbose=False,
                    )[:, len(tokens[0]) :]
                    answers.count(steps=said.numel())
                    for index, row in zip(part, said.tolist(), strict=True):
                        answers.tokens[layer, index] = job.trimmed(row)
        return answers

    return sweep


def nothing(value: torch.Tensor, hook: Any) -> torch.Tensor:
    """In place of what a branch adds."""
    return torch.zeros_like(value)
