"""What is claimed of a search: each rule's outcomes, and nothing that a test does not carry."""

import pytest

from lesion.report.values import Estimate
from lesion.studies.search import report
from lesion.studies.search.result import (
    AtTemperature,
    CandidateRow,
    CandidateTest,
    ContestChoice,
    Forbidden,
    RandomCandidate,
    SearchSummary,
    TaskSplit,
    TextTest,
)
from lesion.studies.search.run import _verdict
from lesion.studies.search.study import SearchStudy
from lesion.studies.truncation.result import SearchedModel

TWICE, OUT, RUN = "blocks 3–5 twice (×0.5)", "block 4 left out", "blocks 4–5 left out"
GAIN, LOSS, NOTHING = (0.065, 0.02, 0.11, 0.004), (-0.2, -0.3, -0.1, 0.001), (0.015, -0.03, 0.06, 0.6)


def estimate(value, low=None, high=None, p=None, corrected=None):
    return Estimate(value=value, low=low, high=high, p=p, p_corrected=corrected)


def on_test(gain=GAIN, candidate=TWICE, contest="better", task="sums.jsonl", **values):
    given = {
        "task": task, "contest": contest, "candidate": candidate, "model": "m", "edit": "baseline", "control": False,
        "items": 200, "baseline": 0.41, "accuracy": estimate(0.41 + gain[0]), "gain": estimate(*gain),
    }  # fmt: skip
    return CandidateTest(**{**given, **values})


def row(name, contest="better", how="3 blocks twice (×0.5)", length=3):
    shared = {"family": "repeat", "first": 3, "length": length, "model": "m", "edit": "baseline", "state": "chosen"}
    return CandidateRow(name=name, contest=contest, how=how, **shared)


def summary(*tests, choices=None, rivals=(), forbidden=(), texts=(), temperatures=(), kind="generate"):
    contests = dict.fromkeys(test.contest for test in tests)
    candidates = {test.contest: test.candidate for test in tests}
    shared = {"candidates": 480, "finalists": 16, "gain": 0.09}
    made = [ContestChoice(contest=contest, candidate=candidates[contest], **shared) for contest in contests]
    return SearchSummary(
        study=SearchStudy.make(model="m", tasks=["sums.jsonl"]),
        model=SearchedModel(name="m", fingerprint="f" * 16, blocks=8, family="llama", dtype="float32"),
        tasks=(
            TaskSplit(name="sums.jsonl", kind=kind, control=False, screen_items=50, choice_items=50,
                test_items=200,
            ),
        ),
        candidates=(
            row(TWICE), row(OUT, "drop 1", "1 block left out", 1), row(RUN, "drop 2", "2 blocks left out", 2),
        ),
        choices=tuple(made if choices is None else choices), tests=tests, rivals=rivals,
        forbidden=forbidden, texts=texts, temperatures=temperatures,
    )  # fmt: skip


def said(rule, *arguments, **named):
    return " ".join(claim.text for claim in rule(summary(*arguments, **named))).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("gain", "text"),
    [
        (
            GAIN,
            "sums.jsonl rises from 41.0 % to 47.5 % on test items. On 200 test items accuracy changes by",
        ),
        (LOSS, "With blocks 3–5 twice (×0.5), sums.jsonl falls from 41.0 % to 21.0 % on test items. On"),
        (
            NOTHING,
            "goes from 41.0 % to 42.5 % on test items: not shown to be a change. On 200 test items accuracy",
        ),
        ((*GAIN, 0.08), "goes from 41.0 % to 47.5 % on test items: not shown to be a change."),  # corrected over tasks
    ],
)
def test_a_change_is_said_where_the_test_shows_it_and_no_further(gain, text):
    assert text in said(report.what_the_test_shows, on_test(gain))


def test_rivals_stand_beside_the_chosen_one_and_one_answer_to_everything_is_no_accuracy():
    rivals = tuple(
        RandomCandidate(
            task="sums.jsonl", contest="better", name=f"r{number}", model="m", edit="baseline", items=200,
            accuracy=estimate(0.3), gain=estimate(-number / 10), beyond=estimate(0.1),
        )
        for number in range(1, 4)
    )  # fmt: skip
    text = said(report.what_the_test_shows, on_test(NOTHING), rivals=rivals)
    assert text.endswith(
        "3 random candidates of the kind, 3 blocks twice (×0.5), change it by −20.0 points on average."
    )
    text = said(report.what_the_test_shows, on_test(one_answer=True))
    assert text == report.one_answer(TWICE, "sums.jsonl")


