"""The anatomy covers every parameter once, finds what each branch adds, and never guesses silently."""

import pytest
import torch
import transformers as hf
from torch import nn

from lesion.errors import LesionError, UsageError
from lesion.models.anatomy import Anatomy, dissect
from mystery import MysteryConfig, MysteryForCausalLM
from tiny import FAMILIES, tiny

SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}


def elements(network: nn.Module, anatomy: Anatomy) -> int:
    """Elements of all matrices and of all parameters that no matrix covers."""
    matrices = sum(matrix.shape[0] * matrix.shape[1] for matrix in anatomy.matrices.values())
    return matrices + sum(network.get_parameter(name).numel() for name, _ in anatomy.uncovered)


def first(output):
    return output[0] if isinstance(output, tuple) else output


def assert_branches_add_up(network: nn.Module, anatomy: Anatomy) -> None:
    """On other tokens than any that the anatomy may have looked at: output = input + what the tails gave."""
    seen: dict[object, torch.Tensor] = {}
    for block in anatomy.blocks:
        block.module.register_forward_pre_hook(
            lambda _, args, kwargs, i=block.index: seen.update(
                {(i, "in"): (args[0] if args else kwargs["hidden_states"]).clone()}
            ),
            with_kwargs=True,
        )
        for name, module in [("out", block.module), *((b.name, b.tail) for b in block.branches)]:
            module.register_forward_hook(
                lambda _, __, output, key=(block.index, name): seen.update({key: first(output).clone()})
            )
    network(input_ids=torch.tensor([[5, 40, 3, 22, 22, 61, 17, 8], [9, 9, 4, 33, 50, 12, 60, 1]]))
    for block in anatomy.blocks:
        before, after = seen[block.index, "in"], seen[block.index, "out"]
        parts = [seen[block.index, branch.name].reshape(before.shape) for branch in block.branches]
        assert all(part.abs().max() > 1e-3 for part in parts)
        torch.testing.assert_close(before + sum(parts), after, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_is_in_a_matrix_or_listed_with_a_reason(family):
    network = tiny(family)
    anatomy = dissect(network, family)
    assert elements(network, anatomy) == sum(parameter.numel() for parameter in network.parameters())
    covered = {matrix.parameter for matrix in anatomy.matrices.values()}
    listed = [name for name, _ in anatomy.uncovered]
    assert len(set(listed)) == len(listed)
    assert covered.isdisjoint(listed)
    assert covered | set(listed) == {name for name, _ in network.named_parameters()}
    assert all(reason and "not known" not in reason for _, reason in anatomy.uncovered)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tails_give_exactly_what_a_block_adds_to_the_stream(family):
    network = tiny(family)
    anatomy = dissect(network, family)
    assert all(block.attention is not None and block.mlp is not None for block in anatomy.blocks)
    assert_branches_add_up(network, anatomy)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_known_family_goes_by_its_own_name_and_an_unknown_one_says_so(family):
    anatomy = dissect(tiny(family), family)
    assert anatomy.known == (family != "unknown")
    assert anatomy.family == {"unknown": "mystery", "llama_tied": "llama"}.get(family, family)
    assert len(anatomy.blocks) == (4 if family.startswith("gemma") else 3)
    if not anatomy.known:
        assert "MysteryForCausalLM is not in the table" in anatomy.notes[0]


def test_the_words_of_the_matrices_are_those_of_the_field():
    def words(family: str, block: int = 0) -> list[str]:
        return list(dissect(tiny(family), family).blocks[block].matrices)

    attention = [f"attention.{name}" for name in "qkvo"]
    assert words("llama") == [*attention, "mlp.gate", "mlp.up", "mlp.down"]
    assert words("phi3") == words("gemma2") == words("olmo2") == words("llama")
    assert words("gpt2") == words("opt") == words("gpt_neox") == [*attention, "mlp.in", "mlp.out"]
    assert words("mixtral")[4:9] == [
        "mlp.router",
        *(f"mlp.expert0.{n}" for n in ("gate", "up", "down")),
        "mlp.expert1.gate",
    ]
    assert "mlp.shared.down" in words("qwen2_moe")
    assert words("qwen2_moe", 1) == words("llama")
    assert words("unknown") == [*attention, "mlp.expand", "mlp.contract"]


def test_tied_weights_are_one_parameter_under_several_names():
    assert dissect(tiny("llama"), "it").tied == ()
    anatomy = dissect(tiny("llama_tied"), "it")
    assert anatomy.tied == (("model.embed_tokens.weight", "lm_head.weight"),)
    assert ("model.embed_tokens.weight", "input embedding, tied to lm_head.weight") in anatomy.uncovered


def test_an_address_that_does_not_resolve_names_the_nearest_ones():
    anatomy = dissect(tiny("llama"), "my/model")
    assert anatomy.matrix("2.mlp.up").parameter == "model.layers.2.mlp.up_proj.weight"
    with pytest.raises(UsageError, match=r"no matrix '2\.mlp\.upp' in my/model \(nearest: 2\.mlp\.up[,)]"):
        anatomy.matrix("2.mlp.upp")
    with pytest.raises(UsageError, match=r"there is no block 3: my/model has blocks 0 to 2\."):
        anatomy.matrix("3.mlp.up")
    with pytest.raises(UsageError, match=r"no matrix 'lm_head'"):
        anatomy.matrix("lm_head")
    with pytest.raises(UsageError, match=r"there is no block 12: my/model has blocks 0 to 2\."):
        anatomy.block(12)
    with pytest.raises(UsageError, match=r"there is no block -1"):
        anatomy.block(-1)


def test_parallel_residuals_and_norms_in_the_stream_are_noted():
    assert "same residual stream" in dissect(tiny("gpt_neox"), "it").notes[0]
    assert dissect(tiny("opt"), "it").notes == ()
    post_norm = hf.OPTForCausalLM(
        hf.OPTConfig(**SMALL, ffn_dim=48, do_layer_norm_before=False, word_embed_proj_dim=16, pad_token_id=None)
    ).eval()
    anatomy = dissect(post_norm, "it")
    assert "norms of a block stand in the residual stream" in anatomy.notes[0]
    assert elements(post_norm, anatomy) == post_norm.num_parameters()


def test_a_picture_model_shows_its_language_blocks_and_lists_the_rest():
    text = {**SMALL, "num_key_value_heads": 2, "intermediate_size": 48, "head_dim": 16}
    vision = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 5, "num_attention_heads": 2}
    network = hf.Gemma3ForConditionalGeneration(
        hf.Gemma3Config(text_config=text, vision_config={**vision, "image_size": 28, "patch_size": 14})
    ).eval()
    anatomy = dissect(network, "it")
    assert (anatomy.family, anatomy.known, len(anatomy.blocks)) == ("gemma3", True, 3)
    assert anatomy.matrix("0.attention.q").shape == (64, 32)
    assert elements(network, anatomy) == network.num_parameters()
    assert any(name.startswith("model.vision_tower") for name, _ in anatomy.uncovered)


