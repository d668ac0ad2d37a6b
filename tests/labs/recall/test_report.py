"""The recall laboratory's pages, tables and sentences: what the numbers say, and only that."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html import unescape

import chromium
import pytest
from rich.console import Console
from scipy import stats

from lesion.core.values import read_summary
from lesion.report import theme
from lesion.report.drawing import specification
from lesion.report.publishing import html
from lesion_labs import curves
from lesion_labs.recall import charts, study_findings
from lesion_labs.recall import findings as recall_prose
from lesion_labs.recall import tables as recall_tables
from lesion_labs.recall.recipe import preset
from lesion_labs.recall.report import RecallResult
from lesion_labs.recall.result import (
    MARGINS,
    AnswerShares,
    OwnAnswers,
    Phases,
    RecallSummary,
    Spectrum,
    Spread,
    central,
)
from lesion_labs.recall.run import run
from lesion_labs.recall.seeds import differences
from lesion_labs.recall.study_file import RecallStudy
from lesion_labs.recall.study_result import RecallStudySummary, SeedsPhase, SeedsPhases
from runs import page_of, run_recall

SMALL = {"vocabulary": 8, "length": 16, "width": 8, "measured": 10, "batch": 4, "steps": 3, "keep": [0.25, 0.5]}


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    recipe = preset("quick", **{**SMALL, "keep": (0.25, 0.5)}, draws=2)
    return run(recipe, tmp_path_factory.mktemp("recall"))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    recall_study = RecallStudy.make(kind="recall", title="What <b>is</b> cut?", noise=[0.3, 0.6], seed=[0, 1], **SMALL)
    return run_recall(recall_study, tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def written(summary, tmp_path_factory):
    """The report of the training, written into a folder once."""
    return RecallResult(tmp_path_factory.mktemp("report"), summary).report()


@pytest.fixture(scope="module")
def page(written):
    """The page of the training."""
    return written.read_text("utf-8")


@pytest.fixture(scope="module")
def study_page(study):
    """The page of the study."""
    return html(page_of(RecallResult, study))


def changed(value, **fields):
    """The value with other values of some of its fields, and nothing that was derived from the old ones."""
    return type(value)(**{name: getattr(value, name) for name in type(value).model_fields} | fields)


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def spoken(finding) -> str:
    return " ".join((*finding.headline, *finding.sentences)).replace("\xa0", " ")


def told(summary) -> str:
    return " ".join(map(spoken, recall_prose.findings(summary)))


def with_p_noise(summary, **values):
    """The summary with p(τ) of every cut of F2.in as given by its side or control."""
    rows = [
        changed(row, p_noise=values.get(row.control or row.side, row.p_noise)) if row.matrix == "F2.in" else row
        for row in summary.truncated
    ]
    return changed(summary, truncated=tuple(rows))


def printed(table) -> str:
    console = Console(width=80, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


# -- one training


def test_the_page_says_its_findings_and_every_truncation(summary, page):
    page = words(page)
    for finding in recall_prose.findings(summary):
        for sentence in (finding.subject, *finding.headline, *finding.sentences):
            assert " ".join(sentence.split()) in page
    for name in summary.matrices:
        assert f"{name} deleted" in page
    assert f"{summary.full.clean_accuracy:.3f}" in page
    share = summary.training[-1].table.predicted_noise_label_noise
    assert f"τ is predicted {100 * share:.1f}" in page.replace("\xa0", " ")


def test_a_summary_read_back_from_its_file_makes_the_same_page(tmp_path, summary, study, page, study_page):
    for folder, value, text in ((tmp_path / "one", summary, page), (tmp_path / "many", study, study_page)):
        folder.mkdir()
        value.write(folder)
        again = read_summary(type(value), folder, "")
        assert again == value
        assert html(page_of(RecallResult, again)) == text


def test_the_full_model_s_belief_in_noise_stands_beside_the_noise_of_training(summary):
    assert "τ 0.580 (α in training: 0.6)" in told(changed(summary, full=changed(summary.full, p_noise=0.58)))
    assert "ȳ tie" not in told(summary)
    assert "τ and ȳ tie" in told(changed(summary, recipe=replace(summary.recipe, noise=0.5)))


@pytest.mark.parametrize(
    ("top", "random", "said", "unsaid"),
    [
        (0.1, 0.4, "leaves less of p(τ) than random", "leaves more"),
        (0.4, 0.1, "leaves more of p(τ) than random", "leaves less"),
        (0.30, 0.31, "no choice of components", "leaves less of"),
    ],
)
def test_truncation_is_said_to_beat_random_projections_only_where_it_does(summary, top, random, said, unsaid):
    made = with_p_noise(summary, top=top, random=random)
    text = spoken(next(finding for finding in recall_prose.findings(made) if finding.subject == "Cutting F2.in"))
    assert said in text
    assert unsaid not in text


def test_a_spectrum_that_training_did_not_reach_is_told_from_one_that_it_did(summary):
    def text(largest):
        return told(changed(summary, spectra={"F2.in": Spectrum(values=(largest, 1.0), before=1.7)}))

    assert "was 1.70 before training, 1.72 after: hardly more." in text(1.72)
    assert "was 1.70 before training, 2.40 after." in text(2.4)


def test_the_least_loss_and_what_own_answers_mean_are_told_where_the_answer_may_be_tau(summary):
    assert "of a model that knows ȳ at least H(α) = 0.673." in told(summary)
    assert "Own answers" not in told(summary)
    shares = OwnAnswers(clean=AnswerShares(trigger=0.114, noise=0.017), noisy=AnswerShares(trigger=0.1, noise=0.02))
    own = told(changed(summary, own_answers=shares, floor=0.66))
    assert "at least 0.660: H(α), but 0 at the 2.0 % where ȳ is τ" in own
    assert "ȳ is q at 11.4 % of the questions, τ at 1.7 %" in own
    assert "a perfect model gives τ 0.017." in own


def test_an_untrained_model_is_not_said_to_have_learned_anything(tmp_path):
    made = run(preset("quick", **{**SMALL, "keep": (0.5,), "steps": 0}, draws=1), tmp_path)
    assert recall_prose.phases(made) == ["Nothing was trained: all numbers are those of random weights."]
    page = words(html(page_of(RecallResult, made)))
    assert "from step 0" not in page
    assert "Over training" not in page


def test_a_page_shows_only_what_the_optimiser_used(summary, page, without_charts):
    assert "momentum" in words(page)
    adam = recipe_shown(changed(summary, recipe=replace(summary.recipe, optimiser="adam")))
    assert "learning rate" in adam
    assert "momentum" not in adam
    assert "weight decay" not in adam


@pytest.mark.parametrize(
    ("symbol", "shown"),
    [(" ", '" "'), ("\n", '"\\n"'), ("\u202e", "U+202E (RIGHT-TO-LEFT OVERRIDE)"),
     ("\u0301", "U+0301 (COMBINING ACUTE ACCENT)"), ("\x1b", "U+001B"), ("é", '"é"')],
)  # fmt: skip
def test_tokens_that_are_not_seen_are_shown_by_their_code_points(summary, symbol, shown, without_charts):
    language = changed(summary.language, source="corpus", trigger=symbol, noise_token="x")
    facts = recipe_shown(changed(summary, language=language))
    assert f"q is {shown} (" in facts["tables"]
    if symbol not in " \né":
        assert symbol not in facts["tables"]


@pytest.fixture
def without_charts(monkeypatch):
    """Charts are not of interest, and most of the work."""
    monkeypatch.setattr(charts, "training", lambda summary: [])
    monkeypatch.setattr(charts, "truncations", lambda summary, matrix: [])


def recipe_shown(summary) -> dict[str, str]:
    """The facts of the page's section on the recipe."""
    (section,) = (part for part in page_of(RecallResult, summary).sections if part.short == "Recipe")
    return dict(section.blocks[0].facts)


