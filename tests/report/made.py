"""A small study made for tests: two models, two tasks, four blocks, with verdicts counted naively."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lesion.statistics.paired import wilson

MODELS, TASKS, LAYERS, ITEMS = ("base", "child"), ("sums", "facts"), 4, 10
RULE = "A place is critical when the person who made this says so."


def right(task: str, layer: int | None, item: int) -> bool:
    """The made world: item 9 is always wrong; without block 2, sums are all wrong and facts as before."""
    if layer == 2 and task == "sums":
        return False
    if layer == 1 and item == 9:
        return True  # repaired
    return item != 9


def said(task: str, layer: int | None, item: int) -> str:
    return f"{task} {item} so {'yes' if right(task, layer, item) else f'no {layer}'}"


def study(
    models: tuple[str, ...] = MODELS, tasks: tuple[str, ...] = TASKS
) -> tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]:
    """Summary, answers and items of the made world."""
    answers, items = [], []
    for task in tasks:
        for i in range(ITEMS):
            group = f"{i % 2 + 1} steps" if task == "sums" else ""
            items.append((task, f"{task}-{i}", f"question {i} of {task}?", f"gold {i}", group))
    for model in models:
        for task in tasks:
            for layer in (None, *range(LAYERS)):
                edit = "baseline" if layer is None else f"{layer}×0"
                for i in range(ITEMS):
                    finish = "length" if layer == 2 and task == "sums" else "stop"
                    verdict = right(task, layer, i)
                    parsed = str(i) if verdict else None
                    text = said(task, layer, i)
                    answers.append((model, edit, task, f"{task}-{i}", text, 7, finish, verdict, parsed))
    summary = {
        "models": [
            {"model": model, "tasks": [_task(task) for task in tasks]} for model in models
        ],
        "study": {
            "name": "made", "title": "A made study", "seed": 3, "level": 0.95, "rule": RULE, "version": "0"
        },
        "notes": ["A note."],
    }  # fmt: skip
    columns = ["model_name", "edit", "task", "item", "text", "tokens", "finish", "correct", "parsed"]
    return (
        summary,
        pd.DataFrame(answers, columns=columns),
        pd.DataFrame(items, columns=["task", "item", "question", "gold", "group"]),
    )


def _task(task: str) -> dict[str, Any]:
    baseline = sum(right(task, None, i) for i in range(ITEMS))
    low, high = wilson(baseline, ITEMS)
    layers = []
    for layer in range(LAYERS):
        k = sum(right(task, layer, i) for i in range(ITEMS))
        drop = (baseline - k) / ITEMS
        interval = wilson(k, ITEMS)
        layers.append(
            {
                "layer": layer, "unit": "block", "factor": 0.0,
                "accuracy": k / ITEMS, "low": interval[0], "high": interval[1],
                "drop": drop, "drop_low": drop - 0.2, "drop_high": drop + 0.2,
                "p": 0.004, "p_corrected": 0.016,
                "critical": drop > 0.5, "truncated": float(drop > 0.5),
                "unparsed": 1 - k / ITEMS, "nonfinite": 0.0,
            }
        )  # fmt: skip
    found = {"accuracy": baseline / ITEMS, "low": low, "high": high, "truncated": 0.0, "unparsed": 0.1}
    return {"task": task, "items": ITEMS, "baseline": found, "layers": layers}
