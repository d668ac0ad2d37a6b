"""The layer sweep against what one would otherwise run: a loop over `generate`, and lm-evaluation-harness's HFLM.

    python benchmarks/sweep.py                        # bundled model, all blocks × 3 tasks × 200 items
    python benchmarks/sweep.py --items 40 --no-harness
    python benchmarks/sweep.py --model MODEL --tasks svamp:FILE --prompt-style chat --limit 96 --layers 4,12,20
    python benchmarks/sweep.py --shape qwen2.5-1.5b --device cuda --dtype bfloat16 --layers 0-27

All three get the same prompts, the same edits, greedy decoding and the same token limits, in one process run, after a
warm-up. The loop and the harness get the batch size that is fastest for them, found on the baseline and on the first
ablated block. Prints a table and writes it, with the share of token steps spent on rows that had finished, as JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from lesion.core.layers import parse_layers
from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Edit, ScaleBlock
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.engines.transformers.prefill import pad_left
from lesion.models.load import Model, load, wrap
from lesion.tasks.catalogue import draw, find
from lesion.tasks.prompts import encode

Tokens = tuple[int, ...]


@dataclass
class Question:
    """One item as every contestant gets it."""

    task: str
    prompt: Tokens
    limit: int


@dataclass
class Race:
    """What a contestant did: seconds, answers by (edit, question), and token steps spent, of them on finished rows.

    Processor seconds, summed over threads, say more on a machine that others use as well.
    """

    seconds: float
    answers: dict[tuple[str, int], Tokens]
    steps: int = 0
    idle: int = 0
    processor: float = 0.0
    work: dict[str, int] | None = None


def ours(model: Model, edits: Sequence[Edit], questions: Sequence[Question]) -> Race:
    """The whole sweep as one job of lesion's engine."""
    engine = TransformersEngine(model)
    requests = [
        Request(f"{edit}|{index}", question.prompt, edit, Decoding(question.limit))
        for edit in edits
        for index, question in enumerate(questions)
    ]
    began, processor = time.perf_counter(), time.process_time()
    answers = {}
    for response in engine.answer(requests):
        edit, _, index = response.key.rpartition("|")
        answers[edit, int(index)] = trimmed(model, response.token_ids)
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    work = engine.work
    print(f"  lesion: {seconds:.1f} s; {work}", flush=True)
    return Race(seconds, answers, work.decoded + work.idle, work.idle, processor, asdict(work))


def loop(model: Model, edits: Sequence[Edit], questions: Sequence[Question], batch: int) -> Race:
    """One edit after another, one task after another, `generate` over padded batches sorted by length."""
    race = Race(0.0, {})
    began, processor = time.perf_counter(), time.process_time()
    for edit in edits:
        with applied(model, edit), torch.inference_mode():
            for task in dict.fromkeys(question.task for question in questions):
                chosen = [index for index, question in enumerate(questions) if question.task == task]
                chosen.sort(key=lambda index: -len(questions[index].prompt))
                for start in range(0, len(chosen), batch):
                    part = chosen[start : start + batch]
                    tokens, mask = pad_left([questions[index].prompt for index in part], 0)
                    said = model.network.generate(
                        input_ids=tokens.to(model.device),
                        attention_mask=mask.long().to(model.device),
                        max_new_tokens=questions[part[0]].limit,
                        do_sample=False,
                        pad_token_id=model.tokenizer.eos_token_id,
                    )[:, tokens.shape[1] :]
                    race.steps += said.numel()
                    for index, row in zip(part, said.tolist(), strict=True):
                        answer = trimmed(model, row)
                        race.idle += len(row) - min(len(answer) + 1, len(row))
                        race.answers[str(edit), index] = answer
    race.seconds, race.processor = time.perf_counter() - began, time.process_time() - processor
    return race


def harness(model: Model, edits: Sequence[Edit], questions: Sequence[Question], batch: int) -> Race:
    """The same through lm-evaluation-harness: HFLM.generate_until under each edit."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    texts = [model.tokenizer.decode(question.prompt, skip_special_tokens=True) for question in questions]
    lm = HFLM(
        pretrained=model.network, tokenizer=model.tokenizer, batch_size=batch, max_length=model.context,
        add_bos_token=True, device=str(model.device),
    )  # fmt: skip
    race = Race(0.0, {})
    began, processor = time.perf_counter(), time.process_time()
    for edit in edits:
        with applied(model, edit):
            for task in dict.fromkeys(question.task for question in questions):
                chosen = [index for index, question in enumerate(questions) if question.task == task]
                asked = [
                    Instance(
                        request_type="generate_until",
                        doc={},
                        arguments=(
                            texts[index],
                            {"until": [], "max_gen_toks": questions[index].limit, "do_sample": False},
                        ),
                        idx=0,
                    )
                    for index in chosen
                ]
                said = lm.generate_until(asked, disable_tqdm=True)
                for index, text in zip(chosen, said, strict=True):
                    race.answers[str(edit), index] = tuple(model.tokenizer.encode(text, add_special_tokens=False))
    race.seconds, race.processor = time.perf_counter() - began, time.process_time() - processor
    return race


def trimmed(model: Model, tokens: Sequence[int]) -> Tokens:
    """An answer up to its end-of-text token."""
    end = model.tokenizer.eos_token_id
    return tuple(tokens[: tokens.index(end)]) if end in tokens else tuple(tokens)


def begun_alike(race: Race, edits: Sequence[Edit]) -> dict[str, dict[str, float]]:
    """Per edit, of all tokens it said, the share that the baseline said too, before the first that it did not.

    So much of the decoding a draft can save; with it the share of answers that are the baseline's altogether.
    """
    shares = {}
    for edit in map(str, edits[1:]):
        tokens = common = same = count = 0
        for (of, index), said in race.answers.items():
            if of == edit:
                base = race.answers[str(edits[0]), index]
                alike = next((at for at, (a, b) in enumerate(zip(said, base, strict=False)) if a != b), None)
                common += min(len(said), len(base)) if alike is None else alike
                tokens, same, count = tokens + len(said), same + (said == base), count + 1
        shares[edit] = {"tokens": round(common / max(tokens, 1), 3), "answers": round(same / count, 3)}
    return shares


def fastest(run: Callable[[int], Race], sizes: Sequence[int]) -> int:
    """The batch size with the shortest time, each tried once."""
    times = {size: run(size).seconds for size in sizes}
    print("  batch sizes tried, seconds:", {size: round(seconds, 2) for size, seconds in times.items()}, flush=True)
    return min(times, key=times.__getitem__)


def shaped(name: str, dtype: torch.dtype, device: str) -> Model:
    """A randomly initialised model of a known shape, with the bundled tokenizer."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shapes = {
        "qwen2.5-1.5b": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
                         "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151936},
        "qwen2.5-0.5b": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
                         "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936},
    }  # fmt: skip
    tokenizer = load("bundled:llama-base").tokenizer
    torch.manual_seed(0)
    with torch.device(device):
        network = Qwen2ForCausalLM(
            Qwen2Config(**shapes[name], tie_word_embeddings=True, eos_token_id=tokenizer.eos_token_id)
        )
    return wrap(network.to(dtype).eval(), tokenizer, f"random {name}")


