"""What is said of a drift study: rules checked against independent counts, sentences against the numbers they tell."""

import itertools

import made_drift as made
import numpy as np
import pytest
from made_drift import changed
from scipy.stats import spearmanr

from lesion.studies.drift import findings as drift_prose
from lesion.studies.drift import tables
from lesion.studies.drift.charts import null_band
from lesion.studies.drift.evidence import agreement, at_least, lost, reach, steepest
from lesion.studies.drift.result import Departure, DriftSummary


@pytest.fixture(scope="module")
def single():
    return made.study(families=("llama",), variants=("base",))


def said(summary: DriftSummary) -> str:
    """Every sentence of the findings."""
    findings = [*drift_prose.findings(summary), *drift_prose.by_model(summary)]
    return " ".join(" ".join((*finding.headline, *finding.sentences)) for finding in findings).replace(
        "\N{NO-BREAK SPACE}", " "
    )


def with_shape(summary, chosen=None, line=None, **entries):
    """The summary with entries of the hinge of its first model replaced, or with `chosen="step"` of the step."""
    chosen = chosen or summary.models[0].curve.shape.chosen
    kind = "step" if chosen == "step" else "hinge"
    return changed(summary, shape={"chosen": chosen, "line": line or {}, kind: entries})


def at_layer(layer, low=None, high=None):
    """Entries of a shape with a hinge there, for `changed`."""
    return {"hinge": {"layer": layer, "low": layer if low is None else low, "high": layer if high is None else high}}


def critical(*blocks):
    """Entries of a model with critical blocks of the study's own task."""
    return {"critical": {made.TASK: blocks}, "compared": made.TASK}


def layers_of(summary):
    """The layers of the first model's curve as dictionaries, for `changed`."""
    return [layer.model_dump() for layer in summary.models[0].curve.layers]


def test_the_first_screen_of_several_models_counts_all_of_them_within_critical_blocks():
    summary = made.study()
    shape, *within = drift_prose.lead(summary)
    assert shape.startswith("A straight decline of NMI is rejected in")
    assert within
    assert set(within) <= set(drift_prose.verdict(summary))
    assert drift_prose.lead(made.study(families=("llama",), variants=("base",))) == []


def test_a_hinge_is_told_with_its_interval_its_p_and_the_slopes_on_both_sides(single):
    text = said(with_shape(single, layer=3.44, low=2.9, high=4.21, p=0.013, slopes=[-0.1, -0.02]))
    assert "It has a hinge at layer 3.4 [2.9, 4.2] (p .013)" in text
    assert "NMI falls by 0.100 a layer before it, falls by 0.020 a layer after it" in text
    assert "97 % of bootstrap draws prefer a hinge" in text


def test_a_step_is_told_by_its_block_and_size(single):
    text = said(with_shape(single, chosen="step", layer=2.5, low=2.5, high=4.5, p=0.0002, size=-0.0784))
    assert "It has a step over block 2 [2, 4] (p .0002): NMI falls by 0.078 beyond the line's slope" in text


def test_a_hinge_and_a_step_that_are_the_same_curve_are_not_told_apart(single):
    hinge = {"layer": 7.0, "low": 2.0, "high": 7.0, "gain": 0.9}
    text = said(changed(single, shape={"hinge": hinge, "step": {"layer": 7.5, "low": 1.5, "high": 7.5, "gain": 0.9}}))
    assert "A step over block 7 [1, 7] fits equally well: only the outermost layer departs from the line" in text


def test_the_line_is_told_with_the_robust_p_and_the_textbook_s_f_stands_in_the_table(single):
    summary = with_shape(single, line={"p": 0.0004, "f": 55.6, "degrees": [6, 28], "f_p": 3e-14})
    assert "The curve is not a straight line (p .0004)." in said(summary)
    assert tables.shapes(summary).frame["f"][0] == 55.6


def test_where_a_line_is_not_rejected_there_is_nothing_to_compare(single):
    text = said(with_shape(single, chosen="line", line={"p": 0.4}))
    assert "A straight line is not rejected (p .4)" in text
    assert "without a hinge or step nothing to compare" in text
    assert "It has a" not in text


def test_a_curve_that_is_no_line_and_has_neither_is_told_as_such(single):
    text = said(with_shape(single, chosen="neither", p=0.2))
    assert "Neither a hinge (p .2) nor a step (p .03) is found." in text


def test_with_one_run_no_shape_is_claimed(single):
    nothing = {"p": None, "f": None, "f_p": None}
    summary = with_shape(single, chosen="untested", line=nothing, low=None, high=None, p=None)
    assert "With one run a straight line cannot be tested." in said(summary)
    assert "is not rejected" not in said(summary)


def test_what_80_percent_of_such_studies_would_find_is_told(single):
    text = said(single)
    assert "80 % of such studies would find a step of 0.040 in NMI and a hinge of 0.020 per layer in slope" in text
    unknown = {kind: {"detectable": None} for kind in ("hinge", "step")}
    assert "studies would find" not in said(changed(single, shape=unknown))


