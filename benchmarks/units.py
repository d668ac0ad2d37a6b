"""A sweep of heads, neurons or resampled blocks, by lesion and by a plain loop: one hook at a time, items batched.

    python benchmarks/units.py --model SmolLM2.gguf --task ioi:ioi.json --items 16 --unit head --layers 5,15,25
    python benchmarks/units.py --model SmolLM2.gguf --task "arithmetic:add?digits=1&sets=4" --items 16 --unit resample
    python benchmarks/units.py --unit neuron --layers 5 --items 16

Both get the same weights in one process, the same prompts as token ids, and answer greedily; the loop goes first and
last, and is compared with by its faster run. Told are CPU seconds, the tokens that went through the network's blocks
(a token through one block counts 1 / blocks), and in how many answers the two agree.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import lesion
from lesion.core.layers import parse_layers
from lesion.edits.edit import Edit
from lesion.edits.replace import Replace
from lesion.edits.units import ScaleHead, ScaleNeuron
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.models.load import Model
from lesion.tasks.catalogue import draw
from lesion.tasks.prompts import encode, resolve

Answers = dict[tuple[str, int], tuple[int, ...]]
"""Edit and item → token ids."""


def main() -> None:
    """Run both and print the ratio."""
    options = parser().parse_args()
    torch.set_num_threads(1)
    model = lesion.load(options.model, dtype="float32")
    task = lesion.find_task(options.task)
    style = resolve(model, task, None)
    prompts = [encode(model, task, item, style, max_new_tokens=1) for item in draw(task, options.items, 0)]
    tokens = options.new_tokens or (1 if task.kind == "contrast" else task.max_new_tokens)
    layers = parse_layers(options.layers, len(model.anatomy.blocks), model.name)
    edits = {
        "head": lambda: heads(model, layers),
        "neuron": lambda: neurons(model, layers),
        "resample": lambda: resampled(model, task, layers),
    }[options.unit]()
    print(f"{len(edits)} edits × {len(prompts)} items, {tokens} new tokens, float32, one thread")
    runs = [measured(model, lambda: loop(model, edits, prompts, tokens))]
    ours = measured(model, lambda: rows(model, edits, prompts, tokens))
    runs.append(measured(model, lambda: loop(model, edits, prompts, tokens)))
    best = min(runs, key=lambda run: run["cpu"])
    same = sum(ours["answers"][key] == answer for key, answer in best["answers"].items())
    result = {
        "unit": options.unit,
        "task": options.task,
        "edits": len(edits),
        "items": len(prompts),
        "loop_cpu": [run["cpu"] for run in runs],
        "lesion_cpu": ours["cpu"],
        "ratio": ours["cpu"] / best["cpu"],
        "loop_tokens": best["tokens"],
        "lesion_tokens": ours["tokens"],
        "same": same / len(best["answers"]),
    }
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


def heads(model: Model, layers: list[int]) -> list[Edit]:
    """Every head of these blocks removed."""
    return [ScaleHead(layer, head) for layer in layers for head in range(model.anatomy.heads(layer).count)]


def neurons(model: Model, layers: list[int]) -> list[Edit]:
    """Every eighth neuron of these blocks removed."""
    return [
        ScaleNeuron(layer, neuron) for layer in layers for neuron in range(0, model.anatomy.neurons(layer).count, 8)
    ]


def resampled(model: Model, task: Any, layers: list[int]) -> list[Edit]:
    """Each of these blocks resampled."""
    texts = lesion.aligned(task, draw(task, 1, 0)[0])[:20]
    reference = lesion.reference(model, lesion.calibration(model, task, len(texts), items=texts), kinds="resample")
    return [Replace(str(layer), "resample", reference) for layer in layers]


def measured(model: Model, run: Callable[[], Answers]) -> dict[str, Any]:
    """CPU seconds, tokens through the network and answers of a run."""
    blocks = [block.module for block in model.anatomy.blocks]
    passed = [0]

    def count(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        stream = args[0] if args else kwargs["hidden_states"]
        passed[0] += stream.shape[0] * stream.shape[1]

    handles = [block.register_forward_pre_hook(count, with_kwargs=True) for block in blocks]
    began = time.process_time()
    answers = run()
    cpu = time.process_time() - began
    for handle in handles:
        handle.remove()
    return {"cpu": round(cpu, 2), "tokens": round(passed[0] / len(blocks)), "answers": answers}


def rows(model: Model, edits: list[Edit], prompts: list[tuple[int, ...]], tokens: int) -> Answers:
    """All edits by lesion's engine."""
    decoding = Decoding(max_new_tokens=tokens)
    requests = [
        Request(f"{place}/{item}", prompt, edit, decoding)
        for item, prompt in enumerate(prompts)
        for place, edit in enumerate(edits)
    ]
    answers = {}
    for response in TransformersEngine(model).answer(requests):
        place, item = map(int, response.key.split("/"))
        answers[str(edits[place]), item] = ended(model, response.token_ids)
    return answers


