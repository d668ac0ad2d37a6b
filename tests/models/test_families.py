"""The table of families reads as its head says, and covers what it must."""

import pytest

from lesion.models.families import BranchPaths, Entry, parse

BASE = """
[base]
blocks = ["model.layers"]
attention = { tail = "attn", matrices = { "q k v" = { at = "attn.qkv", per = "head" }, o = "attn.out" } }
mlp = { tail = "mlp", matrices = { "gate up" = "mlp.gate_up", down = "mlp.down" } }
"""


def test_an_entry_names_one_or_several_matrices_of_a_parameter():
    family = parse(BASE)["base"]
    assert family.attention == (
        BranchPaths("attn", (Entry(("q", "k", "v"), "attn.qkv", "head"), Entry(("o",), "attn.out"))),
    )
    assert family.mlp[0].entries[0] == Entry(("gate", "up"), "mlp.gate_up", "rows")


def test_a_family_takes_from_the_one_it_is_like_what_it_does_not_say():
    table = parse(
        BASE
        + """
[child]
like = "base"
types = ["child_text", "child_picture"]
attention.tail = "norm"
"""
    )
    assert set(table) == {"base", "child_text", "child_picture"}
    child = table["child_text"]
    assert (child.name, child.blocks, child.mlp) == ("child", ("model.layers",), table["base"].mlp)
    assert child.attention == (BranchPaths("norm", table["base"].attention[0].entries),)


def test_a_layout_that_the_head_does_not_describe_is_refused():
    with pytest.raises(ValueError, match="'q k v' must be a path"):
        parse(BASE.replace('per = "head"', 'per = "row"'))