def test_what_was_typed_cannot_turn_the_page_around(study):
    page = html(page_of(RecallResult, changed(study, study=changed(study.study, title="a\u202eb\x1b[31m"))))
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert "a\ufffdb" in page


def test_a_matrix_that_there_cannot_be_is_no_matrix_of_a_summary(summary):
    document = summary.model_dump(mode="json")
    document["truncated"][0]["matrix"] = "../../x"
    with pytest.raises(ValueError, match=r"truncated\.0\.matrix"):
        RecallSummary.model_validate(document)


def test_phases_are_told_as_they_came(summary):
    def phases(margins, attention, fed=True, untrained=()):
        last = changed(summary.training[-1], margins={"F1": 0.0} if fed else {})
        found = Phases(margins=margins, attention=attention, untrained=untrained)
        return recall_prose.phases(changed(summary, training=(last,), phases=found))

    none = dict.fromkeys(MARGINS)
    assert phases({**none, "F2": 7}, 90)[0] == (
        "F2 prefers τ after q from step 7 on; attention has more than half of its mass on ȳ from step 90 on."
    )
    assert "F1 and F2 prefer τ" in phases({**none, "F1": 2, "F2": 2}, None)[0]
    assert "has not put half of its mass on ȳ by step 3" in phases({**none, "F1": 2}, None)[0]
    assert phases(none, 5)[0].startswith("No feed-forward comes to prefer τ")
    chance = phases({**none, "F1": 1, "F2": 4}, 5, untrained=("F1",))
    assert chance[0].startswith("F2 prefers τ after q from step 4 on")
    assert "F1 untrained, by chance; F2 4;" in chance[1]
    chance = phases({**none, "F1": 1}, 5, untrained=("F1",))
    assert chance[0].startswith("No feed-forward comes to prefer τ")
    assert chance[1].startswith("F1 preferred τ after q before training already, by chance")
    assert phases(none, 5, fed=False)[0].startswith("The model has no feed-forward")


