"""Selections hold exactly the weights that they say, ties included, and are values: they compare, combine and name."""

import hashlib
import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import tiny
from lesion.edits.selections import topk as module
from lesion.edits.selections.controls import Random, drawing_keys
from lesion.edits.selections.inputs import Inputs, InputSums
from lesion.edits.selections.selection import LONGEST_LABEL, Selection, count, fixed_together
from lesion.edits.selections.thresholds import top_count
from lesion.edits.selections.topk import Magnitude, MathNeuro, Wanda
from lesion.errors import LesionError, UsageError

PLACE = "0.attention.q"
VALUES = torch.tensor([0.0, 0.25, -0.25, 0.5, 1.0, -1.5, 2.0])
KEEPS = (1e-4, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15)


def observed(seed: int, widths: dict[str, int], few: bool = False, unseen: tuple[str, ...] = ()) -> Inputs:
    """Sums for matrices of these input widths, from few values or many; an unseen one has zeros and no token."""
    generator = torch.Generator().manual_seed(seed)
    sums = {}
    for name, width in widths.items():
        vectors = [torch.rand(width, generator=generator) for _ in range(2)]
        if few:
            vectors = [VALUES.abs()[torch.randint(7, (width,), generator=generator)] for _ in range(2)]
        if name in unseen:
            vectors = [torch.zeros(width)] * 2
        sums[name] = InputSums(*vectors, tokens=0 if name in unseen else 10)
    return Inputs(sums, {name: name for name in widths}, texts=2, tokens=10)


def one(seed: int, width: int, few: bool = True) -> Inputs:
    return observed(seed, {PLACE: width}, few)


def weights(seed: int, shape: tuple[int, int], dtype: torch.dtype = torch.float32, few: bool = True) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if few:
        return VALUES[torch.randint(7, shape, generator=generator)].to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def exact_scores(weight: Tensor, vector: Tensor) -> np.ndarray:
    return np.abs(weight.float().numpy().astype(np.float64)) * vector.numpy().astype(np.float64)


def top(scores: np.ndarray, keep: float) -> np.ndarray:
    """The top share by a full sort, ties all in, zeros out."""
    bar = np.sort(scores.ravel())[-top_count(keep, scores.size)]
    return (scores >= bar) & (scores > 0)


def mask(selection: Selection, weight: Tensor) -> np.ndarray:
    return selection.mask(PLACE, weight).numpy()


shapes = st.tuples(st.integers(1, 12), st.integers(1, 12))
seeds = st.integers(0, 10**6)
keeps = st.sampled_from([0.001, 0.05, 0.1, 0.29, 0.5, 0.9, 1.0])
dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])


@settings(max_examples=30, deadline=None)
@given(seeds, shapes, keeps, dtypes, st.booleans())
def test_every_method_is_its_definition_in_float64_entry_for_entry(seed, shape, keep, dtype, few):
    weight = weights(seed, shape, dtype, few)
    skill, *controls = (one(seed + add, shape[1], few) for add in range(3))
    scores, *others = (exact_scores(weight, inputs.sums[PLACE].norms) for inputs in (skill, *controls))
    assert np.array_equal(mask(Wanda(skill, keep), weight), top(scores, keep))
    expected = top(scores, keep) & ~top(others[0], keep) & ~top(others[1], keep)
    assert np.array_equal(mask(MathNeuro(skill, tuple(controls), keep), weight), expected)
    sizes = np.abs(weight.float().numpy().astype(np.float64))
    assert np.array_equal(mask(Magnitude(keep), weight), top(sizes, keep))
    roots = np.sqrt(skill.sums[PLACE].squares.numpy().astype(np.float64)).astype(np.float32)
    by_row = exact_scores(weight, torch.from_numpy(roots))
    assert np.array_equal(mask(Wanda(skill, keep, "row"), weight), np.stack([top(row, keep) for row in by_row]))


@settings(max_examples=30, deadline=None)
@given(seeds, shapes, keeps)
def test_mathneuro_is_the_set_of_weights_between_two_thresholds(seed, shape, keep):
    weight, skill, control = weights(seed, shape), one(seed + 1, shape[1]), one(seed + 2, shape[1])
    for inputs in (skill, control):
        # Powers of two and 0 only, so that quotients compare as products do.
        inputs.sums[PLACE].norms.copy_(torch.where(inputs.sums[PLACE].norms == 1.5, 1.0, inputs.sums[PLACE].norms))
    ours, theirs = (inputs.sums[PLACE].norms.double().numpy() for inputs in (skill, control))
    size = np.abs(weight.double().numpy())
    lower = np.sort((size * ours).ravel())[-top_count(keep, size.size)]
    upper = np.sort((size * theirs).ravel())[-top_count(keep, size.size)]
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = (size > 0) & (ours > 0) & (size >= lower / ours)
        spared = (size == 0) | (theirs == 0) | (size < upper / theirs)
    assert np.array_equal(mask(MathNeuro(skill, (control,), keep), weight), needed & spared)


