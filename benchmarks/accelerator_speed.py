"""Sweeps of blocks at full size: a plain loop with hooks, lesion and its own recorded steps, and a captured step
without and with edits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from math import inf
from typing import Any

import torch

from accelerator_findings import Findings, Left, clock
from accelerator_models import floor, prompts, shaped
from accelerator_step import BLOCK, CapturedStep
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers import pace, recorded
from lesion.engines.transformers.engine import TransformersEngine
from lesion.models.load import Model
from recorded_types import record

Answers = dict[tuple[int | None, int], list[int]]
"""Tokens by the block that is switched off (None: no block) and the number of the prompt."""
PLAIN_EDITS = 3
"""Edits of the plain loop that are run where all would take too long; every edit takes as long as any other."""


def peak(device: torch.device) -> float | None:
    """GB of memory at most since the last call."""
    if device.type != "cuda":
        return None
    most = torch.cuda.max_memory_allocated(device) / 1e9
    torch.cuda.reset_peak_memory_stats(device)
    return most


@contextmanager
def removed(network: Any, layer: int | None) -> Iterator[None]:
    """The network without what one block adds, as anyone would write it."""
    if layer is None:
        yield
        return

    def give_back(module: Any, arguments: Any, output: Any) -> Any:
        return (arguments[0], *output[1:]) if isinstance(output, tuple) else arguments[0]

    handle = network.model.layers[layer].register_forward_hook(give_back)
    try:
        yield
    finally:
        handle.remove()


@torch.inference_mode()
def plain(model: Model, asked: Sequence[Sequence[int]], layers: Sequence[int | None], answer: int) -> Answers:
    """`generate` of transformers over one batch, one edit after the other."""
    ids = torch.tensor(asked, device=model.device)
    answers: Answers = {}
    for layer in layers:
        with removed(model.network, layer):
            generated = model.network.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=answer,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
        for index, row in enumerate(generated[:, ids.shape[1] :].tolist()):
            answers[layer, index] = row
    return answers


def lesions(
    model: Model, asked: Sequence[Sequence[int]], layers: Sequence[int | None], answer: int
) -> tuple[Answers, dict[str, int]]:
    """The sweep by lesion's engine, all edits in one batch, and what it computed."""
    engine = TransformersEngine(model)
    requests = [
        Request(
            f"{'' if layer is None else layer}|{index}",
            tuple(prompt),
            BASELINE if layer is None else ScaleBlock(layer),
            Decoding(answer),
        )
        for layer in layers
        for index, prompt in enumerate(asked)
    ]
    answers: Answers = {}
    for response in engine.answer(requests):
        layer, _, index = response.key.partition("|")
        answers[int(layer) if layer else None, int(index)] = list(response.token_ids)
    return answers, asdict(engine.work)


def factors_of(model: Model, layers: Sequence[int | None], each: int) -> torch.Tensor:
    """[blocks, 3, rows]: so many rows of every edit, one edit after the other."""
    factors = torch.ones(len(model.anatomy.blocks), 3, len(layers) * each)
    for number, layer in enumerate(layers):
        if layer is not None:
            factors[layer, BLOCK, number * each : (number + 1) * each] = 0
    return factors


def alike(some: Answers, others: Answers) -> dict[str, float]:
    """Of the answers that both gave: the share that is equal throughout, and of equal tokens before the first other."""
    pairs = [(some[key], others[key]) for key in some if key in others]
    same = [next((i for i, (a, b) in enumerate(zip(*pair, strict=True)) if a != b), len(pair[0])) for pair in pairs]
    lengths = [len(first) for first, _ in pairs]
    return {
        "answers": len(pairs),
        "equal_answers": sum(a == b for a, b in zip(same, lengths, strict=True)) / len(pairs),
        "equal_until": sum(same) / sum(lengths),
    }


