"""Load: a hub id, a local folder or a bundled checkpoint becomes a model ready for study."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lesion.models.anatomy import Anatomy, dissect


@dataclass(frozen=True, eq=False)
class Model:
    """A language model on the table.

    Attributes:
        network: the Hugging Face model, in eval mode, without gradients.
        tokenizer: its tokenizer, as it came (no token is added).
        anatomy: its blocks and matrices.
        name: as the person typed it.
        fingerprint: 16 hexadecimal digits that tell one set of weights from another (see `fingerprint.py`).
    """

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    anatomy: Anatomy
    name: str
    fingerprint: str

    @property
    def device(self) -> torch.device:
        """Where token ids must be put: the device of the input embedding."""
        return self.network.get_input_embeddings().weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.network.get_input_embeddings().weight.dtype

    @property
    def context(self) -> int:
        """How many positions a prompt and its answer may take together."""
        return int(self.network.config.get_text_config().max_position_embeddings)

    @property
    def has_chat_template(self) -> bool:
        """Whether the tokenizer knows how to write a conversation."""
        return self.tokenizer.chat_template is not None


def wrap(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str) -> Model:
    """A model from objects already in memory. The network is put into eval mode, its gradients off."""
    network.eval().requires_grad_(False)
    return Model(network, tokenizer, dissect(network, name), name, "")
