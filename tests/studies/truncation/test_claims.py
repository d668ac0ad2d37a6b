"""What is claimed of a truncation search: each rule's outcomes, and nothing that an interval does not carry."""

import made_truncation as made
import pytest

from lesion.report.values import Estimate
from lesion.studies.truncation import report
from lesion.studies.truncation.result import Rival


def altered(json=None, rivals=(), **changes):
    """The summary without a composition, with the test of its first task changed, and of the second none."""
    json = made.study() if json is None else json
    first = json["best_tests"][0]
    for name, part in changes.items():
        first = first | {name: first[name] | part if isinstance(part, dict) and first.get(name) else part}
    return made.summary(json, best_tests=[first], **made.SINGLE).model_copy(update={"rivals": tuple(rivals)})


def gain(value, low=None, high=None, p=None):
    return {"value": value, "low": low, "high": high, "p": p}


GAIN, LOSS = gain(0.2, 0.1, 0.3, 0.001), gain(-0.2, -0.3, -0.1, 0.001)


def said(every):
    return " ".join(claim.text for claim in every).replace("\N{NO-BREAK SPACE}", " ")


def cut(summary):
    return said(report.what_the_cut_does(summary))


def rival(what, beyond, p, **values):
    low, high = sorted((beyond - 0.02, beyond + 0.02))
    estimate = Estimate(value=0.32, low=0.29, high=0.35)
    shared = {"task": made.IOI, "rival": "28.mlp×0", "items": 967, "accuracy": estimate, "edited": estimate}
    return Rival(what=what, beyond=Estimate(value=beyond, low=low, high=high, p=p), **{**shared, **values})


FORBIDDING = {"rival": "baseline", "forbidden": (" the", " ", " a"), "fitted": True}


def test_a_gain_is_said_with_what_it_was_before_and_its_interval():
    text = cut(altered(gain=GAIN, baseline=0.5, accuracy={"value": 0.7}))
    assert text.startswith("With the top 5 % of 5.mlp.up kept, ioi rises from 50.0 % to 70.0 % on test items. On")
    assert "accuracy changes by +20.0 points [+10.0, +30.0] (p .001)" in text


def test_a_loss_is_said_to_lower():
    assert "ioi falls from" in cut(altered(gain=LOSS))


@pytest.mark.parametrize("changes", [gain(0.2, -0.01, 0.3, 0.001), gain(0.2, 0.1, 0.3, 0.06), gain(None)])
def test_no_change_is_claimed_where_the_interval_reaches_zero_or_p_is_large_or_nothing_is_known(changes):
    text = cut(altered(gain=changes))
    assert "on test items: not shown to be a change." in text
    assert "rises" not in text


def test_by_gold_an_accuracy_is_never_as_much():
    json = made.study()
    json["study"]["objective"] = "gold"
    shown = altered(json, gold_gain=gain(0.4, 0.3, 0.5), rivals=[rival("forbidden", 0.0, 1.0, **FORBIDDING)])
    assert "nats on test items, but not shown to add to forbidding 3 first tokens (32.0 %)." in cut(shown)


def test_by_gold_the_interval_of_the_log_probability_decides():
    json = made.study()
    json["study"]["objective"] = "gold"
    shown = altered(json, gain=gain(0.2, -0.1, 0.3, 0.5), gold_gain=gain(0.4, 0.3, 0.5))
    assert "the log-probability of gold answers of ioi rises by +0.40 nats on test items." in cut(shown)


def test_what_surely_changes_beside_the_objective_is_said():
    text = cut(altered(gain=gain(0.0, -0.1, 0.1, 1.0), tempting_gain=gain(-0.3, -0.4, -0.2), right_gain=gain(0.0)))
    assert "probability of the tempting token by −30.0 points [−40.0, −20.0]" in text
    assert "right token" not in text


def test_no_gain_is_claimed_where_the_model_gives_one_answer():
    text = cut(altered(gain=GAIN, collapsed=True, label_share=0.98))
    assert "the model gives nearly always one answer to ioi, so that its accuracy says nothing." in text
    assert "rises" not in text


