"""The selections of a study: observed activations, kept in its folder; a selection by every method, and what two share.

The published grid (Christ et al. 2024: 8 shares, 5 repeats, 2 control sets) needs one pass over the data; every
selection follows from the stored vectors.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from lesion.activations.calibration import Calibration, Draw, calibration
from lesion.activations.observation import observe
from lesion.atomic import keep
from lesion.edits.selections.controls import left_out
from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.neurons import LAPE
from lesion.edits.selections.selection import Count, Selection
from lesion.edits.selections.topk import Magnitude, MathNeuro, Wanda
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.progress import Silent, Watcher
from lesion.report import wording
from lesion.report.values import Estimate
from lesion.studies.isolation.result import Coverage, Overlap
from lesion.studies.isolation.study import IsolationStudy
from lesion.tasks.catalogue import calibration_items, find
from lesion.tasks.task import Task

FILE = "statistics.safetensors"
FORMAT = "lesion statistics"
ByDraw = Mapping[tuple[int, int], Inputs]
"""Inputs by (samples, repeat)."""


def draw_texts(study: IsolationStudy, model: Model) -> dict[str, Calibration]:
    """The calibration texts of the skill and of every control, all drawn before the first is read."""
    style = study.styled(study.model.prompt_style)
    tasks = {data: find(data) for data in (study.skill, *study.controls)}
    _refuse_short(study, tasks)
    return {
        data: calibration(
            model, task, study.samples,
            repeats=study.repeats, seed=study.seed, replacement=study.replacement, style=style,
        )
        for data, task in tasks.items()
    }  # fmt: skip


def _refuse_short(study: IsolationStudy, tasks: Mapping[str, Task]) -> None:
    """Refuse at once every data set that has fewer texts than a draw takes."""
    most = max(study.samples)
    there = {} if study.replacement else {data: len(calibration_items(task)) for data, task in tasks.items()}
    short = {data: count for data, count in there.items() if 0 < count < most}
    if short:
        each = wording.listed([f"{data} has {count:,}" for data, count in short.items()])
        raise UsageError(
            f"{most:,} calibration texts are asked for of the skill and of each control, and {each}: give --samples"
            f" {min(short.values())}, data with more texts, or --replacement."
        )


def identity(
    study: IsolationStudy, model: Model, texts: Mapping[str, Calibration], selected: Model | None = None
) -> str:
    """SHA-256 of what the selections of a folder have in common: the model, the data sets, and the very texts; where
    the weights are selected on another model than the observed one, that too, and how many super weights are excluded.
    """
    digests = {data: [_digest(drawn, draw) for draw in drawn.draws] for data, drawn in sorted(texts.items())}
    parts = [model.fingerprint, study.skill, digests, study.samples, study.repeats]
    parts += [] if selected is None or selected is model else [selected.fingerprint]
    parts += [f"without {study.exclude_super_weights}"] if study.exclude_super_weights else []
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def observe_all(
    model: Model, texts: Mapping[str, Calibration], folder: Path, watcher: Watcher
) -> dict[str, dict[tuple[int, int], Inputs]]:
    """Inputs by data set and (samples, repeat); what the folder has is not observed again."""
    path = folder / FILE
    stored = read(path) if path.exists() else {}
    observed: dict[str, dict[tuple[int, int], Inputs]] = {}
    for number, (data, drawn) in enumerate(texts.items()):
        keys = [_key(model, drawn, draw) for draw in drawn.draws]
        if not stored.keys() >= set(keys):
            inputs = observe(model, drawn, watcher=watcher, progress=folder / f"observing-{number}.safetensors")
            others = {key: old for key, old in stored.items() if old.provenance[0].data != data}
            stored = others | dict(zip(keys, inputs, strict=True))
            write(path, stored)
        observed[data] = {(draw.samples, draw.repeat): stored[key] for draw, key in zip(drawn.draws, keys, strict=True)}
    return observed


def _key(model: Model, drawn: Calibration, draw: Draw) -> str:
    """SHA-256 of all that the sums of a draw depend on, the very token ids of its texts among it."""
    ids = [drawn.ids[place] for place in draw.places]
    how = [drawn.data, drawn.style, drawn.seed, drawn.replacement, draw.samples, draw.repeat]
    return hashlib.sha256(json.dumps([model.fingerprint, how, ids, _digest(drawn, draw)]).encode()).hexdigest()


def _digest(drawn: Calibration, draw: Draw) -> str:
    texts = [drawn.texts[place] for place in draw.places]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def write(path: Path, observed: Mapping[str, Inputs]) -> None:
    """Write inputs by their key into a file, whole or not at all."""
    entries = {key: {**inputs.header(), "seal": _seal(key, inputs)} for key, inputs in observed.items()}
    tensors = {f"{key}/{name}": v for key, inputs in observed.items() for name, v in inputs.tensors().items()}
    header = json.dumps({"format": FORMAT, "version": 1, "entries": entries})
    keep(path, save(tensors, metadata={"lesion": header}))


def read(path: Path) -> dict[str, Inputs]:
    """The inputs that a file holds, by their key."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["lesion"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header["format"] != FORMAT or header["version"] != 1:
            raise KeyError("format")
        return {key: _entry(key, entry, tensors) for key, entry in header["entries"].items()}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError, LesionError) as error:
        raise LesionError(
            f"{path} does not hold what was observed of a model, or is damaged ({error}); remove it, and it is made"
            f" again."
        ) from error


