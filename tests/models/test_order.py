"""Blocks in another order: against a deep copy whose list of blocks is rebuilt by hand, in every family."""

import copy

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import architectures_zoo as zoo
import lesion
from lesion.edits.apply import applied
from lesion.errors import LesionError, UsageError
from lesion.models.load import wrap
from lesion.models.order import order_text, parse_order
from lesion.models.reordered import path_of, reordered
from tiny import FAMILIES, bits, model, same_bits, tokenizer

CASES = {
    "llama": [0, 1, 0, 2, 2], "qwen2": [2, 0], "gpt2": [0, 1, 0, 1], "gemma3": [0, 2, 1, 2, 3, 0],
    "gemma2": [1, 1, 0], "qwen2_moe": [1, 0, 1, 2], "unknown": [2, 1, 1],
    # Blocks of two kinds, by a list of numbers and by one of kinds.
    "bamba": [0, 2, 3, 0, 1], "nemotron_h": [2, 3, 0, 0],
}  # fmt: skip
PROMPT = torch.randint(3, 60, (2, 20), generator=torch.Generator().manual_seed(1))


def by_hand(original, order: list[int]) -> nn.Module:
    """A deep copy of the network with copied blocks in its list, each with the number of its place."""
    network = copy.deepcopy(original.network)
    path = path_of(original.network, original.anatomy)
    blocks = network.get_submodule(path)
    stack = nn.ModuleList(copy.deepcopy(blocks[number]) for number in order)
    for place, block in enumerate(stack):
        for module in block.modules():
            for name in ("layer_idx", "index"):
                if hasattr(module, name):
                    setattr(module, name, place)
    parent, _, last = path.rpartition(".")
    setattr(network.get_submodule(parent), last, stack)
    config = network.config
    if indices := getattr(config, "attn_layer_indices", None):
        config.attn_layer_indices = [place for place, number in enumerate(order) if number in indices]
    elif getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[number] for number in order]
    config.num_hidden_layers = len(order)
    return network


@pytest.mark.parametrize("family", CASES)
def test_logits_and_cached_generation_are_those_of_blocks_moved_by_hand(family):
    original = model(family) if family in FAMILIES else wrap(zoo.made(family), tokenizer(), family)
    before = bits(original.network)
    modules = list(original.network.modules())
    other = reordered(original, CASES[family])
    network = by_hand(original, CASES[family])
    logits = network(PROMPT).logits
    assert torch.allclose(other.network(PROMPT).logits, logits, atol=1e-5)
    assert not torch.allclose(original.network(PROMPT).logits, logits, atol=1e-2)
    said = other.network.generate(PROMPT, max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0)
    ids = PROMPT
    for _ in range(6):  # without a cache: every step from the beginning
        ids = torch.cat([ids, network(ids, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(said, ids)
    # The given model is as it was, and nothing is copied.
    assert modules == list(original.network.modules())
    assert same_bits(original.network, before)
    memory = {parameter.data_ptr() for parameter in original.network.parameters()}
    assert {parameter.data_ptr() for parameter in other.network.parameters()} <= memory


def test_every_order_has_a_fingerprint_of_its_own_and_edits_are_of_its_blocks(llama):
    orders = ["0-2", "0,1,0,1", "0,1,1,0", "2,1,0"]
    prints = {reordered(llama, order).fingerprint for order in orders}
    assert len(prints) == 4
    assert reordered(llama, "0-2").fingerprint == llama.fingerprint
    doubled = reordered(llama, "0,1,1,2")
    with applied(doubled, "2x0"):
        edited = doubled.network(PROMPT).logits
    assert torch.allclose(edited, llama.network(PROMPT).logits, atol=1e-5)
    with (
        pytest.raises(UsageError, match=r"^1\.mlp\.up and 2\.mlp\.up of .* are one parameter; no edit can part them"),
        applied(doubled, "1.mlp.up[0,1]×0"),
    ):
        pass


def test_edits_and_generation_of_lesion_run_on_it():
    doubled = reordered(lesion.load("bundled:llama-base"), "0-3,3-7")
    assert doubled.name == "bundled:llama-base order 0-3,3-7"
    assert doubled.generate("What is 2 + 2?", "4x0", max_new_tokens=4) == lesion.load("bundled:llama-base").generate(
        "What is 2 + 2?", max_new_tokens=4
    )


def test_a_block_that_its_number_makes_another_function_is_refused():
    config = GPT2Config(
        vocab_size=64, n_embd=32, n_layer=3, n_head=4, n_positions=64, scale_attn_by_inverse_layer_idx=True
    )
    numbered = wrap(GPT2LMHeadModel(config), tokenizer(), "tiny:numbered")
    with pytest.raises(LesionError, match="Block 2 of tiny:numbered would be another function at place 0"):
        reordered(numbered, "2,1,0")
    assert len(reordered(numbered, "0-1").anatomy.blocks) == 2


def test_an_order_that_the_code_of_a_network_does_not_build_is_refused():
    """The last blocks of Gemma 4 read the keys of earlier ones of their kind."""
    lending = wrap(zoo.made("gemma4_text"), tokenizer(), "tiny:lending")
    with pytest.raises(LesionError, match="code of tiny:lending cannot build it with its blocks in the order 0,2-3 "):
        reordered(lending, "0,2,3")
    with pytest.raises(LesionError, match="Block 0 of tiny:lending would be another function at place 0"):
        reordered(lending, "0-1,0-3")


@pytest.mark.parametrize(
    ("text", "order"), [("0-2,1", (0, 1, 2, 1)), ("2-0", (2, 1, 0)), (" 1 , 1", (1, 1)), ([2, 0], (2, 0))]
)
def test_an_order_reads_back_from_its_text(text, order):
    assert parse_order(text, 3, "a") == order
    assert parse_order(order_text(order), 3, "a") == order


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0-3", "there is no block 3: a has blocks 0 to 2"),
        ("", "The order is empty; name the blocks of a that stay, such as 0-2"),
        ([], "The order is empty"),
        ("0,two", "'two' names no blocks"),
        ([-1], "'-1' names no blocks"),
    ],
)
def test_what_is_no_order_is_refused_in_a_sentence(text, said):
    with pytest.raises(UsageError, match=said):
        parse_order(text, 3, "a")
