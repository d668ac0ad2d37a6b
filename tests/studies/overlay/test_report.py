"""The page of an overlay: its charts, what its sentences say, its tables, and that names stay names."""

import io
import re

import pytest
from rich.console import Console

from lesion.report import drawing, wording
from lesion.report.publishing import html
from lesion.studies.overlay.report import OverlayResult, do_studies_agree, what_is_missing
from lesion.studies.overlay.result import Correlation, ModelProfiles, OverlaySummary, Profile
from lesion.studies.overlay.summary import corrected, correlations, needed
from runs import page_of

UNITS = {"layers": "points", "drift": "nmi", "isolation": "share", "truncation": "nats"}


def profile(label, values, kind="layers", model="made", critical=(), blocks=None, **more):
    low, high = (tuple(value + by for value in values) for by in (-0.05, 0.05))
    return Profile(
        model=model, kind=kind, label=label, blocks=tuple(range(len(values))) if blocks is None else blocks,
        values=tuple(map(float, values)), low=low, high=high, unit=UNITS[kind], critical=critical, **more,
    )  # fmt: skip


def model_of(profiles, name="made", pairs=None) -> ModelProfiles:
    pairs = correlations(profiles) if pairs is None else pairs
    return ModelProfiles(model=name, fingerprint=None, profiles=profiles, correlations=pairs)


def overlay(*models: ModelProfiles, folders=("a", "b"), notes=("A note.",)) -> OverlaySummary:
    return OverlaySummary(version="0.1.0", folders=folders, models=corrected(models), notes=notes)


def made(model="made", label="drop · sums") -> ModelProfiles:
    profiles = (
        profile(label, (0.1, 0.2, 0.3, 0.4, 0.5, 0.9), critical=(0, 5), model=model),
        profile("lost in the block", (0.01, 0.02, 0.03, 0.04, 0.05, 0.3), "drift", model=model),
        profile("after the block", (0.9, 0.8, 0.7, 0.6, 0.5, 0.4), "drift", ranked=False, model=model),
        profile("density", (0.3, 0.1, 0.2, 0.1, 0.1), "isolation", blocks=(0, 1, 2, 4, 5), model=model),
    )
    return model_of(profiles, model)


