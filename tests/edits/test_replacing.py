"""A replaced contribution is what plain hooks put in its place, in every family, and is taken back to the bit."""

import pytest
import torch
from replaced import alone_and_padded, in_one_pass_and_with_a_cache, replaced, some_reference
from torch import Tensor

from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Compose, ScaleAttention, ScaleBlock, ScaleMlp, Truncate
from lesion.edits.gates import gated
from lesion.edits.reference import Reference
from lesion.edits.replace import Replace
from lesion.edits.table import tabulate
from lesion.edits.units import ScaleHead
from lesion.errors import UsageError
from tiny import BUILDS, UNLIKE, model

families = pytest.mark.parametrize("family", BUILDS)
unlike = pytest.mark.parametrize("family", UNLIKE)
exact = pytest.mark.same_bits("one batch twice, under the same gates or none")


def tokens(rows: int = 3, length: int = 12) -> Tensor:
    return torch.randint(3, 64, (rows, length), generator=torch.Generator().manual_seed(0))


def single(reference) -> list[Replace]:
    """Every kind at every unit."""
    places = (("0", 0), ("1.attention", 1), ("2.mlp", 3))
    means = [Replace(address, kind, reference) for kind in ("mean", "position", "optimal") for address, _ in places]
    return means + [Replace(address, "resample", reference, draw) for address, draw in places]


def logits(network, ids: Tensor, **arguments) -> Tensor:
    with torch.no_grad():
        return network(ids, use_cache=False, **arguments).logits


def assert_close(one: Tensor, other: Tensor) -> None:
    assert other.isfinite().all()
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@families
def test_every_kind_at_every_unit_is_what_plain_hooks_do(family):
    subject, ids = model(family), tokens()
    reference = some_reference(subject)
    edits = single(reference)
    several = Compose((Replace("0.mlp", "mean", reference), Replace("1", "resample", reference, 2)))
    unedited = logits(subject.network, ids)
    for edit in (*edits, several):
        with replaced(subject.network, family, edit, ids.shape[1]):
            expected = logits(subject.network, ids)
        with applied(subject, edit):
            assert_close(logits(subject.network, ids), expected)
        assert not torch.allclose(expected, unedited, atol=0.01)


@unlike
def test_rows_replaced_scaled_and_unedited_share_a_batch(family):
    subject = model(family)
    reference = some_reference(subject)
    edits = [BASELINE, *single(reference), ScaleBlock(2, 0), ScaleMlp(0, 0.5), ScaleAttention(1, 0)]
    ids = tokens(len(edits))
    with gated(subject) as gates:
        gates.assign(edits)
        together = logits(subject.network, ids)
    for row, edit in enumerate(edits):
        with applied(subject, edit):
            torch.testing.assert_close(
                together[row], logits(subject.network, ids[row : row + 1])[0], rtol=1e-4, atol=1e-4
            )


@unlike
def test_with_a_cache_each_token_gets_what_its_position_gets_in_one_pass(family):
    subject, ids = model(family), tokens(2)
    reference = some_reference(subject)
    edit = Compose((Replace("1", "resample", reference, 1), Replace("2.mlp", "position", reference)))
    with applied(subject, edit):
        whole, pieces = in_one_pass_and_with_a_cache(subject.network, ids)
    torch.testing.assert_close(pieces, whole, rtol=1e-4, atol=1e-4)


@unlike
def test_padding_on_the_left_moves_no_contribution(family):
    subject, ids = model(family), tokens(1, 9)
    reference = some_reference(subject)
    with applied(subject, [Replace("1", "resample", reference), Replace("0.mlp", "position", reference)]):
        alone, padded = alone_and_padded(subject.network, ids)
    torch.testing.assert_close(padded, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])  # attention by distances: positions do not matter
def test_without_position_ids_they_are_counted_over_the_mask(family):
    subject, ids = model(family), tokens(1, 9)
    padded = torch.cat([torch.full((1, 4), 7), ids], 1)
    mask = torch.cat([torch.zeros(1, 4, dtype=torch.long), torch.ones_like(ids)], 1)
    reference = some_reference(subject)
    with applied(subject, [Replace("1", "resample", reference), Replace("2", "position", reference)]):
        expected = logits(subject.network, ids)
        given = logits(subject.network, padded, attention_mask=mask)
    torch.testing.assert_close(given[:, 4:], expected, rtol=1e-4, atol=1e-4)


def break_off_under(subject, edit) -> None:
    with applied(subject, edit):
        logits(subject.network, tokens())
        raise RuntimeError("in the middle")


@exact
@unlike
def test_the_network_is_as_it_was_afterwards_also_after_an_exception(family):
    subject, reference = model(family), some_reference(model(family))
    before = {name: tensor.clone() for name, tensor in subject.network.state_dict().items()}
    expected = logits(subject.network, tokens())
    with pytest.raises(RuntimeError, match="in the middle"):
        break_off_under(subject, [Replace("1", "mean", reference), Replace("0.mlp", "resample", reference)])
    assert torch.equal(logits(subject.network, tokens()), expected)
    assert all(torch.equal(tensor, before[name]) for name, tensor in subject.network.state_dict().items())


