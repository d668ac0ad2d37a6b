"""Memory of an isolation, and edits of a 1 GB checkpoint: each in a process of its own, for a clean high-water mark.

`isolation.py` starts this file once per measurement: it runs what the first argument names, prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from isolation_models import SHARES, calibrations, chosen
from isolation_published import cell
from lesion.activations.batching import Budget, batches, stopped_at_head
from lesion.activations.observation import observe
from lesion.edits.edit import ScaleParameters
from lesion.edits.files import checkpoint
from lesion.edits.files.artefact import read_edit, save_edit
from lesion.edits.selections.inputs import Inputs, InputSums
from lesion.edits.selections.selection import fixed_together
from lesion.edits.selections.topk import MathNeuro
from lesion.models.load import Model, load, wrap
from lesion.models.quiet import quiet

EDIT, MASKS = "made.edit", "masks.safetensors"
FACTOR = 1.1


def alone(what: str, **settings: Any) -> dict[str, Any]:
    """What one measurement gives in a fresh process."""
    command = [sys.executable, __file__, what, json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{what} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def resident(key: str) -> int:
    """Bytes in memory now (`VmRSS`) or at most since the last reset (`VmHWM`)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(rf"{key}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def measured(run: Callable[[], Any], device: str = "cpu") -> dict[str, Any]:
    """Seconds, and bytes at the high-water mark above what was there before."""
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the mark starts anew from here
        before = resident("VmRSS")
    began, cpu = time.perf_counter(), time.process_time()
    run()
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    peak = torch.cuda.max_memory_allocated() if cuda else resident("VmHWM")
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "bytes": max(0, peak - before),
    }


