"""The recall laboratory's pages and claims: what the numbers say, and only that."""

import re
from html import unescape
from pathlib import Path

import pytest
from scipy import stats

from lesion.report.publishing import html
from lesion_labs.recall import report
from lesion_labs.recall.model import preset
from lesion_labs.recall.report import RecallResult, TrainingResult
from lesion_labs.recall.result import RecallSummary, SeedsPhase, SeedsPhases, Spread, differences
from lesion_labs.recall.run import run
from lesion_labs.recall.study_file import RecallStudy
from runs import altered, page_of, run_recall

SMALL = {"vocabulary": 8, "length": 16, "width": 8, "measured": 10, "batch": 4, "steps": 3, "keep": [0.25, 0.5]}
NO_FOLDER = Path("no-folder")


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    recipe = preset("quick", **{**SMALL, "keep": (0.25, 0.5)}, draws=2)
    return run(recipe, tmp_path_factory.mktemp("recall"))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    recall_study = RecallStudy.make(kind="recall", title="What <b>is</b> cut?", noise=[0.3, 0.6], seed=[0, 1], **SMALL)
    return run_recall(recall_study, tmp_path_factory.mktemp("study"))


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def texts(made) -> list[str]:
    return [claim.text.replace("\xa0", " ") for claim in made]


# -- pages


def test_the_table_has_every_replacement_with_its_numbers_the_writing_matrix_first(training, study):
    table = TrainingResult(NO_FOLDER, training).table_full
    kept = [row for row in training.truncated if row.control != "random"]
    assert len(table[table["kind"] != "random projection"]) == len(kept)
    assert set(table["matrix"][:4]) == {"F2.out"}
    (row,) = [row for row in kept if (row.matrix, row.keep, row.side) == ("F2.in", 0.25, "top")]
    shown = table[(table["matrix"] == "F2.in") & (table["kind"] == "largest kept") & (table["keep"] == 0.25)]
    assert list(shown["p_noise"]) == [row.p_noise]
    draws = [
        row.p_noise for row in training.truncated if (row.matrix, row.control, row.keep) == ("F2.in", "random", 0.5)
    ]
    random = table[(table["matrix"] == "F2.in") & (table["kind"] == "random projection") & (table["keep"] == 0.5)]
    assert list(random["p_noise"]) == [pytest.approx(sum(draws) / 2)]
    group = study.groups[1]
    whole = RecallResult(NO_FOLDER, study).table_full
    deleted = whole[(whole["noise"] == 0.6) & (whole["matrix"] == "F2.out") & (whole["kind"] == "deleted")]
    spread = group.cut("F2.out", "deletion").p_noise
    assert (deleted["p_noise"].item(), deleted["p_noise_std"].item()) == (spread.mean, spread.std)


def test_what_was_trained_on_stands_in_the_facts(training):
    facts = dict(TrainingResult(NO_FOLDER, training).facts)
    assert "momentum" in facts
    assert facts["least noisy loss"] == "0.673 nats"  # of a coin that falls on one side with 0.6


@pytest.mark.parametrize(
    ("symbol", "shown"),
    [(" ", '" "'), ("\n", '"\\n"'), ("\u202e", "U+202E (RIGHT-TO-LEFT OVERRIDE)"),
     ("\u0301", "U+0301 (COMBINING ACUTE ACCENT)"), ("\x1b", "U+001B"), ("é", '"é"')],
)  # fmt: skip
def test_tokens_that_are_not_seen_are_shown_by_their_code_points(training, symbol, shown):
    language = altered(training.language, source="corpus", trigger=symbol, noise_token="x")
    facts = dict(TrainingResult(NO_FOLDER, altered(training, language=language)).facts)
    assert f"q is {shown} (" in facts["tables"]


def test_the_checks_name_what_makes_the_numbers_doubtful(training, study):
    def checks(**recipe):
        value = altered(training, recipe=altered(training.recipe, **recipe))
        return [check.text for check in TrainingResult(NO_FOLDER, value).checks()]

    (one_seed,) = checks()
    assert one_seed.startswith("One seed cannot tell")
    assert any("tie" in text for text in checks(noise=0.5))
    assert any("may be τ itself" in text for text in checks(own_answers=True))
    assert any("random weights" in text for text in checks(steps=0))
    assert RecallResult(NO_FOLDER, study).checks() == []


def test_an_untrained_model_is_not_said_to_have_learned_anything(tmp_path):
    made = run(preset("quick", **{**SMALL, "keep": (0.5,), "steps": 0}, draws=1), tmp_path)
    page = words(html(page_of(TrainingResult, made)))
    assert "Nothing was trained" in page
    assert "prefers τ" not in page


