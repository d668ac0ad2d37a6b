"""Edits of every form written into a checkpoint: it says what the model says under the edit in memory."""

from __future__ import annotations

import pytest
import torch

import lesion
from lesion.edits.files.meant import as_weights, edit_files
from tiny import model, tiny, tokenizer

IDS = torch.arange(10)[None]


def checkpoint(folder):
    tiny("llama").save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def logits(model) -> torch.Tensor:
    with torch.inference_mode():
        return model.network(IDS).logits


def assert_same(folder, base, edit) -> None:
    with lesion.applied(base, edit):
        wanted = logits(base)
    assert not torch.allclose(wanted, logits(base), atol=1e-3)
    torch.testing.assert_close(logits(lesion.load(folder)), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "edit",
    [
        "1x0",
        lesion.ScaleMlp(0, 0.5),
        ["0.attention×2", "1.mlp×0"],
        "0-1×0",
        lesion.Truncate("1.mlp.up", 0.1),
        lesion.ScaleParameters(lesion.Magnitude(0.3), 0.0),
        "0.mlp×0.5 + 1.mlp.up top 0.1",
    ],
)
def test_a_checkpoint_says_what_the_model_says_under_the_edit(edit, tmp_path):
    source = checkpoint(tmp_path / "base")
    done = lesion.apply(source, edit, tmp_path / "out")
    assert done.folder == tmp_path / "out"
    assert_same(tmp_path / "out", lesion.load(source), edit)


def test_files_values_and_texts_may_stand_together(tmp_path):
    source = checkpoint(tmp_path / "base")
    base = lesion.load(source)
    magnitude = lesion.ScaleParameters(lesion.Magnitude(0.3, ("0.mlp.up",)), 0.0)
    path = lesion.save_edit(tmp_path / "cut.edit", magnitude, base)
    done = lesion.apply(source, [path, "1×0"], tmp_path / "out")
    assert [deed.edit.label for deed in done.deeds] == ["magnitude-0.3", "1x0"]
    assert_same(tmp_path / "out", base, [magnitude, "1×0"])


def test_a_file_needs_no_model(tmp_path):
    path = lesion.save_edit(tmp_path / "cut.edit", lesion.ScaleParameters(lesion.Magnitude(0.3)), model("llama"))

    def refused():
        raise AssertionError("the model was loaded")

    for given in (path, str(path), lesion.read_edit(path), [path]):
        assert [file.label for file in edit_files(given, refused)] == ["magnitude-0.3"]


@pytest.mark.parametrize(("family", "edit"), [("llama", "1×0.5"), ("gpt2", "1.mlp×0"), ("gemma2", "1.mlp×0.5")])
def test_what_is_another_function_as_weights_is_refused(family, edit):
    with pytest.raises(lesion.UsageError, match=f"'{edit}' cannot be written into the weights of tiny:{family}"):
        edit_files(edit, lambda: model(family))


@pytest.mark.parametrize(("edit", "message"), [("banana", "'banana' is not an edit"), ([], "at least one edit")])
def test_what_is_no_edit_is_refused(edit, message):
    with pytest.raises(lesion.UsageError, match=message):
        edit_files(edit, lambda: model("llama"))


def test_a_place_is_tried_before_it_is_written():
    written = as_weights(lesion.parse("1.mlp×0"), model("mixtral"))
    assert written.edits[0].selection.addresses == tuple(f"1.mlp.expert{n}.down" for n in range(4))
