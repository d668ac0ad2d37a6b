"""Heads, groups, neurons and experts of the architectures that people use, against networks edited by hand.

What a head gives is set to 0 where transformers computes it (`eager_attention_forward`), of layers of linear attention
its columns of the output projection; of a neuron its column, of an expert its last matrix and bias. Names and numbers
are written down here, not taken from the anatomy.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

import architectures_zoo as zoo
import lesion
from lesion.edits.apply import applied
from lesion.edits.gates import gated
from lesion.errors import UsageError
from lesion.models.load import wrap
from tiny import tokenizer

IDS = torch.randint(3, 64, (1, 9), generator=torch.Generator().manual_seed(1))
GATED, FC2, EXPERTS = "mlp.down_proj", "mlp.fc2", "mlp.experts"
# Of block 1: the number of key-value groups (2) and the size of a head (8), and within it the paths of the projection
# that reads the heads, of the one that reads the neurons, or of the experts.
_OF_KINDS: dict[str, dict[str, object]] = {
    "arcee cohere cohere2 ernie4_5 exaone4 gemma gemma2 glm granite helium llama ministral ministral3 olmo": {},
    "jais2 nemotron olmo3 qwen3 qwen3_5_text seed_oss smollm3 stablelm hunyuan_v1_dense": {},
    "nanochat": {"neurons": FC2},
    "gemma4_text": {"size": 512},
    "starcoder2": {"neurons": "mlp.c_proj"},
    "phi": {"heads": "self_attn.dense", "neurons": FC2},
    "falcon": {"blocks": "transformer.h", "groups": 1, "heads": "self_attention.dense", "neurons": "mlp.dense_4h_to_h"},
    "bloom": {"blocks": "transformer.h", "groups": 4, "heads": "self_attention.dense", "neurons": "mlp.dense_4h_to_h"},
    "mpt": {"blocks": "transformer.blocks", "groups": 4, "heads": "attn.out_proj", "neurons": "ffn.down_proj"},
    "gptj": {"blocks": "transformer.h", "groups": 4, "heads": "attn.out_proj", "neurons": "mlp.fc_out"},
    "gpt_neo": {"blocks": "transformer.h", "groups": 4, "heads": "attn.attention.out_proj", "neurons": "mlp.c_proj"},
    "gpt_neox": {"blocks": "gpt_neox.layers", "groups": 4, "heads": "attention.dense", "neurons": "mlp.dense_4h_to_h"},
    "bert": {
        **{"blocks": "bert.encoder.layer", "groups": 4, "heads": "attention.output.dense"},
        **{"neurons": "output.dense"},
    },
    "ernie4_5_moe glm4_moe gpt_oss hunyuan_v1_moe minimax_m2 mixtral olmoe phimoe qwen3_moe qwen3_next": {
        "experts": EXPERTS
    },
    "deepseek_v2 deepseek_v3 glm4_moe_lite kimi_linear": {"groups": 4, "experts": EXPERTS},
    "granitemoe granitemoehybrid": {"experts": "block_sparse_moe.experts"},
    "llama4_text": {"experts": "feed_forward.experts"},
    "falcon_h1": {"neurons": "feed_forward.down_proj"},
}
FAMILIES = {kind: names for kinds, names in _OF_KINDS.items() for kind in kinds.split()}
LINEAR = {
    "qwen3_next": "linear_attn.out_proj",
    "qwen3_5_text": "linear_attn.out_proj",
    "kimi_linear": "self_attn.o_proj",
}


def subject(kind: str) -> lesion.Model:
    network = zoo.made(kind)
    network.set_attn_implementation("eager")
    return wrap(network, tokenizer(), f"zoo:{kind}")


def block_of(network: PreTrainedModel, kind: str, layer: int):
    return attrgetter(str(FAMILIES.get(kind, {}).get("blocks", "model.layers")))(network)[layer]


def logits(network: PreTrainedModel) -> Tensor:
    with torch.no_grad():
        return network(IDS).logits


def words(network: PreTrainedModel) -> list[int]:
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    return network.generate(IDS, attention_mask=torch.ones_like(IDS), **options)[0, IDS.shape[1] :].tolist()


@contextmanager
def silenced(network: PreTrainedModel, layer: int, heads: list[int]) -> Iterator[None]:
    """A network whose attention computes 0 in the place of what some heads give, where transformers computes it."""
    module = sys.modules[type(network).__module__]
    plain = module.eager_attention_forward

    def without(attention, *args, **kwargs):
        output, weights = plain(attention, *args, **kwargs)
        if attention.layer_idx == layer:
            output = output.clone()
            output[:, :, heads] = 0
        return output, weights

    module.eager_attention_forward = without
    try:
        yield
    finally:
        module.eager_attention_forward = plain


@contextmanager
def zeroed(*weights: Tensor) -> Iterator[None]:
    """Parts of a network's parameters at 0."""
    before = [weight.clone() for weight in weights]
    for weight in weights:
        weight.zero_()
    try:
        yield
    finally:
        for weight, values in zip(weights, before, strict=True):
            weight.copy_(values)


