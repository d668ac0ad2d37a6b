"""Rows that truncate: each row of a batch is what the truncated weights make of it, and no other row notices."""

import pytest
import torch
from references import everything_hooked
from torch import Tensor
from torch.nn.functional import linear

from lesion.edits import lowrank
from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Compose, ScaleAttention, ScaleBlock, ScaleMlp, ScaleParameters, Truncate
from lesion.edits.gates import gated
from lesion.edits.lowrank import factor_bytes
from lesion.edits.selections.topk import Magnitude
from lesion.edits.spectra import spectra
from lesion.edits.table import maskable, tabulate
from lesion.errors import LesionError, UsageError
from lesion.models.load import wrap
from tiny import BUILDS, UNLIKE, model, tiny, tokenizer

families = pytest.mark.parametrize("family", BUILDS)
unlike = pytest.mark.parametrize("family", UNLIKE)
exact = pytest.mark.same_bits("one batch twice: a row that is not truncated passes through untouched")
# Where several matrices lie in one parameter: by rows per head, by rows, by columns of a transposed storage.
fused = pytest.mark.parametrize("family", ["gpt_neox", "phi3", "gpt2"])


def prompts(rows: int, length: int = 7) -> Tensor:
    return torch.randint(3, 64, (rows, length), generator=torch.Generator().manual_seed(1))


