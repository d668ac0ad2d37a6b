"""An isolation and its evaluation made for tests: numbers of the size that a small model gives, counted naively."""

from typing import Any

import numpy as np
import pandas as pd

from lesion.statistics.paired import wilson
from lesion.studies.isolation.evaluation import Evaluation
from lesion.studies.isolation.result import IsolationSummary
from lesion.studies.isolation.study import IsolationStudy

SKILL, CONTROLS, TEXT = "primer:arithmetic", ("primer:atlas", "primer:reading"), "primer:text"
KEEPS = (0.001, 0.01, 0.05, 0.15)
METHODS = ("mathneuro", "wanda", "magnitude")
ITEMS, BLOCKS, DRAWS = 200, 8, 3
SHAPES = {"attention.q": 16384, "attention.k": 8192, "attention.v": 8192, "attention.o": 16384, "mlp.gate": 45056,
          "mlp.up": 45056, "mlp.down": 45056}  # fmt: skip
# What remains right of 100, per method and task, at each keep.
LEFT = {
    ("mathneuro", SKILL): (85, 60, 20, 6), ("mathneuro", CONTROLS[0]): (100, 97, 90, 60),
    ("mathneuro", CONTROLS[1]): (99, 97, 93, 70),
    ("wanda", SKILL): (70, 22, 4, 0), ("wanda", CONTROLS[0]): (80, 30, 6, 1), ("wanda", CONTROLS[1]): (82, 35, 8, 0),
    ("magnitude", SKILL): (86, 70, 31, 10), ("magnitude", CONTROLS[0]): (98, 76, 33, 8),
    ("magnitude", CONTROLS[1]): (99, 80, 40, 12),
}  # fmt: skip
RANDOM = {SKILL: (88, 87, 80, 60), CONTROLS[0]: (100, 99, 95, 81), CONTROLS[1]: (100, 99, 96, 85)}
BASE = {SKILL: 88, CONTROLS[0]: 100, CONTROLS[1]: 99}


def key(method: str, keep: float, factor: float = 0.0) -> str:
    """The text form of an edit, as answers are stored under it."""
    return f"{method}-{keep:g}@{abs(hash_of(method, keep)):016x}×{factor:g}"


def hash_of(method: str, keep: float) -> int:
    return sum(ord(character) * 31**i for i, character in enumerate(f"{method}{keep}")) % 2**60


def measured(percent: float) -> dict[str, Any]:
    right = round(percent * ITEMS / 100)
    low, high = wilson(right, ITEMS)
    rates = {"truncated": 0.0, "unparsed": 0.01, "nonfinite": 0.0}
    return {"result": {"value": right / ITEMS, "low": low, "high": high}, "rates": rates}


def cell(edit: str, task: str, percent: float, random: float | None) -> dict[str, Any]:
    drop = (BASE[task] - percent) / 100
    spread = None
    if random is not None:
        beyond = (random - percent) / 100
        spread = {
            "draws": DRAWS, "mean": random / 100, "lowest": random / 100 - 0.02,
            "highest": min(1, random / 100 + 0.02), "drop": (BASE[task] - random) / 100,
            "beyond": {"value": beyond, "low": beyond - 0.05, "high": beyond + 0.05},
        }  # fmt: skip
    small = abs(drop) < 0.04
    change = {"value": drop, "low": drop - 0.04, "high": drop + 0.04, "p": 0.5 if small else 1e-6}
    change["p_corrected"] = 0.9 if small else 1e-5
    return {"edit": edit, **measured(percent), "change": change, "random": spread}


def edit(method: str, keep: float | None, factor: float = 0.0, **more: Any) -> dict[str, Any]:
    total = BLOCKS * sum(SHAPES.values())
    return {
        "edit": key(method, keep or 0, factor), "label": f"{method}-{keep or 0:g}", "method": method, "keep": keep,
        "samples": 100, "repeat": 0, "factor": factor, "random_of": None, "seed": None,
        "selected": int(0.6 * (keep or 0) * total), "total": total, "achieved": factor,
        "digest": f"{hash_of(method, keep or 0):016x}", "randoms": [],
    } | more  # fmt: skip