def says(network: PreTrainedModel) -> tuple[Tensor, list[int] | None]:
    return logits(network), words(network)


def logits_alone(network: PreTrainedModel) -> tuple[Tensor, None]:
    return logits(network), None


def without_heads(network: PreTrainedModel, kind: str, layer: int, heads: list[int], says=says):
    """What a network says whose heads give 0."""
    if hasattr(sys.modules[type(network).__module__], "eager_attention_forward"):
        with silenced(network, layer, heads):
            return says(network)
    weight = attrgetter(str(FAMILIES[kind]["heads"]))(block_of(network, kind, layer)).weight
    with zeroed(*(weight[:, 8 * head : 8 * head + 8] for head in heads)):
        return says(network)


def of_expert(network: PreTrainedModel, kind: str, layer: int, number: int) -> list[Tensor]:
    """What an expert writes with."""
    experts = attrgetter(str(FAMILIES[kind]["experts"]))(block_of(network, kind, layer))
    return [parameter[number] for name, parameter in experts.named_parameters() if name.startswith("down_proj")]


def assert_is(model: lesion.Model, edit: str, expected: tuple[Tensor, list[int] | None]) -> None:
    """Under an edit a model says what is expected, alone, token for token where they are given, and beside others."""
    before = logits(model.network)
    assert not torch.allclose(expected[0], before, atol=1e-4)
    with applied(model, edit):
        torch.testing.assert_close(logits(model.network), expected[0], rtol=1e-5, atol=2e-5)
        assert expected[1] is None or words(model.network) == expected[1]
    with gated(model) as gates, torch.no_grad():
        gates.assign(["0.mlp×0.5" if model.anatomy.blocks[0].mlp else "0×0.5", edit, lesion.BASELINE])
        rows = model.network(IDS.expand(3, -1)).logits
    torch.testing.assert_close(rows[1:], torch.cat([expected[0], before]), rtol=1e-5, atol=2e-5)


@pytest.fixture(scope="module", params=FAMILIES)
def model(request) -> lesion.Model:
    return subject(request.param)


def kind_of(model: lesion.Model) -> str:
    return model.name.removeprefix("zoo:")


