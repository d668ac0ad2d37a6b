"""Preflight: what is wrong before weights are loaded: in names and files alone, without torch, and in tokenizers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lesion.core.study_file import ModelChoice, Questions, StudyFile, TaskChoice
from lesion.edits.edit import parts, path_of
from lesion.edits.text import parse
from lesion.errors import LesionError, UsageError
from lesion.files import read_object
from lesion.models.gguf import read_header
from lesion.models.gguf_checkpoint import pending
from lesion.models.names import no_experts, refuse_device
from lesion.models.quantised import refuse_unreadable
from lesion.models.source import find as find_source
from lesion.tasks.catalogue import find
from lesion.tasks.conversation import Named
from lesion.tasks.prompts import resolve
from lesion.tasks.query import HEAD
from lesion.tasks.style import Style
from lesion.tasks.task import Task

_BLOCKS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def look_ahead(study: StudyFile) -> None:
    """Refuse a study whose models, tasks, blocks or edits are not there, as far as a look tells."""
    refuse_device(getattr(study, "device", "auto"))
    for name in _tasks(study):
        if HEAD not in name.split(":")[:-1]:  # the library of lm-evaluation-harness takes seconds to load
            find(name)
    blocks = {chosen.name: blocks_of(chosen.source, chosen.revision) for chosen in _models(study)}
    study.look_ahead({name: count for name, count in blocks.items() if count is not None})
    edits = getattr(study, "edits", ())
    texts, units = (edits, ()) if isinstance(edits, tuple) else ((), edits.unit)
    for chosen in _models(study):
        refuse_no_part(
            chosen.source,
            [*texts, *(f"{place}×0" for place in getattr(study, "places", ()))],
            units,
            revision=chosen.revision,
        )


def blocks_of(source: str | Path, revision: str | None = None) -> int | None:
    """The number of blocks by a local config.json or GGUF file; None of a hub id, or where it says none."""
    place = find_source(str(source), revision)
    if place.file is not None:
        return read_header(Path(place.place) / place.file).blocks
    config = _config(source, revision)
    stated = [config[key] for key in _BLOCKS if type(config.get(key)) is int]
    return stated[0] if len(set(stated)) == 1 else None


def _config(source: str | Path, revision: str | None) -> dict[str, Any]:
    """A local config.json, of a model with a picture's part too that of its text; empty of a hub id and a GGUF file."""
    place = find_source(str(source), revision)
    if not place.local or place.file is not None:
        return {}
    config: Any = read_object(Path(place.place) / "config.json")
    refuse_unreadable(config, str(source))
    text = config.get("text_config")
    return text if isinstance(text, dict) else config


def refuse_no_part(
    source: str | Path, edits: Iterable[str], units: Collection[str] = (), *, revision: str | None = None
) -> None:
    """Refuse experts in blocks that have none, and heads of convolutions, as far as a local config.json tells.

    Args:
        edits: in text form, or files, which are not looked at.
        units: of a sweep over blocks.
    """
    written = [part for text in edits if path_of(text) is None for part in parts(parse(text))]
    addresses = [str(getattr(part, "address", "")) for part in written]
    if not any(".expert" in address or ".attention." in address for address in addresses) and "expert" not in units:
        return
    config = _config(source, revision)
    without = bool(config) and not any(
        key for key, value in config.items() if "expert" in key and value not in (None, 0, 1)
    )
    for address in [*addresses, *(["0.mlp.expert"] if "expert" in units and without else [])]:
        number, _, part = address.partition(".")
        layer = int(number or 0)
        kind = _without_heads(config, layer)
        if part.startswith("mlp.expert") and (without or _is_dense(config, layer)):
            if kind and config["model_type"] in _WITHOUT_MLP:
                raise UsageError(f"Block {layer} of {source} is a {kind}, which has no MLP. Edit {layer} as a whole.")
            raise no_experts(layer, str(source))
        if part.split(".")[1:2] in (["head"], ["group"]) and kind:
            raise UsageError(
                f"Block {layer} of {source} is a {kind}, which has no heads. Edit {layer}.attention as a whole."
            )


