"""The trivial rival of a layout that lowers perplexity: a temperature, which makes the model less sure of every token.

Logits are divided by each of a few temperatures; the best on the texts that screen and choose is tested on the others,
for the unedited model and, to see whether the layout adds to it, with the layout (Guo et al. 2017, section 4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Edit
from lesion.models.load import Model
from lesion.report.values import Value

TEMPERATURES = (1.0, 0.8, 0.9, 0.95, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5)
"""Of equally good ones the first counts, so that 1 stands before the others."""
POSITIONS = 64
"""So many are divided at a time, whatever the vocabulary."""
Passage = tuple[tuple[int, ...], tuple[int, ...]]
"""The token ids before a text and those of it, as `encode_passage` has them."""


class AtTemperatures(Value):
    """Of every text its log-probability at each of `TEMPERATURES`, in nats."""

    texts: tuple[tuple[float, ...], ...]

    @property
    def scores(self) -> Float[np.ndarray, "texts temperatures"]:
        """As an array."""
        return np.array(self.texts, dtype=np.float64)


@torch.inference_mode()
def at_temperatures(
    model: Model, passages: Sequence[Passage], edit: Edit = BASELINE, done: Callable[[int], None] = lambda count: None
) -> AtTemperatures:
    """Read passages under an edit, one pass for each; `done` is told of every one."""
    texts = []
    with applied(model, edit):
        for before, passage in passages:
            ids = torch.tensor([[*before, *passage[:-1]]], device=model.device)
            logits = model.network(input_ids=ids, use_cache=False).logits[0, -len(passage) :]
            tokens = torch.tensor(passage, device=logits.device)[:, None]
            parts = zip(logits.split(POSITIONS), tokens.split(POSITIONS), strict=True)
            texts.append(tuple(np.sum([_scores(part.float(), own) for part, own in parts], axis=0).tolist()))
            done(1)
    return AtTemperatures(texts=tuple(texts))


def _scores(
    logits: Float[Tensor, "positions vocabulary"], tokens: Int[Tensor, "positions 1"]
) -> Float[np.ndarray, " temperatures"]:
    said = logits.gather(1, tokens)[:, 0]
    totals = [(said / each - (logits / each).logsumexp(-1)).double().sum() for each in TEMPERATURES]
    return torch.stack(totals).cpu().numpy()
