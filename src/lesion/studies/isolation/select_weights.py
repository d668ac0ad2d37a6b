"""Isolating: observe a model on a skill and its controls, select, count, compare, and keep selections as edits.

Yu et al. (2024, arXiv 2411.07191) find a super weight in one forward pass: in a block where both the input
and the output of the down projection have an extreme maximum, it is the weight that joins these two channels. Here the
weights of all down projections are ranked by the largest product with their input, |W_ij| · max_t |X_tj|, and the first
so many are taken. The paper's weight comes first where it makes the spike, and several of one block are found as well.
There is no threshold, so that rather too many are taken than too few; `spike` marks those of the paper's rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lesion.activations.calibration import Calibration
from lesion.activations.observation import Peaks, observe_peaks
from lesion.edits.edit import ScaleParameters
from lesion.edits.files.artefact import save_edit
from lesion.edits.selections.listed import Listed
from lesion.edits.selections.neurons import LAPE
from lesion.edits.selections.selection import Count, check_extent, fixed_together
from lesion.edits.weights import refuse_shared
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.report import wording
from lesion.studies.isolation.plan import CandidateEdit
from lesion.studies.isolation.result import CalibrationTexts, Excluded, Isolation, MatrixCount, Selected, SuperWeight
from lesion.studies.isolation.selections import ByDraw, Made, coverage, identity, observe_all, selections, survey
from lesion.studies.isolation.study import IsolationStudy

NAME = "super-weights"
TEXTS = 16
"""Calibration texts of each task that are read for the spikes; the paper reads one prompt."""


@dataclass(frozen=True)
class SuperWeights:
    """The super weights of a model, largest product first, and the blocks that could not be searched."""

    weights: tuple[SuperWeight, ...]
    unsearched: tuple[int, ...]

    @property
    def selection(self) -> Listed:
        """They as a selection, which can be taken away from others and cut alone."""
        return Listed(tuple(each.name for each in self.weights), NAME)

    def held_by(self, made: Sequence[Made], model: Model) -> list[tuple[int, ...]]:
        """Of every selection those that it holds, by their places in `weights`."""
        held: list[list[int]] = [[] for _ in made]
        for address in dict.fromkeys(each.address for each in self.weights):
            weight = model.anatomy.scored[address].read()
            for places, each in zip(held, made, strict=True):
                mask = each.selection.mask(address, weight)
                places += [
                    place
                    for place, own in enumerate(self.weights)
                    if own.address == address and bool(mask[own.row, own.column])
                ]
        return [tuple(sorted(places)) for places in held]


def find_super_weights(
    model: Model, texts: Mapping[str, Calibration], number: int, observed: Model | None = None
) -> SuperWeights:
    """The weights of down projections with the largest products with their input, in the first `TEXTS` of each task."""
    read = [text for drawn in texts.values() for text in drawn.texts[:TEXTS]]
    peaks = observe_peaks(observed or model, read)
    searched = {int(address.partition(".")[0]) for address in peaks}
    unsearched = tuple(block.index for block in model.anatomy.blocks if block.index not in searched)
    return SuperWeights(tuple(ranked(model, peaks, number)), unsearched)


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
            candidates.append(
                SuperWeight(
                    block=int(block),
                    matrix=matrix,
                    row=row,
                    column=column,
                    value=float(weight[row, column]),
                    product=product,
                    largest_input=float(peak.inputs[column]),
                    largest_output=float(peak.outputs[row]),
                    spike=(row, column) == (row_of_spike, column_of_spike),
                )
            )
    return sorted(candidates, key=lambda each: (-each.product, each.block, each.row, each.column))[:number]


@dataclass(frozen=True, eq=False)
class Isolated:
    """Every selection that is neither empty nor everything, fixed to the model; the numbers."""

    candidates: tuple[CandidateEdit, ...]
    result: Isolation


def isolate(
    study: IsolationStudy,
    model: Model,
    folder: Path,
    watcher: Watcher,
    texts: Mapping[str, Calibration],
    observed: Model | None = None,
) -> Isolated:
    """Make the selections of a study into a folder: its statistics, one `.edit` file per selection, and the numbers.

    `observed` is the model whose activations are read, where it is another: its quantised form.
    """
    refuse_shared(set(model.anatomy.scored), model)
    folder.mkdir(parents=True, exist_ok=True)
    reader = observed or model
    inputs = observe_all(reader, texts, folder, watcher)
    skill, *controls = (inputs[data] for data in (study.skill, *study.controls))
    every = [made for method in study.methods for made in selections(method, study.share, skill, controls)]
    fixed = fixed_together([made.selection for made in every], model, watcher)
    every = [replace(made, selection=selection) for made, selection in zip(every, fixed, strict=True)]
    notes = list(_notes(reader, model, texts, skill, every))
    excluded: SuperWeights | None = None
    held: list[tuple[int, ...]] = [()] * len(every)
    if study.exclude_super_weights:
        excluded = find_super_weights(model, texts, study.exclude_super_weights, reader)
        held = excluded.held_by(every, model)
        every = [replace(made, selection=made.selection - excluded.selection) for made in every]
    counts, overlaps = survey(every, model, watcher)
    kept: list[tuple[Made, Sequence[Count], tuple[int, ...]]] = []
    refusals: list[LesionError] = []
    for made, counted, own in zip(every, counts, held, strict=True):
        try:
            check_extent(made.selection, sum(c.selected for c in counted), sum(c.total for c in counted), model.name)
            kept.append((made, counted, own))
        except LesionError as error:
            refusals.append(error)
    if refusals and not kept:
        raise refusals[0]
    written = []
    for made, its_counts, own in kept:
        edit, file = ScaleParameters(made.selection, 0.0), folder / f"{_stem(made, study)}.edit"
        written.append(_selected(made, its_counts, save_edit(file, edit, model, selected=its_counts), own))
    candidates = [
        CandidateEdit(
            ScaleParameters(made.selection),
            made.samples,
            made.repeat,
            its_counts,
            tuple(control[made.samples, made.repeat].only() for control in controls),
        )
        for made, its_counts, _ in kept
    ]
    if excluded is not None:
        candidates.append(CandidateEdit(ScaleParameters(excluded.selection)))
    result = Isolation(
        identity=identity(study, reader, texts, model),
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
        excluded=None if excluded is None else _excluded(excluded, folder, model),
        notes=(*notes, *map(str, refusals)),
    )
    return Isolated(tuple(candidates), result)


def _excluded(super_weights: SuperWeights, folder: Path, model: Model) -> Excluded:
    """What was excluded, with a file of the edit that cuts it alone."""
    selection = super_weights.selection
    return Excluded(
        weights=super_weights.weights,
        label=selection.label,
        digest=selection.digest,
        file=save_edit(folder / f"{selection.label}.edit", ScaleParameters(selection), model).name,
        unsearched=super_weights.unsearched,
    )


def _notes(
    reader: Model, model: Model, texts: Mapping[str, Calibration], skill: ByDraw, selections: Sequence[Made]
) -> Iterator[str]:
    """What a reader should know: two models, texts that were cut or are shared, silent experts, few neurons."""
    if reader is not model:
        yield (
            f"Activations were read on {reader.name} ({reader.quantisation}); weights were selected, and edits made, on"
            f" {model.name}."
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


def _selected(made: Made, counts: Sequence[Count], file: Path, super_weights: tuple[int, ...]) -> Selected:
    return Selected(
        method=made.method,
        keep=made.keep,
        samples=made.samples,
        repeat=made.repeat,
        file=file.name,
        label=made.selection.label,
        digest=made.selection.digest,
        matrices=tuple(MatrixCount(block=c.block, matrix=c.matrix, selected=c.selected, total=c.total) for c in counts),
        super_weights=super_weights,
    )


def _texts_read(study: IsolationStudy, observed: Mapping[str, ByDraw]) -> Iterator[CalibrationTexts]:
    for data, draws in observed.items():
        for (samples, repeat), inputs in draws.items():
            yield CalibrationTexts(
                data=data,
                role="skill" if data == study.skill else "control",
                samples=samples,
                repeat=repeat,
                texts=inputs.texts,
                tokens=inputs.tokens,
                cut=sum(p.cut for p in inputs.provenance),
                style=inputs.provenance[0].style if inputs.provenance else None,
            )
