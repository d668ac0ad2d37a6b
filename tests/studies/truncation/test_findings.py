"""The sentences about a truncation search: from its numbers, and nothing claimed that an interval does not carry."""

import made_truncation as made
import pytest

from lesion.studies.truncation import findings as truncation_prose
from lesion.studies.truncation.result import Decompositions


def altered(json, **changes):
    """The summary without a composition, with the test of its first task changed, and of the second none."""
    first = json["best_tests"][0]
    for name, part in changes.items():
        first = first | {name: first[name] | part if isinstance(part, dict) and first.get(name) else part}
    return made.summary(json, best_tests=[first], **made.SINGLE)


def gain(value, low=None, high=None, p=None):
    return {"value": value, "low": low, "high": high, "p": p}


def plain(text):
    return text.replace("\N{NO-BREAK SPACE}", " ")


def said(summary, work=None):
    findings = truncation_prose.findings(summary, work)
    return plain(" ".join(" ".join([*finding.headline, *finding.sentences]) for finding in findings))


def test_a_gain_is_told_with_its_interval_and_where_it_was_measured():
    search = altered(made.study(), gain=gain(0.2, 0.1, 0.3, 0.001))
    assert plain(truncation_prose.verdict(search)) == (
        "Keeping the top 5 % of 5.mlp.up improves ioi by 20.0 points [10.0, 30.0] on test items."
    )


def test_a_loss_is_told_without_its_sign():
    search = altered(made.study(), gain=gain(-0.2, -0.3, -0.1, 0.001))
    assert "harms ioi by 20.0 points [10.0, 30.0]" in plain(truncation_prose.verdict(search))


@pytest.mark.parametrize(
    "changes",
    [
        gain(0.2, -0.01, 0.3, 0.001),
        gain(0.2, 0.1, 0.3, 0.06),
        gain(None),
    ],
)
def test_no_change_is_claimed_where_the_interval_reaches_zero_or_p_is_large_or_nothing_is_known(changes):
    search = altered(made.study(), gain=changes)
    assert "no evidence of a change in accuracy on ioi" in truncation_prose.verdict(search)
    assert "improves" not in said(search)
    assert "a gain in" not in said(search).split("Matrix by matrix")[0]


def test_by_gold_the_interval_of_the_log_probability_decides():
    summary = made.study()
    summary["study"]["objective"] = "gold"
    none = gain(0.0, -0.1, 0.1, 1.0)
    search = altered(summary, gain=none, gold_gain=made.estimate(0.5, 0.3, 0.7))
    assert "improves ioi by 0.50 nats [0.30, 0.70]" in plain(truncation_prose.verdict(search))
    assert "no evidence" in truncation_prose.verdict(
        altered(summary, gain=none, gold_gain=made.estimate(0.5, -0.3, 1.3))
    )


def test_the_sentence_with_the_numbers_does_not_repeat_what_the_headline_concludes():
    search = altered(made.summary(**made.SINGLE).model_dump(mode="json"), gain=gain(0.0, -0.1, 0.1, 1.0))
    first, *_ = truncation_prose.findings(search)
    assert "no evidence of a change in accuracy" in first.headline[0]
    assert "no evidence" not in first.sentences[0]


def test_what_has_no_part_in_the_verdict_is_named_too():
    verdict = truncation_prose.verdict(made.summary(**made.SINGLE))
    assert verdict.endswith("; no evidence of a change in accuracy on primer:atlas.")


def test_where_the_accuracy_does_not_change_what_does_for_certain_is_told_beside_it():
    nothing = {"gain": gain(0.0, -0.1, 0.1, 1.0), "gold_gain": {"low": -0.1, "high": 0.9}}
    right = {"right_gain": made.estimate(0.02, -0.01, 0.05)}
    tempting = {"tempting_gain": made.estimate(-0.1, -0.15, -0.05)}
    head = (
        "Keeping the top 5 % of 5.mlp.up was chosen on validation items; on test items no evidence of a change in "
        "accuracy on ioi."
    )
    assert plain(truncation_prose.verdict(altered(made.study(), **nothing, **right))) == head
    assert plain(truncation_prose.verdict(altered(made.study(), **nothing, **right, **tempting))) == (
        f"{head} But on ioi: probability of the tempting token −10.0 points [−15.0, −5.0]."
    )
    gold = nothing | {"gold_gain": made.estimate(0.4, 0.3, 0.5)}
    assert plain(truncation_prose.verdict(altered(made.study(), **gold))) == (
        f"{head} But on ioi: log-probability of gold answers +0.40 nats [0.30, 0.50]."
    )


