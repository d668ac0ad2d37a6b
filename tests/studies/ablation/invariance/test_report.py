"""The sections on invariance: families on the page of a layer study, from the numbers that the study tells."""

import copy
import re

import made
import made_invariance
import pytest
from page_checks import HOSTILE, Elements

from lesion.errors import LesionError
from lesion.studies.ablation import report as page
from lesion.studies.ablation.invariance import over_time as invariance_time
from lesion.studies.ablation.invariance import report as invariance
from lesion.studies.ablation.invariance import tables as invariance_tables


@pytest.fixture(scope="module")
def told():
    return made_invariance.study()


@pytest.fixture(scope="module")
def text(told):
    return page.page(*told)


def part(text):
    """The section's text without tags, spaces run together."""
    section = text[text.index('<section id="invariance"') : text.index('<section id="accuracy"')]
    return " ".join(re.sub(r"<[^>]*>", " ", section).split())


def family(told, name):
    return next(entry for entry in told[0]["invariance"]["families"] if entry["family"] == name)


def test_a_study_without_families_has_no_such_section(tmp_path):
    assert 'id="invariance"' not in page.page(*made.study())
    assert invariance.pngs(made.study()[0], 0.95) == {}
    assert invariance.sections({"models": [], "invariance": None}, 0.95) == []


def test_every_family_has_its_verdict_as_a_badge_and_its_paragraph(told, text):
    for entry in told[0]["invariance"]["families"]:
        verdict = entry["verdict"]
        assert f"{entry['family']} {verdict['word']} {verdict['text'].partition('. ')[0]}." in part(text)
        for task, word in verdict["by_task"].items():
            assert f"{task} {word}" in part(text)


def test_all_variants_of_a_family_are_on_one_plot_per_task_and_checkpoints_are_not(told):
    llama, qwen = invariance.sections(told[0], 0.95)
    assert [curve["task"] for curve in llama["curves"]] == list(made_invariance.TASKS)
    drawn = str(llama["curves"][0]["drawn"][0])
    assert len(re.findall(r'<g class="t\d"><path class="stroke"', drawn)) == 3
    assert [label for _, label in llama["legend"]] == ["base", "instruct", "rlvr"]
    assert [label for _, label in qwen["legend"]] == ["base", "instruct"]


def test_the_strip_is_filled_where_and_only_where_a_block_is_critical(told):
    for section, entry in zip(invariance.sections(told[0], 0.95), told[0]["invariance"]["families"], strict=True):
        for (name, rows), task in zip(section["strips"], entry["tasks"], strict=True):
            assert name == task["task"]
            for row in rows:
                filled = [layer for layer, cell in row["cells"].items() if cell["class"] != "k0"]
                assert filled == task["critical"][row["model"]]
                curve = next(curve for curve in task["curves"] if curve["model"] == row["model"])
                assert row["cells"][2]["text"] == f"{100 * curve['relative'][2]:.0f}"


def test_the_matrix_holds_every_pair_of_variants_once(told):
    llama, qwen = invariance.sections(told[0], 0.95)
    assert [len(cells) for _, cells in llama["matrices"][0]["rows"]] == [0, 1, 2]
    assert [label for label, _ in qwen["matrices"][0]["rows"]] == ["base", "instruct"]
    pair = next(p for p in family(told, "qwen2")["tasks"][0]["pairs"])
    cell = qwen["matrices"][0]["rows"][1][1][0]
    assert cell["rho"] == invariance_tables.rho(pair["rho"])
    assert cell["sure"] == (pair["p_corrected"] <= 0.05)


def test_over_training_rows_go_by_step_and_the_onset_is_marked_where_a_block_becomes_critical_for_good(told):
    entry = family(told, "llama")
    names = invariance.labels(entry)
    [axis] = invariance_time.axes(entry, entry["tasks"][0], names)
    assert [row["label"] for row in axis["rows"]] == ["step 8", "step 64", "end (base)"]
    assert [row["able"] for row in axis["rows"]] == [False, True, True]
    marked = {(row["label"], layer) for row in axis["rows"] for layer, cell in row["cells"].items() if cell["onset"]}
    expected = {(names[o["model"]], o["layer"]) for o in entry["tasks"][0]["onset"] if o["model"]}
    assert marked == {("end (base)" if name == "base" else name, layer) for name, layer in expected}
    assert marked
    assert invariance_time.axes(family(told, "qwen2"), family(told, "qwen2")["tasks"][0], names) == []


def test_one_task_stands_against_another_with_what_both_lose_there(told, text):
    entry = next(e for e in family(told, "llama")["between_tasks"] if e["model"] == "bundled:llama-base")
    shown = f"{100 * entry['relative_a']:.0f}\N{NO-BREAK SPACE}%"
    assert shown.replace("\N{NO-BREAK SPACE}", " ") in part(text).replace("\N{NO-BREAK SPACE}", " ")
    assert "One task against another in the same model" in text


