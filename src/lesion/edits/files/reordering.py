"""Reordering: a checkpoint written again with its blocks in another order, repeated or left out, tensor by tensor."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from lesion.arguments import validated
from lesion.edits.edit import BASELINE, Edit, EditLike, ScaleAttention, ScaleMlp, as_edit, number, parts
from lesion.edits.files import card
from lesion.edits.files.checkpoint import config_of, local_config, refuse_quantised, resolve
from lesion.edits.files.folder import base_card, copied, copy_others, emerging, note_made, refuse_full, refuse_place
from lesion.edits.files.gguf_order import named_by, save_gguf
from lesion.edits.files.layout import skeleton as network_of
from lesion.edits.files.layout import tensors_of
from lesion.errors import LesionError, UsageError
from lesion.files import read_object
from lesion.models.anatomy import Anatomy
from lesion.models.gguf import SUFFIX, Header, read_header
from lesion.models.gguf_checkpoint import fetched
from lesion.models.order import Order, arranged, order_text, parse_order, runs, settings_of
from lesion.models.reordered import built, path_of
from lesion.models.source import BUNDLED, find
from lesion.models.stored import Checkpoint, Entry, inside, survey
from lesion.plain import short
from lesion.progress import Silent, Watcher

RECIPE = "mergekit.yaml"
"""The same order as a recipe of mergekit, beside the checkpoint."""
_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


@dataclass(frozen=True)
class Reordered:
    """What was written.

    Attributes:
        folder: of the checkpoint, or its GGUF file.
        order: its blocks, by their numbers in the model.
        blocks: how many the model has.
        left_out: files of the model that were not copied.
        edit: what is multiplied, by the new places; empty: nothing.
    """

    folder: Path
    order: Order
    blocks: int
    left_out: tuple[str, ...]
    edit: str = ""


@validated
def save_reordered(
    source: str | Path,
    order: str | Sequence[int],
    out: Path | str,
    *,
    edit: EditLike = BASELINE,
    revision: str | None = None,
    watcher: Watcher | None = None,
) -> Reordered:
    """Write a model's checkpoint with its blocks in another order, as `reordered` has them in memory.

    Tensors are copied byte for byte under the numbers of their new places, each into the shard that it came from;
    config.json has the new number of blocks and the kind of attention of each. An edit multiplies, at the places that
    it names, the last matrices of attention and MLP and the biases behind them. The model is not loaded. Beside the
    checkpoint lies the order as a recipe of mergekit (`mergekit.yaml`, passthrough).

    A GGUF file is written as another one where `out` ends in `.gguf`: tensors stay quantised as they are, byte for
    byte, and factors multiply the scales of quantised ones in half precision.

    Args:
        source: `bundled:NAME`, a folder, a GGUF file, or a hub id.
        order: the blocks from first to last: text such as `"0-13,10-29"`, or a list of numbers.
        out: a folder that does not exist or is empty, or `FILE.gguf`. It gets its name when everything is written.
        edit: factors of attention and MLP by their new places, such as `"8.attention×0.5 + 8.mlp×0.5"`.
        revision: branch, tag or commit of a hub id.
        watcher: receives progress and notes.

    Raises:
        UsageError: the order is empty, or names a block that the model does not have; the edit is none of attention or
            MLP, or cannot be written as weights; `out` is occupied.
        LesionError: a block would be another function at its new place; the checkpoint is quantised, damaged or not in
            safetensors, or has further blocks than its configuration; `out` cannot be written; a GGUF file states
            something of every block.
    """
    out, name, watcher = Path(out), str(source), watcher or Silent()
    as_gguf = out.suffix.lower() == SUFFIX
    refuse_place(out, folder=not as_gguf)
    refuse_quantised(local_config(name, revision), name)
    header = _gguf(name, revision) if as_gguf else None
    folder = resolve(name, revision)
    if out.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{out} lies inside the model's own folder; give --out another place.")
    checkpoint = survey(folder, name)
    config = config_of(folder, name)
    anatomy, network, _ = network_of(config, name)
    blocks = len(anatomy.blocks)
    numbers = parse_order(order, blocks, name)
    path = path_of(network, anatomy)
    built(network, network.dtype, path, numbers, blocks, name)
    network_of(arranged(config, numbers, blocks), name)  # whether a pass runs through it, where the family is not known
    known = tensors_of(network, checkpoint.entries)
    names = _names(checkpoint.entries, known, path, numbers, blocks, name)
    damped = _damped(as_edit(edit), anatomy, numbers, name)
    if header is not None:
        refuse_unlike(config, numbers, blocks, name)
        save_gguf(header, out, numbers, blocks, named_by(header, blocks, damped), watcher.note)
        return Reordered(out, numbers, blocks, (), str(as_edit(edit)) if damped else "")
    factors = {
        new: factor
        for tensor, several in names.items()
        for new in several
        if (factor := damped.get(known.get(tensor, ""), {}).get(_numbered(new)[1] or 0)) is not None
    }
    refuse_full(out, checkpoint.bytes)
    with emerging(out, watcher.note) as partial:
        _write(checkpoint, partial, names, factors, watcher, name)
        left_out = copy_others(folder, partial, checkpoint, ())
        done = Reordered(out, numbers, blocks, left_out, str(as_edit(edit)) if factors else "")
        words = [*(["--edit", done.edit] if done.edit else []), *(["--revision", revision] if revision else [])]
        unloadable = name.startswith(BUNDLED) or Path(name).suffix == ".gguf"  # names that mergekit does not know
        (partial / RECIPE).write_text(
            recipe(str(folder) if unloadable else name, numbers, checkpoint, damped), encoding="utf-8"
        )
        base_card(folder, partial, _card(name, done))
        note_made(partial, name, ["--order", order_text(numbers), *words])
        text = json.dumps(_configuration(folder, config, numbers, blocks), indent=2, ensure_ascii=False)
        (partial / "config.json").write_text(text + "\n", encoding="utf-8")
    return done


def _gguf(name: str, revision: str | None) -> Header:
    """The header of the model's own GGUF file, from which one is written."""
    source = find(name, revision)
    if source.file is None:
        raise UsageError(
            f"Only a model that is a GGUF file is written as one, and {name} is none; give --out a folder."
        )
    return read_header(fetched(source))