def test_the_headline_of_a_composition_is_about_all_of_it_and_names_the_single_edit_behind():
    summary = made.study()
    verdict = plain(truncation_prose.verdict(made.summary(summary)))
    test = summary["composed_tests"][0]["gain"]
    assert verdict.startswith("Keeping the top 5 % of 5.mlp.up and the top 10 % of 6.attention.o improves ioi by ")
    assert f"by {100 * test['value']:.1f} points [{100 * test['low']:.1f}, {100 * test['high']:.1f}]" in verdict
    assert verdict.endswith(" The best single edit keeps the top 5 % of 5.mlp.up.")
    assert "The best single edit alone, the top 5 % of 5.mlp.up, on test items: ioi: accuracy" in said(
        made.summary(summary)
    )


def test_a_composition_that_is_the_single_edit_is_told_once():
    summary = made.study()
    summary["composed"] = summary["best"]
    verdict = truncation_prose.verdict(made.summary(summary))
    assert "5.mlp.up improves ioi" in verdict
    assert "single" not in verdict


def test_no_gain_is_claimed_where_the_model_gives_one_label():
    verdict = truncation_prose.verdict(altered(made.study(), collapsed=True, gain=gain(0.5, 0.4, 0.6)))
    assert "improves" not in verdict
    assert "On ioi it gives nearly always one answer: accuracy says nothing" in verdict


def test_nothing_chosen_is_told_with_its_reason_and_what_the_best_does():
    search = made.summary(made.nothing())
    assert truncation_prose.verdict(search) == made.nothing()["nothing"]
    assert "The best edit, the top 5 % of 5.mlp.up, on test items: ioi: accuracy" in said(search)


def test_a_collapse_on_test_items_is_said_beside_the_accuracy():
    assert "It gives one label to 97.0 % of the items: accuracy is that label's share" in said(
        altered(made.study(), collapsed=True, label_share=0.97)
    )


def test_the_gain_on_validation_items_is_told_as_partly_luck():
    summary = made.study()
    drop = next(cell for cell in summary["cells"] if cell["edit"] == summary["best"])["outcomes"][0]["drop"]
    points = f"+{-100 * drop['value']:.1f} points [{-100 * drop['high']:.1f}, {-100 * drop['low']:.1f}]"
    assert f"there, partly by luck: {points} on ioi" in said(made.summary(summary))


@pytest.mark.parametrize(
    ("part", "changes", "sentence"),
    [
        ("study", {"objective": "gold"}, "partly by luck: +0.60 nats on ioi and +0.60 nats on primer:atlas."),
        ("screen", {}, "(40 validation items of each task)"),
        ("screen", {}, "with the full evaluation: 0.82 [0.70, 0.90]."),
        ("screen", {"items": "all"}, "(all validation items of each task)"),
        ("screen", {"rank_correlation": made.estimate(-0.25, -0.5, 0.1)}, "full evaluation: −0.25 [−0.50, 0.10]."),
        ("elimination", {}, "Given up early at 3 looks: 1 cell, which saved 78 answers. The chance that any was at"
         " least as good as the unedited model is at most 5 %."),
        ("elimination", {"eliminated": 0}, "No cell was given up early at 3 looks."),
        ("study", {}, "Decompositions: 16 computed in 1.4 s, 0 read from disk, 128 reused."),
        ("study", {}, "Matrix by matrix, 2 steps stayed, 2 rolled back: the top 5 % of 5.mlp.up and"),
    ],
)  # fmt: skip
def test_how_the_search_went_is_told_with_its_numbers(part, changes, sentence):
    json = made.study()
    json[part] |= changes
    text = said(made.summary(json), Decompositions(computed=16, read=0, reused=128, seconds=1.4))
    assert sentence in text
    assert "the best 64 and 8 random others of 144 cells were evaluated in full." in text
    assert ("at least as good as the unedited model" in text) == (json["elimination"]["eliminated"] > 0)


def test_the_two_tokens_are_told_before_and_after_on_the_model_that_was_searched():
    (first, *_) = truncation_prose.tokens(made.summary(made.study()))
    before, after = made.tokens("baseline", None, 0.3, 0.1), made.tokens("", None, 0.45, 0.1 / 3)
    assert f"right token {100 * before['p_right']['value']:.1f} %" in plain(first)
    assert f"to {100 * after['p_right']['value']:.1f} %" in plain(first)
    assert f"to {100 * after['p_tempting']['value']:.2f} %" in plain(first)
    assert "n = 240" in first
    assert ": +1.10 [0.80, 1.40] to +2.60 [2.30, 2.90] nats." in plain(first)


def test_removing_a_matrix_is_named_so():
    summary = made.study()
    edit = made.edit("mlp.up", "top", 5, 0.005)
    search = made.summary(summary, best=edit, **made.SINGLE)
    assert truncation_prose.verdict(search).startswith("Keeping nothing of 5.mlp.up improves ioi")
