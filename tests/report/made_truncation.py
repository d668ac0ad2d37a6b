"""A truncation search made for tests: answers drawn item by item, everything else counted from them."""

import copy
import functools
from typing import Any

import numpy as np

from lesion.statistics.paired import mcnemar_exact, paired_drop, wilson
from lesion.studies.truncation.result import TruncationSummary
from lesion.studies.truncation.study import TruncationStudy

IOI, ATLAS = "ioi", "primer:atlas"
PARTS = {"validation": {IOI: 60, ATLAS: 50}, "test": {IOI: 240, ATLAS: 200}}
KEEPS = (0.5, 0.1, 0.05, 0.01, 0.005, 0.0)
OF = 128
MATRICES, SIDES, LAYERS = ("attention.o", "mlp.up"), ("top", "bottom"), 8
BEST = ("mlp.up", "top", 5, 0.05)
COLLAPSED = ("mlp.up", "bottom", 4, 0.05)
ELIMINATED = ("attention.o", "top", 1, 0.01)


def edit(matrix: str, side: str, layer: int, keep: float) -> str:
    return f"{layer}.{matrix} {side} {keep:g}"


def right(task: str, part: str, at: float, seed: int) -> np.ndarray:
    """Which items are right: the same items are hard for every edit, so that drops are paired."""
    hard = np.random.default_rng(len(task) * 7 + len(part)).random(PARTS[part][task])
    noise = np.random.default_rng(seed).normal(0, 0.08, PARTS[part][task])
    return hard + noise < at


BASE = {IOI: 0.55, ATLAS: 0.8}


def estimate(value: float | None, low: float | None = None, high: float | None = None, **more: Any) -> dict[str, Any]:
    return {"value": value, "low": low, "high": high, **more}


def unedited(task: str, part: str) -> dict[str, Any]:
    found = right(task, part, BASE[task], 0)
    low, high = wilson(int(found.sum()), len(found))
    return {
        "task": task, "part": part, "items": len(found), "accuracy": estimate(float(found.mean()), low, high),
        "gold": -1.2 if task == IOI else -0.5, "label": "John" if task == IOI else "Rome",
        "label_share": 0.08 if task == IOI else 0.02,
    }  # fmt: skip


def outcome(task: str, at: float, seed: int, *, collapsed: bool = False) -> dict[str, Any]:
    before, after = right(task, "validation", BASE[task], 0), right(task, "validation", at, seed)
    low, high = wilson(int(after.sum()), len(after))
    drop = paired_drop(before, after)
    return {
        "task": task, "items": len(after), "accuracy": estimate(float(after.mean()), low, high),
        "drop": estimate(drop.value, drop.low, drop.high),
        "gold": (-1.2 if task == IOI else -0.5) + 3 * (at - BASE[task]),
        "label": "Mary" if collapsed else "John", "label_share": 0.98 if collapsed else 0.1, "collapsed": collapsed,
    }  # fmt: skip


def level_of(matrix: str, side: str, layer: int, keep: float) -> float:
    """How much an edit changes accuracy: early layers suffer, one late one gains."""
    if (matrix, side, layer, keep) == BEST:
        return 0.2
    if side == "bottom":
        return -0.5 * (1 - keep) / (1 + layer)
    return 0.04 - 0.45 * (1 - keep) ** 4 / (1 + layer) ** 1.2


def cell(matrix: str, side: str, layer: int, keep: float) -> dict[str, Any]:
    return copy.deepcopy(_cell(matrix, side, layer, keep))


