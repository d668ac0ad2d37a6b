"""Running text in a layer study: perplexities against plain forward passes, and what is said of them."""

import json
import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch

import lesion as api
from commandline import lesion
from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.models.load import load
from lesion.report.table import Table
from lesion.report.values import Estimate
from lesion.report.wording import place
from lesion.statistics.contrasts import perplexity_p
from lesion.studies.ablation.analyses import perplexity as analysis
from lesion.studies.ablation.result import Material, ModelResult, TextResult, TextUnderEdit
from lesion.studies.ablation.summary import is_running_text, text_limits, text_result
from lesion.tasks.catalogue import draw, find
from lesion.tasks.continuations import encode_passage

TEXTS = 6
EDITS = [ScaleBlock(layer) for layer in range(3)]


@pytest.fixture(scope="module")
def bundled():
    return load("bundled:llama-base", dtype="float32")


def scores(model, edit, items) -> list[tuple[float, int]]:
    """The summed log-probability of each text, float64, and of how many tokens."""
    found = []
    for item in items:
        before, passage = encode_passage(model, find("primer:text"), item)
        with applied(model, edit), torch.inference_mode():
            logits = model.network(torch.tensor([[*before, *passage]])).logits[0].double().log_softmax(-1)
        places = range(len(before) - 1, len(before) + len(passage) - 1)
        found.append(
            (sum(float(logits[place, token]) for place, token in zip(places, passage, strict=True)), len(passage))
        )
    return found


def test_perplexities_are_those_of_plain_forward_passes(bundled, tmp_path):
    result = api.ablate(
        bundled, "primer:text", layers=[0, 2], factor=[0.0, 0.5], items=TEXTS, out=str(tmp_path / "out")
    )
    items = draw(find("primer:text"), TEXTS, 0)

    def expected(edit) -> float:
        every = scores(bundled, edit, items)
        return math.exp(-sum(score for score, _ in every) / sum(tokens for _, tokens in every))

    (text,) = result.summary.models[0].texts
    unedited = expected(BASELINE)
    assert text.baseline.value == pytest.approx(unedited, rel=1e-3)
    assert (text.texts, text.tokens) == (TEXTS, sum(tokens for _, tokens in scores(bundled, BASELINE, items)))
    assert {(cell.layer, cell.factor) for cell in text.cells} == {(0, 0.0), (2, 0.0), (0, 0.5), (2, 0.5)}
    for cell in text.cells:
        edited = expected(ScaleBlock(cell.layer, cell.factor))
        assert cell.perplexity.value == pytest.approx(edited, rel=1e-3)
        assert cell.ratio.value == pytest.approx(edited / unedited, rel=1e-3)
        assert cell.ratio.low < cell.ratio.value < cell.ratio.high
    assert result.summary.models[0].tasks == ()
    assert result.table_full.empty
    assert list(result.tables["perplexity"]["ratio"]) == [cell.ratio.value for cell in text.cells]


def answers(values: dict[str, list[float]], tokens: list[int]) -> pd.DataFrame:
    rows = [
        {
            "edit": edit,
            "item": f"i{place}",
            "scores": (score,) if math.isfinite(score) else (),
            "text": "",
            "tokens": count,
        }
        for edit, of_edit in values.items()
        for place, (score, count) in enumerate(zip(of_edit, tokens, strict=True))
    ]
    return pd.DataFrame(rows)


def test_p_is_corrected_over_all_planned_blocks_and_an_unfinished_one_is_left_out():
    tokens, ids = [10, 12, 9], ["i0", "i1", "i2"]
    values = {"baseline": [-20.0, -25.0, -17.0], "0×0": [-40.0, -52.0, -33.0], "1×0": [-20.5, -24.8, -17.4]}
    found = text_result("t", ids, answers(values, tokens), EDITS, 0.95)
    assert [cell.layer for cell in found.cells] == [0, 1]
    first = perplexity_p(*(np.array(values[edit]) for edit in ("baseline", "0×0")), np.array(tokens))
    assert found.cells[0].ratio.p == pytest.approx(first)
    assert found.cells[0].ratio.p_corrected == pytest.approx(3 * first)  # the smallest of three, one of them not known
    assert found.planned == 3
    del values["baseline"]
    assert text_result("t", ids, answers(values, tokens), EDITS, 0.95) is None


