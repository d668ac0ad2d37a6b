"""Isolating: observe a model on a skill and its controls, select, count, compare, and keep selections as edits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lesion.activations.calibration import Calibration
from lesion.edits.edit import ScaleParameters
from lesion.edits.files.artefact import save_edit
from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.neurons import LAPE
from lesion.edits.selections.selection import Count, Selection, check_extent, fixed_together
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.studies.isolation.activation_cache import draw_texts, identity, observe_all
from lesion.studies.isolation.result import CalibrationTexts, Isolation, MatrixCount, Selected
from lesion.studies.isolation.selections import METHODS, Made, coverage, selections, survey
from lesion.studies.isolation.study import IsolationStudy


@dataclass(frozen=True, eq=False)
class Isolated:
    """What isolating left behind.

    Attributes:
        made: every selection that is neither empty nor everything, fixed to the model.
        counts: how much of every matrix each holds.
        files: the `.edit` file of each.
        result: the numbers, as in `summary.json` under `isolation`.
    """

    made: tuple[Made, ...]
    counts: tuple[tuple[Count, ...], ...]
    files: tuple[Path, ...]
    result: Isolation


def isolate(
    study: IsolationStudy,
    model: Model,
    folder: Path,
    watcher: Watcher,
    texts: Mapping[str, Calibration] | None = None,
) -> Isolated:
    """Make the selections of a study into a folder: its statistics, one `.edit` file per selection, and the numbers.

    Args:
        study: which selections.
        model: of which weights.
        folder: made when absent.
        watcher: is told how it goes.
        texts: what to observe the model on; drawn here when not given.

    Raises:
        UsageError: a data set does not exist or has too few items.
        LesionError: every selection is empty or everything, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LesionError(f"{folder} cannot be made: {error.strerror}; give another folder with --out.") from error
    texts = draw_texts(study, model) if texts is None else texts
    observed = observe_all(model, texts, folder, watcher)
    skill, *controls = (observed[data] for data in (study.skill, *study.controls))
    made = [one for method in study.methods for one in selections(method, study.keep, skill, controls)]
    fixed = fixed_together([one.selection for one in made], model)
    made = [replace(one, selection=selection) for one, selection in zip(made, fixed, strict=True)]
    counts, overlaps = survey(made, model)
    notes = [*_of_texts(texts), *_of_experts(skill, model), *_of_neurons(made)]
    kept: list[int] = []
    first_refusal: LesionError | None = None
    for place, (one, counted) in enumerate(zip(made, counts, strict=True)):
        try:
            selected, total = (sum(getattr(c, key) for c in counted) for key in ("selected", "total"))
            check_extent(one.selection, selected, total, model.name)
            kept.append(place)
        except LesionError as error:
            first_refusal = first_refusal or error
            notes.append(str(error))
    if first_refusal is not None and not kept:
        raise first_refusal
    files = []
    for place in kept:
        name = folder / f"{_stem(made[place], study)}.edit"
        edit = ScaleParameters(made[place].selection, 0.0)
        files.append(save_edit(name, edit, model, selected=counts[place]))
    result = Isolation(
        identity=identity(study, model, texts),
        study=study,
        model=model.name,
        fingerprint=model.fingerprint,
        dtype=str(model.dtype).removeprefix("torch."),
        family=model.anatomy.family,
        blocks=len(model.anatomy.blocks),
        disjoint=all(drawn.disjoint for drawn in texts.values()),
        texts=tuple(_texts_read(study, observed)),
        selections=tuple(_selected(made[p], counts[p], file.name) for p, file in zip(kept, files, strict=True)),
        overlaps=tuple(overlaps),
        coverage=tuple(coverage(model, next(iter(skill.values())))),
        notes=tuple(notes),
    )
    held = tuple(tuple(counts[place]) for place in kept)
    return Isolated(tuple(made[place] for place in kept), held, tuple(files), result)


def _of_neurons(made: Sequence[Made]) -> list[str]:
    """A note where fewer neurons qualify than a share asks for."""
    notes = []
    for one in made:
        if isinstance(one.selection, LAPE):
            found, asked = sum(map(len, one.selection.neurons.values())), one.selection.asked
            if 0 < found < asked:
                repeat = f", repeat {one.repeat}" if one.repeat else ""
                notes.append(
                    f"{one.selection.label}{repeat}: only {found:,} neurons fire on the skill as its rule demands,"
                    f" fewer than the {asked:,} that the share asks for; all of them are selected."
                )
    return notes


def _of_texts(texts: Mapping[str, Calibration]) -> list[str]:
    notes = []
    for data, drawn in texts.items():
        if cut := sum(drawn.cut):
            notes.append(
                f"{data}: {cut} of {len(drawn.cut)} calibration texts were longer than the context and were cut."
            )
        repeats = {draw.repeat for draw in drawn.draws}
        if len(repeats) > 1 and not drawn.disjoint:
            notes.append(
                f"{data} has too few items for {len(repeats)} repeats without a common text: their overlap is partly"
                f" that of the texts."
            )
    return notes


def _of_experts(skill: Mapping[tuple[int, int], Inputs], model: Model) -> list[str]:
    inputs = max(skill.values(), key=lambda one: one.texts)
    silent = sorted(
        {
            address.rpartition(".")[0]
            for address, matrix in model.anatomy.scored.items()
            if matrix.storage.expert is not None and (sums := inputs.of(address)) is not None and sums.tokens == 0
        }
    )
    if not silent:
        return []
    return [f"{len(silent)} experts saw no token of the skill and are never selected: {', '.join(silent[:12])}."]


def _stem(one: Made, study: IsolationStudy) -> str:
    """`mathneuro-0.05`; with the number of texts where there are several, and the repeat from the second on."""
    size = f"-n{one.samples}" if len(study.samples) > 1 and one.method != "magnitude" else ""
    keep = f"{one.keep:g}" if float(f"{one.keep:g}") == one.keep else repr(one.keep)
    return f"{one.method}-{keep}{size}" + (f"-repeat{one.repeat}" if one.repeat else "")


def _selected(one: Made, counts: Sequence[Count], file: str) -> Selected:
    return Selected(
        method=one.method,
        keep=one.keep,
        samples=one.samples,
        repeat=one.repeat,
        file=file,
        label=one.selection.label,
        digest=one.selection.digest,
        matrices=tuple(MatrixCount(block=c.block, matrix=c.matrix, selected=c.selected, total=c.total) for c in counts),
    )


def _texts_read(
    study: IsolationStudy, observed: Mapping[str, Mapping[tuple[int, int], Inputs]]
) -> Iterator[CalibrationTexts]:
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


def method_of(selection: Selection) -> tuple[str, float | None]:
    """The name of a selection's method and its share; `custom` and None for what set algebra made."""
    name = "wanda-rows" if getattr(selection, "per", "") == "row" else selection.kind
    if name not in METHODS:
        return ("random", None) if name == "random" else ("custom", None)
    keep = getattr(selection, "keep", None)
    if keep is None:
        raise UsageError(f"The selection {selection.label} has no share.")
    return name, float(keep)
