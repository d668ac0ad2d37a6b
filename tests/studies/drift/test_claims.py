"""What a drift study claims, one test an outcome, and the rules behind it against independent counts."""

import itertools
from pathlib import Path

import made_drift as made
import numpy as np
import pytest
from made_drift import changed

from lesion.studies.drift import report
from lesion.studies.drift.report import DriftResult, at_least, lost, reach
from lesion.studies.drift.result import Departure


@pytest.fixture(scope="module")
def single():
    return made.study(families=("llama",), variants=("base",))


def said(rule, summary) -> str:
    return " ".join(claim.text for claim in rule(summary)).replace("\N{NO-BREAK SPACE}", " ")


def with_shape(summary, chosen=None, line=None, **entries):
    """The summary with entries of the hinge of its first model replaced, or with `chosen="step"` of the step."""
    chosen = chosen or summary.models[0].curve.shape.chosen
    kind = "step" if chosen == "step" else "hinge"
    return changed(summary, shape={"chosen": chosen, "line": line or {}, kind: entries})


def critical(*blocks):
    """Entries of a model with critical blocks of the study's own task."""
    return {"critical": {made.TASK: blocks}, "compared": made.TASK}


def layers_of(summary):
    """The layers of the first model's curve as dictionaries, for `changed`."""
    return [layer.model_dump() for layer in summary.models[0].curve.layers]


def with_measures(summary, **measures):
    """The summary with the means of measures after layer 0 replaced in its first model, each ± 0.01."""
    layers = layers_of(summary)
    for name, values in measures.items():
        for layer, value in zip(layers[1:], values, strict=True):
            measured = {"mean": value, "std": 0.01}
            if name == "token":
                layer["labels"] = {"token": measured}
            else:
                layer[name] = measured
    return changed(summary, curve={"layers": layers})


FALLING = np.linspace(0.9, 0.6, 8)


@pytest.mark.parametrize(
    ("by_token", "first", "last"),
    [
        (np.linspace(0.95, 0.85, 8), "Mostly, occurrences of one token move apart:", "Whole tokens leave too, by more"),
        (np.linspace(0.95, 0.94, 8), "Mostly, occurrences of one token move apart:", "Whether whole tokens leave too"),
        (np.linspace(0.9, 0.65, 8), "Tokens leave their first clusters:", "Whole tokens leave too, by more"),
    ],
)
def test_leaving_is_said_only_of_what_is_more_than_occurrences_of_one_token_spreading(single, by_token, first, last):
    summary = with_measures(single, nmi=FALLING, by_token=by_token, token=FALLING - 0.01)
    text = said(report.how_much_they_leave, summary)
    assert text.startswith(first)
    fall = by_token[0] - by_token[-1]
    assert f"(NMI) falls by 0.30 after layer 1, with tokens kept whole by {fall:.2f}." in text
    assert last in text
    (claim,) = report.how_much_they_leave(summary)
    assert [layer.layer for *_, layer in claim.rows] == list(range(1, 9))


def test_agreement_that_does_not_fall_is_said_as_such(single):
    level = said(report.how_much_they_leave, with_measures(single, nmi=np.full(8, 0.7)))
    assert level == "Agreement with the first clusters (NMI) is not seen to fall after layer 1."


def test_a_bend_is_told_with_its_interval_and_the_falls_on_both_sides(single):
    summary = with_shape(single, layer=3.44, low=2.9, high=4.21, slopes=[-0.1, -0.02], line={"p": 0.0004})
    assert said(report.where_they_leave, summary) == (
        "The fall of NMI is not even (p .0004): a bend at layer 3.4 [2.9, 4.2], from a fall of 0.100 a layer to 0.020."
    )


def test_a_step_is_told_by_its_block_and_size(single):
    summary = with_shape(single, chosen="step", layer=2.5, low=2.5, high=4.5, size=-0.0784)
    assert ": an extra step of 0.078 over block 2." in said(report.where_they_leave, summary)


def test_a_bend_and_a_step_that_are_the_same_curve_are_not_told_apart(single):
    hinge = {"layer": 7.0, "low": 2.0, "high": 7.0, "gain": 0.9}
    summary = changed(single, shape={"hinge": hinge, "step": {"layer": 7.5, "low": 1.5, "high": 7.5, "gain": 0.9}})
    assert "In 1 a bend and a step fit equally well" in said(report.where_they_leave, summary)


@pytest.mark.parametrize(
    ("chosen", "line", "text"),
    [
        ("line", {"p": 0.4}, "An even fall is not rejected (p .4)."),
        ("neither", {"p": 0.03}, "The fall of NMI is not even (p .03): neither a step nor a bend is found."),
        ("untested", {"p": None}, "Whether the fall is even cannot be tested: there is one run, or too few layers."),
    ],
)
def test_a_curve_without_step_and_bend_is_told_as_such(single, chosen, line, text):
    assert said(report.where_they_leave, with_shape(single, chosen=chosen, line=line)) == text


def test_doubts_about_the_place_are_told(single):
    wide = said(report.where_they_leave, with_shape(single, low=1.0, high=6.0))
    assert "Where it is in bundled:llama-base cannot be told." in wide


def test_kinds_are_counted_over_models():
    summary = made.study(families=("llama",), variants=("base", "rlvr"))
    text = said(report.where_they_leave, with_shape(summary, chosen="step", layer=2.5, size=-0.12))
    assert text.startswith(
        "The fall of NMI is not even in 2 of 2 models (p .001): an extra step of 0.120 over block 2 in 1;"
    )
    assert "; a bend at layers " in text