@functools.cache
def _cell(matrix: str, side: str, layer: int, keep: float) -> dict[str, Any]:
    place = (matrix, side, layer, keep)
    rank = int(keep * OF + 1e-9)
    by = level_of(*place)
    seed = hash_of(place)
    screen = by * 2 + np.random.default_rng(seed).normal(0, 0.05)
    tasks = []
    if screen > -0.45 and place != ELIMINATED:
        tasks = [outcome(t, BASE[t] + by, seed, collapsed=place == COLLAPSED and t == IOI) for t in BASE]
    score = None if not tasks else float(np.mean([task["accuracy"]["value"] for task in tasks]))
    return {
        "edit": edit(matrix, side, layer, keep), "address": f"{layer}.{matrix}", "layer": layer, "matrix": matrix,
        "keep": keep, "rank": rank, "of": OF, "side": side, "saved": OF * 352 - rank * (OF + 352), "screen": screen,
        "eliminated": 16 if place == ELIMINATED else None, "outcomes": tasks, "score": score,
    }  # fmt: skip


def hash_of(place: tuple[Any, ...]) -> int:
    return sum(ord(character) * 31**i for i, character in enumerate(str(place))) % 2**31


def test(task: str, by: float, seed: int) -> dict[str, Any]:
    before, after = right(task, "test", BASE[task], 0), right(task, "test", BASE[task] + by, seed)
    low, high = wilson(int(after.sum()), len(after))
    drop = paired_drop(before, after)
    return {
        "task": task, "items": len(after), "baseline": float(before.mean()),
        "accuracy": estimate(float(after.mean()), low, high),
        "gain": estimate(
            -drop.value, -drop.high, -drop.low,
            p=mcnemar_exact(*(int(part.sum()) for part in (before & ~after, after & ~before))),
        ),
        "gold": 3 * by - 1.2, "gold_gain": estimate(3 * by, 3 * by - 0.1, 3 * by + 0.1),
        "label": "John", "label_share": 0.1, "collapsed": False,
    }  # fmt: skip


def tokens(edit_key: str, revision: str | None, right_at: float, tempting_at: float) -> dict[str, Any]:
    margin = float(np.log(right_at) - np.log(tempting_at))
    return {
        "task": IOI, "edit": edit_key, "revision": revision, "items": PARTS["test"][IOI],
        "p_right": estimate(right_at, right_at * 0.85, right_at * 1.15),
        "p_tempting": estimate(tempting_at, tempting_at * 0.85, tempting_at * 1.15),
        "rank_right": 2.0 if right_at < tempting_at else 1.0, "rank_tempting": 1.0 if right_at < tempting_at else 3.0,
        "margin": estimate(margin, margin - 0.3, margin + 0.3),
    }  # fmt: skip


def followed_at(task: str, key: str, revision: str, at: float) -> dict[str, Any]:
    n = PARTS["test"][task]
    low, high = wilson(round(at * n), n)
    return {
        "revision": revision, "edit": key, "task": task, "items": n,
        "accuracy": estimate(round(at * n) / n, low, high), "gold": -2.0, "label": "John", "label_share": 0.1,
        "collapsed": False,
    }  # fmt: skip


def cells() -> list[dict[str, Any]]:
    """Each different edit once: keep 0 is rank 0, as is 0.005 of 128, and it is the same on both sides."""
    return [
        cell(matrix, side, layer, keep)
        for layer in range(LAYERS)
        for matrix in MATRICES
        for side in SIDES
        for keep in KEEPS
        if keep not in (0.0, 0.005) or (side == "top" and keep == 0.005)
    ]


