"""`--stop`: texts that end an answer, a part of what decides it."""

import json

import lesion as package
from commandline import lesion, questions


def texts(folder) -> dict[str, str]:
    answers = package.result(folder).answers
    return dict(zip(answers["item"], answers["text"], strict=True))


def test_answers_end_before_the_first_stop_string_of_the_study(capsys, checkpoint, tmp_path):
    sums = questions(tmp_path / "sums.jsonl", 5)
    options = ["evaluate", checkpoint, "--task", sums, "--max-new-tokens", 24]
    assert lesion(capsys, *options, "--stop", "@never@", "--out", tmp_path / "whole").code == 0
    whole = texts(tmp_path / "whole")
    mark = next(text for text in whole.values() if len(text) > 8)[4:6]
    assert lesion(capsys, *options, "--stop", mark, "--stop", r"\n@", "--out", tmp_path / "cut").code == 0
    assert texts(tmp_path / "cut") == {item: text.split(mark)[0] for item, text in whole.items()}
    study = json.loads((tmp_path / "cut" / "summary.json").read_text("utf-8"))["study"]
    assert study["decoding"]["stop"] == [mark, "\n@"]
    refused = lesion(capsys, *options, "--stop", mark, "--out", tmp_path / "cut")
    assert refused.code == 1
    assert "decoding.stop" in refused.complaint