def loop(model: Model, edits: list[Edit], prompts: list[tuple[int, ...]], tokens: int) -> Answers:
    """One edit after another: a plain hook, and all items in one padded batch of transformers' `generate`."""
    pad = model.tokenizer.pad_token_id or model.tokenizer.eos_token_id or 0
    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    answers = {}
    for edit in edits:
        with hooked(model, edit, mask), torch.inference_mode():
            made = model.network.generate(
                input_ids=ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False, pad_token_id=pad
            )
        for item, sequence in enumerate(made[:, width:].tolist()):
            answers[str(edit), item] = ended(model, sequence)
    return answers


def ended(model: Model, sequence: list[int] | tuple[int, ...]) -> tuple[int, ...]:
    """An answer up to its end token."""
    ends = model.network.generation_config.eos_token_id
    stops = {*(ends if isinstance(ends, list) else [ends]), model.tokenizer.eos_token_id}
    cut = next((place for place, token in enumerate(sequence) if token in stops), len(sequence))
    return tuple(sequence[:cut])


@contextmanager
def hooked(model: Model, edit: Edit, mask: torch.Tensor) -> Iterator[None]:
    """The edit as a person would write it for one model: a hook on one module."""
    if isinstance(edit, (ScaleHead, ScaleNeuron)):
        of_heads = isinstance(edit, ScaleHead)
        known = model.anatomy.heads(edit.layer) if of_heads else model.anatomy.neurons(edit.layer)
        number = edit.head if isinstance(edit, ScaleHead) else edit.neuron
        columns = slice(number * known.size, (number + 1) * known.size)

        def remove(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
            given = args[0].clone()
            given[..., columns] = 0
            return (given, *args[1:])

        handle = known.matrix.module.register_forward_pre_hook(remove)
    else:
        assert isinstance(edit, Replace)
        first = mask.argmax(1)
        seen = [0]

        def put(module: Any, args: tuple[Any, ...], output: Any) -> Any:
            stream = output[0] if isinstance(output, tuple) else output
            places = torch.arange(seen[0], seen[0] + stream.shape[1])[None] - first[:, None]
            seen[0] += stream.shape[1]
            vectors = edit.vectors[places.clamp(0, len(edit.vectors) - 1)]
            added = args[0] + vectors
            return (added, *output[1:]) if isinstance(output, tuple) else added

        handle = model.anatomy.block(edit.layer).module.register_forward_hook(put)
    try:
        yield
    finally:
        handle.remove()


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--model", default="bundled:llama-base")
    made.add_argument("--task", default="primer:arithmetic")
    made.add_argument("--items", type=int, default=16)
    made.add_argument("--unit", choices=("head", "neuron", "resample"), default="head")
    made.add_argument("--layers", default="all")
    made.add_argument("--new-tokens", type=int, help="the limit of an answer; else the task's")
    made.add_argument("--out", type=Path, help="write the numbers as JSON")
    return made


if __name__ == "__main__":
    main()
