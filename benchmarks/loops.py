"""Stopping loops against letting them go on: what it saves of a sweep, and which verdicts it changes.

    python benchmarks/loops.py                                   # bundled models, each task's own limit and 400 tokens
    python benchmarks/loops.py --models bundled:llama-base,bundled:llama-rlvr --times 4        # as recorded
    python benchmarks/loops.py --models bundled:llama-rlvr --limits 400 --items 50 --times 2,4,16

Every block, and every attention and MLP, is switched off in turn; items, prompts and judge are those of `lesion
ablate`. Per model and token limit the sweep runs once with loops going on and once per number of repetitions:

    steps    token steps of decoding and of prompts, and what share of them was saved
    seconds  of the processor, summed over threads, and the share saved; noisier than the steps on a machine at work
    truncated  answers of the full sweep that hit the limit
    looped   answers that were ended in a loop; `left`, of them, such as would have ended by themselves before the limit
    differ   verdicts that are not those of the full table

That answers are the full ones cut at their loop is what tests/engines/test_loops.py proves.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from lesion.edits.edit import BASELINE, Edit, ScaleAttention, ScaleBlock, ScaleMlp
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.models.load import Model, load
from lesion.tasks.catalogue import draw, find
from lesion.tasks.prompts import encode, resolve
from lesion.tasks.task import Answer, Item, Task

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Question:
    """One item as the model is asked it."""

    task: Task
    item: Item
    prompt: tuple[int, ...]


@dataclass(frozen=True)
class Sweep:
    """What a sweep said and took."""

    answers: dict[Key, Answer]
    right: dict[Key, bool]
    steps: int
    seconds: float


@dataclass(frozen=True)
class Row:
    """One sweep against the one that lets loops go on."""

    model: str
    limit: int | None
    times: int
    answers: int
    steps: int
    steps_saved: float
    seconds: float
    seconds_saved: float
    truncated: int
    looped: int
    left: int
    differ: int

    def __str__(self) -> str:
        name, limit = self.model.removeprefix("bundled:"), self.limit or "own"
        return (
            f"{name:14} {limit!s:>5} {self.times or '–'!s:>5} {self.answers:8,} {self.steps:9,} {self.steps_saved:6.1%}"
            f" {self.seconds:8.1f} {self.seconds_saved:6.1%} {self.truncated:9,} {self.looped:7,} {self.left:5,}"
            f" {self.differ:7,}"
        )


HEAD = (
    f"{'model':14} {'limit':>5} {'times':>5} {'answers':>8} {'steps':>9} {'saved':>6} {'seconds':>8} {'saved':>6}"
    f" {'truncated':>9} {'looped':>7} {'left':>5} {'differ':>7}"
)


def edits_of(model: Model) -> list[Edit]:
    """The baseline, and every block and branch switched off."""
    blocks = range(len(model.anatomy.blocks))
    return [BASELINE, *(unit(block) for unit in (ScaleBlock, ScaleAttention, ScaleMlp) for block in blocks)]


def questions_of(model: Model, tasks: Sequence[str], items: int) -> list[Question]:
    """The items of all tasks in the prompts of this model."""
    found = []
    for name in tasks:
        task = find(name)
        style = resolve(model, task, None)
        found += [
            Question(task, item, encode(model, task, item, style, max_new_tokens=1)) for item in draw(task, items, 0)
        ]
    return found


def sweep(model: Model, questions: Sequence[Question], limit: int | None, times: int) -> Sweep:
    """Every question under every edit."""
    asked = {}
    for question in questions:
        decoding = Decoding(limit or question.task.max_new_tokens, question.task.stop, stop_loops=times)
        for edit in edits_of(model):
            key = (question.task.name, question.item.id, str(edit))
            asked[key] = (question, Request(json.dumps(key), question.prompt, edit, decoding))
    engine = TransformersEngine(model)
    began = time.process_time()
    responses = list(engine.answer([request for _, request in asked.values()]))
    seconds = time.process_time() - began
    answers: dict[Key, Answer] = {}
    for response in responses:
        task, item, edit = json.loads(response.key)
        answers[task, item, edit] = response.answer
    right = {key: question.task.judge(question.item, answers[key]).correct for key, (question, _) in asked.items()}
    return Sweep(answers, right, engine.work.prompt + engine.work.decoded, seconds)


def compared(model: Model, limit: int | None, times: int, full: Sweep, cut: Sweep) -> Row:
    """A sweep against the full one."""
    looped = [key for key, answer in cut.answers.items() if answer.finish == "loop"]
    return Row(
        model=model.name,
        limit=limit,
        times=times,
        answers=len(cut.answers),
        steps=cut.steps,
        steps_saved=1 - cut.steps / full.steps,
        seconds=round(cut.seconds, 2),
        seconds_saved=1 - cut.seconds / full.seconds,
        truncated=sum(answer.finish == "length" for answer in full.answers.values()),
        looped=len(looped),
        left=sum(full.answers[key].finish == "stop" for key in looped),
        differ=sum(cut.right[key] != right for key, right in full.right.items()),
    )


def main() -> None:
    """Run the sweeps, print a row for each, and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="bundled:llama-base,bundled:llama-rlvr,bundled:qwen2-base")
    parser.add_argument("--tasks", default="primer:arithmetic,primer:atlas,primer:reading")
    parser.add_argument("--items", type=int, default=20)
    parser.add_argument("--limits", default="own,400", help="token limits by commas; own: each task's")
    parser.add_argument("--times", default="2,4,8", help="repetitions by commas")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/loops.json"))
    asked = parser.parse_args()
    rows = []
    print(HEAD)
    for name in asked.models.split(","):
        model = load(name, dtype="float32")
        questions = questions_of(model, asked.tasks.split(","), asked.items)
        sweep(model, questions[:2], 4, 0)  # whatever comes first would be slower
        for limit in (None if text == "own" else int(text) for text in asked.limits.split(",")):
            full = sweep(model, questions, limit, 0)
            for times in (0, *map(int, asked.times.split(","))):
                cut = sweep(model, questions, limit, times) if times else full
                rows.append(compared(model, limit, times, full, cut))
                print(rows[-1], flush=True)
    machine = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    found = {
        "machine": machine,
        "torch": torch.__version__,
        "items": asked.items,
        "rows": [asdict(row) for row in rows],
    }
    asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"written: {asked.out}")


if __name__ == "__main__":
    main()
