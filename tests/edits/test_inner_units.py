"""Neurons, experts and matrices are what plain hooks make of them, in every known family, alone and as rows."""

from contextlib import suppress

import pytest
import torch
from torch import Tensor
from united import FUSED, NEURONS, experts, neurons, without_bias

from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Compose, ScaleBlock, ScaleMlp, Truncate
from lesion.edits.gates import gated
from lesion.edits.table import tabulate
from lesion.edits.units import ScaleExpert, ScaleHead, ScaleMatrix, ScaleNeuron
from lesion.errors import UsageError
from tiny import BUILDS, model

MOE = ("mixtral", "qwen2_moe")
DENSE = [family for family in BUILDS if family not in ("unknown", *MOE)]
WITH_IN = ("gpt_neox", "gpt2", "opt")


def tokens(rows: int = 1, length: int = 10) -> Tensor:
    return torch.randint(3, 64, (rows, length), generator=torch.Generator().manual_seed(0))


def logits(network, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return network(ids, use_cache=False).logits


def assert_exact(subject, cases) -> None:
    """Every edit alone, and all as rows of one batch beside the baseline, gives what its reference gives."""
    ids, expected = tokens(), []
    unedited = logits(subject.network, ids)
    for edit, reference in cases:
        with reference:
            expected.append(logits(subject.network, ids))
        with applied(subject, edit):
            torch.testing.assert_close(logits(subject.network, ids), expected[-1], rtol=1e-5, atol=1e-5)
        assert not torch.allclose(expected[-1], unedited, atol=1e-3), edit
    with gated(subject) as gates:
        gates.assign([BASELINE, *(edit for edit, _ in cases)])
        together = logits(subject.network, ids.expand(1 + len(cases), -1))
    torch.testing.assert_close(together, torch.cat([unedited, *expected]), rtol=1e-5, atol=1e-5)


def edit_of(kind, factors):
    return Compose(tuple(kind(layer, number, factor) for (layer, number), factor in factors.items()))


@pytest.mark.parametrize("family", DENSE)
def test_neurons_are_what_plain_hooks_make_of_them(family):
    subject = model(family)
    assert subject.anatomy.neurons(1).count == NEURONS
    every = [{(0, 3): 0.0, (0, 31): 0.0}, {(1, 47): -6.0}, {(2, 0): 5.0, (1, 17): 0.0, (1, 18): 3.0}]
    assert_exact(
        subject, [(edit_of(ScaleNeuron, factors), neurons(subject.network, family, factors)) for factors in every]
    )


@pytest.mark.parametrize("family", DENSE)
def test_matrices_are_what_plain_hooks_make_of_them_and_biases_stay(family):
    subject = model(family)
    names = [*FUSED.get(family, {}), *(["mlp.in"] if family in WITH_IN else [] if family == "phi3" else ["mlp.up"])]
    cases = [
        (ScaleMatrix(layer, name, factor), without_bias(subject.network, family, layer, name, factor))
        for name in names
        for layer, factor in ((1, 0.0), (2, -0.5))
    ]
    assert_exact(subject, cases)


@pytest.mark.parametrize("family", MOE)
def test_an_expert_is_what_it_adds_and_the_other_weights_stay(family):
    subject = model(family)
    every = [{(0, 0): 0.0}, {(2, 3): 0.0, (2, 1): 0.5}, {(0, 2): 2.0, (2, 0): 0.0}]
    assert_exact(
        subject, [(edit_of(ScaleExpert, factors), experts(subject.network, family, factors)) for factors in every]
    )


@pytest.mark.parametrize("family", MOE)
def test_without_any_expert_a_mixture_adds_nothing_but_a_shared_expert(family):
    subject, ids = model(family), tokens(2)
    with applied(subject, [ScaleExpert(0, number) for number in range(4)]):
        without = logits(subject.network, ids)
    rest = "0.mlp.shared.down" if family == "qwen2_moe" else None
    with applied(subject, [*(f"0.mlp.expert{number}.down×0" for number in range(4))]):
        torch.testing.assert_close(without, logits(subject.network, ids), rtol=1e-5, atol=1e-5)
    with applied(subject, [*(ScaleExpert(0, n) for n in range(4)), *([f"{rest}×0"] if rest else [])]):
        nothing = logits(subject.network, ids)
    with applied(subject, ScaleMlp(0)):
        torch.testing.assert_close(nothing, logits(subject.network, ids), rtol=1e-5, atol=1e-5)


@pytest.mark.same_bits("one batch twice, under the same edit or none")
@pytest.mark.parametrize("name", ["mlp.expert1.up", "mlp.router"])
def test_matrices_of_experts_and_routers_are_scaled_in_the_weights_and_put_back_bit_for_bit(name):
    subject, ids = model("mixtral"), tokens()
    before = {key: tensor.clone() for key, tensor in subject.network.state_dict().items()}
    matrix = subject.anatomy.matrix(f"1.{name}")
    values = matrix.read()
    edited = None
    with suppress(ZeroDivisionError), applied(subject, ScaleMatrix(1, name, 0.5)):
        edited = logits(subject.network, ids)
        raise ZeroDivisionError
    assert all(torch.equal(tensor, before[key]) for key, tensor in subject.network.state_dict().items())
    matrix.write(values * 0.5)
    torch.testing.assert_close(edited, logits(subject.network, ids))
    matrix.write(values)
    with applied(subject, ScaleMatrix(1, name, 1)):
        torch.testing.assert_close(logits(subject.network, ids), logits(model("mixtral").network, ids))
    with gated(subject) as gates, pytest.raises(UsageError, match=rf"1.{name} .* rows of a batch cannot scale"):
        gates.assign([ScaleMatrix(1, name, 0.5)])


def test_units_mix_with_each_other_and_with_other_edits():
    """A whole matrix with slices of its input, a truncation of it, a scaled branch that it ends, a scaled bias."""
    for family, edits in {
        "phi3": ["1.mlp.down×0.5 + 1.mlp.neuron.3×0", "1.attention.q×0.5 + 1.attention.q top 0.5", "2×0"],
        "opt": ["1.mlp.out×0.5 + 1.mlp×2", "1.attention.o×0 + 1.attention.head.1×3", "0.mlp.out bottom 0.5"],
        "mixtral": ["0.mlp.expert.1×0 + 0.mlp×0.5 + 0.attention.k×0", "baseline", "1.mlp.expert.0×3 + 1×0.5"],
    }.items():
        subject, ids = model(family), tokens()
        with gated(subject) as gates:
            gates.assign(edits)
            together = logits(subject.network, ids.expand(len(edits), -1))
        for row, edit in enumerate(edits):
            with applied(subject, edit):
                alone = logits(subject.network, ids)
            torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-5, atol=1e-5)
    # Independent: the weights themselves.
    subject = model("opt")
    down = subject.anatomy.matrix("1.mlp.out")
    bias = subject.network.model.decoder.layers[1].fc2.bias
    with applied(subject, "1.mlp.out×0.5 + 1.mlp×2"):
        edited = logits(subject.network, ids)
    with torch.no_grad():
        down.write(down.read() * 0.5 * 2)
        bias.mul_(2)
    torch.testing.assert_close(edited, logits(subject.network, ids), rtol=1e-5, atol=1e-5)