def forbidding(level, beyond, candidate=TWICE, contest="better", *, helps=True):
    """Three first tokens forbidden: accuracy, and what the candidate adds."""
    return Forbidden(
        task="sums.jsonl", contest=contest, candidate=candidate, items=200, tokens=(" the", " ", " a"), helps=helps,
        accuracy=estimate(level), gain=estimate(level - 0.41), instead=estimate(0), both=estimate(level + beyond[0]),
        beyond=estimate(*beyond),
    )  # fmt: skip


ADDS = "orbidding 3 first tokens gives"


@pytest.mark.parametrize(
    ("row", "first", "last"),
    [
        (forbidding(0.475, NOTHING), ", but forbidding 3 first tokens does as much (47.5 %).", f"{ADDS} 47.5 %, and"),
        (forbidding(0.46, NOTHING), ", but not shown to add to forbidding 3 first tokens (46.0 %).", f"{ADDS} 46.0 %"),
        (forbidding(0.48, GAIN), ".", f"{ADDS} 48.0 %, and the layout adds +6.5 points [+2.0, +11.0] (p .004)."),
        (forbidding(0.48, NOTHING, helps=False), ".", "gains nothing on the items that choose."),
        (None, ".", "o first token can be forbidden: the unedited model says nothing wrong."),
    ],
)
def test_the_first_sentence_says_where_forbidding_first_tokens_takes_the_gain(row, first, last):
    shown = summary(on_test(GAIN), forbidden=[row] if row else [])
    (claim,) = report.what_the_test_shows(shown)
    sentences = [sentence.replace("\N{NO-BREAK SPACE}", " ") for sentence in claim.sentences]
    assert sentences[0].endswith(f"rises from 41.0 % to 47.5 % on test items{first}")
    assert last in sentences[2]
    assert report._held(shown, shown.choices[0]) == (first == ".")


def test_answers_that_are_chosen_have_no_first_token_and_what_does_not_gain_has_no_such_rival():
    assert "o first token can be forbidden: its answers are chosen among texts." in said(
        report.what_the_test_shows, on_test(GAIN), kind="choose"
    )
    assert "forbid" not in said(report.what_the_test_shows, on_test(NOTHING))


def test_a_run_left_out_that_gains_stands_beside_forbidding_too():
    gains = drop("no worse", GAIN)
    row = forbidding(0.49, NOTHING, OUT, "drop 1")
    text = said(report.what_can_be_left_out, gains, forbidden=[row])
    assert "(200 test items), but forbidding 3 first tokens does as much (49.0 %)." in text
    assert text.endswith(" gives 49.0 %, and the layout adds +1.5 points [−3.0, +6.0] (p .6).")


def test_where_nothing_is_chosen_that_is_said_and_nothing_of_luck():
    nothing = ContestChoice(
        contest="better", candidate=TWICE, nothing="No candidate has more.", candidates=480, finalists=16, gain=0,
        luck=estimate(0.05, 0, 0.1, 1),
    )  # fmt: skip
    assert said(report.what_the_test_shows, choices=[nothing]) == "No candidate has more."
    assert said(report.what_luck_gives, choices=[nothing]) == ""


def drop(verdict, gain, candidate=OUT, contest="drop 1", **values):
    return on_test(gain, candidate, contest, verdict=verdict, **values)


def test_the_longest_run_that_is_shown_to_cost_little_is_named():
    short, long = drop("no worse", (0, -0.015, 0.015)), drop("no worse", (-0.005, -0.019, 0.01), RUN, "drop 2")
    text = said(report.what_can_be_left_out, short, long)
    assert text.startswith(
        "With blocks 4–5 left out, m loses less than 2 points on sums.jsonl. With blocks 4–5 left out,"
    )
    worse = drop("cannot be told", (-0.03, -0.06, 0.01), RUN, "drop 2")
    assert said(report.what_can_be_left_out, short, worse).startswith(
        "With block 4 left out, m loses less than 2 points"
    )
    broken = drop("no worse", (0, -0.015, 0.015), one_answer=True)
    for only in (worse, broken):
        text = said(report.what_can_be_left_out, only)
        assert text.startswith("No run left out is shown to cost less than 2 points on sums.jsonl. With block")


