"""Quantised storages: named, refused where nothing reads them, and taken apart like the plain model they came from."""

from pathlib import Path

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from lesion.edits.apply import as_it_is
from lesion.errors import LesionError
from lesion.models.facts import facts_of
from lesion.models.fingerprint import fingerprint
from lesion.models.load import load, wrap
from lesion.models.quantised import quantisation
from mystery import MysteryForCausalLM
from quantising import STORAGES, coded, dequantised, quantised, wide
from tiny import configure, save, tiny, tokenizer

GROUP = {"weights": {"num_bits": 4, "type": "int"}, "input_activations": {"num_bits": 8}}


@pytest.fixture
def folder(tmp_path) -> Path:
    return save(tiny("llama"), tmp_path / "model")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes, 4 bit"),
        ({"load_in_8bit": True}, "bitsandbytes, 8 bit"),
        ({"quant_method": "gptq", "bits": 3}, "gptq, 3 bit"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8, 8 bit"),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 2}}}, "hqq, 2 bit"),
        ({"quant_method": "quanto", "weights": "int4"}, "quanto, 4 bit"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": GROUP}}, "compressed-tensors, 4 bit"),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}}, "torchao, 8 bit"),
        ({"quant_method": "bitnet"}, "bitnet"),
        ({}, "unknown method"),
    ],
)
def test_a_storage_is_named_with_the_width_of_its_numbers(settings, words):
    assert str(quantisation({"quantization_config": settings})) == words


@pytest.mark.parametrize(
    ("settings", "rounds"),
    [
        ({"load_in_8bit": True}, True),
        ({"load_in_4bit": True}, False),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": GROUP}}, True),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {**GROUP, "input_activations": None}}}, False),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}}, False),
        ({"quant_method": "torchao", "quant_type": {"d": {"_type": "Int8DynamicActivationInt8WeightConfig"}}}, True),
    ],
)
def test_storages_that_round_activations_are_known_and_noted(settings, rounds):
    assert quantisation({"quantization_config": settings}).activations == rounds
    network = coded(tiny("llama"))
    network.config.quantization_config = {"quant_method": "bitsandbytes", **settings}
    notes = wrap(network, tokenizer(), "it").anatomy.notes
    assert any("activations are rounded" in note for note in notes) == rounds


@pytest.mark.parametrize("settings", [{"quant_method": "wishful"}, {"bits": 4}])
def test_an_unknown_storage_is_refused_by_name(settings, folder):
    configure(folder, quantization_config=settings)
    with pytest.raises(LesionError, match=r"is stored quantised by '(wishful|unknown method)', which the installed"):
        load(folder)


def test_what_a_package_refuses_is_said_of_the_storage(folder, monkeypatch):
    def fails(*_, **__):
        raise ValueError("You need a GPU.\nReally.")

    monkeypatch.setattr(hf.AutoModelForCausalLM, "from_pretrained", fails)
    configure(folder, quantization_config={"quant_method": "fp8"})
    with pytest.raises(LesionError, match=r"\(fp8, 8 bit\) and cannot be loaded here: You need a GPU\. Really\. Mend"):
        load(folder)


def test_a_network_of_packed_layers_has_the_matrices_of_the_plain_one():
    plain, packed = (wrap(network, tokenizer(), "it").anatomy for network in (tiny("llama"), coded(tiny("llama"))))
    assert {a: m.shape for a, m in packed.matrices.items()} == {a: m.shape for a, m in plain.matrices.items()}
    assert all(matrix.packed for matrix in packed.matrices.values())
    assert (packed.packed, packed.known, packed.head.packed) == (True, True, False)
    assert not plain.packed


@pytest.mark.parametrize("family", ["gpt_neox", "phi3", "unknown"])
def test_fused_interleaved_and_unknown_layers_are_told_apart_where_they_are_packed(family):
    plain, packed = (wrap(network, tokenizer(), "it").anatomy for network in (tiny(family), coded(tiny(family))))
    assert {a: m.shape for a, m in packed.matrices.items()} == {a: m.shape for a, m in plain.matrices.items()}
    assert [[b.name for b in block.branches] for block in packed.blocks] == [
        [b.name for b in block.branches] for block in plain.blocks
    ]


def test_facts_name_the_storage_and_count_the_weights_it_stands_for():
    plain, packed = (dict(facts_of(wrap(n, tokenizer(), "it"))) for n in (tiny("llama"), coded(tiny("llama"))))
    assert packed["weights stored"] == "gptq, 8 bit; edits of places only"
    assert "weights stored" not in plain
    assert packed["parameters"] == plain["parameters"]


def test_a_fingerprint_sees_a_single_code():
    first, again, other = (coded(tiny("llama")) for _ in range(3))
    other.model.layers[2].mlp.up_proj.qweight[0, 0] += 1
    assert fingerprint(first) == fingerprint(again) != fingerprint(other)
    assert fingerprint(first) != fingerprint(dequantised(first))


@pytest.mark.parametrize("storage", STORAGES)
def test_a_really_quantised_checkpoint_is_the_same_model_at_every_load(storage, tmp_path):
    plain, packed = quantised(storage, tmp_path)
    model, again = load(packed), load(packed)
    assert str(model.quantisation) == storage
    assert model.anatomy.packed
    shapes = {address: matrix.shape for address, matrix in load(plain).anatomy.matrices.items()}
    assert {address: matrix.shape for address, matrix in model.anatomy.matrices.items()} == shapes
    assert model.fingerprint == again.fingerprint != load(plain).fingerprint
    model.network(torch.arange(6).view(2, 3))
    assert as_it_is(model) is model
    assert dict(facts_of(model))["parameters"] == dict(facts_of(load(plain)))["parameters"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the weights stay packed")
def test_fp8_is_dequantised_where_there_is_no_gpu_and_takes_every_edit(tmp_path):
    plain, size = save(wide(), tmp_path / "plain"), 32
    weights, packed, expected = load_file(plain / "model.safetensors"), {}, {}
    for name, weight in weights.items():
        if "proj" not in name:
            packed[name] = weight
            continue
        parts = weight.unflatten(0, (-1, size)).unflatten(2, (-1, size))
        scale = parts.abs().amax((1, 3)) / 448
        wide_scale = scale.repeat_interleave(size, 0).repeat_interleave(size, 1)
        packed[name] = (weight / wide_scale).to(torch.float8_e4m3fn)
        packed[f"{name}_scale_inv"] = scale
        expected[name] = packed[name].float() * wide_scale
    save_file(packed, plain / "model.safetensors", metadata={"format": "pt"})
    configure(plain, quantization_config={"quant_method": "fp8", "weight_block_size": [size, size]})
    model = load(plain)
    for name, weight in expected.items():
        torch.testing.assert_close(model.network.get_parameter(name), weight)
    assert dict(facts_of(model))["weights stored"].startswith("fp8, 8 bit; dequantised when loaded")
    assert not model.anatomy.packed
    model.anatomy.matrix("1.mlp.up").read()


def test_a_class_of_no_known_architecture_is_confirmed_by_its_sums():
    model = wrap(coded(tiny("unknown")), tokenizer(), "it")
    assert isinstance(model.network, MysteryForCausalLM)
    assert not model.anatomy.known
    assert model.anatomy.packed
