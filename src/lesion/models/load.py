"""Load: a hub id, a local folder or a bundled checkpoint becomes a model ready for study."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MULTIMODAL_LM_MAPPING
from transformers.utils import cached_file

from lesion.arguments import shown, validated
from lesion.errors import LesionError, UsageError
from lesion.files import reason
from lesion.models.anatomy import dissect
from lesion.models.fingerprint import fingerprint, not_finite, surroundings
from lesion.models.gguf_checkpoint import as_folder, storage_of
from lesion.models.model import Model as Model
from lesion.models.model import Origin
from lesion.models.names import device_of, refuse_dtype
from lesion.models.owner import refuse_edited
from lesion.models.quantised import ORIGINAL, Quantisation, hushed, quantisation
from lesion.models.quiet import quiet
from lesion.models.source import ADAPTER, Source, explained, find, refuse_adapter, refuse_unsuited
from lesion.models.stored import INDEX, files, header, listing, refuse_packed, with_index
from lesion.plain import short, some
from lesion.threads import warn_of_spinning

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

# Ways of accelerate to spread a network over devices.
_SPREADS = ("auto", "balanced", "balanced_low_0", "sequential")
DTYPES = {
    **dict.fromkeys(("float32", "fp32"), torch.float32),
    **dict.fromkeys(("bfloat16", "bf16"), torch.bfloat16),
    **dict.fromkeys(("float16", "fp16"), torch.float16),
}

PROBE = "Hello there,  wide World! It's 12+34=46.\n\n\tNaïve “quotes” — (3/4) of $1,200.\n"
"""A text that tokenizers of other rules cut otherwise."""


@validated
def wrap(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str) -> Model:
    """A model from objects already in memory. The network is put into eval mode, its gradients off."""
    _refuse_others(network)
    refuse_edited(network, name, "a fingerprint")
    settle_outputs(network.config)
    storage = quantisation(network.config)
    if storage is not None:
        _settle(network, storage, name)
    network.eval().requires_grad_(False)
    absent = [key for key, tensor in network.named_parameters() if tensor.is_meta]
    if absent:
        raise LesionError(
            f"{name} does not fit: {len(absent)} of its parameters ({some(sorted(absent))}) would be swapped in "
            "from main memory or disk, where no edit reaches them. Use a smaller dtype (bfloat16) or more "
            "devices."
        )
    print_of_weights, broken = fingerprint(network), not_finite(network)
    anatomy, around = dissect(network, name), surroundings(network)
    return Model(network, tokenizer, anatomy, name, print_of_weights, None, broken, storage, around)


def _refuse_others(network: object) -> None:
    if hasattr(network, "_orig_mod"):
        raise UsageError(
            "wrap: network is compiled (torch.compile), and edits do not reach into compiled code; give the network "
            "that was compiled."
        )
    if not isinstance(network, torch.nn.Module) or not hasattr(network, "get_input_embeddings"):
        raise UsageError(f"wrap: network must be a causal language model of transformers, not {shown(network)}.")


def settle_outputs(config: PretrainedConfig) -> None:
    """Have passes give logits by name and nothing else, whatever a config.json wants of them; in place."""
    for part in {id(part): part for part in (config, config.get_text_config(decoder=True))}.values():
        for attribute, value in _OUTPUTS.items():
            if getattr(part, attribute, value) != value:
                setattr(part, attribute, value)


_OUTPUTS = {"return_dict": True, "output_attentions": False, "output_hidden_states": False, "torchscript": False}


@torch.no_grad()
def _settle(network: PreTrainedModel, storage: Quantisation, name: str) -> None:
    """One forward pass over a token: some packages bring packed weights into their last form in the first pass.

    A fingerprint from before it would never come again.
    """
    network.eval()
    for part in network.modules():
        # On some processors bitsandbytes (0.50) lays 4-bit weights out anew in the first pass, and back at every look
        # at the state: scales are rounded, and come back in another order where a row has several.
        if getattr(getattr(getattr(part, "weight", None), "quant_state", None), "packing_format_for_cpu", False):
            raise LesionError(
                f"{name} is stored quantised ({storage}), and a forward pass has changed how its weights lie in memory,"
                " which cannot be taken back exactly. Load it afresh with lesion.load."
            )
        if hasattr(part, "support_avx512bf16_for_cpu"):
            part.support_avx512bf16_for_cpu = False
    try:
        with hushed(storage):
            network(input_ids=torch.zeros(1, 1, dtype=torch.long, device=network.get_input_embeddings().weight.device))
    except Exception as error:  # what packages raise has no common base; the reason is kept and said
        raise LesionError(
            f"{name} is stored quantised ({storage}), and a forward pass over one token fails here: {reason(error)}. "
            f"Mend that, or {ORIGINAL}."
        ) from error


def refuse_not_finite(model: Model, name: str) -> None:
    """Refuse a model, called `name` in the study, with NaN or infinite weights."""
    if model.not_finite:
        raise LesionError(
            f"{model.complaint(name)} What it says means nothing: get the checkpoint again, or load it in a dtype in "
            f"which its weights are finite."
        )


def _dtype(dtype: str | torch.dtype, on_cpu: bool) -> torch.dtype | str:
    if isinstance(dtype, torch.dtype):
        if dtype not in DTYPES.values():
            raise UsageError(f"A model cannot be studied in {dtype}; use float32, bfloat16 or float16.")
        return dtype
    if dtype == "auto":
        # Half precision saves memory on an accelerator; on a CPU it is slower and less exact.
        return torch.float32 if on_cpu else "auto"
    refuse_dtype(dtype)
    return DTYPES[dtype]


def _spread(device_map: str | dict[str, Any]) -> str | dict[str, Any]:
    """A device map as it is; refuses one that names no devices."""
    if isinstance(device_map, str):
        if device_map not in _SPREADS:
            device_of(device_map)
        return device_map
    for module, device in device_map.items() or [("", None)]:
        if not isinstance(device, str | int | torch.device) or isinstance(device, bool):
            raise UsageError(
                f"A device_map gives each part of a network a device, as {{'': 'cpu'}} or {{'model': 0, 'lm_head': 1}};"
                f" {shown(device)} for {shown(module)} is none."
            )
        if device != "disk":
            device_of(device)
    return device_map


def _refuse_misfits(loading_info: Mapping[str, Collection[Any]], typed: str, body: str) -> None:
    """Refuse weights that do not fit the configuration, naming some; `body`: the module that all but the head is in."""
    shapes = [
        f"{key}: {tuple(have)} instead of {tuple(want)}" for key, have, want in loading_info.get("mismatched_keys", ())
    ]
    misfits = {
        "missing": loading_info.get("missing_keys"),
        "that the configuration has no place for": loading_info.get("unexpected_keys"),
        "of another shape": shapes,
    }
    clauses = [f"{len(names)} {what} ({some(sorted(names))})" for what, names in misfits.items() if names]
    why = "One of the two belongs to another model, or the download or the save is incomplete."
    if len(clauses) == 1 and all(not key.startswith(f"{body}.") for key in misfits["missing"] or (f"{body}.",)):
        why = "The model was saved without its output head, as AutoModel does; save it with AutoModelForCausalLM."
    if clauses:
        raise LesionError(f"The weights of {typed} do not fit its config.json: {'; '.join(clauses)}. {why}")


def _read(
    part: str,
    loader: Any,
    source: Source,
    typed: str,
    trust_remote_code: bool,
    storage: Quantisation | None = None,
    **settings: Any,
) -> Any:
    """A part of a model; what fails where a quantised `storage` is read is said of that, for the files may be whole."""
    try:
        with nullcontext() if storage is None else hushed(storage):
            return loader(source.place, revision=source.revision, trust_remote_code=trust_remote_code, **settings)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise LesionError(
            f"{typed} does not fit into memory: use a smaller dtype, a larger device, or a device_map over "
            "several of them."
        ) from error
    except Exception as error:  # what transformers raises here has no common base; the reason is kept and said
        if "trust_remote_code" in str(error):
            raise LesionError(
                f"{typed} comes with code of its own, which runs only when you trust it: look at the code, "
                "then say trust_remote_code (--trust-remote-code)."
            ) from error
        if storage is not None:
            raise LesionError(
                f"{typed} is stored quantised ({storage}) and cannot be loaded here: {reason(error)}. Mend that, or"
                f" {ORIGINAL}."
            ) from error
        raise explained(error, source, typed, part) from error


def _looked_at(place: Source, typed: str) -> Path | None:
    """Refuse weights that transformers would read in another way than as safetensors; the folder, where it is local."""
    if place.local:
        files(Path(place.place), typed)
        return Path(place.place)
    for name in (INDEX, ADAPTER):
        try:
            path = cached_file(place.place, name, revision=place.revision)
        except OSError:  # it is not there, or nothing is: reported when the weights are read
            continue
        if path is not None and name == INDEX:
            listing(Path(path))
        elif path is not None:
            refuse_adapter(Path(path).parent, typed)
    return None


@validated
def peek(source: str | Path, *, revision: str | None = None, trust_remote_code: bool = False) -> int | None:
    """The number of blocks in a model's config, None where it has none; raises as `configuration`."""
    config = configuration(source, revision=revision, trust_remote_code=trust_remote_code)
    blocks = getattr(config.get_text_config(decoder=True), "num_hidden_layers", None)
    return blocks if isinstance(blocks, int) else None