def evaluation(*, boost: bool = True) -> dict[str, Any]:
    """A prune sweep of three methods over four keeps with random controls, and a boost of MathNeuro."""
    edits, cells = [], {task: [] for task in BASE}
    scores, differences = [], []
    for method in METHODS:
        for i, keep in enumerate(KEEPS):
            one = edit(method, keep)
            edits.append(one)
            for task in BASE:
                cells[task].append(cell(one["edit"], task, LEFT[method, task][i], RANDOM[task][i]))
            ratio = 1 + keep * (8 if method == "mathneuro" else 40)
            scores.append(
                {"edit": one["edit"], "result": {"value": 3.2 * ratio, "low": 3.1 * ratio, "high": 3.3 * ratio},
                 "change": {"value": ratio, "low": ratio * 0.98, "high": ratio * 1.02},
                 "random": {"draws": DRAWS, "mean": 3.2 * (1 + keep), "lowest": 3.2,
                            "highest": 3.2 * (1 + 2 * keep)}}
            )  # fmt: skip
            for control in CONTROLS:
                value = (BASE[SKILL] - LEFT[method, SKILL][i] - BASE[control] + LEFT[method, control][i]) / 100
                differences.append(
                    {"edit": one["edit"], "skill": SKILL, "control": control,
                     "difference": {"value": value, "low": value - 0.07, "high": value + 0.07}}
                )  # fmt: skip
            for seed in range(DRAWS):
                drawn = edit("random", keep, label=f"random-of-{one['label']}", random_of=one["edit"], seed=seed)
                drawn["edit"] = f"random-{seed}-of-{one['edit']}"
                edits.append(drawn)
                for task in BASE:
                    cells[task].append(
                        cell(drawn["edit"], task, RANDOM[task][i] + seed - 1 - (RANDOM[task][i] > 99), None)
                    )
    if boost:
        for factor, gains in {1.01: (0, 0, 0), 1.05: (1, -1, 0), 1.1: (1.5, -2, -1)}.items():
            one = edit("mathneuro", 0.05, factor)
            edits.append(one)
            for task, gain in zip(BASE, gains, strict=True):
                cells[task].append(cell(one["edit"], task, min(100, BASE[task] + gain), BASE[task] - 0.5))
            for control, gain in zip(CONTROLS, gains[1:], strict=True):
                value = (gain - gains[0]) / 100
                differences.append(
                    {"edit": one["edit"], "skill": SKILL, "control": control,
                     "difference": {"value": value, "low": value - 0.04, "high": value + 0.04}}
                )  # fmt: skip
    tasks = [
        {"name": task, "role": "skill" if task == SKILL else "control", "kind": "generate", "items": ITEMS,
         "chance": 0.0, "baseline": measured(BASE[task]), "cells": cells[task]}
        for task in BASE
    ]  # fmt: skip
    tasks.append(
        {"name": TEXT, "role": "control", "kind": "score", "items": 60, "chance": None,
         "baseline": {"result": {"value": 3.2, "low": 3.1, "high": 3.3}, "tokens": 15000}, "cells": scores}
    )  # fmt: skip
    return {
        "model": "bundled:llama-base",
        "dtype": "float32",
        "edits": edits,
        "tasks": tasks,
        "selectivity": differences,
        "choice": choice(),
    }


def choice() -> dict[str, Any]:
    candidates = [key("mathneuro", 0.05, factor) for factor in (1.01, 1.05, 1.1)]
    return {
        "skill": SKILL, "validation_items": 100, "test_items": 200,
        "candidates": [
            {"edit": one, "accuracy": 0.88 + i / 100, "mean_control": 0.99} for i, one in enumerate(candidates)
        ],
        "chosen": candidates[2], "baseline_validation": 0.87, "accuracy_validation": 0.9, "baseline_test": 0.88,
        "accuracy_test": 0.885, "gain": {"value": 0.005, "low": -0.02, "high": 0.03, "p": 0.8},
        "rule": "The highest accuracy on the validation items; of equals, the factor nearest to 1.", "random": None,
        "controls": [{"task": CONTROLS[0], "drop": {"value": 0.01, "low": -0.01, "high": 0.03}}],
    }  # fmt: skip


