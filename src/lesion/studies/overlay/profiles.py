"""Profiles: one number per block of a model, read from the finished folders of studies of any kind."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from lesion.core.database import FILE
from lesion.core.store import Store
from lesion.core.values import read_summary, summary_kind
from lesion.errors import UsageError
from lesion.files import stored_object, understood
from lesion.studies.drift.result import DriftSummary
from lesion.studies.truncation.result import TruncationSummary

Kind = Literal["layers", "drift", "isolation", "truncation"]
Unit = Literal["points", "nmi", "share", "nats"]
FILES: Mapping[str, Kind] = {
    "isolation.json": "isolation", "summary.json": "layers",
}  # fmt: skip
"""What marks a folder, by the name of the file that is read; drift and truncation by the `kind` of their summary."""
FLAT = 0.01
"""A density whose spread is at most this share of its mean has no shape: its method takes as much of every matrix."""
PLACES: Mapping[str, str] = {"block": "", "attention": "attention, ", "mlp": "MLP, "}


@dataclass(frozen=True)
class Profile:
    """One number per block.

    Attributes:
        model: the name under which its study knows the model.
        kind: which study it comes from.
        label: what it is, unique within the model.
        blocks: the blocks that have a number, ascending.
        values: one per block: points lost (0…1), NMI, share of weights selected (0…1) or nats.
        low, high: intervals or spreads, NaN where none is known.
        unit: what the values are measured in.
        critical: blocks that the study calls critical; of layer studies only.
        ranked: whether it takes part in the rank correlations.
        source: the folder's name.
    """

    model: str
    kind: Kind
    label: str
    blocks: tuple[int, ...]
    values: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    unit: Unit = "points"
    critical: tuple[int, ...] = ()
    ranked: bool = True
    source: str = ""

    def at(self, block: int) -> tuple[float, float, float] | None:
        """The value of a block with its limits; None where there is none."""
        if block not in self.blocks:
            return None
        index = self.blocks.index(block)
        return self.values[index], self.low[index], self.high[index]


@dataclass(frozen=True)
class Found:
    """What a folder holds: profiles, the fingerprints of their models (None: not told), and what was left out."""

    folder: Path
    profiles: tuple[Profile, ...]
    fingerprints: Mapping[str, str | None]
    notes: tuple[str, ...]


def read(folder: Path) -> Found:
    """The profiles of a finished folder.

    Raises:
        UsageError: the folder holds no study with a number per block.
        LesionError: a file of it is damaged.
    """
    folder = Path(folder)
    typed, again = summary_kind(folder), "run the study again on that folder"
    if typed == "drift" and (drift := read_summary(DriftSummary, folder, again)) is not None:
        return _drift(folder, drift)
    if typed == "truncation" and (truncation := read_summary(TruncationSummary, folder, again)) is not None:
        return _truncation(folder, truncation)
    name, kind = next(((name, kind) for name, kind in FILES.items() if (folder / name).is_file()), ("", None))
    if kind is None:
        raise UsageError(_nothing(folder))
    advice = f"`lesion report {folder}` writes it anew, or run the study again on that folder"
    with understood(folder / name, advice):
        told = stored_object(folder / name, advice)
        if kind == "layers" and not _of_layers(told):
            raise UsageError(_nothing(folder))
        if not isinstance(told, dict):
            raise TypeError("it is no object")
        reading = {"layers": _layers, "isolation": _isolation}
        found = reading[kind](folder, told)
        study = told.get("study")  # the text of it, in an isolation
        label = study.get("approximate") if isinstance(study, dict) else None
        return replace(found, notes=(*found.notes, f"{folder.name} is approximate. {label}")) if label else found


def _nothing(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} is no folder; name the folders of finished studies."
    if (folder / FILE).exists() and not (folder / "summary.json").exists():
        return f"{folder} has answers and no summary yet; `lesion report {folder}` writes one."
    return (
        f"{folder} holds no study with a number per block: neither the summary.json of `lesion ablate`, `lesion"
        " drift` or `lesion truncate` nor isolation.json."
    )


def _of_layers(told: Any) -> bool:
    models = told.get("models") if isinstance(told, dict) else None
    if not isinstance(models, list):
        return False
    return any(isinstance(task, dict) and "layers" in task for model in models for task in model.get("tasks") or ())


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _profile(
    model: str, kind: Kind, label: str, rows: Iterable[tuple[int, float, float, float]], **more: Any
) -> Profile | None:
    """A profile from (block, value, low, high) without the blocks whose value is not known; None: nothing is left."""
    known = sorted((row for row in rows if math.isfinite(row[1])), key=lambda row: row[0])
    if not known:
        return None
    blocks, values, low, high = zip(*known, strict=True)
    return Profile(model, kind, label, blocks, values, low, high, **more)


def _layers(folder: Path, told: Mapping[str, Any]) -> Found:
    """Of a layer study: what each task loses without each block (Nepal et al. 2025, Figures 1 and 2)."""
    found: list[Profile | None] = []
    notes = []
    for model in told["models"]:
        for task in model["tasks"]:
            stopped = any(entry.get("decided") is not None for entry in task["layers"])
            if stopped:
                notes.append(
                    f"{folder.name}: asking about {task['task']} of {model['model']} stopped block by block, when it"
                    " was decided whether the drop exceeds the effect; these drops stand on different items, so that"
                    " they are drawn and not ranked, and no block is shaded as critical: the full table says which"
                    " are."
                )
            groups: dict[tuple[str, float], list[Mapping[str, Any]]] = {}
            for entry in task["layers"]:
                groups.setdefault((entry.get("unit", "block"), float(entry.get("factor", 0.0))), []).append(entry)
            for (unit, factor), entries in groups.items():
                scaled = ("" if factor == 0 else f", ×{factor:g}") + (", stopped" if stopped else "")
                rows = (
                    (int(e["layer"]), _number(e["drop"]), _number(e.get("drop_low")), _number(e.get("drop_high")))
                    for e in entries
                )
                critical = tuple(sorted(int(entry["layer"]) for entry in entries if entry.get("critical")))
                label = f"drop · {PLACES.get(unit, f'{unit}, ')}{task['task']}{scaled}"
                found.append(
                    _profile(
                        model["model"], "layers", label, rows,
                        critical=critical, ranked=not stopped, source=folder.name,
                    )
                )  # fmt: skip
    return Found(folder, _present(found), _stored(folder, [model["model"] for model in told["models"]]), tuple(notes))


def _stored(folder: Path, names: Sequence[str]) -> dict[str, str | None]:
    """The fingerprints that the store of a folder knows, by the models' names."""
    known: dict[str, str | None] = dict.fromkeys(names)
    if (folder / FILE).exists():
        with Store.read(folder) as store:
            known |= {row["name"]: row["fingerprint"] for row in store.models().to_dict("records")}
    return known