# Architectures of transformers that the table does not know, each with a trap of its own.
UNKNOWN = {
    # Attention and MLP take the residual in and give it back added: the tail lies inside them.
    "bloom": lambda: hf.BloomForCausalLM(hf.BloomConfig(vocab_size=64, hidden_size=32, n_layer=3, n_head=4)),
    # Parallel residual, one norm for both.
    "gptj": lambda: hf.GPTJForCausalLM(
        hf.GPTJConfig(vocab_size=64, n_embd=32, n_layer=3, n_head=4, n_positions=64, rotary_dim=4)
    ),
    # Experts in a list of their own, longer than the list of blocks.
    "jetmoe": lambda: hf.JetMoeForCausalLM(
        hf.JetMoeConfig(**SMALL, num_key_value_heads=2, kv_channels=8, intermediate_size=24, num_local_experts=6)
    ),
    "stablelm": lambda: hf.StableLmForCausalLM(
        hf.StableLmConfig(**SMALL, num_key_value_heads=4, intermediate_size=48)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_structure_finds_the_blocks_of_architectures_it_was_not_told_of(name):
    torch.manual_seed(0)
    network = UNKNOWN[name]().eval().requires_grad_(False)
    for parameter in network.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape))
    anatomy = dissect(network, name)
    assert not anatomy.known
    assert len(anatomy.blocks) == 3
    assert elements(network, anatomy) == network.num_parameters()
    assert_branches_add_up(network, anatomy)
    for block in anatomy.blocks:
        assert block.mlp is not None
        assert block.attention is not None


