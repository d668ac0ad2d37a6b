"""The sentences about a truncation search: from its numbers, and nothing claimed that an interval does not carry."""

import made_truncation as made
import pytest

from lesion.studies.truncation import findings as truncation_prose
from lesion.studies.truncation.cells import found


def altered(summary, **changes):
    """The summary with the test of its first task changed, of the second none."""
    tasks = summary["chosen"]["tasks"]
    return found(summary | {"chosen": summary["chosen"] | {"tasks": [tasks[0] | changes]}, "composition": None})


def plain(text):
    return text.replace("\N{NO-BREAK SPACE}", " ")


def said(search):
    return plain(" ".join(" ".join([*told.headline, *told.sentences]) for told in truncation_prose.findings(search)))


def test_a_gain_is_told_with_its_interval_and_where_it_was_measured():
    search = altered(made.study(), gain=0.2, gain_low=0.1, gain_high=0.3, p=0.001)
    assert plain(truncation_prose.verdict(search)) == (
        "Keeping the top 5 % of 5.mlp.up improves ioi by 20.0 points [10.0, 30.0], on test items that had no part in "
        "choosing it."
    )


def test_a_loss_is_told_without_its_sign():
    search = altered(made.study(), gain=-0.2, gain_low=-0.3, gain_high=-0.1, p=0.001)
    assert "harms ioi by 20.0 points [10.0, 30.0]" in plain(truncation_prose.verdict(search))


@pytest.mark.parametrize(
    "changes",
    [
        {"gain": 0.2, "gain_low": -0.01, "gain_high": 0.3, "p": 0.001},
        {"gain": 0.2, "gain_low": 0.1, "gain_high": 0.3, "p": 0.06},
        {"gain": None, "gain_low": None, "gain_high": None, "p": None},
    ],
)
def test_no_change_is_claimed_where_the_interval_reaches_zero_or_p_is_large_or_nothing_is_known(changes):
    search = altered(made.study(), **changes)
    assert "no evidence that it changes the accuracy on ioi" in truncation_prose.verdict(search)
    assert "improves" not in said(search)
    assert "chance does not explain" not in said(search).split("Matrix by matrix")[0]


def test_by_gold_the_interval_of_the_log_probability_decides():
    summary = made.study()
    summary["search"]["objective"] = "gold"
    none = {"gain": 0.0, "gain_low": -0.1, "gain_high": 0.1, "p": 1.0}
    search = altered(summary, **none, gold_gain=0.5, gold_low=0.3, gold_high=0.7)
    assert "improves ioi by 0.50 nats [0.30, 0.70]" in plain(truncation_prose.verdict(search))
    assert "no evidence" in truncation_prose.verdict(
        altered(summary, **none, gold_gain=0.5, gold_low=-0.3, gold_high=1.3)
    )


def test_what_has_no_part_in_the_verdict_is_named_too():
    verdict = truncation_prose.verdict(found(made.study() | {"composition": None}))
    assert verdict.endswith("; there is no evidence that it changes the accuracy on primer:atlas.")


def test_where_the_accuracy_does_not_change_what_does_for_certain_is_told_beside_it():
    nothing = {"gain": 0.0, "gain_low": -0.1, "gain_high": 0.1, "p": 1.0, "gold_low": -0.1, "gold_high": 0.9}
    right = {"p_right_gain": 0.02, "p_right_gain_low": -0.01, "p_right_gain_high": 0.05}
    tempting = {"p_tempting_gain": -0.1, "p_tempting_gain_low": -0.15, "p_tempting_gain_high": -0.05}
    head = (
        "Keeping the top 5 % of 5.mlp.up was chosen on the validation items; on the test items there is no evidence "
        "that it changes the accuracy on ioi."
    )
    assert plain(truncation_prose.verdict(altered(made.study(), **nothing, **right))) == head
    assert plain(truncation_prose.verdict(altered(made.study(), **nothing, **right, **tempting))) == (
        f"{head} But on ioi the probability of the tempting token changes by −10.0 points [−15.0, −5.0]."
    )
    gold = nothing | {"gold_gain": 0.4, "gold_low": 0.3, "gold_high": 0.5}
    assert plain(truncation_prose.verdict(altered(made.study(), **gold))) == (
        f"{head} But on ioi the log-probability of the gold answers changes by +0.40 nats [0.30, 0.50]."
    )


def test_the_headline_of_a_composition_is_about_all_of_it_and_names_the_single_edit_behind():
    summary = made.study()
    verdict = plain(truncation_prose.verdict(found(summary)))
    told = summary["composition"]["tasks"][0]
    assert verdict.startswith("Keeping the top 5 % of 5.mlp.up and the top 10 % of 6.attention.o improves ioi by ")
    assert (
        f"by {100 * told['gain']:.1f} points [{100 * told['gain_low']:.1f}, {100 * told['gain_high']:.1f}]" in verdict
    )
    assert verdict.endswith(" The best single edit keeps the top 5 % of 5.mlp.up.")
    assert "The best single edit alone, the top 5 % of 5.mlp.up, on test items: ioi: accuracy" in said(found(summary))


