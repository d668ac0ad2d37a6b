"""The layer sweep by everything that could do it: lesion on two engines, plain loops, nnsight, TransformerLens.

    python benchmarks/engines.py --python-vllm .venv-vllm/bin/python --python-lens LENS/bin/python
    python benchmarks/engines.py --model SmolLM2.gguf --tasks "arithmetic:add" --items 20
    python benchmarks/engines.py --shape 50m --items 20
    python benchmarks/engines.py --shape 50m --items 12 --prefix 400
    python benchmarks/engines.py --shape qwen2.5-1.5b --device cuda --dtype bfloat16 --new-tokens 64

Every contestant runs in a process of its own, by the Python of its environment, and gets the same weights, prompts as
token ids, token limits and end tokens: the unedited model and every block at 0, greedily. Start-up is left out and told
apart; a warm-up and the search of the best batch size come before what is timed. The plain loop runs first and last,
and everything is compared with its fastest repeat. Whose sweep would take longer than `--patience` seconds gets
fewer blocks, and its time is scaled up to all; the table says so. A contestant whose library is missing is skipped
with a line that says so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from engines_child import MISSING
from engines_job import Job, Outcome, Question
from engines_models import prepared
from engines_table import Entry, machine, show, write
from lesion.core.layers import parse_layers
from lesion.models.load import Model
from lesion.tasks.catalogue import calibration_items, draw, find
from lesion.tasks.prompts import encode
from lesion.tasks.task import Task

HERE = Path(__file__).parent
TASKS = ("primer:arithmetic", "primer:atlas", "primer:reading")
RANDOM_TOKENS = 48
"""New tokens of every answer of random weights, which say nothing that would end it."""
CONTESTANTS = {
    "loop": "plain loop",
    "lesion": "lesion, transformers",
    "lesion_workers": "lesion, a worker per thread",
    "lesion_vllm": "lesion, vLLM",
    "vllm_loop": "vLLM loop",
    "nnsight": "nnsight",
    "transformerlens": "TransformerLens",
}


def main() -> None:
    """Run the contestants and print their table."""
    options = parser().parse_args()
    if options.shape and not options.new_tokens:
        options.new_tokens = RANDOM_TOKENS
    chosen = options.only.split(",") if options.only else list(CONTESTANTS)
    unknown = [name for name in chosen if name not in CONTESTANTS]
    if unknown:
        raise SystemExit(f"There is no contestant {', '.join(unknown)}; there are {', '.join(CONTESTANTS)}.")
    with tempfile.TemporaryDirectory() as folder:
        job = planned(options, Path(folder))
        busy, cores = os.getloadavg()[0], os.cpu_count() or 1
        print(f"{len(job.edits)} edits × {len(job.questions)} items, {options.dtype}, {options.threads} threads")
        print(f"{machine(options.device)}; load average before: {busy:.1f}", flush=True)
        if busy > cores / 4:
            print("Others are at work on this machine: trust the CPU seconds, not those of the clock.", flush=True)
        order = ["loop", *(name for name in chosen if name != "loop"), "loop"]
        entries: list[Entry] = []
        for place, name in enumerate(order):
            again = place == len(order) - 1
            title = CONTESTANTS[name] + (", last" if again else "")
            first = entries[0].outcome if again else None
            outcome = run(name, replace(job, sizes=(first.size,)) if first else job, Path(folder), options)
            entries.append(
                Entry(title, name, outcome) if isinstance(outcome, Outcome) else Entry(title, name, skipped=outcome)
            )
            if options.out:  # also when somebody loses patience with the rest
                write(entries, job, options, round(busy, 1))
    show(entries, job)


def planned(options: argparse.Namespace, folder: Path) -> Job:
    """The sweep that every contestant gets."""
    model, place = prepared(options.shape or options.model, options.dtype, options.device, folder, options.gain)
    if options.prefix < 0:
        raise SystemExit(f"A prefix has 0 tokens or more, not {options.prefix}.")
    layers = parse_layers(options.layers, len(model.anatomy.blocks), model.name)
    tasks = [find(name) for name in options.tasks or TASKS]
    questions = tuple(
        Question(
            (
                *prefix(model, task, options.prefix),
                *encode(model, task, item, style=None if options.tasks else "plain"),
            ),
            options.new_tokens or (1 if task.kind == "contrast" else task.max_new_tokens),
        )
        for task in tasks
        for item in draw(task, options.items, 0)
    )
    longest = max(len(question.prompt) + question.limit for question in questions)
    if longest > model.context:
        raise SystemExit(f"{model.name} has room for {model.context} tokens, not for {longest}: ask for fewer.")
    ends = model.network.generation_config.eos_token_id
    named = {*(ends if isinstance(ends, list) else [ends]), model.tokenizer.eos_token_id} - {None}
    if options.tasks:
        named |= {ids[0] for task in tasks for ids in stop_tokens(model, task) if len(ids) == 1}
    return Job(
        place=str(place),
        device=options.device,
        dtype=options.dtype,
        context=model.context,
        layers=tuple(layers),
        ends=tuple(sorted(named)),
        questions=questions,
        sizes=tuple(int(size) for size in options.batch_sizes.split(",")),
        repeats=options.repeats,
        patience=options.patience,
    )


def stop_tokens(model: Model, task: Task) -> list[list[int]]:
    """The tokens of each string that ends an answer of the task."""
    return [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in task.stop]


def prefix(model: Model, task: Task, length: int) -> tuple[int, ...]:
    """So many tokens of other questions of the task, the same for all items, as the shots of a few-shot task are."""
    if not length:
        return ()
    tokens = [token for item in calibration_items(task) for token in encode(model, task, item, style="plain")]
    if len(tokens) < length:
        raise SystemExit(f"{task.name} has {len(tokens)} tokens of other questions; ask for a shorter prefix.")
    return tuple(tokens[:length])


def run(name: str, job: Job, folder: Path, options: argparse.Namespace) -> Outcome | str:
    """What a contestant found in its own process, or why it did not run."""
    pythons = {"lesion_vllm": options.python_vllm, "vllm_loop": options.python_vllm}
    pythons |= dict.fromkeys(("nnsight", "transformerlens"), options.python_lens)
    source, target = folder / "job.json", folder / f"{name}.json"
    job.write(source)
    target.unlink(missing_ok=True)
    print(f"{CONTESTANTS[name]} …", flush=True)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(options.threads))
    done = subprocess.run(
        [pythons.get(name, sys.executable), str(HERE / "engines_child.py"), name, str(source), str(target)],
        env=os.environ | threads | {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = done.stderr.rstrip().splitlines()
    if done.returncode == MISSING:
        return lines[-1]
    if done.returncode or not target.is_file():
        print("\n".join(lines[-15:]), flush=True)
        return f"failed with status {done.returncode}: {lines[-1] if lines else 'no message'}"
    outcome = Outcome.read(target)
    print("\n".join(line for line in lines if line.startswith("  trial")))
    print(f"  {len(outcome.edits)} edits: {min(outcome.wall):.1f} s, {min(outcome.cpu):.1f} CPU s", flush=True)
    return outcome


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--model", default="bundled:llama-base")
    made.add_argument("--tasks", nargs="+", help="in place of the three of the primer, in their own prompt style")
    made.add_argument("--shape", help="a randomly initialised model instead: 50m, qwen2.5-0.5b or qwen2.5-1.5b")
    made.add_argument(
        "--gain", type=float, default=1.0, help="of the random weights; smaller ones say less varied things"
    )
    made.add_argument("--items", type=int, default=40, help="of each task")
    made.add_argument("--new-tokens", type=int, help="the limit of every answer; else the tasks', with --shape 48")
    made.add_argument("--prefix", type=int, default=0, help="tokens that all prompts of a task begin with")
    made.add_argument("--layers", default="all")
    made.add_argument("--device", default="cpu")
    made.add_argument("--dtype", default="float32")
    made.add_argument("--threads", type=int, default=torch.get_num_threads())
    made.add_argument("--repeats", type=int, default=1)
    made.add_argument("--patience", type=float, default=120.0, help="seconds that one sweep may take")
    made.add_argument("--batch-sizes", default="30,60,120")
    made.add_argument("--only", help=f"contestants beside the plain loop, with commas: {', '.join(CONTESTANTS)}")
    made.add_argument("--python-vllm", default=sys.executable, help="the Python of an environment with vLLM and lesion")
    made.add_argument("--python-lens", default=sys.executable, help="the same with nnsight and TransformerLens")
    made.add_argument("--out", type=Path, help="write the numbers as JSON")
    return made


if __name__ == "__main__":
    main()