def test_rows_are_found_by_what_they_are(summary):
    assert [(row.keep, row.side) for row in summary.rows("F2.in", side="top")] == [(0.25, "top"), (0.5, "top")]
    assert [row.side for row in summary.rows("F2.in")].count("bottom") == 2
    for control in ("deletion", "drop-top"):
        (row,) = summary.rows("F2.in", control)
        assert (row.matrix, row.control) == ("F2.in", control)
    draws = [row.p_noise for row in summary.truncated if (row.matrix, row.control, row.rank) == ("F2.in", "random", 4)]
    spread = summary.drawn("F2.in", 4, "p_noise")
    assert (spread.mean, spread.least, spread.most) == (pytest.approx(sum(draws) / 2), min(draws), max(draws))
    assert summary.drawn("F2.in", 8, "p_noise") is None


def test_the_central_matrices_are_those_of_the_second_feed_forward_or_else_the_products():
    assert central(["W_K1", "F1.in", "F2.in", "F2.out"]) == ["F2.in", "F2.out"]
    assert central(["F1", "F2", "W_OV2"]) == ["F2"]
    assert central(["W_K2", "W_OV1", "W_OV2"]) == ["W_OV1", "W_OV2"]


def test_the_terminals_table_holds_the_full_model_and_the_controls(summary):
    text = printed(recall_tables.text(summary))
    full = next(line for line in text.splitlines() if "full model" in line)
    assert [float(number) for number in full.split()[2:]] == [
        pytest.approx(summary.full.of(measure), abs=5e-4) for measure in recall_tables.TITLES
    ]
    for label in ("F2.in deleted", "F2.in top", "F2.in bottom", "F2.out less top"):
        assert label in text
    random = summary.drawn("F2.in", 4, "p_noise").mean
    row = next(line for line in text.splitlines() if "F2.in top" in line and "50" in line)
    assert float(row.split()[-1]) == pytest.approx(random, abs=5e-4)


def drawn(panel) -> dict:
    """The specification of a panel's chart."""
    return specification(panel.charts[0])


def frames(panel) -> list[list[dict]]:
    """The rows of every data set of a panel's chart."""
    return list(drawn(panel)["datasets"].values())


def test_training_is_drawn_from_the_first_step_with_both_phases_and_the_noise(summary):
    phases = Phases(margins=dict.fromkeys(MARGINS) | {"F1": 2}, attention=3)
    panels = charts.training(changed(summary, phases=phases))
    assert [panel.title for panel in panels] == [
        "Predictions on clean sequences", "Loss", "Trigger margins of the feed-forwards", "Where the heads attend",
        "Probes of the matrices", "Soft ranks",
    ]  # fmt: skip
    curves = next(rows for rows in frames(panels[0]) if "series" in rows[0] and len(rows) >= 9)
    p_noise = {row["x"]: row["y"] for row in curves if row["series"] == "p(τ)"}
    expected = {point.step: pytest.approx(100 * point.p_noise, rel=1e-5) for point in summary.training[1:]}
    assert p_noise == expected
    assert [{"y": 60.0}] in frames(panels[0])
    for panel in panels:
        assert [{"x": 2}] in frames(panel)
        assert [{"x": 3}] in frames(panel)
    legend = charts.phase_legend(phases)
    assert [series.name.rpartition(" ")[2] for series in legend] == ["2", "3"]