def _entry(key: str, entry: Mapping[str, object], tensors: Mapping[str, Tensor]) -> Inputs:
    vectors = {name.partition("/")[2]: vector for name, vector in tensors.items() if name.startswith(f"{key}/")}
    inputs = Inputs.from_parts(entry, vectors)
    if len(inputs.provenance) != 1 or entry["seal"] != _seal(key, inputs):
        raise ValueError("its numbers are not those that were written")
    return inputs


def _seal(key: str, inputs: Inputs) -> str:
    """A digest of everything that an entry says."""
    return hashlib.sha256(json.dumps([key, inputs.header(), inputs.digest], sort_keys=True).encode()).hexdigest()


Make = Callable[[Inputs, Sequence[Inputs], float], Selection]


def _magnitude(skill: Inputs, controls: Sequence[Inputs], keep: float) -> Selection:
    """The largest weights of the matrices that the other methods choose from."""
    seen = [address for address in skill.readers if (sums := skill.of(address)) is not None and sums.tokens]
    return Magnitude(keep, tuple(seen))


# Each is given the vectors that it needs and no others: what a selection holds is kept in its file.
METHODS: Mapping[str, Make] = {
    "mathneuro": lambda skill, controls, keep: MathNeuro(skill.only(), tuple(c.only() for c in controls), keep),
    "wanda": lambda skill, controls, keep: Wanda(skill.only(), keep),
    "wanda-rows": lambda skill, controls, keep: Wanda(skill.only(squares=True), keep, per="row"),
    "lape": lambda skill, controls, keep: LAPE(
        skill.only(active=True), tuple(c.only(active=True) for c in controls), keep
    ),
    "magnitude": _magnitude,
}


@dataclass(frozen=True)
class Made:
    """A selection, and the method (of `METHODS`), share and draw of texts that it comes from."""

    method: str
    keep: float
    samples: int
    repeat: int
    selection: Selection

    @property
    def group(self) -> tuple[str, float, int]:
        """What repeats of one selection share."""
        return self.method, self.keep, self.samples


def selections(method: str, keeps: Iterable[float], skill: ByDraw, controls: Sequence[ByDraw]) -> list[Made]:
    """One selection per share in (0, 1] and draw; of magnitude, which sees no data, one per share."""
    draws = list(skill) if method != "magnitude" else list(skill)[:1]
    return [
        Made(method, keep, *draw, METHODS[method](skill[draw], [control[draw] for control in controls], keep))
        for keep in keeps
        for draw in draws
    ]