@settings(max_examples=30, deadline=None)
@given(seeds, shapes, keeps)
def test_the_laws_of_sets_hold(seed, shape, keep):
    weight = weights(seed, shape)
    a, b, c = (Wanda(one(seed + add, shape[1]), keep) for add in range(3))

    def same(first: Selection, second: Selection) -> None:
        assert np.array_equal(mask(first, weight), mask(second, weight))

    same(a | b, b | a)
    same(a & b, b & a)
    same((a | b) | c, a | (b | c))
    same(a & (b | c), (a & b) | (a & c))
    same(a - (b | c), (a - b) - c)
    same(a - (b & c), (a - b) | (a - c))
    same((a - b) | (a & b), a)
    same(MathNeuro(a.source, (b.source, c.source), keep), a - (b | c))
    assert not mask(a - a, weight).any()


@settings(max_examples=30, deadline=None)
@given(seeds, shapes, st.lists(st.floats(1e-6, 1), min_size=2, max_size=6))
def test_a_larger_share_holds_every_smaller_one_and_all_of_it_is_what_scores(seed, shape, shares):
    weight, inputs = weights(seed, shape), one(seed, shape[1])
    for make in (lambda keep: Wanda(inputs, keep), lambda keep: Wanda(inputs, keep, "row"), Magnitude):
        nested = [mask(make(keep), weight) for keep in sorted(shares)]
        for small, large in pairwise(nested):
            assert not (small & ~large).any()
    assert np.array_equal(mask(Wanda(inputs, 1.0), weight), exact_scores(weight, inputs.sums[PLACE].norms) > 0)
    assert np.array_equal(mask(Magnitude(1.0), weight), weight.numpy() != 0)


def fleet(model, few: bool = False) -> tuple[list[Inputs], list[Selection]]:
    widths = {address: matrix.shape[1] for address, matrix in model.anatomy.scored.items()}
    data = [observed(seed, widths, few) for seed in range(3)]
    made: list[Selection] = []
    for keep in (0.01, 0.3):
        made += [Wanda(data[0], keep), Wanda(data[0], keep, "row"), MathNeuro(data[0], tuple(data[1:]), keep)]
        made += [Magnitude(keep), Random(made[-2], 1), Random(made[-1], 2), Wanda(data[1], keep) | made[-1]]
    return data, made


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_fixed_alone_or_together_a_selection_is_equal_and_has_the_same_masks(family):
    model = tiny.model(family)
    _, made = fleet(model, few=True)
    together = fixed_together(made, model)
    for selection, fixed in zip(made, together, strict=True):
        assert fixed == selection == selection.fixed(model)
        assert hash(fixed) == hash(selection)
        alone = selection.fixed(model)
        for address, matrix in model.anatomy.scored.items():
            expected = selection.mask(address, matrix.read())
            for other in (fixed, alone):
                assert torch.equal(other.mask(address, matrix.read()), expected)


def test_fixed_together_orders_each_matrix_once_per_data_set_and_later_masks_not_at_all(monkeypatch):
    model = tiny.model("llama")
    widths = {address: matrix.shape[1] for address, matrix in model.anatomy.scored.items()}
    skill, control = observed(0, widths), observed(1, widths)
    asked = []
    whole = module.cut

    def cut(weight, vector, counts):
        asked.append(len(counts))
        return whole(weight, vector, counts)

    monkeypatch.setattr(module, "cut", cut)
    grid = [MathNeuro(skill, (control,), keep) for keep in KEEPS] + [Wanda(skill, keep) for keep in KEEPS]
    fixed = fixed_together(grid, model)
    assert asked == [len(KEEPS)] * (2 * len(model.anatomy.scored))
    for selection in fixed:
        count(selection, model)
        selection.fixed(model)
    assert len(asked) == 2 * len(model.anatomy.scored)