def refuse_unlike(config: Any, order: Order, blocks: int, name: str) -> None:
    """Refuse a GGUF file of a model whose blocks are of several kinds: their kinds follow from their numbers there."""
    for key, value in settings_of(config.get_text_config(decoder=True), order, blocks).items():
        if isinstance(value, list) and len({str(each) for each in value}) > 1:
            raise LesionError(
                f"The blocks of {name} are of several kinds ({key}), which a GGUF file tells by their numbers; give"
                " --out a folder, which gets an ordinary checkpoint."
            )


def _names(
    entries: Mapping[str, Entry], known: Mapping[str, str], path: str, order: Order, blocks: int, name: str
) -> dict[str, tuple[str, ...]]:
    # What stands on disk before the number of a block, with what the network calls a block's parameter.
    beginnings = {_numbered(tensor)[0] for tensor, parameter in known.items() if parameter.startswith(f"{path}.")}
    names: dict[str, tuple[str, ...]] = {}
    for tensor in entries:
        head, number, rest = _numbered(tensor)
        if number is None or head not in beginnings:
            names[tensor] = (tensor,)
            continue
        if number >= blocks:
            raise LesionError(
                f"The checkpoint of {name} has the tensor {tensor}, of a block beyond the {blocks} that its config.json"
                " counts; such a checkpoint cannot be put into another order."
            )
        names[tensor] = tuple(f"{head}{place}{rest}" for place, one in enumerate(order) if one == number)
    return names


def _numbered(tensor: str) -> tuple[str, int | None, str]:
    """A tensor's name before, at and after its first number: `model.layers.`, 3, `.mlp.up_proj.weight`."""
    match = re.match(r"((?:[^.]*[^.0-9][^.]*\.)*?)([0-9]+)(\..*)", tensor)
    return (match[1], int(match[2]), match[3]) if match else (tensor, None, "")


Damped = Mapping[str, Mapping[int, float]]
"""By a parameter of the model, what its copy at some of the new places is multiplied by."""


