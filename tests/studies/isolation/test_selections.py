"""Selections by method, their counts and their overlaps, against brute force over masks."""

from __future__ import annotations

import itertools
from unittest.mock import ANY, Mock, call

import numpy as np
import pytest
import torch

from lesion.edits.selections.controls import Random
from lesion.edits.selections.inputs import Inputs, InputSums, Provenance
from lesion.edits.selections.topk import Magnitude
from lesion.report.values import Estimate
from lesion.studies.isolation import study as isolation_study
from lesion.studies.isolation.selections import METHODS, Made, coverage, mean_overlap, selections, survey
from tiny import model


def observed(model, seed: int, unseen: tuple[str, ...] = ()) -> Inputs:
    """Made-up sums of every matrix input of a model; those named saw no token."""
    generator = torch.Generator().manual_seed(seed)
    sums = {}
    for address, matrix in model.anatomy.scored.items():
        size = matrix.shape[1]
        norms = torch.rand(size, generator=generator) + 0.1
        active = torch.randint(0, 100, (size,), generator=generator) if address.endswith(".down") else None
        sums[address] = InputSums(norms, norms**2, 0 if address in unseen else 100, active)
    told = Provenance("tiny", model.fingerprint, f"data{seed}", seed, 0, False, ("a",), 0, "raw")
    return Inputs(sums, {address: address for address in sums}, 1, 100, (told,))


def draws(model, seed: int, repeats: int = 3) -> dict[tuple[int, int], Inputs]:
    return {(10, repeat): observed(model, 100 * seed + repeat) for repeat in range(repeats)}


def masks(made: Made, model) -> np.ndarray:
    """The whole selection as one flat mask."""
    parts = [made.selection.mask(a, m.read()).flatten().numpy() for a, m in model.anatomy.scored.items()]
    return np.concatenate(parts)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_a_selection_per_share_and_draw_and_magnitude_one_per_share(method, llama):
    made = selections(method, [0.05, 0.2], draws(llama, 1), [draws(llama, 2), draws(llama, 3)])
    repeats = (0,) if method == "magnitude" else (0, 1, 2)
    assert [(one.method, one.keep, one.samples, one.repeat) for one in made] == [
        (method, keep, 10, repeat) for keep in (0.05, 0.2) for repeat in repeats
    ]
    assert len({one.selection.digest for one in made}) == len(made)
    assert all(one.selection.label == f"{method}-{one.keep:g}" for one in made)


def test_a_draw_of_the_skill_is_set_against_the_same_draw_of_every_control(llama):
    skill, first, second = (draws(llama, seed) for seed in (1, 2, 3))
    for method in ("mathneuro", "lape"):
        for one in selections(method, [0.1], skill, [first, second]):
            draw = one.samples, one.repeat
            # Only the vectors that the method reads are kept, so inputs are told apart by their norms.
            for kept, whole in zip(one.selection.inputs, (skill[draw], first[draw], second[draw]), strict=True):
                assert all(torch.equal(kept.sums[name].norms, sums.norms) for name, sums in whole.sums.items())
                assert all(sums.squares is None for sums in kept.sums.values())
                counted = any(sums.active is not None for sums in kept.sums.values())
                assert counted == (method == "lape")


def test_magnitude_is_taken_of_the_matrices_that_the_skill_reached(llama):
    skill = {(10, 0): observed(llama, 1, unseen=("1.mlp.down",))}
    (made,) = selections("magnitude", [0.1], skill, [draws(llama, 2)])
    assert not made.selection.touches("1.mlp.down")
    assert made.selection.touches("0.mlp.down")


def test_counts_and_overlaps_are_those_of_a_brute_force_over_whole_masks(llama):
    made = [
        one
        for method in ("mathneuro", "wanda", "wanda-rows", "lape", "magnitude")
        for one in selections(method, [0.05, 0.3], draws(llama, 1), [draws(llama, 2)])
    ]
    watcher = Mock()
    counts, overlaps = survey(made, llama, watcher)
    watcher.begin.assert_called_once_with(llama.name, len(llama.anatomy.scored), 0, ANY)
    assert watcher.answered.call_args_list == [call(1)] * len(llama.anatomy.scored)
    whole = [masks(one, llama) for one in made]
    for one, counted, mask in zip(made, counts, whole, strict=True):
        assert sum(c.selected for c in counted) == mask.sum(), one
        assert sum(c.total for c in counted) == len(mask)
        assert [c.address for c in counted] == list(llama.anatomy.scored)
        for c in counted:
            matrix = llama.anatomy.scored[c.address]
            assert c.total == matrix.shape[0] * matrix.shape[1]
            assert c.selected == int(one.selection.mask(c.address, matrix.read()).sum())
            assert c.address == (c.matrix if c.block is None else f"{c.block}.{c.matrix}")
    assert [(one.method, one.keep, one.repeats) for one in overlaps] == [
        (method, keep, 3) for method in ("mathneuro", "wanda", "wanda-rows", "lape") for keep in (0.05, 0.3)
    ]
    for one in overlaps:
        own = [
            m for made_one, m in zip(made, whole, strict=True) if made_one.group == (one.method, one.keep, one.samples)
        ]
        naive = [(a & b).sum() / (a | b).sum() for a, b in itertools.combinations(own, 2)]
        assert one.iou == pytest.approx(naive)
        assert one.mean.value == pytest.approx(np.mean(naive))


