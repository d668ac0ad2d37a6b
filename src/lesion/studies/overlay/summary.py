"""Laying the methods over each other: profiles of one model from several studies, and how their ranks agree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from lesion.errors import LesionError, UsageError
from lesion.files import reason
from lesion.statistics.paired import ALPHA, holm
from lesion.studies.overlay.profiles import Kind, Profile, read

EXACT = 8
"""Up to so many blocks all orders are gone through; beyond, `DRAWS` of them are drawn."""
DRAWS = 10_000
ORDER: tuple[Kind, ...] = ("layers", "drift", "isolation", "truncation")
FEWEST = 4
"""Of fewer blocks that two profiles share, no rank correlation is told."""


@dataclass(frozen=True)
class Correlation:
    """How the ranks of two profiles of a model agree over the blocks that both have.

    Attributes:
        a, b: their labels.
        blocks: how many blocks both have.
        rho: Spearman's, −1…1; NaN where one is constant or there are fewer than four blocks.
        p: two-sided permutation p: the share of orders of one profile whose |ρ| is at least as large. None within one
            kind of study: whether two tasks of one ablation agree is not what is asked here.
        p_corrected: by Holm over all pairs of all models that have a p; None until `corrected` has seen them all.
        beyond_depth: the partial rank correlation given the block's number: what is left when both merely rise or fall
            with depth.
    """

    a: str
    b: str
    blocks: int
    rho: float
    p: float | None
    p_corrected: float | None
    beyond_depth: float


@dataclass(frozen=True)
class Of:
    """One model: its profiles in the order of the folders, and their correlations."""

    model: str
    fingerprint: str | None
    profiles: tuple[Profile, ...]
    correlations: tuple[Correlation, ...]

    @property
    def blocks(self) -> tuple[int, ...]:
        """All blocks of all profiles, ascending."""
        return tuple(sorted({block for profile in self.profiles for block in profile.blocks}))


@dataclass(frozen=True)
class Overlay:
    """Profiles laid over each other, model by model.

    Attributes:
        models: those with at least two profiles.
        folders: where they come from, as given.
        notes: what was left out, and why.
    """

    models: tuple[Of, ...]
    folders: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles of all models."""
        return tuple(profile for model in self.models for profile in model.profiles)

    @property
    def correlations(self) -> tuple[Correlation, ...]:
        """The correlations of all models."""
        return tuple(correlation for model in self.models for correlation in model.correlations)


def profiles(folders: Iterable[str | Path], seed: int = 0) -> Overlay:
    """Read finished folders and lay what they tell of one model over each other.

    Args:
        folders: of `lesion ablate`, `drift`, `isolate` or `truncate`, in any order; each at most once.
        seed: of the orders that are drawn where there are too many to go through.

    Raises:
        UsageError: a folder has no numbers per block or is named twice; two folders call different weights by one
            name; or no model has two profiles.
        LesionError: a file is damaged.
    """
    places = [Path(folder) for folder in folders]
    for index, place in enumerate(places):
        if place.resolve() in {other.resolve() for other in places[:index]}:
            raise UsageError(f"{place} is named twice; name every folder once.")
    if not places:
        raise UsageError("Name the folders of finished studies; two of one model at least say something together.")
    notes: list[str] = []
    seen: dict[str, tuple[str, Path]] = {}
    of_model: dict[str, list[Profile]] = {}
    for place in places:
        found = read(place)
        notes += found.notes
        for model, fingerprint in found.fingerprints.items():
            if fingerprint is not None:
                _refuse_other_weights(model, fingerprint, place, *seen.setdefault(model, (fingerprint, place)))
        for profile in found.profiles:
            of_model.setdefault(profile.model, []).append(profile)
    models = []
    for model, its in of_model.items():
        if len(its) < 2:
            notes.append(f"{model} has only one profile ({its[0].label}), so that there is nothing to lay over it.")
            continue
        named = _labelled(sorted(its, key=lambda profile: ORDER.index(profile.kind)))
        fingerprint = seen[model][0] if model in seen else None
        models.append(Of(model, fingerprint, named, correlations(named, seed)))
    if not models:
        told = "; ".join(f"{model}: {its[0].label}" for model, its in of_model.items()) or "none at all"
        raise UsageError(
            f"Only one profile per model was found ({told}): there is nothing to lay over it. Name folders of other"
            " studies of the same model, under the same name."
        )
    return Overlay(corrected(models), tuple(map(str, places)), tuple(dict.fromkeys(notes)))