@pytest.mark.parametrize(
    ("kind", "low", "high", "expected"),
    [
        ("hinge", 2.0, 3.0, "lies within"),
        ("hinge", 1.0, 2.5, "cannot be placed in or out of"),
        ("hinge", 4.1, 6.0, "lies outside"),
        ("step", 2.5, 2.5, "lies within"),
        ("step", 1.5, 2.5, "cannot be placed in or out of"),
        ("step", 3.5, 5.5, "lies outside"),
    ],
)
def test_a_place_is_within_critical_blocks_only_where_its_whole_interval_is(single, kind, low, high, expected):
    model = changed(single, **critical(2)).models[0]
    at = Departure(
        kind=kind, layer=low, low=low, high=high, size=-0.1, gain=0.9, p=0.01, detectable=0.02, slopes=(-0.1, -0.2)
    )
    assert reach(model, at) == expected


def test_places_within_critical_blocks_are_held_against_chance():
    summary = made.study()
    hits = sum(
        min(made.CRITICAL[model.family]) <= model.curve.shape.hinge.low
        and model.curve.shape.hinge.high <= max(made.CRITICAL[model.family]) + 1  # they are neighbours
        for model in summary.models
    )
    # llama: layers 2 to 4 of 2 to 7; qwen2: layers 6 to 7 of 2 to 9.
    expected = 4 * 2 / 5 + 4 * 1 / 7
    text = said(report.at_critical_blocks, summary)
    assert f"{hits} of these 8 places lie within critical blocks; chance gives {expected:.1f} (p " in text


def test_a_link_is_called_one_only_where_chance_would_not_do(single):
    place = {"hinge": {"layer": 3.5, "low": 3.4, "high": 3.6}}
    # Of the places for a bend from layer 2 to layer 7, the block itself takes one layer of five.
    text = said(report.at_critical_blocks, changed(single, **critical(3), shape=place))
    assert text == "It lies within the critical block 3; chance gives 0.2 (p .2), so no link is shown."
    eight = made.study(families=("llama",), variants=("base", "instruct", "distill", "rlvr"))
    for number in range(4):
        eight = changed(eight, number, **critical(3), shape=place)
    assert "so more do than by chance, if models are independent." in said(report.at_critical_blocks, eight)
    assert report.at_critical_blocks(changed(single, critical=None, compared=None)) == ()


@pytest.mark.parametrize("hits", range(5))
def test_the_chance_of_so_many_near_elbows_is_that_of_all_outcomes_counted(hits):
    chances = [0.3, 0.66, 0.1, 0.5]
    expected = sum(
        np.prod([c if near else 1 - c for c, near in zip(chances, outcome, strict=True)])
        for outcome in itertools.product([True, False], repeat=4)
        if sum(outcome) >= hits
    )
    assert at_least(hits, chances) == pytest.approx(expected)


def checks(summary) -> list[tuple[str, str]]:
    result = DriftResult(Path("none"), summary)
    return [(check.mood, check.text.replace("\N{NO-BREAK SPACE}", " ")) for check in result.checks()]


def test_layers_that_cannot_be_told_from_the_null_are_named(single):
    layers = layers_of(single)
    for layer in layers[6:]:
        layer["null_high"] = {"mean": layer["nmi"]["mean"] - 0.5 * layer["nmi"]["std"]}
    summary = changed(single, curve={"layers": layers})
    assert lost(summary.models[0]) == [6, 7, 8]
    assert ("bad", "Like shuffled tokens: bundled:llama-base: layers 6–8.") in checks(summary)
    assert ("good", "Every layer is above shuffled tokens.") in checks(single)


def test_a_layer_is_told_from_the_null_only_above_the_quantile_over_shuffles_even_with_one_run(single):
    layers = layers_of(single)
    for layer in layers:
        null = layer["null"]["mean"]
        layer |= {"nmi": {"mean": layer["nmi"]["mean"]}, "null": {"mean": null}, "null_high": {"mean": null + 0.03}}
    for layer, more in zip(layers[6:], (0.02, 0.031, 0.029), strict=True):
        layer["nmi"] = {"mean": layer["null"]["mean"] + more}
    assert lost(changed(single, curve={"layers": layers}).models[0]) == [6, 8]


def test_what_was_not_tried_names_what_to_add(single):
    alone = changed(single, study={"runs": 1}, critical=None, compared=None)
    command = "`lesion drift bundled:llama-base --task primer:arithmetic"
    assert {text for mood, text in checks(alone) if mood != "good"} == {
        f"A test over several runs: {command} --runs 5`",
        f"A comparison with critical blocks: {command} --study FOLDER`",
    }


def test_classes_and_tokens_that_leave_more_than_all_tokens_do_are_named_the_surest_first(single):
    counts = {"digit": (1000, 500), "word": (1000, 200), "rare": (3, 2), "operator": (1000, 700)}
    classes = [made.leaving(kind, *of) for kind, of in counts.items()]
    tokens = dict(single.models[0].tokens) | {
        "classes": classes,
        "overall": made.leaving("all", 1000, 250),
        "types": [],
    }
    text = said(report.which_tokens_leave, changed(single, tokens=tokens))
    assert text == (
        "Between layers 3 and 4, 25 % of all tokens leave their cluster; more do of the classes operator (70 % [67,"
        " 73]) and digit (50 % [46, 54])."
    )
    none = changed(single, tokens=tokens | {"classes": [made.leaving("word", 1000, 250)]})
    assert said(report.which_tokens_leave, none).endswith("25 % of all tokens leave their cluster.")
