"""Families: tiny networks of types of transformers verified, and each study's planted fault found out."""

import os
import time
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import pytest
from transformers import modeling_gguf_pytorch_utils

import architectures as module
import architectures_studies as studies
import architectures_zoo as zoo
from architectures import COLUMNS, families, family
from lesion.edits.edit import ScaleBlock
from lesion.edits.units import ScaleMatrix
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError, UsageError
from lesion.models.load import wrap
from lesion.progress import Silent
from lesion.verification.verify import prompts_of, verified


class Heard(Silent):
    def __init__(self):
        self.stored = []

    def begin(self, model, total, stored, what="answers"):
        self.stored.append(stored)


@pytest.mark.parametrize(
    ("kind", "none"), [("gpt_oss", {"neuron"}), ("lfm2", {"expert"}), ("mamba", {"head", "expert", "neuron"})]
)
def test_a_type_is_verified_in_every_column(kind, none):
    made = family(kind)
    assert made.way == "fast"
    assert {column for column in COLUMNS if not made.states[column]} == none
    answered = {made.states[column] for column in ("baseline", "block", "branch", "matrix", "truncate", "export")}
    assert answered == {"verified"}
    assert made.states["GGUF"] == ("refused" if kind == "gpt_oss" else "verified")
    assert {made.states[column] for column in ("show", "drift", "effects", "patch")} == {"verified"}
    assert made.states["isolate"] == ("refused" if kind == "mamba" else "verified")
    assert made.notes.keys() == {column for column in COLUMNS if made.states[column] == "refused"}


def test_a_table_goes_on_where_it_stopped_and_says_what_ended_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(module.multiprocessing, "get_all_start_methods", lambda: ["fork"])
    monkeypatch.setattr(module.multiprocessing, "get_context", lambda _: Forked())
    monkeypatch.setattr(module, "family", works)
    out, heard = tmp_path / "table.md", Heard()
    first = families(out, heard, ("llama", "reformer", "xlstm"), limit=1.0)
    assert [each.notes.get("") for each in first] == [
        None,
        "its process ended by itself (3)",
        "it took more than 1 seconds",
    ]
    (tmp_path / "table.jsonl").write_text("\n".join((tmp_path / "table.jsonl").read_text().splitlines()[:2]))
    families(out, heard, ("llama", "reformer", "gpt2"), limit=20.0)
    assert heard.stored == [0, 2]
    lines = out.read_text(encoding="utf-8").splitlines()
    assert f"| llama | fast | {' | '.join(['✓'] * len(COLUMNS))} |" in lines
    assert f"| gpt2 | fast | wrong | {' | '.join(['✓'] * (len(COLUMNS) - 1))} |" in lines
    assert "- wrong, show: gpt2: not shown" in lines
    assert "- reformer: its process ended by itself (3)" in lines


def test_what_vllm_does_stands_in_the_same_table_and_neither_run_undoes_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr(module.multiprocessing, "get_all_start_methods", lambda: ["fork"])
    monkeypatch.setattr(module.multiprocessing, "get_context", lambda _: Forked())
    monkeypatch.setattr(module, "family", works)
    monkeypatch.setattr(module, "_on_vllm", lambda kind: kind != "gpt2")
    here = module.versions()
    monkeypatch.setattr(module, "versions", lambda engine="transformers": "vLLM 0" if engine == "vllm" else here)
    out, heard = tmp_path / "table.md", Heard()
    families(out, heard, ("gpt2", "llama"))
    assert "| type | way | " + " | ".join(COLUMNS) + " |" in out.read_text(encoding="utf-8")
    both = families(out, heard, ("gpt2", "llama"), engine="vllm")
    assert [each.states.get("vLLM block") for each in both] == [None, "wrong"]
    again = families(out, heard, ("gpt2", "llama"))
    assert again == both
    assert heard.stored == [0, 0, 2]
    lines = out.read_text(encoding="utf-8").splitlines()
    assert f"| llama | fast | {' | '.join(['✓'] * len(COLUMNS))} | ✓ | wrong | ✓ |" in lines
    assert f"| gpt2 | fast | wrong | {' | '.join(['✓'] * (len(COLUMNS) - 1))} |   |   |   |" in lines
    assert "- wrong, vLLM block: llama: not removed" in lines


def test_without_vllm_its_columns_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="vLLM, which is not installed"):
        families(tmp_path / "table.md", Heard(), engine="vllm")


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("llama", ("LlamaTensorProcessor", "_reverse_permute_weights", lambda processor, weights, *heads: weights)),
        ("nemotron", ("NemotronTensorProcessor", "process", lambda processor, weights, name, **_: gguf(weights, name))),
    ],
)
def test_a_gguf_file_that_is_read_wrong_is_found_out(kind, fault, monkeypatch, tmp_path):
    model = wrap(zoo.made(kind), zoo.tokenizer(), kind)
    assert module._from_gguf(model, kind, tmp_path) == [("verified", "")] * 4
    processor, method, wrong = fault
    monkeypatch.setattr(getattr(modeling_gguf_pytorch_utils, processor), method, wrong)
    assert "wrong" in dict(module._from_gguf(model, kind, tmp_path))