class SquashedBlock(nn.Module):
    """A block that adds another function of what its attention gives: nothing inside it gives what it adds."""

    def __init__(self, whole: nn.Module):
        super().__init__()
        self.self_attention, self.ffn = whole.self_attention, whole.ffn

    def forward(self, stream, mask, cache):
        stream = stream + torch.tanh(self.self_attention(stream, mask, cache))
        return (stream + self.ffn(stream), None)


def test_branches_that_do_not_add_up_are_left_out_and_listed():
    network = tiny("unknown")
    network.stack[1] = SquashedBlock(network.stack[1])
    anatomy = dissect(network, "squashed")
    assert [block.attention is None for block in anatomy.blocks] == [False, True, False]
    assert [block.mlp is None for block in anatomy.blocks] == [False, True, False]
    assert any("blocks 1;" in note for note in anatomy.notes)
    reasons = dict(anatomy.uncovered)
    assert reasons["stack.1.self_attention.wq.weight"] == "what self_attention adds to the stream is not known"
    assert elements(network, anatomy) == network.num_parameters()
    with pytest.raises(UsageError, match=r"no matrix '1\.attention\.q'"):
        anatomy.matrix("1.attention.q")


def test_a_branch_that_is_multiplied_before_it_is_added_is_found_and_noted():
    network = tiny("unknown")
    for block in network.stack:
        block.norm_behind.weight.mul_(2)
        block.forward = lambda stream, mask, cache, block=block: (
            0.5 * (stream + 0.25 * block.norm_behind(block.self_attention(stream, mask, cache)) + block.ffn(stream)),
            None,
        )
    anatomy = dissect(network, "multiplied")
    assert [(b.attention.tail, b.mlp.tail) for b in anatomy.blocks] == [(b.norm_behind, b.ffn) for b in network.stack]
    assert any("multiplied by 0.125, 0.5 before" in note for note in anatomy.notes)


def test_something_between_two_blocks_is_noted():
    network = tiny("unknown")
    network.stack[1].register_forward_pre_hook(lambda _, args: (2 * args[0], *args[1:]))
    notes = dissect(network, "pushed").notes
    assert any("Between block 0 and block 1" in note for note in notes)
    assert not any("Between block 1 and block 2" in note for note in notes)


def test_a_known_name_on_another_build_falls_back_and_says_so():
    network = tiny("llama")
    for block in network.model.layers:
        block.mlp.wide = block.mlp.up_proj
        block.mlp.forward = lambda x, mlp=block.mlp: mlp.down_proj(mlp.act_fn(mlp.gate_proj(x)) * mlp.wide(x))
        del block.mlp.up_proj
    anatomy = dissect(network, "odd")
    assert not anatomy.known
    assert (
        "not built as the family is (it has no parameter at mlp.up_proj" in anatomy.notes[0]
        or "has no mlp.up_proj" in anatomy.notes[0]
    )
    assert "mlp.wide" in anatomy.blocks[0].matrices
    assert elements(network, anatomy) == network.num_parameters()


def test_code_that_calls_itself_by_a_known_name_is_not_taken_at_its_word():
    class Impostor(MysteryForCausalLM):
        pass

    config = MysteryConfig()
    config.model_type = "llama"
    assert not dissect(Impostor(config).eval(), "impostor").known


def test_a_network_without_a_stack_of_blocks_is_refused():
    class NoStack(MysteryForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            self.stack = nn.Sequential(*self.stack)

    with pytest.raises(LesionError, match="no list of decoder layers"):
        dissect(NoStack(MysteryConfig()).eval(), "flat")