def study(*, revisions: bool = True) -> dict[str, Any]:
    """The JSON of a whole search that chooses an edit."""
    every = cells()
    chosen, second = edit(*BEST), edit("attention.o", "top", 6, 0.1)
    both = f"{chosen} + {second}"
    steps = [
        (chosen, 0.675, 0.77, True, "the best single truncation"),
        (edit("mlp.up", "top", 6, 0.1), 0.77, 0.755, False, "does not improve the score"),
        (second, 0.77, 0.79, True, "improves the score"),
        (edit("attention.o", "top", 7, 0.05), 0.79, 0.79, False, "does not improve the score"),
    ]
    along = [("step512", 0.02, 0.2), ("step4000", 0.1, 0.16), ("step16000", 0.22, 0.12)]
    followed = [(None, 0.3, 0.1)] + (along if revisions else [])
    spectrum = [float(9 * (i + 1) ** -0.6 * (1 if i < 120 else 0.3)) for i in range(OF)]
    asked = TruncationStudy.make(
        name="made", title="Truncations of a made model", model="bundled:llama-base", tasks=list(BASE),
        keep=list(KEEPS), matrices=list(MATRICES), side="both", compose=True,
        screen={"items": 40, "best": 64, "random": 8}, eliminate=0.05,
    )  # fmt: skip
    return {
        "kind": "truncation", "version": "0", "approximate": None, "study": asked.model_dump(mode="json"),
        "model": {"name": "bundled:llama-base", "fingerprint": "0123456789abcdef", "blocks": LAYERS, "family": "llama",
                  "dtype": "float32"},
        "tasks": [
            {"name": task, "kind": "contrast" if task == IOI else "generate",
             "validation_items": PARTS["validation"][task], "test_items": PARTS["test"][task]}
            for task in BASE
        ],
        "merged": 2 * LAYERS * (2 + 1),
        "screen": {"items": 40, "best": 64, "random": 8, "evaluated": sum(bool(one["outcomes"]) for one in every),
                   "rank_correlation": estimate(0.82, 0.7, 0.9)},
        "elimination": {"error": 0.05, "looks": 3, "eliminated": 1, "answers_saved": 78},
        "unedited": [unedited(task, part) for task in BASE for part in PARTS],
        "unedited_score": 0.675,
        "cells": every,
        "best": chosen,
        "nothing": None,
        "best_tests": [test(IOI, 0.16, 3), test(ATLAS, 0.0, 4)],
        "path": [
            {"step": i, "edit": both if i > 1 else chosen, "added": added, "before": {"accuracy": before, "gold": None},
             "after": {"accuracy": after, "gold": None}, "accepted": accepted, "reason": reason}
            for i, (added, before, after, accepted, reason) in enumerate(steps)
        ],
        "composed": both,
        "composed_tests": [test(IOI, 0.18, 5), test(ATLAS, -0.02, 6)],
        "spectra": [
            {"address": f"{layer}.mlp.up", "index": list(range(0, OF, 2)),
             "values": [value * (1 + layer / 20) for value in spectrum[::2]]}
            for layer in range(LAYERS)
        ] + [{"address": "5.attention.o", "index": list(range(OF)), "values": [value / 3 for value in spectrum]}],
        "tokens": [
            tokens(key, revision, min(0.95, p * raised), tempting / lowered)
            for revision, p, tempting in followed
            for key, raised, lowered in (("baseline", 1, 1), (chosen, 1.5, 3), (both, 1.7, 4))
        ],
        "revisions": [
            followed_at(task, key, revision, BASE[task] * share + (by if task == IOI else 0))
            for revision, share in (("step512", 0.3), ("step4000", 0.6), ("step16000", 0.9)) if revisions
            for key, by in (("baseline", 0), (chosen, 0.1), (both, 0.15))
            for task in BASE
        ],
        "notes": ["Revisions were followed with the chosen edit."],
    }  # fmt: skip


SINGLE: dict[str, Any] = {"path": [], "composed": None, "composed_tests": []}
"""What a search without a composition has in its place."""


def nothing() -> dict[str, Any]:
    """The JSON of a search that chooses nothing."""
    return study(revisions=False) | SINGLE | {
        "best_tests": [test(task, 0.0, 7) for task in BASE], "tokens": [], "revisions": [],
        "nothing": "No cell is better than the unedited model on the validation items.",
    }  # fmt: skip


def few() -> dict[str, Any]:
    """The JSON of a search of one matrix, one side and one block that chooses nothing: one of few maps."""
    json = nothing()
    return json | {"cells": [one for one in json["cells"] if (one["matrix"], one["side"], one["layer"]) == BEST[:3]]}


def summary(json: dict[str, Any] | None = None, **changes: Any) -> TruncationSummary:
    """The summary of a JSON, by default of `study`, with parts of it replaced."""
    return TruncationSummary.model_validate((study() if json is None else json) | changes)
