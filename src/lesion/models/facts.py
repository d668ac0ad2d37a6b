"""What a model is, as names and values: for the terminal and for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lesion.models.model import Model

NO_LIMIT = 10**9  # a tokenizer without a limit states an astronomical one


def facts_of(model: Model) -> tuple[tuple[str, str], ...]:
    """Architecture, size, dtype, device, context, prompt style, tied weights and fingerprint."""
    anatomy = model.anatomy
    architecture = type(model.network).__name__
    context = f"{model.context:,} tokens" if model.context < NO_LIMIT else "no stated limit"
    return (
        (
            "architecture",
            f"{architecture}, family {anatomy.family}" if anatomy.known else f"{architecture}, unknown",
        ),
        ("blocks", f"{len(anatomy.blocks)} (0 to {len(anatomy.blocks) - 1})"),
        ("parameters", _parameters(model)),
        *((("stored as", model.origin.storage),) if model.origin and model.origin.storage else ()),
        ("dtype", str(model.dtype).removeprefix("torch.")),
        ("device", ", ".join(sorted({str(p.device) for p in model.network.parameters()}))),
        ("context", context),
        (
            "prompt style",
            "the model's own chat template" if model.has_chat_template else "plain text (it has no chat template)",
        ),
        ("tied weights", "; ".join(" = ".join(group) for group in anatomy.tied) or "none"),
        ("fingerprint", model.fingerprint),
    )


def _parameters(model: Model) -> str:
    """Total, per block, and in embeddings and head, where a tied tensor counts once."""
    total = sum(parameter.numel() for parameter in model.network.parameters())
    blocks = [sum(p.numel() for p in block.module.parameters()) for block in model.anatomy.blocks]
    ends = (model.network.get_input_embeddings(), model.network.get_output_embeddings())
    seen = {id(p): p.numel() for end in ends if end is not None for p in end.parameters()}
    each = f"{min(blocks):,}" if min(blocks) == max(blocks) else f"{min(blocks):,} to {max(blocks):,}"
    return f"{total:,} in all; {each} a block; {sum(seen.values()):,} in embedding and head"
