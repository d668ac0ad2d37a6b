"""A small study made for tests: two models, two tasks, four blocks, with verdicts counted naively."""

from typing import Any

import pandas as pd

from lesion.statistics.paired import wilson
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.ablation.study import Study

MODELS, TASKS, LAYERS, ITEMS = ("base", "child"), ("sums", "facts"), 4, 10


def right(task: str, layer: int | None, item: int) -> bool:
    """The made world: item 9 is always wrong; without block 2, sums are all wrong and facts as before."""
    if layer == 2 and task == "sums":
        return False
    if layer == 1 and item == 9:
        return True  # repaired
    return item != 9


def said(task: str, layer: int | None, item: int) -> str:
    return f"{task} {item} so {'yes' if right(task, layer, item) else f'no {layer}'}"


Form = dict[str, Any]
"""The JSON of a summary, which a test may change before it is read."""


def study(
    models: tuple[str, ...] = MODELS, tasks: tuple[str, ...] = TASKS
) -> tuple[AblationSummary, pd.DataFrame, pd.DataFrame]:
    """Summary, answers and items of the made world."""
    return valid(form(models, tasks)), *records(models, tasks)


def valid(summary: Form) -> AblationSummary:
    """The summary of a form."""
    return AblationSummary.model_validate(summary)


def form(models: tuple[str, ...] = MODELS, tasks: tuple[str, ...] = TASKS) -> Form:
    """The summary as JSON holds it."""
    asked = Study.make(
        name="made", title="A made study", models=["base"], tasks=["sums"], items=ITEMS, seed=3, level=0.95
    )
    return {
        "kind": "layers",
        "version": "0",
        "engine": "made",
        "study": asked.model_dump(mode="json"),
        "models": [{"model": model, "tasks": [_task(task) for task in tasks]} for model in models],
        "notes": ["A note."],
    }


def bare(tasks: dict[str, list[Form]], model: str = "made", items: int = ITEMS) -> Form:
    """The summary of one model whose cells need not say more than what a test is about."""
    cell = {"unit": "block", "factor": 0.0, **scores(5, items), "drop": {"value": 0.0}, "critical": False}
    results = [
        {"task": task, "items": items, "baseline": scores(items, items), "cells": [cell | each for each in cells]}
        for task, cells in tasks.items()
    ]
    return form((), ()) | {"models": [{"model": model, "tasks": results}], "notes": []}


STOPPING = {"effect": 0.1, "level": 0.05, "items": ITEMS, "finished": True}


def records(models: tuple[str, ...] = MODELS, tasks: tuple[str, ...] = TASKS) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Answers and items of the made world."""
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
    columns = ["model_name", "edit", "task", "item", "text", "tokens", "finish", "correct", "parsed"]
    asked = pd.DataFrame(items, columns=["task", "item", "question", "gold", "group"])
    given = pd.DataFrame(answers, columns=columns).assign(model="m", decoding="greedy", prompt_style="plain")
    given["scores"] = given["ranks"] = [()] * len(given)
    return given.merge(asked.drop(columns="group"), on=["task", "item"], how="left"), asked


def scores(right: int, items: int, truncated: float = 0.0) -> Form:
    """So many right of so many items."""
    low, high = wilson(right, items)
    accuracy = {"value": right / items, "low": low, "high": high}
    rates = {"truncated": truncated, "looped": 0.0, "unparsed": 1 - right / items, "nonfinite": 0.0}
    return {"items": items, "accuracy": accuracy, **rates}


def _task(task: str) -> Form:
    baseline = sum(right(task, None, i) for i in range(ITEMS))
    cells = []
    for layer in range(LAYERS):
        k = sum(right(task, layer, i) for i in range(ITEMS))
        drop = (baseline - k) / ITEMS
        cells.append(
            {
                "layer": layer, "unit": "block", "factor": 0.0, **scores(k, ITEMS, float(drop > 0.5)),
                "drop": {"value": drop, "low": drop - 0.2, "high": drop + 0.2, "p": 0.004}
                | {"p_corrected": 0.016 if drop > 0 else 1},
                "critical": drop > 0.5, "spared": drop <= 0,
            }
        )  # fmt: skip
    return {"task": task, "items": ITEMS, "baseline": scores(baseline, ITEMS), "cells": cells}
