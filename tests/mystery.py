"""An architecture that no table knows: a small decoder written for the tests of the structural fallback.

It decodes with a cache and a padding mask like any other, but nothing in it is named or returned as the known
families do it: blocks return tuples, the attention norm stands behind the attention, and the widths differ.
"""

import torch
from torch import nn
from transformers import DynamicCache, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import CausalLMOutputWithPast


class MysteryConfig(PretrainedConfig):
    model_type = "mystery"

    def __init__(
        self,
        vocab_size: int = 64,
        hidden_size: int = 32,
        num_hidden_layers: int = 3,
        num_attention_heads: int = 4,
        max_position_embeddings: int = 256,
        **kwargs,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.max_position_embeddings = max_position_embeddings
        super().__init__(**kwargs)


class SelfAttentionUnit(nn.Module):
    def __init__(self, config: MysteryConfig, index: int):
        super().__init__()
        self.index = index
        self.heads = config.num_attention_heads
        self.wq = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.wk = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.wv = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.over_all_heads = nn.LayerNorm(config.hidden_size)  # mixes them: no column of wo is of one head alone
        self.wo = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, stream, mask, cache):
        rows, length, width = stream.shape
        q, k, v = (
            w(stream).view(rows, length, self.heads, width // self.heads).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)
        )
        if cache is not None:
            k, v = cache.update(k, v, self.index)
        mixed = nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None and length > 1
        )
        return self.wo(self.over_all_heads(mixed.transpose(1, 2).reshape(rows, length, width)))


class Ffn(nn.Module):
    def __init__(self, config: MysteryConfig):
        super().__init__()
        self.expand = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.contract = nn.Linear(3 * config.hidden_size, config.hidden_size)

    def forward(self, stream):
        return self.contract(nn.functional.gelu(self.expand(stream)))


class MysteryBlock(nn.Module):
    """Attention with its norm behind it, MLP with its norm before it."""

    def __init__(self, config: MysteryConfig, index: int):
        super().__init__()
        self.self_attention = SelfAttentionUnit(config, index)
        self.norm_behind = nn.LayerNorm(config.hidden_size)
        self.norm_before = nn.LayerNorm(config.hidden_size)
        self.ffn = Ffn(config)

    def forward(self, stream, mask, cache):
        stream = stream + self.norm_behind(self.self_attention(stream, mask, cache))
        return (stream + self.ffn(self.norm_before(stream)), None)


class MysteryForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = MysteryConfig
    base_model_prefix = "trunk"
    _supports_sdpa = True

    def __init__(self, config: MysteryConfig):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.places = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.stack = nn.ModuleList(MysteryBlock(config, i) for i in range(config.num_hidden_layers))
        self.last_norm = nn.LayerNorm(config.hidden_size)
        self.readout = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.words

    def get_output_embeddings(self):
        return self.readout

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        use_cache=None,
        logits_to_keep=0,
        **kwargs,
    ):
        stream = self.words(input_ids)
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        if position_ids is None:
            seen = past_key_values.get_seq_length() if past_key_values is not None else 0
            position_ids = torch.arange(stream.shape[1], device=stream.device)[None] + seen
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=stream,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            position_ids=position_ids,
        )
        stream = stream + self.places(position_ids)
        for block in self.stack:
            stream = block(stream, mask, past_key_values)[0]
        kept = slice(-logits_to_keep, None) if logits_to_keep else slice(None)
        return CausalLMOutputWithPast(
            logits=self.readout(self.last_norm(stream[:, kept])), past_key_values=past_key_values
        )