def test_a_selection_overlaps_wholly_with_itself_and_a_single_draw_has_no_overlap(llama):
    skill, control = observed(llama, 1), observed(llama, 2)
    twice = {(10, 0): skill, (10, 1): skill}
    made = selections("mathneuro", [0.1], twice, [{(10, 0): control, (10, 1): control}])
    assert survey(made, llama)[1][0].iou == (1.0,)
    assert survey(made[:1], llama)[1] == []


def test_chance_is_what_random_sets_of_the_same_sizes_overlap_by(llama):
    like = selections("mathneuro", [0.2], draws(llama, 1), [draws(llama, 2)])
    (by_method,) = survey(like, llama)[1]
    drawn = [
        Made("mathneuro", 0.2, 10, number, Random(one.selection, seed=10 * number + seed))
        for seed in range(4)
        for number, one in enumerate(like)
    ]
    simulated = [survey(drawn[at : at + 3], llama)[1][0].mean.value for at in range(0, len(drawn), 3)]
    assert by_method.chance == pytest.approx(np.mean(simulated), rel=0.05)
    # Against an independent formula, where all matrices have one share s: s² / (2s − s²), nearly.
    made = [Made("m", 0.1, 1, n, Magnitude(0.1)) for n in range(2)]
    assert survey(made, llama)[1][0].chance == pytest.approx(0.1 / 1.9, rel=0.02)


def test_two_empty_selections_have_no_overlap_to_tell(llama):
    nothing = [Made("m", 0.1, 1, n, Magnitude(0.1, ("9.mlp.up",))) for n in range(2)]
    counts, (found,) = survey(nothing, llama)
    assert found.iou == (None,)
    assert found.mean.value is None
    assert found.chance == 0
    assert sum(c.selected for c in counts[0]) == 0


def test_the_interval_of_an_overlap_is_the_jackknife_over_repeats():
    table = np.zeros((5, 5))
    table[np.triu_indices(5, 1)] = iou = (0.50, 0.55, 0.45, 0.60, 0.52, 0.48, 0.61, 0.40, 0.58, 0.47)
    found = mean_overlap(iou, 5)
    left = [np.delete(np.delete(table, r, 0), r, 1).sum() / 6 for r in range(5)]
    spread = np.sqrt(4 / 5 * np.sum((np.array(left) - np.mean(left)) ** 2))
    mean = np.mean(iou)
    assert found.value == pytest.approx(mean)
    assert (found.low, found.high) == pytest.approx((mean - 1.959964 * spread, mean + 1.959964 * spread))


def test_of_fewer_than_three_repeats_nothing_is_known_of_the_spread():
    assert mean_overlap((0.5,), 2) == Estimate(value=0.5)


def test_repeats_that_all_agree_alike_have_an_interval_of_one_point():
    found = mean_overlap((0.5, 0.5, 0.5), 3)
    assert (found.low, found.high) == pytest.approx((0.5, 0.5))


@pytest.mark.parametrize("family", ["llama", "gpt2", "mixtral", "llama_tied"])
def test_coverage_names_every_weight_of_the_model_once(family):
    whole = model(family)
    found = coverage(whole, observed(whole, 1))
    assert sum(entry.weights for entry in found) == sum(p.numel() for p in whole.network.parameters())
    assert len({entry.name for entry in found}) == len(found)
    assert all(entry.scored == (not entry.reason) for entry in found)
    assert {entry.name for entry in found if entry.scored} == set(whole.anatomy.scored)


def test_what_saw_no_token_or_was_not_observed_is_told_with_its_reason(llama):
    seen = observed(llama, 1, unseen=("0.mlp.up",))
    readers = {address: key for address, key in seen.readers.items() if address != "1.attention.q"}
    seen = Inputs(seen.sums, readers, 1, 100, seen.provenance)
    told = {one.name: one.reason for one in coverage(llama, seen) if one.name in llama.anatomy.scored and one.reason}
    assert set(told) == {"0.mlp.up", "1.attention.q"}
    assert "no token of the skill" in told["0.mlp.up"]
    assert "was not seen" in told["1.attention.q"]


def test_a_study_file_knows_the_same_methods():
    assert set(isolation_study.METHODS) == set(METHODS)