def captured(
    model: Model, asked: Sequence[Sequence[int]], answer: int, factors: torch.Tensor | None, compiled: bool = False
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Answers of the captured step, and its times; the recording is not timed."""
    length = len(asked[0]) + answer
    step = CapturedStep(model.network, len(asked), length, factors, compiled)
    began = clock(model.device)
    step.ready(asked, answer)
    recorded = clock(model.device)
    step.prefill(asked)
    prefilled = clock(model.device)
    with torch.inference_mode():
        for held in range(step.longest, step.longest + answer - 1):
            step.step(held)
    decoded = clock(model.device)
    tokens = step.answers[:, :answer].cpu()
    return tokens, {
        "rows": len(asked),
        "answer": answer,
        "recording_seconds": recorded - began,
        "prefill_seconds": prefilled - recorded,
        "decoding_seconds": decoded - prefilled,
        "milliseconds_a_step": 1000 * (decoded - prefilled) / max(1, answer - 1),
        "tokens_a_second": len(asked) * (answer - 1) / (decoded - prefilled),
        "tokens_a_second_with_prompts": len(asked) * answer / (decoded - recorded),
        "gigabytes": peak(model.device),
    }


def as_answers(tokens: torch.Tensor, layers: Sequence[int | None], each: int) -> Answers:
    """Rows of a captured sweep by edit and prompt."""
    rows = tokens.tolist()
    return {(layer, i): rows[n * each + i] for n, layer in enumerate(layers) for i in range(each)}


def speed(options: Any, note: Findings, left: Left) -> None:
    """The section for one shape; every finding is noted as soon as it is there."""
    name, device = options.shape, options.device
    tiny = name == "tiny"
    dtype = torch.float32 if tiny else torch.bfloat16
    began = time.perf_counter()
    model = shaped(name, device, dtype, options.gain)
    note("model", {"seconds": time.perf_counter() - began, "gigabytes": peak(model.device), "gain": options.gain})
    each = 4 if tiny else options.items
    length, answer = (20, 12) if tiny else (options.prompt, options.answer)
    blocks = len(model.anatomy.blocks)
    chosen = range(blocks) if blocks <= 8 or name == "0.5b" else [round(i * (blocks - 1) / 7) for i in range(8)]
    layers: list[int | None] = [None, *chosen]
    asked = prompts(model, each, length)

    # How long a token takes says how long the answers may be.
    plain(model, asked, [None], 4)
    began = clock(model.device)
    plain(model, asked, [None], 12)
    token = (clock(model.device) - began) / 12
    few = layers if tiny else [layers[0], layers[1], layers[len(layers) // 2]][:PLAIN_EDITS]
    fits = int(options.patience / (len(few) * token))
    answer = max(8, min(answer, fits))
    note("plan", {"plain_ms_a_token": token * 1000, "prompt": length, "answer": answer, "items": each,
                  "edits": len(layers), "plain_edits": len(few)})  # fmt: skip

    began = clock(model.device)
    first = plain(model, asked, few, answer)
    seconds = clock(model.device) - began
    whole = seconds * len(layers) / len(few)
    tokens = len(layers) * each * answer
    note("plain", {"seconds_of_edits_run": seconds, "seconds_of_all_edits": whole, "scaled": len(few) < len(layers),
                   "tokens_a_second": tokens / whole, "gigabytes": peak(model.device)})  # fmt: skip

    everyone = [prompt for _ in layers for prompt in asked]
    plan: dict[str, Callable[[], Any]] = {
        "captured_sweep": lambda: _sweep(model, everyone, layers, each, answer, first, whole, options, note),
        "lesion": lambda: _lesion(model, asked, layers, answer, first, tokens / whole, options, note),
        "captured_limit": lambda: _limit(model, answer, options, note, left),
        "lesion_steps": lambda: _steps(model, answer, options, note, left),
    }
    if options.compile:
        plan["captured_compiled"] = lambda: _compiled(model, answer, options, note)
        plan["lesion_fused"] = lambda: _steps(model, answer, options, note, left, fused=True)
    for part, run in plan.items():
        if left() < 20 and not tiny:
            note(part, {"skipped": f"{left():.0f} s are left"})
            continue
        note.attempt(part, run)
    if options.shared and left() > 30:
        note.attempt("shared_prefix", lambda: _shared(model, layers, options, note))


def _lesion(
    model: Model, asked: Any, layers: Any, answer: int, first: Answers, rate: float, options: Any, note: Findings
) -> None:
    few = min(answer, 12)
    began = clock(model.device)
    lesions(model, asked, layers, few)
    middle = clock(model.device)
    _, work = lesions(model, asked, layers, few)
    short = clock(model.device) - middle
    # Rows that found no room at first enter later: an answer takes up to twice its tokens in steps.
    answer = max(few, min(answer, int(options.patience_lesion / (2 * short / max(1, work["steps"])))))
    note("lesion_short", {"answer": few, "first_seconds": middle - began, "seconds": short, "work": work,
                          "answer_that_fits": answer})  # fmt: skip
    peak(model.device)
    began = clock(model.device)
    answers, work = lesions(model, asked, layers, answer)
    seconds = clock(model.device) - began
    tokens = sum(map(len, answers.values()))
    note("lesion", {
        "answer": answer, "seconds": seconds, "tokens_a_second": tokens / seconds, "work": work,
        "gigabytes": peak(model.device), "milliseconds_a_step": 1000 * seconds / max(1, work["steps"]),
        "rate_of_plain": tokens / seconds / rate,
        "milliseconds_by_rows": by_rows(model),
        "as_plain": alike(answers, {key: row[:answer] for key, row in first.items()}),
    })  # fmt: skip


def _sweep(
    model: Model,
    everyone: Any,
    layers: Any,
    each: int,
    answer: int,
    first: Answers,
    whole: float,
    options: Any,
    note: Findings,
) -> None:
    factors = factors_of(model, layers, each)
    tokens, times = captured(model, everyone, answer, factors)
    against_floor(times, model, len(everyone[0]), options)
    times["of_plain"] = (times["prefill_seconds"] + times["decoding_seconds"]) / whole
    times["as_plain"] = alike(as_answers(tokens, layers, each), first)
    note("captured_sweep", times)


def against_floor(times: dict[str, Any], model: Model, prompt: int, options: Any) -> None:
    """Note the floor of a step, and the share of the time that it is."""
    times["floor"] = floor(model, times["rows"], prompt + times["answer"] / 2, options.ceilings)
    times["of_floor"] = times["floor"]["floor"] * 1000 / times["milliseconds_a_step"]


def spread(model: Model, rows: int) -> torch.Tensor:
    """[blocks, 3, rows]: the baseline and every block in turn."""
    layers = [None, *range(len(model.anatomy.blocks))]
    return factors_of(model, [layers[row % len(layers)] for row in range(rows)], 1)


def _limit(model: Model, answer: int, options: Any, note: Findings, left: Left) -> None:
    tiny = options.shape == "tiny"
    length, answer = 20 if tiny else options.prompt, min(answer, options.limit_answer)
    for rows in (8,) if tiny else options.rows:
        if left() < 20 and not tiny:
            note(f"captured_{rows}", {"skipped": f"{left():.0f} s are left"})
            continue
        asked = prompts(model, rows, length)
        table: dict[str, Any] = {}
        for way, factors in {"without_edits": None, "with_edits": spread(model, rows)}.items():
            _, table[way] = captured(model, asked, answer, factors)
            against_floor(table[way], model, length, options)
        edits = table["with_edits"]["milliseconds_a_step"] / table["without_edits"]["milliseconds_a_step"]
        note(f"captured_{rows}", {**table, "with_over_without_edits": edits})


def by_rows(model: Model) -> dict[int, float]:
    """Milliseconds of lesion's recorded steps, by their rows, as its batches measured them."""
    known = recorded._paces.get(model.network)
    return {} if known is None else {rows: 1000 * seconds for rows, seconds in known.seconds.items()}


def own_steps(model: Model, rows: int, length: int, answer: int, fused: bool) -> dict[str, Any]:
    """Lesion's recorded steps of so many rows under the edits of `spread`, of which twice as many wait."""
    pace.FIRST, pace.FUSING = rows, 0.0 if fused else inf
    recorded._paces.pop(model.network, None)
    edits = [BASELINE, *map(ScaleBlock, range(len(model.anatomy.blocks)))]
    requests = [
        Request(f"{number}", prompt, edits[number % len(edits)], Decoding(answer))
        for number, prompt in enumerate(prompts(model, 2 * rows, length))
    ]
    # In a trial on a CPU a graph of operations stands for a CUDA graph; of what is compiled there is none.
    trial: recorded.Record = (lambda step: step) if fused else record
    engine = TransformersEngine(model, rows, None if model.device.type == "cuda" else lambda: trial)
    began = clock(model.device)
    tokens = sum(len(response.token_ids) for response in engine.answer(requests))
    seconds = clock(model.device) - began
    found = recorded._paces[model.network]
    return {
        "rows": rows, "answer": answer, "seconds": seconds, "tokens_a_second": tokens / seconds,
        "milliseconds_a_step": by_rows(model)[rows], "recording_seconds": found.recording,
        "fusing_seconds": found.fusing * len(model.anatomy.blocks) if fused else None,
        "not_fused_since": recorded._unfusable.get(model.network), "work": asdict(engine.work),
        "gigabytes": peak(model.device),
    }  # fmt: skip


def _steps(model: Model, answer: int, options: Any, note: Findings, left: Left, fused: bool = False) -> None:
    """Lesion's own recorded steps against the captured ones of as many rows; fused at 256 rows alone."""
    tiny = options.shape == "tiny"
    length, answer = 20 if tiny else options.prompt, 30 if tiny else min(answer, options.limit_answer)
    for rows in (8,) if tiny else (256,) if fused else options.rows:
        name = f"lesion_{rows}{'_fused' if fused else ''}"
        if left() < 20 and not tiny:
            note(name, {"skipped": f"{left():.0f} s are left"})
            continue
        times = own_steps(model, rows, length, answer, fused)
        against_floor(times, model, length, options)
        entries = note.entries[note.section]
        captured = entries.get(f"compiled_{rows}_with_edits" if fused else f"captured_{rows}", {})
        captured = captured.get("with_edits", captured)
        if "milliseconds_a_step" in captured:
            times["of_captured"] = times["milliseconds_a_step"] / captured["milliseconds_a_step"]
        note(name, times)


def _compiled(model: Model, answer: int, options: Any, note: Findings) -> None:
    tiny = options.shape == "tiny"
    length, rows, answer = 20 if tiny else options.prompt, 8 if tiny else 256, min(answer, options.limit_answer)
    asked = prompts(model, rows, length)
    for way, factors in {"with_edits": spread(model, rows), "without_edits": None}.items():
        _, times = captured(model, asked, answer, factors, compiled=True)
        against_floor(times, model, length, options)
        note(f"compiled_{rows}_{way}", times)


def _shared(model: Model, layers: Any, options: Any, note: Findings) -> None:
    """Prompts of 700 tokens, of which all share 600; short answers."""
    length, shared, answer = (60, 40, 4) if options.shape == "tiny" else (700, 600, 32)
    asked = prompts(model, 4 if options.shape == "tiny" else options.items, length, shared)
    few = layers[:2]
    plain(model, asked, [None], 2)
    began = clock(model.device)
    first = plain(model, asked, few, answer)
    whole = (clock(model.device) - began) * len(layers) / len(few)
    began = clock(model.device)
    answers, work = lesions(model, asked, layers, answer)
    seconds = clock(model.device) - began
    note("shared_prefix", {
        "prompt": length, "shared": shared, "answer": answer, "plain_seconds": whole, "lesion_seconds": seconds,
        "of_plain": seconds / whole, "work": work, "as_plain": alike(answers, first),
    })  # fmt: skip


def exact(options: Any, note: Findings, left: Left) -> None:
    """Float32 without shortened products: every way must give the same tokens. In bfloat16 rounding parts them."""
    tiny = options.shape == "tiny"
    name = "tiny" if tiny else "0.5b"
    each, length, answer = (3, 20, 12) if tiny else (8, 60, 40)
    for dtype in (torch.bfloat16, torch.float32):
        model = shaped(name, options.device, dtype)
        asked = prompts(model, each, length)
        blocks = len(model.anatomy.blocks)
        layers: list[int | None] = [None, 0, blocks // 2, blocks - 1]
        first = plain(model, asked, layers, answer)
        half = each // 2
        halves = plain(model, asked[:half], layers, answer)
        rest = plain(model, asked[half:], layers, answer)
        halves |= {(layer, half + index): row for (layer, index), row in rest.items()}
        answers, _ = lesions(model, asked, layers, answer)
        everyone = [prompt for _ in layers for prompt in asked]
        tokens, _ = captured(model, everyone, answer, factors_of(model, layers, each))
        mixed = as_answers(tokens, layers, each)
        note(str(dtype).removeprefix("torch."), {
            "shape": name, "plain_in_two_batches": alike(halves, first), "lesion": alike(answers, first),
            "captured": alike(mixed, first),
        })  # fmt: skip
    note.attempt("units", lambda: note("units", units(model, asked, answer)))


def units(model: Model, asked: Sequence[Sequence[int]], answer: int) -> dict[str, Any]:
    """Every row under another factor of a block, an attention or an MLP: the captured step against hooks."""
    blocks = len(model.anatomy.blocks)
    places = [(layer, unit, factor) for unit in range(3) for layer, factor in ((0, 0.5), (blocks - 1, 0.0), (1, 1.1))]
    factors = torch.ones(blocks, 3, len(places))
    for row, (layer, unit, factor) in enumerate(places):
        factors[layer, unit, row] = factor
    tokens, _ = captured(model, [asked[0]] * len(places), answer, factors)
    first: Answers = {}
    for row, (layer, unit, factor) in enumerate(places):
        with hooked(model.network.model.layers[layer], unit, factor):
            first[None, row] = plain(model, asked[:1], [None], answer)[None, 0]
    mixed: Answers = {(None, row): tokens[row].tolist() for row in range(len(places))}
    return {**alike(mixed, first), "places": places}


@contextmanager
def hooked(block: Any, unit: int, factor: float) -> Iterator[None]:
    """A block, its attention or its MLP times a factor, by a hook."""
    module = (block, block.self_attn, block.mlp)[unit]

    def scale(module: Any, arguments: Any, output: Any) -> Any:
        first = output[0] if isinstance(output, tuple) else output
        changed = arguments[0] + factor * (first - arguments[0]) if unit == BLOCK else factor * first
        return (changed, *output[1:]) if isinstance(output, tuple) else changed

    handle = module.register_forward_hook(scale)
    try:
        yield
    finally:
        handle.remove()