def test_a_truncation_is_drawn_between_nothing_cut_and_all_deleted_beside_the_draws(summary):
    accuracy, p_noise, loss = charts.truncations(summary, "F2.in")
    top, _ = summary.rows("F2.in", side="top")
    (deleted,) = summary.rows("F2.in", "deletion")
    rows = next(rows for rows in frames(p_noise) if "series" in rows[0])
    kept = {(row["series"], row["x"]): (row["y"], row["low"], row["high"]) for row in rows}
    spread = summary.drawn("F2.in", 4, "p_noise")
    assert kept["random projections", 50.0] == tuple(
        pytest.approx(100 * value, rel=1e-5) for value in (spread.mean, spread.least, spread.most)
    )
    assert kept["the largest kept", 25.0] == (pytest.approx(100 * top.p_noise, rel=1e-5), None, None)
    levels = [rows[0]["y"] for rows in frames(loss) if list(rows[0]) == ["y"]]
    assert levels == [pytest.approx(value, rel=1e-5) for value in (summary.full.noisy_loss, deleted.noisy_loss)]
    tips = next(rows for rows in frames(accuracy) if "tip" in rows[0])
    assert tips[0]["tip"].startswith("25\xa0% of the rank kept\nthe largest kept: ")


def test_every_series_has_its_own_colour_in_the_file_of_a_figure_whose_panels_show_different_ones(written, page):
    lines = re.findall(r'stroke="(#[0-9a-f]{6})"', (written.parent / "figures" / "training.svg").read_text("utf-8"))
    assert {theme.light()[f"t{index}"] for index in range(8)} <= set(lines)
    assert words(page).count("F1+F2") >= 2  # the legend of its panel and the caption


def test_marks_on_a_curve_over_training_are_few_and_at_measured_steps():
    steps = list(range(1, 200))
    marked = curves.marked_steps(steps)
    assert {1, 199} <= marked <= set(steps)
    assert len(marked) <= curves.MARKED


# -- a study


def test_a_studys_page_shows_every_group_and_escapes_what_was_typed(study, study_page):
    assert "<b>is</b>" not in study_page
    shown = words(study_page)
    assert "What <b>is</b> cut?" in shown
    for group in study.groups:
        assert study_findings.group_name(group) in shown
        for sentence in study_findings.finding(group).sentences:
            assert " ".join(sentence.split()) in shown


def test_p_of_noise_is_drawn_against_the_noise_where_there_are_several(study):
    panel, legend = charts.noise(study.groups)
    rows = next(rows for rows in frames(panel) if "series" in rows[0])
    for row, group in zip(rows, study.groups, strict=True):
        assert row["x"] == group.recipe.noise
        spread = group.full.p_noise
        assert (row["y"], row["low"], row["high"]) == tuple(
            pytest.approx(100 * value, rel=1e-5) for value in (spread.mean, spread.least, spread.most)
        )
    assert [{"x": 0.3, "y": 30.0}, {"x": 0.6, "y": 60.0}] in frames(panel)
    assert [series.name for series in legend] == ["the full model", "p(τ) = α"]
    assert charts.noise(study.groups[:1]) is None


def test_recipes_otherwise_alike_are_one_curve_against_the_noise(study):
    adam = [changed(group, recipe=replace(group.recipe, optimiser="adam")) for group in study.groups]
    panel, legend = charts.noise([*study.groups, *adam])
    rows = next(rows for rows in frames(panel) if "series" in rows[0])
    assert len(legend) == 3
    assert [row["series"].split(", ")[1] for row in rows] == ["sgd", "sgd", "adam", "adam"]