def test_a_block_whose_numbers_are_broken_is_replaced_all_the_same():
    subject, ids = model("llama"), tokens()
    for parameter in subject.anatomy.block(2).module.parameters():
        with torch.no_grad():
            parameter.fill_(float("nan"))
    with applied(subject, Replace("2", "mean", some_reference(subject))):
        assert logits(subject.network, ids).isfinite().all()


def test_half_precision_adds_in_float32_and_rounds_once():
    from lesion.models.load import wrap
    from tiny import tiny, tokenizer

    subject = wrap(tiny("llama").bfloat16(), tokenizer(), "tiny:bfloat16")
    part = Replace("0", "mean", some_reference(subject))
    streams = []
    with applied(subject, part):
        block = subject.anatomy.block(0).module
        handle = block.register_forward_hook(lambda module, args, output: streams.append((args[0], output)))
        logits(subject.network, tokens())
        handle.remove()
    before, after = streams[0]
    stream = after[0] if isinstance(after, tuple) else after
    first, others = part.vectors
    put = torch.stack([first, *[others] * 11])
    assert torch.equal(stream, (before.float() + put).bfloat16())


def test_a_draw_is_a_text_and_behind_its_end_the_next_that_goes_on():
    # Texts of 3, 5, 2 and 4 tokens: their vectors are numbers 0–2, 3–7, 8–9 and 10–13.
    vectors = {"resample": {"0": torch.arange(14.0)[:, None]}}
    reference = Reference("m", "f" * 16, "texts", 14, vectors, texts=(3, 5, 2, 4))
    put = [Replace("0", "resample", reference, draw).vectors[:, 0].tolist() for draw in range(4)]
    assert put == [[0, 1, 2, 6, 7], [3, 4, 5, 6, 7], [8, 9, 12, 13, 7], [10, 11, 12, 13, 7]]


def test_gradients_flow_past_a_replaced_place():
    subject, ids = model("llama"), tokens()
    embeddings = subject.network.get_input_embeddings()(ids).detach().requires_grad_()
    with applied(subject, Replace("1.mlp", "resample", some_reference(subject))):
        subject.network(inputs_embeds=embeddings).logits.sum().backward()
    assert embeddings.grad is not None
    assert embeddings.grad.abs().sum() > 0


def test_contributions_of_another_model_are_refused_before_anything_runs():
    subject = model("llama")
    part = Replace("1", "mean", some_reference(model("qwen2")))
    with gated(subject) as gates:
        for assign in (lambda: gates.assign([part]), lambda: gates.assign_everywhere(part)):
            with pytest.raises(UsageError, match=r"'1→mean@\w{16}' takes contributions of tiny:qwen2 .* tiny:llama"):
                assign()


def test_a_place_changed_twice_in_one_edit_or_unknown_is_refused():
    subject = model("llama")
    reference = some_reference(subject)
    part = Replace("1", "mean", reference)
    for other in (ScaleBlock(1, 0.5), Replace("1", "resample", reference)):
        with pytest.raises(UsageError, match="replaces 1 and changes it once more"):
            tabulate([Compose((part, other))], subject.anatomy)
    assert tabulate([Compose((part, ScaleBlock(1, 1.0), ScaleMlp(2, 0)))], subject.anatomy).columns == 1
    inside = (ScaleMlp(1, 0), ScaleHead(1, 0), Replace("1.mlp", "mean", reference), Truncate("1.mlp.up", 0.5))
    for inner in inside:
        with pytest.raises(UsageError, match=r"replaces what 1 gives, so that '1\.\S+.*' within it changes nothing"):
            tabulate([Compose((part, inner))], subject.anatomy)
    beyond = some_reference(model("gemma3"))  # has a fourth block
    with pytest.raises(UsageError, match="there is no block 3"):
        tabulate([Replace("3", "mean", beyond)], subject.anatomy)


def test_a_pass_that_failed_leaves_no_positions_to_the_next():
    llama = model("llama")
    ids, places = torch.tensor([[5, 6, 7]]), torch.tensor([[3, 4, 5]])

    def fail(*_):
        raise RuntimeError("in the middle")

    with applied(llama, Replace("1", "position", some_reference(llama))), torch.inference_mode():
        before = llama.network(ids, use_cache=False).logits
        hook = llama.anatomy.blocks[-1].module.register_forward_hook(fail)
        with pytest.raises(RuntimeError, match="in the middle"):
            llama.network(ids, position_ids=places, use_cache=False)
        hook.remove()
        torch.testing.assert_close(llama.network(ids, use_cache=False).logits, before, rtol=0, atol=0)
