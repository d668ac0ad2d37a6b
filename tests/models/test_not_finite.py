"""Values that are not finite: found in every tensor that a checkpoint holds, counted, and told by name."""

import pytest
import torch

from lesion.edits.apply import as_it_is
from lesion.errors import LesionError
from lesion.models.fingerprint import NotFinite, complaint, not_finite
from lesion.models.load import refuse_not_finite, wrap
from tiny import FAMILIES, model, tiny, tokenizer

UP, GAIN = "model.layers.1.mlp.up_proj.weight", "model.layers.2.input_layernorm.weight"


def spoiled(*spoils, dtype=torch.float32):
    network = tiny("llama").to(dtype)
    with torch.no_grad():
        for name, *values in spoils:
            network.get_parameter(name).view(-1)[: len(values)] = torch.tensor(values, dtype=dtype)
    return network


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sound_model_has_nothing_to_tell(family):
    assert not_finite(tiny(family)) == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_tensor_is_told_with_how_many_values_of_each_kind(dtype):
    nan, infinite = float("nan"), float("inf")
    network = spoiled((UP, nan, infinite, -infinite), (GAIN, -infinite), dtype=dtype)
    assert not_finite(network) == (NotFinite(UP, 1, 2, 1536), NotFinite(GAIN, 0, 1, 32))


def test_large_values_whose_sum_overflows_are_finite():
    largest = torch.finfo(torch.float32).max
    assert not_finite(spoiled((UP, largest, largest, -largest))) == ()


def test_a_tied_tensor_is_told_once():
    network = tiny("llama_tied")
    with torch.no_grad():
        network.get_input_embeddings().weight[0, 0] = float("nan")
    assert [found.name for found in not_finite(network)] == ["model.embed_tokens.weight"]


def test_a_model_knows_and_is_looked_at_again_once_its_weights_have_changed():
    sound = model("llama")
    assert sound.not_finite == as_it_is(sound).not_finite == ()
    with torch.no_grad():
        sound.network.get_parameter(UP)[0, 0] = float("nan")
    assert [found.name for found in as_it_is(sound).not_finite] == [UP]


def test_the_complaint_names_some_tensors_and_counts_all():
    found = [NotFinite(f"t{number}", number % 2, 1 - number % 2, 1000) for number in range(5)]
    assert complaint([], "m") == ""
    assert complaint(found[:1], "m") == "m has 1 tensor with values that are not finite: t0 (1 infinite of 1,000)."
    assert complaint(found, "m").startswith("m has 5 tensors with values")
    assert complaint(found, "m").endswith("t2 (1 infinite of 1,000) and 2 more.")
    broken = wrap(spoiled((GAIN, float("nan"))), tokenizer(), "tiny:broken")
    with pytest.raises(LesionError, match=r"^a@step2 has 1 tensor .*input_layernorm.* get the checkpoint again"):
        refuse_not_finite(broken, "a@step2")
