"""As it is: a model that computes with more than its weights is refused as a baseline, or is another model."""

import pytest
import torch

from lesion.edits.apply import applied, as_it_is
from lesion.errors import LesionError, UsageError
from tiny import model

PLACES = ["", "model", "model.embed_tokens", "model.norm", "lm_head"]
PLACES += [f"model.layers.1{rest}" for rest in ("", ".mlp", ".mlp.act_fn", ".input_layernorm", ".self_attn.q_proj")]
IDS = torch.tensor([[5, 6, 7]])


@pytest.mark.parametrize("place", PLACES)
def test_a_hook_or_a_forward_on_any_module_is_refused_until_it_is_taken_away(place):
    subject = model("llama")
    module = subject.network.get_submodule(place)
    for register in (module.register_forward_hook, module.register_forward_pre_hook):
        handle = register(lambda *_: None)
        with pytest.raises(UsageError, match=f"a hook on {place or 'LlamaForCausalLM'}"):
            as_it_is(subject)
        handle.remove()
    module.forward = lambda *args, **kwargs: args
    with pytest.raises(UsageError, match=f"a forward of its own on {place or 'LlamaForCausalLM'}"):
        as_it_is(subject)
    del module.forward
    assert as_it_is(subject) is subject


def test_hooks_that_change_nothing_are_allowed():
    accelerate = pytest.importorskip("accelerate")
    subject = model("llama")
    subject.network(IDS, output_hidden_states=True)  # transformers leaves hooks on every block
    assert as_it_is(subject) is subject
    accelerate.dispatch_model(subject.network, {"": "cpu"}, main_device="cpu", force_hooks=True)
    assert as_it_is(subject) is subject
    with applied(subject, "1.mlp.up top 0.5"):
        assert not torch.equal(subject.network(IDS).logits, model("llama").network(IDS).logits)


def test_other_buffers_and_numbers_in_modules_are_another_model():
    subject = model("llama")
    trunk = subject.network.model
    trunk.rotary_emb.inv_freq.mul_(5)
    prints = {subject.fingerprint, (now := as_it_is(subject)).fingerprint}
    assert as_it_is(now) is now
    trunk.rotary_emb.inv_freq.div_(5)
    for part, name, value in ((trunk.norm, "variance_epsilon", 1.0), (trunk.layers[1].self_attn, "scaling", 5.0)):
        before = getattr(part, name)
        setattr(part, name, value)
        prints.add(as_it_is(subject).fingerprint)
        setattr(part, name, before)
    assert len(prints) == 4
    assert as_it_is(subject) is subject


def test_a_matrix_whose_module_has_another_forward_cannot_be_edited():
    subject = model("llama")
    up = subject.anatomy.matrix("1.mlp.up").module
    weight = up.weight.clone()
    up.forward = lambda inputs: inputs @ weight.T
    with pytest.raises(LesionError, match=r"1\.mlp\.up has a forward of its own"):
        applied(subject, "1.mlp.up top 0.5").__enter__()


def offloaded(network):
    pytest.importorskip("accelerate").cpu_offload(network)


def on_meta(network):
    network.to("meta")


def in_float8(network):
    network.to(torch.float8_e4m3fn)


def in_int8(network):
    torchao = pytest.importorskip("torchao.quantization")
    torchao.quantize_(network, torchao.Int8WeightOnlyConfig())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (offloaded, "not in memory"),
        (on_meta, "not in memory"),
        (in_float8, "was quantised"),
        (in_int8, "was quantised"),
    ],
)
def test_weights_that_are_gone_or_quantised_since_the_model_was_loaded_are_refused(change, reason):
    subject = model("llama")
    assert not subject.anatomy.tied
    change(subject.network)
    for use in (lambda: as_it_is(subject), subject.anatomy.matrix("1.mlp.up").read):
        with pytest.raises(LesionError, match=reason):
            use()
