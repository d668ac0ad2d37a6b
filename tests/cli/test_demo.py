"""`lesion demo`: what it runs, and that its report tells every chapter. On tiny studies in the place of the shipped."""

import re
from pathlib import Path

import pytest

from commandline import lesion
from lesion.cli.terminal import Bar
from lesion.core.study_file import shipped
from lesion.registry import load_study

FAMILIES, VARIANTS = ("llama", "qwen2"), ("base", "instruct", "distill", "rlvr")


def small(name: str) -> str:
    """A shipped study with a handful of items and short answers, on two of its models; few matrices are searched."""
    text = shipped()[name].read_text(encoding="utf-8")
    text = re.sub(r"^items = \d+", "items = 2", text, flags=re.M)
    text = re.sub(r"^samples = \d+", "samples = 4", text, flags=re.M)
    text = re.sub(
        r"^(clusters|runs|starts) = \d+",
        lambda found: f"{found[1]} = {8 if found[1][0] == 'c' else 2}",
        text,
        flags=re.M,
    )
    text = re.sub(r'^  "bundled:\w+-(instruct|distill)",\n', "", text, flags=re.M)
    text = re.sub(r'^  "bundled:qwen2.*\n', "", text, flags=re.M)
    for usual, few in (
        ("validation = 0.2", "validation = 0.5"),
        ("0.9, 0.5, 0.1", "0.5"),
        ("0.01, 0.05", "0.05"),
        ('matrices = ["mlp"]', 'matrices = ["mlp.up"]\nlayers = "0-3"'),
        ('side = "both"', 'side = "top"'),
    ):
        text = text.replace(usual, few)
    return text if name == "demo-drift" else f"{text}\n[decoding]\nmax_new_tokens = 16\n"


def test_the_shipped_chapters_are_on_the_bundled_families():
    everyone = [f"bundled:{family}-{variant}" for family in FAMILIES for variant in VARIANTS]
    for name in ("demo", "demo-drift"):
        assert [model.source for model in load_study(name).models] == everyone
    for name in ("demo-isolation", "demo-truncation"):
        assert load_study(name).model.source == "bundled:llama-base"


@pytest.mark.slow
def test_the_demo_goes_on_where_it_stopped_and_tells_every_chapter_in_one_report(capsys, monkeypatch, tmp_path):
    studies = tmp_path / "studies"
    studies.mkdir()
    files = {}
    for name in ("demo", "demo-drift", "demo-isolation", "demo-truncation"):
        files[name] = studies / f"{name}.toml"
        files[name].write_text(small(name), encoding="utf-8")
    monkeypatch.setattr("lesion.core.study_file.shipped", lambda: files)
    out = tmp_path / "demo"
    say = Bar.say

    def stopped(bar: Bar, text: str) -> None:
        if text.startswith("2 of 5"):
            raise KeyboardInterrupt
        say(bar, text)

    with monkeypatch.context() as patch:
        patch.setattr(Bar, "say", stopped)
        first = lesion(capsys, "demo", "--out", out)
    assert first.code == 130
    assert f"Every answer so far is kept in {out}; the same command goes on from there." in first.err
    assert not (out / "report.html").exists()
    assert f"`lesion demo --out {out}` goes on with it" in lesion(capsys, "report", out).err
    before = (out / "layers" / "summary.json").read_bytes()

    done = lesion(capsys, "demo", "--out", out)
    assert done.code == 0, done.err
    assert not re.search(r"[\d,]+ answers", done.err.partition("2 of 5")[0])  # all of the first chapter are stored
    assert (out / "layers" / "summary.json").read_bytes() == before
    told = (out / "report.html").read_text(encoding="utf-8")
    for part in ("layers", "drift", "isolation", "truncation", "overlay"):
        assert f'href="{part}/report.html"' in told
        assert (out / part / "report.html").is_file()
    assert told.count("<section") == 1 + 5  # the verdict, and a chapter per study
    for part in ("layers", "drift", "isolation", "truncation", "overlay"):
        assert 'href="../report.html"' in (out / part / "report.html").read_text(encoding="utf-8")
    assert "<svg" in told
    assert "bundled:llama-rlvr" in (out / "layers" / "report.html").read_text(encoding="utf-8")
    assert Path(done.out.rsplit("report: ", 1)[1].strip()) == out / "report.html"
