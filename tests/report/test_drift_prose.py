"""What is said of a drift study: rules checked against independent counts, sentences against the numbers they tell."""

import copy
import itertools

import made_drift as made
import numpy as np
import pytest
from scipy.stats import spearmanr

from lesion.report import drift_prose
from lesion.report.drift_charts import null_band
from lesion.report.drift_evidence import agreement, at_least, lost, reach, steepest
from lesion.report.drift_read import found
from lesion.report.drift_rows import Elbow


@pytest.fixture(scope="module")
def one():
    return made.study(families=("llama",), variants=("base",))


def said(summary) -> str:
    """Every sentence of the findings."""
    study = found(summary)
    told = [*drift_prose.findings(study), *drift_prose.by_model(study)]
    return " ".join(" ".join((*one.headline, *one.sentences)) for one in told).replace("\N{NO-BREAK SPACE}", " ")


def changed(summary, **entries):
    """The summary with entries of its first model replaced."""
    summary = copy.deepcopy(summary)
    summary["models"][0] |= entries
    return summary


def with_elbow(summary, **entries):
    return changed(summary, elbow=summary["models"][0]["elbow"] | entries)


def test_an_elbow_is_told_with_its_interval_and_p(one):
    told = said(with_elbow(one, layer=3.44, low=2.9, high=4.21, p=0.013))
    assert "has an elbow at layer 3.4 [2.9, 4.2] (p .013)" in told
    told = said(with_elbow(one, slopes=[-0.1, -0.02]))
    assert "NMI falls by 0.100 a layer before it and falls by 0.020 a layer behind it" in told


def test_where_a_line_does_as_well_there_is_no_elbow_and_nothing_to_compare(one):
    told = said(with_elbow(one, bend=False, p=0.4))
    assert "There is no elbow" in told
    assert "without an elbow there is nothing to compare" in told
    assert "has an elbow" not in told


def test_an_elbow_at_the_end_of_the_first_step_is_said_to_be_no_more(one):
    first = "no more than the end of the first step"
    assert first in said(with_elbow(one, layer=1.2, low=1.0, high=1.4))
    assert first not in said(with_elbow(one, layer=1.6, low=1.0, high=1.8))
    block = with_elbow(one, layer=2.2, low=2.0, high=2.4)
    assert first not in said(block)
    block["study"]["layer_zero"] = "block"
    assert first in said(block)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (2.5, "It stands within critical block 2 (between layers 2 and 3)"),
        (1.4, "It stands 0.6 layers before critical block 2"),
        (4.2, "It stands 1.2 layers behind critical block 2"),
    ],
)
def test_a_block_stands_between_the_layer_that_enters_it_and_the_one_behind_it(one, layer, expected):
    summary = changed(one, critical=[2], elbow={"layer": layer, "low": layer, "high": layer, "bend": True, "p": 0.01})
    assert expected in said(summary)


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(2.0, 4.0, "near"), (1.0, 4.0, "near"), (0.5, 4.0, "open"), (4.1, 6.0, "far")]
)
def test_an_elbow_is_near_only_where_its_whole_interval_is(one, low, high, expected):
    model = found(changed(one, critical=[2])).models[0]
    assert reach(model, Elbow((low + high) / 2, low, high, True, 0.01)) == expected


def test_how_many_places_are_as_near_is_told_and_whether_that_says_little(one):
    # Of the places from layer 1 to layer 7, the block itself takes one layer of six.
    told = said(changed(one, critical=[3], elbow={"layer": 3.5, "low": 3.4, "high": 3.6, "bend": True, "p": 0.01}))
    assert "Of all places for an elbow 17 % are as near to the critical block 3." in told
    told = said(changed(one, critical=[2, 5], elbow={"layer": 4.0, "low": 3.4, "high": 4.6, "bend": True, "p": 0.01}))
    assert "as near to the critical blocks 2 and 5, so that nearness says little." in told