def _drift(folder: Path, summary: DriftSummary) -> Found:
    """Of a drift study: NMI with the first layer's clusters after each block, and what each block takes of it.

    Layer l of the hidden states is the output of block l − 1, so block b stands between layers b and b + 1. The step
    out of the layer that all are compared with is no loss like the others: that layer agrees with itself at 1, so that
    the step is large by construction. It is left out of the losses, and with them of the ranks.
    """
    about = f" · {summary.study.task.name}"
    profiles: list[Profile | None] = []
    for model in summary.models:
        nmi = dict(model.curve.along("nmi"))
        spread = {layer: _number(value.std) for layer, value in nmi.items()}
        after = [(n - 1, v.mean, v.mean - spread[n], v.mean + spread[n]) for n, v in nmi.items() if n > 0]
        lost = [
            (n, value.mean - nmi[n + 1].mean, math.nan, math.nan)
            for n, value in nmi.items()
            if n > summary.reference and n + 1 in nmi
        ]
        more: dict[str, Any] = {"unit": "nmi", "source": folder.name}
        profiles.append(_profile(model.name, "drift", f"drift, NMI lost in the block{about}", lost, **more))
        # The curve adds up what the blocks take, so that its ranks are mostly those of the depth.
        profiles.append(
            _profile(model.name, "drift", f"drift, NMI after the block{about}", after, ranked=False, **more)
        )
    notes = (f"{folder.name} is approximate. {summary.approximate}",) if summary.approximate else ()
    return Found(folder, _present(profiles), {model.name: model.fingerprint for model in summary.models}, notes)


