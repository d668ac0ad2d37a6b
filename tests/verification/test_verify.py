"""Verify: sound engines are found sound, and engines with a planted fault are found out, each by its name."""

import dataclasses
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from transformers import DynamicCache

import lesion
import lesion.verification.verify as verification
from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, ScaleAttention, ScaleBlock, Truncate
from lesion.edits.units import ScaleHead
from lesion.engines.checking import ends_of
from lesion.engines.engine import Response
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.tasks.task import Answer
from lesion.verification.verify import _Reference, verified
from tiny import model

EDITS = (ScaleBlock(0), ScaleAttention(1), ScaleHead(1, 2), Truncate("1.mlp.up", 0.25))


class Plain:
    """Prefill and decoding with transformers' own cache, an edit applied in either or both; perhaps another edit."""

    def __init__(self, model, prefill=True, decoding=True, edit=lambda edit, number: edit):
        self.model, self.prefill, self.decoding, self.edit = model, prefill, decoding, edit

    def answer(self, requests) -> Iterator[Response]:
        for number, request in enumerate(requests):
            edit = self.edit(request.edit, number)
            said, cache, ids = [], DynamicCache(config=self.model.network.config), list(request.prompt)
            with torch.inference_mode():
                while len(said) < request.decoding.max_new_tokens and not ends_of(self.model).intersection(said):
                    acts = self.decoding if said else self.prefill
                    with applied(self.model, edit) if acts else nullcontext():
                        logits = self.model.network(torch.tensor([ids]), past_key_values=cache, use_cache=True).logits
                    ids = [int(logits[0, -1].argmax())]
                    said += ids
            yield Response(request.key, Answer("", len(said)), tuple(said))


def next_head(edit, number):
    return dataclasses.replace(edit, head=edit.head + 1) if isinstance(edit, ScaleHead) else edit


def every_second_row(edit, number):
    return edit if number % 2 else BASELINE


def states(rows):
    return {row.edit: row.state for row in rows if row.what not in ("restored", "saved")}


def test_a_sound_engine_is_verified():
    tiny = model("llama")
    rows = verified(tiny, lambda model, _: Plain(model), EDITS)
    assert {*states(rows).values()} == {"verified"}
    assert [row.what for row in rows[-2:]] == ["restored", "saved"]
    assert rows[-2].state == "verified"


@pytest.mark.parametrize(
    ("fault", "named", "spared"),
    [
        ({"decoding": False}, "in the prompt alone, and not while decoding", ()),
        ({"prefill": False}, "keys and values of the prompt are the unedited model's", ()),
        ({"edit": next_head}, "those of 1.attention.head.3×", ("0×0", "1.attention×0", "1.mlp.up top 0.25")),
        ({"edit": every_second_row}, "does not act on every row", ()),
    ],
)
def test_an_engine_with_a_fault_is_found_out(fault, named, spared):
    rows = verified(model("llama"), lambda model, _: Plain(model, **fault), EDITS)
    wrong = [row for row in rows if row.state == "wrong"]
    assert {row.edit for row in rows if row.state == "verified" and row.what not in ("unedited", "restored")} == {
        *spared
    }
    assert wrong
    assert any(named in row.note for row in wrong)


@pytest.mark.parametrize("family", ["gemma3", "gpt_neox", "opt", "qwen2_moe"])
def test_every_kind_of_edit_acts(family):
    rows = verified(model(family), TransformersEngine)
    assert {row.state for row in rows} <= {"verified", "exact on the simple way", "not testable"}, [
        row for row in rows if row.state in ("wrong", "refused")
    ]
    assert {"unedited", "block", "attention", "mlp", "restored"} <= {
        row.what for row in rows if row.state != "not testable"
    }


def test_what_an_engine_refuses_is_told_beside_what_it_answers():
    class WithoutHeads(TransformersEngine):
        def answer(self, requests):
            requests = list(requests)
            if any(isinstance(request.edit, ScaleHead) for request in requests):
                raise LesionError("no heads here")
            return super().answer(requests)

    rows = verified(model("llama"), WithoutHeads, EDITS)
    assert [row.state for row in rows[1:5]] == ["verified", "verified", "refused", "verified"]
    assert rows[3].note == "no heads here"


def test_a_saved_checkpoint_is_compared_with_what_was_meant():
    rows = lesion.verify("bundled:llama-base", ["7×0", "0.attention.head.1×0"])
    saved = rows.iloc[-1]
    assert (saved["what"], saved["state"]) == ("saved", "verified")
    assert "7×0" in saved["edit"]


def test_where_no_factor_shows_the_first_is_compared_with_its_own_reference(monkeypatch):
    tiny = model("llama")
    monkeypatch.setattr(verification._Watched, "reference", lambda watched, edit: _Reference(watched.said(edit), False))
    rows = verified(tiny, TransformersEngine)
    assert {row.state for row in rows[1:-2]} == {"not testable"}  # none is wrong