def test_an_edit_that_breaks_a_text_has_no_number_and_does_not_hide_the_others():
    values = {"baseline": [-20.0, -25.0], "0×0": [-40.0, math.nan], "1×0": [-21.0, -26.5]}
    found = text_result("t", ["i0", "i1"], answers(values, [10, 10]), EDITS, 0.95)
    broken, whole = found.cells
    assert broken.ratio.value is broken.ratio.p_corrected is broken.perplexity.value is None
    assert whole.ratio.value == pytest.approx(math.exp(2.5 / 20))


def claims(texts, model="m") -> list[tuple[str, ...]]:
    """What is claimed of texts of one model, with plain spaces."""
    summary = studied().model_copy(update={"models": (ModelResult(model=model, tasks=(), texts=texts),)})
    told = analysis.what_raises_it(analysis.sweeps(summary))
    return [tuple(text.replace("\N{NO-BREAK SPACE}", " ") for text in claim.sentences) for claim in told]


@cache
def studied():
    return api.ablate("bundled:llama-base", "primer:text", layers=[0], items=2).summary


@pytest.mark.parametrize(
    ("factor", "without"),
    [(0.0, "without {}"), (0.5, "with {} scaled by 0.5"), ("mean", "with {} replaced by the mean")],
)
def test_the_claim_names_what_raises_the_perplexity_and_where_there_is_no_number(factor, without):
    ratios = (None, 2.0, None, 1.5, 1.25, 1.0)
    cells = [
        TextUnderEdit(layer=layer, unit="block", factor=factor, perplexity=ratio, ratio=ratio)
        for layer, ratio in enumerate(Estimate(value=value, low=value, high=value) for value in ratios)
    ]
    one = Estimate(value=1.0, low=1.0, high=1.0)
    text = TextResult(task="t", texts=2, tokens=20, baseline=one, planned=6, cells=cells)
    where = [without.format(f"block {layer}") for layer in (1, 3, 4, 5)]
    assert claims((text,)) == [
        (
            f"The perplexity of t is multiplied by 2 [2, 2] {where[0]}, by 1.5 [1.5, 1.5] {where[1]} and by 1.25"
            f" [1.25, 1.25] {where[2]}; unedited 1 [1, 1].",
            f"It is not a finite number {without.format('block 0 or block 2')}.",
        )
    ]


def test_a_terminal_shows_what_is_not_finite_first():
    ratios = (1.0, 2.0, None, 1.5, 1.25, 1.1)
    cells = [
        TextUnderEdit(layer=layer, unit="block", factor=0.0, perplexity=ratio, ratio=ratio)
        for layer, ratio in enumerate(Estimate(value=value, low=value, high=value) for value in ratios)
    ]
    text = TextResult(task="t", texts=2, tokens=20, baseline=Estimate(value=1.0), planned=6, cells=cells)
    models = (ModelResult(model="m", tasks=(), texts=(text,)),)
    rows = analysis.rows(studied().model_copy(update={"models": models}))
    assert [cell.layer for _, cell in rows.first(2)] == [1, 2]


def test_a_text_without_any_finite_perplexity_is_said_to_have_none():
    nothing = Estimate(value=None)
    cell = TextUnderEdit(layer=0, unit="block", factor=0.0, perplexity=nothing, ratio=nothing)
    text = TextResult(task="t", texts=2, tokens=20, baseline=Estimate(value=1.0), planned=1, cells=(cell,))
    assert claims((text,)) == [("It is not a finite number without block 0.",)]


def test_one_text_has_neither_interval_nor_test_and_repeated_ones_have_no_test():
    one = text_result("t", ["i0"], answers({"baseline": [-20.0], "0×0": [-40.0]}, [10]), EDITS[:1], 0.95)
    for estimate in (one.baseline, one.cells[0].perplexity, one.cells[0].ratio):
        assert estimate.value is not None
        assert (estimate.low, estimate.high, estimate.p, estimate.p_corrected) == (None, None, None, None)
    repeated = answers({"baseline": [-20.0] * 3, "0×0": [-40.0] * 3}, [10] * 3)
    (cell,) = text_result("t", ["i0", "i1", "i2"], repeated, EDITS[:1], 0.95).cells
    assert (cell.ratio.p, cell.ratio.p_corrected) == (None, None)


