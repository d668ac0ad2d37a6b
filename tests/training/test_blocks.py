"""Blocks that train: how many numbers, which modules take an adapter, and what cannot be trained alone."""

import pytest

import architectures_zoo as zoo
from lesion.errors import LesionError, UsageError
from lesion.models.load import wrap
from lesion.training.blocks import adapter_size, linear_modules, trainable
from tiny import model, tokenizer


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2", "mixtral"])
def test_the_parameters_of_the_chosen_blocks_and_no_others_train(family):
    subject = model(family)
    path = next(name for name, module in subject.network.named_modules() if module is subject.anatomy.blocks[1].module)
    inside = {name: p for name, p in subject.network.named_parameters() if name.startswith(f"{path}.")}
    assert trainable(subject, [1]) == sum(p.numel() for p in inside.values())
    assert {name for name, p in subject.network.named_parameters() if p.requires_grad} == set(inside)


def test_without_blocks_everything_trains_and_tied_weights_count_once():
    subject = model("llama_tied")
    assert trainable(subject) == sum(p.numel() for p in subject.network.parameters())
    assert all(p.requires_grad for p in subject.network.parameters())


def test_blocks_that_share_a_weight_with_another_cannot_train_alone():
    subject = model("llama")
    layers = subject.network.model.layers
    layers[2].mlp.up_proj.weight = layers[1].mlp.up_proj.weight
    with pytest.raises(LesionError, match=r"is also model\.layers\.2\.mlp\.up_proj"):
        trainable(subject, [1])
    trainable(subject, [1, 2])
    assert layers[1].mlp.up_proj.weight.requires_grad


def test_a_block_that_is_not_there_is_named():
    with pytest.raises(UsageError, match="no block 7: tiny:llama has blocks 0 to 2"):
        trainable(model("llama"), [0, 7])
    with pytest.raises(UsageError, match="No block was chosen"):
        trainable(model("llama"), [])


def test_an_adapter_has_rank_times_inputs_and_outputs_of_every_linear_layer():
    subject = model("llama")
    # q and o: 32 × 32; k and v: 16 × 32; gate, up and down: 48 × 32.
    assert adapter_size(subject, 3, [0]) == 3 * (2 * 64 + 2 * 48 + 3 * 80)
    assert adapter_size(subject, 3) == 3 * adapter_size(subject, 3, [0])
    assert adapter_size(model("gpt2"), 1, [0]) == sum(sum(m.shape) for m in fused("gpt2"))


def fused(family):
    """The weights of a block's two-dimensional parameters: fused q, k and v are one layer."""
    block = model(family).anatomy.blocks[0].module
    return [p for p in block.parameters() if p.dim() == 2]


def test_fused_experts_take_no_adapter():
    with pytest.raises(LesionError, match="no linear layer of its own"):
        linear_modules(model("mixtral"))


@pytest.mark.parametrize(
    ("kind", "refused"),
    [("falcon_h1", [0, 1, 2, 3]), ("jamba", [0, 2]), ("bamba", [0, 2]), ("nemotron_h", [0]), ("lfm2", [])],
)
def test_an_adapter_is_refused_where_the_code_of_a_block_would_pass_it_by(kind, refused):
    subject = wrap(zoo.made(kind), tokenizer(), kind)
    for index in refused:
        with pytest.raises(LesionError, match=f"Block {index} of {kind} has a state-space layer"):
            adapter_size(subject, 1, [index])
    dense = [block.index for block in subject.anatomy.blocks if block.mlp is None or block.mlp.experts is None]
    assert all(adapter_size(subject, 1, [index]) for index in set(dense) - set(refused))
