"""Edits are values: they compare, hash, and survive their text and JSON forms."""

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.edits.edit import (
    BASELINE,
    SCALES,
    Compose,
    Scale,
    ScaleAttention,
    ScaleBlock,
    ScaleMlp,
    ScaleParameters,
    as_edit,
    of_places,
    of_weights,
    parts,
)
from lesion.edits.place import UNITS
from lesion.edits.selections.controls import Random
from lesion.edits.selections.selection import Selection
from lesion.edits.selections.topk import Magnitude
from lesion.edits.text import from_json, parse, to_json
from lesion.engines.engine import Request
from lesion.errors import UsageError

numbers = st.floats(allow_nan=False, allow_infinity=False)
scales = st.builds(
    lambda unit, layer, factor: SCALES[unit](layer, factor), st.sampled_from(UNITS), st.integers(0, 999), numbers
)
TOPS = [Magnitude(keep) for keep in (1e-9, 0.05, 0.12345678, 1.0)]
SELECTIONS: list[Selection] = [
    *TOPS,
    *(Random(TOPS[1], seed) for seed in (0, 7, -(10**30))),
    Random(Random(TOPS[1], 1), 2),
    TOPS[1] | TOPS[2],
    TOPS[1] & Random(TOPS[2], 0),
    (TOPS[2] - TOPS[1]) - (Random(TOPS[3], 123456789) | (TOPS[0] & TOPS[2])),
]
on_weights = st.builds(ScaleParameters, st.sampled_from(SELECTIONS), numbers)
mixed = st.recursive(
    st.one_of(scales, on_weights), lambda inner: st.lists(inner, max_size=4).map(lambda found: Compose(tuple(found)))
)
edits = st.recursive(scales, lambda inner: st.lists(inner, max_size=4).map(lambda found: Compose(tuple(found))))


@given(edits)
def test_the_text_of_an_edit_parses_back_to_an_equal_edit(edit):
    assert parse(str(edit)) == edit
    assert hash(parse(str(edit))) == hash(edit)


@given(edits)
def test_the_json_of_an_edit_reads_back_to_an_equal_edit_after_a_trip_through_a_file(edit):
    assert from_json(json.loads(json.dumps(to_json(edit)))) == edit


@given(edits, edits)
def test_edits_are_equal_exactly_when_their_texts_are(one, other):
    assert (one == other) == (str(one) == str(other))


@given(st.text())
def test_any_text_is_an_edit_or_a_clear_refusal(text):
    with contextlib.suppress(UsageError):
        edit = parse(text)
        assert parse(str(edit)) == edit


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (ScaleBlock(23), "23×0"),
        (ScaleBlock(23, 1.1), "23×1.1"),
        (ScaleAttention(3, 0.5), "3.attention×0.5"),
        (ScaleMlp(0, -2), "0.mlp×-2"),
        (ScaleMlp(0, 1 / 3), "0.mlp×0.3333333333333333"),
        (Compose((ScaleBlock(3), ScaleMlp(4, 0.5))), "3×0 + 4.mlp×0.5"),
        (BASELINE, "baseline"),
    ],
)
def test_the_text_form_reads_as_a_person_would_write_it(edit, text):
    assert str(edit) == text
    assert parse(text) == edit


@pytest.mark.parametrize("text", ["23x0", "23*0", " 23×0 ", "23×0.0", "23×-0", "23×0e5", "023×0"])
def test_a_person_may_type_the_same_edit_in_other_ways(text):
    assert parse(text) == ScaleBlock(23, 0)


@pytest.mark.parametrize(
    "text",
    [
        *["", "23", "×0", "23×", "23×a", "-1×0", "23.norm×0", "23.up×0", "23×0×1", "２３×0", "9" * 5000 + "×0"],
        *["23×nan", "23×inf", "23×1e999", "3×0 + ", "3×0++4×0", "baseline + 3×0"],
    ],
)
def test_what_is_not_an_edit_is_refused_with_an_example_of_one(text):
    with pytest.raises(UsageError, match=r"23\.mlp×0\.5|finite"):
        parse(text)


