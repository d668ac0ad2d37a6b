"""From finished folders to an overlay: a number per block from every study, and how the ranks of these agree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from lesion.core.database import FILE
from lesion.core.store import Store
from lesion.core.values import Summary, read_summary, studies_in, summary_kind
from lesion.errors import UsageError
from lesion.plain import short
from lesion.report.names import Names, names_in
from lesion.report.values import Estimate, Mean
from lesion.statistics.paired import ALPHA, holm
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.drift.result import DriftSummary
from lesion.studies.isolation.result import IsolationSummary
from lesion.studies.overlay.result import KINDS, Correlation, ModelProfiles, Needed, OverlaySummary, Profile
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
    """A profile of the blocks whose value is known; none where nothing is left."""
    known = sorted((row for row in rows if row[1].value is not None), key=lambda row: row[0])
    if known:
        values, low, high = zip(*((of.value, of.low, of.high) for _, of in known), strict=True)
        yield Profile(blocks=tuple(block for block, _ in known), values=values, low=low, high=high, **about)


def _layers(name: str, summary: AblationSummary) -> Parts:
    """What each task loses without each block (Nepal et al. 2025, Figures 1 and 2)."""
    for model in summary.models:
        for result in model.tasks:
            stopped = result.stopping is not None
            if stopped:
                yield (
                    f"{name}: asking about {result.task} of {model.model} stopped block by block, when it"
                    " was decided whether the drop exceeds the effect; these drops stand on different items, so that"
                    " they are drawn and not ranked, and no block is shaded as critical."
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
                    tasks=(result.task,),
                    critical=tuple(cell.layer for cell in cells if cell.critical),
                    ranked=not stopped,
                    source=name,
                )


def _drift(name: str, summary: DriftSummary) -> Parts:
    """NMI with the first layer's clusters after each block, and what each block takes of it.

    Layer l of the hidden states is the output of block l − 1, so block b stands between layers b and b + 1. The step
    out of the layer that all are compared with is no loss like the others: that layer agrees with itself at 1, so that
    the step is large by construction. It is left out of the losses, and with them of the ranks.
    """
    for model in summary.models:
        nmi = {layer.layer: layer.nmi for layer in model.curve.layers if layer.nmi is not None}
        lost = [
            (layer, Estimate(value=value.mean - nmi[layer + 1].mean))
            for layer, value in nmi.items()
            if layer > summary.study.reference and layer + 1 in nmi
        ]
        after = [(layer - 1, _spread(value)) for layer, value in nmi.items() if layer > 0]
        # The curve adds up what the blocks take, so that its ranks are mostly those of the depth.
        for label, rows, ranked in (("NMI lost in the block", lost, True), ("NMI after the block", after, False)):
            about = {"model": model.name, "kind": "drift", "tasks": (summary.study.task.name,), "source": name}
            label = f"drift, {label} · {summary.study.task.name}"
            yield from _profile(rows, label=label, unit="nmi", ranked=ranked, **about)


def _spread(value: Mean) -> Estimate:
    """A mean with one standard deviation to either side."""
    if value.std is None:
        return Estimate(value=value.mean)
    return Estimate(value=value.mean, low=value.mean - value.std, high=value.mean + value.std)


def _isolation(name: str, summary: IsolationSummary) -> Parts:
    """The share of each block's weights that a method selects; repeats are averaged.

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
        ends = {block: {"low": min(each), "high": max(each)} for block, each in shares.items() if len(each) > 1}
        rows = ((block, Estimate(value=mean, **ends.get(block, {}))) for block, mean in means.items())
        about = {"model": isolation.model, "kind": "isolation", "tasks": (isolation.study.skill,), "source": name}
        label = f"density · {method}, {100 * keep:g} % · {isolation.study.skill}"
        yield from _profile(rows, label=label, unit="share", **about)
        if len(used) < len(own):
            selections = f"{len(own)} selections by {method}"
            yield f"{name}: of {selections} those of the smallest share from {-fewest:,} texts are drawn."


