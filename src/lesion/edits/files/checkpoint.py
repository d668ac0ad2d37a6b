"""Checkpoint: edits written into the safetensors files of a model, shard by shard, without loading the model."""

from __future__ import annotations

import functools
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import AutoConfig

from lesion.arguments import validated
from lesion.edits.cuts import cuts, refuse_both
from lesion.edits.edit import Compose, EditLike, ScaleParameters, of_spectra, of_weights
from lesion.edits.files import card
from lesion.edits.files.as_weights import edit_files
from lesion.edits.files.card import AppliedEdit
from lesion.edits.files.edit_file import EditFile, anew
from lesion.edits.files.folder import (
    COPIED,
    COPIED_NAMES,
    KEPT,
    base_card,
    copy_others,
    emerging,
    note_made,
    refuse_full,
    refuse_place,
    rewrite_all,
)
from lesion.edits.files.layout import StoredMatrix, bias_factors, places, skeleton
from lesion.edits.selections.selection import Count, check_extent
from lesion.edits.spectra import Truncated, truncated
from lesion.edits.weights import Effect, check_effects, scaled
from lesion.errors import LesionError, UsageError
from lesion.files import read_object
from lesion.models.fingerprint import values_digest
from lesion.models.gguf_checkpoint import as_folder
from lesion.models.load import load
from lesion.models.quantised import quantisation
from lesion.models.quiet import quiet
from lesion.models.source import Source, explained, find, refuse_adapter, refuse_unsuited
from lesion.models.stored import inside, survey
from lesion.progress import Silent, Watcher


@dataclass
class EditOnCheckpoint:
    """One edit on its way: what it changes in every matrix, and what it did.

    Attributes:
        force: take other weights than those it was made for.
        fixed, loose: its parts that multiply weights, with the thresholds of the model it was made for and without.
        counts, effects, union: what they did, by matrix: weights selected, by part, by all parts together.
        afresh: some weights were other ones.
    """

    file: EditFile
    force: bool
    fixed: tuple[ScaleParameters, ...]
    loose: tuple[ScaleParameters, ...]
    counts: dict[str, Count] = field(default_factory=dict)
    effects: list[list[Effect]] = field(default_factory=list)
    union: list[Effect] = field(default_factory=list)
    afresh: bool = False

    @classmethod
    def of(cls, file: EditFile, force: bool) -> EditOnCheckpoint:
        """The edit of a file, before the first shard."""
        fixed, loose = of_weights(file.fixed()), of_weights(file.edit)
        return cls(file, force, fixed, loose, effects=[[] for _ in fixed])

    def made_for(self, address: str, weight: Float[Tensor, "out in"], base: str) -> bool:
        """Whether the edit was made for these values of a matrix; without `force` it must have been."""
        if values_digest(weight) == self.file.model.matrices[address].values:
            return True
        if not self.force:
            made = self.file.model
            raise LesionError(
                f"The edit {self.file.label} was made for {made.name} (fingerprint {made.fingerprint}, in "
                f"{made.dtype}), and {base} has other weights in {address}. Give that model, or "
                f"{anew(self.file.edit)} with --force."
            )
        self.afresh = True
        return False

    def changes(
        self, address: str, weight: Float[Tensor, "out in"], base: str
    ) -> list[tuple[Bool[Tensor, "out in"], float]]:
        """Masks on one matrix with their factors."""
        if address not in self.file.model.matrices:
            return []
        parts = self.fixed if self.made_for(address, weight, base) else self.loose
        # Scores are exact for at most 24 significant bits.
        narrow = weight.float() if weight.dtype == torch.float64 else weight
        return [(part.selection.mask(address, narrow), float(part.factor)) for part in parts]

    def note(self, address: str, weight: Tensor, own: Sequence[tuple[Tensor, float]], whole: Effect | None) -> None:
        """What this edit by itself does to a matrix; `whole` where that is known, since no other edit touches it."""
        union = whole or scaled(weight, own, address)[1]
        for effects, change in zip(self.effects, own, strict=True):
            effects.append(union if len(own) == 1 else scaled(weight, [change], address)[1])
        self.union.append(union)
        self.counts[address] = Count.at(address, union.selected, weight.numel())

    def check(self, total: int, name: str) -> float | None:
        """The factor that its multiplications have achieved, with their sign; None where it only truncates."""
        if not self.fixed:
            return None
        for part, effects in zip(self.fixed, self.effects, strict=True):
            check_extent(part.selection, sum(effect.selected for effect in effects), total, name)
            check_effects(part, effects, name)
        size = check_effects(Compose(self.fixed), self.union, name)
        return math.copysign(size, math.prod(self.file.factors))


