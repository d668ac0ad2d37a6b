"""The report's files: self-contained, safe against the texts of models, whole or not there."""

import json
import os
import stat
from pathlib import Path

import pandas as pd
import pytest
from made import form, records, study, valid
from page_checks import HOSTILE, hostile_study, inflated

from lesion.errors import LesionError
from lesion.report.publishing import html
from lesion.studies.ablation import report as page
from lesion.studies.ablation.result import read_finished
from written import write_layers


def made_page(summary, answers, items):
    return page.AblationResult(Path("nowhere"), summary, stored=(answers, items)).page()


@pytest.fixture(scope="module")
def text():
    return html(made_page(*study()))


def test_the_chapter_of_one_model_asks_about_no_family_and_has_its_findings_and_drops(tmp_path):
    summary, answers, items = study(("base",))
    chapter = page.AblationResult(tmp_path, summary, stored=(answers, items)).chapter()
    assert chapter.title == "Which blocks does each skill depend on?"
    sentence = chapter.claims[0].sentences[0].replace("\N{NO-BREAK SPACE}", " ")
    assert sentence == "Block 2 is critical for sums and spares facts."
    assert [figure.name for figure in chapter.figures] == ["accuracy"]


def test_hostile_texts_are_read_back_as_they_were(tmp_path):
    written = write_layers(tmp_path, *hostile_study())
    data = json.loads(inflated(written.read_text("utf-8"), "data"))
    assert set(HOSTILE[:5]) <= set(data["texts"])
    assert "{{ 7 * 7 }}" in written.read_text("utf-8")


def test_a_study_in_progress_says_what_is_missing(text):
    summary, (answers, items) = form(models=("base",)), records(models=("base",))
    del summary["models"][0]["tasks"][1]["cells"][2]
    begun = html(made_page(valid(summary), answers[answers["edit"] != "3×0"], items))
    assert "This study is not finished" in begun
    assert "base on facts: block\N{NO-BREAK SPACE}2 not measured." in begun
    assert "This study is not finished" not in text


def test_a_study_without_a_title_has_its_question(text):
    assert "<h1>A made study</h1>" in text
    summary = form()
    summary["study"]["title"] = None
    assert "<h1>Which blocks does each skill depend on?</h1>" in html(made_page(valid(summary), *records()))


def test_a_study_without_any_answer_still_has_a_page(tmp_path):
    columns = ["model_name", "edit", "task", "item", "text", "tokens", "finish", "correct", "parsed"]
    items = pd.DataFrame(columns=["task", "item", "question", "gold", "group"])
    nothing = valid(form((), ()))
    text = write_layers(tmp_path, nothing, pd.DataFrame(columns=columns), items).read_text("utf-8")
    assert "Nothing has been measured yet." in text


def test_the_layers_of_a_damaged_summary_are_refused_with_advice(tmp_path):
    write_layers(tmp_path, *study())
    path = tmp_path / "summary.json"
    path.write_text(path.read_text("utf-8").replace('"cells"', '"cell"', 1))
    with pytest.raises(LesionError, match=r"is damaged .*lesion report"):
        read_finished(tmp_path, ["base"])


def test_a_full_disk_leaves_the_former_report_whole_and_nothing_beside_it(tmp_path, monkeypatch):
    written = write_layers(tmp_path, *study())
    before = written.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LesionError, match=r"free some space and run `lesion report`"):
        write_layers(tmp_path, *study(models=("other",)))
    assert written.read_bytes() == before
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.skipif(os.name != "posix", reason="file modes are a POSIX matter")
def test_the_files_can_be_read_by_whom_the_umask_lets(tmp_path):
    written = write_layers(tmp_path, *study(tasks=("sums",)))
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(written.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
