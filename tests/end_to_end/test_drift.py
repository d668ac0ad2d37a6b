"""A drift on the bundled model and on a real checkpoint: curves beside plain passes of the network, the whole page."""

import numpy as np
import pytest
import torch

import lesion
from commandline import lesion as command
from lesion.core.values import read_summary
from lesion.studies.drift.measurement import draw_runs
from lesion.studies.drift.result import DriftSummary
from lesion.studies.drift.study import DriftStudy
from lesion.tasks.catalogue import find


def test_on_the_bundled_model_cosine_and_cka_are_those_of_plain_passes_of_the_network(capsys, tmp_path):
    """Independent: prompts written by hand, the network alone, one text at a time, float64 by the definitions."""
    out = tmp_path / "out"
    options = ["--items", 4, "--runs", 1, "--clusters", 6, "--starts", 1, "--solution", "none"]
    done = command(capsys, "drift", "bundled:llama-base", "--task", "primer:arithmetic", *options, "--out", out)
    assert done.code == 0, done.err
    (entry,) = read_summary(DriftSummary, out, "").models
    model = lesion.load("bundled:llama-base")
    study = DriftStudy.make(models=["bundled:llama-base"], task="primer:arithmetic", items=4, runs=1)
    (items,) = draw_runs(study, find("primer:arithmetic"))
    states: list[list[np.ndarray]] = []
    for item in items:
        ids = model.tokenizer(f"Question: {item.question}\nAnswer:", return_tensors="pt").input_ids
        with torch.inference_mode():
            hidden_states = model.network(ids, output_hidden_states=True).hidden_states
        states.append([layer[0].double().numpy() for layer in hidden_states])
    assert entry.runs[0].tokens == sum(len(text[0]) for text in states)
    layers = [np.concatenate(layer) for layer in zip(*states, strict=True)]
    zero = layers[0]

    def cka(x: np.ndarray, y: np.ndarray) -> float:
        x, y = x - x.mean(0), y - y.mean(0)
        return float(np.linalg.norm(y.T @ x) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)))

    # The last of transformers' has been through the final norm, which a drift looks at no more.
    assert [layer_result.layer for layer_result in entry.curve.layers] == list(range(len(layers)))
    for layer_result, layer in list(zip(entry.curve.layers, layers, strict=True))[:-1]:
        norms = np.linalg.norm(zero, axis=1) * np.linalg.norm(layer, axis=1)
        assert layer_result.cosine.mean == pytest.approx(float(np.mean((zero * layer).sum(1) / norms)), abs=1e-4)
        assert layer_result.cka.mean == pytest.approx(cka(zero, layer), abs=1e-4)
