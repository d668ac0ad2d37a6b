"""The page of an interaction study, from made answers: its verdicts in words, its figures and tables."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from lesion.report.publishing import html
from lesion.studies.interaction import tables
from lesion.studies.interaction.report import InteractionResult
from lesion.studies.interaction.sets import planned
from lesion.studies.interaction.study import InteractionStudy
from lesion.studies.interaction.summary import Answers, summarise

ITEMS = 60
HOSTILE = "<script>alert(1)</script>"


def made(right: dict[tuple[int, ...], range], **options) -> InteractionResult:
    """A study whose items are right under a set of blocks removed where they lie in its range; others, under none."""
    layers = sorted({layer for layers in right for layer in layers})
    study = InteractionStudy.make(model=HOSTILE, tasks=["sums"], layers=layers, **options)
    places = [str(layer) for layer in layers]
    plan = planned(study, places, places)
    rows = []
    for places_of in {(), *((place,) for place in places), *plan.sets}:
        edit = " + ".join(f"{place}×{study.factor:g}" for place in places_of) or "baseline"
        for item in range(ITEMS):
            correct = item in right.get(tuple(map(int, places_of)), range(0))
            rows.append(("sums", edit, str(item), correct, "1", "1", "stop", ()))
    frame = pd.DataFrame(rows, columns=["task", "edit", "item", "correct", "parsed", "text", "finish", "scores"])
    answers = Answers(study, frame, {"sums": [str(item) for item in range(ITEMS)]})
    return InteractionResult("folder", summarise(study, "f" * 64, plan, answers, {"sums": 0.0}))


PAIR = {(): range(60), (2,): range(55), (5,): range(54), (2, 5): range(10), (7,): range(30)}


def test_each_verdict_has_its_word():
    right = {**PAIR, (2, 7): range(30), (5, 7): range(30)}
    result = made(right)
    verdicts = {tuple(map(int, each.places)): each.verdict for each in result.summary.interactions}
    assert verdicts == {(2, 5): "redundant", (2, 7): "no sign", (5, 7): "no sign"}
    # The items that 2 or 5 spoil are spoilt by 7 too; a third of the items would make the test sure.
    right |= {(2,): range(40), (2, 7): range(30)}
    assert {tuple(map(int, each.places)): each.verdict for each in made(right).summary.interactions}[2, 7] == "one path"
    right |= {(2,): range(20)}
    floor = {tuple(map(int, each.places)): each.verdict for each in made(right).summary.interactions}
    assert floor[2, 7] == "cannot tell"


def test_the_first_sentence_counts_the_verdicts_and_the_next_name_the_pair_with_its_interval():
    result = made({**PAIR, (2, 7): range(30), (5, 7): range(30)})
    assert result.findings[0].startswith("sums: Of 3 pairs 1 cost more together than the sum of each alone")
    named = next(text for text in result.findings if "Blocks 2 and 5: 83.3 points together, 8.3 + 10.0 alone" in text)
    assert "65.0 [" in named
    everything = made({(): range(60), (1,): range(5), (2,): range(5), (1, 2): range(0)})
    assert "cannot be told for any pair" in everything.findings[0]
    assert "--factor 0.5" in everything.findings[0]


def test_the_order_of_removal_is_told_against_random_ones():
    right = {(): range(60), (1,): range(60), (2,): range(5), (3,): range(59), (1, 3): range(50)}
    result = made(right, design=["cumulative"], order="1,3,2", random_orders=3)
    assert "Removed one after another, in order, 2 of 3 blocks can be removed with at least half" in result.findings[0]
    first = result.steps[(result.steps["order"] == 0) & (result.steps["removed"] == 1)].iloc[0]
    others = result.steps[(result.steps["order"] > 0) & (result.steps["removed"] == 1)]["value"]
    assert first["beyond_random"] == pytest.approx(np.mean(others) - first["value"])
    scaled = made(right, design=["cumulative"], order="1,3,2", random_orders=99, factor=0.5)
    orders = {number: tuple(part["place"]) for number, part in scaled.steps.groupby("order")}
    assert len(orders) == len(set(orders.values())) == 6  # the order itself, and each of the five others once
    assert "Multiplied by 0.5 one after another" in scaled.findings[0]


def test_the_page_has_its_figures_and_tables_and_escapes_names(monkeypatch):
    monkeypatch.setattr("altair.utils.schemapi.DEBUG_MODE", False)
    right = {(): range(60), (1,): range(50), (2,): range(40), (3,): range(45), (2, 3): range(30)}
    designs = ("pairs", "windows", "cumulative", "shapley")
    every = made(right, design="shapley", permutations=6)
    assert "(exact, all 6 orders)" in every.findings[0]
    shares = tables.shares(every.summary)
    (column,) = (column for column in shares.columns if column.key == "sampling")
    assert {column.write(row) for row in shares.records} == {"exact, all 6 orders"}
    result = made(right, design=designs, permutations=3)
    page = result.page()
    text = html(page)
    assert HOSTILE not in text
    figures = [block.name for block in page.blocks() if getattr(block, "kind", "") == "figure" and block.name]
    assert figures == list(designs)
    named = {block.name for block in page.blocks() if getattr(block, "kind", "") == "table"}
    assert named == {"interactions", "steps", "shapley", "removals"}
    out = io.StringIO()
    Console(file=out, width=100).print(tables.text_tables(result.summary))
    assert "sums" in out.getvalue()