@validated
def configuration(
    source: str | Path, *, revision: str | None = None, trust_remote_code: bool = False
) -> PretrainedConfig:
    """The config of a decoder; its weights are not read. Raises as `load`, as far as the config tells."""
    place = as_folder(find(str(source), revision))
    with quiet():
        return _configuration(place, str(source), trust_remote_code)


def _configuration(place: Source, typed: str, trust_remote_code: bool) -> PretrainedConfig:
    config: PretrainedConfig = _read("configuration", AutoConfig.from_pretrained, place, typed, trust_remote_code)
    refuse_unsuited(config, typed)
    return config


@validated
def tokenizer_of(
    source: str | Path, *, revision: str | None = None, trust_remote_code: bool = False
) -> PreTrainedTokenizerBase:
    """The tokenizer of a decoder; its weights are not read. Raises as `load`, as far as config and tokenizer tell."""
    configuration(source, revision=revision, trust_remote_code=trust_remote_code)
    place = as_folder(find(str(source), revision))
    with quiet():
        tokenizer: PreTrainedTokenizerBase = _read("tokenizer", read_tokenizer, place, str(source), trust_remote_code)
        return tokenizer


@validated
def load(
    source: str | Path,
    *,
    revision: str | None = None,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "auto",
    device_map: str | dict[str, Any] | None = None,
    trust_remote_code: bool = False,
) -> Model:
    """Load a decoder and its tokenizer, and take it apart.

    Args:
        source: `bundled:NAME`, a local folder, or a hub id (`OWNER/NAME`); behind the latter two also `@REVISION`. Or a
            GGUF file: its path, the folder it lies in, or `OWNER/NAME:FILE.gguf`; its weights become float32, and the
            conversion is kept in the cache.
        revision: branch, tag or commit of a hub id; of a folder, the name of one of its checkpoints over training
            (`lesion.models.source.revisions`).
        dtype: `float32`, `bfloat16`, `float16`, or `auto`: the checkpoint's own on an accelerator, float32 on
            a CPU.
        device: `cpu`, `cuda`, `cuda:1`, …, or `auto`: a GPU if there is one.
        device_map: spread over devices as accelerate does it (`auto`, `balanced`, or a mapping), in place of
            `device`.
        trust_remote_code: run the code that came with the checkpoint. Off unless you have read it.

    Raises:
        UsageError: the folder, its revision, the bundled model, the dtype or the device does not exist.
        LesionError: no network, an unknown hub id, no config, tokenizer or safetensors weights, weights that
            do not fit the config, a quantised storage whose package is missing, a model that is not a decoder, or
            one that does not fit into memory.

    Warns:
        UserWarning: on a busy machine, torch's threads wait for each other in a way that makes everything slow.
    """
    warn_of_spinning(torch.get_num_threads())
    if sys.flags.optimize > 1:
        raise LesionError(
            "Python runs with -OO (or PYTHONOPTIMIZE=2), which takes away the docstrings that transformers builds its"
            " networks by; start it without."
        )
    typed = str(source)
    located = find(typed, revision)
    if device_map is not None and str(device) != "auto":
        raise UsageError("Give either a device or a device_map, not both.")
    target = device_of(device)
    place = as_folder(located)
    on_cpu = target.type == "cpu" if device_map is None else not torch.cuda.is_available()
    settings: dict[str, Any] = {"dtype": _dtype(dtype, on_cpu)}
    if device_map is not None:
        settings["device_map"] = _spread(device_map)
    elif not on_cpu:
        settings["device_map"] = {"": target}  # straight to the device, without a copy in main memory
    with quiet():
        config = _configuration(place, typed, trust_remote_code)
        settle_outputs(config)
        storage = quantisation(config)  # transformers takes it out of the configuration where it dequantises
        folder = _looked_at(place, typed)
        if folder is not None:
            refuse_implausible(config, folder, typed)
        tokenizer = _read("tokenizer", read_tokenizer, place, typed, trust_remote_code)
        with nullcontext() if folder is None else with_index(folder, typed) as indexed:
            network, loading_info = _read(
                "weights",
                _reader(config, typed),
                place if indexed is None else replace(place, place=str(indexed)),
                typed,
                trust_remote_code,
                storage,
                config=config,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # so that all of them are named, not the first
                **settings,
            )
        _refuse_misfits(loading_info, typed, network.base_model_prefix)
        parameters = {key for key, _ in network.named_parameters(remove_duplicate=False)}
        if folder is None:  # by now the hub's files are in the cache
            folder = Path(str(cached_file(place.place, "config.json", revision=place.revision))).parent
        if storage is None:
            refuse_packed(folder, typed, parameters)
        elif quantisation(network.config) is None and isinstance(settings["dtype"], torch.dtype):
            network.to(settings["dtype"])  # transformers dequantises to the dtype of the checkpoint
        refuse_foreign_tokenizer(tokenizer, network, typed)
        model = wrap(network, tokenizer, typed)
        origin = Origin(typed, revision, model.dtype_name, trust_remote_code, storage_of(folder))
        return replace(model, origin=origin, quantisation=storage)