# Types whose state-space layers have no MLP behind them; those of the first three have no other layers.
_WITHOUT_MLP = ("mamba", "mamba2", "falcon_mamba", "zamba", "zamba2", "nemotron_h")


def _without_heads(config: Mapping[str, Any], layer: int) -> str:
    """What a block is that has no heads, by the keys in which configurations of transformers say so; else empty."""
    model_type, state = config.get("model_type"), "state-space layer"
    if model_type in {*_WITHOUT_MLP[:3], "rwkv"}:
        return state
    names = {"conv": "convolution", "mamba": state, "mamba2": state, "recurrent": "recurrent layer"}
    if model_type in {"granitemoehybrid", *_WITHOUT_MLP[3:]}:
        names["linear_attention"] = state
    kinds = (_at(config.get(key), layer) for key in ("layer_types", "layers_block_type", "block_types"))
    return next((names[kind] for kind in kinds if kind in names), "")


def _is_dense(config: Mapping[str, Any], layer: int) -> bool:
    """Whether the MLP of a block has no experts, by the keys in which configurations of transformers say so."""
    first = config.get("first_k_dense_replace", config.get("num_dense_layers")) or 0
    period, offset = config.get("expert_layer_period") or 1, config.get("expert_layer_offset") or 0
    return (
        _at(config.get("mlp_layer_types"), layer) == "dense"
        or layer < first
        or layer in (config.get("mlp_only_layers") or ())
        or (config.get("moe_layers") is not None and layer not in config["moe_layers"])
        or layer % period != offset % period
    )


def _at(kinds: Sequence[str] | None, layer: int) -> str | None:
    return kinds[layer] if kinds is not None and layer < len(kinds) else None


def _models(study: StudyFile) -> Iterator[ModelChoice]:
    for value in (getattr(study, "model", None), *getattr(study, "models", ())):
        if isinstance(value, ModelChoice):
            yield value
    if weights := getattr(study, "weights", None):
        yield ModelChoice(source=weights)


def _tasks(study: StudyFile) -> Iterator[str]:
    single = (getattr(study, "task", None), getattr(study, "skill", None))
    for value in (*getattr(study, "tasks", ()), *single, *getattr(study, "controls", ())):
        if isinstance(value, TaskChoice | str):
            yield value.name if isinstance(value, TaskChoice) else value


def refuse_unfit_styles(
    study: Questions,
    chosen: ModelChoice,
    tasks: Mapping[TaskChoice, Task] | None = None,
    *,
    trust_remote_code: bool = False,
) -> None:
    """Refuse a chat, or settings of one, for which a model has no chat template or one that does not heed them.

    A GGUF file that is not converted yet is not looked at: its tokenizer comes with the conversion.
    """
    styles = {task: Style.parse(style or "") for task, style in study.styles_of(chosen).items()}
    chats = {task: style for task, style in styles.items() if style.set or style.name == "chat"}
    if not chats or pending(find_source(str(chosen.source), chosen.revision)):
        return
    from lesion.models.load import tokenizer_of

    tokenizer = tokenizer_of(chosen.source, revision=chosen.revision, trust_remote_code=trust_remote_code)
    known = {choice.name: task for choice, task in (tasks or {}).items()}
    reader = Named(str(chosen.source), tokenizer)
    for task, style in chats.items():
        resolve(reader, known.get(task) or find(task), str(style))


def refuse_unshared(chosen: ModelChoice, study: str, *, trust_remote_code: bool = False) -> None:
    """Refuse a model whose prompts cannot be shared between edits for a study that needs it.

    A GGUF file that is not converted yet is not looked at.
    """
    if not pending(find_source(str(chosen.source), chosen.revision)):
        from lesion.engines.transformers.engine import refuse_unloaded
        from lesion.models.load import configuration

        config = configuration(chosen.source, revision=chosen.revision, trust_remote_code=trust_remote_code)
        refuse_unloaded(config, chosen.name, study)


def refuse_no_folder(folder: str | Path) -> None:
    """Refuse to read a study where there is no folder."""
    if not Path(folder).is_dir():
        what = "a file" if Path(folder).exists() else "not there"
        raise LesionError(f"There is no study in {folder}: it is {what}. Give the folder that a study was run into.")
