"""GGUF checkpoint: a GGUF file converted once into an ordinary folder in the cache, from which it is loaded ever after.

Its weights become float32. Half precision would round them: a weight in Q4_1 is a half-precision scale times four bits,
plus a half-precision minimum. Tokenizer and chat template are those that transformers makes of the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lesion.atomic import alive
from lesion.errors import LesionError
from lesion.files import cache_folder, reason
from lesion.models.gguf import Header, read_header, read_tensor
from lesion.models.source import Source, explained, refuse_unsuited
from lesion.plain import some

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

NOTE = "gguf.json"
"""In a converted folder: what was stored how."""
FORM = 2
"""Of the conversion; another one converts anew."""
_SAMPLES, _SAMPLE = 256, 1 << 16  # of the bytes of a file, in its key


def as_folder(source: Source) -> Source:
    """The source itself, or where it is a GGUF file the folder of its conversion, made now if it is not there yet."""
    if source.file is None:
        return source
    header = read_header(fetched(source))
    folder = _place(header)
    if not (folder / NOTE).is_file():
        _convert(header, folder)
    return Source(str(folder), True)


def fetched(source: Source) -> Path:
    """The GGUF file of a source, from the hub's cache or the hub where it lies there."""
    assert source.file is not None
    if source.local:
        return Path(source.place) / source.file
    from transformers.utils import cached_file

    try:
        return Path(str(cached_file(source.place, source.file, revision=source.revision)))
    except Exception as error:  # what transformers raises here has no common base; the reason is kept and said
        raise explained(error, source, f"{source.place}:{source.file}", "file") from error


def pending(source: Source) -> str:
    """What a person should know before the file is loaded: that it is converted first. Empty where it is not."""
    if source.file is None:
        return ""
    header = read_header(fetched(source))
    if (_place(header) / NOTE).is_file():
        return ""
    return (
        f"{source.file} is converted once: {header.weights:,} weights to float32 ({4 * header.weights / 1e6:,.0f} MB), "
        f"in {cache_folder('gguf')}"
    )