def logits(subject, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return subject.network(ids, use_cache=False).logits


def alone(subject, ids: Tensor, edit) -> Tensor:
    with applied(subject, edit):
        return logits(subject, ids[None])[0]


def assert_close(one: Tensor, other: Tensor, tolerance: float = 2e-4) -> None:
    assert other.isfinite().all()
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def truncations(subject, layers=(0, 1)) -> list:
    """Every matrix of some blocks that rows can truncate, by turns in three ways."""
    ways = [(0.25, "top"), (0.5, "bottom"), (0.0, "top")]
    found = [m for layer in layers for m in subject.anatomy.block(layer).matrices.values() if maskable(m)]
    return [Truncate(matrix.address, *ways[number % 3]) for number, matrix in enumerate(found)]


def outputs_of(module, run) -> Tensor:
    """What a module gives in a pass, after all hooks that hang on it now."""
    seen = []
    handle = module.register_forward_hook(lambda module, args, output: seen.append(output.clone()))
    run()
    handle.remove()
    return torch.cat(seen)


def part(output: Tensor, matrix) -> Tensor:
    """What of a module's output [.., out] belongs to a matrix, the rows of every head counted by hand."""
    storage = matrix.storage
    size = output.shape[-1] // storage.groups
    columns = [group * size + row for group in range(storage.groups) for row in range(storage.start, storage.stop)]
    return output[..., columns]


# -- a batch of rows


@exact
@families
def test_every_row_has_the_logits_of_the_weights_truncated_and_one_that_is_not_edited_those_of_the_network(family):
    subject = model(family)
    edits = [BASELINE, *truncations(subject, (1,)), BASELINE]
    ids = prompts(len(edits))
    expected = logits(subject, ids)
    with gated(subject) as gates:
        gates.assign(edits)
        found = logits(subject, ids)
    for row, edit in enumerate(edits):
        if edit != BASELINE:
            assert_close(found[row], alone(subject, ids[row], edit))
            assert not torch.allclose(found[row], expected[row], atol=1e-3), edit
        elif family in ("mixtral", "qwen2_moe"):  # experts see the tokens of all rows together, now other ones
            assert_close(found[row], expected[row], 1e-5)
        else:
            assert torch.equal(found[row], expected[row])


@fused
@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_the_neighbours_of_a_fused_matrix_keep_their_bits_and_it_is_the_part_of_numpy(family, name):
    subject, ids = model(family), prompts(3)
    block = subject.anatomy.block(0)
    matrix = block.matrices[f"attention.{name}"]
    given = []
    watch = matrix.module.register_forward_hook(lambda module, args, output: given.append(args[0]), prepend=True)
    before = outputs_of(matrix.module, lambda: logits(subject, ids))
    watch.remove()
    with gated(subject) as gates:
        gates.assign([BASELINE, Truncate(matrix.address, 0.25), Truncate(matrix.address, 0.25, "bottom")])
        after = outputs_of(matrix.module, lambda: logits(subject, ids))
    assert torch.equal(after[0], before[0])
    for other in ("q", "k", "v"):
        neighbour = block.matrices[f"attention.{other}"]
        assert torch.equal(part(after, neighbour)[0], part(before, neighbour)[0])
        assert torch.equal(part(after, neighbour), part(before, neighbour)) == (other != name)
    left, values, right = torch.linalg.svd(matrix.read().double(), full_matrices=False)
    bias = part(matrix.module.bias, matrix).double() if getattr(matrix.module, "bias", None) is not None else None
    rank = len(values)
    for row, cut in ((1, slice(0, rank // 4)), (2, slice(rank - rank // 4, rank))):
        kept = (left[:, cut] * values[cut]) @ right[cut]
        expected = linear(given[0].view(3, 7, -1)[row].double(), kept, bias)
        torch.testing.assert_close(part(after, matrix)[row].double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "address"),
    [("gpt2", "0.mlp.in"), ("gpt_neox", "0.attention.k"), ("opt", "0.mlp.in"), ("opt", "0.mlp.out")],
)
def test_of_a_matrix_of_which_nothing_is_kept_the_bias_is_left(family, address):
    subject, ids = model(family), prompts(2)
    matrix = subject.anatomy.matrix(address)
    with gated(subject) as gates:
        gates.assign([Truncate(address, 0), BASELINE])
        output = outputs_of(matrix.module, lambda: logits(subject, ids))
    bias = part(matrix.module.bias, matrix)
    assert bias.abs().min() > 0
    mine, other = part(output, matrix).view(2, 7, -1)
    assert torch.equal(mine, bias.expand(7, -1))
    assert not torch.allclose(other, bias.expand(7, -1), atol=0.01)


@pytest.mark.parametrize("family", [family for family in BUILDS if family != "unknown"])  # it takes tokens only
def test_a_row_of_broken_numbers_stays_alone_with_them(family):
    subject, ids = model(family), prompts(4)
    first = next(m for m in subject.anatomy.block(0).matrices.values() if maskable(m)).address
    edits = [Truncate(first, 0.5), Truncate(first, 0.5), BASELINE, Truncate(first, 0)]
    embedded = subject.network.get_input_embeddings()(ids)
    broken = embedded.clone()
    broken[0] = float("nan")
    broken[2] = float("inf")
    with gated(subject) as gates, torch.no_grad():
        gates.assign(edits)
        found = subject.network(inputs_embeds=broken, use_cache=False).logits
        whole = subject.network(inputs_embeds=embedded, use_cache=False).logits
    assert found[[0, 2]].isnan().all()
    assert_close(found[[1, 3]], whole[[1, 3]], 1e-5)


@exact
def test_the_weights_are_not_touched_and_the_hooks_are_gone_afterwards():
    subject, ids = model("phi3"), prompts(3)
    hooks, expected = everything_hooked(subject.network), logits(subject, ids)
    before = {name: value.clone() for name, value in subject.network.state_dict().items()}
    with gated(subject) as gates:
        gates.assign([BASELINE, *truncations(subject)[:2]])
        logits(subject, ids)
        assert all(torch.equal(value, before[name]) for name, value in subject.network.state_dict().items())
    assert everything_hooked(subject.network) == hooks
    assert torch.equal(logits(subject, ids), expected)


# -- assignments that change


@unlike
def test_an_edit_of_all_rows_holds_for_batches_of_any_size(family):
    subject = model(family)
    edit = truncations(subject)[-2]
    with gated(subject) as gates:
        gates.assign_everywhere(edit)
        found = [logits(subject, prompts(rows)) for rows in (1, 4)]
    for several in found:
        for row, ids in enumerate(prompts(len(several))):
            assert_close(several[row], alone(subject, ids, edit))


@pytest.mark.parametrize("family", ["llama", "opt", "gpt2"])
@pytest.mark.parametrize("layer", [1, 2])
def test_a_row_may_join_the_batch_up_to_the_block_that_it_truncates_but_not_later(family, layer):
    subject, ids = model(family), prompts(1)
    last = list(subject.anatomy.block(layer).matrices.values())[-1]
    edit = Truncate(last.address, 0.3)
    expected = torch.stack([alone(subject, ids[0], other) for other in (BASELINE, edit)])

    def grow_before(layer):
        def grow(module, args):
            return (args[0].expand(2, -1, -1).clone(), *args[1:]) if args[0].shape[0] == 1 else args

        return subject.anatomy.block(layer).module.register_forward_pre_hook(grow, prepend=True)

    with gated(subject) as gates:
        gates.assign_table(tabulate([BASELINE, edit], subject.anatomy), growing=True)
        for joined in range(layer + 1):
            joining = grow_before(joined)
            assert_close(logits(subject, ids), expected)
            joining.remove()
        with pytest.raises(LesionError, match=rf"Row 1 joined the batch above block {layer} of tiny:{family}"):
            logits(subject, ids)


def test_a_pass_that_does_not_run_through_a_truncated_matrix_is_told():
    subject = model("llama")
    subject.anatomy.block(1).module.forward = lambda hidden_states, *args, **kwargs: hidden_states
    with gated(subject) as gates:
        gates.assign([Truncate("1.mlp.up", 0.5), BASELINE])
        with pytest.raises(LesionError, match=r"1\.mlp\.up did not take hold"):
            logits(subject, prompts(2))


# -- beside other edits


@pytest.mark.parametrize("family", ["llama", "opt", "gpt2", "gemma2", "gpt_neox"])
@pytest.mark.parametrize("first", ["scale", "truncate", "together"])
def test_scales_and_truncations_of_one_branch_are_both_made_whichever_came_first(family, first):
    subject, ids = model(family), prompts(3)
    mlp, attention = (
        list(getattr(subject.anatomy.block(1), name).matrices.values())[-1].address for name in ("mlp", "attention")
    )
    scales = Compose((ScaleMlp(1, 0.5), ScaleAttention(1, -0.7)))
    cuts = Compose((Truncate(mlp, 0.5), Truncate(attention, 0.4, "bottom")))
    edits = [Compose((scales, cuts)), BASELINE, Compose((cuts, ScaleBlock(2, 0.5)))]
    with gated(subject) as gates:
        if first != "together":
            gates.assign([scales if first == "scale" else cuts, BASELINE, BASELINE])
            logits(subject, ids)
        gates.assign(edits)
        found = logits(subject, ids)
    for row, edit in enumerate(edits):
        assert_close(found[row], alone(subject, ids[row], edit))


@exact
def test_truncations_of_one_matrix_in_one_row_keep_what_all_of_them_keep():
    subject, ids = model("llama"), prompts(3)
    edits = [
        Compose((Truncate("1.mlp.up", 0.75), Truncate("1.mlp.up", 0.5, "bottom"))),
        Compose((Truncate("1.mlp.up", 0.25), Truncate("1.mlp.up", 0.25, "bottom"))),
        Truncate("1.mlp.up", 0),
    ]
    with gated(subject) as gates:
        gates.assign(edits)
        found = logits(subject, ids)
        gates.assign([edits[2]] * 3)
        assert torch.equal(logits(subject, ids)[1], found[1])
    assert_close(found[0], alone(subject, ids[0], edits[0]))


@exact
def test_rows_truncate_the_weights_as_they_are_now():
    subject, ids = model("llama"), prompts(2)
    halved = ScaleParameters(Magnitude(0.3, ("1.mlp.up",)), 0.5)
    cut = Truncate("1.mlp.up", 0.5)
    with gated(subject) as gates:
        gates.assign([cut, BASELINE])
        unedited = logits(subject, ids)
        with applied(subject, halved):
            inside = logits(subject, ids)
        assert torch.equal(logits(subject, ids), unedited)
    with applied(subject, halved):
        assert_close(inside[0], alone(subject, ids[0], cut))
    assert not torch.allclose(inside[0], unedited[0], atol=1e-3)


# -- precision, memory, what cannot be masked


@pytest.mark.parametrize("family", ["llama", "gpt2", "phi3"])
def test_in_half_precision_rows_are_as_close_to_the_truth_as_edited_weights_are(family):
    # The truth is the same half-precision network truncated and run in float64.
    subject = wrap(tiny(family).to(torch.bfloat16), tokenizer(), "half")
    exact = wrap(tiny(family).to(torch.bfloat16).double(), tokenizer(), "exact")
    edits = [Truncate(matrix.address, 0.5) for matrix in subject.anatomy.block(1).matrices.values()]
    ids = prompts(len(edits))
    with gated(subject) as gates:
        gates.assign(edits)
        found = logits(subject, ids)
    assert found.dtype == torch.bfloat16
    rows, weights = [], []
    for row, edit in enumerate(edits):
        truth = alone(exact, ids[row], edit)
        rows.append((found[row].double() - truth).square().mean())
        weights.append((alone(subject, ids[row], edit).double() - truth).square().mean())
    assert float(sum(rows)) < 1.5 * float(sum(weights))


@exact
def test_factors_are_made_again_when_their_memory_is_needed_and_spectra_are_not(monkeypatch):
    subject = model("llama")
    edits = truncations(subject, (0, 1, 2))
    ids = prompts(len(edits))
    with gated(subject) as gates:
        gates.assign(edits)
        expected = logits(subject, ids)
    computed = spectra(subject).computed
    assert computed == len(edits)
    monkeypatch.setattr(lowrank, "BUDGET", 2 * factor_bytes(subject.anatomy.matrix("0.mlp.up")))
    with gated(subject) as gates:
        gates.assign(edits)
        for _ in range(2):
            assert torch.equal(logits(subject, ids), expected)
    assert spectra(subject).computed == computed


def test_matrices_that_rows_cannot_have_for_themselves_are_told_from_those_that_they_can():
    mixture = model("qwen2_moe").anatomy
    routed = {address for address, matrix in mixture.matrices.items() if not maskable(matrix)}
    assert routed
    assert all("expert" in address or "router" in address for address in routed)
    assert "1.mlp.up" in mixture.matrices
    assert not routed & {"1.mlp.up", "0.attention.q"}
    for family in BUILDS:
        if family not in ("mixtral", "qwen2_moe"):
            assert all(maskable(matrix) for matrix in model(family).anatomy.matrices.values()), family


def test_a_module_that_runs_in_two_blocks_is_refused():
    network = tiny("llama")
    network.model.layers[2].mlp.up_proj = network.model.layers[1].mlp.up_proj
    subject = wrap(network, tokenizer(), "shared")
    with gated(subject) as gates, pytest.raises(UsageError, match=r"1\.mlp\.up and 2\.mlp\.up .* are one matrix"):
        gates.assign([Truncate("1.mlp.up", 0.5)])
