"""Known hidden states, spooled to disk as those of a model are."""

from collections.abc import Iterable, Sequence

import numpy as np

from lesion.activations.hidden_states import HiddenStates


def spooled(layers: Iterable[np.ndarray], texts: Sequence[Sequence[int]]) -> HiddenStates:
    """The states [tokens, width] of every layer."""
    arrays = [np.ascontiguousarray(layer, dtype=np.float32) for layer in layers]
    states = HiddenStates(len(arrays), arrays[0].shape[1], texts)
    for index, array in enumerate(arrays):
        assert array.shape == (states.tokens, states.width)
        states.path(index).write_bytes(array.tobytes())
    return states
