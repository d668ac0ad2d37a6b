"""A multiplied head is what a plain hook at the input of the output projection makes of it, in every known family."""

import pytest
import torch
from headed import GROUPS, HEADS, SIZE, headed
from torch import Tensor

from lesion.edits.apply import applied, as_it_is
from lesion.edits.edit import BASELINE, Compose, ScaleAttention, ScaleBlock, ScaleMlp, Truncate
from lesion.edits.gates import gated
from lesion.edits.table import tabulate
from lesion.edits.unit_rows import InputRows
from lesion.edits.units import ScaleGroup, ScaleHead
from lesion.errors import LesionError, UsageError
from lesion.models.load import wrap
from tiny import BUILDS, model, tiny, tokenizer

KNOWN = [family for family in BUILDS if family != "unknown"]
families = pytest.mark.parametrize("family", KNOWN)
FACTORS = [{(0, 0): 0.0}, {(1, 3): 0.0}, {(2, 1): 0.5}, {(1, 0): -1.5, (1, 2): 0.0, (2, 3): 0.0}]


def edit_of(factors):
    return Compose(tuple(ScaleHead(layer, head, factor) for (layer, head), factor in factors.items()))


def tokens(rows: int = 3, length: int = 10) -> Tensor:
    return torch.randint(3, 64, (rows, length), generator=torch.Generator().manual_seed(0))