def test_thresholds_of_another_keep_are_not_taken_over():
    model = tiny.model("llama")
    data, _ = fleet(model)
    fixed = MathNeuro(data[0], tuple(data[1:]), 0.01).fixed(model)
    other = replace(fixed, keep=0.3)
    weight = model.anatomy.matrix(PLACE).read()
    assert np.array_equal(mask(other, weight), mask(MathNeuro(data[0], tuple(data[1:]), 0.3), weight))


def test_a_mask_depends_on_its_matrix_alone_so_that_shards_can_be_edited_one_by_one():
    model, other = tiny.model("llama"), tiny.model("llama")
    _, made = fleet(model)
    with torch.no_grad():
        for address, matrix in other.anatomy.scored.items():
            if address != PLACE:
                matrix.write(torch.randn(matrix.shape))
    for selection in made:
        here = selection.mask(PLACE, model.anatomy.matrix(PLACE).read())
        assert torch.equal(here, selection.mask(PLACE, other.anatomy.matrix(PLACE).read()))


def test_an_expert_that_saw_no_token_is_never_selected():
    model = tiny.model("mixtral")
    widths = {address: matrix.shape[1] for address, matrix in model.anatomy.scored.items()}
    unseen = tuple(address for address in widths if ".expert2." in address)
    assert unseen
    skill, control = observed(0, widths, unseen=unseen), observed(1, widths)
    for selection in (Wanda(skill, 0.5), Wanda(skill, 1.0, "row"), MathNeuro(skill, (control,), 0.5)):
        found = {c.address: c.selected for c in count(selection, model)}
        assert all(found[address] == 0 for address in unseen)
        assert all(selected for address, selected in found.items() if address not in unseen)


def test_counts_name_block_and_matrix_and_add_up():
    model = tiny.model("llama")
    data, _ = fleet(model)
    selection = MathNeuro(data[0], tuple(data[1:]), 0.1)
    found = count(selection, model)
    assert [c.address for c in found] == [*model.anatomy.matrices, "head"]
    assert [(c.block, c.matrix) for c in found][:2] == [(0, "attention.q"), (0, "attention.k")]
    assert (found[-1].block, found[-1].matrix, found[-1].total) == (None, "head", 64 * 32)
    for c in found:
        assert c.selected == int(selection.mask(c.address, model.anatomy.matrix(c.address).read()).sum())


# Drawing


def splitmix64(state: int) -> int:
    """One output of the generator, in Python's integers, as published."""
    whole = 2**64 - 1
    z = state & whole
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & whole
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & whole
    return z ^ (z >> 31)


def test_the_drawing_is_splitmix64_on_every_platform():
    # The first outputs of the published generator from the state 1234567.
    assert [splitmix64(1234567 + n * 0x9E3779B97F4A7C15) for n in (1, 2, 3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]
    for seed, address in ((0, PLACE), (-3, "head"), (10**30, "7.mlp.up")):
        start = int.from_bytes(hashlib.sha256(f"{seed}:{address}".encode()).digest()[:8], "little")
        expected = [splitmix64(start + n * 0x9E3779B97F4A7C15) for n in range(1, 200)]
        assert drawing_keys(seed, address, 199).tolist() == expected


def test_a_random_control_matches_every_count_and_grows_with_what_it_matches():
    model = tiny.model("llama")
    data, _ = fleet(model)
    makes = [MathNeuro(data[0], (data[1],), keep) for keep in (0.02, 0.1, 0.3)]
    counted = [{c.address: c.selected for c in count(selection, model)} for selection in makes]
    drawn = [{c.address: c.selected for c in count(Random(selection, 5), model)} for selection in makes]
    assert drawn == counted
    for address, matrix in model.anatomy.scored.items():
        # The sets that are matched are not nested; their sizes are ordered, and so are the draws.
        found = [Random(selection, 5).mask(address, matrix.read()) for selection in makes]
        for small, large in pairwise(found):
            one_way, other = int((small & ~large).sum()), int((large & ~small).sum())
            assert min(one_way, other) == 0


def test_another_seed_or_another_matrix_draws_others():
    weight = weights(0, (60, 50), few=False)
    like = Magnitude(0.1)
    drawn = {seed: mask(Random(like, seed), weight) for seed in range(4)}
    for seed in range(1, 4):
        shared = (drawn[0] & drawn[seed]).sum()
        # 300 of 3,000 twice share 30 by chance, give or take 5.
        assert 10 <= shared <= 55
    assert not torch.equal(Random(like, 0).mask("1.mlp.up", weight), torch.from_numpy(drawn[0]))


# Values


def test_a_recipe_is_json_and_another_recipe_is_another_digest():
    data = [one(seed, 6, few=False) for seed in range(3)]
    made: list[Selection] = [
        *(Wanda(inputs, keep, per) for inputs in data for keep in (0.1, 0.2) for per in ("matrix", "row")),
        *(MathNeuro(data[0], controls, 0.1) for controls in ((data[1],), (data[2],), (data[1], data[2]))),
        MathNeuro(data[1], (data[0],), 0.1),
        *(Magnitude(keep, addresses) for keep in (0.1, 0.2) for addresses in (None, (PLACE,))),
        *(Random(Magnitude(0.1), seed) for seed in (0, 1)),
        Random(Magnitude(0.2)),
        Magnitude(0.1) | Magnitude(0.2),
        Magnitude(0.1) & Magnitude(0.2),
        Magnitude(0.1) - Magnitude(0.2),
        Magnitude(0.2) - Magnitude(0.1),
    ]
    assert len({selection.digest for selection in made}) == len(set(made)) == len(made)
    for selection in made:
        assert json.loads(json.dumps(selection.recipe(lambda inputs: inputs.digest)))
        assert re.fullmatch("[0-9a-f]{16}", selection.digest)
        assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,79}", selection.label)
        assert selection != selection.label