def main() -> None:
    """Run the race and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bundled:llama-base")
    parser.add_argument("--shape", help="a randomly initialised model instead: qwen2.5-1.5b or qwen2.5-0.5b")
    parser.add_argument("--tasks", default="primer:arithmetic,primer:atlas,primer:reading")
    parser.add_argument("--prompt-style", default="plain")
    parser.add_argument("--limit", type=int, help="tokens of an answer; default: each task's own")
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--layers", default="all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--no-harness", action="store_true")
    parser.add_argument("--batch-sizes", default="25,50,100,200")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    model = (
        shaped(options.shape, dtype, options.device)
        if options.shape
        else load(options.model, dtype=options.dtype, device=options.device)
    )
    questions = [
        Question(name, encode(model, task, item, style=options.prompt_style), options.limit or task.max_new_tokens)
        for name in options.tasks.split(",")
        for task in [find(name)]
        for item in draw(task, options.items, 0)
    ]
    layers = parse_layers(options.layers, len(model.anatomy.blocks), model.name)
    edits: list[Edit] = [BASELINE, *(ScaleBlock(layer) for layer in layers)]
    sizes = [int(size) for size in options.batch_sizes.split(",")]
    print(f"{len(edits)} edits × {len(questions)} items on {machine(options.device)}", flush=True)

    ours(model, edits[:2], questions[:: max(1, len(questions) // 20)])  # warm-up
    races = {"lesion": ours(model, edits, questions)}
    size = fastest(lambda size: loop(model, edits[:2], questions, size), sizes)
    races[f"generate loop, batch {size}"] = loop(model, edits, questions, size)
    if not options.no_harness:
        size = fastest(lambda size: harness(model, edits[:2], questions, size), sizes[-2:])
        races[f"lm-eval HFLM, batch {size}"] = harness(model, edits, questions, size)
    races["lesion, again"] = ours(model, edits, questions)
    show(races, begun_alike(races["lesion"], edits), options, model)


def show(races: dict[str, Race], alike: dict[str, dict[str, float]], options: argparse.Namespace, model: Model) -> None:
    """Print the table, and write it where it was asked for."""
    first = races["lesion"]
    best = min(races["lesion"].seconds, races["lesion, again"].seconds)
    least = min(races["lesion"].processor, races["lesion, again"].processor)
    rows: list[dict[str, Any]] = []
    for name, race in races.items():
        same = sum(race.answers[key] == answer for key, answer in first.answers.items()) / len(first.answers)
        idle = race.idle / race.steps if race.steps else None
        rows.append(
            {"who": name, "seconds": round(race.seconds, 2), "ratio": round(race.seconds / best, 2),
             "processor_seconds": round(race.processor, 2), "processor_ratio": round(race.processor / least, 2),
             "idle": None if idle is None else round(idle, 4), "same": round(same, 5)}
        )  # fmt: skip
    print(
        f"\n{'':32} {'seconds':>9} {'× lesion':>9} {'processor':>10} {'× lesion':>9} {'on finished rows':>17}"
        f" {'same answers':>13}"
    )
    for row in rows:
        idle_text = "–" if row["idle"] is None else f"{100 * row['idle']:.1f} %"
        print(
            f"{row['who']:32} {row['seconds']:9.1f} {row['ratio']:9.2f} {row['processor_seconds']:10.1f}"
            f" {row['processor_ratio']:9.2f} {idle_text:>17} {100 * row['same']:11.2f} %"
        )
    print("begun as the baseline, share of tokens, and answered as the baseline, share of items:")
    for edit, shares in alike.items():
        print(f"  {edit:12} {100 * shares['tokens']:5.1f} % {100 * shares['answers']:5.1f} %")
    if options.out:
        facts = {
            "model": model.name, "machine": machine(options.device), "torch": torch.__version__,
            "items": options.items, "layers": options.layers, "dtype": options.dtype, "rows": rows,
            "work": first.work, "begun_as_the_baseline": alike,
        }  # fmt: skip
        options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def machine(device: str) -> str:
    """The machine in words."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


if __name__ == "__main__":
    main()
