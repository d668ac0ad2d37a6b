"""Networks that keep more than keys and values, against a plain loop over `generate` with hooks.

Four architectures with random weights of middle size: two that keep states of recurrent blocks as rows beside keys and
values, and two that answer in the simple way.

    python benchmarks/simple.py [--prompts 12 --lengths 40,56,72 --edits 5 --new-tokens 24 --runs 3]

All answer the same sweep in one process, greedy, and must say the same. The loop takes a batch of all prompts of one
length under one edit, as a person would write it. Timed too are states in the simple way, and the simple way where rows
do not share their prompt. Times are seconds of the processor, the best of the runs, taken in turns.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from lesion.edits.edit import BASELINE, Edit, ScaleBlock
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine, way_of
from lesion.engines.transformers.ways import Kind, Way
from lesion.models.load import Model, tokenizer_of, wrap

Answerer = Callable[[Model, Sequence[Request]], dict[str, tuple[int, ...]]]
SIZES: dict[str, Any] = {
    **{"vocab_size": 8192, "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "head_dim": 64},
    **{"num_key_value_heads": 4, "intermediate_size": 1536, "max_position_embeddings": 2048, "pad_token_id": 0},
}
STATES: dict[str, Any] = {
    "mamba_chunk_size": 64,
    "mamba_n_heads": 16,
    "mamba_d_head": 64,
    "mamba_n_groups": 1,
    "mamba_d_state": 64,
}
KINDS: dict[str, dict[str, Any]] = {
    "granitemoehybrid": {
        **STATES,
        **{"layer_types": ["mamba", "mamba", "mamba", "attention"] * 2, "shared_intermediate_size": 1536},
    },
    "mamba2": {"chunk_size": 64, "num_heads": 16, "head_dim": 64, "n_groups": 1, "state_size": 64, "expand": 2},
    "mamba": {"state_size": 16, "expand": 2, "intermediate_size": 1024},
    "falcon_mamba": {"state_size": 16, "expand": 2, "intermediate_size": 1024},
    "gemma4_text": {
        **{"hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 8192, "num_kv_shared_layers": 4},
        **{"layer_types": ["sliding_attention", "full_attention"] * 4, "sliding_window": 64, "global_head_dim": 64},
    },
    "llama4_text": {"intermediate_size_mlp": 1536, "num_local_experts": 4, "attention_chunk_size": 64},
}


def made(kind: str) -> Model:
    """A network of random weights, and a tokenizer with the same number of tokens or fewer."""
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**SIZES, **KINDS[kind]}))
    network.generation_config.eos_token_id = None
    return wrap(network, tokenizer_of("bundled:llama-base"), kind)


def loop(model: Model, requests: Sequence[Request]) -> dict[str, tuple[int, ...]]:
    """A hook for every edit, and `generate` over batches of equal length."""
    together: dict[tuple[Edit, int], list[Request]] = defaultdict(list)
    for request in requests:
        together[request.edit, len(request.prompt)].append(request)
    said = {}
    for (edit, length), batch in together.items():
        handles = []
        if isinstance(edit, ScaleBlock):
            block = model.anatomy.blocks[edit.layer].module
            handles.append(block.register_forward_hook(_unchanged, with_kwargs=True))
        ids = torch.tensor([request.prompt for request in batch])
        settings = GenerationConfig(
            max_new_tokens=batch[0].decoding.max_new_tokens, do_sample=False, pad_token_id=0, eos_token_id=2
        )
        answers = model.network.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
        for handle in handles:
            handle.remove()
        for request, answer in zip(batch, answers[:, length:].tolist(), strict=True):
            said[request.key] = tuple(answer)
    return said


def sweep(model: Model, requests: Sequence[Request], way: Way) -> dict[str, tuple[int, ...]]:
    """Lesion in one of its ways."""
    with mock.patch("lesion.engines.transformers.engine.way_of", return_value=way):
        return {response.key: response.token_ids for response in TransformersEngine(model).answer(requests)}


def _unchanged(module: object, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    stream = args[0] if args else kwargs["hidden_states"]
    return (stream, *output[1:]) if isinstance(output, tuple) else stream


def main() -> None:
    """Print a line for every architecture, and all numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--lengths", default="40,56,72")
    parser.add_argument("--edits", type=int, default=5)
    parser.add_argument("--new-tokens", type=int, default=24)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    several = [int(length) for length in options.lengths.split(",")]
    rows = []
    for kind in options.kinds.split(","):
        model = made(kind)
        generator = torch.Generator().manual_seed(1)
        lengths = [several[number % len(several)] for number in range(options.prompts)]
        prompts = [tuple(torch.randint(3, 8192, (length,), generator=generator).tolist()) for length in lengths]
        edits = [BASELINE, *(ScaleBlock(layer) for layer in range(options.edits - 1))]
        decoding = Decoding(options.new_tokens)
        requests = [Request(f"{number} {e}", p, e, decoding) for number, p in enumerate(prompts) for e in edits]
        way = way_of(model)
        answerers: dict[str, Answerer] = {"loop": loop, "lesion": partial(sweep, way=way)}
        if way.fast:
            answerers["simple"] = partial(sweep, way=Way(Kind.SHARED, row_bytes=way.row_bytes))
        elif way.kind is Kind.SHARED:
            answerers["unshared"] = partial(sweep, way=replace(way, kind=Kind.MIXED))
        seconds: dict[str, list[float]] = defaultdict(list)
        said = {}
        for _ in range(options.runs):
            for name, answer in answerers.items():
                begun = time.process_time()
                said[name] = answer(model, requests)
                seconds[name].append(time.process_time() - begun)
        same = sum(all(_same(said[name][key], said["loop"][key]) for name in said) for key in said["lesion"])
        best = {name: min(taken) for name, taken in seconds.items()}
        size = sum(parameter.numel() for parameter in model.network.parameters())
        rows.append({"kind": kind, "parameters": size, "way": way.kind.name, "same": same, "of": len(requests), **best})
        print(
            f"{kind}: {size / 1e6:.0f} M, {way.kind.name}, {same} of {len(requests)} answers the same, "
            + ", ".join(f"{name} {taken:.1f} s" for name, taken in best.items())
            + f", lesion ÷ loop {best['lesion'] / best['loop']:.2f}",
            flush=True,
        )
    print(json.dumps({"machine": platform.processor(), "threads": torch.get_num_threads(), "rows": rows}))


def _same(said: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """The loop goes on behind the end of an answer that is shorter than others."""
    return said == expected[: len(said)]


if __name__ == "__main__":
    main()