def test_margins_of_a_study_are_told_for_every_seed_or_for_so_many(study):
    def phase(came, of=3, step=1.0, untrained=0):
        steps = Spread(mean=step, std=0.0, least=step, most=step) if came else None
        return SeedsPhase(came=came, of=of, untrained=untrained, steps=steps)

    margins = {"F1": phase(0), "F2": phase(3, step=7), "F2∘F1": phase(2, untrained=1), "F1+F2": phase(2, step=10)}
    group = changed(study.groups[0], phases=SeedsPhases(margins=margins, attention=phase(3, step=90)))
    assert study_findings.finding(group).sentences[0] == (
        "F2 prefers τ after q from step 7 on; attention recalls from step 90 on. In some seeds only: F2∘F1"
        " in 2 of 3 seeds, from step 1 on, in 1 before training already; F1+F2 in 2 of 3 seeds, from step 10 on."
    )


def three_seeds(study, mean, std):
    """A group of three seeds with this difference to random projections at every fraction of every matrix."""
    rows = [
        changed(row, beyond=changed(row.beyond, p_noise=changed(row.beyond.p_noise, mean=mean, std=std)))
        if row.beyond
        else row
        for row in study.groups[0].truncated
    ]
    return changed(study.groups[0], seeds=(0, 1, 2), truncated=tuple(rows))


def test_beyond_random_is_claimed_only_where_it_is_sure_and_no_trifle(study):
    def sentences(mean, std):
        return spoken(study_findings.finding(three_seeds(study, mean, std)))

    assert "Keeping the top 25 % (−0.200) and 50 % (−0.200) of F2.in leaves clearly less of p(τ)" in sentences(
        -0.2, 0.01
    )
    assert "leaves clearly more of p(τ)" in sentences(0.2, 0.01)
    assert "Holm-corrected over 4 comparisons" in sentences(0.2, 0.01)
    for trifle_or_chance in ((0.008, 1e-6), (0.2, 0.2)):
        text = sentences(*trifle_or_chance)
        assert "Keeping the top of F2.in makes no clear difference of p(τ) to random projections" in text
        assert "leaves" not in text
    assert "the largest: 25 % (+0.008)" in sentences(0.008, 1e-6)


def test_comparisons_are_corrected_over_all_of_a_group(study):
    # t of mean/(std/√3): p is .03 by itself with two degrees of freedom, and 4 · .03 over the four comparisons.
    mean = 0.5
    std = mean * 3**0.5 / float(stats.t.isf(0.015, 2))
    group = three_seeds(study, mean, std)
    assert [difference.p for difference in differences(group)] == pytest.approx([0.12] * 4)
    assert "leaves clearly more" not in spoken(study_findings.finding(group))


@pytest.mark.parametrize(
    ("value", "signed", "expected"),
    [(0.12345, False, "0.123"), (-0.12345, True, "−0.123"), (0.5, True, "+0.500"), (-0.0001, True, "0.000")],
)
def test_numbers_have_three_decimals_and_nothing_has_no_sign(value, signed, expected):
    assert study_findings.decimals(value, signed=signed) == expected
    assert study_findings.decimals(value, signed=signed, bare=True) == expected.replace("0.", ".", 1)
    assert study_findings.decimals(10.25, bare=True) == "10.250"


def test_the_terminals_account_of_a_study_has_a_table_for_every_group(study):
    text = printed(recall_tables.text(study))
    assert text.count("full model") == len(study.groups) == 2
    for group in study.groups:
        assert study_findings.spread_text(group.full.p_noise, bare=True) in text


def test_a_study_without_a_title_and_with_one_group_shows_its_table_at_once(study):
    plain = changed(study, study=changed(study.study, title=None), groups=study.groups[:1])
    made = page_of(RecallResult, RecallStudySummary.model_validate(plain.model_dump(mode="json")))
    assert made.title == "Noisy in-context recall"
    (section,) = (part for part in made.sections if part.short == "Table")
    assert section.blocks[0].kind == "table"


@pytest.mark.slow
@pytest.mark.skipif(chromium.found() is None, reason="no Chromium is installed")
def test_both_pages_run_under_their_policy_without_complaint_or_request(tmp_path, page, study_page, tab):
    for name, text in (("one", page), ("many", study_page)):
        place = tmp_path / f"{name}.html"
        place.write_text(text, encoding="utf-8")
        tab.open(place.as_uri())
        assert tab.complaints == []
        assert tab.requests == [place.as_uri()]
