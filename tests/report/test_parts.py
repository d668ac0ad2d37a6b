"""Parts: a page, a terminal's text and a notebook's cell are made from one list of them."""

import io
import re

import pandas as pd
import pytest
from made_rows import made, rows
from page_checks import assert_asks_for_nothing
from rich.console import Console

from lesion.report import parts as module
from lesion.report.blocks import Check, Claims, Figure, Folded
from lesion.report.claims import Claim
from lesion.report.marks import Map, Profile
from lesion.report.names import Names
from lesion.report.parts import Part, answer_of, page, terminal
from lesion.report.publishing import html, publish

FIRST = Claim(("Block 1 is critical.", "It costs 50 points.", "Block 2 cannot be told."), subject="sums")
SECOND = Claim(("No other block is.",), subject="facts")


def parts() -> list[Part]:
    whole = Profile("drop", "layer", panel=("model", "task"))
    more = (Map("drop", "layer", "task", name="map"), Map("kept", "layer", "task", name="again"))
    return [
        Part("Which block matters?", rows(), (whole, *more), (FIRST, SECOND)),
        Part("Something else", rows(), (Profile("kept", "layer"),), (Claim(("More is kept.",)),), table=False),
        Part("Only said", claims=(Claim(("A thing.",)),)),
    ]


def made_page(**more: object):
    return page("Which block matters?", "made", parts(), version="1", facts=(("seed", "0"),), **more)


def printed(**options: bool) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(terminal(parts(), **options))
    return console.file.getvalue()


def test_the_answer_is_the_first_sentence_of_the_first_claim_and_stands_once():
    made_of = made_page(basis="8 items.", checks=[Check("good", "Read.")])
    assert made_of.opening.verdict == "sums: Block 1 is critical."
    text = html(made_of)
    for sentence in ("Block 1 is critical.", "It costs 50 points.", "No other block is.", "A thing.", "8 items."):
        assert text.count(sentence) == 1, sentence
    assert text.index("Block 1 is critical.") < text.index("8 items.") < text.index("It costs 50 points.")


def test_the_first_figure_stands_at_the_top_and_further_ones_are_folded():
    made_of = made_page()
    assert made_of.opening.figure.name == "made"
    figures = [each.name for each in made_of.blocks() if isinstance(each, Figure)]
    assert figures == ["made", "map", "again", "something-else"]
    (folded,) = (each for each in made_of.sections[0].blocks if isinstance(each, Folded) and "charts" in each.label)
    assert [figure.name for figure in folded.blocks] == ["map", "again"]


def test_a_page_ends_with_the_study_and_files_hold_every_table_once(tmp_path):
    made_of = made_page(reading=("Read so.",), notes=("A note.",))
    assert made_of.sections[-1].title == "The study"
    publish(tmp_path, "layers", made_of)
    assert [path.name for path in tmp_path.glob("*.csv")] == ["made.csv"]
    assert len(pd.read_csv(tmp_path / "made.csv")) == len(made())
    text = (tmp_path / "report.html").read_text("utf-8")
    assert_asks_for_nothing(text)
    assert [text.count(said) for said in ("Read so.", "A note.")] == [1, 1]


def test_lines_of_which_there_are_none_have_a_file_and_no_table(tmp_path):
    publish(tmp_path, "layers", page("t", "made", [Part("None", rows([]), (Profile("drop", "layer"),))], version="1",
                                     facts=(("a", "b"),)))  # fmt: skip
    assert len(pd.read_csv(tmp_path / "made.csv")) == 0
    assert "<table" not in (tmp_path / "report.html").read_text("utf-8")
    assert answer_of([Part("None", rows([]))]) is None


def test_the_terminal_has_what_follows_the_answer_and_the_strongest_lines():
    text = " ".join(printed().split())
    assert "Block 1 is critical." not in text  # it stands above
    assert text.startswith("It costs 50 points. Block 2 cannot be told.")
    assert "4 of 12 rows (--all for the rest)" in text
    assert "A thing." not in text


def test_with_everything_the_terminal_has_every_claim_and_line():
    text = printed(every=True)
    assert "A thing." in text
    assert text.count("sums") == 2 * 2 * 3  # both parts with rows, a line per model and block
    assert "--all" not in text


@pytest.mark.parametrize("claims", [1, 3, 6])
def test_more_than_three_claims_are_folded(claims):
    several = tuple(Claim((f"Claim {number} holds.",)) for number in range(claims))
    section = Part("t", claims=several).section()
    (shown,) = (each for each in section.blocks if isinstance(each, Claims))
    assert len(shown.claims) == claims
    text = html(page("t", "made", [Part("t", rows(), claims=several)], version="1", facts=(("a", "b"),)))
    assert len(re.findall(r"Claim \d holds\.", text)) == claims
    assert (f"{claims - 4} more" in text) == (claims - 1 > 3)  # the first is the answer


def test_the_excerpt_is_no_longer_than_the_terminal_says():
    assert len(module._strongest(rows(), ()).records) == module.TERMINAL_ROWS
    few = rows(made(models=("m",), tasks=("sums",)))
    assert module._strongest(few, ()).records == few.records


def test_a_terminal_has_the_answer_for_every_subject():
    claims = [
        Claim((f"{subject} is critical.", "By 50 points."), (), subject) for subject in ("one", "two", "one", "three")
    ]
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(terminal([Part("Which?", rows(), claims=tuple(claims))]))
    said = console.file.getvalue().splitlines()[:3]
    assert said == ["By 50 points.", "two: two is critical.", "three: three is critical."]


def test_what_two_claims_say_alike_is_said_once_and_rests_on_the_rows_of_both():
    one, two = (Claim(("No block of MODEL is.",), (row,)) for row in rows().records[:2])
    part = Part("Which?", rows(), claims=(one, FIRST, two)).in_short(Names(("MODEL",)))
    assert [claim.text for claim in part.claims] == [one.text, FIRST.text]
    assert part.claims[0].rows == (*one.rows, *two.rows)