@pytest.mark.parametrize(
    "value",
    [
        {}, {"scale": "3"}, {"scale": "3", "factor": None}, {"scale": "3", "factor": "a"},
        {"scale": 3, "factor": 0.0}, {"scale": "3.norm", "factor": 0.0}, {"scale": "3", "factor": 0.0, "more": 1},
        {"compose": [{"scale": "x", "factor": 0}]}, {"compose": 3},
    ],
)  # fmt: skip
def test_what_is_not_the_json_of_an_edit_is_refused(value):
    with pytest.raises(UsageError, match=r"JSON form|factor must be a finite number"):
        from_json(value)


def test_an_edit_cannot_be_changed():
    with pytest.raises(AttributeError):
        ScaleBlock(1).factor = 0.5


@given(st.lists(scales, max_size=5))
def test_a_composition_is_flat_whatever_the_nesting(found):
    nested: Scale | Compose = BASELINE
    for edit in found:
        nested = Compose((nested, Compose((edit,))))
    assert list(parts(nested)) == found
    assert nested == Compose(tuple(found))


def test_a_composition_of_one_edit_is_that_edit():
    assert Compose((ScaleBlock(3),)) == ScaleBlock(3)
    assert ScaleBlock(3) == Compose((ScaleBlock(3),))
    assert len({Compose((ScaleBlock(3),)), ScaleBlock(3)}) == 1
    assert Compose((ScaleBlock(3),)) != "3×0"


def known(edit) -> dict[str, Selection]:
    return {part.selection.digest: part.selection for part in of_weights(edit)}


@given(mixed)
def test_edits_of_weights_survive_their_text_and_json_beside_the_selections_that_they_name(edit):
    assert parse(str(edit), known(edit)) == edit
    assert hash(parse(str(edit), known(edit))) == hash(edit)
    assert from_json(json.loads(json.dumps(to_json(edit))), known(edit)) == edit


@given(mixed)
def test_an_edit_is_what_it_does_to_places_and_what_it_does_to_weights(edit):
    found = list(parts(edit))
    places, weights = list(parts(of_places(edit))), list(of_weights(edit))
    assert sorted(map(str, found)) == sorted(map(str, [*places, *weights]))
    assert [part for part in found if part in places] == places
    assert [part for part in found if part in weights] == weights


@given(on_weights)
def test_an_edit_of_weights_without_its_selection_is_told_what_is_missing(edit):
    for read in (lambda: parse(str(edit)), lambda: from_json(to_json(edit))):
        with pytest.raises(UsageError, match=r"give the \.edit file"):
            read()


def test_the_text_of_an_edit_of_weights_names_selection_and_factor():
    selection = Magnitude(0.05)
    assert str(ScaleParameters(selection, 0.5)) == f"magnitude-0.05@{selection.digest}×0.5"
    assert ScaleParameters(selection, -0.0) == ScaleParameters(selection)
    assert to_json(ScaleParameters(selection)) == {"select": f"magnitude-0.05@{selection.digest}", "factor": 0.0}
    for factor in (float("nan"), float("inf")):
        with pytest.raises(UsageError, match="finite"):
            ScaleParameters(selection, factor)


