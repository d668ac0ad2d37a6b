"""Reordering: a checkpoint written again with its blocks in another order, repeated or left out, tensor by tensor."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lesion.arguments import validated
from lesion.edits.files import card
from lesion.edits.files.checkpoint import (
    config_of,
    local_config,
    refuse_full,
    refuse_quantised,
    resolve,
)
from lesion.edits.files.folder import base_card, copied, copy_others, emerging, note_made, refuse_occupied
from lesion.edits.files.layout import skeleton as network_of
from lesion.edits.files.layout import tensors_of
from lesion.errors import LesionError, UsageError
from lesion.files import read_object
from lesion.models.order import (
    Order,
    arranged,
    order_text,
    parse_order,
    runs,
    settings_of,
)
from lesion.models.reordered import path_of, refuse_other_functions
from lesion.models.source import BUNDLED
from lesion.models.stored import Checkpoint, Entry, inside, survey
from lesion.progress import Silent, Watcher

RECIPE = "mergekit.yaml"
"""The same order as a recipe of mergekit, beside the checkpoint."""
_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


@dataclass(frozen=True)
class Reordered:
    """What was written.

    Attributes:
        folder: of the checkpoint.
        order: its blocks, by their numbers in the model.
        blocks: how many the model has.
        left_out: files of the model that were not copied.
    """

    folder: Path
    order: Order
    blocks: int
    left_out: tuple[str, ...]


@validated
def save_reordered(
    source: str | Path,
    order: str | Sequence[int],
    out: Path | str,
    *,
    revision: str | None = None,
    watcher: Watcher | None = None,
) -> Reordered:
    """Write a model's checkpoint with its blocks in another order, as `reordered` has them in memory.

    Tensors are copied byte for byte under the numbers of their new places, each into the shard that it came from;
    config.json has the new number of blocks and the kind of attention of each. The model is not loaded. Beside the
    checkpoint lies the order as a recipe of mergekit (`mergekit.yaml`, passthrough).

    Args:
        source: `bundled:NAME`, a folder, a GGUF file, or a hub id.
        order: the blocks from first to last: text such as `"0-13,10-29"`, or a list of numbers.
        out: a folder that does not exist or is empty. It gets its name when everything is written.
        revision: branch, tag or commit of a hub id.
        watcher: receives progress and notes.

    Raises:
        UsageError: the order is empty, or names a block that the model does not have; `out` is occupied.
        LesionError: a block would be another function at its new place; the checkpoint is quantised, damaged or not in
            safetensors, or has further blocks than its configuration; `out` cannot be written.
    """
    out, name, watcher = Path(out), str(source), watcher or Silent()
    refuse_occupied(out)
    refuse_quantised(local_config(name, revision), name)
    folder = resolve(name, revision)
    if out.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{out} lies inside the model's own folder; give --out another place.")
    checkpoint = survey(folder, name)
    config = config_of(folder, name)
    anatomy, network, _ = network_of(config, name)
    blocks = len(anatomy.blocks)
    numbers = parse_order(order, blocks, name)
    path = path_of(network, anatomy)
    _, other, _ = network_of(arranged(config, numbers, blocks), name)
    refuse_other_functions(network, other, path, numbers, name)
    del other
    names = _names(checkpoint.entries, tensors_of(network, checkpoint.entries), path, numbers, blocks, name)
    refuse_full(out, checkpoint)
    with emerging(out, watcher.note) as partial:
        _write(checkpoint, partial, names, watcher, name)
        left_out = copy_others(folder, partial, checkpoint, ())
        note_made(partial, name, ["--order", order_text(numbers), *(["--revision", revision] if revision else [])])
        done = Reordered(out, numbers, blocks, left_out)
        unloadable = name.startswith(BUNDLED) or Path(name).suffix == ".gguf"  # names that mergekit does not know
        (partial / RECIPE).write_text(
            recipe(str(folder) if unloadable else name, numbers, checkpoint), encoding="utf-8"
        )
        base_card(folder, partial, _card(name, done))
        text = json.dumps(_configuration(folder, config, numbers, blocks), indent=2, ensure_ascii=False)
        (partial / "config.json").write_text(text + "\n", encoding="utf-8")
    return done


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


def _write(
    checkpoint: Checkpoint, target: Path, names: Mapping[str, Sequence[str]], watcher: Watcher, name: str
) -> None:
    watcher.begin(name, len(checkpoint.shards), 0, "shards")
    shard_of: dict[str, str] = {}
    total = 0
    for shard in checkpoint.shards:
        entries = [
            (entry, new) for old, entry in checkpoint.entries.items() if entry.shard == shard for new in names[old]
        ]
        if entries:
            copied(inside(checkpoint.folder, shard), target / shard, entries)
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


def recipe(name: str, order: Sequence[int], checkpoint: Checkpoint) -> str:
    """The order as a YAML recipe of mergekit: a passthrough merge, one slice for each run of blocks (end excluded)."""
    dtypes = {entry.dtype for entry in checkpoint.entries.values()} & _DTYPES.keys()
    lines = ["slices:"]
    for first, last in runs(order):
        lines += ["  - sources:", f"      - model: {json.dumps(name)}", f"        layer_range: [{first}, {last + 1}]"]
    lines.append("merge_method: passthrough")
    lines += [f"dtype: {_DTYPES[dtypes.pop()]}"] if len(dtypes) == 1 else []
    return "\n".join(lines) + "\n"


def _card(name: str, done: Reordered) -> Iterator[str]:
    absent = sorted(set(range(done.blocks)) - set(done.order))
    repeated = sorted({number for number in done.order if done.order.count(number) > 1})
    yield f"# {card.code(name)}, blocks in another order"
    yield ""
    yield (
        f"The {len(done.order)} blocks of this model are those of {card.code(name)} in the order"
        f" {card.code(order_text(done.order))}, written by `lesion apply` (lesion {version('lesion')}). Nothing"
        f" was trained; every tensor is one of the base model, bit for bit. {card.code(RECIPE)} is the same order for"
        " mergekit."
    )
    yield ""
    yield f"Left out: {order_text(absent) or 'none'}. Repeated: {order_text(repeated) or 'none'}."
    yield card.LOADING
    if done.left_out:
        yield f"\nFiles of the base model that were not copied: {', '.join(map(card.code, done.left_out))}."
