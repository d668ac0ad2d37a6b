"""Weights are multiplied exactly where they are selected, what does not take hold is refused, and all comes back."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import tiny
from lesion.edits.edit import Compose, ScaleParameters
from lesion.edits.selections.controls import Random
from lesion.edits.selections.selection import Selection
from lesion.edits.selections.topk import Magnitude
from lesion.edits.weights import Effect, check_effects, scaled, written
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model, wrap

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
unlike = pytest.mark.parametrize("family", tiny.UNLIKE)
LARGE, SOME = Magnitude(0.1), Random(Magnitude(0.2), 3)


def model_in(family: str, dtype: torch.dtype) -> Model:
    return wrap(tiny.tiny(family).to(dtype), tiny.tokenizer(), f"tiny:{family}")


def state(model: Model) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.network.state_dict().items()}


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)


def assert_restored(model: Model, before: dict[str, Tensor]) -> None:
    after = model.network.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(bits(after[name]), bits(tensor)) for name, tensor in before.items())


def nearest(value: Fraction, dtype: torch.dtype) -> float:
    """The value of the dtype nearest to an exact number, to even at a tie: by going through its neighbours."""
    start = torch.tensor(float(value), dtype=torch.float64).to(dtype)
    around = [start]
    for end in (-math.inf, math.inf):
        step = start
        for _ in range(2):
            # torch's nextafter knows no half precision on the CPU: the bits are counted on.
            step = neighbour(step, end)
            around.append(step)
    exact = sorted({float(candidate.double()) for candidate in around if candidate.isfinite()})
    distance = min(abs(Fraction(candidate) - value) for candidate in exact)
    best = [candidate for candidate in exact if abs(Fraction(candidate) - value) == distance]
    return min(best, key=lambda candidate: int(bits(torch.tensor([candidate], dtype=dtype))[0]) % 2)


def neighbour(value: Tensor, towards: float) -> Tensor:
    if value.dtype == torch.float32:
        return torch.nextafter(value, torch.tensor(towards))
    count = int(value.view(torch.int16))
    magnitude = count & 0x7FFF
    signed = -magnitude if count < 0 else magnitude
    signed += 1 if towards > 0 else -1
    count = signed if signed >= 0 else abs(signed) - 0x8000
    return torch.tensor(count, dtype=torch.int16).view(value.dtype)


# Arithmetic


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(DTYPES), st.lists(st.floats(-8, 8, width=16), min_size=1, max_size=6), st.floats(-3, 3))
def test_the_product_is_rounded_once_to_the_dtype_of_the_weight(dtype, values, factor):
    weight = torch.tensor([values], dtype=dtype)
    found, _ = scaled(weight, [(torch.ones_like(weight, dtype=torch.bool), factor)], "0.mlp.up")
    for old, new in zip(weight[0].tolist(), found[0].tolist(), strict=True):
        # The one rounding before: to float64, which the contract states.
        product = Fraction(np.float64(old) * np.float64(factor))
        assert new == (0 if factor == 0 else nearest(product, dtype))


def test_factors_on_one_weight_multiply_and_others_keep_their_bits():
    weight = torch.tensor([[1.0, 2.0, -3.0], [0.0, -0.0, 5.0]])
    first = torch.tensor([[True, True, False], [True, True, False]])
    second = torch.tensor([[False, True, True], [False, True, False]])
    found, effect = scaled(weight, [(first, 0.5), (second, -4.0)], "2.mlp.down")
    expected = torch.tensor([[0.5, -4.0, 12.0], [0.0, -0.0, 5.0]])
    assert torch.equal(bits(found), bits(expected))
    assert effect == Effect("2.mlp.down", selected=5, nonzero=3, moved=3, before=6.0, after=16.5, dtype="float32")
    assert float(weight[0, 0]) == 1


def test_where_the_factors_have_the_product_one_nothing_changes_and_nothing_is_due():
    weight = torch.tensor([[1.1, 2.3, float("nan")]])
    every = torch.ones(1, 3, dtype=torch.bool)
    found, effect = scaled(weight, [(every, 2.0), (every, 0.5)], "head")
    assert torch.equal(bits(found), bits(weight))
    assert (effect.selected, effect.nonzero, effect.moved) == (3, 0, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_effect_counts_what_moved(dtype):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(50, 40, generator=generator).to(dtype)
    weight[:5] = 0
    mask = torch.rand(50, 40, generator=generator) < 0.3
    found, effect = scaled(weight, [(mask, 1.001)], "head")
    moved = sum(float(new) != float(old) for old, new in zip(weight[mask].tolist(), found[mask].tolist(), strict=True))
    assert effect.selected == int(mask.sum())
    assert effect.nonzero == int((mask & (weight != 0)).sum())
    assert effect.moved == moved == {torch.float32: effect.nonzero, torch.bfloat16: 0}.get(dtype, moved)
    assert effect.before == pytest.approx(np.abs(weight[mask].double().numpy()).sum(), rel=1e-14)
    assert effect.after == pytest.approx(np.abs(found[mask].double().numpy()).sum(), rel=1e-14)
    assert torch.equal(found[~mask], weight[~mask])


# What is refused


def effect(selected=100, nonzero=100, moved=100, before=10.0, after=11.0, dtype="bfloat16") -> Effect:
    return Effect("0.mlp.up", selected, nonzero, moved, before, after, dtype)


def test_the_achieved_factor_is_that_of_all_matrices_together():
    assert check_effects("E", [effect(), effect(before=30.0, after=3.0)], "M") == 14 / 40
    assert check_effects("E", [effect(after=0.0)], "M") == 0


@pytest.mark.parametrize(
    ("effects", "why"),
    [
        ([], "selects no weight of M"),
        ([effect(selected=0, nonzero=0, moved=0)], "selects no weight of M"),
        ([effect(moved=98)], r"E in bfloat16 moves 98 of 100 selected weights .* 1\.004 or 0\.996, or have .* float32"),
        ([effect(moved=0, dtype="float16")], r"E in float16 moves 0 of 100 .* 1\.00049 or 0\.99951"),
        ([effect(moved=0, dtype="float32")], r"moves 0 of 100 .* 1\.00000006 or 0\.99999994\."),
        ([effect(moved=0, dtype="")], "further from 1"),
        ([effect(nonzero=0, moved=0)], "changes none of the 100 .* the factor is 1"),
        ([effect(nonzero=0, moved=0, before=0.0, after=0.0)], "changes none of the 100 .* all of them are 0"),
        ([effect(after=math.inf)], r"0\.mlp\.up of M larger than bfloat16 can hold"),
        ([effect(), effect(before=math.nan)], "not finite"),
    ],
)
def test_an_edit_that_does_not_do_what_it_says_is_refused_with_the_numbers(effects, why):
    with pytest.raises(LesionError, match=why):
        check_effects("E", effects, "M")


def test_ninety_nine_of_a_hundred_suffice():
    assert check_effects("E", [effect(moved=99)], "M") == 1.1


@pytest.mark.parametrize(
    ("dtype", "factor"),
    [(torch.bfloat16, 1.004), (torch.bfloat16, 0.996), (torch.float16, 1.00049), (torch.float16, 0.99951)],
)
def test_the_factor_that_a_refusal_names_moves_every_weight(dtype, factor):
    # Every mantissa, in several octaves around 1.
    weight = torch.arange(0x3C00, 0x4400, dtype=torch.int16).view(dtype)[None]
    mask = torch.ones_like(weight, dtype=torch.bool)
    _, found = scaled(weight, [(mask, factor)], "head")
    assert found.moved == found.nonzero == weight.numel()


@pytest.mark.parametrize(
    ("edits", "dtype", "why"),
    [
        ([ScaleParameters(LARGE, 1.0)], torch.float32, "the factor is 1"),
        ([ScaleParameters(LARGE, 1.001)], torch.bfloat16, r"0\.1@\w{16}×1\.001 in bfloat16 moves 0 of [0-9,]+"),
        ([ScaleParameters(LARGE, 1e6)], torch.float16, "larger than float16 can hold"),
        ([ScaleParameters(LARGE - LARGE, 0.0)], torch.float32, "is empty"),
        ([ScaleParameters(Magnitude(1.0), 0.0)], torch.float32, "is everything"),
        # The second alone is lost in rounding, whatever the first does.
        ([ScaleParameters(Magnitude(0.5), 0.0), ScaleParameters(LARGE, 1.001)], torch.bfloat16, r"×1\.001 in bfloat16"),
        # Each alone is an edit; together they are none.
        ([ScaleParameters(LARGE, 2.0), ScaleParameters(LARGE, 0.5)], torch.float32, "changes none"),
    ],
)
def test_a_model_is_as_it_was_after_a_refusal(edits, dtype, why):
    model = model_in("llama", dtype)
    before = state(model)
    with pytest.raises(LesionError, match=why):
        with written(model, edits):
            pytest.fail("an edit that does not take hold was let through")
    assert_restored(model, before)


# In the model


# Every storage in float32 and in one of the halves in turn.
@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        pair
        for number, family in enumerate(tiny.FAMILIES)
        for pair in ((family, DTYPES[0]), (family, DTYPES[1 + number % 2]))
    ],
    ids=str,
)
def test_every_storage_is_edited_entry_for_entry_and_comes_back_to_the_bit(family, dtype):
    model = model_in(family, dtype)
    before = state(model)
    read = {address: matrix.read() for address, matrix in model.anatomy.scored.items()}
    edits = (ScaleParameters(LARGE, 0.0), ScaleParameters(SOME, 1.5))
    with written(model, edits) as effects:
        assert [found.address for found in effects] == list(read)
        for address, matrix in model.anatomy.scored.items():
            factor = np.ones(matrix.shape)
            for edit in edits:
                factor[edit.selection.mask(address, read[address]).numpy()] *= edit.factor
            expected = torch.from_numpy(read[address].double().numpy() * factor).to(dtype)
            assert torch.equal(matrix.read(), expected)
        changed = sum(int((tensor != before[name]).sum()) for name, tensor in model.network.state_dict().items())
        embeddings, head = model.network.get_input_embeddings(), model.network.get_output_embeddings()
        assert torch.equal(embeddings.weight, before[name_of(embeddings, model)])
        assert (model.anatomy.head is None) == torch.equal(head.weight, before[name_of(head, model)])
    assert changed == sum(found.moved for found in effects)
    assert_restored(model, before)


def name_of(owner: torch.nn.Module, model: Model) -> str:
    return next(name for name, parameter in model.network.named_parameters() if parameter is owner.weight)


class Rows(Magnitude):
    """Every other row of a matrix, whatever is in it."""

    def mask(self, address, weight):
        mask = torch.zeros(weight.shape, dtype=torch.bool)
        mask[::2] = True
        return mask


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_patterns_that_are_no_plain_numbers_come_back_too(dtype):
    model = model_in("gpt2", dtype)
    matrix = model.anatomy.matrix("1.mlp.in")
    width = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
    patterns = torch.tensor([-0.0, 5e-8, math.nan, -math.inf], dtype=dtype)
    payload = (torch.tensor(math.nan, dtype=dtype).view(width) | 1).view(dtype)
    odd = torch.cat([patterns, payload[None]])
    values = matrix.read()
    values[1, :5] = odd
    values[2, :2] = odd[:2]
    matrix.write(values)
    before = state(model)
    edit = ScaleParameters(Rows(0.5), 0.25)
    with written(model, [edit]):
        assert torch.equal(bits(matrix.read()[1]), bits(values[1]))
        assert torch.equal(bits(matrix.read()[2, :1]), bits(odd[:1]))
        assert not torch.equal(matrix.read()[2], values[2])
    assert_restored(model, before)
    values[4, :5] = odd
    matrix.write(values)
    before = state(model)
    with pytest.raises(LesionError, match=r"of 1\.mlp\.in of tiny:gpt2 that are not finite"), written(model, [edit]):
        pytest.fail("weights that are not finite were let through")
    assert_restored(model, before)


@unlike
def test_an_error_inside_brings_everything_back(family):
    model = tiny.model(family)
    before = state(model)
    with pytest.raises(KeyboardInterrupt), written(model, [ScaleParameters(LARGE, 0.0)]):
        raise KeyboardInterrupt
    assert_restored(model, before)


class Failing(Magnitude):
    """A selection that fails on one matrix, as one made for another model does."""

    def mask(self, address, weight):
        if address == "2.mlp.up":
            raise LesionError("half way")
        return super().mask(address, weight)


def test_an_error_half_way_brings_everything_back():
    model = tiny.model("llama")
    before = state(model)
    with pytest.raises(LesionError, match="half way"), written(model, [ScaleParameters(Failing(0.1), 0.0)]):
        pytest.fail("never reached")
    assert_restored(model, before)


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_inference_mode_within_or_around_does_not_matter(outside, inside):
    with torch.inference_mode(outside):
        model = tiny.model("phi3")
    before = state(model)
    with torch.inference_mode(inside), written(model, [ScaleParameters(LARGE, 0.0)]) as effects:
        changed = sum(int((tensor != before[name]).sum()) for name, tensor in model.network.state_dict().items())
    assert changed == sum(found.moved for found in effects) > 0
    assert_restored(model, before)


def test_all_selections_of_one_edit_are_made_on_the_unedited_weights_and_nested_ones_are_not():
    model = tiny.model("llama")
    first, second = ScaleParameters(LARGE, 0.0), ScaleParameters(Magnitude(0.2), 0.0)
    matrix = model.anatomy.matrix("0.mlp.up")
    before, size = state(model), matrix.shape[0] * matrix.shape[1]
    with written(model, [first, second]):
        assert int((matrix.read() == 0).sum()) == int(size * 0.2)
    with written(model, [first]):
        outer = state(model)
        with written(model, [second]):
            assert int((matrix.read() == 0).sum()) == int(size * 0.1) + int(size * 0.2)
        assert_restored(model, outer)
    assert_restored(model, before)


def test_edits_that_end_out_of_order_are_told_and_taken_back():
    model = tiny.model("llama")
    before = state(model)
    first, second = written(model, [ScaleParameters(LARGE, 0.0)]), written(model, [ScaleParameters(SOME, 2.0)])
    first.__enter__()
    second.__enter__()
    for one in (first, second):
        with pytest.raises(LesionError, match="in force at once"):
            one.__exit__(None, None, None)
        assert_restored(model, before)
    with written(model, [ScaleParameters(LARGE, 0.0)]):
        pass
    assert_restored(model, before)


def test_two_blocks_that_are_one_parameter_cannot_be_edited_apart():
    network = tiny.tiny("llama")
    network.model.layers[2].mlp.up_proj.weight = network.model.layers[0].mlp.up_proj.weight
    model = wrap(network, tiny.tokenizer(), "tiny:shared")
    with pytest.raises(UsageError, match=r"0\.mlp\.up and 2\.mlp\.up of tiny:shared are one parameter"):
        with written(model, [ScaleParameters(LARGE, 0.0)]):
            pytest.fail("never reached")
    # An edit that touches neither is none of their business.
    with written(model, [ScaleParameters(Magnitude(0.1, ("1.mlp.up",)), 0.0)]) as effects:
        assert [found.address for found in effects] == ["1.mlp.up"]


@pytest.mark.parametrize(("keep", "bytes_per_weight"), [(0.05, 0.05 * 12), (0.9, 1 + 0.9 * 4)])
def test_kept_meanwhile_is_what_changed_and_not_the_matrices(monkeypatch, keep, bytes_per_weight):
    from lesion.edits import weights

    kept: list[Tensor] = []
    put = weights._put

    def noted(matrix, places, values):
        kept.extend((places, values))
        put(matrix, places, values)

    model = tiny.model("llama")
    monkeypatch.setattr(weights, "_put", noted)
    with written(model, [ScaleParameters(Magnitude(keep), 0.0)]):
        held = {tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in kept}
    # The new values are counted too, though they are dropped after each matrix.
    total = sum(out * into for out, into in (matrix.shape for matrix in model.anatomy.scored.values()))
    assert sum(held.values()) <= total * bytes_per_weight + keep * 4 * total


def test_composed_edits_say_the_same_as_given_together():
    both: tuple[Selection, ...] = (LARGE, SOME)
    model = tiny.model("llama")
    parts = tuple(ScaleParameters(selection, 0.5) for selection in both)
    assert str(Compose(parts)) == " + ".join(map(str, parts))
    with written(model, parts):
        together = state(model)
    with written(model, parts[::-1]):
        assert_restored(model, together)
