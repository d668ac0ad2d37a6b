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


def new_linear(network):
    network.model.layers[1].mlp.up_proj = nn.Linear(32, 48, bias=False)


def new_activation(network):
    network.model.layers[1].mlp.act_fn = nn.ReLU()


def removed_block(network):
    del network.model.layers[1]


def inserted_block(network):
    network.model.layers.insert(1, copy.deepcopy(network.model.layers[0]))


def tied(network):
    network.lm_head.weight = network.model.embed_tokens.weight


def more_tokens(network):
    network.resize_token_embeddings(70)


class Twice(nn.Module):
    def forward(self, weight):
        return 2 * weight


def parametrized(network):
    parametrize.register_parametrization(up(network), "weight", Twice())


def normalised(network):
    parametrizations.weight_norm(up(network))


def normalised_as_before(network):
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(up(network))


def pruned(network):
    prune.random_unstructured(up(network), "weight", 0.2)


def compiled_in_place(network):
    network.model.layers[1].mlp.compile()


def compiled(network):
    network.model.layers[1] = torch.compile(network.model.layers[1])


@pytest.mark.parametrize(
    "change", [new_linear, new_activation, removed_block, inserted_block, tied, more_tokens], ids=lambda f: f.__name__
)
def test_a_network_built_in_another_way_is_refused_until_it_is_taken_apart_again(change):
    model = tiny.model("llama")
    change(model.network)
    for use in (lambda: lesion.applied(model, "0x0").__enter__(), lambda: model.generate("2", prompt_style="raw")):
        with pytest.raises(LesionError, match=r"not built as it was .*wrap\(network, tokenizer, 'tiny:llama'\)"):
            use()
    again = wrap(model.network, model.tokenizer, "again")
    matrix = again.anatomy.matrix("1.mlp.up")
    assert matrix.tensor is up(model.network).weight


@pytest.mark.parametrize(
    "change",
    [parametrized, normalised, normalised_as_before, pruned, compiled_in_place, compiled],
    ids=lambda f: f.__name__,
)
def test_weights_computed_in_every_pass_and_compiled_modules_are_refused(change):
    model = tiny.model("llama")
    change(model.network)
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
