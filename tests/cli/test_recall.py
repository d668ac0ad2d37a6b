"""`lesion lab recall`: what it writes and prints, that it goes on, and what it says of bad input."""

import json

import pytest

from commandline import lesion
from lesion_labs.recall import model as recipes

SMALL = {"vocabulary": 8, "length": 16, "width": 8, "measured": 10, "batch": 4, "steps": 3, "draws": 1}


@pytest.fixture
def small(monkeypatch):
    """The quick preset in a size of seconds."""
    monkeypatch.setitem(recipes.PRESETS, "quick", {**SMALL, "keep": (0.5,)})


def test_a_training_leaves_summary_and_report_and_prints_what_cutting_does(capsys, small, tmp_path):
    done = lesion(capsys, "lab", "recall", "--noise", 0.4, "--seed", 2, "--out", tmp_path / "out", "--device", "cpu")
    assert done.code == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["recipe"]["noise"], summary["recipe"]["seed"]) == (0.4, 2)
    assert done.out.endswith(f"report: {tmp_path / 'out' / 'report.html'}\n")
    assert "Without F2.out, the noise token's probability" in " ".join(done.out.split())
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!DOCTYPE html>")
    before = (tmp_path / "out" / "summary.json").stat().st_mtime_ns
    again = lesion(capsys, "lab", "recall", "--noise", 0.4, "--seed", 2, "--out", tmp_path / "out", "--device", "cpu")
    assert again.code == 0
    assert (tmp_path / "out" / "summary.json").stat().st_mtime_ns == before
    other = lesion(capsys, "lab", "recall", "--noise", 0.4, "--seed", 3, "--out", tmp_path / "out")
    assert other.code == 2
    assert "seed: 2 there, 3 here" in other.complaint


@pytest.mark.parametrize("feed_forward", ["linear", "none"])
def test_other_feed_forwards_are_cut_where_they_have_matrices(capsys, small, tmp_path, feed_forward):
    done = lesion(capsys, "lab", "recall", "--feed-forward", feed_forward, "--optimiser", "adam", "--out", tmp_path)
    assert done.code == 0
    assert f"Without {'F2' if feed_forward == 'linear' else 'W_OV2'}, " in done.out


def test_a_corpus_of_its_own_characters(capsys, small, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the cat <sat> on the mat " * 40)
    done = lesion(capsys, "lab", "recall", "--corpus", corpus, "--vocabulary", 6, "--out", tmp_path / "out")
    assert done.code == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["language"]["trigger"] == " "
    page = (tmp_path / "out" / "report.html").read_text()
    assert "q is &#34; &#34;" in page


def test_a_corpus_smaller_than_the_vocabulary_is_told_with_both_numbers(capsys, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("abcdefgh" * 5)
    done = lesion(capsys, "lab", "recall", "--corpus", corpus, "--out", tmp_path / "out")
    assert done.code == 2
    assert "8 distinct characters, fewer than the vocabulary of 32" in done.complaint
    assert "--vocabulary 8" in done.complaint


def test_without_noise_the_least_loss_is_no_negative_zero(capsys, small, tmp_path):
    done = lesion(capsys, "lab", "recall", "--noise", 0, "--keep", "0.5", "--out", tmp_path)
    assert "-0.0" not in done.out
    assert '"floor": 0.0' in (tmp_path / "summary.json").read_text()
    assert "0.000 nats" in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "summary.json").read_text())["recipe"]["keep"] == [0.5]
