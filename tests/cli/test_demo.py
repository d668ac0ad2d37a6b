"""`lesion demo`: what it runs, and that its report tells every chapter. On tiny studies in the place of the shipped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commandline import lesion
from lesion.core.study_file import shipped
from lesion.registry import load_study

FAMILIES, VARIANTS = ("llama", "qwen2"), ("base", "instruct", "distill", "rlvr")


def small(name: str) -> str:
    """A shipped study with a handful of items, on two of its models."""
    text = shipped()[name].read_text(encoding="utf-8")
    text = re.sub(r"^items = \d+", "items = 4", text, flags=re.M)
    text = re.sub(r"^samples = \d+", "samples = 4", text, flags=re.M)
    text = re.sub(
        r"^(clusters|runs|starts) = \d+",
        lambda found: f"{found[1]} = {8 if found[1][0] == 'c' else 2}",
        text,
        flags=re.M,
    )
    text = re.sub(r'^  "bundled:\w+-(instruct|distill)",\n', "", text, flags=re.M)
    text = re.sub(r'^  "bundled:qwen2.*\n', "", text, flags=re.M)
    return text.replace("validation = 0.2", "validation = 0.5").replace("0.9, 0.5, 0.1", "0.5")


def test_the_shipped_chapters_are_on_the_bundled_families():
    everyone = [f"bundled:{family}-{variant}" for family in FAMILIES for variant in VARIANTS]
    for name in ("demo", "demo-drift"):
        assert [model.source for model in load_study(name).models] == everyone
    for name in ("demo-isolation", "demo-truncation"):
        assert load_study(name).model.source == "bundled:llama-base"


@pytest.mark.slow
def test_the_demo_tells_every_chapter_in_one_report_and_goes_on_where_it_stopped(capsys, monkeypatch, tmp_path):
    studies = tmp_path / "studies"
    studies.mkdir()
    files = {}
    for name in ("demo", "demo-drift", "demo-isolation", "demo-truncation"):
        files[name] = studies / f"{name}.toml"
        files[name].write_text(small(name), encoding="utf-8")
    monkeypatch.setattr("lesion.core.study_file.shipped", lambda: files)
    out = tmp_path / "demo"
    done = lesion(capsys, "demo", "--out", out)
    assert done.code == 0, done.err
    told = (out / "report.html").read_text(encoding="utf-8")
    for part in ("layers", "drift", "isolation", "truncation", "overlay"):
        assert f'href="{part}/report.html"' in told
        assert (out / part / "report.html").is_file()
    assert told.count("<section") == 5
    assert "<svg" in told
    assert "bundled:llama-rlvr" in (out / "layers" / "report.html").read_text(encoding="utf-8")
    again = lesion(capsys, "demo", "--out", out)
    assert again.code == 0

    def lasting(text: str) -> str:
        return re.sub(r"decomposed in .* used again", "", text)  # of this run alone

    assert lasting((out / "report.html").read_text(encoding="utf-8")) == lasting(told)
    assert Path(done.out.rsplit("report: ", 1)[1].strip()) == out / "report.html"
