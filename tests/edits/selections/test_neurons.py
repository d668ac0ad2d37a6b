"""LAPE: neurons by the entropy of their firing probabilities, against a plain loop over every neuron."""

import math
from decimal import Decimal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion.activations.calibration import Calibration, Draw
from lesion.activations.observation import observe
from lesion.edits.selections.inputs import Inputs, InputSums
from lesion.edits.selections.neurons import LAPE
from lesion.edits.selections.selection import count
from lesion.errors import LesionError, UsageError
from tiny import model


def sums(active, tokens):
    size = len(active)
    return InputSums(torch.ones(size), torch.ones(size), tokens, torch.tensor(active, dtype=torch.int64))


def inputs(counts, tokens=100):
    """Inputs of plain gated MLPs: one list of counts per block."""
    readers = {f"{block}.mlp.down": f"{block}.mlp.down" for block in range(len(counts))}
    return Inputs({f"{b}.mlp.down": sums(c, tokens) for b, c in enumerate(counts)}, readers, 1, tokens)


def by_hand(tables, tokens, keep, bar):
    """Neuron by neuron, as the paper says it: the set of (block, neuron)."""
    probabilities = {
        (block, j): [table[block][j] / t for table, t in zip(tables, tokens, strict=True)]
        for block in range(len(tables[0]))
        for j in range(len(tables[0][block]))
    }
    everything = sorted(p for row in probabilities.values() for p in row)
    place = bar * (len(everything) - 1)
    low = everything[math.floor(place)]
    quantile = low + (everything[math.ceil(place)] - low) * (place - math.floor(place))
    entropies = {}
    for neuron, row in probabilities.items():
        if row[0] > quantile + 1e-15 and all(row[0] > other for other in row[1:]):
            shares = [p / sum(row) for p in row]
            entropies[neuron] = -sum(s * math.log(s) for s in shares if s > 0)
    most = max(1, int(Decimal(str(keep)) * len(probabilities)))
    last = sorted(entropies.values())[:most][-1:] or [0.0]
    return {neuron for neuron, entropy in entropies.items() if entropy <= last[0] + 1e-12}


def chosen(selection):
    return {(int(a.split(".")[0]), int(j)) for a, places in selection.neurons.items() for j in places}


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(2, 4), st.sampled_from([0.01, 0.1, 0.29, 1.0]), st.sampled_from([0.0, 0.5, 0.95])
)
def test_the_neurons_are_those_of_a_loop_over_all_of_them(seed, sets, keep, bar):
    generator = np.random.default_rng(seed)
    tokens = [int(n) for n in generator.integers(20, 60, sets)]
    tables = [[generator.integers(0, n + 1, 13).tolist() for _ in range(3)] for n in tokens]
    observed = [inputs(table, n) for table, n in zip(tables, tokens, strict=True)]
    assert chosen(LAPE(observed[0], tuple(observed[1:]), keep, bar)) == by_hand(tables, tokens, keep, bar)


def test_the_neuron_that_fires_on_the_skill_alone_comes_first():
    skill = inputs([[90, 90, 90, 0], [10, 90, 0, 0]])
    control = inputs([[90, 0, 80, 90], [0, 10, 90, 0]])
    # (1, 0) fires on the skill alone but seldom; (0, 2) fires on both.
    assert chosen(LAPE(skill, (control,), 0.125, bar=0.5)) == {(0, 1)}
    assert chosen(LAPE(skill, (control,), 0.25, bar=0.5)) == {(0, 1), (1, 1)}


def test_probabilities_are_shares_of_the_tokens_that_came_so_data_sets_of_different_size_compare():
    skill, control = inputs([[50, 1]], tokens=100), inputs([[500, 900]], tokens=1000)
    assert chosen(LAPE(skill, (control,), 1.0, bar=0.0)) == set()  # 0.5 on both
    assert chosen(LAPE(control, (skill,), 1.0, bar=0.0)) == {(0, 1)}