def storage_of(folder: Path) -> str:
    """How the weights of a converted folder are stored in their GGUF file; empty of any other folder."""
    try:
        return str(json.loads((folder / NOTE).read_text("utf-8"))["storage"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _place(header: Header) -> Path:
    """The folder of a file's conversion, by the form of the conversion and the file's content.

    Its content is its size, its header and `_SAMPLES` pieces of its data: reading tens of gigabytes would take minutes.
    Since a change of single weights can lie between the pieces, the time of the last change counts too.
    """
    path = header.path.resolve()
    status = path.stat()
    digest = hashlib.sha256(f"{FORM} {status.st_size} {status.st_mtime_ns}".encode())
    digest.update(repr(sorted(header.metadata.items(), key=lambda entry: entry[0])).encode())
    digest.update(repr([tuple(asdict(tensor).values()) for tensor in header.tensors]).encode())
    step = max(_SAMPLE, status.st_size // _SAMPLES)
    with path.open("rb") as file:
        for start in range(0, status.st_size, step):
            file.seek(start)
            digest.update(file.read(_SAMPLE))
    return cache_folder("gguf") / digest.hexdigest()[:24]


def _convert(header: Header, folder: Path) -> None:
    """Write the folder beside its place and move it there, so that nobody ever loads half of it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for leftover in folder.parent.glob(".partial-*-*"):
            if not alive(leftover.name.split("-")[1]):
                shutil.rmtree(leftover, ignore_errors=True)
        free = shutil.disk_usage(folder.parent).free
        if free < 4 * header.weights:
            raise LesionError(
                f"{header.path} converted to float32 takes {4 * header.weights / 1e6:,.0f} MB, and {folder.parent} has "
                f"{free / 1e6:,.0f} MB left: make room there, or give another folder by the environment variable "
                "LESION_CACHE."
            )
        partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".partial-{os.getpid()}-"))
    except OSError as error:
        raise LesionError(
            f"{folder.parent}, where GGUF files are converted, cannot be written: {reason(error)}. Give another folder "
            "by the environment variable LESION_CACHE."
        ) from error
    try:
        _write(header, partial)
        (partial / NOTE).write_text(json.dumps({"storage": header.storage, "file": header.path.name}) + "\n", "utf-8")
        partial.rename(folder)
    except OSError as error:
        if not (folder / NOTE).is_file():  # else another process was first
            raise LesionError(f"{folder.parent} cannot be written: {reason(error)}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(header: Header, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from lesion.models.quiet import quiet

    if header.architecture in _NOT_READ:
        raise _unknown(header)
    home, name = str(header.path.parent), header.path.name
    with quiet(), redirect_stderr(io.StringIO()):  # the bar over tensors knows no other way to be silent
        config = _read("configuration", AutoConfig.from_pretrained, home, header, gguf_file=name)
        refuse_unsuited(config, str(header.path))
        complete(config, header)
        tokenizer = _read("tokenizer", AutoTokenizer.from_pretrained, home, header, gguf_file=name)
        network, loading = _read(
            "weights",
            AutoModelForCausalLM.from_pretrained,
            home,
            header,
            gguf_file=name,
            config=config,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # so that they are named
        )
        for key, have, want in loading.get("mismatched_keys") or ():
            raise LesionError(
                f"{header.path} holds {key} of {tuple(have)} weights, and by its header there are {tuple(want)}: it is "
                "damaged, or was converted wrongly. Get it again."
            )
        refuse_unread(network, header)
        missing = sorted(loading.get("missing_keys") or ())
        if missing:
            raise LesionError(
                f"{header.path} lacks weights of its architecture: {', '.join(missing[:3])}. Get it again."
            )
        network.hf_quantizer, network.is_quantized = None, False  # the weights are float32 by now
        if hasattr(network.config, "quantization_config"):
            del network.config.quantization_config
        network.save_pretrained(folder, max_shard_size="1TB")
        tokenizer.save_pretrained(folder)


def _read(part: str, loader: Any, home: str, header: Header, **settings: Any) -> Any:
    try:
        return loader(home, **settings)
    except MemoryError as error:
        raise LesionError(f"{header.path} does not fit into memory in float32.") from error
    except Exception as error:  # what transformers raises here has no common base; the reason is kept and said
        if "not supported yet" in str(error) and header.architecture in str(error):
            raise _unknown(header) from error
        raise LesionError(f"The {part} in {header.path} cannot be read by transformers: {reason(error)}.") from error


def _unknown(header: Header) -> LesionError:
    return LesionError(
        f"{header.path} is of the architecture {header.architecture}, which transformers cannot read from GGUF files: "
        f"{_INSTEAD}."
    )


# Of gpt-oss it reads neither the scaling of its rotary embeddings nor experts, of Gemma 4 no heads of two sizes.
_NOT_READ = ("gemma4", "gpt-oss")
ROTARY_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Divisors of the rotary frequencies: of Llama 3.1 and later, and of Phi-3."""
# What the configurations of transformers call the value of a key; those that a configuration has are set.
_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "context_length": ("max_position_embeddings",),
    "vocab_size": ("vocab_size",),
    "block_count": ("num_hidden_layers",),
    "embedding_length": ("hidden_size",),
    "feed_forward_length": ("intermediate_size", "n_inner", "ffn_hidden_size"),
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads", "num_kv_heads"),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", "norm_eps", "layer_norm_epsilon"),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "logit_scale": ("logit_scale",),
    "residual_scale": ("residual_multiplier",),
    "embedding_scale": ("embedding_multiplier",),
    "expert_count": ("num_experts", "num_local_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "expert_weights_norm": ("norm_topk_prob",),
    "expert_weights_scale": ("routed_scaling_factor",),
    "use_parallel_residual": ("use_parallel_residual",),
    "ssm.conv_kernel": ("conv_kernel",),
    "ssm.state_size": ("state_size",),
    "ssm.time_step_rank": ("time_step_rank",),
    "ssm.inner_size": ("intermediate_size",),
    "shortconv.l_cache": ("conv_L_cache",),
}
# Values with which a key changes nothing, for configurations that have no place for it; of all others it is 0.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "logit_scale": (0, 1),
    "residual_scale": (0, 1),
    "embedding_scale": (0, 1),
    "expert_weights_scale": (0, 1),
    "attention.causal": (True,),
    "moe_every_n_layers": (0, 1),
    "interleave_moe_layer_step": (0, 1),
}
_WITHOUT_EFFECT = ("tensor_data_layout", "pooling_type", "rope.scaling.finetuned")
_SCALINGS = ("none", "linear", "yarn", "longrope")


def complete(config: PreTrainedConfig, header: Header) -> None:
    """Put what a file states and transformers' reader left out into the configuration that it has made, in place."""
    prefix = f"{header.architecture}."
    stated = {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)}
    for key, value in stated.items():
        if isinstance(value, tuple) and len(set(value)) == 1:
            stated[key] = value[0]  # the same for every block
    if config.model_type == "lfm2":
        stated.pop("attention.head_count_kv", None)  # by block; read by transformers
    head_size = _head_size(config, header, stated)
    for key, value in stated.items():
        if key not in _WITHOUT_EFFECT and not key.startswith("rope.") and not key.endswith(_OF_HEADS):
            _put(config, header, key, value)
    _windows(config, header, stated)
    _attention_scale(config, header, stated, head_size)
    _rotary(config, header, stated, head_size)
    names = {tensor.name for tensor in header.tensors}
    for attribute, parts in _BIASES.items():  # where some only have a bias, `refuse_unread` names these
        if _has(config, attribute) and names.issuperset(f"blk.0.{part}.bias" for part in parts):
            setattr(config, attribute, True)
    if config.model_type == "falcon" and stated.get("attention.head_count_kv", 1) != 1:
        # llama.cpp writes their queries, keys and values one after another, and transformers does not sort them back.
        raise _refused(header, "attention.head_count_kv", stated["attention.head_count_kv"])


