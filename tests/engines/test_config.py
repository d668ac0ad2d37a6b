"""The choice of an engine: what cannot be is told before anything is loaded, and what is made is let go of."""

import pytest

import tiny
from lesion.engines import config as opening
from lesion.engines.config import EngineChoice, opened
from lesion.engines.factory import load_for
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import UsageError


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"engine": "vlm"}, "There is no engine .vlm.*vllm"),
        ({"workers": 0}, "At least 1 worker is needed, not 0"),
        ({"gpus_per_worker": 0}, "at least 1 GPU"),
    ],
)
def test_what_cannot_be_chosen_is_said(settings, told):
    with pytest.raises(UsageError, match=told):
        EngineChoice(**settings)


@pytest.mark.parametrize(
    ("settings", "library", "told"),
    [
        ({"engine": "vllm"}, "vllm", r"pip install 'lesion\[vllm\]'"),
        ({"workers": 2}, "ray", r"pip install 'lesion\[ray\]'"),
        ({"ray": "auto"}, "ray", r"pip install 'lesion\[ray\]'"),
    ],
)
def test_a_library_that_is_not_installed_is_named(settings, library, told, monkeypatch):
    there = opening.importlib.util.find_spec
    monkeypatch.setattr(opening.importlib.util, "find_spec", lambda name: None if name == library else there(name))
    with pytest.raises(UsageError, match=told), opened(EngineChoice(**settings)):
        pass


def test_one_engine_is_let_go_of_before_the_next_is_made(monkeypatch):
    events = []

    class Running:
        def __init__(self, model, batch_size, tensor_parallel):
            self.name = model.name
            events.append(f"make {self.name}")

        def answer(self, requests):
            return iter(())

        def close(self):
            events.append(f"close {self.name}")

    from lesion.engines.factory import Opened

    monkeypatch.setattr("lesion.engines.vllm.engine.VllmEngine", Running)
    with Opened(EngineChoice("vllm"), None) as make_engine:
        make_engine(tiny.model("llama"), 1)
        make_engine(tiny.model("qwen2"), 1)
    assert events == ["make tiny:llama", "close tiny:llama", "make tiny:qwen2", "close tiny:qwen2"]


def test_a_model_that_others_answer_with_is_loaded_into_main_memory():
    class Cluster:
        accelerated = True

        def prepare(self, device):
            assert device == "auto"

    from lesion.engines.factory import Opened

    with Opened(EngineChoice(workers=1), Cluster()) as make_engine:
        model = load_for(make_engine, "bundled:llama-base", revision=None, dtype="auto", device="auto")
    assert model.device.type == "cpu"
    assert model.origin.source == "bundled:llama-base"
    # The workers' accelerators take the dtype of the checkpoint, so the driver's model has it too.
    assert model.origin.dtype == str(model.network.config.dtype).removeprefix("torch.")
    assert load_for(TransformersEngine, "bundled:llama-base", revision=None, dtype="auto", device="cpu").origin == (
        model.origin.__class__("bundled:llama-base", None, "float32")
    )