def printed(summary: OverlaySummary, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(OverlayResult("folder", summary).text(every=True))
    return out.getvalue()


def shown_of(figure):
    """The bars of every chart of a figure: their places, ends and whether they are full."""
    bars = []
    for chart in figure.panels[0].charts:
        specified = drawing.specification(chart)
        rows = next(rows for rows in specified["datasets"].values() if rows and "full" in rows[0])
        bars.append([(row["x"], row["base"], row["y"], row["full"]) for row in rows])
    return bars


def test_every_profile_is_drawn_in_its_unit_and_critical_blocks_are_full_in_every_row():
    result = OverlayResult("folder", overlay(made()))
    drops, lost, _, density = shown_of(result.page().opening.figure)
    assert [(x, round(y, 6), full) for x, _, y, full in drops] == [
        (0, 10.0, True), (1, 20.0, False), (2, 30.0, False), (3, 40.0, False), (4, 50.0, False), (5, 90.0, True),
    ]  # fmt: skip
    assert [full for *_, full in lost] == [True, False, False, False, False, True]
    assert [(x, full) for x, _, _, full in density] == [(0, True), (1, False), (2, False), (4, False), (5, True)]
    assert [round(y, 6) for _, _, y, _ in density] == [30.0, 10.0, 20.0, 10.0, 10.0]
    assert {base for _, base, _, _ in drops} == {0.0}


def test_the_matrix_has_every_pair_of_ranked_profiles_and_boxes_those_that_agree():
    result = OverlayResult("folder", overlay(made()))
    (figure,) = (block for block in result.page().blocks() if getattr(block, "name", "") == "correlations"
                 and block.kind == "figure")  # fmt: skip
    specified = drawing.specification(figure.panels[0].charts[0])
    rows = next(rows for rows in specified["datasets"].values() if "marked" in rows[0])
    assert [(row["x"], row["y"]) for row in rows] == [(1, "2"), (1, "3"), (2, "3")]
    (model,) = result.summary.models
    assert [row["marked"] for row in rows] == [pair.p_corrected <= 0.05 for pair in model.correlations]
    assert [row["value"] for row in rows] == pytest.approx([pair.rho for pair in model.correlations], abs=1e-5)


def test_agreement_beyond_chance_is_claimed_of_the_surest_pair():
    [claim] = do_studies_agree(overlay(made()))
    assert claim.sentences[0] == "Drop · sums rises with lost in the block over the blocks (ρ\N{NO-BREAK SPACE}1)."
    assert "Corrected p " in claim.sentences[1]
    assert claim.sentences[2].startswith("1 of 3 pairs")
    assert [pair.b for _, pair in claim.rows] == ["lost in the block"]
    falling = (profile("drop", (6, 5, 4, 3, 2, 1)), profile("lost", (1, 2, 3, 4, 5, 6), "drift"))
    [claim] = do_studies_agree(overlay(model_of(falling)))
    assert claim.sentences[0].startswith("Drop falls where lost rises over the blocks (ρ")


ORDERS = ((0.1, 0.5, 0.2, 0.6, 0.3, 0.4), (3, 1, 2, 2.5, 1.5, 0.5))


@pytest.mark.parametrize(
    ("blocks", "words"),
    [(6, "No two studies are shown to rank the blocks alike."), (5, "only perfect agreement over 5 blocks would pass"),
     (4, "not even perfect agreement over 4 blocks would pass"), (3, "No two profiles of different studies can be")],
)  # fmt: skip
def test_what_so_few_blocks_can_show_decides_what_is_claimed(blocks, words):
    profiles = (profile("drop", ORDERS[0][:blocks]), profile("lost", ORDERS[1][:blocks], "drift"))
    [claim] = do_studies_agree(overlay(model_of(profiles)))
    assert words in claim.sentences[0]
    result = OverlayResult("folder", overlay(model_of(profiles)))
    assert words in result.verdict
    if blocks > 3:
        assert "The strongest of 1 pair" in claim.sentences[1]
        least = needed(blocks, 1)
        assert ("no correlation short of a perfect one" in result.basis) == (least is None or least >= 1 - 1e-9)


def test_one_kind_of_study_alone_is_not_tested_against_itself():
    profiles = (profile("a", (0.1, 0.5, 0.2, 0.6)), profile("b", (0.1, 0.4, 0.2, 0.6)))
    summary = overlay(*(model_of(profiles, name) for name in ("made", "other")))
    assert do_studies_agree(summary) == ()
    [missing] = what_is_missing(summary)
    assert missing.sentences[0] == "made and other have one kind of study (layer ablation), so nothing is compared."
    assert missing.sentences[1].startswith("Add a folder of `lesion drift`, `lesion isolate` or `lesion truncate`")
    assert what_is_missing(overlay(made())) == ()


def test_the_surest_pair_is_named_before_a_larger_rho_over_fewer_blocks_whose_number_is_told():
    profiles = (profile("drop", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)), profile("lost", (1, 2, 3, 4, 5, 6), "drift"))
    pairs = (
        Correlation(a="drop", b="few", blocks=4, rho=1.0, p=0.08, p_corrected=0.16),
        Correlation(a="drop", b="weak", blocks=6, rho=0.5, p=0.04, p_corrected=0.16),
        Correlation(a="drop", b="lost", blocks=6, rho=0.8, p=0.04, p_corrected=0.16),
    )
    model = model_of(profiles, pairs=pairs)
    assert [pair.b for pair in model.tested] == ["lost", "weak", "few"]
    [claim] = do_studies_agree(overlay(model))
    assert "is drop with lost (ρ\N{NO-BREAK SPACE}.80, p" in claim.sentences[1]
    [claim] = do_studies_agree(overlay(model_of(profiles, pairs=pairs[:1])))
    assert "(ρ\N{NO-BREAK SPACE}1 over 4 blocks, p" in claim.sentences[1]


def test_the_model_with_most_kinds_of_study_is_the_answer():
    two = model_of((profile("a", ORDERS[0]), profile("b", ORDERS[1], "drift")), "two")
    assert [claim.subject for claim in do_studies_agree(overlay(two, made("three")))] == ["three", "two"]


def test_the_page_says_that_the_first_step_of_drift_is_left_out():
    text = html(page_of(OverlayResult, overlay(made())))
    assert "whose layer agrees with itself" in text


@pytest.mark.parametrize(("value", "text"), [(1.0, "1"), (0.804, ".80"), (-0.31, "−.31"), (-0.001, ".00"), (None, "–")])
def test_a_correlation_has_two_decimals(value, text):
    assert wording.rho(value) == text


def test_the_terminal_shows_every_pair_the_surest_first_when_asked_for_everything():
    text = printed(overlay(made()))
    table = text[text.index("Pairs of profiles") :]
    assert table.index("lost in the block") < table.index("density")
    assert not re.search("nan|None|\N{REPLACEMENT CHARACTER}", text)


def test_profiles_over_too_few_blocks_have_a_page_without_any_correlation():
    profiles = (profile("a", (0.1, 0.5, 0.2)), profile("b", (0.1, 0.4, 0.2)))
    summary = overlay(model_of(profiles))
    assert [pair.rho for pair in summary.models[0].correlations] == [None]
    assert "a and b" not in html(page_of(OverlayResult, summary))
    assert OverlayResult("folder", summary).tables["correlations"]["rho"].isna().all()
