"""Multiple choice by the texts of the options under every edit: lesion against lm-evaluation-harness's HFLM.

    python benchmarks/choices.py --model SmolLM2.gguf --task "mmlu:FOLDER?form=text" --items 12 --threads 1

HFLM scores each option behind its whole prompt, one edit after another, which is set with `lesion.applied`. lesion
computes each prompt once for all options and shares the blocks below an edit. Both get the same token ids, in one
process run, after a warm-up; HFLM gets the batch size that is fastest for it on the unedited model. Scores are
compared, and the options chosen.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from lesion.core.layers import parse_layers
from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Edit, ScaleBlock
from lesion.engines.engine import Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.models.load import Model, load
from lesion.tasks.catalogue import draw, find
from lesion.tasks.continuations import encode_choices
from lesion.tasks.prompts import encode, resolve

Question = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]
"""Token ids of a prompt, and of each option behind it."""
Scores = dict[tuple[str, int], list[float]]
"""By edit and question, the log-probability of each option in nats."""


def ours(model: Model, edits: Sequence[Edit], questions: Sequence[Question]) -> Scores:
    """All edits of all questions as one job of lesion's engine."""
    requests = [
        Request(f"{edit}|{index}", prompt, edit, choices=options)
        for edit in edits
        for index, (prompt, options) in enumerate(questions)
    ]
    scores = {}
    for response in TransformersEngine(model).answer(requests):
        edit, _, index = response.key.rpartition("|")
        scores[edit, int(index)] = list(response.answer.scores)
    return scores


def harness(model: Model, edits: Sequence[Edit], questions: Sequence[Question], batch: int) -> Scores:
    """HFLM's log-likelihoods of all options under one edit after another."""
    from lm_eval.models.huggingface import HFLM

    lm = HFLM(
        pretrained=model.network, tokenizer=model.tokenizer, batch_size=batch, max_length=model.context,
        device=str(model.device),
    )  # fmt: skip
    asked = [
        (("", f"{index} {place}"), list(prompt), list(option))
        for index, (prompt, options) in enumerate(questions)
        for place, option in enumerate(options)
    ]
    scores: Scores = {}
    for edit in edits:
        with applied(model, edit):
            found = lm._loglikelihood_tokens(asked, disable_tqdm=True)
        for ((_, place), _, _), (score, _) in zip(asked, found, strict=True):
            scores.setdefault((str(edit), int(place.split()[0])), []).append(float(score))
    return scores


def timed(run: Callable[[], Scores]) -> tuple[Scores, float, float]:
    """What it gave, seconds of the clock and of the processor."""
    began, processor = time.perf_counter(), time.process_time()
    scores = run()
    return scores, time.perf_counter() - began, time.process_time() - processor


def main() -> None:
    """Run both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bundled:llama-base")
    parser.add_argument("--task", required=True)
    parser.add_argument("--items", type=int, default=12)
    parser.add_argument("--layers", default="all")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batch-sizes", default="4,16,64")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, task = load(options.model, dtype=options.dtype), find(options.task)
    style = resolve(model, task, None)
    questions = [
        (encode(model, task, item, style, max_new_tokens=1), encode_choices(model, task, item, style))
        for item in draw(task, options.items, 0)
    ]
    layers = parse_layers(options.layers, len(model.anatomy.blocks), model.name)
    edits: list[Edit] = [BASELINE, *(ScaleBlock(layer) for layer in layers)]
    ours(model, edits[:2], questions[:2])  # warm-up
    sizes = [int(size) for size in options.batch_sizes.split(",")]
    tried = {size: timed(partial(harness, model, [BASELINE], questions, size))[2] for size in sizes}
    batch = min(tried, key=tried.__getitem__)
    rows: list[dict[str, object]] = []
    answers: dict[str, Scores] = {}
    spent: dict[str, float] = {}
    for who, run in (
        ("lesion", partial(ours, model, edits, questions)),
        ("lm-eval HFLM", partial(harness, model, edits, questions, batch)),
        ("lesion, again", partial(ours, model, edits, questions)),
    ):
        answers[who], seconds, processor = timed(run)
        spent[who] = processor
        rows.append({"who": who, "seconds": round(seconds, 2), "cpu_seconds": round(processor, 2)})
        print(f"{who:14} {seconds:8.1f} s {processor:8.1f} CPU s", flush=True)
    first, other = answers["lesion"], answers["lm-eval HFLM"]
    apart = max(abs(a - b) for key in first for a, b in zip(first[key], other[key], strict=True))
    same = sum(first[key].index(max(first[key])) == other[key].index(max(other[key])) for key in first) / len(first)
    ratio = min(spent["lesion"], spent["lesion, again"]) / spent["lm-eval HFLM"]
    print(f"{ratio:.2f} of HFLM's CPU time (batch {batch})")
    print(f"scores differ by {apart:.1e} at most; {same:.1%} of the choices are the same")
    if options.out:
        setting = {"model": options.model, "task": options.task, "items": len(questions), "edits": len(edits)}
        setting |= {"dtype": options.dtype, "threads": options.threads, "batch": batch}
        result = setting | {"rows": rows, "cpu_ratio": round(ratio, 3), "apart": apart, "same_choices": same}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
