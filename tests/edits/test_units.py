"""Edits of inner units are values with a text form, and name units that are there."""

import pytest

from lesion.edits.edit import Compose, ScaleAttention
from lesion.edits.text import from_json, parse, to_json
from lesion.edits.units import ScaleExpert, ScaleGroup, ScaleHead, ScaleMatrix, ScaleNeuron, site_of
from lesion.errors import UsageError
from tiny import model


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (ScaleHead(23, 4), "23.attention.head.4×0"),
        (ScaleHead(0, 11, -0.5), "0.attention.head.11×-0.5"),
        (ScaleGroup(23, 1, 2), "23.attention.group.1×2"),
        (ScaleNeuron(3, 17), "3.mlp.neuron.17×0"),
        (ScaleExpert(3, 2, 0.5), "3.mlp.expert.2×0.5"),
        (ScaleMatrix(3, "mlp.up", 0.5), "3.mlp.up×0.5"),
        (ScaleMatrix(3, "mlp.expert2.up", -1), "3.mlp.expert2.up×-1"),
        (Compose((ScaleHead(1, 0), ScaleAttention(1, 0.5))), "1.attention.head.0×0 + 1.attention×0.5"),
    ],
)
def test_an_edit_of_a_unit_parses_back_from_text_and_json(edit, text):
    assert str(edit) == text
    assert parse(text) == edit
    assert hash(parse(text)) == hash(edit)
    assert from_json(to_json(edit)) == edit


def test_heads_of_one_number_in_a_range_of_blocks():
    assert parse("1-3.attention.head.2×0") == Compose(tuple(ScaleHead(layer, 2) for layer in (1, 2, 3)))
    assert parse("0-1.attention.group.1x0.5") == Compose((ScaleGroup(0, 1, 0.5), ScaleGroup(1, 1, 0.5)))
    assert parse("0-1.mlp.expert.3x0") == Compose((ScaleExpert(0, 3), ScaleExpert(1, 3)))
    assert parse("0-1.attention.qX-2") == Compose(
        (ScaleMatrix(0, "attention.q", -2), ScaleMatrix(1, "attention.q", -2))
    )
    assert parse("2.mlp.expert.3*1.5+2.mlp.neuron.0 x 0") == Compose((ScaleExpert(2, 3, 1.5), ScaleNeuron(2, 0)))


@pytest.mark.parametrize("given", [lambda: ScaleHead(1, -1), lambda: ScaleGroup(-1, 0), lambda: ScaleNeuron(1, 10**9)])
def test_what_is_not_counted_from_0_is_refused(given):
    with pytest.raises(UsageError, match="counted from 0"):
        given()


@pytest.mark.parametrize("name", ["", "up", "mlp", "mlp.expert.2", "mlp..up", "mlp.up×2", "../mlp.up"])
def test_a_name_that_cannot_be_one_of_a_matrix_is_refused(name):
    with pytest.raises(UsageError, match="is not the name of a matrix in a block; write BRANCH"):
        ScaleMatrix(1, name)


@pytest.mark.parametrize(
    "text", ["3.head.1×0", "3.attention.head×0", "3.attention.heads.1×0", "3.mlp.head.1×0", "3.mlp.expert×0", "3.up×0"]
)
def test_text_that_is_nearly_a_head_is_answered_with_how_one_is_written(text):
    with pytest.raises(UsageError, match=r"write ADDRESS×FACTOR, .* 23\.attention\.head\.4×0"):
        parse(text)


def test_a_head_or_group_that_is_not_there_is_refused_with_the_nearest():
    anatomy = model("llama").anatomy
    with pytest.raises(
        UsageError, match=r"block 1 of tiny:llama has 4 query heads, 0 to 3; write 1.attention.head.3×0"
    ):
        site_of(ScaleHead(1, 4), anatomy)
    with pytest.raises(UsageError, match=r"has 2 key-value groups, 0 to 1; write 1.attention.group.1×0.5"):
        site_of(ScaleGroup(1, 2, 0.5), anatomy)
    with pytest.raises(UsageError, match="there is no block 9"):
        site_of(ScaleHead(9, 0), anatomy)


def test_where_the_layout_of_heads_is_not_known_the_whole_attention_is_named():
    with pytest.raises(
        UsageError, match=r"heads of block 1 of tiny:unknown are not known.* Edit 1.attention as a whole"
    ):
        site_of(ScaleHead(1, 0), model("unknown").anatomy)
