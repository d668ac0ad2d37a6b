"""The importance of blocks over the checkpoints of a training, as rows for the page and its figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lesion.report import wording
from lesion.report.trials import number
from lesion.studies.ablation.invariance.tables import layers_of, numbers_of

Entry = Mapping[str, Any]


def axes(family: Entry, task: Entry, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every training with checkpoints: rows by step, the end last; a cell per layer with its drop and marks of onset.

    Each row has `label`, `baseline`, `able`, `rho` with the end, and `cells`: layer → drop, critical, onset.
    """
    curves = {curve["model"]: curve for curve in task["curves"]}
    onset = {(entry.get("model"), int(entry["layer"])) for entry in task.get("onset") or () if entry.get("model")}
    pairs = {pair["a"]: pair for pair in task["pairs"] if pair.get("kind") == "time"}
    ends = {pair["b"] for pair in pairs.values()}
    timed = [m for m in family["members"] if m.get("step") is not None and m["model"] in curves]
    trainings: dict[str, list[Entry]] = {}
    for member in timed:
        trainings.setdefault(_source(str(member["model"])), []).append(member)
    found = []
    for source, checkpoints in trainings.items():
        checkpoints.sort(key=lambda member: int(member["step"]))
        end = [
            member
            for member in family["members"]
            if member.get("step") is None
            and member["model"] in curves
            and (member["model"] == source or (member["model"] in ends and _source(str(member["model"])) == source))
        ]
        shown = [*checkpoints, *end[:1]]
        every = sorted({layer for member in shown for layer in layers_of(task, curves[member["model"]])})
        rows = [
            _moment(member, curves[member["model"]], task, onset, pairs.get(member["model"]), names) for member in shown
        ]
        drops = [cell["drop"] for row in rows for cell in row["cells"].values() if cell["drop"] is not None]
        found.append({"source": source, "layers": every, "rows": rows, "full": max([0.2, *map(abs, drops)])})
    return found


def _source(model: str) -> str:
    """The training that a checkpoint is of: its name without the revision."""
    head, at, tail = model.rpartition("@")
    return head if at and "/" not in tail else model


def _moment(
    member: Entry, curve: Entry, task: Entry, onset: set[tuple[Any, int]], pair: Entry | None, names: Mapping[str, str]
) -> dict[str, Any]:
    model, ended = member["model"], member.get("step") is None
    label = f"end ({names[model]})" if ended else names[model]
    critical = set(task["critical"].get(model) or ())
    able = bool(curve.get("able", True))
    cells = {}
    for layer, drop, low, high in zip(
        layers_of(task, curve), *(numbers_of(curve[key]) for key in ("drops", "low", "high")), strict=True
    ):
        begins = (model, layer) in onset
        told = f"{label} · {task['task']} · block{wording.SPACE}{layer}\ndrop {wording.points(drop)} points"
        told += f" {wording.interval(low, high)}" + (", critical" if layer in critical else "")
        told += "\ncritical from here on" if begins else ""
        told += "" if able else "\nthe unedited model cannot do the task here"
        cells[layer] = {"drop": drop, "critical": layer in critical, "onset": begins, "tip": told}
    return {
        "label": label,
        "step": member.get("step"),
        "baseline": number(curve.get("baseline")),
        "able": able,
        "rho": number(pair.get("rho")) if pair else None,
        "cells": cells,
        "ended": ended,
    }
