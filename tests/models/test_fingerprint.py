"""The fingerprint follows the weights and what computes with them, and nothing else."""

import pytest
import torch

from lesion.models.fingerprint import fingerprint
from lesion.models.load import load
from tiny import FAMILIES, tiny, tokenizer


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "unknown"])
def test_the_same_weights_from_two_folders_agree_also_sharded(family, tmp_path):
    network = tiny(family)
    network.save_pretrained(tmp_path / "one")
    network.save_pretrained(tmp_path / "two", max_shard_size="20KB")
    assert len(list((tmp_path / "two").glob("*.safetensors"))) > 1
    for folder in ("one", "two"):
        tokenizer().save_pretrained(tmp_path / folder)
        assert load(tmp_path / folder).fingerprint == fingerprint(network)


def test_it_is_sixteen_hexadecimal_digits_and_every_family_has_its_own():
    prints = {family: fingerprint(tiny(family)) for family in FAMILIES}
    assert all(len(value) == 16 and int(value, 16) >= 0 for value in prints.values())
    assert len(set(prints.values())) == len(prints)


@pytest.mark.parametrize("sampled", [False, True])
def test_one_changed_bit_of_any_parameter_changes_it(sampled):
    limits = {"every_byte_up_to": 0, "sample": 1000} if sampled else {}
    network = tiny("qwen2")
    before = fingerprint(network, **limits)
    for name, parameter in network.named_parameters():
        flat = parameter.view(-1)
        where = flat.numel() - 2
        old = flat[where].clone()
        flat[where] = torch.nextafter(old, torch.tensor(torch.inf))
        assert fingerprint(network, **limits) != before, name
        flat[where] = old
    assert fingerprint(network, **limits) == before


def test_the_sample_of_a_large_model_reads_every_tensor_of_any_size_and_dtype():
    for dtype in (torch.float32, torch.bfloat16):
        network = tiny("gpt2").to(dtype)
        sampled = fingerprint(network, every_byte_up_to=0, sample=1000)
        assert sampled != fingerprint(network)
        network.transformer.ln_f.bias[-1] += 1
        assert fingerprint(network, every_byte_up_to=0, sample=1000) != sampled


def test_settings_that_change_the_computation_and_the_dtype_change_it():
    network = tiny("llama")
    before = fingerprint(network)
    network.config.rms_norm_eps = 1e-3
    assert fingerprint(network) != before
    network.config.rms_norm_eps = 1e-6
    assert fingerprint(network) == before
    network.config.rope_parameters = {"rope_type": "default", "rope_theta": 5000.0}
    assert fingerprint(network) != before
    assert fingerprint(tiny("llama").to(torch.bfloat16)) != before


def test_settings_that_do_not_leave_it_alone():
    network = tiny("llama")
    before = fingerprint(network)
    network.config.use_cache = False
    network.config._name_or_path = "/somewhere/else"
    network.config.architectures = ["Other"]
    network.set_attn_implementation("eager")
    assert fingerprint(network) == before