def mean_overlap(iou: Sequence[float], repeats: int) -> Estimate:
    """The mean over pairs of repeats, with its 95 % interval by the jackknife over repeats, since pairs share repeats.

    Pairs stand in the order of `itertools.combinations`; of fewer than three repeats there is no interval.
    """
    mean = float(np.mean(iou))
    if repeats < 3:
        return Estimate(value=mean)
    pairs = list(itertools.combinations(range(repeats), 2))
    left = [np.mean([v for v, p in zip(iou, pairs, strict=True) if r not in p]) for r in range(repeats)]
    spread = math.sqrt((repeats - 1) / repeats * float(np.sum((np.array(left) - np.mean(left)) ** 2)))
    reach = 1.959963984540054 * spread
    return Estimate(value=mean, low=max(0.0, mean - reach), high=min(1.0, mean + reach))


def survey(
    made: Sequence[Made], model: Model, watcher: Watcher | None = None
) -> tuple[list[list[Count]], list[Overlap]]:
    """How much of every matrix each selection holds, and how much repeats of one agree; every mask is made once.

    Returns:
        Counts per selection, in the order of `made`; overlaps of those that have more than one repeat.
    """
    counts: list[list[Count]] = [[] for _ in made]
    groups: dict[tuple[str, float, int], list[int]] = {}
    for place, each in enumerate(made):
        groups.setdefault(each.group, []).append(place)
    # Per pair of repeats: weights in both and in either, measured and expected of random sets.
    sums = {group: np.zeros((4, math.comb(len(places), 2))) for group, places in groups.items()}
    watcher = watcher or Silent()
    watcher.begin(model.name, len(model.anatomy.scored), 0, f"matrices to select from {len(made):,} times")
    for address, matrix in model.anatomy.scored.items():
        weight = matrix.read()
        for group, places in groups.items():
            masks = [made[place].selection.mask(address, weight) for place in places]
            sizes = [int(mask.sum()) for mask in masks]
            for place, size in zip(places, sizes, strict=True):
                counts[place].append(Count.at(address, size, weight.numel()))
            for pair, (a, b) in enumerate(itertools.combinations(range(len(places)), 2)):
                common, expected = int((masks[a] & masks[b]).sum()), sizes[a] * sizes[b] / weight.numel()
                together = sizes[a] + sizes[b]
                sums[group][:, pair] += common, together - common, expected, together - expected
        watcher.answered(1)
    overlaps = []
    for (method, share, samples), places in groups.items():
        if len(places) < 2:
            continue
        both, either, by_chance, either_by_chance = sums[method, share, samples]
        iou = [float(b / e) if e else math.nan for b, e in zip(both, either, strict=True)]
        overlaps.append(
            Overlap(
                method=method,
                keep=share,
                samples=samples,
                repeats=len(places),
                iou=tuple(iou),
                mean=mean_overlap(iou, len(places)),
                chance=float(by_chance.sum() / max(1.0, either_by_chance.sum())),
            )
        )
    return counts, overlaps


def coverage(model: Model, observed: Inputs) -> list[Coverage]:
    """What was scored, what was not, and why, for every parameter and matrix."""
    entries = []
    for address, matrix in model.anatomy.scored.items():
        sums, reason = observed.of(address), ""
        if sums is None:
            reason = "its input was not seen: the module that holds it was not called as a linear map"
        elif sums.tokens == 0:
            reason = "no token of the skill came to it"
        weights = matrix.shape[0] * matrix.shape[1]
        entries.append(Coverage(name=address, scored=not reason, reason=reason, weights=weights))
    head = None if model.anatomy.head is None else model.anatomy.head.parameter
    for name, reason in model.anatomy.uncovered:
        if name != head:
            weights = model.network.get_parameter(name).numel()
            entries.append(Coverage(name=name, scored=False, reason=reason, weights=weights))
    return entries


def method_of(selection: Selection) -> tuple[str, float | None]:
    """The name of a selection's method and its share, listed weights that were taken away from it aside; `custom` and
    None for what set algebra made otherwise.
    """
    if left_out(selection) is not None:
        selection = selection.parts[0]
    name = "wanda-rows" if getattr(selection, "per", "") == "row" else selection.kind
    if name not in METHODS:
        return ("random", None) if name == "random" else ("custom", None)
    return name, float(getattr(selection, "keep", math.nan))
