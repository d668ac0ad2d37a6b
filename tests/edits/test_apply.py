"""`applied` does to every family what an independent computation does, and takes it back to the bit."""

import dataclasses

import accelerate
import pytest
import torch
from references import double, everything_hooked, scaled, stack, without_block, without_branch, zero_ablated
from torch import Tensor, nn
from transformers import PreTrainedModel

from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Compose, ScaleAttention, ScaleBlock, ScaleMlp, ScaleParameters
from lesion.edits.files.artefact import read_edit, save_edit
from lesion.edits.selections.topk import Magnitude
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model, wrap
from tiny import BUILDS, UNLIKE, model

BRANCHES = {"attention": ScaleAttention, "mlp": ScaleMlp}
SEVERAL = Compose((ScaleAttention(0, 0.5), ScaleBlock(1, 1.1), ScaleMlp(2, -0.5), ScaleMlp(1, 0.5)))
LAYERS = [0, 1, 2]

families = pytest.mark.parametrize("family", BUILDS)
unlike = pytest.mark.parametrize("family", UNLIKE)
# The blocks of most families are made alike: each is tested at one of them in turn, and these at all of theirs.
VARIED = {"gemma2", "gemma3", "qwen2_moe"}
PLACES = [
    (family, layer)
    for number, family in enumerate(BUILDS)
    for layer in LAYERS
    if family in VARIED or layer == number % len(LAYERS)
]
places = pytest.mark.parametrize(("family", "layer"), PLACES)
exact = pytest.mark.same_bits("one batch twice: factors of 0 and 1 and taking an edit back are exact by construction")


def tokens(rows: int = 3, length: int = 12) -> Tensor:
    return torch.randint(3, 64, (rows, length), generator=torch.Generator().manual_seed(0))


def logits(network: nn.Module, ids: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        return network(tokens() if ids is None else ids).logits


def logits_under(on_table: Model, edit) -> Tensor:
    with applied(on_table, edit):
        return logits(on_table.network)


def assert_same(one: Tensor, other: Tensor) -> None:
    assert one.isfinite().all()
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6 * other.abs().max().item())


@exact
@places
def test_zeroing_a_block_is_a_network_that_was_built_without_it(family, layer):
    subject = model(family)
    expected = logits(without_block(subject.network, family, layer))
    assert not torch.allclose(expected, logits(subject.network), atol=0.01)
    assert torch.equal(logits_under(subject, ScaleBlock(layer, 0)), expected)


@exact
@places
@pytest.mark.parametrize("unit", BRANCHES)
def test_zeroing_a_branch_is_a_network_whose_output_projection_is_zero(family, layer, unit):
    subject = model(family)
    expected = logits(without_branch(subject.network, family, layer, unit))
    assert not torch.allclose(expected, logits(subject.network), atol=0.01)
    assert_same(logits_under(subject, BRANCHES[unit](layer, 0)), expected)


# In the unknown architecture a norm with a bias stands behind the attention: with the weights at zero it
# still adds its bias, so that the paper's ablation would not be the identity there.
@exact
@pytest.mark.parametrize(("family", "layer"), [place for place in PLACES if place[0] != "unknown"])
def test_the_papers_zero_ablation_of_all_weights_is_scaling_the_block_by_zero(family, layer):
    subject = model(family)
    expected = logits(zero_ablated(subject.network, family, layer))
    assert_same(logits_under(subject, ScaleBlock(layer, 0)), expected)
    assert_same(logits_under(subject, Compose((ScaleAttention(layer, 0), ScaleMlp(layer, 0)))), expected)


SINGLE = [scale(1, factor) for scale in (ScaleBlock, ScaleAttention, ScaleMlp) for factor in (0.5, 1.1)]


# Several at once, which has every unit, in every family; one alone in turn.
@pytest.mark.parametrize(
    ("family", "edit"),
    [pair for number, family in enumerate(BUILDS) for pair in ((family, SEVERAL), (family, SINGLE[number % 6]))],
    ids=str,
)
def test_other_factors_agree_with_a_float64_reference(family, edit):
    subject = model(family)
    expected = logits(scaled(subject.network, family, edit))
    unedited = logits(double(subject.network))
    moved = (expected - unedited).abs().max().item()
    worst = (logits_under(subject, edit).double() - expected).abs().max().item()
    assert moved > 0.01
    assert worst < 1e-3 * moved


@exact
@unlike
def test_a_factor_of_one_and_the_baseline_change_no_bit(family):
    subject = model(family)
    expected = logits(subject.network)
    for edit in (BASELINE, ScaleBlock(1, 1), ScaleAttention(0, 1), Compose((ScaleMlp(0, 2), ScaleMlp(0, 0.5)))):
        assert torch.equal(logits_under(subject, edit), expected)