def test_a_composition_that_is_the_single_edit_is_told_once():
    summary = made.study()
    summary["composition"]["edit"] = summary["chosen"]["edit"]
    verdict = truncation_prose.verdict(found(summary))
    assert "5.mlp.up improves ioi" in verdict
    assert "single" not in verdict


def test_no_gain_is_claimed_where_the_model_gives_one_label():
    verdict = truncation_prose.verdict(altered(made.study(), collapsed=True, gain=0.5, gain_low=0.4, gain_high=0.6))
    assert "improves" not in verdict
    assert "On ioi it gives nearly all test items one answer" in verdict


def test_how_many_cells_were_asked_in_full_and_how_many_were_given_up_is_told():
    summary = made.study()
    full = sum(bool(cell["tasks"]) for cell in summary["cells"])
    assert f"Of 144 cells, {full} were asked in full and 1 was given up early." in said(found(summary))


def test_nothing_chosen_is_told_with_its_reason_and_what_the_best_does():
    search = found(made.nothing())
    assert truncation_prose.verdict(search) == made.nothing()["nothing"]
    assert "The best that there is, the top 5 % of 5.mlp.up, on test items: ioi: accuracy" in said(search)


def test_a_search_under_way_claims_nothing():
    told = truncation_prose.findings(found({}))
    assert [told[0].headline] == [("Nothing has been chosen yet.",)]


def test_a_collapse_on_test_items_is_said_beside_the_accuracy():
    assert "It gives one label to 97.0 % of the items" in said(altered(made.study(), collapsed=True, label_share=0.97))


def test_the_gain_on_validation_items_is_told_as_partly_luck():
    summary = made.study()
    outcome = next(one for one in summary["cells"] if one["edit"] == summary["chosen"]["edit"])["tasks"][0]
    gain = f"+{-100 * outcome['drop']:.1f} points [{-100 * outcome['drop_high']:.1f}, {-100 * outcome['drop_low']:.1f}]"
    assert f"of which some is luck, it is at {gain} on ioi" in said(found(summary))


def test_by_gold_the_gain_on_validation_items_is_told_in_nats():
    summary = made.study()
    summary["search"]["objective"] = "gold"
    assert "of which some is luck, it is at +0.60 nats on ioi and +0.60 nats on primer:atlas." in said(found(summary))


def test_screen_and_elimination_are_told_with_their_numbers():
    work = {"computed": 16, "read": 0, "reused": 128, "seconds": 1.4}
    text = said(found({**made.study(), "cost": {"decompositions": work}}))
    assert "(40 validation items of each task)" in text
    assert (
        "Rank correlation of the screen with the full evaluation, over those asked in full: 0.82 [0.70, 0.90]." in text
    )
    assert "1 cell was given up early at one of 3 looks, which saved 78 answers." in text
    assert "The chance that any cell at least as good as the unedited model was given up is at most 5 %." in text
    assert "16 matrices decomposed in 1.4 s, 0 read from disk; 128 times a decomposition was used again." in text


def test_where_no_cell_was_given_up_nothing_is_said_of_the_chance_of_it():
    summary = made.study()
    summary["search"]["elimination"] |= {"eliminated": 0, "answers_saved": 0}
    assert "No cell was given up early, at 3 looks back" in said(found(summary))
    assert "at least as good as the unedited model" not in said(found(summary))


def test_a_screen_by_all_validation_items_is_told_so():
    summary = made.study()
    summary["search"]["screen"]["items"] = "all"
    assert "(all validation items of each task)" in said(found(summary))


def test_a_negative_rank_correlation_keeps_its_sign():
    summary = made.study()
    summary["search"]["screen"] |= {"rank_correlation": -0.25, "low": -0.5, "high": 0.1}
    assert "full evaluation, over those asked in full: −0.25 [−0.50, 0.10]." in said(found(summary))


def test_the_composition_counts_what_stayed_and_what_was_rolled_back():
    text = said(found(made.study()))
    assert "Matrix by matrix, 2 steps stayed and 2 were rolled back: the top 5 % of 5.mlp.up and the top 10 %" in text


def test_the_two_tokens_are_told_before_and_after_on_the_model_that_was_searched():
    (first, *_) = truncation_prose.tokens(found(made.study()))
    before, after = made.tokens("baseline", None, 0.3, 0.1), made.tokens("", None, 0.45, 0.1 / 3)
    assert f"from {100 * before['p_right']:.1f} %" in plain(first)
    assert f"to {100 * after['p_right']:.1f} %" in plain(first)
    assert f"to {100 * after['p_tempting']:.2f} %" in plain(first)
    assert "n = 240" in first
    assert "goes from +1.10 [0.80, 1.40] to +2.60 [2.30, 2.90] nats." in plain(first)


def test_removing_a_matrix_is_named_so():
    summary = made.study()
    edit = made.edit("mlp.up", "top", 5, 0.005)
    search = found(summary | {"chosen": summary["chosen"] | {"edit": edit}, "composition": None})
    assert truncation_prose.verdict(search).startswith("Keeping nothing of 5.mlp.up improves ioi")