def applied_edits(
    passes: Sequence[EditOnCheckpoint], done: Mapping[str, Truncated], total: int, name: str
) -> tuple[AppliedEdit, ...]:
    """What each edit did by itself, all shards written; `done` are the truncated matrices, `total` as in
    `check_effects`.
    """
    edits = []
    taken: set[str] = set()
    for edit_pass in passes:
        file = edit_pass.file
        achieved = edit_pass.check(total, name)
        cuts = file.cuts
        if not edit_pass.fixed and not any(done[cut.address].moved for cut in cuts if not cut.whole):
            raise LesionError(
                f"{file.label} changes no weight of {name}: what it keeps of {', '.join(cut.address for cut in cuts)} "
                "is all that is not 0. Keep less."
            )
        kept_as = f"{file.label}.edit"
        for number in range(2, len(passes) + 2):
            if kept_as in taken:
                kept_as = f"{file.label}-{number}.edit"
        taken.add(kept_as)
        factors = " and ".join(f"{factor:g}" for factor in file.factors)
        edits.append(
            AppliedEdit(file, kept_as, factors, tuple(edit_pass.counts.values()), edit_pass.afresh, achieved, cuts)
        )
    return tuple(edits)


def resolve(source: str, revision: str | None = None) -> Path:
    """The folder on this machine in which a model lies; one on the hub is downloaded, weights as safetensors alone."""
    located = as_folder(find(source, revision))
    if located.local:
        return Path(located.place)
    from huggingface_hub import snapshot_download

    wanted = [f"*{suffix}" for suffix in (*COPIED, ".safetensors")] + sorted(COPIED_NAMES)
    try:
        with quiet():
            folder = Path(snapshot_download(located.place, revision=located.revision, allow_patterns=wanted))
    except Exception as error:  # what the hub raises has no common base; the reason is kept and said
        raise explained(error, located, source, "weights") from error
    refuse_adapter(folder, source)
    return folder


def config_of(folder: Path, name: str) -> Any:
    """The configuration in a folder of a decoder that edits can be written into."""
    inside(folder, "config.json")
    try:
        with quiet():
            config = AutoConfig.from_pretrained(str(folder))
    except Exception as error:  # as above
        if "trust_remote_code" in str(error):
            raise LesionError(
                f"{name} comes with code of its own, which `lesion apply` does not run; it edits architectures that "
                "transformers knows."
            ) from error
        raise explained(error, Source(str(folder), True), name, "configuration") from error
    refuse_quantised(config, name)
    refuse_unsuited(config, name)
    return config