def test_a_head_and_a_group_are_what_transformers_computes_for_them(model):
    kind, heads = kind_of(model), model.anatomy.heads(1)
    groups = int(FAMILIES[kind].get("groups", 2))
    assert (heads.count, heads.groups, heads.size) == (4, groups, FAMILIES[kind].get("size", 8))
    assert_is(model, "1.attention.head.2×0", without_heads(model.network, kind, 1, [2]))
    last = list(range(4 - 4 // groups, 4))
    assert_is(model, f"1.attention.group.{groups - 1}×0", without_heads(model.network, kind, 1, last, logits_alone))


@pytest.mark.parametrize("kind", LINEAR)
def test_a_head_of_linear_attention_is_its_columns_of_the_output_projection(kind):
    model = subject(kind)
    assert (model.anatomy.heads(0).count, model.anatomy.heads(0).size) == (4, 8)
    with zeroed(attrgetter(LINEAR[kind])(block_of(model.network, kind, 0)).weight[:, 8:16]):
        expected = says(model.network)
    assert_is(model, "0.attention.head.1×0", expected)


def test_a_neuron_or_an_expert_is_what_its_weights_write(model):
    kind = kind_of(model)
    if "experts" in FAMILIES[kind]:
        assert model.anatomy.experts(1).count == 4
        before = logits(model.network)
        for number in range(4):  # the first that the router chooses for these tokens
            with zeroed(*of_expert(model.network, kind, 1, number)):
                expected = says(model.network)
            if not torch.allclose(expected[0], before, atol=1e-4):
                break
        assert_is(model, f"1.mlp.expert.{number}×0", expected)
        return
    weight = attrgetter(str(FAMILIES[kind].get("neurons", GATED)))(block_of(model.network, kind, 1)).weight
    assert model.anatomy.neurons(1).count == weight.shape[1]
    with zeroed(weight[:, 5:6]):
        expected = says(model.network)
    assert_is(model, "1.mlp.neuron.5×0", expected)


@pytest.mark.parametrize("kind", ["qwen3_moe", "aria_text"])  # [out, in] and [in, out] of each expert
def test_gate_and_up_of_experts_are_told_apart(kind):
    anatomy, network = subject(kind).anatomy, zoo.made(kind)
    experts = block_of(network, kind, 1).mlp.experts
    fused, last = (p[2] if kind == "qwen3_moe" else p[2].T for p in experts.parameters() if p.dim() == 3)
    gate, up = fused.chunk(2)
    for name, expected in (("gate", gate), ("up", up), ("down", last)):
        assert torch.equal(anatomy.matrix(f"1.mlp.expert2.{name}").read(), expected), name


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        # One bias an expert; [in, out] of each, all experts in one tensor.
        ("gpt_oss", "1.mlp.expert.2×0 + 0.attention.head.1×0 + 2.mlp×0.5"),
        # Experts one by one on disk, with a shared one and dense blocks between.
        ("deepseek_v3", "1.mlp.expert.2×0 + 1.attention.head.3×0 + 0.mlp.neuron.3×0 + 2.mlp×0"),
        ("qwen3_moe", "1.mlp.expert.2×0.5 + 0.attention.group.1×0"),
        ("qwen3_next", "0.attention.head.1×0 + 1.mlp.expert.2×0 + 2.mlp×0.5"),
        # What several modules add together, multiplied by the block before it adds them.
        ("granitemoehybrid", "1.mlp.expert.1×0 + 0.attention×0 + 2.mlp×0.5"),
        ("falcon_h1", "1.attention×0.5 + 0.attention.head.2×0 + 2×0"),
        ("gemma4_text", "1.attention.head.1×0 + 1.mlp.neuron.3×0 + 2.mlp×0"),
        # Heads interleaved with keys and values in one parameter; norms in the stream.
        ("bloom", "1.attention.head.3×0 + 2.attention×0.5 + 0.mlp.neuron.9×2"),
        ("gptj", "1.attention.head.3×0 + 2×0.5"),
    ],
)
def test_a_checkpoint_says_what_the_model_says_under_the_edit(kind, edit, tmp_path):
    zoo.made(kind).save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    base = lesion.load(tmp_path / "base")
    with applied(base, edit):
        expected, said = logits(base.network), words(base.network)
    assert not torch.allclose(expected, logits(base.network), atol=1e-3)
    lesion.apply(tmp_path / "base", edit, tmp_path / "out")
    written = lesion.load(tmp_path / "out").network
    torch.testing.assert_close(logits(written), expected, rtol=1e-4, atol=1e-4)
    assert words(written) == said


@pytest.mark.parametrize(
    ("kind", "edit", "sentence"),
    [
        ("deepseek_v3", "0.mlp.expert.1×0", "block 0 .* has no experts: every token .* Blocks with experts: 1, 2, 3"),
        ("deepseek_v3", "1.mlp.neuron.1×0", "block 1 .* has 4 experts, each with neurons of its own"),
        ("deepseek_v3", "1.mlp.expert.4×0", "no 1.mlp.expert.4: block 1 .* has 4 experts, 0 to 3"),
        # A norm over all heads stands before the output projection of Mamba 2 and BitNet.
        (
            "granitemoehybrid",
            "0.attention.head.1×0",
            "heads of block 0 .* not made of heads that lie side by side. Blocks with heads: 1, 3. Edit 0.attention",
        ),
        ("bitnet", "0.attention.head.1×0", "heads are mixed before the output matrix"),
        # Each output is a difference of two heads.
        ("diffllama", "0.attention.head.1×0", "its attention is computed in several steps"),
        # Its blocks run several times in a pass.
        ("hrm_text", "0.attention.head.0×0", "its attention is computed in several steps. Edit 0.attention as a whole"),
        ("mamba", "0.attention.head.0×0", "not made of heads that lie side by side. Edit 0.attention as a whole"),
        (
            "nemotron_h",
            "1.attention×0",
            r"No attention .* in block 1 .* Blocks with a known attention: 0, 2\. Edit whole",
        ),
        ("mamba", "0.mlp.neuron.0×0", "no mlp is known there. Edit 0 as a whole"),
        # Experts of the attention; a router whose weights reach no single module.
        ("jetmoe", "0.attention.head.0×0", "not all that its attention adds passes through one output matrix"),
        ("jetmoe", "0.mlp.expert.0×0", "experts of block 0 .* no single matrix ends its MLP.* Edit 0.mlp as a whole"),
    ],
)
def test_a_part_that_is_not_there_or_not_apart_is_refused_in_a_sentence(kind, edit, sentence):
    with pytest.raises(UsageError, match=sentence), applied(subject(kind), edit):
        pass