# One of the two kinds in every family: by a hook on the block alone, or on its parts too.
@pytest.mark.parametrize(
    ("family", "edit"),
    [(family, (ScaleBlock(1, 0), SEVERAL)[number % 2]) for number, family in enumerate(BUILDS)],
    ids=str,
)
def test_generate_under_an_edit_is_generate_on_an_edited_network(family, edit):
    subject = model(family)
    whole = subject.network
    cut = without_block(whole, family, 1) if edit == ScaleBlock(1, 0) else scaled(whole, family, edit)
    with applied(subject, edit):
        answered, steps = generate(whole)
    expected, expected_steps = generate(cut)
    assert torch.equal(answered, expected)
    torch.testing.assert_close(steps.double(), expected_steps.double(), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(steps[0], generate(whole)[1][0], atol=0.01)


def generate(network: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """Greedy answers [rows, tokens] and the logits they were chosen by [steps, rows, vocabulary]."""
    prompt = tokens(2, 6)
    answer = network.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=12,
        do_sample=False,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return answer.sequences, torch.stack(answer.logits)


def state(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def assert_restored(subject: Model, before: dict[str, Tensor], hooks: dict, expected: Tensor) -> None:
    after = subject.network.state_dict()
    assert after.keys() == before.keys()
    for name, tensor in before.items():
        assert tensor.dtype == after[name].dtype
        assert torch.equal(tensor.view(torch.uint8), after[name].view(torch.uint8)), name
    assert everything_hooked(subject.network) == hooks
    assert torch.equal(logits(subject.network), expected)


def break_off_under(subject: Model, edit) -> None:
    with applied(subject, edit):
        logits(subject.network)
        raise RuntimeError("in the middle")


@exact
@families
def test_restore_is_bit_exact_also_after_an_exception(family):
    subject = model(family)
    expected, before, hooks = (logits(subject.network), state(subject.network), everything_hooked(subject.network))
    tied = subject.network.get_input_embeddings().weight is subject.network.get_output_embeddings().weight
    assert tied == subject.network.config.tie_word_embeddings
    with applied(subject, SEVERAL):
        logits(subject.network)
        assert everything_hooked(subject.network) != hooks
    assert_restored(subject, before, hooks, expected)
    with pytest.raises(RuntimeError, match="in the middle"):
        break_off_under(subject, SEVERAL)
    assert_restored(subject, before, hooks, expected)
    still = subject.network.get_input_embeddings().weight is subject.network.get_output_embeddings().weight
    assert still == tied


@exact
@unlike
def test_nested_edits_are_their_composition_and_the_inner_one_goes_first(family):
    subject = model(family)
    outer, inner = ScaleBlock(1, 0), Compose((ScaleAttention(0, 0.5), ScaleBlock(2, 0)))
    with applied(subject, outer):
        with applied(subject, inner):
            both = logits(subject.network)
        assert torch.equal(logits(subject.network), logits(without_block(model(family).network, family, 1)))
    assert torch.equal(both, logits_under(subject, Compose((outer, inner))))


def test_the_same_place_nested_multiplies():
    subject = model("llama")
    with applied(subject, ScaleBlock(1, 0.5)), applied(subject, ScaleBlock(1, 0.5)):
        twice = logits(subject.network)
    torch.testing.assert_close(twice, logits_under(subject, ScaleBlock(1, 0.25)), rtol=1e-4, atol=1e-4)


@exact
@unlike
def test_a_block_or_branch_that_breaks_its_numbers_is_cut_clean(family):
    subject = model(family)
    expected = {
        ScaleBlock(1): logits(without_block(subject.network, family, 1)),
        ScaleMlp(1): logits(without_branch(subject.network, family, 1, "mlp")),
    }
    with torch.no_grad():
        broken = without_branch(subject.network, family, 1, "mlp")
        for mine, zeroed in zip(subject.network.parameters(), broken.parameters(), strict=True):
            if not torch.equal(mine, zeroed):
                mine.fill_(float("nan"))
    assert not logits(subject.network).isfinite().any()
    for edit, cut in expected.items():
        assert_same(logits_under(subject, edit), cut)


@pytest.mark.parametrize("family", ["llama", "gpt2", "unknown"])
def test_a_block_outside_the_model_is_an_error_and_leaves_no_hook(family):
    subject = model(family)
    hooks = everything_hooked(subject.network)
    for edit in (ScaleBlock(12), ScaleMlp(3), Compose((ScaleBlock(0), ScaleAttention(12)))):
        with pytest.raises(UsageError, match=rf"no block (12|3): tiny:{family} has blocks 0 to 2\."):
            with applied(subject, edit):
                pytest.fail("the edit was taken")
    assert everything_hooked(subject.network) == hooks


def test_a_branch_that_the_anatomy_does_not_know_is_an_error():
    subject = model("unknown")
    blind = dataclasses.replace(
        subject.anatomy, blocks=tuple(dataclasses.replace(block, mlp=None) for block in subject.anatomy.blocks)
    )
    with pytest.raises(UsageError, match=r"No mlp is known in block 1 of tiny:unknown"):
        with applied(dataclasses.replace(subject, anatomy=blind), ScaleMlp(1)):
            pytest.fail("the edit was taken")


def test_a_forward_pass_that_goes_round_an_edited_place_is_an_error():
    subject = model("llama")
    whole = stack(subject.network, "llama")
    subject.network.model.layers = nn.ModuleList([whole[0], whole[2]])
    subject.network.config.num_hidden_layers = 2
    subject = dataclasses.replace(subject, anatomy=dataclasses.replace(subject.anatomy, build=None))
    with pytest.raises(LesionError, match=r"edit of 1, 1\.mlp did not take hold"):
        with applied(subject, Compose((ScaleBlock(1), ScaleMlp(1), ScaleBlock(2)))):
            subject.network(tokens(), use_cache=False)
    with applied(subject, ScaleBlock(2)):
        subject.network(tokens(), use_cache=False)


def test_a_module_that_stands_in_two_places_cannot_be_edited_in_one_of_them():
    network = model("llama").network
    network.model.layers[2] = network.model.layers[1]
    subject = model("llama")
    blocks = tuple(
        dataclasses.replace(block, module=network.model.layers[block.index]) for block in subject.anatomy.blocks
    )
    anatomy = dataclasses.replace(subject.anatomy, blocks=blocks, build=None)
    looped = dataclasses.replace(subject, network=network, anatomy=anatomy)
    with pytest.raises(UsageError, match=r"1 and 2 of tiny:llama are one module"):
        with applied(looped, ScaleBlock(2)):
            pytest.fail("the edit was taken")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_block_that_overwrites_its_input_is_found_out(mode):
    subject = model("llama")
    block = subject.anatomy.block(1).module
    plain = block.forward

    def overwriting(hidden_states, **kwargs):
        return hidden_states.copy_(plain(hidden_states, **kwargs))

    block.forward = overwriting
    with pytest.raises(LesionError, match="Block 1 of tiny:llama changes its input in place"):
        with applied(subject, ScaleBlock(1, 0)), mode():
            subject.network(tokens())
    with applied(subject, ScaleBlock(2, 0)):
        assert logits(subject.network).isfinite().all()


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "unknown"])
def test_gradients_flow_through_an_edit_as_through_an_edited_network(family):
    subject = model(family)
    edit = Compose((ScaleBlock(1, 0), ScaleBlock(2, 0.5)))
    reference = scaled(subject.network, family, edit)
    gradients = []
    for network in (subject.network, reference):
        network.requires_grad_(True)
        with applied(subject, edit):
            network(tokens()).logits.logsumexp(-1).sum().backward()
        gradients.append({name: parameter.grad for name, parameter in network.named_parameters()})
    assert gradients[0].keys() == gradients[1].keys()
    scale = max(g.abs().max().item() for g in gradients[1].values() if g is not None)
    for name, gradient in gradients[1].items():
        mine = gradients[0][name]
        mine = torch.zeros(gradient.shape) if mine is None else mine
        torch.testing.assert_close(mine.double(), gradient, rtol=1e-3, atol=1e-5 * scale, msg=name)


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "gemma2"])
@pytest.mark.parametrize("seen_before", [False, True])
def test_collected_hidden_states_are_the_edited_ones(family, seen_before):
    subject = model(family)
    if seen_before:  # transformers hangs its collecting hooks on the first such call, before ours or after
        subject.network(tokens(), output_hidden_states=True)
    with applied(subject, Compose((ScaleBlock(1, 0), ScaleBlock(0, 0)))):
        hidden = subject.network(tokens(), output_hidden_states=True).hidden_states
    assert torch.equal(hidden[0], hidden[1])
    assert torch.equal(hidden[1], hidden[2])
    assert not torch.equal(hidden[2], hidden[3])


