"""Contrasts by the command: the real files on a real checkpoint, and what is said where nothing can tempt."""

import json

import numpy as np
import pytest
import torch

from commandline import lesion
from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.models.load import load
from lesion.tasks.catalogue import draw, find
from oneencoding import contrasted


def test_accuracy_on_the_real_files_is_the_share_of_items_whose_right_token_ranks_first(capsys, shared, tmp_path):
    checkpoint, data = shared / "models/stories260K", shared / "data"
    names = [f"ioi:{data}/ioi/ioi.json", f"facts:{data}/counterfact/known_1000.json"]
    tasks = [part for name in names for part in ("--task", name)]
    out = tmp_path / "out"
    done = lesion(capsys, "ablate", checkpoint, *tasks, "--items", 16, "--layers", "3,4", "--seed", 1, "--out", out)
    assert done.code == 0, done.err
    assert "evaluated 96 of 96 answers" in done.out
    assert (out / "report.html").is_file()
    (of_model,) = json.loads((out / "summary.json").read_text(encoding="utf-8"))["models"]
    model = load(str(checkpoint), dtype="float32")
    accuracies = []
    for name, found in zip(names, of_model["tasks"], strict=True):
        assert found["task"] == name
        questions = [contrasted(model.tokenizer, item.question, [item.gold]) for item in draw(find(name), 16, 1)]
        for edit, cell in zip(
            (BASELINE, ScaleBlock(3), ScaleBlock(4)), (found["baseline"], *found["cells"]), strict=True
        ):
            right = []
            with applied(model, edit), torch.inference_mode():
                for prompt, (token,) in questions:
                    right.append(int(model.network(torch.tensor([prompt])).logits[0, -1].argmax()) == token)
            assert cell["accuracy"]["value"] == pytest.approx(np.mean(right)), (name, edit)
            accuracies.append(cell["accuracy"]["value"])
    assert len(set(accuracies)) > 2  # the checkpoint knows something, and the edits change it