def isolation() -> dict[str, Any]:
    """Selections of three methods at four keeps, overlaps of three keeps at four numbers of samples."""
    generator = np.random.default_rng(3)
    selections = []
    for method in METHODS:
        for keep in KEEPS:
            matrices = []
            for block in range(BLOCKS):
                for name, total in SHAPES.items():
                    share = keep * (0.4 + 0.4 * generator.random()) if method == "mathneuro" else keep
                    matrices.append({"block": block, "matrix": name, "selected": int(share * total), "total": total})
            matrices.append({"block": None, "matrix": "head", "selected": int(0.7 * keep * 65536), "total": 65536})
            selections.append(
                {"method": method, "keep": keep, "samples": 100, "repeat": 0, "file": f"{method}-{keep:g}.edit",
                 "label": f"{method}-{keep:g}", "digest": f"{hash_of(method, keep):016x}", "matrices": matrices}
            )  # fmt: skip
    overlap = []
    for keep in (0.001, 0.05, 0.15):
        for samples in (1, 10, 100, 500):
            middle = 0.97 - 0.35 / (1 + samples) ** 0.5 - 0.02 * (keep < 0.01)
            pairs = [middle + step / 200 for step in (-2, -1, 0, 1, 2)]
            overlap.append(
                {"method": "mathneuro", "keep": keep, "samples": samples, "repeats": 5, "iou": pairs,
                 "mean": {"value": middle, "low": pairs[0], "high": pairs[-1]}, "chance": keep / (2 - keep)}
            )  # fmt: skip
    coverage = [
        {"name": f"{block}.{name}", "scored": True, "reason": "", "weights": total}
        for block in range(BLOCKS)
        for name, total in SHAPES.items()
    ]
    coverage.append(
        {"name": "model.embed_tokens.weight", "scored": False, "reason": "input embedding", "weights": 65536}
    )
    coverage.append({"name": "model.norm.weight", "scored": False, "reason": "a vector, not a matrix", "weights": 128})
    texts = [
        {"data": data, "role": "skill" if data == SKILL else "control", "samples": 100, "repeat": 0, "texts": 100,
         "tokens": 12345, "cut": 0, "style": "raw"}
        for data in (SKILL, *CONTROLS)
    ]  # fmt: skip
    return {
        "identity": "0" * 64, "study": question().model_dump(mode="json"), "model": "bundled:llama-base",
        "fingerprint": "0123456789abcdef", "family": "llama", "blocks": BLOCKS, "dtype": "float32", "disjoint": True,
        "texts": texts, "selections": selections, "overlaps": overlap, "coverage": coverage,
    }  # fmt: skip


def question(**values: Any) -> IsolationStudy:
    """What the made isolation asked for."""
    own = {"model": "bundled:llama-base", "skill": SKILL, "controls": CONTROLS, "methods": METHODS, "share": KEEPS}
    return IsolationStudy.make(name="made", samples=[1, 10, 100, 500], repeats=5, **{**own, **values})


def study() -> dict[str, Any]:
    """The whole summary, as its JSON has it."""
    return {
        "isolation": isolation(),
        "evaluation": evaluation(),
        "study": question(title="Where the made sums live").model_dump(mode="json"),
        "version": "0",
        "notes": ["A note."],
    }


def summary(values: dict[str, Any] | None = None, **parts: Any) -> IsolationSummary:
    """The summary of JSON, or of parts of it, as a value; what is missing is that of the whole study."""
    given = parts if values is None else values
    return IsolationSummary.model_validate(
        given | {key: study()[key] for key in ("study", "version") if key not in given}
    )


def evaluated(values: dict[str, Any] | None = None) -> Evaluation:
    """An evaluation as a value."""
    return Evaluation.model_validate(evaluation() if values is None else values)


def said(task: str, edit_key: str, item: int) -> str:
    return f"{task} {item} under {edit_key}: {'yes' if right(task, edit_key, item) else 'no'}"


def right(task: str, edit_key: str, item: int) -> bool:
    return (item + len(edit_key) + len(task)) % 3 > 0


def answers(summary: dict[str, Any], count: int = 6) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Answers to the first items of every task under the baseline and every edit, and the items."""
    rows, items = [], []
    for task in summary["evaluation"]["tasks"]:
        name = task["name"]
        items += [(name, f"{name}-{i}", f"question {i} of {name}?", f"gold {i}", "") for i in range(count)]
        for one in ["baseline", *(edited["edit"] for edited in summary["evaluation"]["edits"])]:
            for i in range(count):
                verdict = right(name, one, i)
                rows.append(
                    (
                        "bundled:llama-base", one, name, f"{name}-{i}", said(name, one, i), 7, "stop", verdict,
                        str(i), f"question {i} of {name}?", f"gold {i}", "greedy", "raw", "fingerprint",
                    )
                )  # fmt: skip
    columns = ["model_name", "edit", "task", "item", "text", "tokens", "finish", "correct", "parsed"]
    columns += ["question", "gold", "decoding", "prompt_style", "model"]
    return pd.DataFrame(rows, columns=columns), pd.DataFrame(
        items, columns=["task", "item", "question", "gold", "group"]
    )
