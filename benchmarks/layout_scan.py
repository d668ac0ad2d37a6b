"""A search over layouts, by lesion and by a plain scan: one reordered model after the other, items batched.

    python benchmarks/layout_scan.py --family repeat --lengths 1,2,3,4 --damping 1,0.5 --items 16
    python benchmarks/layout_scan.py --model SmolLM2.gguf --task "arithmetic:add" --family drop --lengths 1,2 --items 8

The scan has every layout in memory, without writing or reading a checkpoint, and damping written into its weights; it
decodes all items in one padded batch of transformers' `generate`. Both get the same weights in one process and the same
prompts as token ids, and answer greedily; the scan goes first and last, and its faster run counts. Told are CPU
seconds and in how many answers the two agree.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import lesion
from lesion.core.layers import parse_layers
from lesion.edits.edit import ScaleAttention, ScaleMlp, parts
from lesion.models.load import Model
from lesion.models.reordered import in_order
from lesion.studies.search.search import Candidate, candidates
from lesion.studies.search.study import SearchStudy
from lesion.tasks.catalogue import draw
from lesion.tasks.prompts import encode, resolve
from units import Answers, ended, rows

Prompts = list[tuple[int, ...]]


def main() -> None:
    """Run both and print the ratio."""
    options = parser().parse_args()
    torch.set_num_threads(1)
    model = lesion.load(options.model, dtype="float32")
    task = lesion.find_task(options.task)
    style = resolve(model, task, None)
    prompts = [encode(model, task, item, style, max_new_tokens=1) for item in draw(task, options.items, 0)]
    tokens = options.new_tokens or task.max_new_tokens
    study = SearchStudy.make(
        model=options.model, tasks=[options.task], family=options.family.split(","),
        lengths=list(map(int, options.lengths.split(","))), damping=list(map(float, options.damping.split(","))),
    )  # fmt: skip
    everyone = candidates(study, model.anatomy, parse_layers("all", len(model.anatomy.blocks), model.name))
    print(f"{len(everyone)} candidates × {len(prompts)} items, {tokens} new tokens, float32, one thread")
    runs = [timed(lambda: scan(model, everyone, prompts, tokens))]
    ours = timed(lambda: search(model, everyone, prompts, tokens))
    runs.append(timed(lambda: scan(model, everyone, prompts, tokens)))
    best, answers = min(runs, key=lambda run: run[0])
    result = {
        "model": options.model, "family": options.family, "task": options.task, "candidates": len(everyone),
        "items": len(prompts), "scan_cpu": [round(cpu, 2) for cpu, _ in runs], "lesion_cpu": round(ours[0], 2),
        "ratio": round(ours[0] / best, 3),
        "same": sum(ours[1][key] == answer for key, answer in answers.items()) / len(answers),
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


def timed(run: Callable[[], Answers]) -> tuple[float, Answers]:
    """CPU seconds and answers of a run."""
    began = time.process_time()
    answers = run()
    return time.process_time() - began, answers


def search(model: Model, everyone: list[Candidate], prompts: Prompts, tokens: int) -> Answers:
    """All candidates as `lesion search` has them evaluated, network by network."""
    by_order: dict[Any, list[Candidate]] = defaultdict(list)
    for candidate in everyone:
        by_order[candidate.order].append(candidate)
    answers: Answers = {}
    for order, own in by_order.items():
        given = rows(in_order(model, order), [candidate.edit for candidate in own], prompts, tokens)
        for candidate in own:
            answers |= {(candidate.name, item): given[str(candidate.edit), item] for item in range(len(prompts))}
    return answers


def scan(model: Model, everyone: list[Candidate], prompts: Prompts, tokens: int) -> Answers:
    """One layout after another by transformers' `generate`."""
    pad = model.tokenizer.pad_token_id or model.tokenizer.eos_token_id or 0
    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    answers: Answers = {}
    for candidate in everyone:
        other = in_order(model, candidate.written)
        for part in parts(candidate.damped):
            assert isinstance(part, ScaleAttention | ScaleMlp)
            for matrix in getattr(other.anatomy.block(part.layer), part.unit).ends:
                weight = matrix.module._parameters[matrix.attribute]
                matrix.module._parameters[matrix.attribute] = torch.nn.Parameter(weight * part.factor, False)
        with torch.inference_mode():
            made = other.network.generate(
                input_ids=ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False, pad_token_id=pad
            )
        for item, sequence in enumerate(made[:, width:].tolist()):
            answers[candidate.name, item] = ended(model, sequence)
    return answers


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--model", default="bundled:llama-base")
    made.add_argument("--task", default="primer:arithmetic")
    made.add_argument("--items", type=int, default=16)
    made.add_argument("--family", default="repeat")
    made.add_argument("--lengths", default="1,2,3,4")
    made.add_argument("--damping", default="1")
    made.add_argument("--new-tokens", type=int, help="the limit of an answer; else the task's")
    made.add_argument("--out", type=Path, help="write the numbers as JSON")
    return made


if __name__ == "__main__":
    main()