def _truncation(name: str, summary: TruncationSummary) -> Parts:
    """Per block the best gain in accuracy of the cells evaluated in full, and the best screen.

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
    tasks = tuple(task.name for task in summary.tasks)
    about = {"model": summary.model.name, "kind": "truncation", "tasks": tasks, "source": name}
    for task, best in gains.items():
        yield from _profile(best.items(), label=f"best truncation · {task}", **about)
    label = f"best truncation by log-probability · {', '.join(tasks)}"
    rows = ((block, Estimate(value=value)) for block, value in screen.items())
    yield from _profile(rows, label=label, unit="nats", **about)


EXACT = 8
"""Up to so many blocks all orders are gone through; beyond, `DRAWS` of them are drawn."""
DRAWS = 10_000
FEWEST = 4
"""Over fewer blocks that two profiles share, no rank correlation is computed."""


def summarise(folders: Iterable[str | Path], seed: int = 0, pairs: Sequence[str] = ()) -> OverlaySummary:
    """Read finished folders and bring together the profiles of each model.

    Args:
        pairs: which pairs of profiles are tested, each as parts of two labels with `~` between; none: all pairs of
            different studies.
    """
    places = studies_in(folders)
    notes: list[str] = []
    seen: dict[str, tuple[str, Path]] = {}
    of_model: dict[str, list[Profile]] = {}
    for place in places:
        held = read(place)
        notes += held.notes
        for model, fingerprint in held.fingerprints.items():
            if fingerprint is None:
                continue
            known, where = seen.setdefault(model, (fingerprint, place))
            if fingerprint != known:
                raise UsageError(
                    f"{model} is not the same model in {where} (fingerprint {known}) and in {place} (fingerprint"
                    f" {fingerprint}): other weights, or another dtype. Compare only what was measured on one model, or"
                    " run one of the studies again with the other's --dtype."
                )
        for profile in held.profiles:
            of_model.setdefault(profile.model, []).append(profile)
    models = []
    named_pairs: set[str] = set()
    for model, profiles in of_model.items():
        if len(profiles) < 2:
            notes.append(f"{model} has only one profile ({profiles[0].label}) and is left out.")
            continue
        named = _labelled(sorted(profiles, key=lambda profile: list(KINDS).index(profile.kind)))
        fingerprint, _ = seen.get(model, (None, place))
        chosen = {text: pair for text in pairs if (pair := _chosen(text, named)) is not None}
        named_pairs.update(chosen)
        tested = set(chosen.values()) if pairs else None
        ranks = correlations(named, seed, tested)
        models.append(ModelProfiles(model=model, fingerprint=fingerprint, profiles=named, correlations=ranks))
    if not models:
        alone = "; ".join(f"{model}: {profiles[0].label}" for model, profiles in of_model.items()) or "none at all"
        raise UsageError(
            f"Only one profile per model was found ({alone}): there is nothing to compare it with. Name folders of"
            " other studies of the same model, under the same name."
        )
    for text in pairs:
        if text not in named_pairs:
            labels = dict.fromkeys(profile.label for model in models for profile in model.ranked)
            raise UsageError(
                f"The pair '{short(text)}' names no two profiles of different studies of one model; write parts of two"
                f" of these with ~ between: {'; '.join(labels)}."
            )
    return OverlaySummary(
        folders=tuple(map(str, places)),
        seed=seed,
        pairs=tuple(pairs),
        models=corrected(models),
        notes=tuple(dict.fromkeys(notes)),
    )


def corrected(models: Sequence[ModelProfiles]) -> tuple[ModelProfiles, ...]:
    """The models with `p_corrected` by Holm (1979) over every pair that has a p, of all of them together.

    Verdicts are read off one page, so that a false alarm in any model is one of the page. With them comes `needed`.
    """
    tested = [pair.p for model in models for pair in model.correlations if pair.p is not None]
    adjusted = iter(holm(tested))
    every = []
    for model in models:
        pairs = list(model.correlations)
        least, of_model = None, [place for place, pair in enumerate(pairs) if pair.p is not None]
        for place in of_model:
            pairs[place] = pairs[place].model_copy(update={"p_corrected": next(adjusted)})
        if of_model:
            blocks = max(pairs[place].blocks for place in of_model)
            least = Needed(blocks=blocks, pairs=len(tested), rho=needed(blocks, len(tested)))
        every.append(model.model_copy(update={"correlations": tuple(pairs), "needed": least}))
    return tuple(every)


def _labelled(profiles: Sequence[Profile]) -> tuple[Profile, ...]:
    """The profiles under labels that differ: equal ones get their folder's name, and a number where that is equal."""
    every = [profile.label for profile in profiles]
    named: list[Profile] = []
    for profile in profiles:
        label = base = f"{profile.label} ({profile.source})" if every.count(profile.label) > 1 else profile.label
        number = 2
        while any(label == other.label for other in named):
            label, number = f"{base}, {number}", number + 1
        named.append(profile.model_copy(update={"label": label}))
    return tuple(named)