def corrected(models: Sequence[Of]) -> tuple[Of, ...]:
    """The models with `p_corrected` by Holm (1979) over every pair that has a p, of all of them together.

    Verdicts are read off one page, so that a false alarm in any model is one of the page.
    """
    told = iter(holm(one.p for of in models for one in of.correlations if one.p is not None))
    return tuple(
        replace(
            of,
            correlations=tuple(
                replace(one, p_corrected=None if one.p is None else next(told)) for one in of.correlations
            ),
        )
        for of in models
    )


def _refuse_other_weights(model: str, fingerprint: str, place: Path, known: str, where: Path) -> None:
    if fingerprint != known:
        raise UsageError(
            f"{model} is not the same model in {where} (fingerprint {known}) and in {place} (fingerprint"
            f" {fingerprint}): other weights, or another dtype. Lay over each other only what was measured on one"
            " model, or run one of the studies again with the other's --dtype."
        )


def _labelled(its: Sequence[Profile]) -> tuple[Profile, ...]:
    """The profiles under labels that differ: equal ones get their folder's name, and a number where that is equal."""
    counts = {label: sum(p.label == label for p in its) for label in {p.label for p in its}}
    named: list[Profile] = []
    for profile in its:
        label = base = f"{profile.label} ({profile.source})" if counts[profile.label] > 1 else profile.label
        number = 2
        while any(label == other.label for other in named):
            label, number = f"{base}, {number}", number + 1
        named.append(replace(profile, label=label))
    return tuple(named)


def correlations(of_model: Sequence[Profile], seed: int = 0) -> tuple[Correlation, ...]:
    """Spearman's rank correlations between all profiles of a model that are `ranked`, pair by pair.

    The permutation p (see `permutation_p`) takes blocks for exchangeable. Neighbouring blocks are alike, so a small p
    is too small where both profiles are smooth; `beyond_depth` shows what a common trend makes of it. `p_corrected` is
    None: it needs the pairs of all models (`corrected`).
    """
    told = []
    for a, b in itertools.combinations([profile for profile in of_model if profile.ranked], 2):
        both = [block for block in a.blocks if block in b.blocks]
        x, y = (np.array([p.values[p.blocks.index(block)] for block in both], dtype=np.float64) for p in (a, b))
        rho, p, beyond = math.nan, None, math.nan
        if len(both) >= FEWEST:
            rho = spearman(x, y)
            beyond = _partial(rho, spearman(x, np.array(both, float)), spearman(y, np.array(both, float)))
        if a.kind != b.kind and math.isfinite(rho):
            p = permutation_p(x, y, seed)
        told.append(Correlation(a.label, b.label, len(both), rho, p, None, beyond))
    return tuple(told)


def spearman(x: Float[np.ndarray, " blocks"], y: Float[np.ndarray, " blocks"]) -> float:
    """Spearman's ρ, ties with their mean rank; NaN when either is constant."""
    first, second = _standard(x), _standard(y)
    return math.nan if first is None or second is None else float(np.clip(first @ second, -1.0, 1.0))


