"""The numbers of the invariance as tables for the page: critical sets, rank correlations, overlaps, between tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lesion.report import wording
from lesion.report.heat import agreement_class
from lesion.report.trials import number
from lesion.studies.ablation.invariance.wording import smallest

Entry = Mapping[str, Any]
BADGES = {"holds": "yes", "does not hold": "no"}
"""Style class of a verdict's word; others have none."""


def rho(value: float | None) -> str:
    """A rank correlation with two decimals: `.80`, `−.31`, `1`."""
    if value is None:
        return wording.DASH
    text = f"{abs(value):.2f}"
    text = "1" if text == "1.00" else text.removeprefix("0")
    return f"{wording.MINUS}{text}" if value < 0 and text != ".00" else text


def limits(low: float | None, high: float | None) -> str:
    """The interval of a rank correlation: `[.62, 1]`; noise or ties may leave no order to measure."""
    return "not measurable" if low is None or high is None else f"[{rho(low)},{wording.SPACE}{rho(high)}]"


def layers(numbers: Sequence[int]) -> str:
    """`2, 5–7`, or a dash."""
    return wording.layer_runs(numbers) or wording.DASH


def strip(family: Entry, task: Entry, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """One row per finished model: what share of its accuracy each layer takes; filled where critical."""
    curves = {curve["model"]: curve for curve in task["curves"]}
    rows = []
    for member in family["members"]:
        curve = curves.get(member["model"])
        if member.get("step") is not None or curve is None:
            continue
        critical = set(task["critical"].get(member["model"]) or ())
        cells = {}
        numbers = (numbers_of(curve[key]) for key in ("relative", "drops", "low", "high"))
        for layer, lost, drop, low, high in zip(layers_of(task, curve), *numbers, strict=True):
            told = f"{names[member['model']]} · {task['task']} · block{wording.SPACE}{layer}\n"
            told += f"{wording.percent(lost, 0)} of the accuracy lost; drop {wording.points(drop)} points"
            told += f" {wording.interval(low, high)}" + (", critical" if layer in critical else "")
            cells[layer] = {
                "class": agreement_class(lost) if layer in critical else "k0",
                "critical": layer in critical,
                "text": wording.points(lost, 0),
                "tip": told,
            }
        rows.append({"label": names[member["model"]], "model": member["model"], "cells": cells})
    return rows


def layers_of(task: Entry, curve: Entry) -> list[int]:
    """The layers that the numbers of a curve run over."""
    return [int(layer) for layer in curve.get("layers") or task.get("layers") or range(len(curve["drops"]))]


def numbers_of(values: Sequence[Any]) -> list[float | None]:
    """The numbers, None where one is not known or not finite."""
    return [number(value) for value in values]


def matrix(family: Entry, task: Entry, names: Mapping[str, str]) -> dict[str, Any] | None:
    """The rank correlations between the finished models, a lower triangle; None without pairs."""
    pairs = {frozenset((pair["a"], pair["b"])): pair for pair in task["pairs"] if pair.get("kind") != "time"}
    if not pairs:
        return None
    used = [m["model"] for m in family["members"] if any(m["model"] in key for key in pairs)]
    rows = [
        (names[a], [_pair(pairs.get(frozenset((a, b))), names) for b in used[:index]]) for index, a in enumerate(used)
    ]
    return {"task": task["task"], "columns": [names[model] for model in used[:-1]], "rows": rows}


def _pair(pair: Entry | None, names: Mapping[str, str]) -> dict[str, Any]:
    if pair is None:
        return {"class": "none", "rho": wording.DASH, "limits": "", "p": "", "sure": False, "tip": "not compared"}
    found = {key: number(pair.get(key)) for key in ("rho", "low", "high", "p", "p_corrected", "ceiling", "corrected")}
    told = f"{names[pair['a']]} and {names[pair['b']]}\nρ {rho(found['rho'])}"
    if found["ceiling"] is not None and found["rho"] is not None and found["rho"] >= found["ceiling"]:
        told += f"; as high as two measurements of one profile reach (about {rho(found['ceiling'])})"
    elif found["ceiling"] is not None:
        told += f"; as noisy as they are, two equal profiles would reach about {rho(found['ceiling'])}"
    told += "\nof the true profiles "
    if found["low"] is not None:
        told += f"{rho(found['corrected'])} {limits(found['low'], found['high'])}, the noise that lowers ρ taken out"
    else:
        told += "not measurable: too much noise, or too many blocks cost the same"
    told += f"\np {_p(found['p'], number(pair.get('p_least')))}, corrected {wording.p_value(found['p_corrected'])}"
    top = pair.get("top") or {}
    if top:
        told += f"\nlargest drop in the same block: {'yes' if top.get('same') else 'no'}; of the two largest shared:"
        told += f" {top.get('two')}"
    p = found["p_corrected"] if found["p_corrected"] is not None else found["p"]
    return {
        "class": agreement_class(found["rho"]),
        "rho": rho(found["rho"]),
        "limits": limits(found["low"], found["high"]),
        "p": wording.p_value(p),
        "sure": p is not None and p <= 0.05,
        "tip": told,
    }


def overlap(one: Entry, names: Mapping[str, str]) -> dict[str, Any]:
    """The critical sets of two models as cells of a table."""
    return {
        "a": names[one["a"]],
        "b": names[one["b"]],
        **{key: layers(one.get(key) or ()) for key in ("first", "second", "shared", "lost", "gained")},
        "count": len(one.get("shared") or ()),
        "expected": number(one.get("expected")),
        "p": number(one.get("p")),
        "p_told": _p(number(one.get("p")), number(one.get("p_least"))),
    }


def _p(p: float | None, least: float | None) -> str:
    """`.018`, `.018, the smallest possible`."""
    return wording.p_value(p) + (", the smallest possible" if smallest(p, least) else "")


def joint(task: Entry, names: Mapping[str, str]) -> str:
    """The base's critical layers against those of all children together, as a sentence."""
    joint = task.get("joint")
    if not joint or not joint.get("children"):
        return ""
    children = wording.listed([names.get(model, str(model)) for model in joint["children"]])
    p = _p(number(joint.get("p")), number(joint.get("p_least")))
    text = (
        f"{task['task']}: the critical blocks of {names.get(joint['base'], joint['base'])} are among those of"
        f" {children} {wording.counted(int(joint.get('shared') or 0), 'time')} in all, by chance"
        f" {float(joint.get('expected') or 0):.1f} (p{wording.SPACE}{p})"
    )
    kept = joint.get("kept_by_all") or ()
    return text + (f"; critical in all of them: {layers(kept)}." if kept else "; none is critical in all of them.")


def between(one: Entry, names: Mapping[str, str]) -> dict[str, Any]:
    """Two tasks of one model as cells of a table."""
    keys = ("rho", "low", "high", "p", "relative_a", "relative_b", "difference", "difference_low", "difference_high")
    return {
        "model": names.get(one["model"], str(one["model"])),
        "a": one["a"],
        "b": one["b"],
        "layers": layers(one.get("layers") or ()),
        "shared": layers(one.get("critical_shared") or ()),
        "word": str(one.get("word") or ""),
        "badge": BADGES.get(str(one.get("word")), ""),
        **{key: number(one.get(key)) for key in keys},
    }
