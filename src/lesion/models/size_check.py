"""Size check of a checkpoint before anything is built of it: sizes that its weights have no room for are refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import safe_open

from lesion.errors import LesionError
from lesion.plain import short

if TYPE_CHECKING:  # their library takes seconds to load
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
WIDTHS = ("vocab_size", "hidden_size", "n_embd", "d_model", "intermediate_size", "n_inner", "ffn_dim")


def refuse_implausible(config: PreTrainedConfig, folder: Path, typed: str) -> None:
    """Refuse a configuration of more blocks than there are tensors in its folder, or wider than the largest of them.

    A network is built as its configuration says before its weights are read: one of a million blocks would take all
    memory. A folder without safetensors files is let through.
    """
    count, widest = _held(folder)
    if not count:
        return
    stated_by = config.get_text_config(decoder=True).to_dict()
    there_are, there_is = f"are {count:,} tensors", f"is no tensor with more than {widest:,} rows or columns"
    limits = [(name, count, there_are) for name in DEPTHS] + [(name, widest, there_is) for name in WIDTHS]
    for name, most, held in limits:
        stated = stated_by.get(name)
        if isinstance(stated, int) and stated > most:
            raise LesionError(
                f"The weights of {short(typed, 200)} do not fit its config.json: {name} is {short(stated)}, and there"
                f" {held}. One of the two belongs to another model."
            )


def _held(folder: Path) -> tuple[int, int]:
    count = widest = 0
    for file in sorted(folder.glob("*.safetensors")):
        if not file.is_file():
            continue
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118  (it is no mapping)
                    count += 1
                    widest = max(widest, *tensors.get_slice(name).get_shape(), 0)
        except Exception:  # a damaged file is told where its weights are read
            return 0, 0
    return count, widest


def refuse_foreign_tokenizer(tokenizer: PreTrainedTokenizerBase, network: PreTrainedModel, typed: str) -> None:
    """Refuse a tokenizer whose vocabulary, without added tokens, has no room in the embedding."""
    rows = int(network.get_input_embeddings().weight.shape[0])
    words = int(getattr(tokenizer, "vocab_size", 0) or 0)
    if words > rows:
        raise LesionError(
            f"The tokenizer of {short(typed, 200)} has {words:,} tokens, and the model's embedding {rows:,} rows: it is"
            " the tokenizer of another model. Save the model's own tokenizer into its folder."
        )
