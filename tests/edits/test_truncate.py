"""A truncation is a value; `applied` makes it so in the weights and takes it back to the bit."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lesion.edits.apply import applied
from lesion.edits.edit import (
    BASELINE,
    Compose,
    ScaleBlock,
    ScaleMlp,
    ScaleParameters,
    Truncate,
    of_places,
    of_spectra,
    of_weights,
)
from lesion.edits.files.artefact import save_edit
from lesion.edits.selections.topk import Magnitude
from lesion.edits.spectra import spectra
from lesion.edits.text import from_json, parse, to_json
from lesion.errors import LesionError, UsageError
from lesion.models.load import wrap
from tiny import BUILDS, model, tiny, tokenizer

# -- the value

names = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789_-", min_size=1, max_size=8)
addresses = st.one_of(
    st.just("head"),
    st.builds(lambda block, rest: ".".join([str(block), *rest]), st.integers(0, 999), st.lists(names, min_size=1)),
)
truncations = st.builds(Truncate, addresses, st.floats(0, 1), st.sampled_from(["top", "bottom"]))
mixed = st.lists(
    st.one_of(truncations, st.builds(ScaleMlp, st.integers(0, 9), st.floats(-2, 2))), min_size=1, max_size=4
).map(lambda found: Compose(tuple(found)))


@given(st.one_of(truncations, mixed))
def test_text_and_json_of_a_truncation_read_back_as_an_equal_edit(edit):
    for again in (parse(str(edit)), from_json(json.loads(json.dumps(to_json(edit))))):
        assert again == edit
        assert hash(again) == hash(edit)
        assert str(again) == str(edit)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (Truncate("23.mlp.up", 0.01), "23.mlp.up top 0.01"),
        (Truncate("3.attention.o", 1, "bottom"), "3.attention.o bottom 1"),
        (Truncate("3.mlp.expert5.up", 0), "3.mlp.expert5.up top 0"),
        (Truncate("head", 0.1), "head top 0.1"),
        (Compose((Truncate("3.mlp.up", 0.5), ScaleBlock(4))), "3.mlp.up top 0.5 + 4×0"),
    ],
)
def test_the_text_form_reads_as_a_person_would_write_it(edit, text):
    assert str(edit) == text
    assert parse(text) == edit


def test_keep_may_be_written_in_other_ways_and_is_one_edit():
    for text in ("3.mlp.up top 0", " 3.mlp.up  top  0.0", "3.mlp.up top -0", "3.mlp.up top 0e5"):
        assert parse(text) == Truncate("3.mlp.up", 0)
    assert str(Truncate("3.mlp.up", -0.0)) == str(Truncate("3.mlp.up", 0))


@pytest.mark.parametrize("keep", [-0.01, 1.01, float("nan"), float("inf"), -float("inf"), 50])
def test_keep_outside_0_to_1_is_refused(keep):
    for make in (
        lambda: Truncate("3.mlp.up", keep),
        lambda: parse(f"3.mlp.up top {keep}"),
        lambda: from_json({"truncate": "3.mlp.up", "keep": keep, "side": "top"}),
    ):
        with pytest.raises(UsageError, match=r"fraction of the rank, from 0 to 1|keep must be a finite"):
            make()


@pytest.mark.parametrize("text", ["3.mlp.up top half", "3.mlp.up top 1/2", "3.mlp.up top 50%"])
def test_a_keep_that_is_no_number_is_refused_with_what_was_typed(text):
    with pytest.raises(UsageError, match=r"which is not a number from 0 to 1"):
        parse(text)


@pytest.mark.parametrize("address", ["", "3", "mlp.up", "3..up", "3.mlp/up", "heads", "3.mlp.up ", "../3.mlp.up"])
def test_what_cannot_be_the_address_of_a_matrix_is_refused_with_an_example(address):
    with pytest.raises(UsageError, match=r"not the address of a matrix.*3\.mlp\.up"):
        Truncate(address, 0.5)


@pytest.mark.parametrize(
    "value",
    [
        {"truncate": "3.mlp.up"},
        {"truncate": "3.mlp.up", "keep": 0.5},
        {"truncate": "3.mlp.up", "keep": 0.5, "side": "top", "more": 1},
        {"truncate": "3.mlp.up", "keep": None, "side": "top"},
        {"truncate": "3.mlp.up", "keep": "much", "side": "top"},
        {"truncate": "3.mlp.up", "keep": 10**400, "side": "top"},
    ],
)
def test_what_is_not_the_json_of_a_truncation_is_refused(value):
    with pytest.raises(UsageError, match=r"JSON form|keep must be a finite number"):
        from_json(value)


@given(st.integers(0, 400), st.integers(1, 400).flatmap(lambda b: st.tuples(st.integers(0, b), st.just(b))))
def test_top_and_bottom_keep_as_many_and_together_all_when_keeps_add_up_to_1(rank, keep):
    part, whole = keep
    top, bottom = (Truncate("3.mlp.up", part / whole, side).kept(rank) for side in ("top", "bottom"))
    assert top[1] - top[0] == bottom[1] - bottom[0] == rank - bottom[0]
    assert top[0] == 0
    assert 0 <= top[1] <= rank * part / whole + 1e-9


def test_an_edit_is_what_it_does_to_places_to_weights_and_to_spectra():
    parts = ScaleBlock(1), ScaleParameters(Magnitude(0.1)), Truncate("0.mlp.up", 0.5), Truncate("head", 0.5)
    edit = Compose(parts)
    assert of_places(edit) == Compose(parts[:1])
    assert of_weights(edit) == parts[1:2]
    assert of_spectra(edit) == parts[2:]
    assert of_spectra(BASELINE) == ()


# -- in the weights


def state(subject):
    return {name: value.clone() for name, value in subject.network.state_dict().items()}


def bits(value):
    return value.contiguous().view(torch.uint8)


def assert_bitwise(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(bits(one[name]), bits(other[name])), name


@pytest.mark.parametrize("side", ["top", "random"])
def test_a_truncation_that_float16_cannot_hold_is_refused(side):
    subject = model("llama")
    subject.network.half()
    weight = subject.anatomy.matrix("1.mlp.up").tensor
    with torch.no_grad():
        weight.copy_(torch.where(torch.rand(weight.shape, generator=torch.manual_seed(0)) > 0.5, 60000.0, -60000.0))
    before = state(subject)
    with pytest.raises(LesionError, match=r"1\.mlp\.up \(.* infinite of .* larger than float16 can hold"):
        applied(subject, Truncate("1.mlp.up", 0.9, side)).__enter__()
    assert_bitwise(state(subject), before)
    with torch.no_grad():
        weight[0, 0] = torch.inf
    with pytest.raises(LesionError, match="finite"):
        applied(subject, Truncate("1.mlp.up", 0.9, side)).__enter__()


@pytest.mark.parametrize("family", BUILDS)
def test_exactly_the_named_matrices_hold_the_kept_part_inside_and_all_bits_are_back_outside(family):
    subject = model(family)
    before, read = state(subject), {a: m.read() for a, m in subject.anatomy.matrices.items()}
    chosen = [list(subject.anatomy.block(1).matrices.values())[number].address for number in (0, -1)]
    with applied(subject, Compose((Truncate(chosen[0], 0.3), Truncate(chosen[1], 0.6, "bottom")))):
        for address, matrix in subject.anatomy.matrices.items():
            if address not in chosen:
                assert torch.equal(matrix.read(), read[address]), address
                continue
            left, values, right = np.linalg.svd(read[address].double().numpy(), full_matrices=False)
            rank = len(values)
            cut = slice(0, rank * 3 // 10) if address == chosen[0] else slice(rank - rank * 6 // 10, rank)
            expected = (left[:, cut] * values[cut]) @ right[cut]
            np.testing.assert_allclose(matrix.read().numpy(), expected, rtol=1e-6, atol=1e-6 * values[0])
        inside = state(subject)
    assert_bitwise(state(subject), before)
    changed = {name for name in before if not torch.equal(inside[name], before[name])}
    assert {subject.anatomy.matrix(address).parameter for address in chosen} <= changed
    # A tied tensor has several names; nothing else moves.
    assert len(changed) == len({subject.anatomy.matrix(address).parameter for address in chosen})


def break_off_under(subject, edit, inside):
    with applied(subject, edit):
        inside.update(state(subject))
        raise RuntimeError("in the middle")


@pytest.mark.parametrize("family", ["llama", "llama_tied", "gpt2", "gpt_neox", "phi3", "mixtral"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_back_to_the_bit_after_an_exception(family, dtype):
    subject = wrap(tiny(family).to(dtype), tokenizer(), "subject")
    # The sign of a zero is a bit too.
    subject.anatomy.block(1).matrices["attention.o"].view()[0, 0] = -0.0
    before = state(subject)
    edit = Compose(tuple(Truncate(m.address, 0.4) for m in subject.anatomy.block(1).matrices.values()))
    inside = {}
    with pytest.raises(RuntimeError, match="in the middle"):
        break_off_under(subject, edit, inside)
    assert any(not torch.equal(inside[name], before[name]) for name in before)
    assert_bitwise(state(subject), before)


def test_keep_0_is_zeros_and_the_bias_stays():
    subject = model("gpt2")
    matrix = subject.anatomy.matrix("1.mlp.in")
    bias = matrix.module.bias.clone()
    with applied(subject, Truncate("1.mlp.in", 0)):
        assert not matrix.read().any()
        assert torch.equal(matrix.module.bias, bias)


def test_keep_1_writes_nothing_and_decomposes_nothing(monkeypatch):
    from lesion.edits import weights

    subject = model("llama")
    monkeypatch.setattr(weights, "_put", lambda *_: pytest.fail("written"))
    before = state(subject)
    for side in ("top", "bottom"):
        with applied(subject, Truncate("1.mlp.up", 1, side)):
            assert_bitwise(state(subject), before)
    assert spectra(subject).computed == 0


def test_a_matrix_that_is_truncated_and_multiplied_at_once_is_refused_and_neither_is_done():
    subject = model("llama")
    before = state(subject)
    both = Compose((ScaleParameters(Magnitude(0.1, ("1.mlp.up",)), 0.0), Truncate("1.mlp.up", 0.5)))
    with pytest.raises(UsageError, match=r"1\.mlp\.up .* order would matter"), applied(subject, both):
        pass
    assert_bitwise(state(subject), before)
    apart = Compose((ScaleParameters(Magnitude(0.1, ("0.mlp.up",)), 0.0), Truncate("1.mlp.up", 0.5)))
    with applied(subject, apart):
        changed = {name for name, value in state(subject).items() if not torch.equal(value, before[name])}
    assert changed == {f"model.layers.{layer}.mlp.up_proj.weight" for layer in (0, 1)}
    assert_bitwise(state(subject), before)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (Truncate("1.mlp.upp", 0.5), r"no matrix '1\.mlp\.upp'.*1\.mlp\.up"),
        (Truncate("9.mlp.up", 0.5), "no block 9"),
        (Truncate("1.mlp", 0.5), r"no matrix '1\.mlp'"),
    ],
)
def test_a_matrix_that_the_model_does_not_have_is_refused_with_the_nearest(edit, says):
    with pytest.raises(UsageError, match=says), applied(model("llama"), edit):
        pass


def test_a_head_that_is_tied_to_the_embedding_is_no_matrix_of_its_own():
    with pytest.raises(UsageError, match="no matrix 'head'"), applied(model("llama_tied"), Truncate("head", 0.5)):
        pass


def test_weights_that_are_not_finite_are_refused_by_name_and_stay():
    subject = model("llama")
    subject.anatomy.matrix("1.mlp.up").view()[2, 3] = float("nan")
    before = state(subject)
    edit = Compose((Truncate("0.mlp.up", 0.5), Truncate("1.mlp.up", 0.5)))
    with pytest.raises(LesionError, match=r"1\.mlp\.up has weights that are not finite"), applied(subject, edit):
        pass
    assert_bitwise(state(subject), before)


def test_a_random_subspace_has_the_rank_of_the_cut_another_for_every_draw_and_is_a_projection():
    llama = model("llama")
    matrix = llama.anatomy.matrix("1.mlp.up")
    whole = matrix.read().double().clone()
    kept = []
    for draw in range(2):
        with applied(llama, f"1.mlp.up random {draw} 0.25"):
            kept.append(matrix.read().double().clone())
    rank = int(0.25 * min(whole.shape))
    for part in kept:
        assert int(torch.linalg.matrix_rank(part, rtol=1e-5)) == rank
        # W P with P² = P = Pᵀ: what is left out is orthogonal to what is kept, on the shorter side.
        left = whole - part
        crossed = part @ left.mT if whole.shape[0] >= whole.shape[1] else part.mT @ left
        assert crossed.abs().max() < 1e-5
    assert not torch.equal(*kept)
    assert torch.equal(matrix.read().double(), whole)


def test_a_random_subspace_reads_back_and_is_in_no_file_and_beside_no_other_cut_of_its_matrix(tmp_path):
    llama = model("llama")
    edit = parse("1.mlp.up random 3 0.25")
    assert edit == Truncate("1.mlp.up", 0.25, "random", 3) == from_json(to_json(edit)) == parse(str(edit))
    with pytest.raises(UsageError, match="a control that no file takes"):
        save_edit(tmp_path / "a.edit", edit, llama)
    with pytest.raises(UsageError, match="leave one of them out"):
        parse("1.mlp.up random 3 0.25 + 1.mlp.up top 0.5")
    with pytest.raises(UsageError, match="has the number of a draw"):
        parse("1.mlp.up top 3 0.25")
