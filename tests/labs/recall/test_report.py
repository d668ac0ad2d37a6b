"""The recall laboratory's pages, tables and sentences: what the numbers say, and only that."""

from __future__ import annotations

import html
import io
import json
import re
from copy import deepcopy

import chromium
import pytest
from rich.console import Console
from scipy import stats

from lesion.labs.recall import findings as recall_prose
from lesion.labs.recall import groups as recall_groups
from lesion.labs.recall import report as recall
from lesion.labs.recall import rows as recall_rows
from lesion.labs.recall import tables as recall_tables
from lesion.labs.recall.recipe import preset
from lesion.labs.recall.run import run
from lesion.labs.recall.study import run_recall
from lesion.labs.recall.study_file import RecallStudy

SMALL = {"vocabulary": 8, "length": 16, "width": 8, "measured": 10, "batch": 4, "steps": 3, "keep": [0.25, 0.5]}


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    recipe = preset("quick", **{**SMALL, "keep": (0.25, 0.5)}, draws=2)
    return run(recipe, tmp_path_factory.mktemp("recall"))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    asked = RecallStudy.make(kind="recall", title="What <b>is</b> cut?", noise=[0.3, 0.6], seed=[0, 1], **SMALL)
    return run_recall(asked, tmp_path_factory.mktemp("study"))