@pytest.mark.parametrize(
    "name",
    ["a@b", "@0123456789abcdef", "a/b@0123456789abcdef", "a" * 81 + "@0123456789abcdef", "a@0123456789ABCDEF", "×"],
)
def test_what_does_not_name_a_selection_is_refused(name):
    for read in (lambda: parse(f"{name}×0"), lambda: from_json({"select": name, "factor": 0})):
        with pytest.raises(UsageError, match="not an edit"):
            read()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (ScaleBlock(1), ScaleBlock(1)),
        ("1×0 + 2.mlp×0.5", Compose((ScaleBlock(1), ScaleMlp(2, 0.5)))),
        ("1-3×0", Compose((ScaleBlock(1), ScaleBlock(2), ScaleBlock(3)))),
        ("0-1.mlp×1e+06+4.attention×1e-06", Compose((ScaleMlp(0, 1e6), ScaleMlp(1, 1e6), ScaleAttention(4, 1e-6)))),
        (["1×0"], ScaleBlock(1)),
        ((ScaleBlock(1), "2.mlp×0.5"), Compose((ScaleBlock(1), ScaleMlp(2, 0.5)))),
        ((edit for edit in [["1×0"], BASELINE]), ScaleBlock(1)),
        ("baseline", BASELINE),
    ],
)
def test_an_edit_its_text_and_several_of_them_are_one_thing(given, meant):
    assert as_edit(given) == meant


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("nonsense", "not an edit; write"),
        ("3x0+", r"'3x0\+' is not an edit; write one on each side of \+"),
        ("3,4x0", r"'3,4x0' lists several blocks; join edits with \+: 3×0 \+ 4×0\."),
        ("3-1×0", "no range of blocks; write the first and then the last"),
        ("0-999999999×0", "a range of more than 10,000 blocks"),
        (Path("cut.edit"), "read_edit"),
        ("cut.edit", "read_edit"),
        (None, "An edit is a value such as"),
        (True, "An edit is a value such as"),
        ({"scale": "1", "factor": 0}, "An edit is a value such as"),
        (ScaleBlock, "An edit is a value such as"),
        ([], "No edit is given in an empty list"),
        ([ScaleBlock(1), None], "An edit is a value such as"),
        (Magnitude(0.1), r"ScaleParameters\(selection, factor\)"),
    ],
)
def test_what_is_no_edit_is_refused_wherever_one_is_taken(given, says):
    with pytest.raises(UsageError, match=says):
        as_edit(given)
    with pytest.raises(UsageError):
        list(parts(given))
    with pytest.raises(UsageError):
        Compose((ScaleBlock(0), given))
    with pytest.raises(UsageError):
        Request("key", (1,), given)


@pytest.mark.parametrize("kind", [ScaleBlock, ScaleAttention, ScaleMlp])
@pytest.mark.parametrize("layer", [True, 1.0, -1, "1", None, 1j, [1], np.float32(1), 10**9, float("nan")])
def test_a_layer_that_is_no_whole_number_from_0_is_refused(kind, layer):
    with pytest.raises(UsageError, match=r"layer must be a whole number|counted from 0"):
        kind(layer)


@pytest.mark.parametrize("factor", [True, "0", None, 1j, [0.5], float("nan"), float("inf"), 10**400])
def test_a_factor_that_is_no_finite_number_is_refused(factor):
    for make in (lambda: ScaleBlock(0, factor), lambda: ScaleParameters(Magnitude(0.1), factor)):
        with pytest.raises(UsageError, match="factor must be a finite number"):
            make()


def test_only_a_selection_says_which_weights_are_multiplied():
    with pytest.raises(UsageError, match=r"such as Magnitude\(0\.01\), not of '0\.mlp\.up'"):
        ScaleParameters("0.mlp.up")
    with pytest.raises(UsageError, match="second must be a Selection"):
        Magnitude(0.1) | 5


@pytest.mark.parametrize("text", ["1×1_0", "1×٣", "1.mlp.up top 0_1", "1.mlp.up top ٠"])
def test_numbers_are_written_in_plain_digits(text):
    with pytest.raises(UsageError):
        parse(text)


def test_a_capital_letter_multiplies_too():
    assert parse("3X0 + 4.mlpX0.5") == parse("3×0 + 4.mlp×0.5")


@pytest.mark.parametrize("given", ["~nobody-of-this-name/x.edit", Path("~nobody-of-this-name/x.edit"), "a\x1b/x.edit"])
def test_the_path_of_an_edit_that_no_file_can_have_is_refused(given):
    with pytest.raises(UsageError, match="The path of an edit"):
        as_edit(given)