def gguf(weights, name):
    return modeling_gguf_pytorch_utils.GGUFTensor(weights, name, {})


class Forked:
    """A context whose processes have what was replaced for the test."""

    def __init__(self):
        self.context = __import__("multiprocessing").context.ForkContext()
        self.Pipe, self.Process = self.context.Pipe, self.context.Process

    def set_forkserver_preload(self, names):
        """Nothing to load."""


def works(kind, engine="transformers"):
    if engine == "vllm":
        states = {"vLLM": "verified", "vLLM block": "wrong", "vLLM branch": "verified", "vLLM head": ""}
        notes = {"vLLM block": "not removed"}
        return module.Family(type=kind, engine=engine, versions="vLLM 0", way="fast", states=states, notes=notes)
    if kind == "reformer":
        os._exit(3)
    if kind == "xlstm":
        time.sleep(20)
    states = dict.fromkeys(COLUMNS, "verified") | ({"show": "wrong"} if kind == "gpt2" else {})
    notes = {"show": "not shown"} if kind == "gpt2" else {}
    return module.Family(type=kind, versions=module.versions(), way="fast", states=states, notes=notes)


@pytest.mark.parametrize(
    ("study", "measured", "fault"),
    [
        ("drift", "hidden_states", lambda right: lambda model, texts: right(model, [text[::-1] for text in texts])),
        ("effects", "measure", lambda right: lambda readout, text, edits: right(readout, swapped(text), edits)),
        (
            "patch",
            "patched",
            lambda right: lambda model, pair, values, way, patches: right(model, pair, values, "noise", patches),
        ),
        ("isolate", "observe", lambda right: lambda model, texts: right(model, without_the_last(texts))),
    ],
)
def test_a_study_that_measures_something_else_is_found_out(study, measured, fault, monkeypatch):
    model = wrap(zoo.made("llama"), zoo.tokenizer(), "llama")
    texts = tuple(text for text in prompts_of(model) if len(text) > 2)
    compared = getattr(studies, study)
    assert compared(model, texts) == ""
    monkeypatch.setattr(studies, measured, fault(getattr(studies, measured)))
    assert compared(model, texts)


@pytest.mark.parametrize(
    "kind",
    [
        "mllama",  # of whose blocks some do not run over a text alone
        "recurrent_gemma",  # whose modules keep what they read last
        "reformer",  # which has two residual streams
        "xlstm",
    ],
)
def test_blocks_that_are_built_in_another_way_are_removed_and_scaled(kind):
    model = wrap(zoo.made(kind), zoo.tokenizer(), kind)
    rows = verified(model, TransformersEngine, [ScaleBlock(1), ScaleBlock(2, -4.0)])
    assert {row.state for row in rows[:-1]} == {"exact on the simple way"}, rows


@pytest.mark.parametrize(
    "kind",
    [
        "granitemoeshared",  # whose MLP is two modules
        "nanochat",  # whose final norm norms what it embeds too
    ],
)
def test_effects_are_those_of_plain_passes(kind):
    model = wrap(zoo.made(kind), zoo.tokenizer(), kind)
    assert studies.effects(model, tuple(text for text in prompts_of(model) if len(text) > 2)) == ""


@pytest.mark.parametrize(
    "kind",
    [
        "deepseek_v2",  # whose latent attention gives its keys an axis of one head
        "falcon",  # which writes into what its matrices gave
        "llama4_text",  # which gives every token to every expert
        "nemotron_h",  # whose experts have no gate
        "zamba2",  # whose blocks share weights
    ],
)
def test_what_flows_into_matrices_is_summed_up(kind):
    model = wrap(zoo.made(kind), zoo.tokenizer(), kind)
    texts = tuple(text for text in prompts_of(model) if len(text) > 2)
    with nullcontext() if kind != "zamba2" else pytest.raises(LesionError, match="4 of 28"):  # adapters of others
        assert studies.isolate(model, texts) == ""


def test_a_matrix_that_several_blocks_share_is_edited_in_none_of_them_alone():
    model = wrap(zoo.made("zamba"), zoo.tokenizer(), "zamba")
    row = verified(model, TransformersEngine, [ScaleMatrix(3, "attention.shared_transf.self_attn.q_proj")])[1]
    assert row.state == "refused"
    assert "are one matrix" in row.note


def swapped(text):
    return studies.Text(text.prompt[::-1], text.gold)


def without_the_last(calibration):
    (draw,) = calibration.draws
    return replace(calibration, draws=(replace(draw, places=draw.places[:-1]),))


def test_types_stand_in_one_order():
    assert len(zoo.NAMES) > 120
    assert all(one < other for one, other in pairwise(zoo.NAMES))