def refuse_unread(network: PreTrainedModel, header: Header) -> None:
    """Refuse a file with tensors that transformers' reader has no place for: it drops them without a word."""
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    processor = TENSOR_PROCESSORS.get(header.architecture, TensorProcessor)(config=network.config.to_dict())
    known = {*get_gguf_hf_weights_map(network, processor), *ROTARY_TENSORS, "output.weight"}
    unread = [t.name for t in header.tensors if not {t.name, t.name.removesuffix(".weight")} & known]  # experts: no end
    if unread:
        raise LesionError(
            f"{header.path} has tensors that transformers' {config_name(network.config)} has no place for: "
            f"{some(unread)}. Without them it is another model: {_INSTEAD}."
        )


_BIASES = {
    "attention_bias": ("attn_q", "attn_k", "attn_v", "attn_output"),
    "mlp_bias": ("ffn_gate", "ffn_up", "ffn_down"),
}
_OF_HEADS = (
    ".key_length",
    ".value_length",
    ".key_length_swa",
    ".value_length_swa",
    ".sliding_window",
    "sliding_window_pattern",
    ".scale",
)
_INSTEAD = "give the model as a folder with safetensors weights"


def config_name(config: PreTrainedConfig) -> str:
    """What transformers calls an architecture: `Llama`."""
    return type(config).__name__.removesuffix("Config").removesuffix("Text")


def _refused(header: Header, key: str, value: object) -> LesionError:
    return LesionError(
        f"{header.path} states {header.architecture}.{key} = {value}, which transformers cannot compute for this "
        f"architecture. Without it, it is another model: {_INSTEAD}."
    )


def _has(config: PreTrainedConfig, attribute: str) -> bool:
    # Not `hasattr`: some configurations raise other errors where a value differs from block to block.
    return config.attribute_map.get(attribute, attribute) in config.to_dict()


def _put(config: PreTrainedConfig, header: Header, key: str, value: object) -> None:
    if key == "context_length" and config.model_type == "bloom":
        return  # no position is too far for it
    attributes = [name for name in _ATTRIBUTES.get(key, ()) if _has(config, name)]
    if attributes and not isinstance(value, tuple):
        for name in attributes:
            setattr(config, name, value)
        return
    own = {
        "feed_forward_length": 4 * config.hidden_size,  # of those that state no other
        "attention.head_count_kv": getattr(config, "num_attention_heads", 0),
        "attention.max_alibi_bias": 8 if config.model_type == "bloom" else 0,
        "expert_gating_func": 2 if getattr(config, "scoring_func", "") == "sigmoid" else 1,
        "use_parallel_residual": config.model_type == "falcon",
        "expert_shared_count": int(_has(config, "shared_expert_intermediate_size")),
    }
    if isinstance(value, tuple) or value not in _NEUTRAL.get(key, (0, own.get(key, 0))):
        raise _refused(header, key, value)