def _reader(config: PretrainedConfig, typed: str) -> Callable[..., Any]:
    """What loads a network: as a causal language model, or the whole of a model that also sees or hears, whose text
    model answers where it is given text alone.
    """
    kind, architectures = type(config), getattr(config, "architectures", None) or []
    causal, several = kind in MODEL_FOR_CAUSAL_LM_MAPPING, kind in MODEL_FOR_MULTIMODAL_LM_MAPPING
    whole = several and MODEL_FOR_MULTIMODAL_LM_MAPPING[kind].__name__ in architectures
    text_alone = hasattr(config, "auto_map") or (causal and not whole)
    if text_alone or several:
        kind = transformers.AutoModelForCausalLM if text_alone else transformers.AutoModelForMultimodalLM
        reads: Callable[..., Any] = kind.from_pretrained
        return reads
    named = ", ".join(architectures) or kind.__name__
    raise LesionError(
        f"{typed} is a {named} ({config.model_type}), and transformers {transformers.__version__} has no model of this"
        " kind that continues a text; lesion studies decoders (causal language models)."
    )


DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
WIDTHS = ("vocab_size", "hidden_size", "n_embd", "d_model", "intermediate_size", "n_inner", "ffn_dim")


def refuse_implausible(config: PreTrainedConfig, folder: Path, typed: str) -> None:
    """Refuse a configuration of more blocks than there are tensors in its folder, or wider than the largest of them.

    A network is built as its configuration says before its weights are read: one of a million blocks would take all
    memory. A folder without safetensors files is let through.
    """
    try:
        entries = [entry for file in sorted(folder.glob("*.safetensors")) for entry in header(file).values()]
    except LesionError:  # a damaged file is told where its weights are read
        return
    if not entries:
        return
    count, widest = len(entries), max(max(entry.shape, default=0) for entry in entries)
    stated_by = config.get_text_config(decoder=True).to_dict()
    there_are, there_is = f"are {count:,} tensors", f"is no tensor with more than {widest:,} rows or columns"
    limits = [(name, count, there_are) for name in DEPTHS] + [(name, widest, there_is) for name in WIDTHS]
    for name, most, held in limits:
        stated = stated_by.get(name)
        if isinstance(stated, int) and stated > most:
            raise LesionError(
                f"The weights of {short(typed, 200)} do not fit its config.json: {name} is {short(stated)}, and there"
                f" {held}. One of the two belongs to another model."
            )