def test_a_hinge_at_the_end_of_the_first_step_is_said_to_be_no_more(single):
    first = "only the end of the first step"
    assert first in said(with_shape(single, layer=1.2, low=1.0, high=1.4))
    assert first not in said(with_shape(single, layer=1.6, low=1.0, high=1.8))
    block = with_shape(single, layer=2.2, low=2.0, high=2.4)
    assert first not in said(block)
    assert first in said(changed(block, study={"layer_zero": "block"}))


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (2.5, "It is within critical block 2"),
        (1.4, "It is 0.6 layers before critical block 2"),
        (4.2, "It is 1.2 layers after critical block 2"),
    ],
)
def test_a_block_stands_between_the_layer_that_enters_it_and_the_one_behind_it(single, layer, expected):
    assert expected in said(changed(single, **critical(2), shape=at_layer(layer)))


@pytest.mark.parametrize(
    ("kind", "low", "high", "expected"),
    [
        ("hinge", 2.0, 3.0, "within"), ("hinge", 1.0, 2.5, "open"), ("hinge", 4.1, 6.0, "outside"),
        ("step", 2.5, 2.5, "within"), ("step", 1.5, 2.5, "open"), ("step", 3.5, 5.5, "outside"),
    ],
)  # fmt: skip
def test_a_hinge_or_step_is_within_critical_blocks_only_where_its_whole_interval_is(single, kind, low, high, expected):
    model = changed(single, **critical(2)).models[0]
    at = Departure(
        kind=kind, layer=low, low=low, high=high, size=-0.1, gain=0.9, p=0.01, detectable=0.02, slopes=(-0.1, -0.2)
    )
    assert reach(model, at) == expected


def test_how_many_places_are_as_near_by_chance_is_told_and_whether_that_says_little(single):
    # Of the places for a hinge from layer 2 to layer 7, the block itself takes one layer of five.
    text = said(changed(single, **critical(3), shape=at_layer(3.5)))
    assert "20 % of places for a hinge are as near to the critical block 3" in text
    text = said(changed(single, **critical(2, 5), shape=at_layer(4.0, 3.4, 4.6)))
    assert "as near to the critical blocks 2 and 5, so nearness says little." in text
    # A step can be over the blocks 1 to 7; two of these seven are critical.
    text = said(changed(with_shape(single, chosen="step", layer=2.5, low=2.5, high=2.5), **critical(0, 2, 5)))
    assert "It is over critical block 2" in text
    assert "29 % of places for a step are as near" in text


def test_critical_blocks_of_the_study_s_own_task_are_those_compared(single):
    by_task = {"primer:atlas": (6,), "primer:arithmetic": (2,)}
    text = said(changed(single, critical=by_task, compared="primer:arithmetic", shape=at_layer(2.5)))
    assert "within critical block 2" in text
    assert "6 for primer:atlas, 2 for primer:arithmetic; compared are those for primer:arithmetic" in text
    text = said(changed(single, critical={"primer:atlas": (6,)}, compared=None, shape=at_layer(2.5)))
    assert "before critical block 6" in text
    assert "compared are those for any of them" in text


def test_without_a_layer_study_nearness_cannot_be_told_and_how_to_tell_it_is_said(single):
    text = said(changed(single, critical=None, compared=None))
    assert "no layer study was given" in text
    assert "--study" in text
    assert "no layer study was given" not in said(single)
    assert "found no critical block." in said(changed(single, **critical()))


def test_agreement_over_models_is_held_against_chance():
    summary = made.study()
    text = said(summary)
    hits = sum(
        min(made.CRITICAL[model.family]) <= model.curve.shape.hinge.low
        and model.curve.shape.hinge.high <= max(made.CRITICAL[model.family]) + 1  # they are neighbours
        for model in summary.models
    )
    assert f"{hits} of 8 lie wholly within critical blocks" in text
    # llama: layers 2 to 4 of 2 to 7; qwen2: layers 6 to 7 of 2 to 9.
    expected = 4 * 2 / 5 + 4 * 1 / 7
    assert sum(model.within_by_chance() for model in summary.models) == pytest.approx(expected, abs=0.01)
    assert f"{expected:.1f} by chance" in text
    assert "if models were independent)" in text
    assert "Models of one base are not independent evidence." in text


def test_a_family_s_hinges_and_steps_are_told_with_chance():
    summary = made.study(families=("llama",), variants=("base", "rlvr"))
    text = said(with_shape(summary, chosen="step", layer=2.5, low=2.5, high=2.5, size=-0.12))
    assert "Llama: a step in 1 of 2 models over block 2, by 0.120" in text
    # Of the blocks 1 to 7 two are critical.
    assert "(all 1 wholly within critical blocks, by chance 29 %)" in text
    assert "a hinge in 1 of 2 models at layer" in text


