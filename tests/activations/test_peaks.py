"""Peaks equal the maxima that hooks of the test see, one text at a time, whatever the family and the batches."""

import numpy as np
import pytest
import torch

from lesion.activations.observation import observe_peaks
from lesion.errors import LesionError
from tiny import FAMILIES, model, texts

TEXTS = texts(seed=1)

# Where the last linear map of a feed-forward branch lies, written down by hand.
LAST = {
    "gpt_neox": "gpt_neox.layers.{}.mlp.dense_4h_to_h",
    "gpt2": "transformer.h.{}.mlp.c_proj",
    "opt": "model.decoder.layers.{}.fc2",
    "llama": "model.layers.{}.mlp.down_proj",
    "gemma2": "model.layers.{}.mlp.down_proj",
    "phi3": "model.layers.{}.mlp.down_proj",
}
NAMES = {"gpt_neox": "out", "gpt2": "out", "opt": "out"}


def seen(lesioned, module: str) -> tuple[np.ndarray, np.ndarray]:
    """The largest magnitudes into and out of a module, from one text after another without padding."""
    pairs = []

    def hook(layer, args, output):
        pairs.append([part.reshape(-1, part.shape[-1]).abs().amax(0).numpy() for part in (args[0], output)])

    handle = lesioned.network.get_submodule(module).register_forward_hook(hook)
    with torch.no_grad():
        for text in TEXTS:
            lesioned.network(input_ids=torch.tensor([text]), use_cache=False)
    handle.remove()
    return tuple(np.max([pair[side] for pair in pairs], axis=0) for side in (0, 1))


@pytest.mark.parametrize("budget", [1, 30, 1000])
@pytest.mark.parametrize("family", LAST)
def test_peaks_are_the_maxima_over_every_token_of_every_text(family, budget):
    lesioned = model(family)
    peaks = observe_peaks(lesioned, TEXTS, batch_tokens=budget)
    blocks = len(lesioned.anatomy.blocks)
    assert list(peaks) == [f"{block}.mlp.{NAMES.get(family, 'down')}" for block in range(blocks)]
    for block, peak in enumerate(peaks.values()):
        inputs, outputs = seen(lesioned, LAST[family].format(block))
        np.testing.assert_allclose(peak.inputs.numpy(), inputs, rtol=1e-4)
        np.testing.assert_allclose(peak.outputs.numpy(), outputs, rtol=1e-4)


def test_routed_experts_are_left_out_and_a_model_of_them_alone_is_refused():
    assert "mixtral" in FAMILIES
    with pytest.raises(LesionError, match="down projections of tiny:mixtral cannot be followed"):
        observe_peaks(model("mixtral"), TEXTS)
