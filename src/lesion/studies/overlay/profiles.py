"""Profiles: one number per block of a model, read from the finished folders of studies of any kind."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lesion.core.database import FILE
from lesion.core.store import Store
from lesion.core.values import read_summary, summary_kind
from lesion.errors import UsageError
from lesion.files import stored_object, understood
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.drift.result import DriftSummary
from lesion.studies.isolation.result import IsolationSummary, MatrixCount, Selected
from lesion.studies.overlay.result import Kind, Profile

FILES: Mapping[str, Kind] = {
    "truncation.json": "truncation", "summary.json": "layers",
}  # fmt: skip
"""What marks a folder, by the name of the file that is read; typed summaries are known by their `kind`."""
FLAT = 0.01
"""A density whose spread is at most this share of its mean has no shape: its method takes as much of every matrix."""
PLACES: Mapping[str, str] = {"block": "", "attention": "attention, ", "mlp": "MLP, "}


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
    kind_there = summary_kind(folder)
    if kind_there == "drift":
        drift = read_summary(DriftSummary, folder, "run the study again on that folder")
        assert drift is not None
        return _drift(folder, drift)
    if kind_there == "isolation":
        isolation = read_summary(IsolationSummary, folder, "run the study again on that folder")
        assert isolation is not None
        return _isolation(folder, isolation)
    name, kind = next(((name, kind) for name, kind in FILES.items() if (folder / name).is_file()), ("", None))
    if kind is None:
        raise UsageError(_nothing(folder))
    advice = f"`lesion report {folder}` writes it anew, or run the study again on that folder"
    with understood(folder / name, advice):
        told = stored_object(folder / name, advice)
        if kind == "layers":
            if told is None or told.get("kind") != "layers":
                raise UsageError(_nothing(folder))
            return _layers(folder, AblationSummary.model_validate(told))
        if not isinstance(told, dict):
            raise TypeError("it is no object")
        reading = {"truncation": _truncation}
        found = reading[kind](folder, told)
        study = told.get("study")
        label = study.get("approximate") if isinstance(study, dict) else None
        return replace(found, notes=(*found.notes, f"{folder.name} is approximate. {label}")) if label else found


def _nothing(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} is no folder; name the folders of finished studies."
    if (folder / FILE).exists() and not (folder / "summary.json").exists():
        return f"{folder} has answers and no summary yet; `lesion report {folder}` writes one."
    return (
        f"{folder} holds no study with a number per block: neither the summary.json of `lesion ablate`, `lesion"
        " drift` or `lesion isolate` nor truncation.json."
    )


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
    return Profile(model=model, kind=kind, label=label, blocks=blocks, values=values, low=low, high=high, **more)


def _layers(folder: Path, summary: AblationSummary) -> Found:
    """Of a layer study: what each task loses without each block (Nepal et al. 2025, Figures 1 and 2)."""
    profiles: list[Profile | None] = []
    notes = []
    for model in summary.models:
        for result in model.tasks:
            stopped = result.stopping is not None
            if stopped:
                notes.append(
                    f"{folder.name}: asking about {result.task} of {model.model} stopped block by block, when it"
                    " was decided whether the drop exceeds the effect; these drops stand on different items, so that"
                    " they are drawn and not ranked, and no block is shaded as critical: the full table says which"
                    " are."
                )
            for unit, factor in dict.fromkeys((cell.unit, cell.factor) for cell in result.cells):
                scaled = ("" if factor == 0 else f", ×{factor:g}") + (", stopped" if stopped else "")
                cells = result.of(unit, factor)
                profiles.append(
                    _profile(
                        model.model, "layers", f"drop · {PLACES[unit]}{result.task}{scaled}",
                        (
                            (cell.layer, _number(cell.drop.value), _number(cell.drop.low), _number(cell.drop.high))
                            for cell in cells
                        ),
                        critical=tuple(cell.layer for cell in cells if cell.critical),
                        ranked=not stopped, source=folder.name,
                    )
                )  # fmt: skip
    if summary.approximate:
        notes.append(f"{folder.name} is approximate. {summary.approximate}")
    return Found(folder, _present(profiles), _stored(folder, [model.model for model in summary.models]), tuple(notes))


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


def _isolation(folder: Path, summary: IsolationSummary) -> Found:
    """Of an isolation: the share of each block's weights that a method selects; repeats are averaged.

    Of every method the smallest share and the most texts are taken: larger shares hold the smaller ones.

    Raises:
        UsageError: edits were evaluated there, and nothing was isolated.
    """
    isolation = summary.isolation
    if isolation is None:
        raise UsageError(_nothing(folder))
    groups: dict[str, list[Selected]] = {}
    for selection in isolation.selections:
        if selection.matrices:
            groups.setdefault(selection.method, []).append(selection)
    profiles: list[Profile | None] = []
    notes: list[str] = []
    for method, selections in groups.items():
        keep = min(selection.keep for selection in selections)
        of_keep = [selection for selection in selections if selection.keep == keep]
        most = max(selection.samples for selection in of_keep)
        used = [selection for selection in of_keep if selection.samples == most]
        densities = [_density(selection.matrices) for selection in used]
        blocks = sorted(set.intersection(*(set(one) for one in densities)))
        means = {block: sum(one[block] for one in densities) / len(densities) for block in blocks}
        label = f"density · {method}, {100 * keep:g} % · {isolation.study.skill}"
        if means and max(means.values()) - min(means.values()) <= FLAT * (sum(means.values()) / len(means)):
            notes.append(f"{folder.name}: {method} takes as much of every block, so that its density has no shape.")
            continue
        ends = {b: (min(one[b] for one in densities), max(one[b] for one in densities)) for b in blocks}
        rows = ((b, means[b], *(ends[b] if len(densities) > 1 else (math.nan, math.nan))) for b in blocks)
        profiles.append(_profile(isolation.model, "isolation", label, rows, unit="share", source=folder.name))
        if len(used) < len(selections):
            notes.append(
                f"{folder.name}: of {len(selections)} selections by {method} those of the smallest share"
                f" from {most:,} texts are drawn."
            )
    return Found(folder, _present(profiles), {isolation.model: isolation.fingerprint}, tuple(notes))


def _density(matrices: Sequence[MatrixCount]) -> dict[int, float]:
    """Selected of all weights of every block; the output head is of no block."""
    counts: dict[int, tuple[int, int]] = {}
    for matrix in matrices:
        if matrix.block is not None:
            selected, total = counts.get(matrix.block, (0, 0))
            counts[matrix.block] = (selected + matrix.selected, total + matrix.total)
    return {block: selected / total for block, (selected, total) in counts.items() if total}


def _truncation(folder: Path, told: Mapping[str, Any]) -> Found:
    """Of a truncation search: per block the best change in accuracy among its cells asked in full, and the best screen.

    Cells that were given up, and those under which the model says one thing to nearly all items, do not count.
    """
    model = told["model"]
    name = str(model["name"])
    cells = told["cells"]
    best: dict[str, dict[int, tuple[float, float, float]]] = {}
    screen: dict[int, float] = {}
    for cell in cells:
        block = int(cell["layer"])
        if cell.get("screen") is not None:
            screen[block] = max(screen.get(block, -math.inf), float(cell["screen"]))
        if cell.get("eliminated") is not None:
            continue
        for task in cell.get("tasks") or ():
            drop, low, high = (_number(task.get(key)) for key in ("drop", "drop_low", "drop_high"))
            if task.get("collapsed") or not math.isfinite(drop):
                continue
            of_task = best.setdefault(str(task["task"]), {})
            if block not in of_task or 0.0 - drop > of_task[block][0]:
                of_task[block] = (0.0 - drop, 0.0 - high, 0.0 - low)
    found = [
        _profile(
            name, "truncation", f"best truncation · {task}", ((b, *at) for b, at in of_task.items()), source=folder.name
        )
        for task, of_task in best.items()
    ]
    label = "best truncation by log-probability · " + ", ".join(task["name"] for task in told["search"]["tasks"])
    rows = ((block, value, math.nan, math.nan) for block, value in screen.items())
    found.append(_profile(name, "truncation", label, rows, unit="nats", source=folder.name))
    return Found(folder, _present(found), {name: model.get("fingerprint")}, ())


def _present(found: Iterable[Profile | None]) -> tuple[Profile, ...]:
    return tuple(profile for profile in found if profile is not None)