def test_nothing_chosen_is_said_with_its_reason():
    json = made.nothing()
    assert cut(made.summary(json)) == json["nothing"]


def test_a_gain_that_forbidding_gives_too_says_so_in_its_first_sentence():
    rivals = (rival("forbidden", 0.0, 1.0, **FORBIDDING), rival("branch", 0.05, 1e-6))
    for accuracy, text in (
        (0.31, "but forbidding 3 first tokens does as much (32.0 %)."),
        (0.33, "but not shown to add to forbidding 3 first tokens (32.0 %)."),
    ):
        (claim,) = report.what_the_cut_does(altered(gain=GAIN, accuracy=gain(accuracy), rivals=rivals))
        assert claim.sentences[0].replace("\N{NO-BREAK SPACE}", " ").endswith(f"on test items, {text}")
    assert "On top of forbidding tokens the cut adds 0.0 points [−2.0, +2.0]." in said([claim])
    assert "Nothing in the spectrum is shown to matter." in said(
        report.whether_the_spectrum_matters(altered(gain=GAIN, rivals=rivals))
    )


@pytest.mark.parametrize(
    "unbeaten",
    [None, rival("relation", -0.03, 0.03, candidates=24, chance=0.04), rival("factor", 0.05, 0.2)],
)
def test_a_gain_beyond_all_rivals_is_said_to_be_and_one_unbeaten_rival_is_enough_against_it(unbeaten):
    beaten = [rival("forbidden", 0.05, 1e-6, **FORBIDDING), rival("branch", 0.05, 1e-6), rival("subspace", 0.05, 1e-6)]
    summary = altered(gain=GAIN, rivals=[*beaten, *([unbeaten] if unbeaten else [])])
    spectrum = said(report.whether_the_spectrum_matters(summary))
    assert ("Nothing in the spectrum is shown to matter." in spectrum) == (unbeaten is not None)
    assert ("more than any of its 3 rivals." in cut(summary)) == (unbeaten is None)
    assert ("but not shown to be more than" in cut(summary)) == (unbeaten is not None)


@pytest.mark.parametrize(
    ("beyond", "p", "moves"), [(0.21, 0.039, True), (-0.03, 0.4, False), (-0.21, 0.001, True), (0.01, 0.9, False)]
)
def test_whether_the_forced_choice_moves_is_said_beside_gains_and_losses(beyond, p, moves):
    pair = rival("pair", beyond, p, candidates=2, chance=0.5)
    for change in (GAIN, LOSS):
        text = cut(altered(gain=change, rivals=[pair]))
        assert "he forced choice among 2 texts of the item goes from 32.0 % to 32.0 %" in text
        assert ("not shown to move" in text) == (not moves)


def test_a_loss_has_what_stands_in_its_place_and_no_word_on_gains():
    rivals = (rival("branch", -0.05, 0.2), rival("subspace", 0.0, 1.0, draw=0))
    text = said(report.whether_the_spectrum_matters(altered(gain=LOSS, rivals=rivals)))
    assert "in its place 1 random subspaces of that rank 32.0 to 32.0 % and 28.mlp deleted 32.0 %." in text
    assert "beats" not in text
    assert "Nothing in the spectrum" not in text


def test_a_composition_is_judged_as_the_edit_that_is_left():
    assert cut(made.summary()).startswith("With the top 5 % of 5.mlp.up and the top 10 % of 6.attention.o kept")


def test_how_the_search_went_is_said_with_its_numbers():
    text = said(report.how_the_search_went(made.summary()))
    assert "there, partly by luck, accuracy changes by" in text
    assert "left the best 64 and 8 random others of" in text
    assert "its rank correlation with the full evaluation is 0.82 [0.70, 0.90]." in text


def test_removing_a_matrix_is_named_so():
    summary = made.summary()
    (removed,) = [cell for cell in summary.cells if cell.address == "5.mlp.up" and cell.rank == 0]
    assert removed.name == "nothing of 5.mlp.up"