@exact
def test_a_network_dispatched_by_accelerate_is_edited_like_any_other():
    subject = model("qwen2")
    edit = Compose((ScaleBlock(1, 0), ScaleAttention(0, 0.5), ScaleMlp(2, 1.1)))
    expected, unedited = logits_under(subject, edit), logits(subject.network)
    accelerate.cpu_offload(subject.network, execution_device="cpu")
    assert subject.network.model.layers[1].self_attn.q_proj.weight.is_meta
    assert torch.equal(logits_under(subject, edit), expected)
    assert torch.equal(logits(subject.network), unedited)


@exact
def test_in_bfloat16_the_ends_are_exact_and_the_stream_keeps_its_dtype():
    network = model("llama").network.bfloat16()
    subject = wrap(network, model("llama").tokenizer, "half")
    assert torch.equal(logits_under(subject, ScaleBlock(1, 0)), logits(without_block(network, "llama", 1)))
    _, before, after, _ = network(tokens(), output_hidden_states=True).hidden_states
    with applied(subject, ScaleBlock(1, 1.1)):
        scaled_stream = network(tokens(), output_hidden_states=True).hidden_states[2]
    # 1.1 is meant, not 1.1015625, the nearest number that bfloat16 has.
    expected = (before.double() + 1.1 * (after.double() - before.double())).bfloat16()
    assert scaled_stream.dtype == torch.bfloat16
    assert (scaled_stream == expected).double().mean() > 0.99


