"""Folders of finished studies of one made model, as the commands leave them: only what an overlay reads."""

import json
from pathlib import Path
from typing import Any

from made import bare

from lesion.report.values import Estimate, Mean
from lesion.studies.drift.result import Curve, DriftOfModel, DriftSummary, Layer, Leaving, Tokens
from lesion.studies.drift.study import DriftStudy
from lesion.studies.isolation.study import IsolationStudy

MODEL, BLOCKS = "made", 6


def folder(place: Path, name: str, told: dict[str, Any]) -> Path:
    """A folder with one summary in it."""
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(json.dumps(told), encoding="utf-8")
    return place


def layers(
    place: Path, drops: dict[str, list[float | None]], critical: tuple[int, ...] = (), model: str = MODEL
) -> Path:
    """A layer study; a drop of None was not answered."""
    tasks = {
        task: [
            {"layer": i, "drop": {"value": d, "low": d - 0.1, "high": d + 0.1}, "critical": i in critical}
            for i, d in enumerate(values)
            if d is not None
        ]
        for task, values in drops.items()
    }
    return folder(place, "summary.json", bare(tasks, model))


def drift(place: Path, nmi: list[float], model: str = MODEL, **study: Any) -> Path:
    """A drift study, one number per layer of hidden states: one more than blocks; `study`: entries of it."""
    none = Leaving(token=None, kind="all", count=1, left=0, share=Estimate(value=0.0))
    entry = DriftOfModel(
        name=model, family="", variant=None, fingerprint="f1", blocks=len(nmi) - 1, clusters=2,
        curves=[
            Curve(
                clusters=2, ceiling=None, shape=None,
                layers=[Layer(layer=i, nmi=Mean(mean=value, std=0.01)) for i, value in enumerate(nmi)],
            )
        ],
        critical=None, compared=None, runs=[],
        tokens=Tokens(start=0, end=1, overall=none, types=[], classes=[], flow=[]),
    )  # fmt: skip
    asked = DriftStudy.make(models=[model], task="sums", clusters=2, **study)
    summary = DriftSummary(version="0.1.0", identity="0" * 64, study=asked, models=[entry])
    place.mkdir(parents=True, exist_ok=True)
    summary.write(place)
    return place


def selection(method: str, keep: float, counts: list[int], repeat: int = 0, samples: int = 10) -> dict[str, Any]:
    """A selection that takes so many of 100 weights of each block's two matrices together, and 7 of the head's."""
    matrices = [{"block": b, "matrix": m, "selected": n, "total": 50} for b, of in enumerate(counts) for m, n in
                (("attention.q", of // 2), ("mlp.up", of - of // 2))]  # fmt: skip
    head = {"block": None, "matrix": "head", "selected": 7, "total": 1000}
    return {"method": method, "keep": keep, "samples": samples, "repeat": repeat, "file": None, "label": method,
            "digest": "", "matrices": [*matrices, head]}  # fmt: skip


def isolation(
    place: Path, selections: list[dict[str, Any]], fingerprint: str | None = "f1", model: str = MODEL
) -> Path:
    """An isolation."""
    study = IsolationStudy.make(model=model, skill="sums", controls=["facts"]).model_dump(mode="json")
    made = {"identity": "", "study": study, "model": model, "fingerprint": fingerprint or "", "dtype": "float32",
            "family": "llama", "blocks": 6, "disjoint": True, "texts": [], "selections": selections, "overlaps": [],
            "coverage": []}  # fmt: skip
    told = {"kind": "isolation", "version": "0", "study": study, "isolation": made}
    return folder(place, "summary.json", told)


def truncation(place: Path, cells: list[dict[str, Any]], fingerprint: str = "f1", model: str = MODEL) -> Path:
    """A search."""
    summary = {
        "kind": "truncation", "version": "0", "study": {"model": model, "tasks": ["sums"]},
        "model": {"name": model, "fingerprint": fingerprint, "blocks": BLOCKS, "family": "llama", "dtype": "float32"},
        "tasks": [{"name": "sums", "kind": "generate", "validation_items": 5, "test_items": 5}],
        "merged": 0, "screen": None, "elimination": None, "unedited": [], "unedited_score": 0.5, "cells": cells,
        "best": None, "nothing": "No cell is better.", "spectra": [],
    }  # fmt: skip
    return folder(place, "summary.json", summary)


def cell(layer: int, drop: float | None, screen: float | None = None, **more: Any) -> dict[str, Any]:
    """A cell; a drop of None was not evaluated in full."""
    outcome = {
        "task": "sums", "items": 5, "accuracy": {"value": 0.5}, "drop": {"value": drop, **more.pop("ends", {})},
        "gold": None, "label": "1", "label_share": 0.2, "collapsed": more.pop("collapsed", False),
    }  # fmt: skip
    place = {"edit": f"{layer}.mlp.up top 0.5", "address": f"{layer}.mlp.up", "layer": layer, "matrix": "mlp.up",
             "keep": 0.5, "side": "top", "rank": 4, "of": 8, "saved": 0}  # fmt: skip
    return {**place, "screen": screen, "outcomes": [] if drop is None else [outcome], **more}
