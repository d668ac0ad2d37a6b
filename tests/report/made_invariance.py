"""A made layer study of two families and a training over time, with the invariance that the study tells of it."""

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from lesion.edits.edit import ScaleBlock
from lesion.studies.ablation.invariance.summary import invariance
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.summary import summarise

LAYERS, ITEMS = 6, 60
TASKS = ("primer:arithmetic", "primer:atlas")
MODELS = (
    "bundled:llama-base", "bundled:llama-instruct", "bundled:llama-rlvr",
    {"source": "bundled:llama-base", "revision": "step8"}, {"source": "bundled:llama-base", "revision": "step64"},
    "bundled:qwen2-base", "bundled:qwen2-instruct",
)  # fmt: skip
HIT: dict[str, tuple[float, ...]] = {
    # The share of right answers that each block takes, per task.
    "primer:arithmetic": (1.0, 0.1, 0.9, 0.2, 0.3, 0.8),
    "primer:atlas": (1.0, 0.0, 0.05, 0.02, 0.0, 0.1),
}


def able(model: str, task: str) -> float:
    """How much of a task the made model can do unedited."""
    if "step8" in model:
        return 0.0
    if "step64" in model:
        return 0.5 if task == "primer:arithmetic" else 0.9
    return 0.85


def hit(model: str, task: str) -> tuple[float, ...]:
    """What the blocks take: qwen2-instruct depends on other blocks than its base, as seed-1 does; early arithmetic
    on fewer."""
    shares = HIT[task]
    if model in ("bundled:qwen2-instruct", "seed-1") and task == "primer:arithmetic":
        return shares[::-1]
    return tuple(min(s, 0.3) if i == 5 and "step64" in model else s for i, s in enumerate(shares))


@lru_cache(maxsize=4)
def study(
    models: tuple[Any, ...] | None = None, tasks: tuple[str, ...] = TASKS
) -> tuple[AblationSummary, pd.DataFrame, pd.DataFrame]:
    """Summary with invariance, answers and items. Cached."""
    asked = Study.make(models=list(models or MODELS), tasks=list(tasks), items=ITEMS)
    generator = np.random.default_rng(5)
    answers, items = [], []
    for task in tasks:
        items += [(task, f"{task}-{i}", f"question {i}", f"gold {i}", "") for i in range(ITEMS)]
        for chosen in asked.models:
            luck = generator.random((LAYERS + 1, ITEMS))
            base = luck[0] < able(chosen.name, task)
            rows = {"baseline": base} | {
                str(ScaleBlock(layer, 0.0)): base & (luck[layer + 1] >= hit(chosen.name, task)[layer])
                for layer in range(LAYERS)
            }
            for edit, right in rows.items():
                answers += [
                    (chosen.name, edit, task, f"{task}-{i}", f"so {good}", 3, "stop", bool(good), str(i))
                    for i, good in enumerate(right)
                ]
    frame = pd.DataFrame(
        answers, columns=["model_name", "edit", "task", "item", "text", "tokens", "finish", "correct", "parsed"]
    )
    frame["engine"] = "e"
    frame["scores"] = frame["ranks"] = [()] * len(frame)
    of_items = pd.DataFrame(items, columns=["task", "item", "question", "gold", "group"])
    plan = {chosen.name: [ScaleBlock(layer, 0.0) for layer in range(LAYERS)] for chosen in asked.models}
    summary = summarise(asked, plan, frame, of_items)
    shared = invariance(asked, summary, frame, of_items, dict.fromkeys(plan, LAYERS))
    return summary.model_copy(update={"invariance": shared}), frame, of_items
