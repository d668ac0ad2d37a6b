"""Profiles: one number per block of a model, read from the finished folders of studies of any kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lesion.core.database import FILE
from lesion.core.store import Store
from lesion.core.values import Summary, read_summary, summary_kind
from lesion.errors import UsageError
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.drift.result import DriftSummary
from lesion.studies.isolation.result import IsolationSummary, MatrixCount, Selected
from lesion.studies.overlay.result import Kind, Profile
from lesion.studies.truncation.result import TruncationSummary

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
    reading: Mapping[str, tuple[type[Summary], Callable[[Path, Any], Found]]] = {
        "layers": (AblationSummary, _layers),
        "drift": (DriftSummary, _drift),
        "isolation": (IsolationSummary, _isolation),
        "truncation": (TruncationSummary, _truncation),
    }
    kind = summary_kind(folder)
    if kind is None or kind not in reading:
        raise UsageError(_nothing(folder))
    of_kind, profiles = reading[kind]
    summary = read_summary(of_kind, folder, f"`lesion report {folder}`, or run the study again on that folder")
    assert summary is not None
    return profiles(folder, summary)


def _nothing(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} is no folder; name the folders of finished studies."
    if (folder / FILE).exists() and not (folder / "summary.json").exists():
        return f"{folder} has answers and no summary yet; `lesion report {folder}` writes one."
    return (
        f"{folder} holds no study with a number per block: no summary.json of `lesion ablate`, `lesion drift`, `lesion"
        " isolate` or `lesion truncate`."
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value


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