def _head_size(config: PreTrainedConfig, header: Header, stated: Mapping[str, Any]) -> int:
    """The size of a head in keys and queries, put into the configuration."""
    heads = getattr(config, "num_attention_heads", None)
    if not heads:
        return 0  # no attention
    size = int(stated.get("attention.key_length", stated["embedding_length"] // heads))
    for key in ("attention.value_length", "attention.key_length_swa", "attention.value_length_swa"):
        if stated.get(key, size) != size:
            raise _refused(header, key, stated[key])
    if _has(config, "head_dim") or size * heads != config.hidden_size:
        config.head_dim = size
    return size


def _windows(config: PreTrainedConfig, header: Header, stated: Mapping[str, Any]) -> None:
    """Sliding windows, which only some architectures of transformers have, in all blocks or in some."""
    window, pattern = stated.get("attention.sliding_window", 0), stated.get("attention.sliding_window_pattern")
    kinds = list(getattr(config, "layer_types", None) or ())
    if isinstance(pattern, tuple) and kinds:
        kinds = ["sliding_attention" if slides else "full_attention" for slides in pattern]
        config.layer_types = kinds
    elif isinstance(pattern, int) and pattern > 1 and kinds:
        # As llama.cpp counts: the last of each group of so many blocks attends to everything.
        kinds = [("sliding" if (i + 1) % pattern else "full") + "_attention" for i in range(len(kinds))]
        config.layer_types = kinds
    slides = _has(config, "sliding_window") and (not kinds or "sliding_attention" in kinds)
    if window and slides:
        config.sliding_window = window
    elif window and window < stated.get("context_length", math.inf):
        raise _refused(header, "attention.sliding_window", window)
    elif slides and not kinds:
        config.sliding_window = None


def _attention_scale(config: PreTrainedConfig, header: Header, stated: Mapping[str, Any], head_size: int) -> None:
    """What products of queries and keys are multiplied by, where it is not one by the root of the head size."""
    scale = stated.get("attention.scale", 0)
    if _has(config, "query_pre_attn_scalar"):  # the Gemmas; by llama.cpp, those of 27 billion take all of the stream
        largest = {"gemma2": 46, "gemma3_text": 62}.get(config.model_type) == config.num_hidden_layers
        own = config.hidden_size // config.num_attention_heads if largest else head_size
        config.query_pre_attn_scalar = scale**-2 if scale else own
    elif scale and not math.isclose(scale, head_size**-0.5, rel_tol=1e-5):
        raise _refused(header, "attention.scale", scale)


def _rotary(config: PreTrainedConfig, header: Header, stated: Mapping[str, Any], head_size: int) -> None:
    """Rotary embeddings: base, share of a head, and scaling, as llama.cpp computes them."""
    rotary = {key.removeprefix("rope."): value for key, value in stated.items() if key.startswith("rope.")}
    tensors = {t.name: read_tensor(header, t) for t in header.tensors if t.name in ROTARY_TENSORS}
    own: dict[str, Any] | None = getattr(config, "rope_parameters", None)
    known = (*_NO_SCALING, *_SCALING, "freq_base", "freq_base_swa", "dimension_count", "dimension_count_swa")
    for key, value in rotary.items():
        if key not in known and value not in (0, _NO_EFFECT.get(key, 0)):
            raise _refused(header, f"rope.{key}", value)
    if own is None:
        if scaled := [*tensors, *(f"rope.{key}" for key in rotary if key not in _NO_SCALING)]:
            raise _refused(header, scaled[0], rotary.get(scaled[0].removeprefix("rope."), "a tensor"))
        return
    by_kind = "full_attention" in own
    parameters = dict(own["full_attention"] if by_kind else own)
    parameters["rope_theta"] = float(rotary.get("freq_base", 10000.0))
    rotated = int(rotary.get("dimension_count", head_size))
    if "partial_rotary_factor" in parameters and not by_kind:
        share = rotated / head_size
        parameters["partial_rotary_factor"] = share if int(head_size * share) == rotated else math.nextafter(share, 2)
    elif rotated != head_size:
        raise _refused(header, "rope.dimension_count", rotated)
    parameters |= _scaling(config, header, rotary, tensors, rotated)
    if by_kind:
        if rotary.get("dimension_count_swa", config.head_dim) != config.head_dim:
            raise _refused(header, "rope.dimension_count_swa", rotary["dimension_count_swa"])
        sliding: dict[str, Any] = dict(own["sliding_attention"])
        sliding["rope_theta"] = float(rotary.get("freq_base_swa", sliding["rope_theta"]))
        config.rope_parameters = {**own, "full_attention": parameters, "sliding_attention": sliding}
        return
    for key in ("freq_base_swa", "dimension_count_swa"):
        if rotary.get(key, usual := rotary.get(key.removesuffix("_swa"))) != usual:
            raise _refused(header, f"rope.{key}", rotary[key])
    config.rope_parameters = parameters


_NO_SCALING = ("scaling.finetuned", "dimension_count")
_SCALING = (
    *("scaling.type", "scaling.factor", "scale_linear", "scaling.original_context_length", "scaling.attn_factor"),
    *("scaling.yarn_attn_factor", "scaling.yarn_beta_fast", "scaling.yarn_beta_slow"),
)
_NO_EFFECT = {"scaling.yarn_ext_factor": 1, "scaling.alpha": 1}


def _scaling(
    config: PreTrainedConfig,
    header: Header,
    rotary: Mapping[str, Any],
    tensors: Mapping[str, list[float]],
    rotated: int,
) -> dict[str, Any]:
    """The scaling of rotary embeddings, in the words of transformers.

    llama.cpp divides each frequency by a factor of the file and by a tensor's entry, and multiplies sine and cosine by
    an attention factor. transformers' longrope states just these numbers, so it says all that is not plain or yarn.
    """
    kind, trained = rotary.get("scaling.type", "linear"), int(config.max_position_embeddings)
    if kind not in _SCALINGS:
        raise _refused(header, "rope.scaling.type", kind)
    factor = float(rotary.get("scaling.factor", 0) or rotary.get("scale_linear", 0) or 1) if kind != "none" else 1.0
    attention = float(rotary.get("scaling.attn_factor", 1))
    original = int(rotary.get("scaling.original_context_length", 0)) or trained
    plain, long, short = (tensors.get(name) for name in ROTARY_TENSORS)
    if kind == "yarn":
        if tensors or factor < 1:
            raise _refused(header, "rope.scaling.type", f"yarn, with {next(iter(tensors), f'factor {factor:g}')}")
        attention *= float(rotary.get("scaling.yarn_attn_factor", 1)) * (1 + 0.1 * math.log(factor))
        betas = {name: float(rotary.get(f"scaling.yarn_{name}", usual)) for name, usual in _BETAS}
        return {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": original,
            "attention_factor": attention,
            **betas,
        }
    if (long is None) != (short is None) or (kind == "longrope" and not tensors):
        raise LesionError(
            f"{header.path} states factors of its rotary embeddings and lacks the tensors of some: it has "
            f"{', '.join(tensors) or 'none'} of {', '.join(ROTARY_TENSORS[1:])}. Get it again."
        )
    if not tensors and attention == 1:
        return {"rope_type": "default"} if factor == 1 else {"rope_type": "linear", "factor": factor}
    if "full_attention" in config.rope_parameters:
        raise _refused(header, next(iter(tensors), "rope.scaling.attn_factor"), "a scaling of its own")
    short = short or plain or [1.0] * (rotated // 2)
    long = long or short
    if len(short) != rotated // 2 or len(long) != rotated // 2:
        raise _refused(header, next(iter(tensors)), f"{len(short)} and {len(long)} factors")
    if _has(config, "original_max_position_embeddings"):
        config.original_max_position_embeddings = original
    return {
        "rope_type": "longrope",
        "short_factor": [factor * divisor for divisor in short],
        "long_factor": [factor * divisor for divisor in long],
        "original_max_position_embeddings": original if long != short else trained,
        "attention_factor": attention,
    }


_BETAS = (("beta_fast", 32.0), ("beta_slow", 1.0))
