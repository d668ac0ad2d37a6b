"""Readout: a frozen final norm and a head against the formulas of RMSNorm and LayerNorm, and what is refused."""

import pytest
import torch
from torch import nn

from lesion.activations.readout import readout
from lesion.errors import LesionError
from tiny import model

TEXT = (5, 6, 7, 30, 12)
GOLD = torch.tensor([9, 20])


def rms(x, norm, shift):
    scale = (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()
    return scale, lambda c: c * scale * (shift + norm.weight.double()), torch.zeros((), dtype=torch.float64)


def layer(x, norm, shift):
    scale = (x.var(-1, keepdim=True, unbiased=False) + norm.eps).rsqrt()
    return scale, lambda c: (c - c.mean(-1, keepdim=True)) * scale * norm.weight.double(), norm.bias.double()


@pytest.mark.parametrize(
    ("family", "norm", "formula", "shift"),
    [
        ("llama", "model.norm", rms, 0.0),
        ("olmo2", "model.norm", rms, 0.0),
        ("gemma2", "model.norm", rms, 1.0),
        ("gpt2", "transformer.ln_f", layer, 0.0),
        ("gpt_neox", "gpt_neox.final_layer_norm", layer, 0.0),
    ],
)
def test_the_frozen_norm_is_the_formula_and_logits_are_sums(family, norm, formula, shift):
    lesion_model = model(family)
    reads = readout(lesion_model, TEXT)
    generator = torch.Generator().manual_seed(1)
    x, part = (3 * torch.randn(2, 32, generator=generator, dtype=torch.float64) for _ in range(2))
    _, linear, offset = formula(x, lesion_model.network.get_submodule(norm), shift)
    frozen = reads.norm.frozen(x, "the model")
    assert torch.allclose(frozen(part), linear(part), atol=1e-4)
    assert torch.allclose(reads.norm.offset, offset, atol=1e-5)
    weight = lesion_model.network.get_output_embeddings().weight.double()
    directions, bias = reads.directions(GOLD, None)
    logits = (linear(x) + offset) @ weight.T
    wanted = logits[[0, 1], GOLD] - logits.mean(1)
    assert torch.allclose(((frozen(x) + reads.norm.offset) * directions).sum(-1) + bias, wanted, atol=1e-4)
    tempted, _ = reads.directions(GOLD, torch.tensor([3, 3]))
    assert torch.allclose(tempted, weight[GOLD] - weight[[3, 3]])


def test_a_softcap_stands_behind_the_head_and_is_left_out():
    reads = readout(model("gemma2"), TEXT)
    assert reads.cap == 30.0
    assert torch.allclose(reads.behind(torch.tensor([100.0])), 30 * torch.tanh(torch.tensor([100 / 30])))


class Squashed(nn.Module):
    """No norm: it bends every dimension."""

    def forward(self, x):
        return torch.tanh(x)


def test_what_is_no_norm_is_refused_by_its_name():
    strange = model("llama")
    strange.network.model.norm = Squashed()
    with pytest.raises(
        LesionError, match=r"final norm of tiny:llama \(Squashed\) is neither an RMSNorm nor a LayerNorm"
    ):
        readout(strange, TEXT)


def test_two_modules_between_the_last_block_and_the_head_are_refused():
    strange = model("llama")
    hook = strange.network.lm_head.register_forward_pre_hook(lambda module, args: (2 * args[0],))
    with pytest.raises(LesionError, match="something else than one final norm"):
        readout(strange, TEXT)
    hook.remove()
    readout(strange, TEXT)


def test_logits_that_are_changed_behind_the_head_are_a_factor_or_refused(monkeypatch):
    strange = model("llama")
    plain = type(strange.network).forward

    def changed(change):
        def forward(self, *args, **kwargs):
            output = plain(self, *args, **kwargs)
            output.logits = change(output.logits)
            return output

        monkeypatch.setattr(type(strange.network), "forward", forward)

    changed(lambda logits: logits / 4)
    assert readout(strange, TEXT).factor == pytest.approx(0.25, rel=1e-4)
    changed(torch.sin)
    with pytest.raises(LesionError, match="neither a factor nor a softcap"):
        readout(strange, TEXT)


def test_a_head_that_is_no_plain_matrix_is_refused():
    strange = model("llama")
    strange.network.lm_head = nn.Sequential(strange.network.lm_head)
    with pytest.raises(LesionError, match=r"head of tiny:llama \(Sequential\) is no plain matrix of 32 columns"):
        readout(strange, TEXT)
