"""Build: a network whose modules or ties are others than when it was loaded is noticed at every use."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import lesion
import tiny
from lesion.errors import LesionError
from lesion.models.load import wrap


def up(network):
    return network.model.layers[1].mlp.up_proj


class Twice(nn.Module):
    def forward(self, weight):
        return 2 * weight


def normalised_as_before(network):
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(up(network))


REBUILT = {
    "new linear": lambda network: setattr(network.model.layers[1].mlp, "up_proj", nn.Linear(32, 48, bias=False)),
    "new activation": lambda network: setattr(network.model.layers[1].mlp, "act_fn", nn.ReLU()),
    "removed block": lambda network: network.model.layers.__delitem__(1),
    "inserted block": lambda network: network.model.layers.insert(1, copy.deepcopy(network.model.layers[0])),
    "tied": lambda network: setattr(network.lm_head, "weight", network.model.embed_tokens.weight),
    "more tokens": lambda network: network.resize_token_embeddings(70),
}
COMPUTED = {
    "parametrized": lambda network: parametrize.register_parametrization(up(network), "weight", Twice()),
    "normalised": lambda network: parametrizations.weight_norm(up(network)),
    "normalised as before": normalised_as_before,
    "pruned": lambda network: prune.random_unstructured(up(network), "weight", 0.2),
    "compiled in place": lambda network: network.model.layers[1].mlp.compile(),
    "compiled": lambda network: network.model.layers.__setitem__(1, torch.compile(network.model.layers[1])),
}


@pytest.mark.parametrize("change", REBUILT)
def test_a_network_built_in_another_way_is_refused_until_it_is_taken_apart_again(change):
    model = tiny.model("llama")
    REBUILT[change](model.network)
    for use in (lambda: lesion.applied(model, "0x0").__enter__(), lambda: model.generate("2", prompt_style="raw")):
        with pytest.raises(LesionError, match=r"not built as it was .*wrap\(network, tokenizer, 'tiny:llama'\)"):
            use()
    again = wrap(model.network, model.tokenizer, "again")
    matrix = again.anatomy.matrix("1.mlp.up")
    assert matrix.tensor is up(model.network).weight


@pytest.mark.parametrize("change", COMPUTED)
def test_weights_computed_in_every_pass_and_compiled_modules_are_refused(change):
    model = tiny.model("llama")
    COMPUTED[change](model.network)
    for use in (
        lambda: lesion.applied(model, "0x0").__enter__(),
        lambda: wrap(model.network, model.tokenizer, "again"),
    ):
        with pytest.raises(LesionError, match=r"computes its weights from other parameters|is compiled"):
            use()


def test_an_adapter_is_refused_until_it_is_merged():
    peft = pytest.importorskip("peft")
    model = tiny.model("llama")
    adapted = peft.get_peft_model(model.network, peft.LoraConfig(target_modules=["up_proj"], init_lora_weights=False))
    for use in (
        lambda: lesion.applied(model, "1.mlp.up top 0.5").__enter__(),
        lambda: wrap(model.network, model.tokenizer, "inner"),
    ):
        with pytest.raises(LesionError, match="adapter of PEFT that is not merged"):
            use()
    merged = wrap(adapted.merge_and_unload(), model.tokenizer, "merged")
    weight = up(merged.network).weight.clone()
    with lesion.applied(merged, "1.mlp.upx0"):
        assert not torch.equal(weight, torch.zeros_like(weight))


def test_another_dtype_other_values_and_new_parameters_are_no_other_build():
    model = tiny.model("llama")
    up(model.network).weight = nn.Parameter(torch.zeros(48, 32), requires_grad=False)
    model.network.to(torch.bfloat16)
    with lesion.applied(model, "1x0"):
        assert model.network(torch.tensor([[5, 6]])).logits.dtype == torch.bfloat16
