"""What a tuning claims, its rows and its page: what the numbers say, and only that."""

import pytest
from made_tuning import GAINS, made

from lesion.studies.tuning import report
from lesion.studies.tuning.report import TuningResult, TuningSummary, Verdict


def texts(rule, summary: TuningSummary) -> str:
    return " ".join(claim.text for claim in rule(summary)).replace("\xa0", " ")


def with_verdict(summary: TuningSummary, word: str, reason: str) -> TuningSummary:
    return summary.model_copy(update={"verdict": Verdict(word=word, reason=reason)})


# -- claims


def test_the_verdict_names_the_comparison_that_decided_it_and_then_the_others():
    summary = made()
    main, least = summary.differences[:2]
    (claim,) = report.does_it_pay(summary)
    assert summary.verdict.word == "pays"
    assert f"pays: +{100 * main.value:.1f} points [+{100 * main.low:.1f}," in claim.sentences[0].replace("\xa0", " ")
    assert "against random blocks that are not critical" in claim.sentences[0]
    assert f"+{100 * least.value:.1f}" in claim.sentences[1]
    assert len(claim.sentences) == 2
    assert [line.difference for line in claim.rows] == list(summary.differences)


def test_few_choices_of_random_blocks_are_said_and_where_they_are_drawn_from_all():
    summary = made()
    few = summary.model_copy(update={"random_from": (1, 3, 4)})
    assert "only 3 choices" in texts(report.does_it_pay, few)
    every = summary.model_copy(update={"random_from": tuple(range(8))})
    assert "not critical" not in texts(report.does_it_pay, every)


@pytest.mark.parametrize(
    ("word", "reason", "says"),
    [
        ("does not pay", "no better", "does not pay: "),
        ("cannot tell", "nothing learned", "cannot be told: even all blocks in full have no clear gain"),
        ("cannot tell", "no gain", "but no clear gain, "),
        ("cannot tell", "undecided", "cannot be told: +"),
    ],
)
def test_each_outcome_of_the_verdict_has_its_sentence(word, reason, says):
    text = texts(report.does_it_pay, with_verdict(made(), word, reason))
    assert says in text
    assert "pays: " not in text


def test_equal_arms_with_much_data_do_not_pay_and_with_little_it_cannot_be_told():
    equal = dict.fromkeys(GAINS, 0.1)
    assert made(equal, items=4000, spread=0.0).verdict.word == "does not pay"
    assert made(equal, items=150, spread=0.02).verdict == Verdict(word="cannot tell", reason="undecided")


@pytest.mark.parametrize(
    ("gain", "says"),
    [(0.1, "Tuning blocks 0-1 helps on"), (-0.2, "Tuning blocks 0-1 harms"), (0.0, "makes no clear difference on")],
)
def test_of_a_single_arm_it_is_said_what_its_interval_shows(gain, says):
    text = texts(report.what_is_gained, made({"0-1": gain}, seeds=1, rates=(1e-3,)))
    assert says in text
    assert texts(report.does_it_pay, made({"0-1": gain}, seeds=1)) == ""


def test_of_several_arms_those_are_named_whose_interval_lies_above_zero_or_below():
    summary = made({"critical": 0.1, "0-1": 0.0, "random": -0.2})
    text = texts(report.what_is_gained, summary)
    assert "1 of 3 choices of blocks gain on primer:arithmetic: critical blocks." in text
    assert "Harmed: random blocks." in text
    assert "None of 2 choices" in texts(report.what_is_gained, made({"0": 0.0, "1": 0.0}))


def test_damage_is_claimed_only_where_the_whole_interval_is_below_zero():
    summary = made(controls={"primer:atlas": 0.0})
    worst = min(arm.tasks[1].change.low for arm in summary.arms)
    text = texts(report.what_it_costs, summary)
    assert "No loss on primer:atlas is shown; one of up to " in text
    assert f"{100 * abs(worst):.1f} points" in text
    hurt = texts(report.what_it_costs, made(controls={"primer:atlas": -0.3, "primer:reading": 0.0}))
    assert "costs accuracy on primer:atlas: " in hurt
    assert "in 5 of 10 pairs" in hurt


# -- rows


def test_losses_are_means_over_seeds_at_the_chosen_rate_and_unknown_ones_are_left_out():
    summary = made({"critical": 0.1, "random": 0.1})
    course = summary.arms[0].course("loss")
    # 0.02 / step + 0.001 · seed, over three seeds.
    assert [point.loss.mean for point in course] == pytest.approx([0.02 / step + 0.001 for step in range(1, 11)])
    assert course[0].loss.std == pytest.approx(0.001)
    document = summary.model_dump()
    document["arms"][0]["curves"][-1]["points"][0]["loss"] = None
    assert TuningSummary.model_validate(document).arms[0].course("loss") == []


# -- the page


def test_by_reward_the_reward_is_drawn_in_place_of_the_loss(tmp_path):
    result = TuningResult(tmp_path, made({"critical": 0.1, "random": 0.1}, by="reward"))
    titles = [section.title for section in result.page().sections]
    assert "Reward over the steps" in titles
    assert "Loss over the steps" not in titles
    assert "8 answers drawn at temperature 1" in result.basis
    assert [point.reward.mean for point in result.summary.arms[0].course("reward")][-1] == pytest.approx(0.5)


def test_a_single_seed_and_a_rate_at_the_end_of_three_are_checks(tmp_path):
    def checked(**options) -> str:
        return " ".join(check.text for check in TuningResult(tmp_path, made(**options)).checks())

    assert "Best at the largest learning rate" in checked(rates=(1e-4, 1e-3, 1e-2))
    assert "Best at the" not in checked()
    assert "One seed" in checked(seeds=1)