@validated
def apply(
    source: str | Path,
    edits: EditLike,
    out: Path | str,
    *,
    factor: float | None = None,
    force: bool = False,
    revision: str | None = None,
    weights: str | Path | None = None,
    watcher: Watcher | None = None,
) -> card.Applied:
    """Write a model's checkpoint again with edits in its weights; memory is needed for one tensor, not for the model.

    Files, sharding, dtypes and tied weights stay; what is not edited is copied byte for byte. Every selection is made
    on the unedited weights, factors on one weight multiply, and the product is rounded once to the stored dtype: that
    is the edit of the model as loaded in that dtype. Truncated matrices are computed in float64 and rounded once;
    truncations of one matrix keep what all of them keep.

    Args:
        source: `bundled:NAME`, a folder, or a hub id.
        edits: an edit, its text form, the path of an `.edit` file, what `read_edit` gave, or several of these. For what
            is no file the model is loaded first, since selections are made, and scaled blocks and branches are tried
            as weights (`lesion.edits.files.as_weights`), on it.
        out: a folder that does not exist or is empty. It gets its name when everything is written.
        factor: in place of the edits' own.
        force: apply an edit made for other weights of the same shapes too, its selection made anew.
        revision: branch, tag or commit of a hub id.
        weights: of a quantised model, the full-precision checkpoint that it was made from: that one is written.

    Raises:
        UsageError: there is no edit, or one cannot be written as weights; `out` is occupied; a factor is given to
            edits that have none; one edit truncates a matrix whose weights another multiplies.
        LesionError: an edit was made for another model, moves too little (see `check_effects`), or its matrices are not
            there; the checkpoint is quantised, damaged or not in safetensors; `out` cannot be written.
    """
    out, name, watcher = Path(out), str(source), watcher or Silent()
    refuse_place(out)
    if weights is not None:
        _refuse_unneeded(name, revision)
        name, revision = str(weights), None
    refuse_quantised(local_config(name, revision), name)
    files = edit_files(edits, lambda: load(name, revision=revision, device="cpu"), factor)
    truncations = [part for file in files for part in of_spectra(file.edit)]
    refuse_both([part for file in files for part in of_weights(file.edit)], truncations, name)
    folder = resolve(name, revision)
    if out.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{out} lies inside the model's own folder; give --out another place.")
    checkpoint = survey(folder, name)
    anatomy, network, built = skeleton(config_of(folder, name), name)
    if built:
        watcher.note(f"{name} had to be taken apart by its structure, which took memory for the whole network.")
    shapes = {address: matrix.shape for address, matrix in anatomy.scored.items()}
    for file in files:
        file.refuse_misfits(shapes, name)
    touched = [address for address in shapes if any(address in file.model.matrices for file in files)]
    where = places(anatomy, network, checkpoint.entries, touched)
    biases: dict[str, dict[int | None, float]] = {}
    for file in files:
        for tensor, rows in bias_factors(anatomy, network, checkpoint.entries, file.biases).items():
            factors = biases.setdefault(tensor, {})
            factors.update({row: factors.get(row, 1.0) * bias_factor for row, bias_factor in rows.items()})
    del network
    total = sum(rows * columns for rows, columns in shapes.values())
    refuse_full(out, checkpoint.bytes)

    passes = [EditOnCheckpoint.of(file, force) for file in files]
    effects: dict[str, Effect] = {}
    kept = {cut.address: cut for cut in cuts(truncations, shapes)}
    done: dict[str, Truncated] = {}

    def edit(within: Sequence[tuple[str, StoredMatrix]], tensor: Tensor) -> None:
        for address, place in within:
            view = place.storage.view(tensor)
            weight = view.reshape(shapes[address])
            if address in kept:
                for edit_pass in passes:
                    if address in edit_pass.file.model.matrices:
                        edit_pass.made_for(address, weight, name)
                if not kept[address].whole:
                    edited, done[address] = truncated(weight, kept[address])
                    view.copy_(edited.reshape(view.shape))
                continue
            changes = [edit_pass.changes(address, weight, name) for edit_pass in passes]
            together = [change for of_edit in changes for change in of_edit]
            edited, effect = scaled(weight, together, address)
            if address not in effects:  # else it is a tied tensor under its second name
                effects[address] = effect
                for edit_pass, of_edit in zip(passes, changes, strict=True):
                    if of_edit:
                        edit_pass.note(address, weight, of_edit, effect if len(of_edit) == len(together) else None)
            view.copy_(edited.reshape(view.shape))

    within: dict[str, list[tuple[str, StoredMatrix]]] = {}
    for address, its_places in where.items():
        for place in its_places:
            within.setdefault(place.tensor, []).append((address, place))
    changes = {tensor: functools.partial(edit, matrices) for tensor, matrices in within.items()}
    changes |= {tensor: functools.partial(_multiply, factors) for tensor, factors in biases.items()}
    with emerging(out, watcher.note) as partial, torch.inference_mode():
        rewrite_all(checkpoint, partial, changes, watcher, name)
        ordered = tuple(effects[address] for address in touched if address in effects)
        cut = tuple(done[address] for address in touched if address in done)
        edits_applied = applied_edits(passes, done, total, name)
        labels = " + ".join(file.label for file in files)
        achieved = check_effects(labels, ordered, name, total) if ordered else None
        left_out = copy_others(folder, partial, checkpoint, edits_applied)
        options = [word for each in edits_applied for word in ("--edit", f"{KEPT}/{each.kept_as}")]
        options += ["--factor", f"{factor:g}"] if factor is not None else []
        options += [*(["--revision", revision] if revision else []), *(["--force"] if force else [])]
        applied = card.Applied(out, edits_applied, ordered, total, achieved, left_out, cut)
        base_card(folder, partial, card.written(name, applied))
        note_made(partial, name, options)
        # Last, so that what is not whole cannot be loaded.
        shutil.copyfile(inside(folder, "config.json"), partial / "config.json")
    return applied


def local_config(name: str, revision: str | None) -> dict[str, object]:
    """What the config.json of a local or bundled model holds; empty for a GGUF file or one on the hub."""
    place = find(name, revision)
    return read_object(Path(place.place) / "config.json") if place.local and place.file is None else {}


def refuse_quantised(config: object, name: str) -> None:
    """Refuse to write edits into packed weights."""
    if (storage := quantisation(config)) is not None:
        raise LesionError(
            f"{name} is stored quantised ({storage}), and edits cannot be written into packed weights. Give the"
            " full-precision checkpoint that it was made from with --weights SOURCE (weights=): that one is written,"
            " edited, and can be quantised again."
        )


def _refuse_unneeded(name: str, revision: str | None) -> None:
    """Refuse other weights for a model that is not quantised, as far as a look at its folder tells."""
    config = local_config(name, revision)
    if config and quantisation(config) is None:
        raise UsageError(f"{name} is not quantised, so its own weights are written; leave out --weights.")


def _multiply(factors: Mapping[int | None, float], bias: Tensor) -> None:
    for number, factor in factors.items():
        part = bias if number is None else bias[number]
        row = part.reshape(1, -1)
        everywhere = torch.ones(row.shape, dtype=torch.bool)
        part.copy_(scaled(row, [(everywhere, factor)], "bias")[0].view(part.shape))