def logits(network, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return network(ids, use_cache=False).logits


@families
def test_the_anatomy_says_how_many_heads_a_block_has(family):
    heads = model(family).anatomy.heads(1)
    assert (heads.count, heads.groups, heads.size) == (HEADS, GROUPS.get(family, 2), SIZE.get(family, 8))


@families
def test_heads_are_what_plain_hooks_make_of_them_alone_and_as_rows_of_one_batch(family):
    subject, ids = model(family), tokens(1)
    unedited = logits(subject.network, ids)
    expected = []
    for factors in FACTORS:
        with headed(subject.network, family, factors):
            expected.append(logits(subject.network, ids))
        with applied(subject, edit_of(factors)):
            torch.testing.assert_close(logits(subject.network, ids), expected[-1], rtol=1e-5, atol=1e-5)
        assert not torch.allclose(expected[-1], unedited, atol=1e-3)
    with gated(subject) as gates:
        gates.assign([BASELINE, *map(edit_of, FACTORS)])
        together = logits(subject.network, ids.expand(1 + len(FACTORS), -1))
    torch.testing.assert_close(together, torch.cat([unedited, *expected]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_a_group_is_the_query_heads_that_read_one_key_value_head(family):
    subject, ids = model(family), tokens()
    share = HEADS // GROUPS.get(family, 2)
    with headed(subject.network, family, {(1, head): 0.25 for head in range(share, 2 * share)}):
        expected = logits(subject.network, ids)
    with applied(subject, ScaleGroup(1, 1, 0.25)):
        torch.testing.assert_close(logits(subject.network, ids), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["llama_tied", "gpt2", "opt"])
def test_without_any_head_the_bias_of_the_output_projection_stays(family):
    """Attention then adds its bias alone: the block does what one with its output matrix at zero does."""
    subject, ids = model(family), tokens()
    with applied(subject, [ScaleHead(1, head) for head in range(HEADS)]):
        without_heads = logits(subject.network, ids)
    with applied(subject, Truncate("1.attention.o", 0)):
        torch.testing.assert_close(without_heads, logits(subject.network, ids), rtol=1e-5, atol=1e-5)
    with applied(subject, ScaleAttention(1)):
        assert not torch.allclose(without_heads, logits(subject.network, ids), atol=1e-3)


def test_heads_mix_with_every_other_edit_of_places():
    subject, ids = model("llama"), tokens(1)
    mixed = [
        Compose((ScaleHead(1, 2), ScaleAttention(1, 0.5))),
        Compose((ScaleHead(1, 2, 0.5), ScaleHead(1, 2, 0.5), ScaleMlp(0))),
        Compose((ScaleHead(1, 1), Truncate("1.attention.o", 0.5))),
        Compose((ScaleGroup(1, 0, 2), ScaleHead(1, 1, 0.5))),
        ScaleBlock(2),
    ]
    same = [None, {(1, 2): 0.25}, None, {(1, 0): 2.0, (1, 1): 1.0}, None]
    with gated(subject) as gates:
        gates.assign(mixed)
        together = logits(subject.network, ids.expand(len(mixed), -1))
    for row, (edit, factors) in enumerate(zip(mixed, same, strict=True)):
        with applied(subject, edit):
            torch.testing.assert_close(together[row : row + 1], logits(subject.network, ids), rtol=1e-5, atol=1e-5)
        if factors is not None:
            with headed(subject.network, "llama", factors), applied(subject, edit_without_heads(edit)):
                torch.testing.assert_close(together[row : row + 1], logits(subject.network, ids), rtol=1e-5, atol=1e-5)


def edit_without_heads(edit):
    return Compose(tuple(part for part in edit.edits if not isinstance(part, ScaleHead | ScaleGroup)))


def test_in_half_precision_the_product_is_rounded_once():
    """1.1 in bfloat16 is 1.1016: the product with a float32 factor rounds to other numbers."""
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(2, 5, 32, generator=generator).bfloat16()
    subject = model("llama")
    site = subject.anatomy.heads(1)
    heads = InputRows(site)
    table = tabulate([BASELINE, ScaleHead(1, 2, 1.1)], subject.anatomy)
    heads.assign(table.units[site])
    heads.rows = 2
    (scaled,), _ = heads.edit(torch.nn.Identity(), (given,), {})
    expected = given.clone()
    expected[1, :, 16:24] = (given[1, :, 16:24].double() * 1.1).bfloat16()
    assert torch.equal(scaled, expected)
    assert not torch.equal(scaled[1, :, 16:24], given[1, :, 16:24] * torch.tensor(1.1).bfloat16())


def test_a_removed_head_is_gone_where_it_is_not_finite():
    given = torch.ones(1, 1, 32)
    given[..., 8:16] = torch.nan
    subject = model("llama")
    site = subject.anatomy.heads(1)
    heads = InputRows(site)
    heads.assign(tabulate([ScaleHead(1, 1)], subject.anatomy).units[site], everywhere=True)
    heads.rows = 1
    (scaled,), _ = heads.edit(torch.nn.Identity(), (given,), {})
    assert torch.equal(scaled[0, 0], torch.tensor([1.0] * 8 + [0.0] * 8 + [1.0] * 16))


def test_the_table_holds_edited_heads_alone_and_selects_them_by_column():
    subject = model("llama")
    edits = [BASELINE, ScaleHead(2, 1), ScaleHead(0, 3, 0.5), Compose((ScaleHead(2, 0), ScaleHead(2, 1, 2)))]
    table = tabulate(edits, subject.anatomy)
    heads = {site.layer: site for site in table.units}
    assert sorted(heads) == [0, 2]
    assert table.first_edited().tolist() == [3, 2, 0, 2]
    chosen = table.select(torch.tensor([3, 1, 3, 0]))
    assert chosen.units[heads[2]].columns.tolist() == [0, 0, 1, 2, 2]
    assert chosen.units[heads[2]].numbers.tolist() == [0, 1, 1, 0, 1]
    assert chosen.units[heads[2]].factors.tolist() == [0, 2, 0, 0, 2]
    assert len(chosen.units[heads[0]].columns) == 0


def test_factors_that_come_to_1_change_nothing_and_those_that_overflow_are_refused():
    subject, ids = model("llama"), tokens()
    with applied(subject, Compose((ScaleHead(1, 2, 4), ScaleHead(1, 2, 0.25)))):
        torch.testing.assert_close(logits(subject.network, ids), logits(tiny("llama"), ids), rtol=0, atol=1e-6)
    with pytest.raises(UsageError, match="not finite"):
        tabulate([Compose((ScaleHead(1, 2, 1e200), ScaleHead(1, 2, 1e200)))], subject.anatomy)


def test_an_edited_head_in_force_is_no_baseline():
    subject = model("llama")
    with applied(subject, ScaleHead(1, 0)), pytest.raises(UsageError, match="edit in force"):
        as_it_is(subject)
    assert as_it_is(subject) is subject


def test_one_output_matrix_of_two_blocks_is_refused():
    network = tiny("llama")
    network.model.layers[1].self_attn.o_proj = network.model.layers[0].self_attn.o_proj
    subject = wrap(network, tokenizer(), "tiny:shared")
    with (
        pytest.raises(UsageError, match=r"0.attention.o and 1.attention.o .* no edit can part them"),
        gated(subject) as gates,
    ):
        gates.assign([ScaleHead(1, 0)])


def test_an_output_matrix_that_is_not_given_all_heads_is_refused():
    subject = model("llama")
    site = subject.anatomy.heads(1)
    heads = InputRows(site)
    heads.assign(tabulate([ScaleHead(1, 1)], subject.anatomy).units[site], everywhere=True)
    with pytest.raises(LesionError, match="not given its 32 inputs side by side"):
        heads.edit(torch.nn.Identity(), (torch.ones(1, 1, 16),), {})