def test_critical_blocks_of_the_study_s_own_task_are_those_compared(one):
    by_task = {"primer:atlas": [6], "primer:arithmetic": [2]}
    elbow = {"layer": 2.5, "low": 2.4, "high": 2.6, "bend": True, "p": 0.01}
    told = said(changed(one, critical=by_task, elbow=elbow))
    assert "within critical block 2" in told
    assert "6 for primer:atlas, 2 for primer:arithmetic; compared are those for primer:arithmetic" in told
    told = said(changed(one, critical={"primer:atlas": [6]}, elbow=elbow))
    assert "before critical block 6" in told
    assert "compared are those for any of them" in told


def test_without_a_layer_study_nearness_cannot_be_told_and_how_to_tell_it_is_said(one):
    told = said(changed(one, critical=None))
    assert "no layer study was given" in told
    assert "--study" in told
    assert "no layer study was given" not in said(one)
    assert "found no critical block" in said(changed(one, critical=[]))


def test_nearness_over_models_is_held_against_chance():
    told = said(made.study())
    study = found(made.study())
    assert "Of the 8 with critical blocks to compare, 4 have it at most one layer from one" in told
    # llama: from layer 1 to 5 of 1 to 7; qwen2: from 5 to 8 of 1 to 9.
    assert sum(model.near_by_chance() for model in study.models) == pytest.approx(4 * 4 / 6 + 4 * 3 / 8, abs=0.01)
    assert "would be so near in 4.2" in told
    assert "no evidence of a link" in told


@pytest.mark.parametrize("hits", range(5))
def test_the_chance_of_so_many_near_elbows_is_that_of_all_outcomes_counted(hits):
    chances = [0.3, 0.66, 0.1, 0.5]
    expected = sum(
        np.prod([c if near else 1 - c for c, near in zip(chances, outcome, strict=True)])
        for outcome in itertools.product([True, False], repeat=4)
        if sum(outcome) >= hits
    )
    assert at_least(hits, chances) == pytest.approx(expected)


def test_layers_that_cannot_be_told_from_the_null_are_named(one):
    layers = copy.deepcopy(one["models"][0]["layers"])
    for layer in layers[6:]:
        layer |= {"nmi": layer["null"] + 0.5 * layer["null_std"]}
    summary = changed(one, layers=layers)
    assert lost(found(summary).models[0]) == [6, 7, 8]
    assert "layers 6–8 cannot be told from it" in said(summary)
    assert "cannot be told from it" not in said(one)


def test_a_layer_is_told_from_the_null_only_above_the_quantile_over_shuffles_even_with_one_run(one):
    layers = copy.deepcopy(one["models"][0]["layers"])
    for layer in layers:
        layer |= {"nmi_std": None, "null_std": None, "null_high": layer["null"] + 0.03}
    for layer, more in zip(layers[6:], (0.02, 0.031, 0.029), strict=True):
        layer["nmi"] = layer["null"] + more
    model = found(changed(one, layers=layers)).models[0]
    assert lost(model) == [6, 8]
    for (_, low, mean, high), layer in zip(null_band([model.curve]), layers, strict=True):
        assert (low, mean, high) == (layer["null"], layer["null"], layer["null_high"])


def test_the_height_above_the_null_is_that_of_the_last_layer(one):
    last = one["models"][0]["layers"][-1]
    assert f"{last['nmi']:.2f}, where shuffled tokens give {last['null']:.2f}" in said(one)
    assert f"{last['nmi'] - last['null']:.2f} above the null" in said(one)