def test_the_first_sentence_names_the_controls_that_a_choice_costs():
    def control(verdict, contest, candidate):
        return on_test((-0.2, -0.3, -0.1), candidate, contest, task="facts", control=True, verdict=verdict)

    text = said(report.what_the_test_shows, on_test(GAIN), control("worse", "better", TWICE))
    assert "rises from 41.0 % to 47.5 % on test items, at a loss of more than 2 points on facts." in text
    for other in (control("cannot be told", "better", TWICE), control("worse", "drop 1", OUT)):
        assert "rises from 41.0 % to 47.5 % on test items. On" in said(report.what_the_test_shows, on_test(GAIN), other)
    short, long = drop("no worse", (0, -0.015, 0.015)), drop("no worse", (0, -0.019, 0.01), RUN, "drop 2")
    lost = control("worse", "drop 2", RUN)
    assert said(report.what_can_be_left_out, short, long, lost).startswith("With block 4 left out, m loses less")
    text = said(report.what_can_be_left_out, short, long, lost, control("worse", "drop 1", OUT))
    assert text.startswith("With blocks 4–5 left out, m loses less than 2 points on sums.jsonl, but more on facts.")


@pytest.mark.parametrize(
    ("verdict", "gain", "text"),
    [
        ("no worse", (0.0, -0.01, 0.01), f"facts is no worse with {TWICE}: it loses less than 2 points (0.0 points"),
        ("worse", (-0.2, -0.3, -0.1), f"facts is worse with {TWICE}: it loses more than 2 points (−20.0 points"),
        (
            "cannot be told",
            (-0.01, -0.05, 0.02),
            f"Whether facts loses more than 2 points with {TWICE} cannot be told (−1.0",
        ),
    ],
)
def test_a_control_is_no_worse_worse_or_cannot_be_told(verdict, gain, text):
    control = on_test(gain, task="facts", control=True, verdict=verdict)
    assert said(report.whether_controls_are_worse, control).startswith(text)


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (
            "no worse",
            f"wiki is no worse with {TWICE}: its perplexity rises by less than 2 % (20.5 to 20.6: × 1.005 [",
        ),
        ("worse", f"wiki is worse with {TWICE}: its perplexity rises by more than 2 % (20.5 to"),
        (
            "cannot be told",
            f"Whether the perplexity of wiki rises by more than 2 % with {TWICE} cannot be told (20.5 to",
        ),
    ],
)
def test_running_text_is_held_against_the_margin_in_percent(verdict, text):
    passage = TextTest(
        task="wiki", contest="better", candidate=TWICE, model="m", edit="baseline", texts=40, tokens=9000,
        baseline=20.5, perplexity=20.6, ratio=estimate(1.005, 1.001, 1.009), verdict=verdict,
    )  # fmt: skip
    assert said(report.whether_controls_are_worse, texts=[passage]).startswith(text)
    first = said(report.what_the_test_shows, on_test(GAIN), texts=[passage])
    assert ("on test items, at a loss of more than the margin on wiki." in first) == (verdict == "worse")
    shown = summary(on_test(GAIN), texts=[passage])
    assert report._held(shown, shown.choices[0]) == (verdict == "no worse")


def on_texts(ratio, candidate=TWICE, contest="better", verdict=None, **values):
    given = {
        "task": "wiki", "contest": contest, "candidate": candidate, "model": "m", "edit": "baseline", "texts": 40,
        "tokens": 9000, "baseline": 20.0, "perplexity": 20.0 * ratio[0], "ratio": estimate(*ratio),
        "verdict": verdict, "control": False, "rivals": (1.5, 3.25),
    }  # fmt: skip
    return TextTest(**{**given, **values})


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        ((0.9, 0.85, 0.95), "falls from 20 to 18: × 0.900 [0.850, 0.950], 40 texts."),
        ((1.5, 1.4, 1.6), "rises from 20 to 30: × 1.500 [1.400, 1.600], 40 texts."),
        ((1.05, 0.98, 1.1), "goes from 20 to 21: × 1.050 [0.980, 1.100], 40 texts: not shown to be a change."),
    ],
)
def test_a_perplexity_moves_where_its_interval_excludes_1_beside_random_candidates(ratio, text):
    read = on_texts(ratio)
    others = " 2 random candidates of the kind, 3 blocks twice (×0.5), multiply it by 1.5 to 3.25."
    assert said(report.what_the_test_shows, texts=[read]) == f"With {TWICE}, the perplexity of wiki {text}{others}"
    choice = ContestChoice(contest="better", candidate=TWICE, candidates=480, finalists=16, gain=0.1)
    held = ratio[2] < 1
    assert report._held(summary(texts=[read], choices=[choice]), choice) == held
    worse = on_texts((1.5, 1.4, 1.6), task="prose", control=True, verdict="worse")
    assert not report._held(summary(texts=[read, worse], choices=[choice]), choice)
    moved = said(report.what_the_test_shows, texts=[read, worse])
    assert (", at a loss of more than the margin on prose." in moved) == ("not shown" not in text)