def test_rows_join_before_the_block_of_their_unit():
    anatomy = model("mixtral").anatomy
    edits = [BASELINE, ScaleExpert(2, 1), ScaleMatrix(1, "attention.q"), Compose((ScaleBlock(2), ScaleHead(0, 1)))]
    assert tabulate(edits, anatomy).first_edited().tolist() == [3, 2, 1, 0]
    dense = [ScaleNeuron(1, 2), Compose((ScaleNeuron(2, 2), Truncate("1.mlp.up", 0.5))), ScaleNeuron(1, 2, 1.0)]
    assert tabulate(dense, model("llama").anatomy).first_edited().tolist() == [1, 1, 3]


def test_units_that_are_not_there_are_refused_with_what_is():
    def refusal(family, edit):
        with pytest.raises(UsageError) as error:
            tabulate([edit], model(family).anatomy)
        return str(error.value)

    assert "has no experts" in refusal("llama", ScaleExpert(0, 1))
    assert "as 0.mlp.neuron.0×0" in refusal("llama", ScaleExpert(0, 1))
    assert "Blocks with experts: 0, 2." in refusal("qwen2_moe", ScaleExpert(1, 1))
    assert "4 experts, 0 to 3; write 1.mlp.expert.3×0" in refusal("mixtral", ScaleExpert(1, 4))
    assert "48 neurons, 0 to 47; write 1.mlp.neuron.47×0.5" in refusal("llama", ScaleNeuron(1, 48, 0.5))
    assert "has 4 experts, each with neurons" in refusal("mixtral", ScaleNeuron(1, 0))
    assert "(nearest: 1.mlp.up" in refusal("llama", ScaleMatrix(1, "mlp.upp"))
    assert "has 96 neurons, 0 to 95" in refusal("unknown", ScaleNeuron(1, 96))