def words(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def told(summary) -> str:
    found = recall_prose.findings(summary)
    return " ".join(sentence for one in found for sentence in (one.headline, *one.sentences)).replace("\xa0", " ")


def changed(summary, **numbers):
    """The summary with p(τ) of every cut of F2.in as given by its side or control."""
    made = deepcopy(summary)
    for row in made["truncated"]:
        if row["matrix"] == "F2.in":
            row["p_noise"] = numbers.get(row["control"] or row["side"], row["p_noise"])
    return made


def printed(table) -> str:
    console = Console(width=80, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


# -- one training


def test_the_page_says_its_findings_and_every_truncation(summary):
    page = words(recall.page(summary))
    for one in recall_prose.findings(summary):
        for sentence in (one.subject, one.headline, *one.sentences):
            assert " ".join(sentence.split()) in page
    for name in summary["matrices"]:
        assert f"{name} deleted" in page
    assert f"accuracy {summary['full']['clean_accuracy']:.3f}" in page
    share = summary["training"][-1]["table"]["predicted_noise_label_noise"]
    assert f"τ is predicted {100 * share:.1f}" in page.replace("\xa0", " ")


def test_a_summary_read_back_from_its_file_makes_the_same_page(tmp_path, summary):
    path = recall.write(tmp_path, summary)
    assert path.read_text("utf-8") == recall.page(json.loads(json.dumps(summary)))


def test_the_full_model_is_called_close_to_the_noise_only_where_it_is(summary):
    for p_noise, verdict in ((0.58, "close to the α of 0.6"), (0.4, "not the α of 0.6")):
        made = {**summary, "full": {**summary["full"], "p_noise": p_noise}}
        assert verdict in told(made)
    assert "tie" not in told(summary)
    assert "tie between τ and ȳ" in told({**summary, "noise": 0.5})


@pytest.mark.parametrize(
    ("top", "random", "said", "unsaid"),
    [
        (0.1, 0.4, "leaves less of p(τ) than random", "leaves more"),
        (0.4, 0.1, "leaves more of p(τ) than random", "leaves less"),
        (0.30, 0.31, "deletion by degrees", "leaves less of"),
    ],
)
def test_truncation_is_said_to_beat_random_projections_only_where_it_does(summary, top, random, said, unsaid):
    made = changed(summary, top=top, random=random)
    finding = next(one for one in recall_prose.findings(made) if one.subject == "Cutting F2.in")
    text = " ".join(finding.sentences)
    assert said in text
    assert unsaid not in text


def test_a_spectrum_that_training_did_not_reach_is_told_from_one_that_it_did(summary):
    def sentence(largest):
        spectra = {"F2.in": {"values": [largest, 1.0], "before": 1.7}}
        return told({**summary, "spectra": spectra})

    assert "is 1.72, and was 1.70 before training: hardly more" in sentence(1.72)
    assert "is 2.40, and was 1.70 before training: what was learned stands on top" in sentence(2.4)
    without = {key: value for key, value in summary.items() if key != "spectra"}
    assert "singular value" not in told(without)
    assert "Spectra" not in words(recall.page(without))


def test_the_least_loss_and_what_own_answers_mean_are_told_where_the_answer_may_be_tau(summary):
    assert "once ȳ is known, H(α) = 0.673 would be the least." in told(summary)
    assert "Own answers" not in told(summary)
    shares = {"clean": {"trigger": 0.114, "noise": 0.017}, "noisy": {"trigger": 0.1, "noise": 0.02}}
    own = told({**summary, "own_answers": shares, "floor": 0.66})
    assert "0.660 would be the least: H(α), but 0 at the 2.0 % of the questions where ȳ is τ" in own
    assert "11.4 % of the questions on clean sequences come from runs of q" in own
    assert "gives τ a mean probability of 0.017, and one that never says τ has at most 98.3 % right" in own
    older = told({**summary, "recipe": {**summary["recipe"], "own_answers": True}})
    assert "H(α) = 0.673 would be the least, and 0 where ȳ is τ" in older


def test_an_untrained_model_is_not_said_to_have_learned_anything(tmp_path):
    made = run(preset("quick", **{**SMALL, "keep": (0.5,), "steps": 0}, draws=1), tmp_path)
    assert recall_prose.phases(made) == [
        "Nothing is trained: all numbers are those of the untrained model, by the chance of its weights."
    ]
    assert "from step 0" not in words(recall.page(made))


def test_a_page_shows_only_what_the_optimiser_used(summary):
    assert "momentum" in words(recall.page(summary))
    adam = {**summary, "recipe": {**summary["recipe"], "optimiser": "adam"}}
    assert "momentum" not in words(recall.page(adam))
    assert "weight decay" not in words(recall.page(adam))


@pytest.mark.parametrize(
    ("symbol", "shown"),
    [(" ", '" "'), ("\n", '"\\n"'), ("\u202e", "U+202E (RIGHT-TO-LEFT OVERRIDE)"),
     ("\u0301", "U+0301 (COMBINING ACUTE ACCENT)"), ("\x1b", "U+001B"), ("é", '"é"')],
)  # fmt: skip
def test_tokens_that_are_not_seen_are_shown_by_their_code_points(summary, symbol, shown):
    language = {**summary["language"], "source": "corpus", "trigger": symbol, "noise_token": "x"}
    page = recall.page({**summary, "language": language})
    assert f"q is {shown} (" in words(page)
    if symbol not in " \né":
        assert symbol not in page


def test_what_was_typed_cannot_turn_the_page_around(study):
    made = {**study, "study": {**study["study"], "title": "a\u202eb", "name": "c\x1b[31m"}}
    page = recall.study_page(made)
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert "a\ufffdb" in page


def test_margins_of_a_study_are_told_for_every_seed_or_for_so_many(study):
    def phase(came, of=3, step=1.0, untrained=0):
        spread = {"mean": step, "deviation": 0.0, "least": step, "most": step} if came else {}
        return {"came": came, "of": of, "untrained": untrained, **spread}

    group = deepcopy(study["groups"][0])
    group["phases"] = {
        "F1": phase(0), "F2": phase(3, step=7), "F2∘F1": phase(2, untrained=1), "F1+F2": phase(2, step=10),
        "attention": phase(3, step=90),
    }  # fmt: skip
    assert recall_groups.finding(group).sentences[0] == (
        "F2 prefers τ behind q from step 7 on; attention recalls from step 90 on. Only in some seeds a margin turns"
        " positive for good: F2∘F1 in 2 of 3 seeds, from step 1 on, in 1 before training already; F1+F2 in 2 of 3"
        " seeds, from step 10 on."
    )


def test_phases_are_told_as_they_came(summary):
    def phases(margins, attention, fed=True, untrained=()):
        training = [{"margins": {"F1": 0.0} if fed else {}}]
        found = {"margins": margins, "attention": attention, "untrained": list(untrained)}
        return recall_prose.phases({**summary, "training": training, "phases": found})

    none = dict.fromkeys(("F1", "F2", "F2∘F1", "F1+F2"))
    assert phases({**none, "F2": 7}, 90)[0] == (
        "F2 prefers τ behind q from step 7 on; attention has more than half of its mass on ȳ from step 90 on."
    )
    assert "F1 and F2 prefer τ" in phases({**none, "F1": 2, "F2": 2}, None)[0]
    assert "has not put half of its mass on ȳ by step 3" in phases({**none, "F1": 2}, None)[0]
    assert phases(none, 5)[0].startswith("No feed-forward prefers τ")
    chance = phases({**none, "F1": 1, "F2": 4}, 5, untrained=["F1"])
    assert chance[0].startswith("F2 prefers τ behind q from step 4 on")
    assert "F1 untrained; F2 4;" in chance[1]
    assert chance[2].startswith("F1 preferred τ behind q before training already, by the chance of the weights")
    assert phases({**none, "F1": 1}, 5, untrained=["F1"])[0].startswith("No feed-forward comes to prefer τ")
    assert phases(none, 5, fed=False)[0].startswith("There is no feed-forward")


def test_rows_are_found_by_what_they_are(summary):
    found = recall_rows.by_matrix(summary)["F2.in"]
    assert [(row["keep"], row["side"]) for row in found.top] == [(0.25, "top"), (0.5, "top")]
    assert [row["side"] for row in found.bottom] == ["bottom", "bottom"]
    assert (found.deleted["control"], found.without_top["control"]) == ("deletion", "drop-top")
    draws = [row["p_noise"] for row in summary["truncated"]
             if (row["matrix"], row["control"], row["rank"]) == ("F2.in", "random", 4)]  # fmt: skip
    spread = found.drawn(4, "p_noise")
    assert (spread.mean, spread.least, spread.most) == (pytest.approx(sum(draws) / 2), min(draws), max(draws))
    assert found.drawn(8, "p_noise") is None


def test_the_central_matrices_are_those_of_the_second_feed_forward_or_else_the_products():
    assert recall_rows.central(["W_K1", "F1.in", "F2.in", "F2.out"]) == ["F2.in", "F2.out"]
    assert recall_rows.central(["F1", "F2", "W_OV2"]) == ["F2"]
    assert recall_rows.central(["W_K2", "W_OV1", "W_OV2"]) == ["W_OV1", "W_OV2"]


def test_the_terminals_table_holds_the_full_model_and_the_controls(summary):
    text = printed(recall_tables.text(summary))
    full = next(line for line in text.splitlines() if "full model" in line)
    assert [float(number) for number in full.split()[2:]] == [
        pytest.approx(summary["full"][name], abs=5e-4) for name in recall_tables.COLUMN_KEYS
    ]
    for label in ("F2.in deleted", "F2.in top", "F2.in bottom", "F2.out less top"):
        assert label in text
    random = recall_rows.by_matrix(summary)["F2.in"].drawn(4, "p_noise").mean
    row = next(line for line in text.splitlines() if "F2.in top" in line and "50" in line)
    assert float(row.split()[-1]) == pytest.approx(random, abs=5e-4)


# -- a study


def test_a_studys_page_shows_every_group_and_escapes_what_was_typed(study):
    page = recall.study_page(study)
    assert "<b>is</b>" not in page
    assert "What <b>is</b> cut?" in words(page)
    for group in study["groups"]:
        assert recall_groups.name(group) in words(page)
        for sentence in recall_groups.finding(group).sentences:
            assert " ".join(sentence.split()) in words(page)


def test_p_of_noise_is_drawn_against_the_noise_where_there_are_several(study):
    assert recall_groups.noise_panel(study["groups"]) is not None
    assert recall_groups.noise_panel(study["groups"][:1]) is None


def _three_seeds(study, mean, deviation):
    """A group of three seeds with this difference to random projections at every fraction of every matrix."""
    group = deepcopy(study["groups"][0])
    group["seeds"] = [0, 1, 2]
    for row in group["truncated"]:
        if "beyond" in row:
            row["beyond"]["p_noise"] |= {"mean": mean, "deviation": deviation}
    return group


def test_beyond_random_is_claimed_only_where_it_is_sure_and_no_trifle(study):
    def sentences(mean, deviation):
        said = " ".join(recall_groups.finding(_three_seeds(study, mean, deviation)).sentences)
        return said.replace("\xa0", " ")

    assert "Keeping the top 25 % (−0.200) and 50 % (−0.200) of F2.in leaves less of p(τ)" in sentences(-0.2, 0.01)
    assert "leaves more of p(τ)" in sentences(0.2, 0.01)
    assert "Holm-corrected over 4 comparisons" in sentences(0.2, 0.01)
    for trifle_or_chance in ((0.008, 1e-6), (0.2, 0.2)):
        assert "At no fraction is keeping the top of F2.in told from" in sentences(*trifle_or_chance)
        assert "leaves" not in sentences(*trifle_or_chance)
    assert "the largest difference of means is at 25 % (+0.008)" in sentences(0.008, 1e-6)


def test_comparisons_are_corrected_over_all_of_a_group(study):
    # t of mean/(deviation/√3): p is .03 by itself with two degrees of freedom, and 4 · .03 over the four comparisons.
    mean = 0.5
    deviation = mean * 3**0.5 / float(stats.t.isf(0.015, 2))
    found = recall_groups._differences(_three_seeds(study, mean, deviation))
    assert [one.p for one in found] == pytest.approx([0.12] * 4)
    assert "leaves more" not in " ".join(recall_groups.finding(_three_seeds(study, mean, deviation)).sentences)


@pytest.mark.parametrize(
    ("value", "sign", "expected"),
    [(0.12345, False, "0.123"), (-0.12345, True, "−0.123"), (0.5, True, "+0.500"), (-0.0001, True, "0.000")],
)
def test_numbers_have_three_decimals_and_nothing_has_no_sign(value, sign, expected):
    assert recall_groups.decimals(value, 3, sign=sign) == expected
    assert recall_groups.decimals(value, 3, sign=sign, bare=True) == expected.replace("0.", ".", 1)
    assert recall_groups.decimals(10.25, 2, bare=True) == "10.25"


def test_the_terminals_account_of_a_study_has_a_table_for_every_group(study):
    text = printed(recall_tables.sweep_text(study))
    assert text.count("full model") == len(study["groups"]) == 2
    for group in study["groups"]:
        assert recall_groups.told(group["full"]["p_noise"], bare=True) in text


@pytest.mark.slow
@pytest.mark.skipif(chromium.found() is None, reason="no Chromium is installed")
def test_both_pages_run_under_their_policy_without_complaint_or_request(tmp_path, summary, study):
    with chromium.Chromium() as tab:
        for name, text in (("one", recall.page(summary)), ("many", recall.study_page(study))):
            place = tmp_path / f"{name}.html"
            place.write_text(text, encoding="utf-8")
            tab.open(place.as_uri())
            assert tab.complaints == []
            assert tab.requests == [place.as_uri()]