def test_an_expert_that_saw_nothing_of_the_skill_is_never_selected():
    readers = {f"0.mlp.expert{n}.down": f"0.mlp.expert{n}.down" for n in range(2)}
    skill = Inputs({"0.mlp.expert0.down": sums([0, 0], 0), "0.mlp.expert1.down": sums([5, 1], 10)}, readers, 1, 10)
    control = Inputs({"0.mlp.expert0.down": sums([1, 1], 10), "0.mlp.expert1.down": sums([0, 0], 0)}, readers, 1, 10)
    assert set(LAPE(skill, (control,), 1.0, bar=0.0).neurons) == {"0.mlp.expert1.down"}


def observed(lesioned):
    generator = torch.Generator().manual_seed(0)
    found = []
    for low, high in ((3, 30), (20, 60)):
        texts = tuple(tuple(torch.randint(low, high, (12,), generator=generator).tolist()) for _ in range(6))
        ids = tuple(map(str, range(6)))
        calibration = Calibration("d", "raw", 0, False, True, ids, texts, (False,) * 6, (Draw(6, 0, tuple(range(6))),))
        found += observe(lesioned, calibration)
    return found


@pytest.mark.parametrize("family", ["llama", "phi3", "gpt2", "opt", "mixtral", "qwen2_moe"])
def test_masks_are_whole_rows_into_and_whole_columns_out_of_the_neurons(family):
    lesioned = model(family)
    skill, control = observed(lesioned)
    lape = LAPE(skill, (control,), 0.05, bar=0.5)
    assert lape.neurons
    total = 0
    for address, matrix in lesioned.anatomy.scored.items():
        mask = lape.mask(address, matrix.read())
        stem, _, name = address.rpartition(".")
        ending = f"{stem}.{'out' if name in ('in', 'out') else 'down'}"
        expected = torch.zeros(matrix.shape, dtype=torch.bool)
        if ".mlp" in address and name in ("gate", "up", "in"):
            expected[lape.neurons.get(ending, [])] = True
        elif ".mlp" in address and name in ("down", "out"):
            expected[:, lape.neurons.get(ending, [])] = True
        assert torch.equal(mask, expected), address
        assert lape.touches(address) == bool(expected.any())
        total += int(expected.sum())
    assert sum(c.selected for c in count(lape, lesioned)) == total > 0


def test_the_same_recipe_is_the_same_selection_and_another_bar_is_another():
    skill, control = inputs([[9, 1]]), inputs([[1, 9]])
    assert LAPE(skill, (control,), 0.5) == LAPE(skill, (control,), 0.5, bar=0.95)
    assert LAPE(skill, (control,), 0.5) != LAPE(skill, (control,), 0.5, bar=0.9)
    assert LAPE(skill, (control,), 0.5).label == "lape-0.5"
    recipe = LAPE(skill, (control,), 0.5).recipe(lambda i: i.digest)
    assert recipe == {"lape": skill.digest, "controls": [control.digest], "keep": 0.5, "bar": 0.95}


@pytest.mark.parametrize(("keep", "bar"), [(0.0, 0.9), (1.5, 0.9), (0.1, 1.0), (0.1, -0.1), (0.1, math.nan)])
def test_shares_out_of_range_are_refused(keep, bar):
    with pytest.raises(UsageError):
        LAPE(inputs([[1]]), (inputs([[1]]),), keep, bar)


def test_no_control_is_refused():
    with pytest.raises(UsageError, match="at least one control"):
        LAPE(inputs([[1]]), (), 0.1)


def test_a_model_whose_activations_are_not_counted_is_refused():
    skill, control = observed(model("unknown"))
    with pytest.raises(LesionError, match="In no MLP"):
        LAPE(skill, (control,), 0.1).touches("0.mlp.expand")


def test_data_sets_of_two_models_and_masks_of_another_model_are_refused():
    with pytest.raises(LesionError, match="the same neurons"):
        _ = LAPE(inputs([[9, 1]]), (inputs([[1]]),), 0.5).neurons
    lape = LAPE(inputs([[9, 1]]), (inputs([[1, 9]]),), 0.5, bar=0.0)
    with pytest.raises(LesionError, match="belongs to another model"):
        lape.mask("0.mlp.gate", torch.ones(3, 4))
