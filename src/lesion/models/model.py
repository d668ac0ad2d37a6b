"""Model: a network with its tokenizer and anatomy, and what it says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedTokenizerBase

from lesion.arguments import LongText, validated
from lesion.errors import LesionError
from lesion.markup import facts
from lesion.models.anatomy import Anatomy
from lesion.models.facts import facts_of
from lesion.models.fingerprint import NotFinite, complaint
from lesion.models.matrices import weights_in
from lesion.models.owner import watch
from lesion.models.quantised import FULL_PRECISION, Quantisation
from lesion.plain import some
from lesion.reprs import described

if TYPE_CHECKING:  # their libraries take seconds to load
    import pandas as pd
    from transformers import PreTrainedModel

# Engines stand above models: what a model says is computed there, by name, so that nothing here imports it.
_GENERATE = "lesion.generate"
MOST_MATRICES = 12
"""Of a block, that a notebook names."""


@dataclass(frozen=True)
class Origin:
    """The arguments with which `load` loads the same model again; `dtype` is that of the weights as loaded.

    `storage` says how a GGUF file stores the weights; empty where they are stored as the numbers that they are.
    """

    source: str
    revision: str | None
    dtype: str
    trust_remote_code: bool = False
    storage: str = ""


@dataclass(frozen=True, eq=False)
class Model:
    """A language model on the table.

    Attributes:
        network: the Hugging Face model, in eval mode, without gradients.
        tokenizer: as it came (no token is added).
        anatomy: its blocks and matrices.
        name: as the person typed it.
        fingerprint: 16 hexadecimal digits that tell one set of weights from another.
        origin: where it was loaded from; None of a model made in memory.
        not_finite: its tensors with NaN or infinite values, as they were when the fingerprint was taken.
        quantisation: the storage of the checkpoint, where it is quantised.
        surroundings: what it computed with besides its weights when it was loaded (`lesion.models.fingerprint`).
    """

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    anatomy: Anatomy
    name: str
    fingerprint: str
    origin: Origin | None = None
    not_finite: tuple[NotFinite, ...] = ()
    quantisation: Quantisation | None = None
    surroundings: str = ""

    def __post_init__(self) -> None:
        watch(self)

    def __repr__(self) -> str:
        size = weights_in(self.network)
        counts = f"{len(self.anatomy.blocks)} blocks", f"{in_short(size)} parameters"
        where = f"{self.dtype_name} on {self.device}"
        return described(self, repr(self.name), self.anatomy.family, *counts, where)

    @validated
    def generate(
        self,
        prompt: LongText,
        edit: Any = None,
        *,
        max_new_tokens: int = 64,
        prompt_style: str | None = None,
        thinking: str | None = None,
        system: str | None = None,
        template_arguments: str | Sequence[str] = (),
        thinking_tokens: int | None = None,
        stop: str | Sequence[str] = (),
    ) -> str:
        """What the model says to a prompt, greedily; with an edit, under it.

        Args:
            prompt: the text.
            edit: in any form that `lesion.applied` takes: `"3×0"`, a value, an `.edit` file, several of these, which
                are composed.
            max_new_tokens: of the answer at most; it ends at the end of the context, too.
            prompt_style: by default the model's chat template; `raw`, the prompt as it stands, where it has none.
            thinking: `on`, `off`, or `auto`, the chat template's own way. What is thought is part of the answer.
            system: system prompt of the chat.
            template_arguments: arguments of the chat template, each `KEY=VALUE`.
            thinking_tokens: of the thinking at most; there it is closed, and the model answers.
            stop: strings that end the answer.

        Example:
            >>> model.generate("What is 2 + 2?", "3×0")

        Raises:
            UsageError: it is no edit, or names a place that the model does not have; there is no such prompt style, or
                the chat template does not heed a setting.
            LesionError: the prompt does not fit the context, or the edit was made for another model.
        """
        answer: str = import_module(_GENERATE).generate(
            self,
            prompt,
            edit,
            max_new_tokens=max_new_tokens,
            prompt_style=prompt_style,
            thinking=thinking,
            system=system,
            template_arguments=template_arguments,
            thinking_tokens=thinking_tokens,
            stop=stop,
        )
        return answer

    @validated
    def compare(
        self,
        prompt: LongText,
        edits: Any,
        *,
        max_new_tokens: int = 64,
        prompt_style: str | None = None,
        thinking: str | None = None,
        system: str | None = None,
        template_arguments: str | Sequence[str] = (),
        thinking_tokens: int | None = None,
        stop: str | Sequence[str] = (),
    ) -> pd.DataFrame:
        """What the model says to a prompt, as it is and under each of several edits.

        Args:
            prompt: the text.
            edits: several, or one, each as for `generate`.
            max_new_tokens, prompt_style, thinking, system, template_arguments, thinking_tokens, stop: as for
                `generate`.

        Returns:
            A row per edit with the columns edit and answer, `baseline` first.

        Raises:
            UsageError: as `generate`, or there is no edit, or one is in force.
            LesionError: as `generate`.
        """
        frame: pd.DataFrame = import_module(_GENERATE).compare(
            self,
            prompt,
            edits,
            max_new_tokens=max_new_tokens,
            prompt_style=prompt_style,
            thinking=thinking,
            system=system,
            template_arguments=template_arguments,
            thinking_tokens=thinking_tokens,
            stop=stop,
        )
        return frame

    def _repr_html_(self) -> str:
        notes = (self.complaint(), *self.anatomy.notes)
        shapes = [f"{name} {' × '.join(map(str, m.shape))}" for name, m in self.anatomy.blocks[0].matrices.items()]
        first = some(shapes, MOST_MATRICES)
        rows = (*facts_of(self), ("matrices of block 0 (out × in)", first), *(("note", note) for note in notes if note))
        return facts(self.name, rows)

    def complaint(self, name: str | None = None) -> str:
        """What is wrong with its weights, as a sentence; empty where all are finite."""
        return complaint(self.not_finite, name or self.name)

    def refuse_packed(self, done: str) -> None:
        """Refuse what edits of places cannot do, where a quantised storage holds the weights.

        Args:
            done: what the weights cannot be: `trained`.

        Raises:
            LesionError: saying what can be done instead.
        """
        if self.anatomy.packed:
            raise LesionError(
                f"{self.name} is stored quantised ({self.quantisation}), and packed weights cannot be {done}. Edit "
                f"places instead, with `lesion ablate` or `lesion evaluate --edit 3x0`; or {FULL_PRECISION}."
            )

    @property
    def device(self) -> torch.device:
        """Where token ids must be put: the device of the input embedding."""
        device: torch.device = self.network.get_input_embeddings().weight.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        dtype: torch.dtype = self.network.get_input_embeddings().weight.dtype
        return dtype

    @property
    def dtype_name(self) -> str:
        """Its name: `bfloat16`."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def context(self) -> int:
        """How many positions a prompt and its answer may take together; the last token of an answer takes none.

        By the configuration; where it sets no limit, by the tokenizer. A model with two rotary embeddings (longrope:
        Phi-3 and later) has the positions of the first: beyond them all keys of the batch would be others.
        """
        config = self.network.config.get_text_config()
        stated = getattr(config, "max_position_embeddings", None)
        # XLNet and other old ones state -1 where they have no limit.
        context = int(stated if stated and stated > 0 else self.tokenizer.model_max_length)
        rotary = getattr(config, "rope_parameters", None) or {}
        if rotary.get("rope_type") != "longrope":
            return context
        first = rotary.get("original_max_position_embeddings")
        first = first or getattr(config, "original_max_position_embeddings", None) or context
        return min(context, int(first))

    @property
    def has_chat_template(self) -> bool:
        """Whether the tokenizer knows how to write a conversation."""
        return self.tokenizer.chat_template is not None


def in_short(count: int) -> str:
    """A number of parameters in short: `1.7 M`."""
    power, letter = next(((power, letter) for power, letter in _POWERS if count >= power), (1, ""))
    return f"{count / power:.1f} {letter}" if letter else f"{count:,}"


_POWERS = ((10**9, "B"), (10**6, "M"), (10**3, "k"))