PRUNED = ScaleParameters(Magnitude(0.2), 0.0)


def pruned_by_hand(subject: Model) -> None:
    """Every matrix overwritten, its largest fifth with zeros, by a full sort of its own."""
    for matrix in subject.anatomy.scored.values():
        values = matrix.read()
        sizes = values.abs().flatten().sort().values
        matrix.write(values.masked_fill(values.abs() >= sizes[-int(0.2 * len(sizes))], 0.0))


@exact
@unlike
def test_weights_blocks_and_branches_are_edited_together_and_come_back(family):
    subject, by_hand = model(family), model(family)
    pruned_by_hand(by_hand)
    expected, before, hooks = logits(subject.network), state(subject.network), everything_hooked(subject.network)
    assert torch.equal(logits_under(subject, PRUNED), logits(by_hand.network))
    assert_restored(subject, before, hooks, expected)
    for edit in (Compose((PRUNED, SEVERAL)), Compose((SEVERAL, PRUNED))):
        assert torch.equal(logits_under(subject, edit), logits_under(by_hand, SEVERAL))
    with pytest.raises(RuntimeError, match="in the middle"):
        break_off_under(subject, Compose((PRUNED, SEVERAL)))
    assert_restored(subject, before, hooks, expected)


def test_an_edit_of_weights_beside_a_place_that_is_not_there_writes_nothing():
    subject = model("llama")
    before = state(subject.network)
    with pytest.raises(UsageError, match="no block 7"), applied(subject, Compose((PRUNED, ScaleBlock(7)))):
        pytest.fail("never reached")
    with pytest.raises(LesionError, match="the factor is 1"):
        with applied(subject, ScaleParameters(Magnitude(0.2), 1.0)):
            pytest.fail("never reached")
    assert all(torch.equal(tensor, before[name]) for name, tensor in subject.network.state_dict().items())


def test_nested_an_inner_selection_chooses_among_weights_that_the_outer_one_has_changed():
    subject = model("llama")
    matrix = subject.anatomy.matrix("1.mlp.up")
    size = matrix.shape[0] * matrix.shape[1]
    with applied(subject, PRUNED), applied(subject, PRUNED):
        assert int((matrix.read() == 0).sum()) == 2 * int(0.2 * size)
    with applied(subject, Compose((PRUNED, ScaleParameters(Magnitude(0.1), 0.0)))):
        assert int((matrix.read() == 0).sum()) == int(0.2 * size)


@exact
def test_an_edit_may_be_its_text_a_list_or_what_was_read_from_a_file(tmp_path):
    subject = model("llama")
    before = logits(subject.network)
    both = Compose((ScaleBlock(1), ScaleMlp(2, 0.5)))
    for given in ("1×0 + 2.mlp×0.5", ["1×0", ScaleMlp(2, 0.5)]):
        assert torch.equal(logits_under(subject, given), logits_under(subject, both))
    pruning = ScaleParameters(Magnitude(0.1))
    file = read_edit(save_edit(tmp_path / "cut.edit", pruning, subject))
    for given in (file, tmp_path / "cut.edit", str(tmp_path / "cut.edit"), [file]):
        assert torch.equal(logits_under(subject, given), logits_under(subject, pruning))
    with_a_place = Compose((pruning, ScaleBlock(1)))
    assert torch.equal(logits_under(subject, [tmp_path / "cut.edit", "1×0"]), logits_under(subject, with_a_place))
    assert not torch.equal(logits_under(subject, file), before)
    for given in (file, tmp_path / "cut.edit"):
        with pytest.raises(LesionError, match=r"made for tiny:llama"):
            applied(model("llama_tied"), given).__enter__()
