"""Isolating: observe a model on a skill and its controls, select, count, compare, and keep selections as edits.

The published grid (Christ et al. 2024: 8 shares, 5 repeats, 2 control sets) needs one pass over the data; every
selection follows from the stored vectors.

Yu et al. (2024, arXiv 2411.07191) find a super weight in one forward pass: in a block where both the input
and the output of the down projection have an extreme maximum, it is the weight that joins these two channels. Here the
weights of all down projections are ranked by the largest product with their input, |W_ij| · max_t |X_tj|, and the first
so many are taken. The paper's weight comes first where it makes the spike, and several of one block are found as well.
There is no threshold, so that rather too many are taken than too few; `spike` marks those of the paper's rule.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from lesion.activations.calibration import Calibration, Draw, calibration
from lesion.activations.observation import Peaks, observe, observe_peaks
from lesion.atomic import keep
from lesion.edits.edit import ScaleParameters
from lesion.edits.files.artefact import save_edit
from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.listed import Listed
from lesion.edits.selections.neurons import LAPE
from lesion.edits.selections.selection import Count, Selection, check_extent, fixed_together
from lesion.edits.selections.topk import Magnitude, MathNeuro, Wanda
from lesion.edits.weights import refuse_shared
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.progress import SILENT, Watcher
from lesion.report import wording
from lesion.report.values import Estimate
from lesion.studies.isolation.plan import CandidateEdit
from lesion.studies.isolation.result import (
    CalibrationTexts,
    Coverage,
    Excluded,
    Isolation,
    MatrixCount,
    Overlap,
    Selected,
    SuperWeight,
)
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
    most = max(study.samples)
    there = {data: len(calibration_items(task)) for data, task in tasks.items()}
    short = {data: count for data, count in there.items() if 0 < count < most}
    if short and not study.replacement:
        each = wording.listed([f"{data} has {count:,}" for data, count in short.items()])
        raise UsageError(
            f"{most:,} calibration texts are asked for of the skill and of each control, and {each}: give --samples"
            f" {min(short.values())}, data with more texts, or --replacement."
        )


def identity(study: IsolationStudy, model: Model, texts: Mapping[str, Calibration], observed: Model) -> str:
    """SHA-256 of what the selections of a folder have in common: the observed model, the data sets, and the very texts;
    where the weights are selected on another model, that too, and how many super weights are excluded.
    """
    digests = {data: [_digest(drawn, draw) for draw in drawn.draws] for data, drawn in sorted(texts.items())}
    parts = [observed.fingerprint, study.skill, digests, study.samples, study.repeats]
    if model is not observed:
        parts.append(model.fingerprint)
    if study.exclude_super_weights:
        parts.append(f"without {study.exclude_super_weights}")
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
    """The mean over pairs of repeats, as `itertools.combinations` orders them, with its 95 % interval by the jackknife
    over repeats; of fewer than three there is none.
    """
    mean = float(np.mean(iou))
    if repeats < 3:
        return Estimate(value=mean)
    pairs = list(itertools.combinations(range(repeats), 2))
    left = [np.mean([v for v, p in zip(iou, pairs, strict=True) if r not in p]) for r in range(repeats)]
    spread = math.sqrt((repeats - 1) / repeats * float(np.sum((np.array(left) - np.mean(left)) ** 2)))
    reach = 1.959963984540054 * spread
    return Estimate(value=mean, low=max(0.0, mean - reach), high=min(1.0, mean + reach))


def survey(made: Sequence[Made], model: Model, watcher: Watcher = SILENT) -> tuple[list[list[Count]], list[Overlap]]:
    """How much of every matrix each selection holds, and how much repeats of one agree; every mask is made once."""
    counts: list[list[Count]] = [[] for _ in made]
    groups: dict[tuple[str, float, int], list[int]] = {}
    for place, each in enumerate(made):
        groups.setdefault(each.group, []).append(place)
    # Per pair of repeats: weights in both and in either, measured and expected of random sets.
    sums = {group: np.zeros((4, math.comb(len(places), 2))) for group, places in groups.items()}
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
        overlap = Overlap(
            method=method, keep=share, samples=samples, repeats=len(places), iou=tuple(iou),
            mean=mean_overlap(iou, len(places)), chance=float(by_chance.sum() / max(1.0, either_by_chance.sum())),
        )  # fmt: skip
        overlaps.append(overlap)
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


NAME = "super-weights"
TEXTS = 16
"""Calibration texts of each task that are read for the spikes; the paper reads one prompt."""


def held_by(weights: Sequence[SuperWeight], made: Sequence[Made], model: Model) -> list[tuple[int, ...]]:
    """Of every selection which of these weights it holds, by their places."""
    held: list[list[int]] = [[] for _ in made]
    for address in dict.fromkeys(each.address for each in weights):
        weight = model.anatomy.scored[address].read()
        own = [(place, each.row, each.column) for place, each in enumerate(weights) if each.address == address]
        for places, each in zip(held, made, strict=True):
            mask = each.selection.mask(address, weight)
            places += [place for place, row, column in own if bool(mask[row, column])]
    return [tuple(sorted(places)) for places in held]


def find_super_weights(
    model: Model, texts: Mapping[str, Calibration], number: int, observed: Model
) -> tuple[tuple[SuperWeight, ...], tuple[int, ...]]:
    """The weights of down projections with the largest products with their input, in the first `TEXTS` of each task;
    and the blocks that could not be searched.
    """
    read = [text for drawn in texts.values() for text in drawn.texts[:TEXTS]]
    peaks = observe_peaks(observed, read)
    searched = {int(address.partition(".")[0]) for address in peaks}
    unsearched = tuple(block.index for block in model.anatomy.blocks if block.index not in searched)
    return tuple(ranked(model, peaks, number)), unsearched


def ranked(model: Model, peaks: Mapping[str, Peaks], number: int) -> list[SuperWeight]:
    """The `number` weights of largest |W_ij| · max_t |X_tj| of all matrices with known peaks."""
    candidates: list[SuperWeight] = []
    for address, peak in peaks.items():
        weight = model.anatomy.scored[address].read()
        products = weight.abs().float() * peak.inputs.to(weight.device)
        row_of_spike, column_of_spike = int(peak.outputs.argmax()), int(peak.inputs.argmax())
        largest = products.flatten().topk(min(number, products.numel()))
        block, _, matrix = address.partition(".")
        for product, place in zip(largest.values.tolist(), largest.indices.tolist(), strict=True):
            row, column = divmod(place, weight.shape[1])
            made = SuperWeight(
                block=int(block), matrix=matrix, row=row, column=column, value=float(weight[row, column]),
                product=product, largest_input=float(peak.inputs[column]), largest_output=float(peak.outputs[row]),
                spike=(row, column) == (row_of_spike, column_of_spike),
            )  # fmt: skip
            candidates.append(made)
    return sorted(candidates, key=lambda each: (-each.product, each.block, each.row, each.column))[:number]


def isolate(
    study: IsolationStudy,
    model: Model,
    folder: Path,
    watcher: Watcher,
    texts: Mapping[str, Calibration],
    observed: Model,
) -> tuple[list[CandidateEdit], Isolation]:
    """Make the selections of a study into a folder: its statistics, one `.edit` file per selection, and the numbers.

    Args:
        observed: the model whose activations are read: the same, or its quantised form.

    Returns:
        Every selection that is neither empty nor everything, fixed to the model; the numbers.
    """
    refuse_shared(set(model.anatomy.scored), model)
    folder.mkdir(parents=True, exist_ok=True)
    inputs = observe_all(observed, texts, folder, watcher)
    skill, *controls = (inputs[data] for data in (study.skill, *study.controls))
    every = [made for method in study.methods for made in selections(method, study.share, skill, controls)]
    fixed = fixed_together([made.selection for made in every], model, watcher)
    every = [replace(made, selection=selection) for made, selection in zip(every, fixed, strict=True)]
    notes = list(_notes(observed, model, texts, skill, every))
    excluded, taken = None, None
    held: list[tuple[int, ...]] = [()] * len(every)
    if study.exclude_super_weights:
        weights, unsearched = find_super_weights(model, texts, study.exclude_super_weights, observed)
        taken, held = Listed(tuple(each.name for each in weights), NAME), held_by(weights, every, model)
        every = [replace(made, selection=made.selection - taken) for made in every]
    counts, overlaps = survey(every, model, watcher)
    written: list[Selected] = []
    candidates: list[CandidateEdit] = []
    refusals: list[LesionError] = []
    for made, counted, own in zip(every, counts, held, strict=True):
        try:
            check_extent(made.selection, sum(c.selected for c in counted), sum(c.total for c in counted), model.name)
        except LesionError as error:
            refusals.append(error)
            continue
        file = folder / f"{_stem(made, study)}.edit"
        save_edit(file, ScaleParameters(made.selection, 0.0), model, selected=counted)
        selected = Selected(
            **{name: getattr(made, name) for name in ("method", "keep", "samples", "repeat")},
            **{name: getattr(made.selection, name) for name in ("label", "digest")},
            file=file.name,
            matrices=tuple(MatrixCount(**{n: getattr(c, n) for n in MatrixCount.model_fields}) for c in counted),
            super_weights=own,
        )
        written.append(selected)
        seen = tuple(control[made.samples, made.repeat].only() for control in controls)
        candidates.append(CandidateEdit(ScaleParameters(made.selection), made.samples, made.repeat, counted, seen))
    if refusals and not written:
        raise refusals[0]
    if taken is not None:
        file = save_edit(folder / f"{taken.label}.edit", ScaleParameters(taken), model)
        about = {"label": taken.label, "digest": taken.digest, "file": file.name}
        excluded = Excluded(weights=weights, unsearched=unsearched, **about)
        candidates.append(CandidateEdit(ScaleParameters(taken)))
    result = Isolation(
        identity=identity(study, model, texts, observed),
        study=study,
        model=model.name,
        fingerprint=model.fingerprint,
        dtype=model.dtype_name,
        family=model.anatomy.family,
        blocks=len(model.anatomy.blocks),
        disjoint=all(drawn.disjoint for drawn in texts.values()),
        texts=tuple(_texts_read(study, inputs)),
        selections=tuple(written),
        overlaps=tuple(overlaps),
        coverage=tuple(coverage(model, next(iter(skill.values())))),
        excluded=excluded,
        notes=(*notes, *map(str, refusals)),
    )
    return candidates, result


def _notes(
    observed: Model, model: Model, texts: Mapping[str, Calibration], skill: ByDraw, selections: Sequence[Made]
) -> Iterator[str]:
    """What a reader should know: two models, texts that were cut or are shared, silent experts, few neurons."""
    if observed is not model:
        yield (
            f"Activations were read on {observed.name} ({observed.quantisation}); weights were selected, and edits"
            f" made, on {model.name}."
        )
    for data, drawn in texts.items():
        if cut := sum(drawn.cut):
            yield f"{data}: {cut} of {len(drawn.cut)} calibration texts were longer than the context and were cut."
        repeats = {draw.repeat for draw in drawn.draws}
        if len(repeats) > 1 and not drawn.disjoint:
            yield f"{data} has too few items for {len(repeats)} repeats without a common text; these agree more by it."
    inputs = max(skill.values(), key=lambda draw: draw.texts)
    experts = [address for address, matrix in model.anatomy.scored.items() if matrix.storage.expert is not None]
    untouched = [address for address in experts if (sums := inputs.of(address)) is not None and sums.tokens == 0]
    silent = sorted({address.rpartition(".")[0] for address in untouched})
    if silent:
        names = ", ".join(silent[:12])
        yield f"{wording.counted(len(silent), 'expert')} saw no token of the skill, so never selected: {names}."
    for each in selections:
        selection = each.selection
        if isinstance(selection, LAPE) and 0 < (firing := sum(map(len, selection.neurons.values()))) < selection.quota:
            repeat = f", repeat {each.repeat}" if each.repeat else ""
            yield (
                f"{selection.label}{repeat}: only {firing:,} neurons fire on the skill as its rule demands, fewer than"
                f" the {selection.quota:,} that the share asks for; all of them are selected."
            )


def _stem(made: Made, study: IsolationStudy) -> str:
    """`mathneuro-0.05`; with the number of texts where there are several, and the repeat from the second on."""
    size = f"-n{made.samples}" if len(study.samples) > 1 and made.method != "magnitude" else ""
    keep = f"{made.keep:g}" if float(f"{made.keep:g}") == made.keep else repr(made.keep)
    return f"{made.method}-{keep}{size}" + (f"-repeat{made.repeat}" if made.repeat else "")


def _texts_read(study: IsolationStudy, observed: Mapping[str, ByDraw]) -> Iterator[CalibrationTexts]:
    for data, draws in observed.items():
        role = "skill" if data == study.skill else "control"
        for (samples, repeat), inputs in draws.items():
            (drawn,) = inputs.provenance
            read = {"texts": inputs.texts, "tokens": inputs.tokens, "cut": drawn.cut, "style": drawn.style}
            yield CalibrationTexts(data=data, role=role, samples=samples, repeat=repeat, **read)