def _isolation(folder: Path, told: Mapping[str, Any]) -> Found:
    """Of an isolation: the share of each block's weights that a method selects; repeats are averaged.

    Of every method the smallest share and the most texts speak: larger shares hold the smaller ones.
    """
    isolation = told["isolation"]
    model, skill = str(isolation["model"]), isolation.get("skill")
    about = f" · {skill}" if isinstance(skill, str) and skill else ""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for entry in isolation["selections"]:
        if entry.get("matrices") and entry.get("method") != "random":
            groups.setdefault(str(entry["method"]), []).append(entry)
    found: list[Profile | None] = []
    notes: list[str] = []
    for method, entries in groups.items():
        keep = min(_number(entry.get("keep")) for entry in entries)
        of_keep = [entry for entry in entries if _number(entry.get("keep")) == keep] or entries
        most = max(int(entry.get("samples") or 0) for entry in of_keep)
        used = [entry for entry in of_keep if int(entry.get("samples") or 0) == most]
        densities = [_density(entry["matrices"]) for entry in used]
        blocks = sorted(set.intersection(*(set(one) for one in densities)))
        means = {block: sum(one[block] for one in densities) / len(densities) for block in blocks}
        label = f"density · {method}, {100 * keep:g} %{about}" if math.isfinite(keep) else f"density · {method}{about}"
        if means and max(means.values()) - min(means.values()) <= FLAT * (sum(means.values()) / len(means)):
            notes.append(f"{folder.name}: {method} takes as much of every block, so that its density has no shape.")
            continue
        ends = {b: (min(one[b] for one in densities), max(one[b] for one in densities)) for b in blocks}
        rows = ((b, means[b], *(ends[b] if len(densities) > 1 else (math.nan, math.nan))) for b in blocks)
        found.append(_profile(model, "isolation", label, rows, unit="share", source=folder.name))
        if len(used) < len(entries):
            notes.append(
                f"{folder.name}: of {len(entries)} selections by {method} those of the smallest share"
                f"{f' from {most:,} texts' if most else ''} are drawn."
            )
    return Found(folder, _present(found), {model: isolation.get("fingerprint")}, tuple(notes))


def _density(matrices: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Selected of all weights of every block; the output head is of no block."""
    counts: dict[int, tuple[int, int]] = {}
    for matrix in matrices:
        if matrix.get("block") is not None:
            selected, total = counts.get(int(matrix["block"]), (0, 0))
            counts[int(matrix["block"])] = (selected + int(matrix["selected"]), total + int(matrix["total"]))
    return {block: selected / total for block, (selected, total) in counts.items() if total}


def _truncation(folder: Path, summary: TruncationSummary) -> Found:
    """Of a truncation search: per block the best gain in accuracy of the cells evaluated in full, and the best screen.

    Cells that were given up, and those under which the model gives nearly all items one answer, do not count.
    """
    name = summary.model.name
    best: dict[str, dict[int, tuple[float, float, float]]] = {}
    screen: dict[int, float] = {}
    for cell in summary.cells:
        if cell.screen is not None:
            screen[cell.layer] = max(screen.get(cell.layer, -math.inf), cell.screen)
        if cell.eliminated is not None:
            continue
        for outcome in cell.outcomes:
            drop, low, high = (_number(end) for end in (outcome.drop.value, outcome.drop.low, outcome.drop.high))
            if outcome.collapsed or not math.isfinite(drop):
                continue
            of_task = best.setdefault(outcome.task, {})
            if cell.layer not in of_task or 0.0 - drop > of_task[cell.layer][0]:
                of_task[cell.layer] = (0.0 - drop, 0.0 - high, 0.0 - low)
    profiles = [
        _profile(
            name, "truncation", f"best truncation · {task}", ((b, *at) for b, at in of_task.items()), source=folder.name
        )
        for task, of_task in best.items()
    ]
    label = "best truncation by log-probability · " + ", ".join(task.name for task in summary.tasks)
    rows = ((block, value, math.nan, math.nan) for block, value in screen.items())
    profiles.append(_profile(name, "truncation", label, rows, unit="nats", source=folder.name))
    notes = (f"{folder.name} is approximate. {summary.approximate}",) if summary.approximate else ()
    return Found(folder, _present(profiles), {name: summary.model.fingerprint}, notes)


def _present(found: Iterable[Profile | None]) -> tuple[Profile, ...]:
    return tuple(profile for profile in found if profile is not None)