def refuse_foreign_tokenizer(tokenizer: PreTrainedTokenizerBase, network: PreTrainedModel, typed: str) -> None:
    """Refuse a tokenizer whose vocabulary, without added tokens, has no room in the embedding."""
    rows = int(network.get_input_embeddings().weight.shape[0])
    words = int(getattr(tokenizer, "vocab_size", 0) or 0)
    if words > rows:
        raise LesionError(
            f"The tokenizer of {short(typed, 200)} has {words:,} tokens, and the model's embedding {rows:,} rows: it is"
            " the tokenizer of another model. Save the model's own tokenizer into its folder."
        )


def read_tokenizer(
    place: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or hub id, as it came: no token is added.

    For some architectures (`qwen2` is one) transformers builds the tokenizer of the architecture out of the
    checkpoint's vocabulary, whatever rules stand in tokenizer.json, and may lose characters. So both read a probe, and
    where they disagree, the file counts.
    """
    from tokenizers import Tokenizer

    tokenizer = AutoTokenizer.from_pretrained(place, revision=revision, trust_remote_code=trust_remote_code)
    file = cached_file(
        place,
        "tokenizer.json",
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if file is None:
        if len(tokenizer) <= len(tokenizer.all_special_ids):
            # Where no file is there, transformers makes some architectures a tokenizer that knows no words.
            raise ValueError("there are no words in its vocabulary")
        return tokenizer
    own = Tokenizer.from_file(file)
    # A file may come with a maximum length or padding of its own, which is not about rules.
    own.no_truncation()
    own.no_padding()
    if own.encode(PROBE, add_special_tokens=False).ids == list(tokenizer(PROBE, add_special_tokens=False)["input_ids"]):
        return tokenizer
    return PreTrainedTokenizerFast.from_pretrained(place, revision=revision, trust_remote_code=trust_remote_code)
