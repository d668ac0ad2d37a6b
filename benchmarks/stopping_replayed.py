"""A stored full table replayed for `stopping.py`: what stopping would have asked of it, and called.

Two questions are kept apart: whether a drop exceeds the effect, which stopping decides and the full table answers too;
and which cells are critical, which only the full table says, by another rule (`lesion.statistics.critical`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lesion.core.store import Store
from lesion.edits.edit import BASELINE, Scale
from lesion.edits.text import parse
from lesion.statistics.critical import critical_cells, pairs
from stopping_simulated import MODES, Differences, Rule, stopped, told_by_table

NAMES = {1: "exceeds", -1: "not", 0: "open"}


def replay(folder: Path, rule: Rule, orders: int, seed: int) -> Iterable[dict[str, Any]]:
    """What stopping would have asked of a stored full table, in its own order of items and in random ones.

    Yields:
        One row for every model, task, unit and factor: what the table is, and for both modes what would have been asked
        and called. Edits that miss an answer are left out.
    """
    with Store.read(folder) as store:
        answers, listed = store.answers(), store.items()
    for (model, task), rows in answers.groupby(["model_name", "task"], sort=False):
        order = list(listed[listed["task"] == task]["item"])
        right = rows.pivot(index="edit", columns="item", values="correct").reindex(columns=order).dropna()
        if str(BASELINE) not in right.index:
            continue
        baseline = right.loc[str(BASELINE)].to_numpy(dtype=np.int64)
        families: dict[tuple[str, float], list[str]] = {}
        for text in right.index:
            if isinstance(edit := parse(text), Scale):
                families.setdefault((edit.unit, edit.factor), []).append(text)
        for (unit, factor), edits in families.items():
            edits.sort(key=lambda text: int(text.partition("×")[0].partition(".")[0]))
            edited = right.loc[edits].to_numpy(dtype=np.int64)
            differences = baseline - edited
            cells = [pairs(baseline.astype(bool), one.astype(bool)) for one in edited]
            yield {
                "model": model,
                "task": task,
                "unit": unit,
                "factor": factor,
                "effect": rule.effect,
                "level": rule.level,
                "items": len(order),
                "accuracy": float(baseline.mean()),
                "drops": dict(zip(edits, differences.mean(axis=1).tolist(), strict=True)),
                "full": 1 + len(edits),
                "exceeds": [
                    edit for edit, call in zip(edits, told_by_table(differences, rule), strict=True) if call > 0
                ],
                "critical": [edit for edit, call in zip(edits, critical_cells(cells), strict=True) if call],
                **{
                    mode: _replayed(differences, edits, replace(rule, table=table), orders, seed)
                    for mode, table in MODES.items()
                },
            }


def _replayed(differences: Differences, edits: Sequence[str], rule: Rule, orders: int, seed: int) -> dict[str, Any]:
    """Evaluations and calls in the study's own order, and their means over random orders."""
    generator = np.random.default_rng(seed)
    truth = told_by_table(differences, rule)
    own = stopped(differences, rule)
    runs = [stopped(differences[:, generator.permutation(differences.shape[1])], rule) for _ in range(orders)]
    denied = [(run.called != 0) & (run.called != truth) for run in (own, *runs)]
    return {
        "evaluations": own.answers / differences.shape[1],
        "called": {edit: NAMES[call] for edit, call in zip(edits, own.called.tolist(), strict=True)},
        "denied_by_the_table": int(denied[0].sum()),
        "orders": orders,
        "mean_evaluations": float(np.mean([run.answers for run in runs])) / differences.shape[1],
        "mean_open": float(np.mean([(run.called == 0).mean() for run in runs])),
        "mean_denied": float(np.mean(denied[1:])),
        "orders_with_any_denied": float(np.mean([one.any() for one in denied[1:]])),
    }


def told(row: dict[str, Any]) -> None:
    """Print one row of `replay`."""
    print(
        f"{row['model']} · {row['task']} · {row['unit']}×{row['factor']:g}: {row['full'] - 1} cells,"
        f" {row['items']} items, baseline {row['accuracy']:.3f}; full table {row['full']} evaluations;"
        f" drops {', '.join(f'{drop:.3f}' for drop in row['drops'].values())}\n"
        f"  full table: {len(row['exceeds'])} exceed the effect ({', '.join(row['exceeds']) or 'none'}),"
        f" {len(row['critical'])} are critical ({', '.join(row['critical']) or 'none'})"
    )
    for mode in MODES:
        one = row[mode]
        others = [f"{edit} {call}" for edit, call in one["called"].items() if call != "not"]
        calls = [(edit, call) for edit, call in one["called"].items() if call != "open"]
        agree = sum((call == "exceeds") == (edit in row["exceeds"]) for edit, call in calls)
        print(
            f"  {mode:<7} {one['evaluations']:.2f} evaluations; {', '.join(others) or 'none exceeds'}, all others not;"
            f" {agree} of {len(one['called'])} decided as the table's drops are. Mean of {one['orders']} orders:"
            f" {one['mean_evaluations']:.2f}, open {one['mean_open']:.3f} of cells, denied {one['mean_denied']:.4f}"
            f" (in {one['orders_with_any_denied']:.2f} of orders)"
        )