def test_a_digest_does_not_change_from_one_release_to_the_next():
    # These stand in files and in stores; SHA-256 of the recipe's JSON, computed by hand here.
    drawn = '{"random": {"addresses": ["head"], "magnitude": 0.2}, "seed": 7}'
    text = f'{{"or": [{{"addresses": null, "magnitude": 0.1}}, {drawn}]}}'
    selection = Magnitude(0.1) | Random(Magnitude(0.2, ("head",)), 7)
    assert selection.digest == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_a_name_never_outgrows_the_text_form_of_an_edit():
    deep: Selection = Magnitude(0.12345)
    for seed in range(12):
        deep = Random(deep | Magnitude(0.1), seed)
    assert len(deep.label) <= LONGEST_LABEL == 80


def test_inputs_that_are_used_twice_are_named_once():
    data = [one(seed, 6) for seed in range(2)]
    selection = MathNeuro(data[0], (data[1], one(1, 6)), 0.1) - Wanda(data[0], 0.2)
    assert [inputs.digest for inputs in selection.inputs] == [inputs.digest for inputs in data]


@pytest.mark.parametrize("keep", [0, 0.0, -0.1, 1.0001, 2, float("nan"), float("inf"), True, False])
def test_a_share_that_is_none_is_refused(keep):
    inputs = one(0, 4)
    for make in (Wanda, lambda _, share: MathNeuro(inputs, (inputs,), share), lambda _, share: Magnitude(share)):
        with pytest.raises(UsageError, match=r"above 0 and at most 1|keep must be a finite number"):
            make(inputs, keep)


@pytest.mark.parametrize("keep", ["0.05", None, 1j, [0.05], np.array([0.05]), True])
def test_what_is_no_number_is_no_share(keep):
    with pytest.raises(UsageError, match="Magnitude: keep must be a finite number, not"):
        Magnitude(keep)


def test_mathneuro_without_a_control_and_an_unknown_unit_of_wanda_are_refused():
    with pytest.raises(UsageError, match="at least one control"):
        MathNeuro(one(0, 4), (), 0.1)
    with pytest.raises(UsageError, match=r"Wanda: per must be 'matrix' or 'row', not 'column'"):
        Wanda(one(0, 4), 0.1, "column")


def test_a_matrix_of_another_width_belongs_to_another_model():
    with pytest.raises(LesionError, match=r"0\.attention\.q with 6 inputs; this one is 3 × 4 .*another model"):
        Wanda(one(0, 6), 0.1).mask(PLACE, weights(0, (3, 4)))


def test_an_empty_selection_and_one_of_everything_are_refused():
    model = tiny.model("llama")
    data, _ = fleet(model)
    with pytest.raises(LesionError, match="is empty on tiny:llama"):
        count(Wanda(data[0], 0.1) - Wanda(data[0], 0.1), model)
    with pytest.raises(LesionError, match="is everything that tiny:llama has"):
        count(Magnitude(1.0), model)
    # All of one matrix is not everything.
    assert sum(c.selected for c in count(Magnitude(1.0, (PLACE,)), model)) == 32 * 32
