"""One change has one spelling, under which its answers are stored."""

import pytest
import torch

from lesion.edits.apply import applied
from lesion.edits.text import parse, simplified
from tiny import model


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("3×0", "3×0"),
        ("1×0 + 0×0", "0×0 + 1×0"),
        ("2×0 + 2×0", "2×0"),
        ("2×2 + 2×0.5", "baseline"),
        ("2×1 + 0×0", "0×0"),
        ("1.mlp×0 + 1×0", "1×0 + 1.mlp×0"),
        ("2.mlp.up top 0.5 + 1×0 + 2.mlp.up top 0.5", "1×0 + 2.mlp.up top 0.5"),
        ("2.mlp.up top 1", "baseline"),
        ("2.mlp.up top 0.5 + 2.mlp.up bottom 0.75", "2.mlp.up bottom 0.75 + 2.mlp.up top 0.5"),
        ("baseline", "baseline"),
    ],
)
def test_every_place_is_named_once_in_order_and_what_changes_nothing_is_gone(text, simple):
    assert str(simplified(parse(text))) == simple
    assert str(simplified(simplified(parse(text)))) == simple


@pytest.mark.parametrize("text", ["2×2 + 0.mlp×0.5 + 2×0.25", "1.mlp.up bottom 0.75 + 0×0 + 1.mlp.up top 0.5 + 2×1"])
def test_the_model_does_the_same(text):
    subject = model("llama")
    ids = subject.tokenizer("2 + 2 =", return_tensors="pt").input_ids

    def logits(edit):
        with applied(subject, edit), torch.no_grad():
            return subject.network(ids).logits

    assert torch.allclose(logits(parse(text)), logits(simplified(parse(text))), atol=1e-5)
