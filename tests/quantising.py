"""Quantised models for tests: a stand-in that needs no package, and real ones by the packages that are installed."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers as hf
from torch import nn

from tiny import save, tiny

SETTINGS = {"quant_method": "gptq", "bits": 8}


class CodedLinear(nn.Module):
    """A linear layer that keeps 8-bit codes and a scale per row as buffers, as the modules of GPTQ and AWQ do."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = plain.in_features, plain.out_features
        scale = plain.weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("qweight", (plain.weight / scale).round().to(torch.int8))
        self.register_buffer("scales", scale)
        self.bias = plain.bias

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(hidden_states, self.qweight.to(self.scales) * self.scales, self.bias)


def coded(network: hf.PreTrainedModel) -> hf.PreTrainedModel:
    """The network with coded layers in place of the linear ones, its output head excepted."""
    head = network.get_output_embeddings()
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and child is not head:
                setattr(parent, name, CodedLinear(child))
    network.config.quantization_config = dict(SETTINGS)
    return network


def dequantised(network: hf.PreTrainedModel) -> hf.PreTrainedModel:
    """What `coded` computes with, as plain weights in a plain Llama."""
    plain = tiny("llama")
    for name, part in network.named_modules():
        if isinstance(part, CodedLinear):
            plain.get_submodule(name).weight.data = part.qweight.float() * part.scales
    return plain


def wide() -> hf.PreTrainedModel:
    """A random Llama whose widths are whole numbers of the blocks of 64 that packages quantise together."""
    torch.manual_seed(0)
    config = hf.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, initializer_range=0.2,
    )  # fmt: skip
    return hf.LlamaForCausalLM(config).eval()


def _bitsandbytes(bits: int) -> Callable[[], object]:
    def settings() -> object:
        pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
        return hf.BitsAndBytesConfig(**{f"load_in_{bits}bit": True})

    return settings


def _torchao() -> object:
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    return hf.TorchAoConfig(quantization.Int8WeightOnlyConfig())


REAL: dict[str, Callable[[], object]] = {
    "bitsandbytes, 4 bit": _bitsandbytes(4),
    "bitsandbytes, 8 bit": _bitsandbytes(8),
    "torchao, 8 bit": _torchao,
}
"""Settings that transformers quantises by while it loads, by what `lesion` calls the storage; each skips where its
package is not installed."""


def quantised(storage: str, folder: Path) -> tuple[Path, Path]:
    """The folders of a plain and of a really quantised checkpoint of one model."""
    if storage.startswith("compressed-tensors"):
        return save(wide(), folder / "plain"), compressed(folder / "packed")
    settings = REAL[storage]()
    plain = save(wide(), folder / "plain")
    network = hf.AutoModelForCausalLM.from_pretrained(plain, quantization_config=settings, dtype=torch.float32)
    return plain, save(network, folder / "packed")


def compressed(folder: Path) -> Path:
    """A checkpoint packed by compressed-tensors, 4 bit in groups of 32, by the largest magnitude of each group."""
    tensors = pytest.importorskip("compressed_tensors.quantization", reason="compressed-tensors is not installed")
    from compressed_tensors.compressors import ModelCompressor

    network = wide()
    weights = tensors.QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=32)
    scheme = tensors.QuantizationScheme(targets=["Linear"], weights=weights)
    config = tensors.QuantizationConfig(
        config_groups={"group_0": scheme}, ignore=["lm_head"], format="pack-quantized", quantization_status="compressed"
    )
    tensors.apply_quantization_config(network, config)
    for part in network.modules():
        if hasattr(part, "weight_scale"):
            part.weight_scale.data.copy_(part.weight.data.unflatten(1, (-1, 32)).abs().amax(-1) / 7)
    compressor = ModelCompressor.from_pretrained_model(network)
    compressor.compress_model(network)
    save(network, folder)
    compressor.update_config(str(folder))
    return folder


STORAGES = (*REAL, "compressed-tensors, 4 bit")