@pytest.mark.parametrize("hits", range(5))
def test_the_chance_of_so_many_near_elbows_is_that_of_all_outcomes_counted(hits):
    chances = [0.3, 0.66, 0.1, 0.5]
    expected = sum(
        np.prod([c if near else 1 - c for c, near in zip(chances, outcome, strict=True)])
        for outcome in itertools.product([True, False], repeat=4)
        if sum(outcome) >= hits
    )
    assert at_least(hits, chances) == pytest.approx(expected)


def test_layers_that_cannot_be_told_from_the_null_are_named(single):
    layers = layers_of(single)
    for layer in layers[6:]:
        layer["nmi"] |= {"mean": layer["null"]["mean"] + 0.5 * layer["null"]["std"]}
    summary = changed(single, curve={"layers": layers})
    assert lost(summary.models[0]) == [6, 7, 8]
    assert "layers 6–8 cannot be distinguished from these" in said(summary)
    assert "cannot be distinguished from these" not in said(single)


def test_a_layer_is_told_from_the_null_only_above_the_quantile_over_shuffles_even_with_one_run(single):
    layers = layers_of(single)
    for layer in layers:
        null = layer["null"]["mean"]
        layer |= {"nmi": {"mean": layer["nmi"]["mean"]}, "null": {"mean": null}, "null_high": {"mean": null + 0.03}}
    for layer, more in zip(layers[6:], (0.02, 0.031, 0.029), strict=True):
        layer["nmi"] = {"mean": layer["null"]["mean"] + more}
    model = changed(single, curve={"layers": layers}).models[0]
    assert lost(model) == [6, 8]
    nulls = [(layer["null"]["mean"], layer["null_high"]["mean"]) for layer in layers]
    assert null_band([model.curve]).to_numpy().tolist() == [[n, low, low, high] for n, (low, high) in enumerate(nulls)]


def test_the_height_above_the_null_is_that_of_the_last_layer(single):
    last = single.models[0].curve.layers[-1]
    assert f"at layer {last.layer}, of shuffled tokens {last.null.mean:.2f}" in said(single)


def test_other_measures_agree_by_the_rank_correlation_of_their_steps(single):
    curve = single.models[0].curve
    steps = {
        name: np.diff([getattr(layer, name).mean for layer in curve.layers])[1:] for name in ("nmi", "cosine", "cka")
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


def test_a_measure_that_follows_nmi_is_said_to_fall_over_the_same_blocks_and_one_that_does_not_is_not(single):
    layers = layers_of(single)
    falls = [0.05, 0.01, 0.02, 0.3, 0.03, 0.04, 0.06, 0.015]
    for measure, order in (("nmi", falls), ("cosine", falls), ("cka", falls[::-1])):
        for place, layer in enumerate(layers):
            layer[measure] = {"mean": 1 - sum(order[:place])}
    summary = changed(single, curve={"layers": layers})
    text = said(summary)
    assert "Falling over the same blocks: cosine (ρ 1.00" in text
    assert "not shown for CKA (ρ" in text
    assert steepest(summary.models[0].curve, "nmi", 0) == 3


def test_a_measure_that_does_not_vary_is_no_check(single):
    layers = [layer | {"cosine": {"mean": 1.0}, "cka": {"mean": 0.5}} for layer in layers_of(single)]
    summary = changed(single, curve={"layers": layers})
    assert agreement(summary.models[0].curve, "cosine", 0) is None
    assert "same blocks" not in said(summary)


def test_classes_and_tokens_that_leave_more_than_all_tokens_do_are_named_the_surest_first(single):
    counts = {"digit": (1000, 500), "word": (1000, 200), "rare": (3, 2), "operator": (1000, 700)}
    classes = [made.leaving(kind, *of) for kind, of in counts.items()]
    overall = made.leaving("all", 1000, 250)
    text = said(
        changed(single, tokens=dict(single.models[0].tokens) | {"classes": classes, "overall": overall, "types": []})
    )
    assert "25 % of all tokens leave their cluster" in text
    assert "more of the classes operator (70 % [67, 73]) and digit (50 % [46, 54])." in text


def test_doubts_are_told_where_there_are_any(single):
    assert "the interval covers more than half" not in said(single)
    assert "the interval covers more than half of the layers" in said(with_shape(single, low=1.0, high=6.0))
    assert "agree to an NMI of 0.94" in said(single)
    assert "NMI of 0.94" not in said(changed(single, curve={"ceiling": None}))
    assert "One run has no spread" in said(changed(single, study={"runs": 1}))


def test_a_shape_that_is_not_known_is_not_denied(single):
    text = said(changed(single, curve={"shape": None}))
    assert "The shape of the curve is not known." in text
    assert "is not a straight line" not in text
    assert "is not rejected" not in text
    several = made.study(families=("llama",))
    several = changed(several, curve={"shape": None})
    assert "in all 3 models tested" in said(several)
    for number in range(1, len(several.models)):
        several = changed(several, number, curve={"shape": None})
    assert drift_prose.verdict(several)[0] == "The shape of no curve was tested."
