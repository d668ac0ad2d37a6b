"""Profiles: one number per block of a model, read from the finished folders of studies of any kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from lesion.core.database import FILE
from lesion.core.store import Store
from lesion.core.values import Summary, read_summary, summary_kind
from lesion.errors import UsageError
from lesion.report.values import Estimate, Mean
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.drift.result import DriftSummary
from lesion.studies.isolation.result import IsolationSummary
from lesion.studies.overlay.result import Profile
from lesion.studies.truncation.result import TruncationSummary

FLAT = 0.01
"""A density whose spread is at most this share of its mean has no shape: its method takes as much of every matrix."""
PLACES: Mapping[str, str] = {"block": "", "attention": "attention, ", "mlp": "MLP, "}
Parts = Iterator[Profile | str]
"""Profiles, and notes as text."""


@dataclass(frozen=True)
class Held:
    """What a folder holds: profiles, the fingerprints of their models (None: not known), and what was left out."""

    profiles: tuple[Profile, ...]
    fingerprints: Mapping[str, str | None]
    notes: tuple[str, ...]


def read(folder: Path) -> Held:
    """The profiles of a finished folder."""
    folder = Path(folder)
    readers: Mapping[str, tuple[type[Summary], Callable[[str, Any], Parts]]] = {
        "layers": (AblationSummary, _layers),
        "drift": (DriftSummary, _drift),
        "isolation": (IsolationSummary, _isolation),
        "truncation": (TruncationSummary, _truncation),
    }
    kind = summary_kind(folder)
    if kind is None or kind not in readers:
        raise UsageError(_nothing(folder))
    of_kind, reader = readers[kind]
    summary = read_summary(of_kind, folder, f"`lesion report {folder}`, or run the study again on that folder")
    assert summary is not None
    if isinstance(summary, IsolationSummary) and summary.isolation is None:
        raise UsageError(_nothing(folder))  # edits were evaluated there, and nothing was isolated
    parts = list(reader(folder.name, summary))
    notes = [part for part in parts if isinstance(part, str)]
    if kind != "isolation" and (label := getattr(summary, "approximate", None)):
        notes.append(f"{folder.name} is approximate. {label}")
    profiles = tuple(part for part in parts if isinstance(part, Profile))
    return Held(profiles, _fingerprints(folder, summary), tuple(notes))


def _nothing(folder: Path) -> str:
    if (folder / FILE).exists() and not (folder / "summary.json").exists():
        return f"{folder} has answers and no summary yet; `lesion report {folder}` writes one."
    return (
        f"{folder} holds no study with a number per block: no summary.json of `lesion ablate`, `lesion drift`, `lesion"
        " isolate` or `lesion truncate`."
    )


def _fingerprints(folder: Path, summary: Summary) -> Mapping[str, str | None]:
    """The fingerprints of the models by their names; those of a layer study are in its store."""
    if isinstance(summary, DriftSummary):
        return {model.name: model.fingerprint for model in summary.models}
    if isinstance(summary, TruncationSummary):
        return {summary.model.name: summary.model.fingerprint}
    if isinstance(summary, IsolationSummary) and summary.isolation is not None:
        return {summary.isolation.model: summary.isolation.fingerprint}
    assert isinstance(summary, AblationSummary)
    known: dict[str, str | None] = {model.model: None for model in summary.models}
    if (folder / FILE).exists():
        with Store.read(folder) as store:
            known |= {row["name"]: row["fingerprint"] for row in store.models().to_dict("records")}
    return known


def _profile(rows: Iterable[tuple[int, Estimate]], **about: Any) -> Iterator[Profile]:
    """A profile without the blocks whose value is not known; none where nothing is left."""
    known = sorted((row for row in rows if row[1].value is not None), key=lambda row: row[0])
    if known:
        values, low, high = zip(*((of.value, of.low, of.high) for _, of in known), strict=True)
        yield Profile(blocks=tuple(block for block, _ in known), values=values, low=low, high=high, **about)


def _layers(name: str, summary: AblationSummary) -> Parts:
    """Of a layer study: what each task loses without each block (Nepal et al. 2025, Figures 1 and 2)."""
    for model in summary.models:
        for result in model.tasks:
            stopped = result.stopping is not None
            if stopped:
                yield (
                    f"{name}: asking about {result.task} of {model.model} stopped block by block, when it"
                    " was decided whether the drop exceeds the effect; these drops stand on different items, so that"
                    " they are drawn and not ranked, and no block is shaded as critical: the full table says which"
                    " are."
                )
            for unit, factor in dict.fromkeys((cell.unit, cell.factor) for cell in result.cells):
                kind = f", → {factor}" if isinstance(factor, str) else f", ×{factor:g}" if factor else ""
                scaled = kind + (", stopped" if stopped else "")
                cells = result.of(unit, factor)
                yield from _profile(
                    ((cell.layer, cell.drop) for cell in cells),
                    model=model.model,
                    kind="layers",
                    label=f"drop · {PLACES[unit]}{result.task}{scaled}",
                    critical=tuple(cell.layer for cell in cells if cell.critical),
                    ranked=not stopped,
                    source=name,
                )


def _drift(name: str, summary: DriftSummary) -> Parts:
    """Of a drift study: NMI with the first layer's clusters after each block, and what each block takes of it.

    Layer l of the hidden states is the output of block l − 1, so block b stands between layers b and b + 1. The step
    out of the layer that all are compared with is no loss like the others: that layer agrees with itself at 1, so that
    the step is large by construction. It is left out of the losses, and with them of the ranks.
    """
    for model in summary.models:
        nmi = dict(model.curve.along("nmi"))
        lost = [
            (layer, Estimate(value=value.mean - nmi[layer + 1].mean))
            for layer, value in nmi.items()
            if layer > summary.reference and layer + 1 in nmi
        ]
        after = [(layer - 1, _spread(value)) for layer, value in nmi.items() if layer > 0]
        # The curve adds up what the blocks take, so that its ranks are mostly those of the depth.
        for label, rows, ranked in (("NMI lost in the block", lost, True), ("NMI after the block", after, False)):
            label = f"drift, {label} · {summary.study.task.name}"
            yield from _profile(
                rows, model=model.name, kind="drift", label=label, unit="nmi", ranked=ranked, source=name
            )


def _spread(value: Mean) -> Estimate:
    """A mean with one standard deviation to either side."""
    if value.std is None:
        return Estimate(value=value.mean)
    return Estimate(value=value.mean, low=value.mean - value.std, high=value.mean + value.std)


def _isolation(name: str, summary: IsolationSummary) -> Parts:
    """Of an isolation: the share of each block's weights that a method selects; repeats are averaged.

    Of every method the smallest share and the most texts are taken: larger shares hold the smaller ones.
    """
    isolation = summary.isolation
    assert isolation is not None
    every = [selection for selection in isolation.selections if selection.matrices]
    for method in dict.fromkeys(selection.method for selection in every):
        own = [selection for selection in every if selection.method == method]
        keep, fewest = min((selection.keep, -selection.samples) for selection in own)
        used = [selection for selection in own if (selection.keep, selection.samples) == (keep, -fewest)]
        blocks = sorted(set.intersection(*(set(selection.density) for selection in used)))
        shares = {block: [selection.density[block] for selection in used] for block in blocks}
        means = {block: sum(each) / len(each) for block, each in shares.items()}
        if means and max(means.values()) - min(means.values()) <= FLAT * fmean(means.values()):
            yield f"{name}: {method} takes as much of every block, so that its density has no shape."
            continue
        several = len(used) > 1
        rows = (
            (block, Estimate(value=means[block], low=min(each), high=max(each)) if several else Estimate(value=each[0]))
            for block, each in shares.items()
        )
        label = f"density · {method}, {100 * keep:g} % · {isolation.study.skill}"
        yield from _profile(rows, model=isolation.model, kind="isolation", label=label, unit="share", source=name)
        if len(used) < len(own):
            yield (
                f"{name}: of {len(own)} selections by {method} those of the smallest share from {-fewest:,} texts are"
                " drawn."
            )


def _truncation(name: str, summary: TruncationSummary) -> Parts:
    """Of a truncation search: per block the best gain in accuracy of the cells evaluated in full, and the best screen.

    Cells that were given up, and those under which the model gives nearly all items one answer, do not count.
    """
    gains: dict[str, dict[int, Estimate]] = {}
    screen: dict[int, float] = {}
    for cell in summary.cells:
        if cell.screen is not None:
            screen[cell.layer] = max(screen.get(cell.layer, cell.screen), cell.screen)
        for outcome in cell.outcomes if cell.eliminated is None else ():
            gain = outcome.drop.negative
            if outcome.collapsed or gain.value is None:
                continue
            best = gains.setdefault(outcome.task, {})
            if cell.layer not in best or gain.value > (best[cell.layer].value or 0.0):
                best[cell.layer] = gain
    about = {"model": summary.model.name, "kind": "truncation", "source": name}
    for task, best in gains.items():
        yield from _profile(best.items(), label=f"best truncation · {task}", **about)
    label = "best truncation by log-probability · " + ", ".join(task.name for task in summary.tasks)
    rows = ((block, Estimate(value=value)) for block, value in screen.items())
    yield from _profile(rows, label=label, unit="nats", **about)