def test_what_limits_a_perplexity_is_said():
    def said(texts: int, perplexity: float, vocabulary: int | None = 100) -> list[str]:
        baseline = Estimate(value=perplexity)
        text = TextResult(task="t", texts=texts, tokens=10, baseline=baseline, planned=0, cells=())
        return list(text_limits("m", text, vocabulary))

    assert said(9, 50.0) == []
    assert "one text has no interval" in said(1, 50.0)[0]
    assert "4 texts are few" in said(4, 50.0)[0]
    assert (
        "worse than guessing. The perplexity of the unedited model is 250, and choosing any of its 100"
        in said(9, 250.0)[0]
    )
    assert said(9, 250.0, None) == []


def test_texts_that_are_the_same_are_said_to_be(capsys, tmp_path):
    file = tmp_path / "same.txt"
    file.write_text(" ".join(["word"] * 600), encoding="utf-8")
    done = lesion(
        capsys, "ablate", "bundled:llama-base", "--task", f"text:{file}", "--layers", 0, "--out", tmp_path / "out"
    )
    assert done.code == 0, done.err
    assert "3 items have 1 different questions" in " ".join(done.err.split())
    assert "3 texts are few" in done.out


def test_only_scores_of_one_text_are_running_text():
    frame = answers({"baseline": [-20.0]}, [10])
    assert is_running_text(frame)
    assert not is_running_text(frame.assign(text="chosen"))
    assert not is_running_text(frame.assign(scores=[(-1.0, -2.0)]))


def test_a_study_tells_accuracies_and_perplexities_beside_each_other(capsys, tmp_path):
    out, tasks = tmp_path / "out", ["primer:text", "primer:atlas", "gold:primer:atlas"]
    named = [part for task in tasks for part in ("--task", task)]
    done = lesion(capsys, "ablate", "bundled:llama-base", *named, "--items", 4, "--layers", "0,7", "--out", out)
    assert done.code == 0, done.err
    (model,) = json.loads((out / "summary.json").read_text(encoding="utf-8"))["models"]
    assert [task["task"] for task in model["tasks"]] == ["primer:atlas"]
    assert [text["task"] for text in model["texts"]] == ["primer:text", "gold:primer:atlas"]
    assert list(pd.read_csv(out / "layers.csv")["task"].unique()) == ["primer:atlas"]
    written = pd.read_csv(out / "perplexity.csv")
    assert len(written) == 4
    assert "What do the cuts do to running text?" in (out / "report.html").read_text(encoding="utf-8")


def test_a_study_of_running_text_alone_has_a_page_whose_verdict_is_about_it(capsys, tmp_path):
    out = tmp_path / "out"
    done = lesion(
        capsys, "ablate", "bundled:llama-base", "--task", "primer:text", "--items", 4, "--layers", "0,7", "--out", out
    )
    assert done.code == 0, done.err
    assert "● is critical" not in done.out
    result = api.result(out)
    (claim,) = result.claims
    assert claim.sentences[0].startswith("The perplexity of text is multiplied by ")
    assert f"without {place('block', 0)}" in claim.sentences[0]
    assert result.page().opening.verdict == claim.sentences[0]


def test_every_model_and_factor_has_a_panel_and_every_text_a_line(tmp_path):
    models, factors = ["bundled:llama-base", "bundled:llama-instruct"], [0.0, 0.5]
    result = api.ablate(models, "primer:text", layers=[0, 7], factor=factors, items=4, out=str(tmp_path / "out"))
    part = analysis.part(Material(result.summary))
    (figure,) = part.figures()
    assert len(figure.panels) == 4
    assert len(part.claims) == 4
    frame = Table.of(part.rows).frame
    assert list(frame["ratio"]) == list(result.tables["perplexity"]["ratio"])
    assert list(frame["p"]) == [cell.ratio.p for model in result.summary.models for cell in model.texts[0].cells]


def test_what_is_not_measured_yet_is_said(bundled, tmp_path):
    result = api.ablate(bundled, "primer:text", layers=[0], items=TEXTS, out=str(tmp_path / "out"))
    (text,) = result.summary.models[0].texts
    assert "(1 of 2 cuts so far)" in claims((text.model_copy(update={"planned": 2}),))[0][0]
