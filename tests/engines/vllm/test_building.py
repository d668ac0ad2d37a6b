"""What is said where vLLM is not there or does not start; without vLLM."""

import importlib
import json
import os

import pytest

import tiny
from lesion.engines.config import EngineChoice
from lesion.engines.factory import Opened
from lesion.engines.vllm import building as vllm_building
from lesion.engines.vllm.engine import VllmEngine
from lesion.errors import LesionError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModuleNotFoundError("No module named 'vllm'", name="vllm"), r"not installed: pip install 'lesion\[vllm\]'"),
        (ModuleNotFoundError("No module named 'msgspec'", name="msgspec"), "msgspec is not, which it needs"),
        (ImportError("libcudart.so.12: cannot open shared object file"), "cannot be loaded: libcudart"),
    ],
)
def test_a_library_that_is_not_there_is_named(monkeypatch, error, said):
    found = importlib.import_module

    def missing(name, *arguments):
        if name == "vllm":
            raise error
        return found(name, *arguments)

    monkeypatch.setattr(vllm_building.importlib, "import_module", missing)
    before = dict(os.environ)
    with pytest.raises(LesionError, match=said):
        VllmEngine(tiny.model("llama"))
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("head_dim=8 is not supported", "head_dim=8 is not supported."),
        ("\n  two lines\n  of them", "two lines."),
        (
            "1 validation error for ModelConfig\n  Value error, Model architectures ['Odd'] are not supported for now."
            " Supported architectures: dict_keys(['Even', 'Third']) [type=",
            "Model architectures ['Odd'] are not supported for now.",
        ),
        ("", "ValueError."),
    ],
)
def test_a_reason_is_one_sentence(text, said):
    assert vllm_building.reason(ValueError(text)) == said


def test_a_quantised_model_is_refused_before_its_weights_are_read(tmp_path):
    config = {"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(b"none")
    with pytest.raises(LesionError, match=r"stored quantised \(fp8, 8 bit\).*leave out --engine vllm"):
        Opened(EngineChoice("vllm"), None).load(tmp_path, revision=None, dtype="auto", device="auto")