@pytest.mark.parametrize(
    ("temperature", "level", "beyond", "first", "second"),
    [
        (
            1.2,
            17.0,
            (0.99, 0.97, 1.01),
            ", but a temperature of 1.2 does as much (17).",
            "at 1.1 multiplies that by 0.990",
        ),
        (
            1.2,
            19.0,
            (0.99, 0.97, 1.01),
            ", but not shown to add to a temperature of 1.2 (19).",
            "The unedited model at",
        ),
        (1.2, 19.0, (0.95, 0.92, 0.98), ", 40 texts. The unedited model at a temperature of 1.2: × 0.950", "by 0.950"),
        (
            1.0,
            20.0,
            (0.95, 0.92, 0.98),
            ", 40 texts. A simple rival, a temperature, gains nothing",
            "screen and choose.",
        ),
    ],
)
def test_a_lower_perplexity_is_said_beside_that_of_a_temperature(temperature, level, beyond, first, second):
    read = on_texts((0.9, 0.85, 0.95))
    rival = AtTemperature(
        task="wiki", contest="better", candidate=TWICE, model="m", edit="baseline", texts=40, temperature=temperature,
        own=1.1, perplexity=level, ratio=estimate(level / 20, 0.8, 0.99), instead=estimate(18 / level, 0.9, 1.1),
        beyond=estimate(*beyond),
    )  # fmt: skip
    text = said(report.what_the_test_shows, texts=[read], temperatures=[rival])
    assert first in text
    assert second in text
    choice = ContestChoice(contest="better", candidate=TWICE, candidates=480, finalists=16, gain=0.1)
    held = report._held(summary(texts=[read], temperatures=[rival], choices=[choice]), choice)
    assert held == ("but" not in text)


def test_of_dropped_runs_the_longest_is_named_whose_perplexity_rises_by_less_than_the_margin():
    within = on_texts((1.01, 1.0, 1.019), OUT, "drop 1", "no worse")
    beyond = on_texts((1.5, 1.4, 1.6), RUN, "drop 2", "worse")
    text = said(report.what_can_be_left_out, texts=[within, beyond])
    assert text.startswith(f"With {OUT}, the perplexity of wiki rises by less than 2 %.")
    lost = on_test(LOSS, OUT, "drop 1", "sums", control=True, verdict="worse")
    text = said(report.what_can_be_left_out, lost, texts=[within, beyond])
    assert f"{OUT}, the perplexity of wiki rises by less than 2 %, but sums loses more than the margin." in text
    better = on_texts((0.9, 0.85, 0.95), OUT, "drop 1", "no worse")
    text = said(report.what_can_be_left_out, lost, texts=[better])
    assert f"With {OUT}, the perplexity of wiki falls from 20 to 18: " in text
    assert ", at a loss of more than 2 points on sums." in text
    text = said(report.what_can_be_left_out, texts=[beyond])
    assert text.startswith("No run left out is shown to raise the perplexity of wiki by less than 2 %.")


def test_the_gain_on_the_items_that_chose_stands_beside_what_luck_gives():
    choice = ContestChoice(
        contest="better", candidate=TWICE, candidates=480, finalists=16, gain=0.09, luck=estimate(0.06, 0.02, 0.1, 0.12)
    )
    assert said(report.what_luck_gives, on_test(), choices=[choice]) == (
        "On the items that chose it, blocks 3–5 twice (×0.5) gains +9.0 points; by luck alone the best of 16 candidates"
        " gains +6.0 points [+2.0, +10.0] (p .12)."
    )


def test_of_a_task_with_no_more_to_lose_than_the_margin_it_is_not_said_that_it_loses_less():
    nothing = estimate(0.0, -0.01, 0.01)
    assert _verdict(nothing, 0.02, 0.5) == "no worse"
    assert _verdict(nothing, 0.02, 0.0) == _verdict(nothing, 0.02, 0.02) == "cannot be told"


def test_the_colour_of_a_map_is_full_where_three_quarters_of_the_finite_changes_are_smaller():
    assert report._full([-0.1, 0.2, -0.3, 0.4, 0.5, None, float("-inf")]) == 0.4
    assert report._full([None, float("-inf")]) == 0