def memory(way: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Memory above the loaded model of bare passes, of the statistics pass, of all masks, or of the published way."""
    model = chosen(settings["model"], settings["dtype"], settings["device"])
    texts = calibrations(model, settings["samples"], 1)
    skill, control = texts[:2]
    observed = [observe(model, each)[0] for each in (skill, control)] if way == "select" else []
    run = {
        "bare": lambda: bare(model, skill.texts, settings["batch_tokens"]),
        "observe": lambda: observe(model, skill, batch_tokens=settings["batch_tokens"]),
        "select": lambda: masks_of(model, [MathNeuro(observed[0], (observed[1],), keep) for keep in SHARES]),
        "published": lambda: cell(model, skill.texts[:1], control.texts[:1], 0.05),
    }[way]
    sizes = [p.numel() * p.itemsize for p in model.network.parameters()]
    largest = max(matrix.shape[0] * matrix.shape[1] for matrix in model.anatomy.scored.values()) * model.dtype.itemsize
    return {**measured(run, settings["device"]), "model_bytes": sum(sizes), "matrix_bytes": largest}


def masks_of(model: Model, selections: list[MathNeuro]) -> int:
    """Every mask of every selection, each made and counted; how many weights they hold together."""
    fixed = fixed_together(selections, model)
    held = 0
    for address, matrix in model.anatomy.scored.items():
        weight = matrix.read()
        held += sum(int(selection.mask(address, weight).sum()) for selection in fixed)
    return held


def bare(model: Model, texts: tuple[tuple[int, ...], ...], batch_tokens: int) -> None:
    """Forward passes over the very batches of `observe`, up to the head as there, and nothing else."""
    ordered = sorted(texts, key=lambda text: -len(text))
    with torch.inference_mode(), stopped_at_head(model) as run:
        for places in batches([len(text) for text in ordered], Budget(batch_tokens)):
            part = [ordered[place] for place in places]
            width = len(part[0])
            ids = torch.tensor([[*text, *([text[0]] * (width - len(text)))] for text in part])
            mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in part])
            run(ids.to(model.device), mask.to(model.device))


def prepare(settings: dict[str, Any]) -> dict[str, Any]:
    """Write a random Llama checkpoint in bfloat16, in one shard and in several, an edit for it, and its masks."""
    from safetensors.torch import save_file
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = load("bundled:llama-base").tokenizer
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=settings["blocks"], num_attention_heads=16,
        num_key_value_heads=4, vocab_size=32000, tie_word_embeddings=True, dtype="bfloat16",
    )  # fmt: skip
    model = wrap(LlamaForCausalLM(config).to(torch.bfloat16).eval(), tokenizer, "random")
    folder = Path(settings["folder"])
    for name, size in (("whole", "5GB"), ("sharded", "100MB")):
        model.network.save_pretrained(folder / name, max_shard_size=size)
        tokenizer.save_pretrained(folder / name)
    selection = MathNeuro(made_up(model, 1), (made_up(model, 2),), 0.05).fixed(model)
    save_edit(folder / EDIT, ScaleParameters(selection, FACTOR), model)
    masks = {a: selection.mask(a, matrix.read()) for a, matrix in model.anatomy.scored.items()}
    save_file({model.anatomy.scored[a].parameter: mask for a, mask in masks.items()}, folder / MASKS)
    return {
        "bytes": sum(p.numel() * p.itemsize for p in model.network.parameters()),
        "edit_bytes": (folder / EDIT).stat().st_size,
        "mask_bytes": (folder / MASKS).stat().st_size,
        "shards": {name: len(list((folder / name).glob("*.safetensors"))) for name in ("whole", "sharded")},
        "largest_tensor_bytes": max(p.numel() * p.itemsize for p in model.network.parameters()),
    }


def made_up(model: Model, seed: int) -> Inputs:
    """Random vectors, as if a data set had been observed."""
    generator = torch.Generator().manual_seed(seed)
    readers = {
        address: re.sub(r"\.[kv]$", ".q", re.sub(r"\.up$", ".gate", address)) for address in model.anatomy.scored
    }
    sums: dict[str, InputSums] = {}
    for address, key in readers.items():
        vector = torch.rand(model.anatomy.scored[address].shape[1], generator=generator) + 0.1
        sums.setdefault(key, InputSums(vector, vector.square(), 1000))
    return Inputs(sums, readers, 10, 1000)


def apply(who: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Write the edited checkpoint: by lesion from the edit, or with transformers from masks that were made before."""
    import transformers.models.llama.modeling_llama  # noqa: F401  # both need it; importing is not what is timed

    folder, out = Path(settings["folder"]), Path(settings["folder"]) / f"out-{who}"

    def by_lesion() -> None:
        checkpoint.apply(folder / settings["source"], [read_edit(folder / EDIT)], out)

    def by_transformers() -> None:
        from safetensors import safe_open
        from transformers import AutoModelForCausalLM, AutoTokenizer

        with quiet():
            network = AutoModelForCausalLM.from_pretrained(folder / settings["source"], dtype="auto")
            with safe_open(folder / MASKS, "pt") as masks, torch.no_grad():
                for name in masks.keys():  # noqa: SIM118  # an open file of tensors, no dictionary
                    weight = network.get_parameter(name)
                    weight[masks.get_tensor(name)] *= FACTOR
            network.save_pretrained(out, max_shard_size="5GB" if settings["source"] == "whole" else "100MB")
            AutoTokenizer.from_pretrained(folder / settings["source"]).save_pretrained(out)

    found = measured(by_lesion if who == "lesion" else by_transformers)
    began = time.perf_counter()
    for file in out.rglob("*.safetensors"):
        with file.open("rb+") as opened:
            os.fsync(opened.fileno())
    return {**found, "then_synced": round(time.perf_counter() - began, 2)}


def main() -> None:
    """Run one measurement and print it."""
    what, settings = sys.argv[1], json.loads(sys.argv[2])
    torch.set_num_threads(settings.pop("threads"))
    room, _, way = what.partition(":")
    found = prepare(settings) if room == "prepare" else {"memory": memory, "apply": apply}[room](way, settings)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
