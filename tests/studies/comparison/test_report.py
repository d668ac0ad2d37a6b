"""The page and the text of a comparison, from two small studies of bundled models, and from made answers."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from made_answers import folder
from rich.console import Console
from rich.text import Text

import lesion
from commandline import undrawn
from lesion.report import drawing
from lesion.report.publishing import html

YES = {f"i{n}": n < 8 for n in range(10)}
NO = dict.fromkeys(YES, False)


def made(tmp_path, first=YES, second=NO, **options):
    a = folder(tmp_path / "a", {"baseline": YES, "3×0": first}, model="m")
    b = folder(tmp_path / "b", {"baseline": YES, "3×0": second}, model="n")
    return lesion.compare(a, b, **options)


def printed(result, width=100) -> str:
    """What `lesion compare --all` prints: the verdict above claims and tables."""
    out = io.StringIO()
    console = Console(file=out, width=width)
    console.print(Text(result.verdict))
    console.print(result.text(every=True))
    return " ".join(out.getvalue().replace("\N{NO-BREAK SPACE}", " ").split())


def told(result, rule):
    """The first claim of a rule."""
    return next(claim for claim in result.claims if claim.rule == rule)


def test_the_verdict_comes_first_then_its_number_and_what_each_edit_does(tmp_path):
    result = made(tmp_path)
    text = printed(result)
    assert text.startswith("No difference between b and a is shown on sums. Difference 0.0 points [")
    assert "(corrected p 1), on 10 items." in text
    edits = told(result, "which edits differ")
    assert edits.sentences[0].startswith("Under 1 of 1 edits in common b and a differ, most under 3×0: −80.0")
    assert [cell.edit for _, cell in edits.rows] == ["3×0"]
    extra = told(result, "which edit takes more")
    assert extra.sentences[0].replace("\N{NO-BREAK SPACE}", " ").startswith("3×0 takes 80.0 points [")
    assert "more from b than from a" in extra.text
    assert "On 10 items a difference is significant only if 6 of them change: sums." in result.checks()[-1].text


def test_where_nothing_is_shown_the_largest_difference_is_named(tmp_path):
    few = dict(YES) | {"i0": False}
    result = made(tmp_path, second=few)
    assert told(result, "which edits differ").sentences[0].startswith("Under none of 1 edits in common is a difference")
    extra = told(result, "which edit takes more")
    assert extra.sentences[0] == "No edit is shown to take more from one than from the other."
    assert "3×0 takes 10.0" in extra.sentences[1]
    same = made(tmp_path / "same", second=YES)
    assert told(same, "which edits differ").sentences == (
        "Under all 1 edits in common both answer equally many items.",
    )
    assert told(same, "which edit takes more").sentences == ("Every edit takes as much from one as from the other.",)


def test_of_one_model_what_its_edits_do_comes_first(tmp_path):
    a = folder(tmp_path / "a", {"baseline": YES, "3×0": YES}, model="m")
    b = folder(tmp_path / "b", {"baseline": YES, "3×0": NO}, model="m")
    result = lesion.compare(a, b)
    assert [claim.rule for claim in result.claims] == ["which edits differ", "which answers more"]
    assert "are the same model with the same verdicts on sums" in result.claims[1].text
    alike = lesion.compare(a, folder(tmp_path / "c", {"baseline": YES, "3×0": YES}, model="m"))
    assert alike.verdict == "No item is judged differently under any of 1 edit in common."


def test_a_side_without_unedited_answers_is_compared_under_edits_alone(tmp_path):
    a = folder(tmp_path / "a", {"baseline": YES, "3×0": YES}, model="m")
    b = folder(tmp_path / "b", {"3×0": NO}, model="n")
    result = lesion.compare(a, b)
    assert result.verdict == "sums was not answered by both unedited models; only edits are compared."
    assert not [claim for claim in result.claims if claim.rule == "which edit takes more"]


def test_items_that_all_of_three_sides_get_wrong_are_counted(tmp_path):
    places = [folder(tmp_path / name, {"baseline": YES}, model=name) for name in "abc"]
    result = lesion.compare(*places)
    assert len(result.wrong_in_all) == 2
    assert len({claim.subject for claim in result.claims if claim.rule == "which answers more"}) == 2
    none = "Of 2 other models none is shown to differ from a on sums; every mean is the same."
    assert result.verdict.startswith(none)
    worst = folder(tmp_path / "d", {"baseline": NO}, model="d")
    assert lesion.compare(*places[:2], worst).verdict.startswith(
        "Of 2 other models 1 differs from a on sums: d, −80.0 points"
    )


def test_of_unedited_models_one_chart_shows_all_and_the_answers_open_on_the_one_that_differs_most(tmp_path):
    names = {"a": YES, "b": YES, "c": NO, "d": YES}
    page = lesion.compare(
        *(folder(tmp_path / name, {"baseline": yes}, model=name) for name, yes in names.items())
    ).page()
    (panel,) = page.opening.figure.panels
    rows = [row.get("y") for data in drawing.specification(panel.charts[0])["datasets"].values() for row in data]
    assert set(rows) - {None} == {"b against a", "c against a", "d against a"}
    assert page.carried["opens"] == {"model": 0, "task": 0, "edit": "c"}


def test_the_rest_of_a_first_claim_of_one_sentence_is_not_the_second_claim_twice(tmp_path):
    places = [folder(tmp_path / name, {"baseline": YES}, model=name) for name in "abc"]
    out = io.StringIO()
    Console(file=out, width=400).print(lesion.compare(*places).text())
    assert out.getvalue().count("b against a: No difference") == 1


def test_a_baseline_at_nothing_or_everything_is_said(tmp_path):
    a = folder(tmp_path / "a", {"baseline": NO}, model="m")
    b = folder(tmp_path / "b", {"baseline": dict.fromkeys(YES, True)}, model="n")
    result = lesion.compare(a, b)
    assert result.checks()[0].text == "No better than guessing, so no loss can be seen: sums (a)."
    assert result.verdict == "b answers 100.0 points more of sums than a."


def test_the_page_shows_the_first_chart_right_behind_the_verdict_and_carries_the_answers(tmp_path):
    page = made(tmp_path).page()
    assert page.opening.figure.name == "difference"
    tips = [
        next(line for line in row["tip"].splitlines() if line.startswith(("Difference", "Extra drop")))
        for figure in (block for block in page.blocks() if block.kind == "figure")
        for data in drawing.specification(figure.panels[0].charts[0])["datasets"].values()
        for row in data
        if row.get("y") == "3×0"
    ]
    tips = [tip.replace("\N{NO-BREAK SPACE}", " ").partition(" [")[0] for tip in tips]
    assert tips == ["Difference: −80.0 points", "Extra drop: +80.0 points"]
    assert page.carried["models"] == ["unedited", "3×0"]
    assert [cell["label"] for cell in page.carried["cells"]] == ["a", "b", "a", "b"]
    assert page.carried["cells"][2]["verdicts"] == "1111111100"
    assert page.carried["words"]["filters"]["wrong"] == "wrong in both"


def test_a_folder_that_has_grown_since_leaves_the_numbers_and_takes_the_answers_from_the_page(tmp_path):
    result = made(tmp_path, out=tmp_path / "out")
    folder(tmp_path / "b", {"5×0": YES}, model="n")
    again = type(result).recall(tmp_path / "out")
    assert again.summary == result.summary
    assert "have changed since" in html(again.page())
    with pytest.raises(lesion.LesionError, match="Run the comparison again"):
        _ = again.items


def test_in_place_of_too_many_rows_the_verdicts_are_written_item_by_model(tmp_path, monkeypatch):
    monkeypatch.setattr("lesion.studies.comparison.items.MOST_ROWS", 15)
    result = made(tmp_path, out=tmp_path / "out")
    with undrawn():
        result.report()
    written = pd.read_csv(tmp_path / "out" / "verdicts.csv", keep_default_na=False)
    assert list(written) == ["task", "item", "group", "question", "gold", "a", "b", "a · 3×0", "b · 3×0"]
    assert dict(zip(written["item"], written["a"], strict=True)) == YES
    assert not written["b · 3×0"].any()
    assert not (tmp_path / "out" / "items.csv").exists()
    assert len(result.items) == 2 * len(YES)


def test_a_side_that_had_little_to_lose_is_warned_of(tmp_path):
    few, every = {f"i{n}": n < 3 for n in range(20)}, {f"i{n}": True for n in range(20)}
    none = dict.fromkeys(every, False)
    a = folder(tmp_path / "a", {"baseline": few, "3×0": none}, model="m")
    b = folder(tmp_path / "b", {"baseline": every, "3×0": none}, model="n")
    caution = "Caution: a had only 15.0 % to lose and lost nearly all of it under it: there the larger loss restates"
    text = printed(lesion.compare(a, b))
    # 20 of 20 against 3 of 3: 85 points more, all of which the unedited models differ by.
    assert "3×0 takes 85.0 points [" in text
    assert "more from b than from a" in text
    assert caution in text
    # The other way round the same side is named; where nothing is shown, there is nothing to warn of.
    assert caution in printed(lesion.compare(b, a))
    assert "Caution" not in printed(made(tmp_path / "other"))


def test_a_notebook_shows_the_difference_first(tmp_path):
    table = made(tmp_path).shown()
    titles = [column.title for column in table.columns]
    assert titles[:2] == ["Edit", "Difference, points"]
    unedited, edited = ([column.write(row) for column in table.columns] for row in table.records)
    assert unedited[:1] + edited[:1] == ["unedited", "3×0"]
    assert unedited[1].startswith("0.0 [")
    assert edited[1].startswith("−80.0 [")
    assert edited[titles.index("Extra drop, points")].startswith("+80.0 [")
    assert edited[titles.index("Changed")] == "0 gained, 8 lost"
    html = made(tmp_path / "again")._repr_html_()
    assert html.index(">Difference, points<") < html.index(">Items<")