def test_other_measures_agree_by_the_rank_correlation_of_their_steps(one):
    curve = found(one).models[0].curve
    steps = {
        name: np.diff([layer[name] for layer in one["models"][0]["layers"]])[1:] for name in ("nmi", "cosine", "cka")
    }
    for measure in ("cosine", "cka"):
        rho, p = agreement(curve, measure, 0)
        expected = spearmanr(steps["nmi"], steps[measure])
        assert rho == pytest.approx(expected.statistic)
        exact = np.mean([
            spearmanr(steps["nmi"], order).statistic >= rho - 1e-9 for order in itertools.islice(
                itertools.permutations(steps[measure]), 0, 5040, 7)
        ])  # fmt: skip
        assert p == pytest.approx(exact, abs=0.05)


def test_a_measure_that_follows_nmi_is_said_to_fall_over_the_same_blocks_and_one_that_does_not_is_not(one):
    layers = copy.deepcopy(one["models"][0]["layers"])
    falls = [0.05, 0.01, 0.02, 0.3, 0.03, 0.04, 0.06, 0.015]
    for measure, order in (("nmi", falls), ("cosine", falls), ("cka", falls[::-1])):
        for place, layer in enumerate(layers):
            layer[measure] = 1 - sum(order[:place])
    summary = changed(one, layers=layers)
    told = said(summary)
    assert "Cosine falls over the same blocks (ρ 1.00" in told
    assert "most of all over block 3 as well" in told
    assert "of CKA there is no evidence" in told
    assert steepest(found(summary).models[0].curve, "nmi", 0) == 3


def test_a_measure_that_does_not_vary_is_no_check(one):
    layers = copy.deepcopy(one["models"][0]["layers"])
    for layer in layers:
        layer |= {"cosine": 1.0, "cka": 0.5}
    assert agreement(found(changed(one, layers=layers)).models[0].curve, "cosine", 0) is None
    assert "same blocks" not in said(changed(one, layers=layers))


def test_classes_and_tokens_that_leave_more_than_all_tokens_do_are_named_the_surest_first(one):
    rows = [
        {"from": 3, "to": 4, "class": "digit", "count": 1000, "left": 500},
        {"from": 3, "to": 4, "class": "word", "count": 1000, "left": 200},
        {"from": 3, "to": 4, "class": "rare", "count": 3, "left": 2},
        {"from": 3, "to": 4, "class": "operator", "count": 1000, "left": 700},
    ]
    told = said(changed(one, classes=rows, overall=0.25, tokens=[]))
    assert "25 % of all tokens leave their cluster" in told
    assert "of the classes operator (70 % [67, 73]) and digit (50 % [47, 53])." in told


def test_whether_the_elbows_of_a_family_have_a_layer_in_common_is_told():
    summary = made.study(families=("llama",), variants=("base", "rlvr"))
    ends = [(2.0, 3.5), (3.1, 4.0)]
    for model, (low, high) in zip(summary["models"], ends, strict=True):
        model["elbow"] |= {"layer": (low + high) / 2, "low": low, "high": high, "bend": True}
    assert "the intervals of its 2 elbows have layers 3.1 to 3.5 in common" in said(summary)
    summary["models"][1]["elbow"] |= {"low": 3.6}
    assert "have no layer in common" in said(summary)


def test_doubts_are_told_where_there_are_any(one):
    assert "the interval covers more than half" not in said(one)
    assert "the interval covers more than half of the layers" in said(with_elbow(one, low=1.0, high=6.0))
    assert "agree only to an NMI of 0.94" in said(one)
    assert "NMI of 0.94" not in said(changed(one, ceiling=None))
    single = copy.deepcopy(one)
    single["study"]["runs"] = 1
    assert "One run has no spread" in said(single)


def test_an_elbow_that_nobody_sought_is_not_denied(one):
    told = said(changed(one, elbow=None))
    assert "Of an elbow nothing is told." in told
    assert "There is no elbow" not in told
    several = made.study(families=("llama",))
    several["models"][0]["elbow"] = None
    assert "In all 3 models in which it was sought the clusters' agreement" in said(several)
    for model in several["models"]:
        model["elbow"] = None
    assert drift_prose.verdict(found(several))[0] == "Of elbows nothing is told."
