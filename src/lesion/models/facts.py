"""What a model is, as names and values: for the terminal and for a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lesion.models.matrices import weights_in
from lesion.models.order import order_text

if TYPE_CHECKING:
    from lesion.models.model import Model

NO_LIMIT = 10**9  # a tokenizer without a limit states an astronomical one


def facts_of(model: Model) -> tuple[tuple[str, str], ...]:
    """Architecture, heads, neurons or experts, size, dtype, storage, device, context, prompt style, tied weights,
    fingerprint.
    """
    anatomy = model.anatomy
    architecture = type(model.network).__name__
    context = f"{model.context:,} tokens" if model.context < NO_LIMIT else "no stated limit"
    return (
        ("architecture", f"{architecture}, family {anatomy.family}" if anatomy.known else f"{architecture}, unknown"),
        ("blocks", f"{len(anatomy.blocks)} (0 to {len(anatomy.blocks) - 1})"),
        ("heads a block", _heads(model)),
        ("MLP a block", _mlps(model)),
        ("parameters", _parameters(model)),
        *((("weights stored", model.origin.storage),) if model.origin and model.origin.storage else ()),
        ("dtype", model.dtype_name),
        *((("weights stored", _stored(model)),) if model.quantisation is not None else ()),
        ("device", ", ".join(sorted({str(p.device) for p in model.network.parameters()}))),
        ("context", context),
        (
            "prompt style",
            "the model's own chat template" if model.has_chat_template else "plain text (it has no chat template)",
        ),
        ("tied weights", "; ".join(" = ".join(group) for group in anatomy.tied) or "none"),
        ("fingerprint", model.fingerprint),
    )


def _stored(model: Model) -> str:
    """The quantised storage, and which edits it leaves."""
    if model.anatomy.packed:
        return f"{model.quantisation}; edits of places only"
    return f"{model.quantisation}; dequantised when loaded, so every edit works; `lesion apply` needs --weights"


def _heads(model: Model) -> str:
    """Query heads, what each of them gives, and key-value heads where these are fewer."""
    kinds: dict[str, list[int]] = {}
    for block in model.anatomy.blocks:
        kind = "no attention is known"
        if block.attention is not None:
            heads = block.attention.heads
            kind = "not known, but an attention can be edited as a whole"
            if heads is not None:
                groups = f" in {heads.groups} key-value groups" if heads.groups < heads.count else ""
                kind = f"{heads.count} (0 to {heads.count - 1}) of size {heads.size}{groups}"
        kinds.setdefault(kind, []).append(block.index)
    return _by_blocks(kinds)


def _mlps(model: Model) -> str:
    kinds: dict[str, list[int]] = {}
    for block in model.anatomy.blocks:
        kind = "no MLP is known"
        if block.mlp is not None:
            experts, neurons = block.mlp.experts, block.mlp.neurons
            units, noun = (experts, "experts") if experts is not None else (neurons, "neurons")
            unknown = "units not known, but an MLP can be edited as a whole"
            kind = unknown if units is None else f"{units.count:,} {noun} (0 to {units.count - 1:,})"
        kinds.setdefault(kind, []).append(block.index)
    return _by_blocks(kinds)


def _by_blocks(kinds: Mapping[str, Sequence[int]]) -> str:
    """Kinds of blocks, each with the numbers of its blocks where there are several."""
    if len(kinds) == 1:
        return next(iter(kinds))
    names = (f"block{'s' * (len(own) > 1)} {order_text(own).replace(',', ', ')}" for own in kinds.values())
    return "; ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True))


def _parameters(model: Model) -> str:
    """Total, per block, and in embeddings and head, where a tied tensor counts once."""
    total = weights_in(model.network)
    blocks = [weights_in(block.module) for block in model.anatomy.blocks]
    ends = (model.network.get_input_embeddings(), model.network.get_output_embeddings())
    seen = {id(p): p.numel() for end in ends if end is not None for p in end.parameters()}
    each = f"{min(blocks):,}" if min(blocks) == max(blocks) else f"{min(blocks):,} to {max(blocks):,}"
    return f"{total:,} in all; {each} a block; {sum(seen.values()):,} in embedding and head"
