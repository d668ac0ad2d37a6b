"""Tiny randomly initialised models, one per family, and a tokenizer for them: no disk, no network.

All have a residual stream of 32, a vocabulary of 64, 3 or 4 blocks and 256 positions, in float32 on the CPU.
Use as `from tiny import FAMILIES, model, tiny, tokenizer`.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import transformers as hf
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import WordLevel

from mystery import MysteryConfig, MysteryForCausalLM

if TYPE_CHECKING:
    from lesion.models.load import Model

_SPECIAL = ["<unk>", "<s>", "</s>"]
VOCABULARY = [*_SPECIAL, "\n", " ", *string.digits, *string.ascii_lowercase, *".,?!:;#+-=*/()'\"<>|_%$&"]

# Head size times heads is 32 here; Qwen 3 and the Gemmas choose their own head size: the two can differ.
_COMMON = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
    "tie_word_embeddings": False,
}  # fmt: skip
_GATED = {**_COMMON, "num_key_value_heads": 2, "intermediate_size": 48}


def _scaled_up(network: hf.PreTrainedModel, seed: int = 0) -> hf.PreTrainedModel:
    """Seeded weights so large that logits are far from uniform; gains and biases move too: none hides."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() >= 2:
                parameter.copy_(0.2 * noise)
            elif name.endswith("bias"):
                parameter.copy_(0.1 * noise)
            else:
                parameter.add_(0.1 * noise)
    network.requires_grad_(False)
    network.generation_config.pad_token_id = None
    return network.eval()


def _family(network: type[hf.PreTrainedModel], config: type[hf.PretrainedConfig], **settings):
    return lambda: _scaled_up(network(config(**settings)))


FAMILIES: dict[str, Callable[[], hf.PreTrainedModel]] = {
    "llama": _family(hf.LlamaForCausalLM, hf.LlamaConfig, **_GATED),
    "llama_tied": _family(
        hf.LlamaForCausalLM, hf.LlamaConfig, **{**_GATED, "tie_word_embeddings": True, "attention_bias": True}
    ),
    "mistral": _family(hf.MistralForCausalLM, hf.MistralConfig, **_GATED, sliding_window=None),
    "qwen2": _family(hf.Qwen2ForCausalLM, hf.Qwen2Config, **_GATED),
    "qwen3": _family(hf.Qwen3ForCausalLM, hf.Qwen3Config, **_GATED, head_dim=16),
    "gemma2": _family(
        hf.Gemma2ForCausalLM,
        hf.Gemma2Config,
        **{**_GATED, "num_hidden_layers": 4, "tie_word_embeddings": True},
        head_dim=16,
        query_pre_attn_scalar=16,
        sliding_window=6,
    ),
    "gemma3": _family(
        hf.Gemma3ForCausalLM,
        hf.Gemma3TextConfig,
        **{**_GATED, "num_hidden_layers": 4, "tie_word_embeddings": True},
        head_dim=16,
        query_pre_attn_scalar=16,
        sliding_window=6,
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
    ),
    "phi3": _family(
        hf.Phi3ForCausalLM, hf.Phi3Config, **_GATED, original_max_position_embeddings=256, sliding_window=None
    ),
    "gpt_neox": _family(
        hf.GPTNeoXForCausalLM,
        hf.GPTNeoXConfig,
        **_COMMON,
        intermediate_size=48,
        use_parallel_residual=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    ),
    "gpt2": _family(hf.GPT2LMHeadModel, hf.GPT2Config, **{**_COMMON, "tie_word_embeddings": True}, n_inner=48),
    "opt": _family(
        hf.OPTForCausalLM, hf.OPTConfig, **{**_COMMON, "tie_word_embeddings": True}, ffn_dim=48, word_embed_proj_dim=32
    ),
    "olmo2": _family(hf.Olmo2ForCausalLM, hf.Olmo2Config, **_GATED),
    "mixtral": _family(hf.MixtralForCausalLM, hf.MixtralConfig, **_GATED, num_local_experts=4, num_experts_per_tok=2),
    # The middle block has a plain gated MLP instead of experts, as the configuration allows.
    "qwen2_moe": _family(
        hf.Qwen2MoeForCausalLM,
        hf.Qwen2MoeConfig,
        **_GATED,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        shared_expert_intermediate_size=40,
        mlp_only_layers=[1],
    ),
    "unknown": _family(MysteryForCausalLM, MysteryConfig, **_COMMON),
}
UNLIKE = ("llama_tied", "gemma2", "phi3", "gpt_neox", "opt", "qwen2_moe", "unknown")
"""One of each way in which blocks are built: fused and parted projections, windows, positions, experts, other names."""
LAYOUTS = (*UNLIKE, "gpt2")
"""These, and one whose matrices lie the other way round."""
BUILDS = tuple(family for family in FAMILIES if family not in ("mistral", "qwen2"))
"""All but those whose blocks are built as others' under other names: as llama's, and as llama_tied's."""


def tiny(family: str) -> hf.PreTrainedModel:
    """A fresh network of the family, the same weights every time: eval mode, float32, gradients off."""
    return FAMILIES[family]()


def tokenizer() -> hf.PreTrainedTokenizerFast:
    """One token a character, lower-cased, `<s>` before every text; an end of text, but no padding token."""
    fast = Tokenizer(WordLevel({token: index for index, token in enumerate(VOCABULARY)}, unk_token="<unk>"))
    fast.normalizer = normalizers.Lowercase()
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    fast.decoder = decoders.Fuse()
    fast.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=fast,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        clean_up_tokenization_spaces=False,
        model_max_length=256,
    )


def texts(lengths: Sequence[int] = (3, 9, 9, 14, 1, 6), seed: int = 0) -> tuple[tuple[int, ...], ...]:
    """Random texts of these lengths, of tokens that end no text."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(tuple(torch.randint(3, 60, (length,), generator=generator).tolist()) for length in lengths)


def save(network: hf.PreTrainedModel, folder: Path) -> Path:
    """A network with the tokenizer as a folder, and that folder."""
    network.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def configure(folder: Path, **settings: object) -> Path:
    """A folder with other settings in its config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    return folder


def bits(network: hf.PreTrainedModel) -> dict[str, torch.Tensor]:
    """Copies of all that a network holds."""
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def same_bits(network: hf.PreTrainedModel, before: dict[str, torch.Tensor]) -> bool:
    """Whether a network holds what it held before."""
    return all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def model(family: str) -> Model:
    """The tiny network of the family with the tokenizer, as a `lesion` model named `tiny:FAMILY`."""
    from lesion.models.load import wrap

    return wrap(tiny(family), tokenizer(), f"tiny:{family}")