def _damped(edit: Edit, anatomy: Anatomy, order: Order, name: str) -> Damped:
    """What an edit of attention and MLP at new places makes of parameters."""
    damped: dict[str, dict[int, float]] = {}
    for part in parts(edit):
        if not isinstance(part, ScaleAttention | ScaleMlp):
            raise UsageError(
                f"'{short(str(part), 80)}' is not written together with an order, only factors of attention and MLP at"
                " the new places, such as 8.mlp×0.5. Write the order into a folder first, then the edit on that folder."
            )
        if part.layer >= len(order):
            raise UsageError(f"there is no block {part.layer}: in this order {name} has blocks 0 to {len(order) - 1}.")
        branch = anatomy.branch(order[part.layer], part.unit)
        if not branch.ends or branch.beside:
            raise UsageError(
                f"{name} does not show which matrices end {part.address}; '{part}' cannot be written. Leave it out."
            )
        if "norm" in type(branch.tail).__name__.lower():
            raise UsageError(
                f"'{part}' cannot be written into the weights of {name}: a norm stands behind the last matrix."
            )
        ends = {matrix.parameter for matrix in branch.ends}
        ends |= {f"{m.parameter.removesuffix(m.attribute)}{m.bias}" for m in branch.ends if m.bias is not None}
        for parameter in ends:
            places = damped.setdefault(parameter, {})
            places[part.layer] = places.get(part.layer, 1.0) * part.factor
    return damped


def _write(
    checkpoint: Checkpoint,
    target: Path,
    names: Mapping[str, Sequence[str]],
    factors: Mapping[str, float],
    watcher: Watcher,
    name: str,
) -> None:
    watcher.begin(name, len(checkpoint.shards), 0, "shards")
    shard_of: dict[str, str] = {}
    total = 0
    for shard in checkpoint.shards:
        entries = [
            (entry, new) for old, entry in checkpoint.entries.items() if entry.shard == shard for new in names[old]
        ]
        if entries:
            copied(inside(checkpoint.folder, shard), target / shard, entries, factors)
        shard_of |= {new: shard for _, new in entries}
        total += sum(entry.stop - entry.start for entry, _ in entries)
        watcher.answered(1)
    if checkpoint.index is not None:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(shard_of.items()))}
        (target / checkpoint.index).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _configuration(folder: Path, config: Any, order: Order, blocks: int) -> dict[str, Any]:
    """The config.json of the model with what it says of blocks for the new order; all else as it was."""
    document = dict(read_object(inside(folder, "config.json")))
    text_config = config.get_text_config(decoder=True)
    part = document
    if text_config is not config:
        key = next(name for name in config.sub_configs if getattr(config, name, None) is text_config)
        part = document[key] = dict(document.get(key) or {})
    for key, value in settings_of(text_config, order, blocks).items():
        part[text_config.attribute_map.get(key, key)] = value
    return document


def recipe(name: str, order: Sequence[int], checkpoint: Checkpoint, damped: Damped) -> str:
    """The order as a YAML recipe of mergekit: a passthrough merge, one slice for each run of blocks (end excluded)."""
    dtypes = {entry.dtype for entry in checkpoint.entries.values()} & _DTYPES.keys()
    scales: list[dict[str, float]] = [{} for _ in order]
    for parameter, places in damped.items():
        for place, factor in places.items():
            scales[place][_numbered(parameter)[2].strip(".").rpartition(".")[0]] = factor
    lines = ["slices:"]
    for scale, alike in groupby(range(len(order)), lambda place: scales[place]):
        for first, last in runs([order[place] for place in alike]):
            range_of = f"        layer_range: [{first}, {last + 1}]"
            lines += ["  - sources:", f"      - model: {json.dumps(name)}", range_of]
            lines += ["        parameters:", "          scale:"] if scale else []
            for matrix, factor in sorted(scale.items()):
                lines += [f"            - filter: {matrix}", f"              value: {number(factor)}"]
            lines += ["            - value: 1.0"] if scale else []
    lines.append("merge_method: passthrough")
    lines += [f"dtype: {_DTYPES[dtypes.pop()]}"] if len(dtypes) == 1 else []
    return "\n".join(lines) + "\n"


def _card(name: str, done: Reordered) -> Iterator[str]:
    absent = sorted(set(range(done.blocks)) - set(done.order))
    repeated = sorted({number for number in done.order if done.order.count(number) > 1})
    damped = f", but for the factors {card.code(done.edit)}" if done.edit else ""
    yield f"# {card.code(name)}, blocks in another order"
    yield ""
    yield (
        f"The {len(done.order)} blocks of this model are those of {card.code(name)} in the order"
        f" {card.code(order_text(done.order))}, written by `lesion apply` (lesion {version('lesion')}). Nothing"
        f" was trained; every tensor is one of the base model, bit for bit{damped}. {card.code(RECIPE)} is the same for"
        " mergekit."
    )
    yield ""
    yield f"Left out: {order_text(absent) or 'none'}. Repeated: {order_text(repeated) or 'none'}."
    yield card.LOADING
    if done.left_out:
        yield f"\nFiles of the base model that were not copied: {', '.join(map(card.code, done.left_out))}."