def test_figures_are_one_per_family_and_task_and_one_more_per_training(told):
    assert set(invariance.pngs(told[0], 0.95)) == {
        "invariance-llama-primer-arithmetic.png", "invariance-llama-primer-atlas.png",
        "invariance-time-llama-primer-arithmetic.png", "invariance-time-llama-primer-atlas.png",
        "invariance-qwen2-primer-arithmetic.png", "invariance-qwen2-primer-atlas.png",
    }  # fmt: skip


def test_models_of_different_depth_lie_over_their_relative_depth(told):
    summary = copy.deepcopy(told[0])
    entry = next(e for e in summary["invariance"]["families"] if e["family"] == "qwen2")
    entry["members"][1]["blocks"] = 12
    for task in entry["tasks"]:
        task["curves"][1]["depth"] = [layer / 11 for layer in task["curves"][1]["layers"]]
    section = invariance.sections(summary, 0.95)[1]
    assert section["by_depth"]
    assert "depth of the block, % of the model" in str(section["curves"][0]["drawn"][1])
    assert invariance.pngs(summary, 0.95)["invariance-qwen2-primer-atlas.png"][:4] == b"\x89PNG"


def test_variants_that_share_a_word_go_by_their_names():
    members = [
        {"model": "a", "variant": "base"}, {"model": "b", "variant": "instruct"}, {"model": "c", "variant": "instruct"},
        {"model": "d", "variant": None}, {"model": "a@step5", "variant": "base", "step": 5},
    ]  # fmt: skip
    assert invariance.labels({"members": members}) == {"a": "base", "b": "b", "c": "c", "d": "d", "a@step5": "step 5"}


def test_numbers_that_are_not_known_are_dashes_and_break_nothing(told):
    summary = copy.deepcopy(told[0])
    for entry in summary["invariance"]["families"]:
        for task in entry["tasks"]:
            task["joint"] = None
            for pair in task["pairs"]:
                pair |= dict.fromkeys(("rho", "low", "high", "p", "p_corrected", "ceiling", "corrected"))
            for curve in task["curves"]:
                curve["relative"] = [None] * len(curve["drops"])
        for one in entry["between_tasks"]:
            one |= dict.fromkeys(("rho", "low", "high", "difference", "difference_low", "relative_b"))
    text = page.page(summary, *told[1:])
    assert "None" not in part(text)
    assert len(invariance.pngs(summary, 0.95)) == 6


def test_hostile_names_and_sentences_stay_text(told, text):
    summary = copy.deepcopy(told[0])
    for entry in summary["invariance"]["families"]:
        entry["family"] = HOSTILE[0]
        entry["notes"] = list(HOSTILE)
        entry["verdict"] |= {"text": HOSTILE[1], "reasons": list(HOSTILE), "word": HOSTILE[3]}
        for member in entry["members"]:
            member["variant"] = f"{member['variant']}{HOSTILE[6]}"
    hostile = Elements(page.page(summary, *told[1:]))
    assert {tag for tag, _ in hostile.found} == {tag for tag, _ in Elements(text).found}
    assert not [a for _, a in hostile.found if "style" in a or any(name.startswith("on") for name in a)]
    files = invariance.pngs(summary, 0.95)
    assert len(files) == 6
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+\.png", name) for name in files)


def test_a_damaged_section_says_what_to_do(told):
    summary = {**told[0], "invariance": {"families": [{"family": "x", "members": [{}], "tasks": []}]}}
    with pytest.raises(LesionError, match="Run the study again on the same folder"):
        page.page(summary, *told[1:])


def test_an_interval_that_is_not_there_is_called_not_measurable_and_a_rho_at_its_ceiling_so(told):
    summary = copy.deepcopy(told[0])
    entry = next(e for e in summary["invariance"]["families"] if e["family"] == "qwen2")
    entry["tasks"][0]["pairs"][0] |= {"rho": 0.97, "ceiling": 0.95, "low": None, "high": None}
    cell = invariance.sections(summary, 0.95)[1]["matrices"][0]["rows"][1][1][0]
    assert cell["limits"] == "not measurable"
    assert "as high as two measurements of one profile reach (about .95)" in cell["tip"]
    assert "of the true profiles not measurable" in cell["tip"]
    entry["tasks"][0]["pairs"][0] |= {"rho": 0.9, "low": 0.91, "high": 1.0, "corrected": 0.98}
    cell = invariance.sections(summary, 0.95)[1]["matrices"][0]["rows"][1][1][0]
    assert cell["limits"] == "[.91,\N{NO-BREAK SPACE}1]"
    assert "two equal profiles would reach about .95" in cell["tip"]
    assert "the noise that lowers ρ taken out" in cell["tip"]
    assert "it may lie above ρ" in part(page.page(summary, *told[1:]))