def _standard(values: Float[np.ndarray, " blocks"]) -> Float[np.ndarray, " blocks"] | None:
    """The ranks with mean 0 and length 1, so that ρ is a scalar product."""
    ranks = rankdata(values)
    centred = ranks - ranks.mean()
    length = float(np.sqrt(centred @ centred))
    return None if length == 0.0 else centred / length


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
    if first is None or second is None:
        return math.nan
    orders = _orders(len(first), seed)
    hits = int((np.abs(second[orders] @ first) >= abs(float(first @ second)) - 1e-9).sum())
    return hits / len(orders) if len(first) <= EXACT else (1 + hits) / (1 + len(orders))


@lru_cache(maxsize=16)
def _orders(blocks: int, seed: int) -> np.ndarray:
    if blocks <= EXACT:
        return np.array(list(itertools.permutations(range(blocks))), dtype=np.intp)
    return np.random.default_rng(seed).permuted(np.tile(np.arange(blocks), (DRAWS, 1)), axis=1)


def needed(blocks: int, pairs: int, seed: int = 0) -> float | None:
    """The least |ρ| without ties that stays significant when it is the strongest of so many pairs; None: no ρ is."""
    places = np.arange(blocks, dtype=np.float64)
    standard = _standard(places)
    if standard is None or not pairs:
        return None
    null = np.sort(np.abs(standard[_orders(blocks, seed)] @ standard))[::-1]
    exact = blocks <= EXACT
    for rho in np.unique(np.round(null, 9)):
        hits = int((null >= rho - 1e-9).sum())
        if (hits / len(null) if exact else (1 + hits) / (1 + len(null))) * pairs <= ALPHA:
            return float(rho)
    return None


def summarise(overlay: Overlay) -> dict[str, Any]:
    """What `summary.json` holds; numbers that are not known are None."""
    return {
        "kind": "overlay",
        "models": [
            {
                "model": of.model,
                "fingerprint": of.fingerprint,
                "profiles": [_profile(profile) for profile in of.profiles],
                "correlations": [
                    {name: _finite(value) for name, value in vars(correlation).items()}
                    for correlation in of.correlations
                ],
                "needed": _needed(of, sum(one.p is not None for one in overlay.correlations)),
            }
            for of in overlay.models
        ],
        "study": {"folders": list(overlay.folders), "version": version("lesion")},
        "notes": list(overlay.notes),
    }


def recalled(summary: Mapping[str, Any]) -> Overlay:
    """The overlay of a `summary.json`: the inverse of `summarise`; p is corrected over all its models anew.

    Raises:
        LesionError: it is not the summary of an overlay.
    """
    try:
        models = tuple(
            Of(
                str(entry["model"]),
                entry.get("fingerprint"),
                tuple(_recalled(str(entry["model"]), one) for one in entry["profiles"]),
                tuple(
                    Correlation(**{**one, "rho": _known(one["rho"]), "beyond_depth": _known(one["beyond_depth"])})
                    for one in entry["correlations"]
                ),
            )
            for entry in summary["models"]
        )
        return Overlay(corrected(models), tuple(summary["study"]["folders"]), tuple(summary["notes"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LesionError(
            f"The summary is not one of an overlay ({reason(error)}); run `lesion overlay` again."
        ) from error


def _recalled(model: str, entry: Mapping[str, Any]) -> Profile:
    numbers = {name: tuple(map(_known, entry[name])) for name in ("values", "low", "high")}
    whole = {name: tuple(map(int, entry[name])) for name in ("blocks", "critical")}
    return Profile(**{**entry, **numbers, **whole, "model": model})


def _known(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _needed(of: Of, pairs: int) -> dict[str, Any] | None:
    told = [correlation for correlation in of.correlations if correlation.p is not None]
    if not told:
        return None
    blocks = max(correlation.blocks for correlation in told)
    return {"blocks": blocks, "pairs": pairs, "rho": needed(blocks, pairs)}


def _profile(profile: Profile) -> Mapping[str, Any]:
    listed = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(profile).items()
        if name != "model"
    }
    return listed | {name: [_finite(value) for value in listed[name]] for name in ("values", "low", "high")}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
