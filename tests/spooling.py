"""Known hidden states, spooled to disk as those of a model are."""

from collections.abc import Iterable, Sequence

import numpy as np

from lesion.activations.hidden_states import HiddenStates


def spooled(layers: Iterable[np.ndarray], texts: Sequence[Sequence[int]], **settings) -> HiddenStates:
    """The states [tokens, width] of every layer; `settings` as of `HiddenStates`."""
    arrays = [np.ascontiguousarray(layer, dtype=np.float32) for layer in layers]
    states = HiddenStates(len(arrays), arrays[0].shape[1], texts, **settings)
    for index, array in enumerate(arrays):
        assert array.shape == (states.tokens, states.width)
        states.path(index).write_bytes(array.tobytes())
    return states