def _chosen(text: str, profiles: Sequence[Profile]) -> frozenset[str] | None:
    """The labels of the two profiles that a pair names; None where the model has no such two."""
    sides = [side.strip() for side in text.split("~")]
    if len(sides) != 2 or not all(sides):
        raise UsageError(
            f"'{short(text)}' is no pair; write parts of two labels with ~ between, as 'drop · gsm8k ~ density ·"
            " mathneuro'."
        )
    ends: list[Profile] = []
    ranked = [profile for profile in profiles if profile.ranked]
    in_short = Names(tuple(names_in(tuple(profiles))))  # as pages write them
    for side in sides:
        fitting = [profile for profile in ranked if profile.label == side] or [
            each for each in ranked if side.lower() in f"{each.label}\n{in_short(each.label)}".lower()
        ]
        if len(fitting) > 1:
            raise UsageError(
                f"'{short(side)}' fits several profiles: {'; '.join(each.label for each in fitting)}. Write more of the"
                " label of the one that is meant."
            )
        ends += fitting
    if len(ends) < 2 or ends[0].kind == ends[1].kind:
        return None
    return frozenset(profile.label for profile in ends)


def correlations(
    profiles: Sequence[Profile], seed: int = 0, tested: Set[frozenset[str]] | None = None
) -> tuple[Correlation, ...]:
    """Spearman's rank correlations between all profiles of a model that are `ranked`, pair by pair.

    Of `tested` pairs of labels there is a p; None: of all pairs of different studies.
    `permutation_p` takes blocks for exchangeable. Neighbouring blocks are alike, so a small p is too small where both
    profiles are smooth; `beyond_depth` shows what a common trend makes of it. `corrected` adds `p_corrected`.
    """
    pairs = []
    for a, b in itertools.combinations([profile for profile in profiles if profile.ranked], 2):
        both = [block for block in a.blocks if block in b.blocks]
        x, y = (np.array([p.values[p.blocks.index(block)] for block in both], dtype=np.float64) for p in (a, b))
        rho, p, beyond = math.nan, None, math.nan
        if len(both) >= FEWEST:
            rho = spearman(x, y)
            beyond = _partial(rho, spearman(x, np.array(both, float)), spearman(y, np.array(both, float)))
        is_tested = tested is None or frozenset((a.label, b.label)) in tested
        if is_tested and a.kind != b.kind and math.isfinite(rho):
            p = permutation_p(x, y, seed)
        pairs.append(Correlation(a=a.label, b=b.label, blocks=len(both), rho=rho, p=p, beyond_depth=beyond))
    return tuple(pairs)


def spearman(x: Float[np.ndarray, " blocks"], y: Float[np.ndarray, " blocks"]) -> float:
    """Spearman's ρ, ties with their mean rank; NaN when either is constant."""
    return float(np.clip(_standard(x) @ _standard(y), -1.0, 1.0))


def _standard(values: Float[np.ndarray, " blocks"]) -> Float[np.ndarray, " blocks"]:
    """The ranks with mean 0 and length 1, so that ρ is a scalar product; NaN where all are equal."""
    ranks = rankdata(values)
    centred = ranks - ranks.mean()
    return np.asarray(centred / (float(np.sqrt(centred @ centred)) or math.nan))


def _partial(ab: float, ad: float, bd: float) -> float:
    """The correlation of a and b given d (Yule 1907)."""
    rest = (1.0 - ad * ad) * (1.0 - bd * bd)
    return (ab - ad * bd) / math.sqrt(rest) if math.isfinite(rest) and rest > 1e-12 else math.nan


def permutation_p(x: Float[np.ndarray, " blocks"], y: Float[np.ndarray, " blocks"], seed: int = 0) -> float:
    """Two-sided p of Spearman's ρ: how many orders of the blocks give as large an |ρ|.

    Exact for at most `EXACT` blocks, over all orders; beyond, (1 + hits) / (1 + draws) over `DRAWS` seeded orders.
    NaN when either is constant: nothing is ranked then.
    """
    first, second = _standard(x), _standard(y)
    if math.isnan(first @ second):
        return math.nan
    return _p(np.abs(second[_orders(len(first), seed)] @ first), abs(float(first @ second)))


def _p(null: Float[np.ndarray, " orders"], rho: float) -> float:
    return float((null >= rho - 1e-9).mean())


@lru_cache(maxsize=16)
def _orders(blocks: int, seed: int) -> np.ndarray:
    """All orders, or the given one and `DRAWS` drawn ones, so that no p is 0."""
    if blocks <= EXACT:
        return np.array(list(itertools.permutations(range(blocks))), dtype=np.intp)
    given = np.arange(blocks)
    return np.vstack([given, np.random.default_rng(seed).permuted(np.tile(given, (DRAWS, 1)), axis=1)])


def needed(blocks: int, pairs: int) -> float | None:
    """The least |ρ| without ties that stays significant when it is the strongest of so many pairs; None: no ρ is."""
    if blocks < 2 or not pairs:
        return None
    standard = _standard(np.arange(blocks, dtype=np.float64))
    null = np.abs(standard[_orders(blocks, 0)] @ standard)
    return next((float(rho) for rho in np.unique(np.round(null, 9)) if _p(null, rho) * pairs <= ALPHA), None)