def test_a_matrix_that_there_cannot_be_is_no_matrix_of_a_summary(training):
    document = training.model_dump(mode="json")
    document["truncated"][0]["matrix"] = "../../x"
    with pytest.raises(ValueError, match=r"truncated\.0\.matrix"):
        RecallSummary.model_validate(document)


# -- claims


def test_cutting_is_told_with_what_stands_before_and_after(study):
    def measured(row, noise, accuracy):
        spreads = {"p_noise": noise, "clean_accuracy": accuracy}
        return altered(row, **{name: Spread(mean=mean, least=mean, most=mean) for name, mean in spreads.items()})

    values = {"deletion": (0.02, 0.9), "drop-top": (0.3, 0.5)}
    group = altered(
        study.groups[0],
        full=measured(study.groups[0].full, 0.58, 0.4),
        truncated=[measured(row, *values.get(row.control, (0.5, 0.5))) for row in study.groups[0].truncated],
    )
    (first,) = texts(report.what_cutting_does([group]))
    assert first.startswith(
        "Without F2.out, the noise token's probability on clean sequences goes from 58.0 % to 2.0 %."
    )
    assert "Accuracy goes from 40.0 % to 90.0 %" in first
    assert "Without its largest component alone, the probability is 30.0 % and accuracy 50.0 %." in first
    assert [claim.subject for claim in report.what_cutting_does(study.groups)] == ["α 0.3", "α 0.6"]


def three_seeds(study, mean, std):
    """A group of three seeds with this difference to random projections at every fraction of every matrix."""
    rows = [
        altered(row, beyond=altered(row.beyond, p_noise=altered(row.beyond.p_noise, mean=mean, std=std)))
        if row.beyond
        else row
        for row in study.groups[0].truncated
    ]
    return altered(study.groups[0], seeds=(0, 1, 2), truncated=tuple(rows))


def test_beyond_random_is_claimed_only_where_it_is_sure_and_no_trifle(study, training):
    def first(mean, std):
        group = three_seeds(study, mean, std)
        return texts(report.beyond_random([(group, differences(group))]))[0]

    assert first(-0.2, 0.01).startswith(
        "Keeping the top of F2.in leaves clearly less of the noise than random projections at 25 % and 50 % (most −20.0"
    )
    assert "clearly more of the noise" in first(0.2, 0.01)
    for trifle_or_chance in ((0.008, 1e-6), (0.2, 0.2)):
        assert "is not shown to differ from random projections" in first(*trifle_or_chance)
    assert "The largest difference is +0.8 points" in first(0.008, 1e-6)
    (alone,) = TrainingResult(NO_FOLDER, training).groups
    text = texts(report.beyond_random([(alone, differences(alone))]))[0]
    assert text.startswith("One training cannot tell whether the top of F2.in differs from random projections.")
    assert "[" not in text


def test_comparisons_are_corrected_over_all_of_a_group(study):
    # t of mean/(std/√3): p is .03 by itself with two degrees of freedom, and 4 · .03 over the four comparisons.
    mean = 0.5
    std = mean * 3**0.5 / float(stats.t.isf(0.015, 2))
    compared = differences(three_seeds(study, mean, std))
    assert [each.difference.p for each in compared] == pytest.approx([0.03] * 4)
    assert [each.difference.p_corrected for each in compared] == pytest.approx([0.12] * 4)


def test_the_full_models_belief_in_noise_stands_beside_the_noise_of_training(study):
    group = altered(study.groups[1], full=altered(study.groups[1].full, p_noise=Spread(mean=0.58, least=0, most=1)))
    (text,) = texts(report.full_model([group]))
    assert text.startswith("The full model gives the noise token 58.0 % (trained with 60.0 %)")


def test_phases_are_told_for_every_seed_or_for_so_many(study):
    def phase(came, step=1.0, untrained=0):
        steps = Spread(mean=step, std=0.0, least=step, most=step) if came else None
        return SeedsPhase(came=came, of=3, untrained=untrained, steps=steps)

    def text(attention, **margins):
        group = altered(study.groups[0], phases=SeedsPhases(margins=margins, attention=attention))
        return texts(report.what_comes_first([group]))[0]

    assert text(phase(3, 90), F1=phase(0), F2=phase(3, 7), F3=phase(2, untrained=1), F4=phase(3, 10)) == (
        "F2 prefers τ after q from step 7 ± 0 on. Attention recalls from step 90 ± 0 on."
    )
    assert text(phase(1), F1=phase(0)) == (
        "No feed-forward comes to prefer τ after q by itself in every seed. Attention recalls in 1 of 3 seeds."
    )
